/*
 * What the processes that share a handle have written, each for itself, until
 * it becomes a script. Knows no FUSE; the caller locks.
 */
#ifndef SESSIONFS_GATHER_H
#define SESSIONFS_GATHER_H

#include "core/buf.h"
#include "core/err.h"
#include "core/list.h"

#include <stdbool.h>
#include <stdint.h>

struct gather {
    struct list texts; /* One an owner. */
    size_t max;        /* Bytes of one text. */
    int poison;        /* An errno value: all writes fail with it. */
};

/**
 * @param gather written: empty
 * @param max    the most bytes of one owner's text
 */
void gather_init(struct gather *gather, size_t max);
/** @param gather emptied */
void gather_done(struct gather *gather);

/**
 * Adds to an owner's text. What cannot become a script poisons the handle:
 * all texts are dropped, and every later call fails alike.
 *
 * @param gather the object
 * @param owner  whose
 * @param data   borrowed
 * @param size   bytes
 * @param err    filled on failure
 * @return 0, -EFBIG, -EINVAL for a NUL byte, or -ENOMEM, which poisons too
 */
MUST_USE int gather_add(struct gather *gather, uint64_t owner, const void *data,
                        size_t size, struct err *err);

/**
 * Takes an owner's text.
 *
 * @param gather the object
 * @param owner  whose
 * @param out    empty; gets the text on success
 * @return whether there is something to run: a text that is not only blanks.
 *         It is gone from the object in any case
 */
bool gather_take(struct gather *gather, uint64_t owner, struct buf *out);

#endif
