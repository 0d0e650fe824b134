/*
 * Names that are not there, of one directory: whoever looks for many of them,
 * as a compiler for headers, is answered by a listing. To ask an overlay takes
 * longer than all the rest of a request.
 *
 * A listing counts while nothing but us changes the tree, which the caller says
 * by struct ws_ctx, and while we make no name.
 */
#include "core/workspace_direct.h"

#include "core/array.h"
#include "core/cleanup.h"
#include "core/path.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

enum {
    MISSES_LEAST = 16, /* Until a directory is listed, and one more for */
    NAMES_A_MISS = 16, /* so many names of the one before. */
    NAMES_MOST = 8192,
    NAMES_TOO_MANY = 1024 * 1024, /* What those count as. */
    LISTING_SIZE = 32 * 1024,
};

static uint64_t hash_name(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325;

    for (; *name; name++) {
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3;
    }
    return hash;
}

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a;
    const uint64_t *y = b;

    return (*x > *y) - (*x < *y);
}

void direct_absent_init(struct direct_absent *absent)
{
    memset(absent, 0, sizeof(*absent));
    mutex_init(&absent->lock);
    atomic_init(&absent->made, 0);
}

void direct_absent_done(struct direct_absent *absent)
{
    free(absent->names);
    mutex_done(&absent->lock);
}

void direct_absent_make(struct direct *d)
{
    (void)atomic_fetch_add(&d->absent.made, 1);
}

static bool is_about(const struct direct_absent *absent,
                     const struct direct_node *dir, const struct ws_ctx *ctx)
    REQUIRES(absent->lock)
{
    return absent->serial == dir->serial && absent->state == ctx->state &&
           absent->when == atomic_load(&absent->made);
}

bool direct_absent_knows(struct direct_node *dir, const char *name,
                         const struct ws_ctx *ctx)
{
    struct direct_absent *absent = &direct_tree(dir)->absent;
    const uint64_t hash = hash_name(name);
    bool knows = false;

    if (!ctx->state) {
        return false;
    }
    mutex_lock(&absent->lock);
    if (absent->listed && is_about(absent, dir, ctx)) {
        knows = !bsearch(&hash, absent->names, absent->count, sizeof(hash),
                         compare);
    }
    mutex_unlock(&absent->lock);
    return knows && strlen(name) <= NAME_MAX;
}

struct names {
    uint64_t *list;
    size_t count;
    size_t room;
};

static int add(struct names *names, const struct dirent64 *entry)
{
    void *wide = array_grow(names->list, names->count, &names->room,
                            sizeof(*names->list));

    if (!wide || names->count == NAMES_MOST) {
        names->list = wide ? wide : names->list;
        return -ENOMEM;
    }
    names->list = wide;
    names->list[names->count] = hash_name(entry->d_name);
    names->count++;
    return 0;
}

/* Reads all names; a negative errno where there are too many. */
static int list(int dir_fd, struct names *names)
{
    AUTO_FREE char *buffer = malloc(LISTING_SIZE);
    AUTO_FD int fd = path_step(dir_fd, ".", O_RDONLY | O_DIRECTORY);
    long n = 0;
    int rc = buffer ? 0 : -ENOMEM;

    if (fd < 0) {
        return fd;
    }
    do {
        n = rc == 0 ? syscall(SYS_getdents64, fd, buffer, LISTING_SIZE) : -1;
        for (long at = 0; at < n && rc == 0;) {
            const struct dirent64 *entry = (const void *)(buffer + at);

            rc = add(names, entry);
            at += entry->d_reclen;
        }
    } while (n > 0 && rc == 0);
    if (n < 0 || rc < 0) {
        return rc < 0 ? rc : -errno;
    }
    qsort(names->list, names->count, sizeof(*names->list), compare);
    return 0;
}

/* Counts a name that is not there; true: it is time for a listing, which counts
 * after so many makings. */
static bool count_locked(struct direct_absent *absent,
                         const struct direct_node *dir,
                         const struct ws_ctx *ctx, unsigned long *when)
    REQUIRES(absent->lock)
{
    if (!is_about(absent, dir, ctx)) {
        absent->serial = dir->serial;
        absent->state = ctx->state;
        absent->when = atomic_load(&absent->made);
        absent->listed = false;
        absent->misses = 0;
        absent->due = MISSES_LEAST + (unsigned)absent->count / NAMES_A_MISS;
    }
    absent->misses++;
    if (absent->listed || absent->misses < absent->due) {
        return false;
    }
    absent->due = UINT_MAX;
    *when = absent->when;
    return true;
}

void direct_absent_missed(struct direct_node *dir, int dir_fd,
                          const struct ws_ctx *ctx)
{
    struct direct_absent *absent = &direct_tree(dir)->absent;
    struct names names = {.list = NULL};
    unsigned long when = 0;
    bool due;
    int rc;

    if (!ctx->state) {
        return;
    }
    mutex_lock(&absent->lock);
    due = count_locked(absent, dir, ctx, &when);
    mutex_unlock(&absent->lock);
    if (!due) {
        return;
    }
    rc = list(dir_fd, &names);
    mutex_lock(&absent->lock);
    absent->count = rc == 0 ? names.count : NAMES_TOO_MANY;
    /* Others may count anew by now, after a making. */
    absent->listed =
        rc == 0 && absent->when == when && is_about(absent, dir, ctx);
    if (absent->listed) {
        free(absent->names);
        absent->names = TAKE_PTR(names.list);
    }
    mutex_unlock(&absent->lock);
    free(names.list);
}
