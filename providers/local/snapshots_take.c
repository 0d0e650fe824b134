/* Takes a checkpoint. See snapshots.h. */
#include "providers/local/snapshots_priv.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/crash.h"
#include "core/log.h"
#include "providers/local/below.h"
#include "providers/local/lay.h"
#include "providers/local/layers.h"
#include "providers/local/mapped.h"
#include "providers/local/note.h"
#include "providers/local/parts.h"
#include "providers/local/seen.h"
#include "providers/local/shut.h"
#include "providers/local/squash.h"
#include "providers/local/tick.h"
#include "providers/local/volume.h"
#include "providers/local/volume_priv.h"
#include "providers/local/written.h"

#include <errno.h>
#include <fcntl.h>

enum {
    THAW_MS = 10000
};

struct taking {
    struct snapshots *snapshots;
    const struct sandbox *sandbox;
    const struct snapshot_ask *ask;
    const struct limits *limits;
    struct err *err;
    struct head head;
    int dir;    /* Of the session, */
    int upper;  /* what it writes, */
    int merged; /* and what it shows. */
    struct snapshot_state *old;
    uint64_t parent;        /* The layer that shows what it was; a reference. */
    struct scan_node *tree; /* As it is now. */
    uint64_t layer;         /* That shows it; a reference. */
    struct lay_sum sum;
    struct shut shut;
    bool moved;      /* What it writes is another directory now. */
    uint64_t before; /* The last key, where only the trees tell what differs
                      * from it; 0: that is known. */
};

