/*
 * Records of checkpoints: a part of the store, see store.h. The trees are the
 * provider's, see provider_snapshots.h.
 */
#ifndef SESSIONFS_STORE_CHECKPOINTS_H
#define SESSIONFS_STORE_CHECKPOINTS_H

#include "core/checkpoint.h"
#include "core/store.h"

/**
 * Records a checkpoint: from now on the sandbox's files are since it.
 *
 * @param store      the store
 * @param number     of the session
 * @param checkpoint its key is above all that the session has had
 * @param event      recorded with it; NULL: none
 * @param err        filled on failure
 * @return 0, -EEXIST for a name that is taken, -ENOSPC, -EIO
 */
MUST_USE int store_checkpoint_add(struct store *store, uint64_t number,
                                  const struct checkpoint *checkpoint,
                                  const struct store_event *event,
                                  struct err *err);

/**
 * Records what came of a command together with its checkpoint.
 *
 * @param store      the store
 * @param number     of the session
 * @param info       as for store_exec_save()
 * @param checkpoint NULL: none
 * @param event      recorded with them
 * @param err        filled on failure
 * @return 0 or a negative errno: neither is recorded then
 */
MUST_USE int store_checkpoint_exec(struct store *store, uint64_t number,
                                   const struct exec_info *info,
                                   const struct checkpoint *checkpoint,
                                   const struct store_event *event,
                                   struct err *err);

/**
 * Finds a checkpoint by the name that it is listed under.
 *
 * @param store  the store
 * @param number of the session
 * @param name   its name or, of one without, its number
 * @param out    filled on success
 * @param err    filled on failure
 * @return 0, -ENOENT, -EIO
 */
MUST_USE int store_checkpoint_find(struct store *store, uint64_t number,
                                   const char *name, struct checkpoint *out,
                                   struct err *err);

/**
 * Finds the first checkpoint from a key on.
 *
 * @param store  the store
 * @param number of the session
 * @param key    the least
 * @param out    filled on success
 * @param err    filled on failure
 * @return 1, 0 where there is none, or a negative errno
 */
MUST_USE int store_checkpoint_from(struct store *store, uint64_t number,
                                   uint64_t key, struct checkpoint *out,
                                   struct err *err);

/**
 * Reads a checkpoint by its key.
 *
 * @param store  the store
 * @param number of the session
 * @param key    its key; 0: the newest
 * @param out    filled on success
 * @param err    filled on failure
 * @return 0, -ENOENT, -EIO
 */
MUST_USE int store_checkpoint_get(struct store *store, uint64_t number,
                                  uint64_t key, struct checkpoint *out,
                                  struct err *err);

/** As store_checkpoint_from(), of those that were dropped too.
 *  @param store the store @param number of the session @param key the least
 *  @param out filled on success @param err filled on failure
 *  @return 1, 0 where there is none, or a negative errno */
MUST_USE int store_checkpoint_any(struct store *store, uint64_t number,
                                  uint64_t key, struct checkpoint *out,
                                  struct err *err);

/** As store_checkpoint_any(), of that key alone.
 *  @param store the store @param number of the session @param key which
 *  @param out filled on success @param err filled on failure
 *  @return 1, 0 where there is none, or a negative errno */
MUST_USE int store_checkpoint_row(struct store *store, uint64_t number,
                                  uint64_t key, struct checkpoint *out,
                                  struct err *err);

/** As store_checkpoint_any(), of those whose changes are against another.
 *  @param store the store @param number of the session @param before that one
 *  @param key the least @param out filled on success @param err filled on
 *  failure @return 1, 0 where there is none, or a negative errno */
MUST_USE int store_checkpoint_after(struct store *store, uint64_t number,
                                    uint64_t before, uint64_t key,
                                    struct checkpoint *out, struct err *err);

