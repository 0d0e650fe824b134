/* See core_fixture.h. */
#include "tests/unit/core_fixture.h"

#include "core/buf.h"
#include "core/clock.h"
#include "core/registry_priv.h"
#include "core/session_priv.h"
#include "tests/scratch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    WAIT_MS = 30000,
    CLOSE_MS = 30000,
};

const struct caller me = {.uid = 1000, .pid = 4242};

static const struct provider_ops *const table[] = {
    &engine_local,
    &engine_remote,
    NULL,
};

static void on_changed(void *arg, struct session *session)
{
    struct fixture *fixture = arg;

    (void)session;
    atomic_fetch_add(&fixture->changed, 1);
}

static void on_news(void *arg, struct session *session)
{
    struct fixture *fixture = arg;
    enum session_status status;

    mutex_lock(&session->lock);
    status = session->shown;
    mutex_unlock(&session->lock);
    if (atomic_exchange(&fixture->told, status) != status &&
        status == SESSION_RUNNING) {
        atomic_fetch_add(&fixture->ran, 1);
    }
    atomic_fetch_add(&fixture->news, 1);
}

static void on_left(void *arg, const char *id, const char *status)
{
    struct fixture *fixture = arg;

    print_message("  left behind: %s, %s\n", id, status);
    atomic_fetch_add(&fixture->left, 1);
}

void fixture_open(struct fixture *fixture, const char *provider)
{
    struct registry_config config = {
        .state_dir = fixture->dir,
        .provider = provider,
        .uid = geteuid(),
        .gid = getegid(),
        .loop = fixture->loop,
        .on_unmount = fixture->on_unmount,
        .durable_power = fixture->durable_power,
        .execs_keep = fixture->execs_keep,
        .hooks = {.arg = fixture,
                  .changed = on_changed,
                  .news = on_news,
                  .left = on_left},
    };
    struct err err = ERR_INIT;

    if (registry_open(&config, table, &fixture->registry, &err) < 0) {
        fail_msg("%s", err.msg);
    }
}

void fixture_close(struct fixture *fixture)
{
    assert_true(registry_close(fixture->registry, CLOSE_MS));
    fixture->registry = NULL;
}

struct fixture *fixture_new(void)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    assert_non_null(fixture);
    engine_reset();
    scratch_make(fixture->dir, sizeof(fixture->dir));
    return fixture;
}

void fixture_free(struct fixture *fixture)
{
    scratch_remove(fixture->dir);
    free(fixture);
}

int fixture_setup(void **state)
{
    struct fixture *fixture = fixture_new();
    struct err err = ERR_INIT;

    assert_int_equal(loop_new(&fixture->loop, &err), 0);
    fixture_open(fixture, "local");
    *state = fixture;
    return 0;
}

int fixture_teardown(void **state)
{
    struct fixture *fixture = *state;

    fixture_close(fixture);
    loop_free(fixture->loop);
    fixture_free(fixture);
    return 0;
}

