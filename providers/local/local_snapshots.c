/* The provider `local`: its slots of checkpoints. See local.h. */
#include "providers/local/local.h"

#include "core/cleanup.h"
#include "core/provider_snapshots.h"
#include "providers/local/head.h"
#include "providers/local/layers.h"
#include "providers/local/parts.h"
#include "providers/local/snapshots.h"
#include "providers/local/volume.h"
#include "providers/local/watch.h"

#include <errno.h>
#include <fcntl.h>

static struct local *local_of(struct provider *provider)
{
    return container_of(provider, struct local, base);
}

static int take(struct provider *provider, const struct sandbox *sandbox,
                const struct snapshot_ask *ask, const struct limits *limits,
                struct snapshot_made *out, struct err *err)
{
    struct local *local = local_of(provider);
    struct box *box = local_find_box(local, sandbox->number);
    int rc =
        snapshots_take(local->snapshots, sandbox, box, ask, limits, out, err);

    box_unref(box);
    return rc;
}

static int restore(struct provider *provider, struct sandbox *sandbox,
                   uint64_t key, const struct limits *limits, struct err *err)
{
    struct local *local = local_of(provider);
    struct err plain = ERR_INIT;
    AUTO_FD int dir = open(sandbox->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    uint64_t layer;
    int rc = dir < 0 ? err_errno(err, "the sandbox's directory")
                     : head_find_key(dir, key, &layer, err);

    if (rc == 0) {
        rc = local_end_run(local, sandbox->number, limits, err);
    }
    if (rc == 0) {
        rc = snapshots_restore(local->snapshots, sandbox, key, limits, err);
    }
    return rc == 0 ? local_fill_instance(sandbox, &plain, err) : rc;
}

static int fork_from(struct provider *provider, const struct sandbox *from,
                     uint64_t key, struct sandbox *to,
                     const struct limits *limits, struct err *err)
{
    struct err plain = ERR_INIT;
    int rc = snapshots_fork(local_of(provider)->snapshots, from, key, to,
                            limits, err);

    return rc == 0 ? local_fill_instance(to, &plain, err) : rc;
}

static int drop(struct provider *provider, const struct sandbox *sandbox,
                uint64_t key, const struct limits *limits, struct err *err)
{
    (void)limits;
    return snapshots_drop(local_of(provider)->snapshots, sandbox, key, err);
}

static int open_parts(void *arg, int fd, void **out)
{
    const struct layers *layers = arg;
    struct parts *parts = NULL;
    int rc = parts_open(layers_dir(layers), fd, &parts);

    if (rc == 0) {
        *out = parts;
    }
    return rc;
}

static ssize_t read_parts(void *file, void *out, size_t size, uint64_t offset)
{
    return parts_read(file, out, size, offset);
}

static void close_parts(void *file)
{
    parts_close(file);
}

static const struct provider_parts in_parts = {.is = parts_is,
                                               .open = open_parts,
                                               .read = read_parts,
                                               .close = close_parts};

static int show(struct provider *provider, const struct sandbox *sandbox,
                uint64_t key, const struct limits *limits,
                struct provider_root *out, struct err *err)
{
    struct local *local = local_of(provider);
    AUTO_FD int fd =
        snapshots_show(local->snapshots, sandbox, key, limits, err);

    if (fd < 0) {
        return fd;
    }
    local_fill_root(local, sandbox, out);
    out->parts = &in_parts;
    out->parts_arg = local->layers;
    out->fd = openat(fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return out->fd < 0 ? err_errno(err, "the checkpoint") : 0;
}

struct listing {
    int (*fn)(void *arg, uint64_t key);
    void *arg;
};

static int tell_key(void *arg, uint64_t key, uint64_t layer)
{
    const struct listing *listing = arg;

    (void)layer;
    return listing->fn(listing->arg, key);
}

static int list(struct provider *provider, const struct sandbox *sandbox,
                const struct limits *limits, int (*fn)(void *arg, uint64_t key),
                void *arg, struct err *err)
{
    AUTO_FD int dir = open(sandbox->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct listing listing = {.fn = fn, .arg = arg};
    int rc;

    (void)provider;
    (void)limits;
    if (dir < 0) {
        return errno == ENOENT ? 0 : err_errno(err, "the sandbox's directory");
    }
    rc = head_each_key(dir, tell_key, &listing, err);
    if (rc < 0 && !err->code) {
        rc = err_set(err, -rc, "cannot tell all checkpoints");
    }
    return rc;
}

const struct provider_snapshots local_snapshot_slots = {
    .take = take,
    .restore = restore,
    .fork = fork_from,
    .drop = drop,
    .open = show,
    .list = list,
};
