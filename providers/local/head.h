/*
 * What a session's workspace is made of: a link `head` in its directory, which
 * is there at once or not. Without it the workspace is the first one, over
 * nothing but its base. And `keys`, a link for each checkpoint.
 */
#ifndef SESSIONFS_LOCAL_HEAD_H
#define SESSIONFS_LOCAL_HEAD_H

#include "core/err.h"

#include <stdint.h>

#define HEAD_KEYS "keys"

enum {
    HEAD_NAME_SIZE = 32
};

struct head {
    uint64_t upper; /* Which directory is written to; see head_upper(). */
    uint64_t top;   /* The layer below it; 0: none. */
    uint64_t ids;   /* The session whose ids the files have. */
    uint64_t seal;  /* The layer that `upper` is becoming, or has become, while
                     * that is not done; 0: none. */
};

/**
 * @param dir    of the session
 * @param number of the session
 * @param out    written on success
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int head_read(int dir, uint64_t number, struct head *out,
                       struct err *err);

/**
 * Replaces it.
 *
 * @param dir  of the session
 * @param head borrowed
 * @param err  filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int head_write(int dir, const struct head *head, struct err *err);

/** Forgets it; none is fine. @param dir of the session @param err filled on
 *  failure @return 0 or a negative errno */
MUST_USE int head_drop(int dir, struct err *err);

/** @param head as read @param out the name of the directory written to */
void head_upper(const struct head *head, char out[HEAD_NAME_SIZE]);

/**
 * Finds the layer of a checkpoint.
 *
 * @param dir of the session
 * @param key of the checkpoint
 * @param out the layer, on success
 * @param err filled on failure
 * @return 0, -ENOENT without the key, or another negative errno
 */
MUST_USE int head_find_key(int dir, uint64_t key, uint64_t *out,
                           struct err *err);

/**
 * Notes the layer of a checkpoint.
 *
 * @param dir   of the session
 * @param key   of the checkpoint
 * @param layer of it
 * @param like  a checkpoint of that layer, if it is still there; or 0
 * @param err   filled on failure
 * @return 0, -EEXIST, or another negative errno
 */
MUST_USE int head_add_key(int dir, uint64_t key, uint64_t layer, uint64_t like,
                          struct err *err);

/** @param dir of the session @param key forgotten; none is fine @param err
 *  filled on failure @return 0 or a negative errno */
MUST_USE int head_drop_key(int dir, uint64_t key, struct err *err);

/** Told of a checkpoint and its layer. @return 0 to go on */
typedef int head_key_fn(void *arg, uint64_t key, uint64_t layer);

/**
 * Tells all checkpoints.
 *
 * @param dir of the session
 * @param fn  called for each; what it returns but 0 ends it
 * @param arg given to fn
 * @param err filled on failure of ours
 * @return 0, what fn said, or a negative errno
 */
MUST_USE int head_each_key(int dir, head_key_fn *fn, void *arg,
                           struct err *err);

/** Makes what was noted survive a power cut. @param dir of the session
 *  @param err filled on failure @return 0 or a negative errno */
MUST_USE int head_sync(int dir, struct err *err);

#endif