void fixture_die_at(struct fixture *fixture, const char *point,
                    void (*live)(struct fixture *fixture))
{
    pid_t child = fork();
    int status = 0;

    assert_true(child >= 0);
    if (child == 0) {
        struct err err = ERR_INIT;

        (void)setenv("SESSIONFS_CRASH", point, 1);
        if (loop_new(&fixture->loop, &err) < 0) {
            _exit(1);
        }
        fixture_open(fixture, "local");
        live(fixture);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
}

struct session *fixture_next_start(struct fixture *fixture)
{
    struct err err = ERR_INIT;

    engine_reset();
    engine_set_state(PROVIDER_RUNNING);
    assert_int_equal(loop_new(&fixture->loop, &err), 0);
    fixture_open(fixture, "local");
    return fixture_find(fixture, "a");
}

struct session *fixture_create(struct fixture *fixture, const char *id)
{
    struct session *session = NULL;
    struct err err = ERR_INIT;

    if (registry_create(fixture->registry, id, &me, &session, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    return session;
}

struct session *fixture_create_with(struct fixture *fixture, const char *id,
                                    const char *config)
{
    struct err err = ERR_INIT;
    uint64_t number = 0;

    if (store_session_add(fixture->registry->store, id, config, &me, &number,
                          &err) < 0) {
        fail_msg("%s", err.msg);
    }
    return fixture_find(fixture, id);
}

struct session *fixture_find(struct fixture *fixture, const char *id)
{
    struct session *session = NULL;
    struct err err = ERR_INIT;

    if (registry_find(fixture->registry, id, &session, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    return session;
}

void result_init(struct result *result)
{
    memset(result, 0, sizeof(*result));
    mutex_init(&result->lock);
    cond_init(&result->come);
}

void result_fill(void *arg, int rc, const struct err *err)
{
    struct result *result = arg;

    mutex_lock(&result->lock);
    assert_false(result->done);
    assert_int_equal(rc, -err->code);
    result->done = true;
    result->rc = rc;
    result->err = *err;
    cond_broadcast(&result->come);
    mutex_unlock(&result->lock);
}

bool result_done(struct result *result)
{
    bool done;

    mutex_lock(&result->lock);
    done = result->done;
    mutex_unlock(&result->lock);
    return done;
}

int result_wait(struct result *result)
{
    int64_t deadline = clock_deadline(WAIT_MS);
    int rc = 0;

    mutex_lock(&result->lock);
    while (!result->done && rc == 0) {
        rc = cond_wait(&result->come, &result->lock, deadline);
    }
    mutex_unlock(&result->lock);
    assert_int_equal(rc, 0);
    return result->rc;
}

int fixture_ensure(struct session *session, bool replace)
{
    struct result result;

    result_init(&result);
    session_ensure(session, replace, &me, result_fill, &result);
    return result_wait(&result);
}

int fixture_pause(struct session *session)
{
    struct result result;

    result_init(&result);
    session_pause(session, &me, result_fill, &result);
    return result_wait(&result);
}

int fixture_destroy(struct session *session)
{
    struct result result;

    result_init(&result);
    session_destroy(session, &me, result_fill, &result);
    return result_wait(&result);
}

struct exec *fixture_submit(struct session *session, const char *words)
{
    struct exec *exec = NULL;
    struct err err = ERR_INIT;

    if (exec_submit(session, words, strlen(words), &me, &exec, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    return exec;
}

struct waiter {
    struct exec_watch watch;
    struct result result;
};

static void wake(struct exec_watch *watch)
{
    static const struct err none = ERR_INIT;

    result_fill(&((struct waiter *)(void *)watch)->result, 0, &none);
}

void fixture_wait_exec(struct exec *exec, struct exec_info *out)
{
    struct waiter waiter = {.watch = {.wake = wake}};

    result_init(&waiter.result);
    if (exec_watch_end(exec, &waiter.watch)) {
        assert_int_equal(result_wait(&waiter.result), 0);
    }
    assert_true(exec_ended(exec));
    exec_info(exec, out);
}

void fixture_exec(struct session *session, const char *words,
                  struct exec_info *out)
{
    struct exec *exec = fixture_submit(session, words);

    fixture_wait_exec(exec, out);
    exec_unref(exec);
}

char *fixture_events(struct session *session)
{
    uint64_t size = session_events_end(session);
    uint64_t offset = 0;
    char *text = calloc(1, size + 1);
    struct err err = ERR_INIT;

    assert_non_null(text);
    /* No more than that: others may come meanwhile. */
    assert_int_equal(session_events_read(session, &offset, text, size, &err),
                     size);
    return text;
}

unsigned fixture_events_with(struct session *session, const char *text)
{
    char *events = fixture_events(session);
    unsigned n = 0;

    for (const char *at = strstr(events, text); at; at = strstr(at + 1, text)) {
        n++;
    }
    free(events);
    return n;
}

bool fixture_json_has(struct session *session, const char *text)
{
    struct buf json = BUF_INIT(64 * 1024);
    struct err err = ERR_INIT;
    bool has;

    assert_int_equal(session_status_json(session, &json, &err), 0);
    has = strstr(buf_str(&json), text) != NULL;
    buf_done(&json);
    return has;
}
