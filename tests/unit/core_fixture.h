/* A registry over the engine of tests/fakes, in a directory of its own. */
#ifndef SESSIONFS_TESTS_CORE_FIXTURE_H
#define SESSIONFS_TESTS_CORE_FIXTURE_H

#include "tests/cmocka.h"
#include "tests/fakes/engine.h"

#include "core/exec.h"
#include "core/mutex.h"
#include "core/session.h"

#include <stdatomic.h>

struct fixture {
    char dir[64];
    struct loop *loop;
    struct registry *registry;
    unsigned execs_keep;          /* From the next fixture_open() on. */
    enum registry_end on_unmount; /* Of the next fixture_open(), */
    bool durable_power;           /* and this. */
    atomic_uint left;             /* Calls of the hook. */
    atomic_uint changed;          /* Calls of the hooks. */
    atomic_uint news;
    atomic_uint told; /* The status that news told last, and */
    atomic_uint ran;  /* how often that became `running`. */
};

extern const struct caller me;

/* A directory of its own, without a loop and a registry. */
struct fixture *fixture_new(void);
void fixture_free(struct fixture *fixture);

/* cmocka set-up and tear-down: an open registry with the provider `local`. */
int fixture_setup(void **state);
int fixture_teardown(void **state);

/* A test with an open registry. */
#define FIXTURE_TEST(name)                                                     \
    cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

/* Opens the registry of the fixture again, or for the first time. */
void fixture_open(struct fixture *fixture, const char *provider);
void fixture_close(struct fixture *fixture);

/* Calls live() over an open registry in a process that dies at a point. */
void fixture_die_at(struct fixture *fixture, const char *point,
                    void (*live)(struct fixture *fixture));
/* Starts again after that, with an engine whose sandboxes run; session `a`. */
struct session *fixture_next_start(struct fixture *fixture);

/* A session that was made, or found. */
struct session *fixture_create(struct fixture *fixture, const char *id);
struct session *fixture_find(struct fixture *fixture, const char *id);

/* A session with a config of its own. */
struct session *fixture_create_with(struct fixture *fixture, const char *id,
                                    const char *config);

/* The end of asynchronous work. */
struct result {
    struct mutex lock;
    struct cond come;
    bool done;
    int rc;
    struct err err;
};

void result_init(struct result *result);
void result_fill(void *arg, int rc, const struct err *err); /* A done_fn. */
bool result_done(struct result *result);
/* Waits, for ten seconds at most; the code. */
int result_wait(struct result *result);

/* Each waits for its end and returns the code. */
int fixture_ensure(struct session *session, bool replace);
int fixture_pause(struct session *session);
int fixture_destroy(struct session *session);

/* Queues a command. */
struct exec *fixture_submit(struct session *session, const char *words);
/* Waits for a command's end, for ten seconds at most. */
void fixture_wait_exec(struct exec *exec, struct exec_info *out);
/* Queues and waits; gives the reference back. */
void fixture_exec(struct session *session, const char *words,
                  struct exec_info *out);
/* Waits until a condition holds, for ten seconds at most. */
#define fixture_until(condition)                                               \
    do {                                                                       \
        for (int until_ = 0; until_ < 10000 && !(condition); until_++) {       \
            (void)usleep(1000);                                                \
        }                                                                      \
        assert_true(condition);                                                \
    } while (0)

/* The whole of `events`, for strstr(); freed by the caller. */
char *fixture_events(struct session *session);
/* How often a text is in `events`. */
unsigned fixture_events_with(struct session *session, const char *text);
/* Whether a text is in `status.json`. */
bool fixture_json_has(struct session *session, const char *text);

#endif
