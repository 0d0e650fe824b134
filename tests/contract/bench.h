/*
 * What the contract suite stands on: a provider that is open in a state
 * directory of its own, sandboxes, and commands that are run to their end.
 * Everything here fails the test that uses it when it does not work.
 */
#ifndef SESSIONFS_TESTS_BENCH_H
#define SESSIONFS_TESTS_BENCH_H

#include "core/buf.h"
#include "core/mutex.h"
#include "core/provider.h"

enum {
    BENCH_PATH = 256
};

/* An open provider. */
struct bench {
    char dir[BENCH_PATH];
    struct loop *loop;
    struct provider_env env;
    struct provider *provider;
    struct cancel never; /* A token that does not fire. */
    struct limits limits;
};

/* A sandbox of it. */
struct bench_box {
    char dir[BENCH_PATH];
    struct instance instance;
    struct sandbox sandbox;
};

/* A command and what has come of it. */
struct bench_run {
    struct cancel cancel; /* Its token. */
    struct mutex lock;
    struct cond change;
    unsigned started GUARDED; /* by lock, as all below */
    unsigned exited GUARDED;
    unsigned closed GUARDED;
    unsigned faults GUARDED; /* Calls of the sink that break its rules. */
    int64_t pid GUARDED;
    int64_t exited_ms GUARDED;
    size_t bytes[2] GUARDED; /* Of each stream, also beyond what is kept. */
    struct buf out[2] GUARDED;
    struct command_result result GUARDED;
};

/** @param name of the providers that the tests are about */
void bench_use(const char *name);

/** @param config of its sandboxes, as JSON; static */
void bench_configure(const char *config);

/** @return whether its sandboxes have processes and limits of their own, as
 *  those have of which it tells the limits */
bool bench_is_apart(void);

/** @return whether its commands are run by a real shell; asks it once
 *  @param bench an open one @param box a running sandbox */
bool bench_has_shell(struct bench *bench, struct bench_box *box);

/**
 * Chooses between the dialects that commands are given in.
 *
 * @param bench an open one
 * @param box   a running sandbox
 * @param shell for a real shell
 * @param plain for an engine that has none: a word and its text a line
 * @return one of the two
 */
const char *bench_pick(struct bench *bench, struct bench_box *box,
                       const char *shell, const char *plain);

/** A cmocka group's set-up: opens a bench and makes it *state.
 *  @param state of cmocka @return 0 */
int bench_group_setup(void **state);
/** A cmocka group's tear-down. @param state of cmocka @return 0 */
int bench_group_teardown(void **state);

/** The groups of tests. @return how many failed */
int suite_life(void);
/** @return how many failed */
int suite_exec(void);
/** @return how many failed */
int suite_ends(void);
/** @return how many failed */
int suite_root(void);

/** @return the table of that provider */
const struct provider_ops *bench_ops(void);

/** @param bench an open one @return limits of a call that is made now; until
 *  the next call of this function */
const struct limits *bench_limits(struct bench *bench);

/** @param bench opened: its limits are those of most calls */
void bench_open(struct bench *bench);
/** @param bench its provider is closed and opened again */
void bench_reopen(struct bench *bench);
/** @param bench whose provider was closed: another is opened */
void bench_open_again(struct bench *bench);
/** @param bench closed; its directory is removed */
void bench_close(struct bench *bench);

/**
 * Goes to a mount namespace of its own, so that tests that mount beside us are
 * not seen, and theirs end when they unmount them.
 *
 * @return 0 or -1
 */
int bench_own_mounts(void);

/** @param bench an open one @param box made, with a running sandbox */
void bench_create(struct bench *bench, struct bench_box *box);
/** @param bench an open one @param box made, with no sandbox yet */
void bench_name(struct bench *bench, struct bench_box *box);
/** @param bench an open one @param box destroyed and freed */
void bench_destroy(struct bench *bench, struct bench_box *box);
/** @param bench an open one @param box a sandbox @return its state */
enum provider_state bench_status(struct bench *bench, struct bench_box *box);

/** The sink of a struct bench_run. */
extern const struct command_sink bench_sink;

/** @param run made ready for a command */
void bench_run_init(struct bench_run *run);
/** @param run a closed one, or one that did not start */
void bench_run_done(struct bench_run *run);

/** Starts a command. @param bench an open one @param box a running sandbox
 *  @param command borrowed @param run ready; init'ed */
void bench_start(struct bench *bench, struct bench_box *box,
                 const struct command *command, struct bench_run *run);
/** Starts a script. @param bench an open one @param box a running sandbox
 *  @param script with a NUL @param run made by this call
 *  @return the number of the command */
uint64_t bench_script(struct bench *bench, struct bench_box *box,
                      const char *script, struct bench_run *run);
/** @return a number that no command has had */
uint64_t bench_next(void);
/** Waits for `exited`. @param run started @return its result */
struct command_result bench_exited(struct bench_run *run);
/** Waits for `closed` and checks the sink's rules. @param run started */
void bench_closed(struct bench_run *run);
/** Waits until stdout holds a text. @param run started @param text sought */
void bench_says(struct bench_run *run, const char *text);
/** @param run started @param stream which @return its text so far; borrowed */
const char *bench_text(struct bench_run *run, enum command_stream stream);

/**
 * Runs a script to its end and checks what it wrote to stdout.
 *
 * @param bench  an open one
 * @param box    a running sandbox
 * @param script for /bin/sh
 * @param expect what stdout must be, NULL: not looked at
 * @return its exit code, or 128 + the signal
 */
int bench_sh(struct bench *bench, struct bench_box *box, const char *script,
             const char *expect);

/** Leaves a process that computes. @param bench an open one @param box a
 *  running sandbox */
void bench_compute(struct bench *bench, struct bench_box *box);
/** @return whether it has used no time for a while, as the host sees it */
bool bench_is_idle(void);
/** Demands that it soon uses time: others may have the processors. */
void bench_computes(void);

/* A provider with a sandbox that runs, for a group of tests. */
struct bench_room {
    struct bench bench;
    struct bench_box box;
};

/** cmocka set-up. @param state gets a struct bench_room @return 0 */
int bench_open_room(void **state);
/** cmocka tear-down. @param state a struct bench_room @return 0 */
int bench_close_room(void **state);

#endif
