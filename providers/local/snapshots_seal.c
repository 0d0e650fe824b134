/*
 * Makes what a session has written a layer, in one step. See snapshots_priv.h.
 *
 * On the way `head` says which layer the directory is becoming. A start that
 * finds it so takes it back: the directory is the session's again, whoever of
 * its sandbox has seen the new mount is ended.
 */
#include "providers/local/snapshots_priv.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/crash.h"
#include "providers/local/copy.h"
#include "providers/local/lay.h"
#include "providers/local/layers.h"
#include "providers/local/note.h"
#include "providers/local/parts.h"
#include "providers/local/volume.h"
#include "providers/local/volume_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>

enum {
    ENTRIES = 2000,
    BYTES = 64 * 1024 * 1024,
    PART = 4,
    DEEP_MOST = 100,  /* Layers; more make each look at a file slow. */
    LINGER_MS = 1000, /* By then nobody else has the old mount. */
    BACK_MS = 10000,  /* For all to be as it was. */
};

static atomic_uint_fast64_t least_entries = ENTRIES;
static atomic_uint_fast64_t least_bytes = BYTES;

void snapshots_seal_from(uint64_t entries, uint64_t bytes)
{
    atomic_store(&least_entries, entries);
    atomic_store(&least_bytes, bytes);
}

/* ---- Whether ---- */

struct weight {
    uint64_t entries;
    uint64_t bytes;
    uint64_t small; /* Of that in small files: big ones are kept in parts, and
                     * one in a layer is copied whole when it is written. */
};

static void weigh(const struct scan_node *node, struct weight *weight)
{
    const uint64_t size = S_ISREG(node->mode) ? node->size : 0;

    weight->entries++;
    weight->bytes += size;
    weight->small += size < parts_least() ? size : 0;
}

static void weigh_all(struct scan_node *top, struct weight *all,
                      struct weight *tied)
{
    struct scan_node *node = scan_walk(top);

    while (node) {
        weigh(node, all);
        if (scan_is_tied(node)) {
            weigh(node, tied);
        }
        node = scan_walk(node);
    }
}

/* What is tied is copied each time: its names would part when it is written,
 * in a layer. */
static bool is_little(const struct weight *part, const struct weight *all)
{
    return part->entries <= all->entries / PART &&
           part->bytes <= all->bytes / PART;
}

static bool is_deep(struct snapshots *snapshots, uint64_t top)
{
    AUTO_FREE uint64_t *chain = NULL;
    struct err ignored = ERR_INIT;
    size_t deep = 0;

    return layers_chain(snapshots->layers, top, &chain, &deep, &ignored) < 0 ||
           deep > DEEP_MOST;
}

bool snapshots_worth_seal(struct snapshots *snapshots,
                          const struct sandbox *sandbox,
                          const struct head *head, struct scan_node *tree)
{
    const uint64_t number = sandbox->number;
    struct weight all = {0};
    struct weight tied = {0};

    /* Where the kernel cannot rename directories of layers it is to have few.
     */
    if (!note_trusted() || snapshots_joins(snapshots, number)) {
        return false;
    }
    weigh_all(tree, &all, &tied);
    return (all.entries > atomic_load(&least_entries) ||
            all.small > atomic_load(&least_bytes)) &&
           is_little(&tied, &all) &&
           !is_deep(snapshots, snapshots_joined(snapshots, number, head->top));
}

/* ---- How ---- */

struct sealing {
    const struct snapshots_seal *ask;
    struct snapshots *snapshots;
    struct err *err;
    struct head was;
    struct head next;
    char upper[HEAD_NAME_SIZE]; /* What becomes the layer, */
    char fresh[HEAD_NAME_SIZE]; /* and what comes in its place. */
    int made;                   /* That, open. */
    uint64_t layer;             /* That is made, on */
    uint64_t parent;            /* this one. */
    int mount; /* The new one; once it is in place, the old one. */
    bool taken;
    bool moved;
    bool unsure; /* Which of the two the sandbox has. */
};

static bool has_tied(struct scan_node *top)
{
    struct scan_node *node = scan_walk(top);
    bool any = false;

    for (; node; node = scan_walk(node)) {
        any = any || scan_is_tied(node);
    }
    return any;
}

