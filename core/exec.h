/*
 * One command of a session: its life from the queue to its record.
 *
 * A command that was accepted has a number for ever, and its text is on disk
 * before exec_submit() returns. Output goes to one log on disk that holds both
 * streams with an index; nothing is kept in memory. An object is shared by
 * reference; finished ones are read back from the store.
 */
#ifndef SESSIONFS_EXEC_H
#define SESSIONFS_EXEC_H

#include "core/exec_shape.h"
#include "core/list.h"
#include "core/registry.h"

struct buf;
struct exec;

/* The most bytes of a script. */
enum {
    EXEC_SCRIPT_MAX = 1024 * 1024
};

enum exec_status {
    EXEC_QUEUED,
    EXEC_RUNNING,
    EXEC_EXITED,
    EXEC_KILLED,
    EXEC_TIMEOUT,
    EXEC_LOST,   /* A daemon died under it; how it ended is not known. */
    EXEC_FAILED, /* Accepted, but could not be run or recorded; also a line
                    of the session's `error`. */
};

enum exec_view {
    EXEC_OUTPUT, /* Both streams in order of arrival. */
    EXEC_STDOUT,
    EXEC_STDERR,
};

struct exec_info {
    uint64_t n;
    enum exec_status status;
    int exit_code;      /* 128 + signal when killed, 124 at a timeout; */
    bool has_exit_code; /* set once it has ended with one. */
    int64_t submitted_us;
    int64_t started_us; /* 0: not yet. clock_wall_us(), as all here. */
    int64_t ended_us;   /* 0: not yet. */
    struct err err;     /* Why it failed; empty else. */
    enum shape_mode mode;
    bool background;     /* It does not hold up the queue. */
    bool init;           /* Of the config's init commands. */
    bool cancelled;      /* Its end was asked for while it ran. */
    int64_t process_id;  /* In the engine's terms; 0: not known. */
    uint64_t checkpoint; /* That was taken after it, 0: none; */
    uint64_t before;     /* the one before it, 0: the base; */
    uint64_t changed;    /* and how many paths differ. */
};

/** @param status a status @return its word, as in `execs/N/status` */
const char *exec_status_name(enum exec_status status);

/**
 * Queues a script for /bin/sh.
 *
 * @param session the session; the sandbox is made to run first
 * @param script  borrowed; not only blanks, no NUL
 * @param size    1 … EXEC_SCRIPT_MAX bytes
 * @param caller  who asks
 * @param out     the command with a reference, on success
 * @param err     filled on failure
 * @return 0, -EINVAL, -EFBIG, -ENOSPC, -EIO
 */
MUST_USE int exec_submit(struct session *session, const char *script,
                         size_t size, const struct caller *caller,
                         struct exec **out, struct err *err);

/**
 * Says whether exec_submit_json() would take an object. One that it would not
 * counts as a command that was refused.
 *
 * @param session the session
 * @param json    borrowed
 * @param size    bytes
 * @param err     filled on failure
 * @return 0, -EINVAL, -EFBIG, -EOPNOTSUPP, -ENOMEM
 */
MUST_USE int exec_check_json(struct session *session, const char *json,
                             size_t size, struct err *err);

/**
 * Queues what a JSON object asks for. See exec_request.h.
 *
 * @param session the session; the sandbox is made to run first
 * @param json    borrowed
 * @param size    1 … EXEC_REQUEST_MAX bytes
 * @param caller  who asks
 * @param out     the command with a reference, on success
 * @param err     filled on failure
 * @return 0, -EINVAL, -EFBIG, -EOPNOTSUPP for an input where the engine takes
 *         none, -ENOSPC, -EIO
 */
MUST_USE int exec_submit_json(struct session *session, const char *json,
                              size_t size, const struct caller *caller,
                              struct exec **out, struct err *err);

/** @param exec one more reference @return exec */
struct exec *exec_ref(struct exec *exec);
/** @param exec one reference less; NULL is fine */
void exec_unref(struct exec *exec);

/** @param exec a command @return its number */
uint64_t exec_number(const struct exec *exec);

/**
 * What is known of it now.
 *
 * @param exec a command
 * @param out  written
 */
void exec_info(struct exec *exec, struct exec_info *out);

/** @param exec a command @return whether it has ended and is recorded */
bool exec_ended(struct exec *exec);

