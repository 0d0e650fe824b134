/* Listings of a remote tree. */
#include "core/remote_aside.h"

#include "core/array.h"
#include "core/clock.h"
#include "core/workers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* How long attributes hold that are told to a reader, of a directory that
     * is too large to be listed again and again: programs read all its names,
     * or 100,000, before they ask for one of them. */
    TELL_MS = 60 * 1000,
    SLICE_MS = 250,      /* How often a wait looks at its token. */
    LIST_MS = 60 * 1000, /* For the engine's answers to a listing, or to each
                          * piece of a long one. */
    READY = 256,         /* Entries that are told together. */
    DOTS_MS = 5000,      /* Until `.` and `..` are told without any. */
};

struct entry {
    char *name;
    struct stat attr;
    bool theirs; /* The engine told it. */
};

/* A listing, taken whole at offset 0, so it tells each entry once. The engine
 * tells it to a thread of its own; what has come can be read meanwhile, as the
 * kernel waits for no answer for long. */
struct listing {
    struct remote *r;
    const struct remote_node *node; /* Only compared with others. */
    struct cancel cancel;
    struct remote_moment moment;
    char *path;

    struct mutex lock; /* For all below. */
    struct cond more;
    struct entry *entries;
    size_t n, room;
    size_t ready;   /* May be told. */
    size_t offered; /* Are kept by the cache, of a large one. */
    bool over;      /* Nothing more comes, */
    struct err why; /* as something went wrong. */
    unsigned refs;
};

