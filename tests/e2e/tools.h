/*
 * What end-to-end tests do over and over: files with the errno of each step,
 * shell scripts with a deadline, child processes, polled conditions.
 * Everything fails the running test by itself.
 */
#ifndef SESSIONFS_TESTS_E2E_TOOLS_H
#define SESSIONFS_TESTS_E2E_TOOLS_H

#include "core/buf.h"
#include "tests/e2e/mount.h"

#include <string.h>

enum {
    TOOLS_TEXT_MAX = 64 * 1024 * 1024,
    TOOLS_SHELL_MS = 280000, /* The deadline of a script. */
    TOOLS_SOON_MS = 20000,   /* How long eventually() polls. */
};

/* The errno of each step, 0 where it went well or did not come to pass. */
struct wrote {
    int open;
    int write;
    int close;
};

/**
 * Writes a file with one write(2).
 *
 * @param path  which
 * @param flags of open(2), O_WRONLY is added
 * @param data  borrowed
 * @param size  bytes; 0: nothing is written
 * @return the errno of each step
 */
struct wrote put_bytes(const char *path, int flags, const void *data,
                       size_t size);

/**
 * Writes a text over a file, as `printf %s TEXT > PATH` does.
 *
 * @param path which
 * @param text borrowed
 * @return the errno of each step
 */
struct wrote put(const char *path, const char *text);

/**
 * The same, where all must go well.
 *
 * @param path which
 * @param text borrowed
 */
void put_ok(const char *path, const char *text);

/**
 * Gives the running test's session a config of its own.
 *
 * @param fields JSON members, in addition to the provider
 */
void configure(const char *fields);

/**
 * Reads a file to its end.
 *
 * @param path which
 * @param out  emptied, then filled
 * @return 0 or the positive errno of open or read
 */
int get(const char *path, struct buf *out);

/**
 * Reads a small text; lives until the next call.
 *
 * @param path which; must be readable
 * @return the text
 */
const char *text_of(const char *path);

/**
 * Demands that a file reads as a text.
 *
 * @param path which
 * @param want its whole content
 */
void expect_text(const char *path, const char *want);

/**
 * Demands that a file comes to read as a text soon.
 *
 * @param path which
 * @param want its whole content
 */
void eventually_text(const char *path, const char *want);

/* Polls a condition until it holds; fails after TOOLS_SOON_MS. */
#define eventually(cond)                                                       \
    do {                                                                       \
        int64_t until_ = tools_soon();                                         \
        while (!(cond)) {                                                      \
            tools_poll(until_, #cond, __FILE__, __LINE__);                     \
        }                                                                      \
    } while (false)

/** @return the clock_ms() value at which eventually() gives up */
int64_t tools_soon(void);
/**
 * Sleeps a little, or fails the test.
 *
 * @param until when to give up
 * @param what  the condition
 * @param file  where
 * @param line  where
 */
void tools_poll(int64_t until, const char *what, const char *file, int line);

/* Demands that a call failed with an errno. */
#define expect_errno(call, code)                                               \
    do {                                                                       \
        errno = 0;                                                             \
        if ((call) != -1) {                                                    \
            fail_msg("%s went well, want %s", #call, strerror(code));          \
        }                                                                      \
        if (errno != (code)) {                                                 \
            fail_msg("%s: %s, want %s", #call, strerror(errno),                \
                     strerror(code));                                          \
        }                                                                      \
    } while (false)

/* Demands that a call returned 0. */
#define expect_ok(call)                                                        \
    do {                                                                       \
        if ((call) != 0) {                                                     \
            fail_msg("%s: %s", #call, strerror(errno));                        \
        }                                                                      \
    } while (false)

/**
 * Runs a script with /bin/bash in the running test's session. $M is the
 * mount, $S the session's directory, $T an empty directory outside the mount,
 * $STATE the state directory, $CONTROL that of the mem provider's faults.
 * $KILL9 is a command that ends by SIGKILL, $NAP a line of a command that waits
 * 0.7 s, $ERR one that says `err`. The functions in_write FILE WORD, in_append
 * FILE WORD, in_rm FILE and in_cat FILE run a command that does so in the
 * sandbox, whatever the provider's commands are.
 *
 * @param script     borrowed
 * @param timeout_ms it is killed after that, which fails the test
 * @param out        emptied, then its stdout and stderr
 * @return its exit status, 128 + n after signal n
 */
int shell(const char *script, int timeout_ms, struct buf *out);

/**
 * Runs a script, which must end with 0 and print exactly this.
 *
 * @param script borrowed
 * @param want   its whole output
 */
void expect_shell(const char *script, const char *want);

/* A row of a table of scripts. */
struct script {
    const char *name;
    const char *text;
    const char *want; /* Its whole output. */
};

/**
 * Runs a table, each row in a session of its own, and fails at the end when
 * one row did not print what it should.
 *
 * @param rows  the table
 * @param count how many
 */
void expect_scripts(const struct script *rows, size_t count);

/** Demands that a copy of the daemon's database passes its own check. */
void expect_sound_database(void);

/** Demands that a daemon that was started after a death left one mount, and
 *  that soon no process is ours but that daemon. */
void expect_nothing_left(void);

/** @return whether there is node; in CI its lack fails the test */
bool tools_have_node(void);

/* A child process that runs one function of the test. */
struct child {
    pid_t pid;
    int ready; /* Read end: the child writes here by child_ready(). */
};

/**
 * Forks a child that calls fn and exits with what it returns.
 *
 * @param fn  called in the child; must not use cmocka
 * @param arg given to fn
 * @return the child
 */
struct child child_start(int (*fn)(void *arg), void *arg);

/** Called in the child: wakes child_await(). */
void child_ready(void);

/**
 * For child_start(): writes a script to exec, says child_ready() and closes,
 * which waits for the command.
 *
 * @param arg the script
 * @return 0 or the errno of what failed
 */
int child_write_exec(void *arg);

/**
 * For child_start(): says child_ready() and writes `running` to status.
 *
 * @param arg not used
 * @return 0 or the errno of the write
 */
int child_write_running(void *arg);

/**
 * Waits until the child has called child_ready().
 *
 * @param child a child
 */
void child_await(const struct child *child);

/**
 * Waits for a child's end.
 *
 * @param child      a child
 * @param timeout_ms it is killed after that, which fails the test
 * @return its exit status, 128 + n after signal n
 */
int child_end(struct child *child, int timeout_ms);

/**
 * Waits until a process sleeps in a system call, so that a signal meets it
 * there.
 *
 * @param pid a process
 */
void process_asleep(pid_t pid);

/**
 * Other tests may run the same beside us.
 *
 * @param command what `ps` would show, or a part
 * @return whether a process that descends from us has it
 */
bool process_exists(const char *command);

#endif
