/* Restores a checkpoint, and forks from one. See snapshots.h. */
#include "providers/local/snapshots_priv.h"

#include "core/cleanup.h"
#include "core/crash.h"
#include "providers/local/copy.h"
#include "providers/local/layers.h"
#include "providers/local/seen.h"
#include "providers/local/volume.h"
#include "providers/local/volume_priv.h"
#include "providers/local/whole.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

/* A workspace in the making. */
struct making {
    struct snapshots *snapshots;
    const struct sandbox *sandbox; /* Whose it becomes. */
    const struct limits *limits;
    struct err *err;
    int dir;        /* Of it. */
    uint64_t shown; /* The layer that it begins with. */
    struct head head;
    struct snapshot_state *state;
};

/* One that a crash has left may have the name. */
int snapshots_make_upper(int dir, struct head *head, char name[HEAD_NAME_SIZE],
                         struct err *err)
{
    int rc;

    do {
        head->upper++;
        head_upper(head, name);
        rc = mkdirat(dir, name, 0700);
    } while (rc < 0 && errno == EEXIST);
    return rc < 0 ? err_errno(err, "cannot make '%s'", name) : 0;
}

/* An empty directory to be written, that looks as the checkpoint's does. */
static int fill_upper(struct making *making, int *out)
{
    const int store = layers_dir(making->snapshots->layers);
    char layer[HEAD_NAME_SIZE];
    char name[HEAD_NAME_SIZE];
    AUTO_FD int from = -1;
    AUTO_FD int upper = -1;
    int rc =
        snapshots_make_upper(making->dir, &making->head, name, making->err);

    if (rc < 0) {
        return rc;
    }
    (void)snprintf(layer, sizeof(layer), "%" PRIu64, making->head.top);
    from = copy_open(store, layer, O_DIRECTORY);
    upper = openat(making->dir, name,
                   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (from < 0 || upper < 0) {
        return err_set(making->err, from < 0 ? -from : errno,
                       "cannot open a layer");
    }
    rc = copy_dir_attr(from, upper, making->err);
    if (rc == 0) {
        *out = TAKE_FD(upper);
    }
    return rc;
}

/* So that the next checkpoint has only what will have changed. */
static int look(struct making *making, int upper)
{
    const struct scan_ask ask = {.dir = upper};
    struct snapshot_state *state = calloc(1, sizeof(*state));
    int rc;

    if (!state) {
        return err_no_memory(making->err);
    }
    list_init(&state->link);
    state->number = making->sandbox->number;
    state->upper = making->head.upper;
    rc = scan_take(&ask, making->limits, &state->tree, making->err);
    if (rc < 0) {
        free(state);
        return rc;
    }
    if (layers_ref(making->snapshots->layers, making->shown)) {
        state->top = making->shown;
    }
    making->state = state;
    return 0;
}

/* The head's reference to its layer is the caller's until this succeeds. */
static int make(struct making *making)
{
    struct snapshots *snapshots = making->snapshots;
    AUTO_FD int upper = -1;
    int rc = fill_upper(making, &upper);

    if (rc == 0) {
        rc = volume_own_dir(making->dir, VOLUME_LOWER, making->err);
    }
    if (rc == 0) {
        rc = look(making, upper);
    }
    if (rc == 0 && snapshots->durable) {
        rc = fsync(upper) < 0 ? err_errno(making->err, "fsync")
                              : head_sync(making->dir, making->err);
    }
    crash_point("local-restore-made");
    if (rc == 0) {
        rc = head_write(making->dir, &making->head, making->err);
    }
    crash_point("local-restore-noted");
    if (rc == 0) {
        snapshots_free_state(
            snapshots,
            snapshots_take_state(snapshots, making->sandbox->number));
        seen_write(making->dir, making->state);
        snapshots_keep_state(snapshots, TAKE_PTR(making->state));
    }
    snapshots_free_state(snapshots, making->state);
    return rc;
}

/* A reference to the layer of a checkpoint. */
static int find_layer(struct snapshots *snapshots, int dir, uint64_t key,
                      uint64_t *out, struct err *err)
{
    int rc = head_find_key(dir, key, out, err);

    if (rc == 0 && !layers_ref(snapshots->layers, *out)) {
        rc = err_set(err, EIO, "the checkpoint's layer is gone");
    }
    return rc;
}

/* Makes it over a layer, the caller's reference, that `from` can be seen by. */
static int make_over(struct making *making, uint64_t layer,
                     const struct sandbox *from)
{
    struct layers *layers = making->snapshots->layers;
    const struct whole_ask ask = {.layers = layers,
                                  .volumes = making->snapshots->volumes,
                                  .sandbox = from,
                                  .limits = making->limits};
    int rc = whole_layer(&ask, layer, &making->head.top, making->err);

    if (rc == 0) {
        making->shown = layer;
        rc = making->snapshots->durable && making->head.top != layer
                 ? layers_sync(layers, making->err)
                 : 0;
        rc = rc == 0 ? make(making) : rc;
        if (rc < 0) {
            layers_unref(layers, making->head.top);
        }
    }
    return rc;
}

static void discard_old(struct snapshots *snapshots, int dir,
                        const struct head *old)
{
    char name[HEAD_NAME_SIZE];

    head_upper(old, name);
    snapshots_discard(snapshots, dir, name);
    volume_name_work(old, name);
    snapshots_discard(snapshots, dir, name);
    layers_unref(snapshots->layers, old->top);
}

int snapshots_restore(struct snapshots *snapshots,
                      const struct sandbox *sandbox, uint64_t key,
                      const struct limits *limits, struct err *err)
{
    AUTO_FD int dir = open(sandbox->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct making making = {.snapshots = snapshots,
                            .sandbox = sandbox,
                            .limits = limits,
                            .err = err,
                            .dir = dir};
    struct head old;
    uint64_t layer = 0;
    int rc = dir < 0 ? err_errno(err, "the sandbox's directory")
                     : find_layer(snapshots, dir, key, &layer, err);

    if (rc < 0) {
        return rc;
    }
    rc = head_read(dir, sandbox->number, &old, err);
    if (rc == 0) {
        making.head = old;
        rc = make_over(&making, layer, sandbox);
    }
    layers_unref(snapshots->layers, layer);
    if (rc < 0) {
        return rc;
    }
    volume_forget(snapshots->volumes, sandbox->number);
    snapshots_join_drop(snapshots, sandbox->number, making.head.top);
    rc = snapshots->durable ? head_sync(dir, err) : 0;
    /* What was there goes when nothing can lead back to it; else at the next
     * start. */
    if (rc == 0) {
        discard_old(snapshots, dir, &old);
    }
    return rc;
}

int snapshots_fork(struct snapshots *snapshots, const struct sandbox *from,
                   uint64_t key, const struct sandbox *to,
                   const struct limits *limits, struct err *err)
{
    AUTO_FD int source = volume_dir(from, err);
    AUTO_FD int dir = source < 0 ? -1 : volume_dir(to, err);
    struct making making = {.snapshots = snapshots,
                            .sandbox = to,
                            .limits = limits,
                            .err = err,
                            .dir = dir};
    uint64_t layer = 0;
    int rc =
        dir < 0 ? -err->code : find_layer(snapshots, source, key, &layer, err);

    if (rc < 0) {
        return rc;
    }
    rc = head_read(source, from->number, &making.head, err);
    if (rc == 0) {
        making.head.upper = 0;
        rc = make_over(&making, layer, from);
    }
    layers_unref(snapshots->layers, layer);
    if (rc < 0) {
        return rc;
    }
    return snapshots->durable ? head_sync(dir, err) : 0;
}
