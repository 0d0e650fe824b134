/* What a session did to its workspace, against its base. */
#ifndef SESSIONFS_LOCAL_CHANGES_H
#define SESSIONFS_LOCAL_CHANGES_H

#include "core/provider.h"

/* Where to look; all are directories, borrowed. */
struct changes_dirs {
    int merged; /* The workspace. */
    int upper;  /* What the session wrote; -1: look everywhere. */
    int base;   /* What lies below; -1: nothing. */
};

/**
 * Tells the changes, a directory before what is in it, else by name. Only what
 * the session wrote is looked at, so that a large base costs nothing. Contents
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
