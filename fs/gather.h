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

/* What is gathered. Static. */
struct gather_kind {
    const char *name; /* For people. */
    const char *bad;  /* Why a write is EINVAL. */
    size_t max;       /* Bytes of one text. */
};

struct gather {
    const struct gather_kind *kind;
    struct list texts; /* One an owner. */
    int poison;        /* An errno value: all writes fail with it. */
    bool parts;        /* A write was taken that was not a whole text. */
};

/** @param gather written: empty @param kind what is gathered */
void gather_init(struct gather *gather, const struct gather_kind *kind);
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
 * Adds to an owner's JSON object, up to its end. What no more bytes can mend
 * poisons the handle.
 *
 * @param gather the object
 * @param owner  whose
 * @param data   borrowed
 * @param size   bytes
 * @param used   how many of them belong to the object, unless it fails
 * @param out    empty; gets the object, when it is complete, or, with -EINVAL,
 *               all of what cannot become one
 * @param err    filled on failure
 * @return 1 when it is complete, 0, or a negative errno as gather_add()
 */
MUST_USE int gather_json(struct gather *gather, uint64_t owner,
                         const void *data, size_t size, size_t *used,
                         struct buf *out, struct err *err);

/**
 * Makes all later calls fail; all texts are dropped.
 *
 * @param gather the object
 * @param code   a positive errno value
 */
void gather_poison(struct gather *gather, int code);

/**
 * Takes an owner's text. It is gone from the object in any case.
 *
 * @param gather the object
 * @param owner  whose
 * @param out    empty; gets the text with 1
 * @param err    filled on failure
 * @return 1 when there is something to run: a text that is not only blanks;
 *         0; or the negative errno that the object is poisoned with, where
 *         bytes that a write had taken were dropped: of a write(2) in several
 *         requests only the length tells of the one that failed
 */
MUST_USE int gather_take(struct gather *gather, uint64_t owner, struct buf *out,
                         struct err *err);

#endif