struct remote_dir {
    struct ws_dir base;
    struct mutex lock;       /* For all below. */
    struct listing *listing; /* NULL: none was asked for. */
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

static void listing_unref(struct listing *list)
{
    bool last;

    mutex_lock(&list->lock);
    last = --list->refs == 0;
    mutex_unlock(&list->lock);
    if (!last) {
        return;
    }
    for (size_t i = 0; i < list->n; i++) {
        free(list->entries[i].name);
    }
    free(list->entries);
    free(list->path);
    cond_done(&list->more);
    mutex_done(&list->lock);
    cancel_done(&list->cancel);
    free(list);
}

/* Nobody reads it any more. */
static void listing_leave(struct listing *list)
{
    if (list) {
        cancel_fire(&list->cancel);
        listing_unref(list);
    }
}

void remote_closedir(struct ws_dir *base)
{
    struct remote_dir *dir = dir_of(base);

    listing_leave(dir->listing);
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

/* ---- Listing ---- */

static int add(struct listing *list, const struct provider_entry *entry,
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
    struct listing *list = arg;
    int rc;

    mutex_lock(&list->lock);
    rc = add(list, entry, true);
    if (list->n % READY == 0) {
        list->ready = list->n;
        cond_broadcast(&list->more);
    }
    mutex_unlock(&list->lock);
    return rc;
}

static bool is_listed(const struct listing *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++) {
        if (strcmp(list->entries[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static int gather_more(void *arg, const struct provider_entry *entry)
{
    return is_listed(arg, entry->name) ? 0 : add(arg, entry, false);
}

/* Adds files that the engine does not have yet. */
static int gather_fresh(struct listing *list)
{
    struct remote *r = list->r;
    int rc = 0;

    mutex_lock(&r->base.lock);
    list_each(link, &r->staged)
    {
        const struct remote_stage *stage =
            container_of(link, struct remote_stage, link);
        const struct provider_entry entry = {.name = stage->node->name,
                                             .attr = stage->attr};

        if (rc == 0 && stage->fresh && !stage->orphan &&
            stage->node->parent == list->node) {
            rc = gather_more(list, &entry);
        }
    }
    mutex_unlock(&r->base.lock);
    return rc;
}

/* In a thread of its own, or not. */
static void run_listing(void *arg)
{
    struct listing *list = arg;
    struct remote *r = list->r;
    const struct limits limits = {.deadline_ms = clock_deadline(LIST_MS),
                                  .cancel = &list->cancel};
    struct err err = ERR_INIT;
    int rc = remote_list(r, list->path, &limits, gather, list, &err);

    mutex_lock(&list->lock);
    if (rc == 0 &&
        (gather_fresh(list) < 0 ||
         (!list->path[0] && remote_aside_list(r, gather_more, list) < 0))) {
        (void)err_no_memory(&err);
    }
    list->why = err;
    list->ready = list->n;
    list->over = true;
    cond_broadcast(&list->more);
    mutex_unlock(&list->lock);
    listing_unref(list);
}

static struct listing *listing_new(struct remote_node *node, struct err *err)
{
    struct remote *r = remote_tree(node);
    struct listing *list = calloc(1, sizeof(*list));
    struct remote_path path;
    int rc = list ? remote_path(node, NULL, &path, err) : err_no_memory(err);

    if (rc == 0) {
        list->path = strdup(path.text);
        rc = list->path ? cancel_init(&list->cancel, err) : err_no_memory(err);
    }
    if (rc < 0) {
        free(list ? list->path : NULL);
        free(list);
        return NULL;
    }
    list->r = r;
    list->node = node;
    list->moment = remote_cache_moment(r->cache);
    mutex_init(&list->lock);
    cond_init(&list->more);
    list->refs = 2; /* The handle's, and that of who lists. */
    return list;
}

/* Begins a new listing. */
static int list(struct remote_dir *dir, struct err *err)
{
    struct remote_node *node = remote_node_of(dir->base.node);
    struct listing *list = listing_new(node, err);
    struct listing *old;

    if (!list) {
        return -err->code;
    }
    if (workers_run(list->r->listers, run_listing, list) < 0) {
        run_listing(list);
    }
    mutex_lock(&dir->lock);
    old = dir->listing;
    dir->listing = list;
    mutex_unlock(&dir->lock);
    listing_leave(old);
    return 0;
}

static bool is_over(struct listing *list)
{
    bool over;

    mutex_lock(&list->lock);
    over = list->over;
    mutex_unlock(&list->lock);
    return over;
}

/* Waits until there is an entry at an index, or there will be none. */
static int wait_for(struct listing *list, size_t index,
                    const struct limits *limits, struct err *err)
{
    int rc = 0;

    mutex_lock(&list->lock);
    while (rc == 0 && !list->over && list->ready <= index) {
        int64_t until = clock_deadline(SLICE_MS);

        (void)cond_wait(&list->more, &list->lock,
                        limits->deadline_ms < until ? limits->deadline_ms
                                                    : until);
        rc = limits_check(limits, "the listing takes too long", err);
    }
    if (list->ready > index || (list->over && !list->why.code)) {
        err_clear(err);
        rc = 0;
    } else if (rc == 0) {
        *err = list->why;
        rc = -list->why.code;
    }
    mutex_unlock(&list->lock);
    return rc;
}

/* The same before `.` and `..` are told, which are there in any case: a
 * directory that takes long to begin has more time for what follows. */
static int wait_for_first(struct listing *list, const struct limits *limits,
                          struct err *err)
{
    const int64_t until = clock_deadline(DOTS_MS);
    struct limits mine = *limits;
    int rc;

    mine.deadline_ms =
        until < limits->deadline_ms ? until : limits->deadline_ms;
    rc = wait_for(list, 0, &mine, err);
    if (rc == -ETIMEDOUT && !is_over(list) &&
        clock_ms() < limits->deadline_ms) {
        err_clear(err);
        rc = 0;
    }
    return rc;
}

/* ---- Telling ---- */

/* The next entry that was told and is not offered, of a directory that is
 * large. Its name stays where it is. */
static bool next_offer(struct listing *list, size_t told, struct entry *out)
{
    bool more;

    mutex_lock(&list->lock);
    more = list->n > REMOTE_LISTED_MOST && list->offered < told;
    if (more) {
        *out = list->entries[list->offered];
        list->offered++;
    }
    mutex_unlock(&list->lock);
    return more;
}

/* Whoever is told of a file asks for its attributes next, or when all were
 * told. */
static void offer(struct listing *list, size_t told)
{
    struct remote_moment moment = list->moment;
    char full[REMOTE_PATH_SIZE];
    struct entry entry;

    moment.at_ms = clock_ms() + TELL_MS;
    while (next_offer(list, told, &entry)) {
        int n = snprintf(full, sizeof(full), "%s%s%s", list->path,
                         list->path[0] ? "/" : "", entry.name);

        if (n < (int)sizeof(full) && entry.theirs) {
            remote_cache_learn(list->r->cache, &moment, full, &entry.attr);
        }
    }
}

/* The entry at an index, whose name stays where it is; false: not yet, or
 * none. */
static bool entry_at(struct listing *list, size_t index, struct entry *out)
{
    bool there;

    mutex_lock(&list->lock);
    there = index < list->ready;
    if (there) {
        *out = list->entries[index];
    }
    mutex_unlock(&list->lock);
    return there;
}

/* Tells the entry at an index, where "." is 0 and ".." 1. No lock is held: who
 * is told may ask for more. */
static bool tell(struct remote_node *node, struct listing *list, size_t index,
                 ws_entry_fn *fn, void *arg)
{
    struct stat attr = {.st_mode = S_IFDIR, .st_ino = node->base.ino};
    const char *name = index ? ".." : ".";
    struct entry entry;

    if (index >= 2) {
        if (!entry_at(list, index - 2, &entry)) {
            return false;
        }
        name = entry.name;
        attr.st_mode = entry.attr.st_mode & S_IFMT;
        attr.st_ino = remote_ino(node, name, entry.attr.st_ino);
    }
    return fn(arg, name, &attr, (off_t)index + 1);
}

/* The listing of a handle, begun where it must be, with a reference. */
static int take(struct remote_dir *dir, off_t offset, struct listing **out,
                struct err *err)
{
    bool listed;
    int rc;

    mutex_lock(&dir->lock);
    listed = dir->listing && offset != 0;
    mutex_unlock(&dir->lock);
    rc = listed ? 0 : list(dir, err);
    if (rc < 0) {
        return rc;
    }
    mutex_lock(&dir->lock);
    *out = dir->listing;
    mutex_lock(&dir->listing->lock);
    dir->listing->refs++;
    mutex_unlock(&dir->listing->lock);
    mutex_unlock(&dir->lock);
    return 0;
}

int remote_readdir(struct ws_dir *base, off_t offset, ws_entry_fn *fn,
                   void *arg, const struct ws_ctx *ctx, struct err *err)
{
    struct remote_node *node = remote_node_of(base->node);
    size_t index = (size_t)offset;
    struct listing *list = NULL;
    int rc = take(dir_of(base), offset, &list, err);

    if (rc < 0) {
        return rc;
    }
    rc = index < 2 ? wait_for_first(list, &ctx->limits, err)
                   : wait_for(list, index - 2, &ctx->limits, err);
    while (rc == 0 && tell(node, list, index, fn, arg)) {
        index++;
    }
    if (rc == 0 && index > 2) {
        offer(list, index - 2);
    }
    listing_unref(list);
    return rc;
}
