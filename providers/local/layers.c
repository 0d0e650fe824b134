/*
 * The layers of checkpoints. See layers.h.
 *
 * A layer ID is the directory ID; a link ID.on beside it tells the parent's:
 * it takes no room, and is there at once or not.
 */
#include "providers/local/layers.h"

#include "core/array.h"
#include "core/cancel.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/mutex.h"
#include "core/spread.h"
#include "core/workers.h"
#include "providers/local/parts.h"
#include "providers/local/remove.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define STORE     "layers"
#define ON_SUFFIX ".on"

enum {
    NAME_SIZE = 32,
    DEEP_MAX = 1 << 20, /* More are a circle. */
};

struct layer {
    uint64_t id;
    uint64_t parent;
    uint64_t refs;
    unsigned tier;
    bool dying;  /* Is being removed: nothing brings it back. */
    bool making; /* Is not told to be done yet, as it, or one over it. */
};

struct layers {
    int dir;
    struct workers *removals;
    struct cancel closing;
    struct mutex lock;
    struct layer *all GUARDED; /* By lock, as all below; sorted by id. */
    size_t count GUARDED;
    size_t room GUARDED;
    uint64_t last GUARDED; /* The greatest id so far. */
    bool swept GUARDED;    /* References are complete. */
};

/* One that is to be removed. */
struct removal {
    struct layers *layers;
    uint64_t id;
};

static void unref_locked(struct layers *layers, uint64_t id)
    REQUIRES(layers->lock);

/* ---- In memory ---- */