static int open_upper(struct taking *taking)
{
    char name[HEAD_NAME_SIZE];

    head_upper(&taking->head, name);
    taking->upper = openat(taking->dir, name,
                           O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return taking->upper < 0
               ? err_errno(taking->err, "the workspace's '%s'", name)
               : 0;
}

static int check_key(struct taking *taking)
{
    uint64_t layer;
    int rc = head_find_key(taking->dir, taking->ask->key, &layer, taking->err);

    if (rc == 0) {
        return err_set(taking->err, EEXIST, "there is such a checkpoint");
    }
    if (rc == -ENOENT) {
        err_clear(taking->err);
        return 0;
    }
    return rc;
}

static int begin(struct taking *taking)
{
    int rc;

    taking->dir = volume_dir(taking->sandbox, taking->err);
    if (taking->dir < 0) {
        return taking->dir;
    }
    if (volume_has(taking->dir, VOLUME_PLAIN)) {
        return err_set(taking->err, EOPNOTSUPP,
                       "the workspace is a plain directory: where there is no "
                       "overlay there are no checkpoints");
    }
    rc = head_read(taking->dir, taking->sandbox->number, &taking->head,
                   taking->err);
    if (rc == 0) {
        rc = check_key(taking);
    }
    if (rc < 0) {
        return rc;
    }
    taking->merged = volume_open(taking->snapshots->volumes, taking->sandbox,
                                 taking->limits, taking->err);
    return taking->merged < 0 ? taking->merged : open_upper(taking);
}

/* By an earlier daemon. */
static void take_seen(struct taking *taking)
{
    struct snapshot_state *state = seen_read(taking->dir);

    if (state && (state->number != taking->sandbox->number ||
                  !layers_ref(taking->snapshots->layers, state->top))) {
        state->top = 0;
        snapshots_free_state(taking->snapshots, TAKE_PTR(state));
    }
    taking->old = state;
}

/* What was seen of another directory, before a restore, tells nothing. */
static void take_old(struct taking *taking)
{
    taking->old =
        snapshots_take_state(taking->snapshots, taking->sandbox->number);
    if (!taking->old) {
        take_seen(taking);
    }
    if (taking->old && taking->old->upper != taking->head.upper) {
        snapshots_free_state(taking->snapshots, TAKE_PTR(taking->old));
    }
}

/* Where the head lies on no checkpoint, a seal for one was not its end. */
struct last {
    uint64_t head;
    uint64_t key;
    bool known;
};

static int note_key(void *arg, uint64_t key, uint64_t layer)
{
    struct last *last = arg;

    last->key = key > last->key ? key : last->key;
    last->known = last->known || layer == last->head;
    return 0;
}

static void find_before(struct taking *taking)
{
    struct last last = {.head = taking->head.top};
    struct err ignored = ERR_INIT;

    if (!taking->old && last.head &&
        head_each_key(taking->dir, note_key, &last, &ignored) == 0 &&
        !last.known) {
        taking->before = last.key;
    }
}

static int count_change(void *arg, char kind, const char *path)
{
    uint64_t *count = arg;

    (void)kind;
    (void)path;
    (*count)++;
    return 0;
}

static void count_by_trees(struct taking *taking)
{
    const struct provider_span span = {.from = taking->before,
                                       .to = taking->ask->key};
    uint64_t count = 0;
    const struct snapshots_teller teller = {count_change, &count};
    struct err ignored = ERR_INIT;

    if (taking->before &&
        snapshots_changes(taking->snapshots, taking->sandbox, &span,
                          taking->limits, &teller, &ignored) == 0) {
        taking->sum.changed = count;
    }
}

/* What the new layer will lie on. */
static int find_parent(struct taking *taking)
{
    struct layers *layers = taking->snapshots->layers;
    const uint64_t top = taking->old ? taking->old->top : taking->head.top;
    const struct squash_ask ask = {.layers = layers,
                                   .volumes = taking->snapshots->volumes,
                                   .sandbox = taking->sandbox,
                                   .limits = taking->limits,
                                   .bytes = &taking->sum.bytes};

    if (!layers_ref(layers, top)) {
        return err_set(taking->err, ESTALE, "a layer of the workspace is gone");
    }
    taking->parent = top;
    return squash(&ask, &taking->parent, taking->err);
}

static int write_layer(struct taking *taking)
{
    struct layers *layers = taking->snapshots->layers;
    struct lay_plan plan = {.top = taking->tree,
                            .src = taking->upper,
                            .merged = taking->merged,
                            .shut = &taking->shut};
    struct parts_place parts = {.store = layers_dir(layers),
                                .limits = taking->limits,
                                .bytes = &taking->sum.bytes};
    const uint64_t parent = taking->parent;
    AUTO_FREE uint64_t *below = NULL;
    AUTO_FD int layer = -1;
    int rc;

    if (!taking->tree->need) {
        taking->layer = layers_ref(layers, parent) ? parent : 0;
        return 0;
    }
    rc = layers_chain(layers, parent, &below, &parts.count, taking->err);
    if (rc < 0) {
        return rc;
    }
    layer = layers_make(layers, parent, 0, &parts.layer, taking->err);
    if (layer < 0) {
        return layer;
    }
    parts.others = below;
    plan.parts = note_trusted() ? &parts : NULL;
    plan.dst = layer;
    taking->sum.bytes += 4096;
    rc = lay_write(&plan, taking->limits, &taking->sum, taking->err);
    if (rc == 0) {
        rc = shut_end(&taking->shut, taking->tree, layer, taking->err);
    }
    if (rc < 0) {
        layers_unref(layers, parts.layer);
        return rc;
    }
    taking->layer = parts.layer;
    return 0;
}

/* The next directory that was copied from below since the last look. */
static struct scan_node *next_copied(struct scan_node **dir)
{
    while (*dir) {
        struct scan_node *node = scan_next(*dir);

        if (!node) {
            *dir = (*dir)->parent;
        } else if (S_ISDIR(node->mode)) {
            *dir = node;
            if (node->copied && !node->old && !node->cover) {
                return node;
            }
        }
    }
    return NULL;
}

/* As long as nothing but what is in it has changed, it has not. */
static int judge_copied(struct taking *taking)
{
    struct scan_node *dir = taking->tree;
    struct scan_node *node = next_copied(&dir);
    AUTO_FD int was =
        node ? volume_view(taking->snapshots->volumes, taking->sandbox,
                           taking->parent, taking->limits, taking->err)
             : -1;

    if (node && was < 0) {
        return was;
    }
    for (; node; node = next_copied(&dir)) {
        AUTO_FREE char *path = scan_path(node);
        AUTO_FD int fd =
            path ? below_open(was, path, O_PATH | O_DIRECTORY) : -ENOMEM;
        struct stat attr;

        /* One that lies in a shut one cannot be told. */
        node->kept = fd == -EACCES || (fd >= 0 && fstat(fd, &attr) == 0 &&
                                       attr.st_mode == node->mode);
    }
    return 0;
}

/* What lies in the directory that is written from now on. */
static int look_anew(struct taking *taking)
{
    const struct scan_ask ask = {.dir = taking->upper};

    scan_free(TAKE_PTR(taking->tree));
    return scan_take(&ask, taking->limits, &taking->tree, taking->err);
}

/* What was written becomes the layer as it is: 1. Or 0: it has to be copied. */
static int try_seal(struct taking *taking, struct box *box)
{
    struct snapshots *snapshots = taking->snapshots;
    const struct snapshots_seal ask = {.sandbox = taking->sandbox,
                                       .box = box,
                                       .limits = taking->limits,
                                       .dir = taking->dir,
                                       .head = &taking->head,
                                       .upper = taking->upper,
                                       .tree = taking->tree};
    struct snapshots_sealed made = {.upper = -1};
    struct lay_sum sum = {0};
    int rc;

    if (!snapshots_worth_seal(snapshots, taking->sandbox, &taking->head,
                              taking->tree) ||
        !lay_count(taking->tree, &sum)) {
        return 0;
    }
    cleanup_fd(&taking->merged);
    rc = snapshots_seal(snapshots, &ask, &made, taking->err);
    if (rc < 0 && made.undone) {
        log_debug("cannot seal a workspace: %s", taking->err->msg);
        err_clear(taking->err);
        taking->merged = volume_open(snapshots->volumes, taking->sandbox,
                                     taking->limits, taking->err);
        return taking->merged < 0 ? taking->merged : 0;
    }
    if (rc < 0) {
        return rc;
    }
    cleanup_fd(&taking->upper);
    taking->upper = made.upper;
    taking->head = made.head;
    taking->layer = made.layer;
    taking->sum.changed += sum.changed;
    taking->sum.bytes += sum.bytes;
    taking->moved = true;
    rc = look_anew(taking);
    return rc == 0 ? 1 : rc;
}

/* What was shut is shut again, whatever came of it. */
static int end_look(struct taking *taking, int rc)
{
    struct err err = ERR_INIT;
    int shut = shut_end(&taking->shut, taking->tree, -1, &err);

    if (rc >= 0 && shut < 0) {
        *taking->err = err;
    }
    return rc < 0 ? rc : shut;
}

/* While nothing changes. */
static int look(struct taking *taking, struct box *box, bool still)
{
    struct scan_ask ask = {.dir = taking->upper,
                           .shut = &taking->shut,
                           .old = taking->old ? taking->old->tree : NULL,
                           .loose = {taking->ask->writing, NULL}};
    struct mapped mapped = {.paths = NULL};
    int rc = box && !still ? mapped_find(box, &mapped, taking->err) : 0;

    ask.loose[1] = (const char *const *)mapped.paths;
    if (rc == 0) {
        rc = scan_take(&ask, taking->limits, &taking->tree, taking->err);
    }
    if (rc == 0) {
        mapped_mark(&mapped, taking->merged, taking->upper, taking->tree);
        rc = judge_copied(taking);
    }
    if (rc == 0 && still) {
        rc = try_seal(taking, box);
    }
    if (rc == 0) {
        rc = write_layer(taking);
    }
    mapped_done(&mapped);
    rc = end_look(taking, rc);
    if (rc == 0 && taking->snapshots->coarse &&
        (taking->tree->need || !taking->old)) {
        tick_pass(); /* The next change shows by its time. */
    }
    return rc;
}

static int look_still(struct taking *taking, struct box *box)
{
    struct cancel never = CANCEL_NEVER;
    struct limits thaw = {.cancel = &never};
    struct err err = ERR_INIT;
    bool lives = box && box_alive(box);
    bool still = taking->ask->still && (!lives || box_quiet(box));
    bool stir = lives && !still && !atomic_load(&box->frozen);
    int rc = stir ? box_still(box, true, taking->limits, taking->err) : 0;

    if (rc < 0) {
        return rc;
    }
    shut_init(&taking->shut, taking->dir, taking->upper);
    rc = look(taking, lives ? box : NULL, still);
    thaw.deadline_ms = clock_deadline(THAW_MS);
    /* One that has died meanwhile is still for good. */
    if (stir && box_still(box, false, &thaw, &err) < 0 && box_alive(box) &&
        rc == 0) {
        *taking->err = err;
        rc = -err.code;
    }
    return rc;
}

/* Whether what was seen is what had been seen before. */
static bool is_as_old(const struct taking *taking)
{
    return taking->old && !taking->moved && !taking->shut.used &&
           !taking->tree->need && taking->old->top == taking->layer;
}

static int publish(struct taking *taking)
{
    const struct snapshots *snapshots = taking->snapshots;
    int rc =
        snapshots->durable ? layers_sync(snapshots->layers, taking->err) : 0;

    crash_point("local-take-laid");
    if (rc == 0) {
        layers_done(snapshots->layers, taking->layer);
        rc =
            head_add_key(taking->dir, taking->ask->key, taking->layer,
                         is_as_old(taking) ? taking->old->key : 0, taking->err);
    }
    crash_point("local-take-noted");
    if (rc == 0 && snapshots->durable) {
        struct err ignored = ERR_INIT;

        rc = head_sync(taking->dir, taking->err);
        if (rc < 0) {
            (void)!head_drop_key(taking->dir, taking->ask->key, &ignored);
        }
    }
    return rc;
}

/* What has been seen is what the next one is compared with. */
static void keep(struct taking *taking)
{
    struct snapshots *snapshots = taking->snapshots;
    struct snapshot_state *state;

    if (is_as_old(taking)) {
        taking->old->key = taking->ask->key;
        return; /* The caller keeps it. */
    }
    state = calloc(1, sizeof(*state));
    snapshots_free_state(snapshots, TAKE_PTR(taking->old));
    if (!state) {
        return;
    }
    list_init(&state->link);
    state->number = taking->sandbox->number;
    state->upper = taking->head.upper;
    state->key = taking->ask->key;
    state->tree = TAKE_PTR(taking->tree);
    if (layers_ref(snapshots->layers, taking->layer)) {
        state->top = taking->layer;
    }
    seen_write(taking->dir, state);
    snapshots_keep_state(snapshots, state);
}

int snapshots_take(struct snapshots *snapshots, const struct sandbox *sandbox,
                   struct box *box, const struct snapshot_ask *ask,
                   const struct limits *limits, struct snapshot_made *out,
                   struct err *err)
{
    struct taking taking = {.snapshots = snapshots,
                            .sandbox = sandbox,
                            .ask = ask,
                            .limits = limits,
                            .err = err,
                            .dir = -1,
                            .upper = -1,
                            .merged = -1};
    int rc = begin(&taking);

    if (rc == 0) {
        take_old(&taking);
        find_before(&taking);
        rc = find_parent(&taking);
        if (rc == 0) {
            rc = look_still(&taking, box);
        }
        if (rc == 0) {
            rc = publish(&taking);
        }
        if (rc == 0) {
            keep(&taking);
            if (!snapshots->durable) {
                written_later(snapshots->written);
            }
            count_by_trees(&taking);
            snapshots_join(snapshots, sandbox, taking.head.top);
            *out = (struct snapshot_made){.changed = taking.sum.changed,
                                          .bytes = taking.sum.bytes,
                                          .moved = taking.moved};
        } else {
            layers_unref(snapshots->layers, taking.layer);
        }
    }
    if (taking.old) { /* It is as it was. */
        snapshots_keep_state(snapshots, TAKE_PTR(taking.old));
    }
    layers_unref(snapshots->layers, taking.parent);
    scan_free(taking.tree);
    cleanup_fd(&taking.dir);
    cleanup_fd(&taking.upper);
    cleanup_fd(&taking.merged);
    return rc;
}