/* Only what is tied, and where it lies, is needed. */
static void need_tied(struct scan_node *top)
{
    top->need = false;
    for (struct scan_node *node = scan_walk(top); node;
         node = scan_walk(node)) {
        node->need = false;
        node->cover = false;
        node->expand = false;
        for (struct scan_node *up = scan_is_tied(node) ? node : NULL;
             up && !up->need; up = up->parent) {
            up->need = true;
        }
    }
}

/* It is written in the new directory from now on, over what becomes the layer.
 */
static int copy_tied(const struct sealing *sealing)
{
    const struct snapshots_seal *ask = sealing->ask;
    const struct scan_ask look = {.dir = ask->upper};
    struct lay_plan plan = {
        .src = ask->upper, .merged = -1, .dst = sealing->made};
    struct lay_sum sum = {0};
    int rc;

    if (!has_tied(ask->tree)) {
        return 0;
    }
    rc = scan_take(&look, ask->limits, &plan.top, sealing->err);
    if (rc == 0) {
        need_tied(plan.top);
        rc = lay_write(&plan, ask->limits, &sum, sealing->err);
        scan_free(plan.top);
    }
    return rc;
}

static int make_fresh(struct sealing *sealing)
{
    const struct snapshots_seal *ask = sealing->ask;
    int rc = snapshots_make_upper(ask->dir, &sealing->next, sealing->fresh,
                                  sealing->err);

    if (rc < 0) {
        return rc;
    }
    sealing->made = openat(ask->dir, sealing->fresh,
                           O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (sealing->made < 0) {
        return err_errno(sealing->err, "'%s'", sealing->fresh);
    }
    rc = copy_tied(sealing);
    return rc == 0 ? copy_dir_attr(ask->upper, sealing->made, sealing->err)
                   : rc;
}

static int make_layer(struct sealing *sealing)
{
    struct layers *layers = sealing->snapshots->layers;
    struct head marked = sealing->was;
    int rc;

    sealing->parent = snapshots_joined(
        sealing->snapshots, sealing->ask->sandbox->number, sealing->was.top);
    rc = layers_name(layers, sealing->parent, &sealing->layer, sealing->err);
    if (rc < 0) {
        return rc;
    }
    marked.seal = sealing->layer;
    sealing->next.top = sealing->layer;
    rc = head_write(sealing->ask->dir, &marked, sealing->err);
    crash_point("local-seal-marked");
    if (rc == 0) {
        rc = layers_take(layers, sealing->layer, sealing->ask->dir,
                         sealing->upper, sealing->err);
        sealing->taken = rc == 0;
    }
    crash_point("local-seal-taken");
    return rc;
}

static int move(struct sealing *sealing)
{
    const struct snapshots_seal *ask = sealing->ask;
    struct volumes *volumes = sealing->snapshots->volumes;
    int rc = volume_mount_as(volumes, ask->sandbox, &sealing->next, ask->limits,
                             &sealing->mount, sealing->err);

    if (rc == 0 && ask->box) {
        rc = box_move(ask->box, sealing->mount, ask->limits, sealing->err);
        /* What was asked for may still come to pass. */
        sealing->unsure = rc == -ETIMEDOUT || rc == -ECANCELED;
    }
    crash_point("local-seal-moved");
    if (rc == 0) {
        sealing->mount =
            volume_swap(volumes, ask->sandbox->number, sealing->mount);
        sealing->moved = true;
        rc = head_write(ask->dir, &sealing->next, sealing->err);
    }
    crash_point("local-seal-noted");
    return rc;
}

static int give_old(const struct sealing *sealing, const struct limits *limits,
                    struct err *err)
{
    AUTO_FD int old = volume_mount(sealing->snapshots->volumes,
                                   sealing->ask->sandbox->number);

    return old < 0 ? -ESTALE : box_move(sealing->ask->box, old, limits, err);
}

/* A sandbox that may have the new mount is ended: it would write where nobody
 * looks. */
static int move_back(struct sealing *sealing, struct err *err)
{
    struct cancel never = CANCEL_NEVER;
    const struct limits limits = {.deadline_ms = clock_deadline(BACK_MS),
                                  .cancel = &never};
    const struct snapshots_seal *ask = sealing->ask;
    bool back = !sealing->unsure;

    if (sealing->moved) {
        sealing->mount = volume_swap(sealing->snapshots->volumes,
                                     ask->sandbox->number, sealing->mount);
    }
    if (sealing->moved && ask->box) {
        back = give_old(sealing, &limits, err) == 0;
    }
    return back ? 0 : box_end(ask->box, &limits, err);
}

/* All is as it was; or, where that fails, the workspace cannot be used. */
static int undo(struct sealing *sealing)
{
    struct err err = ERR_INIT;
    struct layers *layers = sealing->snapshots->layers;
    const struct snapshots_seal *ask = sealing->ask;
    int rc = move_back(sealing, &err);

    if (rc == 0 && sealing->taken) {
        rc = layers_give_back(layers, sealing->layer, ask->dir, sealing->upper,
                              &err);
    } else if (sealing->layer && !sealing->taken) {
        layers_unref(layers, sealing->layer);
    }
    if (rc == 0 && sealing->layer) {
        rc = head_write(ask->dir, &sealing->was, &err);
    }
    if (rc == 0) {
        char work[HEAD_NAME_SIZE];

        volume_name_work(&sealing->next, work);
        snapshots_discard(sealing->snapshots, ask->dir, sealing->fresh);
        snapshots_discard(sealing->snapshots, ask->dir, work);
    }
    return rc;
}

struct closing {
    struct snapshots *snapshots;
    int fd;
    uint64_t top;   /* Of the layers that it is over; a reference. */
    int64_t due_ms; /* A deadline: also where many wait. */
};

/* Who closes a mount last takes it down, which takes long. */
static void close_late(void *arg)
{
    struct closing *closing = arg;
    struct pollfd end = {.fd = closing->snapshots->closing.fd,
                         .events = POLLIN};

    (void)poll(&end, 1, clock_timeout(closing->due_ms));
    cleanup_fd(&closing->fd);
    layers_unref(closing->snapshots->layers, closing->top);
    free(closing);
}

static void close_later(struct snapshots *snapshots, int fd, uint64_t top)
{
    struct closing *closing = malloc(sizeof(*closing));

    if (closing) {
        *closing = (struct closing){.snapshots = snapshots,
                                    .fd = fd,
                                    .top = top,
                                    .due_ms = clock_deadline(LINGER_MS)};
        if (workers_run(snapshots->closers, close_late, closing) == 0) {
            return;
        }
    }
    free(closing);
    cleanup_fd(&fd);
    layers_unref(snapshots->layers, top);
}

static void finish(struct sealing *sealing, struct snapshots_sealed *out)
{
    struct snapshots *snapshots = sealing->snapshots;
    char work[HEAD_NAME_SIZE];

    volume_name_work(&sealing->was, work);
    snapshots_discard(snapshots, sealing->ask->dir, work);
    /* The name's reference is the head's; and one for the caller. */
    (void)layers_ref(snapshots->layers, sealing->layer);
    if (sealing->parent != sealing->was.top) {
        snapshots_join_drop(snapshots, sealing->ask->sandbox->number, 0);
    }
    out->head = sealing->next;
    out->layer = sealing->layer;
    out->upper = TAKE_FD(sealing->made);
}

int snapshots_seal(struct snapshots *snapshots,
                   const struct snapshots_seal *ask,
                   struct snapshots_sealed *out, struct err *err)
{
    struct sealing sealing = {.ask = ask,
                              .snapshots = snapshots,
                              .err = err,
                              .was = *ask->head,
                              .next = *ask->head,
                              .made = -1,
                              .mount = -1};
    int rc;

    head_upper(&sealing.was, sealing.upper);
    rc = make_fresh(&sealing);
    if (rc == 0) {
        rc = make_layer(&sealing);
    }
    if (rc == 0) {
        rc = move(&sealing);
    }
    if (rc == 0) {
        finish(&sealing, out);
        close_later(snapshots, TAKE_FD(sealing.mount), sealing.was.top);
    } else {
        out->undone = undo(&sealing) == 0;
    }
    cleanup_fd(&sealing.mount);
    cleanup_fd(&sealing.made);
    return rc;
}

/* ---- After a crash ---- */

int snapshots_seal_undo(struct snapshots *snapshots, int dir, struct head *head,
                        struct err *err)
{
    char upper[HEAD_NAME_SIZE];
    const uint64_t layer = head->seal;
    int rc = 0;

    head_upper(head, upper);
    if (!volume_has(dir, upper) && layers_ref(snapshots->layers, layer)) {
        rc = layers_give_back(snapshots->layers, layer, dir, upper, err);
    }
    head->seal = 0;
    return rc == 0 ? head_write(dir, head, err) : rc;
}
