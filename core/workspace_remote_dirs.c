/* Listings of a remote tree. */
#include "core/remote_aside.h"

#include "core/array.h"
#include "core/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* How long attributes of a listing hold while it is told, of a directory
     * that is too large to be listed again and again. */
    TELL_MS = 60 * 1000
};

struct entry {
    char *name;
    struct stat attr;
    bool theirs; /* The engine told it. */
};

/* A listing is taken whole at offset 0, so it tells each entry once. */
struct remote_dir {
    struct ws_dir base;
    struct mutex lock; /* For all below. */
    struct entry *entries;
    size_t n, room;
    struct remote_moment moment; /* When it was listed. */
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

static int add(struct remote_dir *list, const struct provider_entry *entry,
               bool theirs)
{
    void *wide =
        array_grow(list->entries, list->n, &list->room, sizeof(*list->entries));

    if (!wide) {
        return -ENOMEM;
    }
    list->entries = wide;
    list->entries[list->n] = (struct entry){
        .name = strdup(entry->name), .attr = entry->attr, .theirs = theirs};
    if (!list->entries[list->n].name) {
        return -ENOMEM;
    }
    list->n++;
    return 0;
}

static int gather(void *arg, const struct provider_entry *entry)
{
    return add(arg, entry, true);
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
            rc = add(list, &entry, false);
        }
    }
    mutex_unlock(&r->base.lock);
    return rc;
}

static int gather_more(void *arg, const struct provider_entry *entry)
{
    return is_listed(arg, entry->name) ? 0 : add(arg, entry, false);
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
    found.moment = remote_cache_moment(r->cache);
    rc = remote_list(r, path.text, &ctx->limits, gather, &found, err);
    if (rc == 0 &&
        (gather_fresh(r, node, &found) < 0 ||
         (node == &r->root && remote_aside_list(r, gather_more, &found) < 0))) {
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
    dir->moment = found.moment;
    dir->listed = true;
    mutex_unlock(&dir->lock);
    return 0;
}

/* Whoever is told of a file asks for its attributes next. Of a large directory
 * not all are kept, nor for so long. */
static void offer(struct remote_dir *dir, const char *path,
                  const struct entry *entry)
{
    struct remote *r = remote_tree(remote_node_of(dir->base.node));
    struct remote_moment moment = dir->moment;
    char full[REMOTE_PATH_SIZE];
    struct stat attr;
    int n = snprintf(full, sizeof(full), "%s%s%s", path, path[0] ? "/" : "",
                     entry->name);

    moment.at_ms = clock_ms();
    if (n < (int)sizeof(full) && entry->theirs &&
        moment.at_ms - dir->moment.at_ms < TELL_MS &&
        remote_cache_find(r->cache, full, &attr) == REMOTE_UNKNOWN) {
        remote_cache_learn(r->cache, &moment, full, &entry->attr);
    }
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
        attr.st_mode = entry->attr.st_mode & S_IFMT;
        attr.st_ino = remote_ino(node, name, entry->attr.st_ino);
    }
    return fn(arg, name, &attr, (off_t)index + 1);
}

int remote_readdir(struct ws_dir *base, off_t offset, ws_entry_fn *fn,
                   void *arg, const struct ws_ctx *ctx, struct err *err)
{
    struct remote_dir *dir = dir_of(base);
    size_t index = (size_t)offset;
    struct remote_path path;
    struct err unused = ERR_INIT;
    bool listed, offers;

    mutex_lock(&dir->lock);
    listed = dir->listed && offset != 0;
    mutex_unlock(&dir->lock);
    if (!listed) {
        int rc = list(dir, ctx, err);

        if (rc < 0) {
            return rc;
        }
    }
    offers = remote_path(remote_node_of(base->node), NULL, &path, &unused) == 0;
    mutex_lock(&dir->lock);
    offers = offers && dir->n > REMOTE_LISTED_MOST;
    while (index < dir->n + 2 && tell(dir, index, fn, arg)) {
        if (offers && index >= 2) {
            offer(dir, path.text, &dir->entries[index - 2]);
        }
        index++;
    }
    mutex_unlock(&dir->lock);
    return 0;
}
