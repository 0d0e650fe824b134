/*
 * One session: a state machine round one sandbox.
 *
 * Life-cycle work and commands go through one queue a session, in arrival
 * order, and run in threads made on demand. Every function returns at once;
 * what takes time answers by a done_fn. File operations do not queue: they
 * hold the session's file lock shared, which only the moment of a pause takes
 * exclusively.
 */
#ifndef SESSIONFS_SESSION_H
#define SESSIONFS_SESSION_H

#include "core/done.h"
#include "core/registry.h"
#include "core/workers.h"
#include "core/workspace.h"

struct exec;

enum session_status {
    SESSION_ABSENT,
    SESSION_STARTING,
    SESSION_RUNNING,
    SESSION_PAUSING,
    SESSION_PAUSED,
    SESSION_LOST,
    SESSION_DELETING,
    SESSION_ERROR,
    SESSION_UNREACHABLE,
};

/** @param status a status @return its word, as in `status` */
const char *session_status_name(enum session_status status);

/** @param session one more reference @return session */
struct session *session_ref(struct session *session);
/** @param session one reference less; NULL is fine */
void session_unref(struct session *session);

/** @param session a session @return its number, never used twice */
uint64_t session_number(const struct session *session);

/**
 * @param session a session
 * @param out     its present id
 */
void session_id(struct session *session, char out[SESSION_ID_SIZE]);

/** @param session a session @return when it was made, clock_wall_us() */
int64_t session_created_us(const struct session *session);

/** @param session a session @return whether rmdir has removed it */
bool session_gone(struct session *session);

/**
 * What is known of the sandbox. Never waits; refreshes a stale observation in
 * the background.
 *
 * @param session a session
 * @return the status
 */
enum session_status session_status(struct session *session);

/**
 * The text of `status.json`, with a final newline.
 *
 * @param session a session
 * @param out     appended to
 * @param err     filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int session_status_json(struct session *session, struct buf *out,
                                 struct err *err);

/**
 * Makes the sandbox run: creates an absent one, resumes a paused one. A lost
 * one is -ESTALE, unless `replace` asks for an empty one in its place. Two at
 * once cause one create.
 *
 * @param session the session
 * @param replace as an explicit `running` in `status` does
 * @param caller  who asks
 * @param done    0, -ESTALE, or what the provider said
 * @param arg     given to done
 */
void session_ensure(struct session *session, bool replace,
                    const struct caller *caller, done_fn *done, void *arg);

/**
 * Pauses the sandbox; nothing to do when it is absent or paused.
 *
 * @param session the session
 * @param caller  who asks
 * @param done    0, -EBUSY while a command runs, or what the provider said
 * @param arg     given to done
 */
void session_pause(struct session *session, const struct caller *caller,
                   done_fn *done, void *arg);

/**
 * Destroys the sandbox; the session stays. Nothing to do when it is absent.
 * What the engine does not confirm is tried again with back-off, also after a
 * restart.
 *
 * @param session the session
 * @param caller  who asks
 * @param done    0, -EBUSY while a command runs, or what the provider said
 * @param arg     given to done
 */
void session_destroy(struct session *session, const struct caller *caller,
                     done_fn *done, void *arg);

/**
 * Notes that somebody uses the sandbox, which puts off its idle pause: its
 * control files are written, data of its workspace is read or written. What a
 * command does is noted by itself.
 *
 * @param session the session; any thread
 */
void session_touch(struct session *session);

/**
 * Tells where the sandbox has its workspace.
 *
 * @param session the session
 * @param out     a path as the sandbox sees it, the caller's to free
 * @param err     filled on failure
 * @return 0, -ENOENT where there is no sandbox or it does not say, -ENOMEM
 */
MUST_USE int session_workspace_path(struct session *session, char **out,
                                    struct err *err);

/* ---- Config ---- */

/**
 * The text of `config.json`: the effective config.
 *
 * @param session a session
 * @param out     appended to
 * @param err     filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int session_config_text(struct session *session, struct buf *out,
                                 struct err *err);

/**
 * Gives a session another config. While there is a sandbox only its `init` may
 * change, until it has succeeded. What cannot be done changes nothing.
 *
 * @param session the session
 * @param text    JSON, borrowed; null and `{}` say the default profile's
 * @param size    its bytes
 * @param caller  who asks
 * @param err     filled on failure
 * @return 0, -EINVAL, -EPERM for what the operator alone may say, -ENODEV for
 *         an unknown provider, -EBUSY, -EFBIG, -ENOENT, -ENOSPC, -EIO
 */
MUST_USE int session_configure(struct session *session, const char *text,
                               size_t size, const struct caller *caller,
                               struct err *err);

/* ---- Files ---- */

/* What a file operation needs of the sandbox. */
enum session_need {
    SESSION_PEEK,  /* What waits for nothing: as it is now, started or not. */
    SESSION_LOOK,  /* Names and attributes: never starts anything, but waits for
                    * a start that is under way, as all below do. */
    SESSION_READ,  /* File data: may wake a paused one. */
    SESSION_WRITE, /* Makes the sandbox where there is none. */
    SESSION_GROW,  /* The same, and it needs room on the disk. */
};

