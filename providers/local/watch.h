/*
 * A watch over the disk: what each session holds of it, and what is left for
 * all. Where the kernel has no quota for directories, we look.
 *
 * A tree is read only when it may have grown over its limit: when the file
 * system has lost more room since the last time than the session has left, or
 * when that was long ago. Thread-safe; has a thread of its own.
 */
#ifndef SESSIONFS_LOCAL_WATCH_H
#define SESSIONFS_LOCAL_WATCH_H

#include "core/err.h"

#include <stdbool.h>
#include <stdint.h>

struct watch;

/** Ends the processes of a session, later. In the watch's thread, without a
 *  lock. @param arg the maker's @param number of the session @param why in
 *  words, borrowed */
typedef void watch_stop_fn(void *arg, uint64_t number, const struct err *why);

/** Opens what a session wrote. @param dir of the session @return a readable
 *  directory, or -1 */
typedef int watch_open_fn(const char *dir);

/** Looks at other things. In the watch's thread, at each turn, without a lock.
 *  @param arg the maker's */
typedef void watch_turn_fn(void *arg);

struct watch_calls {
    watch_open_fn *open;
    /* For one that is over its limit, or fills the disk. */
    watch_stop_fn *stop;
    watch_turn_fn *turn; /* NULL: there is nothing else. */
    void *arg;           /* Of stop and turn. */
};

/**
 * Starts a watch.
 *
 * @param state_dir in the file system that is watched
 * @param calls     what it calls; copied
 * @param out       the watch, on success
 * @param err       filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int watch_new(const char *state_dir, const struct watch_calls *calls,
                       struct watch **out, struct err *err);

/** @param watch its thread ends; freed; NULL is fine */
void watch_free(struct watch *watch);

/**
 * Watches a session, or takes note of another limit.
 *
 * @param watch  the watch
 * @param number of the session
 * @param dir    its directory; copied
 * @param limit  bytes that it may hold
 * @return 0 or -ENOMEM
 */
MUST_USE int watch_add(struct watch *watch, uint64_t number, const char *dir,
                       int64_t limit);

/** @param watch the watch @param number of a session that is no more */
void watch_drop(struct watch *watch, uint64_t number);

/** @param watch the watch @param number of a session @param runs whether its
 *  processes may write now */
void watch_runs(struct watch *watch, uint64_t number, bool runs);

/**
 * Tells whether a session's files may grow. Does not block.
 *
 * @param watch  the watch
 * @param number of the session; 0: any
 * @param err    filled on failure
 * @return 0, -EDQUOT over its limit, -ENOSPC when the disk is nearly full
 */
MUST_USE int watch_room(struct watch *watch, uint64_t number, struct err *err);

#endif
