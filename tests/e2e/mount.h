/*
 * A daemon on a real mount, for one test program.
 *
 * e2e_run() starts it before the first test and stops it after the last; each
 * test gets a session of its own and a deadline, after which the daemon is
 * killed so that nothing can hang. Stopping demands exit status 0 and that no
 * process and no mount is left. Everything fails the running test by itself.
 *
 * SESSIONFS_OPTIONS in the environment is put before the other options of
 * each daemon, with a comma before it.
 */
#ifndef SESSIONFS_TESTS_E2E_MOUNT_H
#define SESSIONFS_TESTS_E2E_MOUNT_H

#include "core/compiler.h"
#include "tests/cmocka.h"

#include <stdbool.h>
#include <sys/types.h>

enum {
    MNT_PATH_SIZE = 512,
    MNT_TEST_SECONDS = 300, /* The deadline of one test. */
};

struct mnt {
    const char *provider;        /* mem, local or jsonl */
    const char *options;         /* More -o options of the next daemon, each
                                    with a comma before it; NULL: none. */
    pid_t pid;                   /* Of the daemon; 0: none runs. */
    char dir[MNT_PATH_SIZE];     /* Ours; holds all the others. */
    char path[MNT_PATH_SIZE];    /* The mount. */
    char state[MNT_PATH_SIZE];   /* The state directory. */
    char control[MNT_PATH_SIZE]; /* Fault files of the mem provider. */
    char words[MNT_PATH_SIZE];   /* What each shell reads first. */
    char log[MNT_PATH_SIZE];     /* The daemon's stderr. */
    char id[64];                 /* The running test's session, */
    char session[MNT_PATH_SIZE]; /* and its directory. */
    unsigned tests;              /* How many sessions were made so. */
};

/* The program's only mount; tests use it directly. */
extern struct mnt mnt;

/**
 * Runs a group of tests on a fresh mount. The first argument names the
 * provider.
 *
 * @param argc  of main
 * @param argv  of main
 * @param tests made with e2e_test()
 * @param count how many
 * @return what main returns: 77 where there is no /dev/fuse
 */
int e2e_run(int argc, char **argv, const struct CMUnitTest *tests,
            size_t count);

/** @param state of cmocka @return 0; makes the test's session */
int e2e_setup(void **state);
/** @param state of cmocka @return 0; ends the test's deadline */
int e2e_teardown(void **state);

#define e2e_test(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)
/* A test of what one provider alone can: "local" or "mem"; or "sh": all that
 * have a shell; "pauses": all that can pause. */
#define e2e_test_of(provider, f)                                               \
    cmocka_unit_test_prestate_setup_teardown(f, e2e_setup, e2e_teardown,       \
                                             (void *)(uintptr_t)(provider))
#define E2E_MAIN(tests)                                                        \
    int main(int argc, char **argv)                                            \
    {                                                                          \
        return e2e_run(argc, argv, tests, ARRAY_SIZE(tests));                  \
    }

/** Starts the daemon and waits until it says that it is mounted. */
void mnt_start(void);

/** Unmounts and waits for the daemon's end, which must be a clean one. */
void mnt_stop(void);

/** Unmounts as umount2() does. @param flags of it @return 0 or -1 */
int mnt_unmount(int flags);

/** Waits for the end of a daemon that was told to end, as mnt_stop(). */
void mnt_stopped(void);

/** Kills the daemon with SIGKILL and removes the dead mount. */
void mnt_kill(void);

/**
 * Starts a second daemon on the same state, which must be refused.
 *
 * @param out its stderr
 * @param size of out
 * @return its exit status
 */
int mnt_second(char *out, size_t size);

/**
 * A path below the mount; lives until sixteen more were made.
 *
 * @param fmt printf format, relative to the mount
 * @return the absolute path
 */
const char *at(const char *fmt, ...) PRINTF(1, 2);

/**
 * A path below the running test's session, as at().
 *
 * @param fmt printf format, relative to the session
 * @return the absolute path
 */
const char *in(const char *fmt, ...)PRINTF(1, 2);

/**
 * Makes another session.
 *
 * @param id its name
 */
void mnt_session(const char *id);

/** Makes the running test's sandbox run. */
void mnt_running(void);

/** @return whether the provider is `local` */
bool mnt_local(void);
/** @return whether commands are for a shell; else they are words of `mem` */
bool mnt_sh(void);
/** @return members of a config that the provider cannot do without, each with
 *  a comma behind it; in shells of tests it is $NEEDS */
const char *mnt_needs(void);
/** @return whether files are used by scripts in the sandbox: `jsonl` */
bool mnt_scripts(void);

/**
 * Tells the mem provider to misbehave; the program behind `jsonl` can be stuck,
 * in all that it does, in `create`, or in what is done by commands.
 *
 * @param id   in which session
 * @param op   which call; NULL: all
 * @param what it does, as providers/mem/faults.c says; NULL: nothing any more
 */
void mnt_fault(const char *id, const char *op, const char *what);

/**
 * Reads a counter of `stats`, summed over its labels.
 *
 * @param part what the lines must contain, like `op="create"`
 * @return the sum
 */
uint64_t mnt_counter(const char *part);

#endif
