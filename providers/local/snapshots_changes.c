/* What differs between states of a workspace. See snapshots.h. */
#include "providers/local/snapshots_priv.h"

#include "core/array.h"
#include "core/cleanup.h"
#include "providers/local/changes.h"
#include "providers/local/hostdir.h"
#include "providers/local/layers.h"
#include "providers/local/volume.h"
#include "providers/local/volume_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

enum {
    STEP_US = 1000
};

/* A state: the layers that it is made of, and what it shows. */
struct side {
    uint64_t *chain;
    size_t count;
    int fd; /* -1: nothing. */
};

struct span {
    struct snapshots *snapshots;
    const struct sandbox *sandbox;
    const struct limits *limits;
    struct err *err;
    int dir;
    struct side from;
    struct side to;
    int *layers; /* In which to look. */
    size_t count;
    size_t room;
};

static int open_key(struct span *span, uint64_t key, struct side *side)
{
    uint64_t layer = 0;
    int rc = head_find_key(span->dir, key, &layer, span->err);

    if (rc == 0) {
        rc = layers_chain(span->snapshots->layers, layer, &side->chain,
                          &side->count, span->err);
    }
    if (rc == 0) {
        side->fd = volume_view(span->snapshots->volumes, span->sandbox, layer,
                               span->limits, span->err);
        rc = side->fd < 0 ? side->fd : 0;
    }
    return rc;
}

static int add_layer(struct span *span, int fd, const char *what)
{
    void *wide;

    if (fd < 0) {
        return err_errno(span->err, "%s", what);
    }
    wide = array_grow(span->layers, span->count, &span->room,
                      sizeof(*span->layers));
    if (!wide) {
        (void)close(fd);
        return err_no_memory(span->err);
    }
    span->layers = wide;
    span->layers[span->count++] = fd;
    return 0;
}

/* A seal takes a moment. */
static int read_head(struct span *span, struct head *out)
{
    int rc;

    do {
        rc = limits_check(span->limits, "the workspace is being sealed",
                          span->err);
        if (rc == 0) {
            rc = head_read(span->dir, span->sandbox->number, out, span->err);
        }
    } while (rc == 0 && out->seal && usleep(STEP_US) == 0);
    return rc;
}

/* What the session writes is the topmost layer of what is now. */
static int open_now(struct span *span)
{
    char name[HEAD_NAME_SIZE];
    struct head head;
    int rc = read_head(span, &head);

    if (rc == 0) {
        rc = layers_chain(span->snapshots->layers, head.top, &span->to.chain,
                          &span->to.count, span->err);
    }
    if (rc < 0) {
        return rc;
    }
    head_upper(&head, name);
    rc = add_layer(
        span,
        openat(span->dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
        "what the session writes");
    if (rc == 0) {
        span->to.fd = volume_open(span->snapshots->volumes, span->sandbox,
                                  span->limits, span->err);
        rc = span->to.fd < 0 ? span->to.fd : 0;
    }
    return rc;
}

static bool has(const struct side *side, uint64_t id)
{
    for (size_t i = 0; i < side->count; i++) {
        if (side->chain[i] == id) {
            return true;
        }
    }
    return false;
}

/* Layers of one side that the other has not. */
static int add_own(struct span *span, const struct side *side,
                   const struct side *other)
{
    const int store = layers_dir(span->snapshots->layers);
    int rc = 0;

    for (size_t i = 0;
         rc == 0 && i < side->count && !has(other, side->chain[i]); i++) {
        char name[32];

        (void)snprintf(name, sizeof(name), "%" PRIu64, side->chain[i]);
        rc = add_layer(
            span,
            openat(store, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
            "a layer of the workspace");
    }
    return rc;
}

static int open_sides(struct span *span, const struct provider_span *what)
{
    int rc = what->from ? open_key(span, what->from, &span->from)
                        : hostdir_open(span->sandbox, "base", &span->from.fd,
                                       span->err);

    if (rc == 0) {
        rc = what->to ? open_key(span, what->to, &span->to) : open_now(span);
    }
    if (rc == 0) {
        rc = add_own(span, &span->from, &span->to);
    }
    return rc == 0 ? add_own(span, &span->to, &span->from) : rc;
}

static void close_span(struct span *span)
{
    for (size_t i = 0; i < span->count; i++) {
        cleanup_fd(&span->layers[i]);
    }
    free(span->layers);
    free(span->from.chain);
    free(span->to.chain);
    cleanup_fd(&span->from.fd);
    cleanup_fd(&span->to.fd);
    cleanup_fd(&span->dir);
}

/* A plain directory has no base, and no checkpoints. */
static int tell_plain(struct span *span, const struct provider_span *what,
                      const struct snapshots_teller *teller)
{
    struct changes_dirs dirs = {.then = -1, .all = true, .store = -1};

    if (what->from || what->to) {
        return err_set(span->err, ENOENT, "there is no such checkpoint");
    }
    span->to.fd = volume_open(span->snapshots->volumes, span->sandbox,
                              span->limits, span->err);
    dirs.now = span->to.fd;
    return dirs.now < 0 ? dirs.now
                        : changes_tell(&dirs, span->limits, teller->fn,
                                       teller->arg, span->err);
}

int snapshots_changes(struct snapshots *snapshots,
                      const struct sandbox *sandbox,
                      const struct provider_span *what,
                      const struct limits *limits,
                      const struct snapshots_teller *teller, struct err *err)
{
    struct span span = {.snapshots = snapshots,
                        .sandbox = sandbox,
                        .limits = limits,
                        .err = err,
                        .dir = -1,
                        .from = {.fd = -1},
                        .to = {.fd = -1}};
    int rc = what->from && what->to ? 0 : volume_check(sandbox, err);

    if (rc == 0) {
        span.dir = volume_dir(sandbox, err);
        rc = span.dir < 0 ? span.dir : 0;
    }
    if (rc == 0 && volume_has(span.dir, VOLUME_PLAIN)) {
        rc = tell_plain(&span, what, teller);
    } else if (rc == 0) {
        rc = open_sides(&span, what);
        if (rc == 0) {
            const struct changes_dirs dirs = {
                .now = span.to.fd,
                .then = span.from.fd,
                .layers = span.layers,
                .count = span.count,
                .store = layers_dir(snapshots->layers)};

            rc = changes_tell(&dirs, limits, teller->fn, teller->arg, err);
        }
    }
    close_span(&span);
    return rc;
}
