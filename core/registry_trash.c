/*
 * What removed sessions leave on disk. A directory is moved to STATE/trash at
 * once and deleted by a thread of the registry; a start empties the trash.
 */
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/registry_priv.h"
#include "core/workers.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>

enum {
    MOST_FDS = 32
};

/* nftw() does not follow links and stays on the file system. */
static int remove_entry(const char *path, const struct stat *st, int type,
                        struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    (void)remove(path); /* What stays is met again at the next start. */
    return 0;
}

/* The path of an entry of the state directory; NULL without memory. */
static char *path_of(const struct registry *registry, const char *dir,
                     const char *name)
{
    char *path = NULL;

    if (asprintf(&path, "%s/%s/%s", registry->state_dir, dir, name) < 0) {
        return NULL;
    }
    return path;
}

/* Whether a name in STATE/sessions is the number of no session. */
static bool is_orphan(struct registry *registry, const char *name)
{
    struct store_session row;
    struct err err = ERR_INIT;
    char *end = NULL;
    uint64_t number = strtoull(name, &end, 10);
    int rc;

    if (!number || *end) {
        return false;
    }
    rc = store_session_get(registry->store, number, &row, &err);
    if (rc == 0) {
        store_session_done(&row);
    }
    return rc == -ENOENT;
}

static void move(struct registry *registry, const char *name)
{
    AUTO_FREE char *from = path_of(registry, "sessions", name);
    AUTO_FREE char *to = path_of(registry, "trash", name);

    if (from && to) {
        (void)rename(from, to);
    }
}

/* A crash may have come between a session's removal and its move, or a power
 * cut before the database was on the disk. */
static void move_orphans(struct registry *registry)
{
    AUTO_FREE char *path = path_of(registry, "sessions", ".");
    DIR *dir = path ? opendir(path) : NULL;
    const struct dirent *entry = dir ? readdir(dir) : NULL;

    while (entry) {
        if (is_orphan(registry, entry->d_name)) {
            move(registry, entry->d_name);
        }
        entry = readdir(dir);
    }
    if (dir) {
        (void)closedir(dir);
    }
}

static void empty(void *arg)
{
    struct registry *registry = arg;
    AUTO_FREE char *path = path_of(registry, "trash", ".");

    if (path) {
        (void)nftw(path, remove_entry, MOST_FDS,
                   FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    }
}

void registry_sweep(struct registry *registry)
{
    /* At once: where a power cut has taken sessions out of the database, the
     * next ones get their numbers. */
    move_orphans(registry);
    /* Without a thread the next start does it. */
    (void)!workers_run(registry->trash, empty, registry);
}

void registry_trash(struct registry *registry, uint64_t number)
{
    char name[24];

    (void)snprintf(name, sizeof(name), "%llu", (unsigned long long)number);
    move(registry, name);
    (void)!workers_run(registry->trash, empty, registry);
}

bool registry_trash_path(struct registry *registry, const char *path)
{
    char name[24];
    AUTO_FREE char *to = NULL;

    (void)snprintf(name, sizeof(name), "%llx",
                   (unsigned long long)clock_wall_us());
    to = path_of(registry, "trash", name);
    if (!to || rename(path, to) < 0) {
        return false;
    }
    (void)!workers_run(registry->trash, empty, registry);
    return true;
}
