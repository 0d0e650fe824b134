/* Listings of a remote tree. */
#include "core/remote_stage.h"

#include "core/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    char *name;
    mode_t type;
    uint64_t ino; /* As the engine told it. */
};

/* A listing is taken whole at offset 0, so it tells each entry once. */
struct remote_dir {
    struct ws_dir base;
    struct mutex lock; /* For all below. */
    struct entry *entries;
    size_t n, room;
    bool listed;
};

static struct remote_dir *dir_of(struct ws_dir *dir)
{
    return container_of(dir, struct remote_dir, base);
}

int remote_opendir(struct ws_node *node, const struct ws_ctx *ctx,
                   struct ws_dir **out, struct err *err)
{
    struct remote_dir *dir;

    (void)ctx;
    if (!S_ISDIR(remote_node_of(node)->type)) {
        return err_set(err, ENOTDIR, "not a directory");
    }
    dir = calloc(1, sizeof(*dir));
    if (!dir) {
        return err_no_memory(err);
    }
    mutex_init(&dir->lock);
    dir->base.node = ws_node_ref(node);
    *out = &dir->base;
    return 0;
}

static void free_entries(struct entry *entries, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(entries[i].name);
    }
    free(entries);
}

void remote_closedir(struct ws_dir *base)
{
    struct remote_dir *dir = dir_of(base);

    free_entries(dir->entries, dir->n);
    mutex_done(&dir->lock);
    free(dir);
}

int remote_fsyncdir(struct ws_dir *dir, bool data_only,
                    const struct ws_ctx *ctx, struct err *err)
{
    (void)dir;
    (void)data_only;
    (void)ctx;
    (void)err;
    return 0; /* Nothing is held back here. */
}

static int gather(void *arg, const struct provider_entry *entry)
{
    struct remote_dir *list = arg;
    void *wide =
        array_grow(list->entries, list->n, &list->room, sizeof(*list->entries));

    if (!wide) {
        return -ENOMEM;
    }
    list->entries = wide;
    list->entries[list->n] =
        (struct entry){.name = strdup(entry->name),
                       .type = entry->attr.st_mode & S_IFMT,
                       .ino = entry->attr.st_ino};
    if (!list->entries[list->n].name) {
        return -ENOMEM;
    }
    list->n++;
    return 0;
}

static bool is_listed(const struct remote_dir *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++) {
        if (strcmp(list->entries[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds files that the engine does not have yet. */
static int gather_fresh(struct remote *r, const struct remote_node *dir,
                        struct remote_dir *list)
{
    int rc = 0;

    mutex_lock(&r->base.lock);
    list_each(link, &r->staged)
    {
        const struct remote_stage *stage =
            container_of(link, struct remote_stage, link);
        const struct provider_entry entry = {.name = stage->node->name,
                                             .attr = stage->attr};

        if (rc == 0 && stage->fresh && !stage->orphan &&
            stage->node->parent == dir && !is_listed(list, entry.name)) {
            rc = gather(list, &entry);
        }
    }
    mutex_unlock(&r->base.lock);
    return rc;
}

/* Takes a new listing; no lock is held during the call. */
static int list(struct remote_dir *dir, const struct ws_ctx *ctx,
                struct err *err)
{
    struct remote_node *node = remote_node_of(dir->base.node);
    struct remote *r = remote_tree(node);
    struct remote_dir found = {.entries = NULL};
    struct remote_path path;
    int rc = remote_path(node, NULL, &path, err);

    if (rc < 0) {
        return rc;
    }
    rc = remote_list(r, path.text, &ctx->limits, gather, &found, err);
    if (rc == 0 && gather_fresh(r, node, &found) < 0) {
        rc = err_no_memory(err);
    }
    if (rc < 0) {
        free_entries(found.entries, found.n);
        return rc;
    }
    mutex_lock(&dir->lock);
    free_entries(dir->entries, dir->n);
    dir->entries = found.entries;
    dir->n = found.n;
    dir->room = found.room;
    dir->listed = true;
    mutex_unlock(&dir->lock);
    return 0;
}

/* Tells the entry at an index, where "." is 0 and ".." 1. */
static bool tell(struct remote_dir *dir, size_t index, ws_entry_fn *fn,
                 void *arg)
{
    struct remote_node *node = remote_node_of(dir->base.node);
    struct stat attr = {.st_mode = S_IFDIR, .st_ino = node->base.ino};
    const char *name = index ? ".." : ".";

    if (index >= 2) {
        const struct entry *entry = &dir->entries[index - 2];

        name = entry->name;
        attr.st_mode = entry->type;
        attr.st_ino = remote_ino(node, name, entry->ino);
    }
    return fn(arg, name, &attr, (off_t)index + 1);
}

int remote_readdir(struct ws_dir *base, off_t offset, ws_entry_fn *fn,
                   void *arg, const struct ws_ctx *ctx, struct err *err)
{
    struct remote_dir *dir = dir_of(base);
    size_t index = (size_t)offset;
    bool listed;

    mutex_lock(&dir->lock);
    listed = dir->listed && offset != 0;
    mutex_unlock(&dir->lock);
    if (!listed) {
        int rc = list(dir, ctx, err);

        if (rc < 0) {
            return rc;
        }
    }
    mutex_lock(&dir->lock);
    while (index < dir->n + 2 && tell(dir, index, fn, arg)) {
        index++;
    }
    mutex_unlock(&dir->lock);
    return 0;
}
