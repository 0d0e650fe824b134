/* What differs between two states of a workspace. */
#ifndef SESSIONFS_LOCAL_CHANGES_H
#define SESSIONFS_LOCAL_CHANGES_H

#include "core/provider.h"

/* Where to look; all are directories, borrowed. */
struct changes_dirs {
    int now;           /* What it is. */
    int then;          /* What it was; -1: nothing. */
    const int *layers; /* Something differs only where one of these has */
    size_t count;      /* something; so many; */
    bool all;          /* or anywhere. */
    int store;         /* Of all layers: files may lie there in parts. */
};

/**
 * Tells the changes, a directory before what is in it, else by name. Only what
 * the layers have is looked at, so that a large base costs nothing. Contents
 * are compared, times are not: a file that was only touched has not changed.
 *
 * @param dirs   borrowed
 * @param limits deadline and token
 * @param fn     called for each change
 * @param arg    given to fn
 * @param err    filled on failure
 * @return 0, what fn said, -ETIMEDOUT, -ECANCELED, or another negative errno
 */
MUST_USE int changes_tell(const struct changes_dirs *dirs,
                          const struct limits *limits, provider_change_fn *fn,
                          void *arg, struct err *err);

#endif
