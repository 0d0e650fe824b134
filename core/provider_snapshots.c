/* Checked calls of a provider's checkpoints. See provider_snapshots.h. */
#include "core/provider_snapshots.h"

#include "core/provider_priv.h"

int provider_snapshot_take(struct provider *provider,
                           const struct sandbox *sandbox,
                           const struct snapshot_ask *ask,
                           const struct limits *limits,
                           struct snapshot_made *out, struct err *err)
{
    const struct provider_snapshots *slots = provider->ops->snapshots;

    if (!slots || !slots->take) {
        return provider_cannot(provider, OP_CHECKPOINT, err);
    }
    provider_begin(provider, OP_CHECKPOINT);
    return provider_end(provider, OP_CHECKPOINT,
                        slots->take(provider, sandbox, ask, limits, out, err),
                        err);
}

int provider_snapshot_restore(struct provider *provider,
                              struct sandbox *sandbox, uint64_t key,
                              const struct limits *limits, struct err *err)
{
    const struct provider_snapshots *slots = provider->ops->snapshots;

    if (!slots || !slots->restore) {
        return provider_cannot(provider, OP_RESTORE, err);
    }
    provider_begin(provider, OP_RESTORE);
    return provider_end(provider, OP_RESTORE,
                        slots->restore(provider, sandbox, key, limits, err),
                        err);
}

int provider_snapshot_fork(struct provider *provider,
                           const struct sandbox *from, uint64_t key,
                           struct sandbox *to, const struct limits *limits,
                           struct err *err)
{
    const struct provider_snapshots *slots = provider->ops->snapshots;

    if (!slots || !slots->fork) {
        return provider_cannot(provider, OP_FORK, err);
    }
    provider_begin(provider, OP_FORK);
    return provider_end(provider, OP_FORK,
                        slots->fork(provider, from, key, to, limits, err), err);
}

int provider_snapshot_drop(struct provider *provider,
                           const struct sandbox *sandbox, uint64_t key,
                           const struct limits *limits, struct err *err)
{
    const struct provider_snapshots *slots = provider->ops->snapshots;

    if (!slots || !slots->drop) {
        return provider_cannot(provider, OP_DROP, err);
    }
    provider_begin(provider, OP_DROP);
    return provider_end(provider, OP_DROP,
                        slots->drop(provider, sandbox, key, limits, err), err);
}

int provider_snapshot_open(struct provider *provider,
                           const struct sandbox *sandbox, uint64_t key,
                           const struct limits *limits,
                           struct provider_root *out, struct err *err)
{
    const struct provider_snapshots *slots = provider->ops->snapshots;

    if (!slots || !slots->open) {
        return provider_cannot(provider, OP_OPEN, err);
    }
    provider_begin(provider, OP_OPEN);
    return provider_end(provider, OP_OPEN,
                        slots->open(provider, sandbox, key, limits, out, err),
                        err);
}

int provider_snapshot_list(struct provider *provider,
                           const struct sandbox *sandbox,
                           const struct limits *limits,
                           int (*fn)(void *arg, uint64_t key), void *arg,
                           struct err *err)
{
    const struct provider_snapshots *slots = provider->ops->snapshots;

    if (!slots || !slots->list) {
        return provider_cannot(provider, OP_LIST, err);
    }
    provider_begin(provider, OP_LIST);
    return provider_end(provider, OP_LIST,
                        slots->list(provider, sandbox, limits, fn, arg, err),
                        err);
}
