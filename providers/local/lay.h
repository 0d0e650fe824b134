/*
 * Writes a layer: what has changed in another one, so that over the layers
 * that it was compared with it shows what that one shows now.
 */
#ifndef SESSIONFS_LOCAL_LAY_H
#define SESSIONFS_LOCAL_LAY_H

#include "core/cancel.h"
#include "providers/local/scan.h"

struct parts_place;

struct lay_plan {
    struct scan_node *top;           /* What is to be written, as compared. */
    int src;                         /* The directory that it is of. */
    int merged;                      /* What the workspace shows. */
    int dst;                         /* Empty; becomes the layer. */
    const struct parts_place *parts; /* Where big files may be in parts: over
                                      * the layers below; NULL: nowhere. */
    struct shut *shut;               /* Opens files of src; or NULL. */
};

/* What it took. */
struct lay_sum {
    uint64_t changed; /* Paths, and */
    uint64_t bytes;   /* room. */
};

/**
 * Writes a layer.
 *
 * @param plan   borrowed; its directories are readable
 * @param limits deadline and token
 * @param sum    added to
 * @param err    filled on failure; what is written then is no layer
 * @return 0 or a negative errno
 */
MUST_USE int lay_write(const struct lay_plan *plan, const struct limits *limits,
                       struct lay_sum *sum, struct err *err);

/**
 * Writes what a directory shows, but what is in it itself.
 *
 * @param view   that shows it
 * @param dir    it
 * @param dst    a directory to write to
 * @param limits deadline and token
 * @param sum    added to
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int lay_fill(int view, const struct scan_node *dir, int dst,
                      const struct limits *limits, struct lay_sum *sum,
                      struct err *err);

/**
 * Counts what writing it would: nothing is written.
 *
 * @param top as compared
 * @param sum added to
 * @return whether it can be told without looking into what lies below
 */
bool lay_count(struct scan_node *top, struct lay_sum *sum);

#endif
