/*
 * Small files fetched before they are asked for, where somebody reads one after
 * another: first those of the same directory, then those that a walk comes to
 * next.
 */
#include "core/workspace_remote.h"

#include "core/array.h"
#include "core/clock.h"
#include "core/workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SOON_MS = 2000, /* Two files within this time. */
    SMALL = REMOTE_CHUNK / 2,
    FIRST = 32, /* Files ahead; then twice as many, and so on; */
    SIDE = 8,   /* where each is a call. */
    DIRS = 256, /* That are looked at for them. */
    CALL_MS = 10 * 1000,
};

static const uint64_t BYTES = 1024 * 1024; /* Of files that are ahead. */

/* ---- What comes next ---- */

struct next {
    char *path;
    struct stat attr;
};

/* Entries of a directory that are known. */
struct entries {
    const char *dir;
    struct next *of;
    size_t n, room;
    bool failed;
};

static int take(void *arg, const struct provider_entry *entry)
{
    struct entries *all = arg;
    void *wide = array_grow(all->of, all->n, &all->room, sizeof(*all->of));
    struct next *next;

    if (!wide) {
        return -1;
    }
    all->of = wide;
    next = &all->of[all->n];
    next->attr = entry->attr;
    if (asprintf(&next->path, "%s%s%s", all->dir, all->dir[0] ? "/" : "",
                 entry->name) < 0) {
        return -1;
    }
    all->n++;
    return 0;
}

static void free_entries(struct entries *all)
{
    for (size_t i = 0; i < all->n; i++) {
        free(all->of[i].path);
    }
    free(all->of);
}

/* What is gathered. */
struct gathering {
    struct remote_batch *batch;
    size_t most;
    uint64_t bytes;
    unsigned dirs; /* That may still be looked at. */
};

static bool is_full(const struct gathering *to)
{
    return to->batch->n >= to->most || to->batch->bytes >= to->bytes;
}

static void add_file(struct gathering *to, struct next *next)
{
    const struct stat *attr = &next->attr;

    if (S_ISREG(attr->st_mode) && attr->st_size > 0 && attr->st_size <= SMALL &&
        !is_full(to) && remote_batch_add(to->batch, next->path, attr)) {
        next->path = NULL;
    }
}

/* Goes through a directory, from the entry behind one on and around: its files,
 * and then what lies in its directories. */
static void gather(struct gathering *to, const char *dir, const char *after)
{
    struct entries all = {.dir = dir};
    size_t first = 0;
    size_t n;

    if (!to->dirs || is_full(to)) {
        return;
    }
    to->dirs--;
    (void)remote_cache_list(to->batch->r->cache, dir, take, &all);
    for (size_t i = 0; after && i < all.n; i++) {
        first = strcmp(all.of[i].path, after) == 0 ? i + 1 : first;
    }
    n = first ? all.n - 1 : all.n; /* Not the entry itself. */
    for (size_t i = 0; i < n; i++) {
        add_file(to, &all.of[(first + i) % all.n]);
    }
    for (size_t i = 0; i < n && !is_full(to); i++) {
        const struct next *next = &all.of[(first + i) % all.n];

        if (next->path && S_ISDIR(next->attr.st_mode)) {
            gather(to, next->path, NULL);
        }
    }
    free_entries(&all);
}

/* From a file on: its directory, then the one that that is in, and so on. */
static void gather_from(struct gathering *to, const char *path)
{
    char after[REMOTE_PATH_SIZE];
    char dir[REMOTE_PATH_SIZE];
    char *slash;

    (void)snprintf(dir, sizeof(dir), "%s", path);
    do {
        memcpy(after, dir, sizeof(after));
        slash = strrchr(dir, '/');
        *(slash ? slash : dir) = '\0';
        gather(to, dir, after);
    } while (dir[0] && !is_full(to));
}

/* ---- Fetching it ---- */

static void fetch(void *arg)
{
    struct remote_batch *batch = arg;
    const struct limits limits = {.deadline_ms = clock_deadline(CALL_MS),
                                  .cancel = &batch->r->end};

    remote_batch_fetch(batch, &limits);
}

/* How many files to fetch: one was missing soon after another of its directory,
 * or while many are fetched; or half of those have been read. */
static unsigned how_many(struct remote *r, const char *path, bool missing)
{
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;
    int64_t now = clock_ms();
    bool soon, on;
    unsigned n;

    mutex_lock(&r->base.lock);
    soon = now - r->small_ms < SOON_MS;
    on = strcmp(path, r->small_mark) == 0 ||
         (missing && soon &&
          (r->small_n ||
           (strncmp(r->small_dir, path, len) == 0 && !r->small_dir[len])));
    n = on ? (r->small_n ? 2 * r->small_n : FIRST) : 0;
    n = n < REMOTE_BATCH_MOST ? n : REMOTE_BATCH_MOST;
    if (on || missing) {
        r->small_n = n;
        r->small_ms = now;
        memcpy(r->small_dir, path, len);
        r->small_dir[len] = '\0';
        r->small_mark[0] = '\0';
    }
    mutex_unlock(&r->base.lock);
    return n;
}

static void set_mark(struct remote *r, const char *path)
{
    mutex_lock(&r->base.lock);
    (void)snprintf(r->small_mark, sizeof(r->small_mark), "%s", path);
    mutex_unlock(&r->base.lock);
}

/* Fetches the next so many files by one call; false where there are none. The
 * one in the middle becomes the mark, if that is wanted. */
static bool start(struct remote *r, const char *path, size_t most, bool marks)
{
    struct remote_batch *batch = calloc(1, sizeof(*batch));
    struct gathering to = {
        .batch = batch, .most = most, .bytes = BYTES, .dirs = DIRS};
    bool some;

    if (!batch) {
        return false;
    }
    batch->r = r;
    if (to.bytes > r->view.cache_bytes / 4) { /* They push nothing out. */
        to.bytes = r->view.cache_bytes / 4;
    }
    gather_from(&to, path);
    some = batch->n > 0;
    if (some && marks) {
        set_mark(r, batch->paths[batch->n / 2]);
    }
    if (!some || workers_run(r->ahead, fetch, batch) < 0) {
        remote_batch_free(batch);
    }
    return some;
}

void remote_read_ahead(struct remote *r, const char *path, bool missing)
{
    unsigned side = r->files->at_once / 2 < SIDE ? r->files->at_once / 2 : SIDE;
    unsigned n = side ? how_many(r, path, missing) : 0;

    if (n && r->files->get_many) {
        (void)start(r, path, n, true);
    } else if (n) {
        for (unsigned i = 0; i < side && start(r, path, 1, i == side / 2);
             i++) {
        }
    }
}
