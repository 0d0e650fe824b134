/*
 * One layer in place of several that lie on each other.
 *
 * Those that have a directory which is shut to us, where we are not root, stay
 * as they are: it would have to be opened to be read, and a layer never
 * changes, since workspaces and views may show it.
 */
#ifndef SESSIONFS_LOCAL_SQUASH_H
#define SESSIONFS_LOCAL_SQUASH_H

#include "core/cancel.h"

#include <stdbool.h>
#include <stdint.h>

struct layers;
struct sandbox;
struct volumes;

/* Borrowed. */
struct squash_ask {
    struct layers *layers;
    struct volumes *volumes;
    const struct sandbox *sandbox; /* Whose workspace it is. */
    const struct limits *limits;
    uint64_t *bytes; /* The room that it takes is added. */
    bool sealed;     /* Those that were sealed are joined; or those that not. */
};

/** @param ask borrowed @param top a layer @return whether there are as many as
 *  are joined */
bool squash_due(const struct squash_ask *ask, uint64_t top);

/**
 * Makes a layer that shows what several show, where they have become many, so
 * that no chain grows too long to be mounted: as digits of a number, so many
 * of one tier become one of the next.
 *
 * @param ask borrowed
 * @param top a layer, the caller's reference: may be another one's on success
 * @param err filled on failure
 * @return 0, also where there are few, or a negative errno
 */
MUST_USE int squash(const struct squash_ask *ask, uint64_t *top,
                    struct err *err);

#endif
