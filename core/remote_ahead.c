/*
 * Small files of a directory fetched side by side, before they are asked for,
 * where somebody reads one after another.
 */
#include "core/workspace_remote.h"

#include "core/clock.h"
#include "core/workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SOON_MS = 2000, /* Two files of a directory within this time. */
    SMALL = REMOTE_CHUNK / 2,
    MOST = 8, /* Files ahead. */
    CALL_MS = 10 * 1000,
};

/* A file to be fetched. */
struct ahead {
    struct remote *r;
    char path[];
};

static void fetch(void *arg)
{
    struct ahead *ahead = arg;
    struct remote *r = ahead->r;
    const struct limits limits = {.deadline_ms = clock_deadline(CALL_MS),
                                  .cancel = &r->end};
    struct stat attr;
    const struct remote_range range = {.path = ahead->path, .attr = &attr};
    struct err unused = ERR_INIT;
    char byte;

    /* Whoever reads it is told what is wrong. */
    if (remote_cache_find(r->cache, ahead->path, &attr) == REMOTE_THERE) {
        (void)!remote_content(r, &range, &byte, 1, 0, &limits, &unused);
    }
    free(ahead);
}

/* What follows a file in its directory. */
struct following {
    struct remote *r;
    const char *path;
    size_t dir_len;
    bool met;   /* The file itself. */
    unsigned n; /* Files to be taken yet. */
    char *mark; /* Becomes the one in the middle. */
};

static int take(void *arg, const struct provider_entry *entry)
{
    struct following *next = arg;
    const char *name = next->path + next->dir_len + (next->dir_len ? 1 : 0);
    size_t len = strlen(entry->name);
    struct ahead *ahead;

    if (!next->met || !next->n) {
        next->met = next->met || strcmp(entry->name, name) == 0;
        return 0;
    }
    if (!S_ISREG(entry->attr.st_mode) || entry->attr.st_size > SMALL ||
        entry->attr.st_size <= 0) {
        return 0;
    }
    ahead = calloc(1, sizeof(*ahead) + next->dir_len + len + 2);
    if (!ahead) {
        return 0;
    }
    ahead->r = next->r;
    (void)memcpy(ahead->path, next->path, (size_t)(name - next->path));
    (void)memcpy(ahead->path + (name - next->path), entry->name, len + 1);
    next->n--;
    if (next->n == MOST / 2) {
        (void)snprintf(next->mark, REMOTE_PATH_SIZE, "%s", ahead->path);
    }
    if (workers_run(next->r->ahead, fetch, ahead) < 0) {
        free(ahead);
    }
    return 0;
}

/* Whether to fetch what follows: the file before was one of this directory,
 * too, or half of what was fetched ahead has been read. */
static bool goes_on(struct remote *r, const char *path, size_t dir_len,
                    bool missing)
{
    int64_t now = clock_ms();
    bool on;

    mutex_lock(&r->base.lock);
    on = strcmp(path, r->small_mark) == 0 ||
         (missing && now - r->small_ms < SOON_MS &&
          strncmp(r->small_dir, path, dir_len) == 0 && !r->small_dir[dir_len]);
    if (missing) {
        r->small_ms = now;
        memcpy(r->small_dir, path, dir_len);
        r->small_dir[dir_len] = '\0';
    }
    mutex_unlock(&r->base.lock);
    return on;
}

void remote_read_ahead(struct remote *r, const char *path, bool missing)
{
    const char *slash = strrchr(path, '/');
    unsigned half = r->files->at_once / 2;
    char mark[REMOTE_PATH_SIZE] = "";
    char dir[REMOTE_PATH_SIZE];
    struct following next = {.r = r,
                             .path = path,
                             .dir_len = slash ? (size_t)(slash - path) : 0,
                             .n = half < MOST ? half : MOST,
                             .mark = mark};

    if (!next.n || !goes_on(r, path, next.dir_len, missing)) {
        return;
    }
    memcpy(dir, path, next.dir_len);
    dir[next.dir_len] = '\0';
    (void)remote_cache_list(r->cache, dir, take, &next);
    mutex_lock(&r->base.lock);
    memcpy(r->small_mark, mark, sizeof(mark));
    mutex_unlock(&r->base.lock);
}