/**
 * Shows a checkpoint no more, under no name; its row stays.
 *
 * @param store  the store
 * @param number of the session
 * @param key    which
 * @param event  recorded with it; NULL: none
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int store_checkpoint_hide(struct store *store, uint64_t number,
                                   uint64_t key,
                                   const struct store_event *event,
                                   struct err *err);

/**
 * Forgets a checkpoint.
 *
 * @param store      the store
 * @param number     of the session
 * @param checkpoint which; borrowed
 * @param event      recorded with it; NULL: none
 * @param err        filled on failure
 * @return 0, also where there is none, or a negative errno
 */
MUST_USE int store_checkpoint_drop(struct store *store, uint64_t number,
                                   const struct checkpoint *checkpoint,
                                   const struct store_event *event,
                                   struct err *err);

/**
 * Reads the least key that the session has not had.
 *
 * @param store  the store
 * @param number of the session
 * @param out    it, on success
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int store_checkpoint_next(struct store *store, uint64_t number,
                                   uint64_t *out, struct err *err);

/* What the checkpoints of a session without a name come to. */
struct store_checkpoint_sum {
    uint64_t count;
    uint64_t bytes;
    uint64_t first;  /* Key of the oldest that is not `but`; 0: none. */
    int64_t time_us; /* Of that one. */
    uint64_t gone;   /* Key of one that is hidden, and not `but`; 0: none. */
};

/**
 * Sums up the checkpoints without a name.
 *
 * @param store  the store
 * @param number of the session
 * @param but    a key that is never told as the oldest
 * @param out    written on success
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int store_checkpoint_sum(struct store *store, uint64_t number,
                                  uint64_t but,
                                  struct store_checkpoint_sum *out,
                                  struct err *err);

/* ---- Texts of changes that outlive what they were made from ---- */

/** @param store the store @param number of the session @param from a key
 *  @param to a key @param text borrowed @param size of it
 *  @param err filled on failure @return 0 or a negative errno */
MUST_USE int store_changes_put(struct store *store, uint64_t number,
                               uint64_t from, uint64_t to, const char *text,
                               size_t size, struct err *err);

/** @param store the store @param number of the session @param from a key
 *  @param to a key @param out appended to @param err filled on failure
 *  @return 0, -ENOENT, or another negative errno */
MUST_USE int store_changes_get(struct store *store, uint64_t number,
                               uint64_t from, uint64_t to, struct buf *out,
                               struct err *err);

/** @param store the store @param number of the session @param from a key
 *  @param to a key @param out the size of that text, where there is one
 *  @return whether there is */
MUST_USE bool store_changes_size(struct store *store, uint64_t number,
                                 uint64_t from, uint64_t to, uint64_t *out);

/* ---- Sessions that are being forked: of no name until they are whole ---- */

/**
 * Reserves an id for a session that nobody sees yet.
 *
 * @param store  the store
 * @param id     a valid id
 * @param config JSON
 * @param number its number, on success
 * @param err    filled on failure
 * @return 0, -EEXIST, -ENOSPC, -EIO
 */
MUST_USE int store_fork_begin(struct store *store, const char *id,
                              const char *config, uint64_t *number,
                              struct err *err);

/** Shows it. @param store the store @param number of the session
 *  @param event recorded with it @param err filled on failure
 *  @return 0 or a negative errno */
MUST_USE int store_fork_end(struct store *store, uint64_t number,
                            const struct store_event *event, struct err *err);

/** Gives its id back, for one that is not to be; the row stays until
 *  store_session_remove(). @param store the store @param number of the session
 *  @param err filled on failure @return 0 or a negative errno */
MUST_USE int store_fork_abandon(struct store *store, uint64_t number,
                                struct err *err);

/**
 * Finds the first session above a number that was not shown.
 *
 * @param store  the store
 * @param after  a number
 * @param number its number, on success
 * @param err    filled on failure
 * @return 1, 0 where there is none, or a negative errno
 */
MUST_USE int store_fork_next(struct store *store, uint64_t after,
                             uint64_t *number, struct err *err);

#endif