static struct layer *find_locked(struct layers *layers, uint64_t id)
    REQUIRES(layers->lock)
{
    size_t low = 0;
    size_t high = layers->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (layers->all[middle].id == id) {
            return &layers->all[middle];
        }
        if (layers->all[middle].id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

/* Ids only grow, but for those that are read at the start. */
static int add_locked(struct layers *layers, const struct layer *layer)
    REQUIRES(layers->lock)
{
    void *wide = array_grow(layers->all, layers->count, &layers->room,
                            sizeof(struct layer));

    if (!wide) {
        return -ENOMEM;
    }
    layers->all = wide;
    layers->all[layers->count++] = *layer;
    layers->last = layer->id > layers->last ? layer->id : layers->last;
    return 0;
}

static void forget(struct layers *layers, uint64_t id)
{
    struct layer *layer;
    uint64_t parent = 0;

    mutex_lock(&layers->lock);
    layer = find_locked(layers, id);
    if (layer) {
        size_t after = layers->count - (size_t)(layer - layers->all) - 1;

        parent = layer->parent;
        memmove(layer, layer + 1, after * sizeof(*layer));
        layers->count--;
    }
    unref_locked(layers, parent);
    mutex_unlock(&layers->lock);
}

/* ---- Removal ---- */

static void remove_layer(void *arg)
{
    struct removal *removal = arg;
    struct layers *layers = removal->layers;
    const struct limits limits = {.deadline_ms = DEADLINE_NONE,
                                  .cancel = &layers->closing};
    struct err ignored = ERR_INIT;
    char name[NAME_SIZE];

    (void)snprintf(name, sizeof(name), "%" PRIu64, removal->id);
    if (remove_tree(layers->dir, name, &limits, &ignored) == 0) {
        parts_remove(layers->dir, removal->id);
        (void)snprintf(name, sizeof(name), "%" PRIu64 ON_SUFFIX, removal->id);
        (void)unlinkat(layers->dir, name, 0);
        forget(layers, removal->id);
    }
    free(removal);
}

/* Without memory for it the next start removes it. */
static void begin_removal(struct layers *layers, struct layer *layer)
{
    struct removal *removal = malloc(sizeof(*removal));

    layer->dying = true;
    if (removal) {
        *removal = (struct removal){.layers = layers, .id = layer->id};
        if (workers_run(layers->removals, remove_layer, removal) < 0) {
            free(removal);
        }
    }
}

static void unref_locked(struct layers *layers, uint64_t id)
{
    struct layer *layer = find_locked(layers, id);

    if (layer && layer->refs > 0 && --layer->refs == 0 && layers->swept) {
        begin_removal(layers, layer);
    }
}

bool layers_ref(struct layers *layers, uint64_t id)
{
    struct layer *layer;
    bool there;

    mutex_lock(&layers->lock);
    layer = find_locked(layers, id);
    there = layer && !layer->dying;
    if (there) {
        layer->refs++;
    }
    mutex_unlock(&layers->lock);
    return there || id == 0;
}

void layers_unref(struct layers *layers, uint64_t id)
{
    mutex_lock(&layers->lock);
    unref_locked(layers, id);
    mutex_unlock(&layers->lock);
}

void layers_sweep(struct layers *layers)
{
    mutex_lock(&layers->lock);
    layers->swept = true;
    for (size_t i = 0; i < layers->count; i++) {
        if (layers->all[i].refs == 0) {
            begin_removal(layers, &layers->all[i]);
        }
    }
    mutex_unlock(&layers->lock);
}

/* ---- The start ---- */

static void read_parent(const struct layers *layers, struct layer *layer)
{
    char name[NAME_SIZE];
    char target[NAME_SIZE];
    ssize_t size;

    (void)snprintf(name, sizeof(name), "%" PRIu64 ON_SUFFIX, layer->id);
    size = readlinkat(layers->dir, name, target, sizeof(target) - 1);
    target[size < 0 ? 0 : size] = '\0';
    (void)sscanf(target, "%" SCNu64 ".%u", &layer->parent, &layer->tier);
}

static int by_id(const void *a, const void *b)
{
    const struct layer *left = a;
    const struct layer *right = b;

    return left->id < right->id ? -1 : left->id > right->id;
}

static int note(struct layers *layers, const char *name) REQUIRES(layers->lock)
{
    struct layer layer = {0};
    char *end;
    uint64_t id = strtoull(name, &end, 10);

    if (id == 0 || name[0] < '0' || name[0] > '9') {
        return 0;
    }
    /* Half a layer, with a parent alone, was to be removed. */
    if (*end != '\0') {
        struct stat st;
        char whole[NAME_SIZE];

        (void)snprintf(whole, sizeof(whole), "%" PRIu64, id);
        if (fstatat(layers->dir, whole, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            (void)unlinkat(layers->dir, name, 0);
        }
        layers->last = id > layers->last ? id : layers->last;
        return 0;
    }
    layer.id = id;
    read_parent(layers, &layer);
    return add_locked(layers, &layer);
}

static void count_parents(struct layers *layers) REQUIRES(layers->lock)
{
    if (layers->count > 0) {
        qsort(layers->all, layers->count, sizeof(struct layer), by_id);
    }
    for (size_t i = 0; i < layers->count; i++) {
        struct layer *parent = find_locked(layers, layers->all[i].parent);

        if (parent) {
            parent->refs++;
        }
    }
}

static int read_store(struct layers *layers, struct err *err)
{
    int fd = openat(layers->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    int rc = 0;

    if (!dir) {
        rc = err_errno(err, "cannot read the store of layers");
        cleanup_fd(&fd);
        return rc;
    }
    mutex_lock(&layers->lock);
    entry = readdir(dir);
    while (rc == 0 && entry) {
        rc = note(layers, entry->d_name);
        entry = readdir(dir);
    }
    count_parents(layers);
    mutex_unlock(&layers->lock);
    (void)closedir(dir);
    return rc < 0 ? err_set(err, -rc, "cannot read the store of layers") : 0;
}

static int open_store(const char *state_dir, struct err *err)
{
    AUTO_FD int state = open(state_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd;

    if (state < 0 || (mkdirat(state, STORE, 0700) < 0 && errno != EEXIST)) {
        return err_errno(err, "cannot make the store of layers");
    }
    fd = openat(state, STORE, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return err_errno(err, "the store of layers");
    }
    spread_below(fd);
    return fd;
}

int layers_open(const char *state_dir, struct layers **out, struct err *err)
{
    struct layers *layers = calloc(1, sizeof(*layers));
    int rc;

    if (!layers) {
        return err_no_memory(err);
    }
    mutex_init(&layers->lock);
    layers->closing.fd = -1;
    layers->dir = open_store(state_dir, err);
    rc = layers->dir < 0 ? layers->dir : cancel_init(&layers->closing, err);
    layers->removals = rc < 0 ? NULL : workers_new(1);
    if (rc == 0 && !layers->removals) {
        rc = err_no_memory(err);
    }
    if (rc == 0) {
        rc = read_store(layers, err);
    }
    if (rc < 0) {
        layers_close(layers);
        return rc;
    }
    *out = layers;
    return 0;
}

void layers_close(struct layers *layers)
{
    if (!layers) {
        return;
    }
    if (layers->removals) {
        cancel_fire(&layers->closing);
    }
    workers_free(layers->removals);
    cancel_done(&layers->closing);
    cleanup_fd(&layers->dir);
    free(layers->all);
    mutex_done(&layers->lock);
    free(layers);
}

int layers_dir(const struct layers *layers)
{
    return layers->dir;
}

/* ---- Making ---- */

/* Takes an id, with a reference to the parent. */
static int begin(struct layers *layers, uint64_t parent, unsigned tier,
                 uint64_t *out, struct err *err)
{
    struct layer layer = {
        .parent = parent, .refs = 1, .tier = tier, .making = true};
    int rc = layers_ref(layers, parent)
                 ? 0
                 : err_set(err, ESTALE, "a layer of the workspace is gone");

    if (rc < 0) {
        return rc;
    }
    mutex_lock(&layers->lock);
    layer.id = layers->last + 1;
    rc = add_locked(layers, &layer);
    *out = layers->last;
    mutex_unlock(&layers->lock);
    if (rc < 0) {
        layers_unref(layers, parent);
        return err_no_memory(err);
    }
    return 0;
}

static int write_parent(const struct layers *layers, uint64_t id,
                        uint64_t parent, unsigned tier, struct err *err)
{
    char name[NAME_SIZE];
    char target[NAME_SIZE];

    (void)snprintf(name, sizeof(name), "%" PRIu64 ON_SUFFIX, id);
    (void)snprintf(target, sizeof(target), "%" PRIu64 ".%u", parent, tier);
    return symlinkat(target, layers->dir, name) < 0
               ? err_errno(err, "cannot make a layer")
               : 0;
}

int layers_make(struct layers *layers, uint64_t parent, unsigned tier,
                uint64_t *out, struct err *err)
{
    char name[NAME_SIZE];
    uint64_t id = 0;
    int fd = -1;
    int rc = begin(layers, parent, tier, &id, err);

    if (rc < 0) {
        return rc;
    }
    (void)snprintf(name, sizeof(name), "%" PRIu64, id);
    rc = write_parent(layers, id, parent, tier, err);
    if (rc == 0 && mkdirat(layers->dir, name, 0700) < 0) {
        rc = err_errno(err, "cannot make a layer");
    }
    if (rc == 0) {
        fd = openat(layers->dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        rc = fd < 0 ? err_errno(err, "cannot make a layer") : 0;
    }
    if (rc < 0) {
        layers_unref(layers, id);
        return rc;
    }
    *out = id;
    return fd;
}

int layers_name(struct layers *layers, uint64_t parent, uint64_t *out,
                struct err *err)
{
    uint64_t id = 0;
    int rc = begin(layers, parent, LAYERS_SEALED, &id, err);

    if (rc < 0) {
        return rc;
    }
    rc = write_parent(layers, id, parent, LAYERS_SEALED, err);
    if (rc < 0) {
        layers_unref(layers, id);
        return rc;
    }
    *out = id;
    return 0;
}

int layers_take(struct layers *layers, uint64_t id, int dir, const char *name,
                struct err *err)
{
    char own[NAME_SIZE];

    (void)snprintf(own, sizeof(own), "%" PRIu64, id);
    return renameat(dir, name, layers->dir, own) < 0
               ? err_errno(err, "cannot make a layer")
               : 0;
}

int layers_give_back(struct layers *layers, uint64_t id, int dir,
                     const char *name, struct err *err)
{
    char own[NAME_SIZE];

    (void)snprintf(own, sizeof(own), "%" PRIu64, id);
    if (renameat(layers->dir, own, dir, name) < 0) {
        return err_errno(err, "cannot give a layer back");
    }
    layers_unref(layers, id);
    return 0;
}

int layers_adopt(struct layers *layers, uint64_t parent, int dir,
                 const char *name, uint64_t *out, struct err *err)
{
    uint64_t id = 0;
    int rc = layers_name(layers, parent, &id, err);

    if (rc < 0) {
        return rc;
    }
    rc = layers_take(layers, id, dir, name, err);
    if (rc < 0) {
        layers_unref(layers, id);
        return rc;
    }
    layers_done(layers, id);
    *out = id;
    return 0;
}

bool layers_filled(struct layers *layers, uint64_t parent, uint64_t *out)
{
    struct layer *found = NULL;

    mutex_lock(&layers->lock);
    for (size_t i = 0; i < layers->count; i++) {
        struct layer *layer = &layers->all[i];

        if (layer->parent == parent && layer->tier == LAYERS_FILLED &&
            !layer->dying && !layer->making) {
            found = layer;
        }
    }
    if (found) {
        found->refs++;
        *out = found->id;
    }
    mutex_unlock(&layers->lock);
    return found != NULL;
}

void layers_done(struct layers *layers, uint64_t id)
{
    struct layer *layer;

    mutex_lock(&layers->lock);
    layer = find_locked(layers, id);
    while (layer && layer->making) {
        layer->making = false;
        layer = find_locked(layers, layer->parent);
    }
    mutex_unlock(&layers->lock);
}

uint64_t layers_complete(struct layers *layers)
{
    uint64_t done;

    mutex_lock(&layers->lock);
    done = layers->last;
    for (size_t i = layers->count; i > 0; i--) {
        if (layers->all[i - 1].making && !layers->all[i - 1].dying) {
            done = layers->all[i - 1].id - 1;
        }
    }
    mutex_unlock(&layers->lock);
    return done;
}

int layers_chain(struct layers *layers, uint64_t top, uint64_t **out,
                 size_t *count, struct err *err)
{
    size_t deep = 0;
    uint64_t *ids;
    uint64_t id = top;
    const struct layer *layer;

    mutex_lock(&layers->lock);
    layer = find_locked(layers, id);
    for (; layer && deep < DEEP_MAX; deep++) {
        id = layer->parent;
        layer = find_locked(layers, id);
    }
    ids = id ? NULL : calloc(deep + 1, sizeof(*ids));
    id = ids ? top : 0;
    for (size_t i = 0; id; i++) {
        ids[i] = id;
        layer = find_locked(layers, id);
        id = layer ? layer->parent : 0;
    }
    mutex_unlock(&layers->lock);
    if (!ids) {
        return err_set(err, ESTALE, "a layer of the workspace is gone");
    }
    *out = ids;
    *count = deep;
    return 0;
}

static bool is_of(const struct layer *layer, const struct layers_tier *tier)
{
    return tier->sealed ? layer->tier >= LAYERS_SEALED
                        : layer->tier < LAYERS_FILLED;
}

int layers_top(struct layers *layers, uint64_t top, size_t most,
               struct layers_tier *tier, uint64_t **out, size_t *count,
               struct err *err)
{
    AUTO_FREE uint64_t *ids = calloc(most, sizeof(*ids));
    const struct layer *layer;
    size_t found = 0;

    if (!ids) {
        return err_no_memory(err);
    }
    mutex_lock(&layers->lock);
    layer = find_locked(layers, top);
    while (layer && found < most && is_of(layer, tier) &&
           (found == 0 || layer->tier == tier->tier)) {
        tier->tier = layer->tier;
        tier->below = layer->parent;
        ids[found++] = layer->id;
        layer = find_locked(layers, layer->parent);
    }
    mutex_unlock(&layers->lock);
    *count = found == most ? found : 0;
    *out = TAKE_PTR(ids);
    return 0;
}

int layers_sync(const struct layers *layers, struct err *err)
{
    return syncfs(layers->dir) < 0 ? err_errno(err, "cannot sync the layers")
                                   : 0;
}
