/* What the checked calls of a provider's tables share. */
#ifndef SESSIONFS_PROVIDER_PRIV_H
#define SESSIONFS_PROVIDER_PRIV_H

#include "core/provider.h"

/* Calls as `stats` counts them. */
enum provider_op {
    OP_CREATE,
    OP_RESUME,
    OP_PAUSE,
    OP_DESTROY,
    OP_CHECKPOINT, /* Also one of snapshots, like the next five. */
    OP_RESTORE,
    OP_FORK,
    OP_DROP,
    OP_OPEN,
    OP_LIST,
    OP_STATUS,
    OP_EXEC,
    OP_SIGNAL,
    OP_CHANGES,
    OP_ROOT,
    OP_FILES,
    OP_RUN,
    OP_COUNT,
};

/* Starts a call: counts it, and takes its turn where there is but one. */
void provider_begin(struct provider *provider, enum provider_op op);
/* Ends it: rc is what the slot returned; err has words exactly on failure. */
MUST_USE int provider_end(struct provider *provider, enum provider_op op,
                          int rc, struct err *err);
/* -EOPNOTSUPP, with words. */
MUST_USE int provider_cannot(const struct provider *provider,
                             enum provider_op op, struct err *err);

#endif
