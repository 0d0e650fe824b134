/*
 * What removed sessions leave on disk. A directory is moved to STATE/trash at
 * once and deleted by a thread of the registry; a start empties the trash.
 */
#include "core/cleanup.h"
#include "core/registry_priv.h"
#include "core/workers.h"

#include <dirent.h>
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

static void empty(void *arg)
{
    struct registry *registry = arg;
    AUTO_FREE char *path = NULL;

    if (asprintf(&path, "%s/trash", registry->state_dir) < 0) {
        path = NULL;
        return;
    }
    (void)nftw(path, remove_entry, MOST_FDS, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

void registry_empty_trash(struct registry *registry)
{
    /* Without a thread the next start does it. */
    (void)!workers_run(registry->trash, empty, registry);
}

void registry_trash(struct registry *registry, const char *dir, uint64_t number)
{
    AUTO_FREE char *to = NULL;

    if (asprintf(&to, "%s/trash/%llu", registry->state_dir,
                 (unsigned long long)number) < 0) {
        to = NULL;
        return;
    }
    if (rename(dir, to) == 0) {
        registry_empty_trash(registry);
    }
}
