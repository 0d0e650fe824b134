/*
 * Checkpoints of a session: the workspace as it was after each command.
 *
 * One is taken after every command that ran; before a command, a pause, a fork
 * or a restore where something was written through the mount since, or when
 * that has been quiet for a while; and when somebody names one. Each has a
 * number that counts up and is never used twice; one with a name is listed by
 * that alone, and its number by none. What a session shows is recorded in the
 * store, the trees are the provider's: after a crash both are made to agree
 * before the next one is taken.
 *
 * All functions are thread-safe.
 */
#ifndef SESSIONFS_CHECKPOINT_H
#define SESSIONFS_CHECKPOINT_H

#include "core/done.h"
#include "core/session.h"

enum checkpoint_cause {
    CHECKPOINT_EXEC,    /* A command ran. */
    CHECKPOINT_WRITE,   /* Something was written through the mount. */
    CHECKPOINT_NAMED,   /* Somebody named it. */
    CHECKPOINT_RESTORE, /* So that a restore can be undone. */
    CHECKPOINT_FORK,    /* What a fork starts from. */
};

struct checkpoint {
    uint64_t key;     /* Its number. */
    uint64_t before;  /* Which one its changes are against; 0: the base. */
    uint64_t exec;    /* The command's number, 0: none. */
    int64_t time_us;  /* clock_wall_us() */
    uint64_t changed; /* Paths. */
    uint64_t bytes;   /* That the store has grown by. */
    enum checkpoint_cause cause;
    bool gone;                  /* Dropped, but yet of use to core. */
    char name[SESSION_ID_SIZE]; /* "": it goes by its number. */
};

enum {
    CHECKPOINT_LABEL_SIZE = SESSION_ID_SIZE
};

/** @param cause a cause @return its word */
const char *checkpoint_cause_name(enum checkpoint_cause cause);

/** @param checkpoint one @param out what it is listed as */
void checkpoint_label(const struct checkpoint *checkpoint,
                      char out[CHECKPOINT_LABEL_SIZE]);

/**
 * Takes one that has a name.
 *
 * @param session the session
 * @param name    a session's id could be that; not all digits, not `last`, no
 *                two dots in a row
 * @param caller  who asks
 * @param done    0, -EINVAL, -EEXIST, -EBUSY while a command runs, -ENOENT
 *                without a sandbox, -EOPNOTSUPP, or what the provider said
 * @param arg     given to done
 */
void checkpoint_take(struct session *session, const char *name,
                     const struct caller *caller, done_fn *done, void *arg);

/**
 * Forgets one, by its name or number.
 *
 * @param session the session
 * @param name    as it is listed
 * @param caller  who asks
 * @param done    0, -ENOENT, or what the provider said
 * @param arg     given to done
 */
void checkpoint_drop(struct session *session, const char *name,
                     const struct caller *caller, done_fn *done, void *arg);

/**
 * Makes the workspace what it was. The present state becomes a checkpoint
 * first, unless the sandbox is lost; its processes end.
 *
 * @param session the session
 * @param name    as it is listed, or `last`
 * @param caller  who asks
 * @param done    0, -ENOENT, -EBUSY while a command runs, or what the provider
 *                said
 * @param arg     given to done
 */
void checkpoint_restore(struct session *session, const char *name,
                        const struct caller *caller, done_fn *done, void *arg);

/**
 * Makes another session, of the same config, whose workspace starts as this
 * one's was. They share nothing that either could notice.
 *
 * @param session the session
 * @param id      of the new one, which is reserved at once
 * @param name    of a checkpoint, as it is listed, or `last`; NULL: as it is
 *                now, which is -EBUSY while a command runs
 * @param caller  who asks
 * @param done    0, -EINVAL, -EEXIST, -ENOENT, or what the provider said
 * @param arg     given to done
 */
void checkpoint_fork(struct session *session, const char *id, const char *name,
                     const struct caller *caller, done_fn *done, void *arg);

/**
 * Finds one by its name or number.
 *
 * @param session the session
 * @param name    as it is listed, or `last`
 * @param out     filled on success
 * @param err     filled on failure
 * @return 0, -ENOENT or another negative errno
 */
MUST_USE int checkpoint_find(struct session *session, const char *name,
                             struct checkpoint *out, struct err *err);

/**
 * Tells all, by ascending numbers.
 *
 * @param session the session
 * @param after   only numbers above this one; 0: all
 * @param fn      called without locks; false ends the walk
 * @param arg     given to fn
 * @param err     filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int checkpoint_each(struct session *session, uint64_t after,
                             bool (*fn)(void *arg, const struct checkpoint *c),
                             void *arg, struct err *err);

/** @param session the session @return whether their trees can be shown */
bool checkpoint_shown(struct session *session);

/**
 * Opens the tree of one, or takes that which is open. In a thread that may
 * block.
 *
 * @param session the session
 * @param key     which
 * @param out     a reference, on success; it can be read only
 * @param err     filled on failure
 * @return 0, -ENOENT, -EOPNOTSUPP where it cannot be shown, or another
 *         negative errno
 */
MUST_USE int checkpoint_open(struct session *session, uint64_t key,
                             struct workspace **out, struct err *err);

/** @param session the session @param key which
 *  @return its tree with a reference where it is open, else NULL */
struct workspace *checkpoint_opened(struct session *session, uint64_t key);

/**
 * What changed between two of them, as session_changes(), but that `to` is no
 * state of now. In a thread that may block.
 *
 * @param session the session
 * @param span    borrowed
 * @param out     appended to
 * @param err     filled on failure
 * @return 0, -ENOENT where one is gone, or as session_changes()
 */
MUST_USE int checkpoint_changes(struct session *session,
                                const struct provider_span *span,
                                struct buf *out, struct err *err);

/** @param session the session @param span borrowed
 *  @return the size of that text where it is known, else 0 */
uint64_t checkpoint_changes_size(struct session *session,
                                 const struct provider_span *span);

/** @param session the session @param span of a command; borrowed
 *  @return whether that text is known, or may be made */
bool checkpoint_changes_there(struct session *session,
                              const struct provider_span *span);

/** Notes that something was written through the mount; any thread.
 *  @param session the session */
void checkpoint_wrote(struct session *session);

#endif
