/* What the files of core/checkpoint share with sessions and commands. */
#ifndef SESSIONFS_CHECKPOINT_PRIV_H
#define SESSIONFS_CHECKPOINT_PRIV_H

#include "core/checkpoint.h"
#include "core/provider_snapshots.h"
#include "core/session_priv.h"
#include "core/store_checkpoints.h"

/* ---- checkpoint_take.c: in the life thread only ---- */

/* What a checkpoint is for. */
struct checkpoint_why {
    enum checkpoint_cause cause;
    uint64_t exec;    /* CHECKPOINT_EXEC: the command. */
    const char *name; /* NULL: it goes by its number. */
    const struct caller *caller;
};

/* Whether the session's engine keeps checkpoints, of whatever kind. */
bool checkpoint_can(const struct session *session);
/* Makes the store and the provider agree, once; before anything else here. */
MUST_USE int checkpoint_settle(struct session *session, struct err *err);
/* Takes one that is not recorded yet; *out has key 0 where the engine keeps
 * none. */
MUST_USE int checkpoint_make(struct session *session,
                             const struct checkpoint_why *why,
                             struct checkpoint *out, struct err *err);
/* It is recorded: the session goes on from it. */
void checkpoint_made(struct session *session, const struct checkpoint *made);
/* It could not be recorded: there is none. */
void checkpoint_unmake(struct session *session, const struct checkpoint *made);
/* Takes and records one, with an event. */
MUST_USE int checkpoint_add(struct session *session,
                            const struct checkpoint_why *why,
                            struct checkpoint *out, struct err *err);
/* The one that somebody names. */
MUST_USE int checkpoint_run_named(struct session *session,
                                  const struct job *job, struct err *err);
/* Takes one of what was written through the mount since the last one, where
 * there is something. A failure is recorded and told to nobody. */
void checkpoint_gather(struct session *session);

/* ---- checkpoint_restore.c: in the life thread only ---- */

MUST_USE int checkpoint_run_restore(struct session *session,
                                    const struct job *job, struct err *err);
/* Whether a lost sandbox can come back. */
bool checkpoint_has_head(struct session *session) EXCLUDES(session->lock);
/* Brings a lost sandbox back, paused, from where it was last. -ENOENT where
 * there is nothing to bring it back from. */
MUST_USE int checkpoint_revive(struct session *session,
                               const struct caller *caller, struct err *err);

/* ---- checkpoint_fork.c ---- */

/* In the life thread. */
MUST_USE int checkpoint_run_fork(struct session *session, const struct job *job,
                                 struct err *err);
/* At the start: forks that were cut off are undone. */
MUST_USE int checkpoint_sweep(struct registry *registry, struct err *err);

/* ---- checkpoint_keep.c: in the life thread only ---- */

MUST_USE int checkpoint_run_drop(struct session *session, const struct job *job,
                                 struct err *err);
/* Drops what is too much by the config, in the background. */
void checkpoint_retain(struct session *session);

/* ---- checkpoint_gather.c ---- */

/* Something may have been written of which nobody knows. */
bool checkpoint_dirty(struct session *session) EXCLUDES(session->lock);
/* Something was written for certain. */
bool checkpoint_seen(struct session *session) EXCLUDES(session->lock);
/* All that was written is in a checkpoint, as far as is known: `doubted` where
 * files can change without our seeing it. */
void checkpoint_clean(struct session *session, bool doubted)
    EXCLUDES(session->lock);
/* What is not in a checkpoint, and ought to be, is taken with the next. */
void checkpoint_doubt(struct session *session) EXCLUDES(session->lock);
/* The same as checkpoint_wrote(); true: the timer is to be set. */
bool checkpoint_wrote_locked(struct session *session) REQUIRES(session->lock);
void checkpoint_watch(struct session *session) EXCLUDES(session->lock);
/* Of a new registry, before its first session. */
void checkpoint_watch_init(struct registry *registry);
/* At the end: no more of it, for any session, and what was written is taken
 * now; in the loop's thread. */
void checkpoint_watch_drop_all(struct registry *registry);
/* At the end: what was written is taken now. */
void checkpoint_gather_last(struct session *session) EXCLUDES(session->lock);

/* ---- checkpoint_view.c ---- */

/* Forgets the tree of a key, or of all where that is 0. */
void checkpoint_view_drop(struct session *session, uint64_t key)
    EXCLUDES(session->lock);

#endif