/**
 * The command's text as it was given.
 *
 * @param exec a command
 * @param out  appended to
 * @param err  filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int exec_command(struct exec *exec, struct buf *out, struct err *err);

/**
 * @param exec a command
 * @param view which output
 * @return its length in bytes now
 */
uint64_t exec_size(struct exec *exec, enum exec_view view);

/**
 * Reads output that has arrived; never waits.
 *
 * @param exec   a command
 * @param view   which output
 * @param offset in that view
 * @param out    at most size bytes
 * @param size   of out
 * @param err    filled on failure
 * @return bytes read, 0 at the present end, or a negative errno
 */
MUST_USE ssize_t exec_read(struct exec *exec, enum exec_view view,
                           uint64_t offset, void *out, size_t size,
                           struct err *err);

/** @param exec a command @return whether its writer need not wait any more: it
 *  has ended, or was started in the background */
bool exec_answered(struct exec *exec);

/**
 * Appends what `exec.json` answers: the command's end with its output as its
 * mode shortens it or, where it has not ended, that it runs. Reads the output
 * through, which takes a second for each few hundred megabytes.
 *
 * @param exec  a command
 * @param mode  in place of its own
 * @param begun tell of its start, also where it has ended
 * @param out   appended to: a JSON object and a newline
 * @param err   filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int exec_answer(struct exec *exec, enum shape_mode mode, bool begun,
                         struct buf *out, struct err *err);

/**
 * Sends a signal to a running command's processes. A queued one is taken from
 * the queue by a signal that asks for its end: HUP, INT, QUIT, TERM or KILL.
 *
 * @param exec   a command
 * @param signal 1 … 64
 * @param caller who asks
 * @param err    filled on failure
 * @return 0, -ESRCH when it does not run, -EOPNOTSUPP
 */
MUST_USE int exec_signal(struct exec *exec, int signal,
                         const struct caller *caller, struct err *err);

/* What a watch waits for; the end is enough for each. */
enum exec_event {
    EXEC_END,
    EXEC_ANSWER, /* exec_answered() */
    EXEC_MORE,   /* Output. */
};

/*
 * Somebody who waits for a command; lives with the waiter. wake is called at
 * most once, with no lock held, and the watch is over then.
 */
struct exec_watch {
    struct list link; /* core/exec's own, like event, view and offset. */
    enum exec_event event;
    enum exec_view view;
    uint64_t offset;
    void (*wake)(struct exec_watch *watch);
};

/**
 * Waits for the command's end.
 *
 * @param exec  a command
 * @param watch wake is set; stays until woken or exec_unwatch()
 * @return true: wake will be called; false: it has ended already
 */
MUST_USE bool exec_watch_end(struct exec *exec, struct exec_watch *watch);

/**
 * Waits until exec_answered().
 *
 * @param exec  a command
 * @param watch wake is set; stays until woken or exec_unwatch()
 * @return true: wake will be called; false: it is answered already
 */
MUST_USE bool exec_watch_answer(struct exec *exec, struct exec_watch *watch);

/**
 * Waits until there is output behind an offset, or the end.
 *
 * @param exec   a command
 * @param watch  wake is set; stays until woken or exec_unwatch()
 * @param view   which output
 * @param offset in that view
 * @return true: wake will be called; false: there is something now, or it has
 *         ended
 */
MUST_USE bool exec_watch_output(struct exec *exec, struct exec_watch *watch,
                                enum exec_view view, uint64_t offset);

/**
 * Ends a watch. wake is not running and will not be called afterwards, when
 * true is returned; when false, it has been called or is being called.
 *
 * @param exec  a command
 * @param watch that was given to it
 * @return whether the watch was still on
 */
bool exec_unwatch(struct exec *exec, struct exec_watch *watch);

/**
 * Asks for its end: a queued one never runs, a running one's tree gets TERM
 * and then KILL. It still ends with a record. Nothing to do after its end.
 *
 * @param exec a command
 */
void exec_cancel(struct exec *exec);

/** @param session whose commands, running or queued, are all cancelled */
void session_cancel_all(struct session *session);

/** @param session whose commands run on for the next daemon, where they run and
 *  can; the others are cancelled */
void session_leave_all(struct session *session);

#endif