/**
 * Calls `fn` when a file operation may go on, with the file lock held shared
 * until session_files_leave(). At once and in the caller's thread where
 * nothing must be waited for; else later, in a thread that may block.
 *
 * @param arg the starter's
 * @param rc  0; -ESTALE for the data of a lost one; or a negative errno, and
 *            then the lock is not held
 * @param ws  the tree with a reference, or NULL: the sandbox is absent, so the
 *            workspace is empty (SESSION_PEEK, _LOOK and _READ only)
 * @param err words, when rc is negative
 */
typedef void session_files_fn(void *arg, int rc, struct workspace *ws,
                              const struct err *err);

/**
 * Enters the workspace for one operation. See session_files_fn.
 *
 * @param session the session
 * @param need    what the operation does
 * @param caller  who asks
 * @param fn      called once
 * @param arg     given to fn
 */
void session_files_enter(struct session *session, enum session_need need,
                         const struct caller *caller, session_files_fn *fn,
                         void *arg);

/**
 * Tells whether nothing changes the workspace but the mount itself: no command
 * runs and no process of one lives on. What begins to change it is told by
 * hooks.changed first, and once more when it has ended. Does not block.
 *
 * @param session a session whose workspace is entered
 * @return whether it is sure
 */
bool session_quiet(struct session *session);

/**
 * Tells whether the sandbox's files may grow, where data is written that does
 * not come by here.
 *
 * @param session the session
 * @param err     filled on failure
 * @return as provider_room()
 */
MUST_USE int session_room(struct session *session, struct err *err);

/** @param session as entered, when the operation has ended */
void session_files_leave(struct session *session);

/**
 * Runs file work that may block in one of the session's threads.
 *
 * @param session the session
 * @param fn      called once
 * @param arg     given to it
 * @return 0, -EAGAIN or -ENOMEM
 */
MUST_USE int session_files_run(struct session *session, work_fn *fn, void *arg);

/**
 * Keeps what was written to a file and could not be sent, where nobody else
 * has it open. It is sent later.
 *
 * @param session the session
 * @param file    of its tree, about to be closed
 */
void session_files_keep(struct session *session, struct ws_file *file);

/**
 * Tells what was added (A), modified (M) and deleted (D) in the workspace: a
 * line each, the letter, a tab and the path as quote_path() writes it. In a
 * thread that may block, between session_files_enter() and _leave().
 *
 * @param session the session
 * @param span    from where to where; borrowed
 * @param out     appended to
 * @param err     filled on failure
 * @return 0, -EFBIG, -ETIMEDOUT, or what the provider said
 */
MUST_USE int session_changes(struct session *session,
                             const struct provider_span *span, struct buf *out,
                             struct err *err);

/** @param session a session @return how long that text was the last time */
uint64_t session_changes_size(struct session *session);

/* ---- Records ---- */

/**
 * Adds a line to the session's `error` file.
 *
 * @param session the session
 * @param op      what failed
 * @param exec_n  the command's number, 0: none
 * @param name    what it was about, or NULL; any bytes, quoted in the line
 * @param caller  who asked
 * @param err     why
 */
void session_fail(struct session *session, const char *op, uint64_t exec_n,
                  const char *name, const struct caller *caller,
                  const struct err *err);

/**
 * The text of `error`: the last 20 failures, a line each.
 *
 * @param session a session
 * @param out     appended to
 * @param err     filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int session_errors(struct session *session, struct buf *out,
                            struct err *err);

/* The most bytes of an event's line. */
enum {
    SESSION_EVENT_MAX = 16 * 1024
};

/**
 * Reads `events`, JSON lines, of which the oldest go at times. Offsets count
 * from the first that there ever was.
 *
 * @param session a session
 * @param offset  becomes that of the first line, where it is below
 * @param out     at most size bytes
 * @param size    of out
 * @param err     filled on failure
 * @return bytes read, 0 at the end, or a negative errno
 */
MUST_USE ssize_t session_events_read(struct session *session, uint64_t *offset,
                                     void *out, size_t size, struct err *err);

/** @param session a session @return the offset of its first event */
uint64_t session_events_begin(struct session *session);
/** @param session a session @return the offset of the end of its events */
uint64_t session_events_end(struct session *session);

/* ---- Commands ---- */

/**
 * Whether the newest command was refused, which leaves no record: what
 * session_exec_last() gives is then another one.
 *
 * @param session the session
 * @param err     filled on failure
 * @return 0, or the negative errno that refused it, until one is taken
 */
MUST_USE int session_exec_refused(struct session *session, struct err *err);

/**
 * Notes that a command was refused before it came to exec_submit().
 *
 * @param session the session
 * @param code    a positive errno
 */
void session_exec_refuse(struct session *session, int code);

/**
 * Takes the newest command.
 *
 * @param session a session
 * @param out     a reference, on success
 * @param err     filled on failure
 * @return 0 or -ENOENT
 */
MUST_USE int session_exec_last(struct session *session, struct exec **out,
                               struct err *err);

/**
 * Takes a command by its number.
 *
 * @param session a session
 * @param n       its number
 * @param out     a reference, on success
 * @param err     filled on failure
 * @return 0 or -ENOENT
 */
MUST_USE int session_exec_find(struct session *session, uint64_t n,
                               struct exec **out, struct err *err);

/**
 * Tells the numbers of the commands that are kept, ascending.
 *
 * @param session a session
 * @param after   only numbers above this one; 0: all
 * @param fn      called without locks; false ends the walk
 * @param arg     given to fn
 * @param err     filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int session_exec_each(struct session *session, uint64_t after,
                               bool (*fn)(void *arg, uint64_t n), void *arg,
                               struct err *err);

#endif
