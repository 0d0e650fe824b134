/*
 * Listings of a direct tree. An open directory has its own fd once it is read,
 * which it is not where the kernel has kept its listing; and the offset behind
 * an entry is the one that the backing directory gives: it stays right whatever
 * is removed or added meanwhile.
 */
#include "core/workspace_direct.h"

#include "core/cleanup.h"
#include "core/path.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

enum {
    LISTING_SIZE = 32 * 1024
};

struct direct_dir {
    struct ws_dir base;
    int path_fd;       /* The node's, which stays while it has a user. */
    struct mutex lock; /* For all below. */
    int fd;            /* -1: nothing was asked of it yet. */
    off_t at;          /* The offset before the next entry of the buffer. */
    size_t next, end;  /* The part of the buffer that was not told yet. */
    char *buffer;      /* Of LISTING_SIZE, with the fd. */
};

static struct direct_dir *dir_of(struct ws_dir *dir)
{
    return container_of(dir, struct direct_dir, base);
}

int direct_opendir(struct ws_node *base, const struct ws_ctx *ctx,
                   struct ws_dir **out, struct err *err)
{
    struct direct_node *node = direct_node_of(base);
    struct direct_dir *dir;
    int path_fd;

    (void)ctx;
    if (!S_ISDIR(node->type)) {
        return err_set(err, ENOTDIR, "no directory");
    }
    path_fd = direct_fd_get(node, err);
    if (path_fd < 0) {
        return path_fd;
    }
    dir = calloc(1, sizeof(*dir));
    if (!dir) {
        direct_fd_put(node);
        return err_no_memory(err);
    }
    mutex_init(&dir->lock);
    dir->path_fd = path_fd;
    dir->fd = -1;
    dir->base.node = ws_node_ref(base);
    (void)atomic_fetch_add(&direct_tree(node)->opens, 1);
    *out = &dir->base;
    return 0;
}

void direct_closedir(struct ws_dir *base)
{
    struct direct_dir *dir = dir_of(base);

    cleanup_fd(&dir->fd);
    free(dir->buffer);
    direct_fd_put(direct_node_of(base->node));
    (void)atomic_fetch_sub(&direct_of(base->node->tree)->opens, 1);
    mutex_done(&dir->lock);
    free(dir);
}

static int open_now(struct direct_dir *dir, struct err *err)
{
    int fd;

    if (dir->fd >= 0) {
        return 0;
    }
    dir->buffer = dir->buffer ? dir->buffer : malloc(LISTING_SIZE);
    if (!dir->buffer) {
        return err_no_memory(err);
    }
    fd = path_step(dir->path_fd, ".", O_RDONLY | O_DIRECTORY);
    if (fd < 0) {
        return err_set(err, -fd, "opendir: %s", strerror(-fd));
    }
    dir->fd = fd;
    return 0;
}

static int sync_locked(struct direct_dir *dir, bool data_only, struct err *err)
{
    int rc = open_now(dir, err);

    if (rc < 0) {
        return rc;
    }
    return (data_only ? fdatasync(dir->fd) : fsync(dir->fd)) < 0
               ? err_errno(err, "fsync of the directory")
               : 0;
}

int direct_fsyncdir(struct ws_dir *base, bool data_only,
                    const struct ws_ctx *ctx, struct err *err)
{
    struct direct_dir *dir = dir_of(base);
    int rc;

    (void)ctx;
    mutex_lock(&dir->lock);
    rc = sync_locked(dir, data_only, err);
    mutex_unlock(&dir->lock);
    return rc;
}

static int seek_to(struct direct_dir *dir, off_t offset, struct err *err)
{
    if (offset && offset == dir->at) {
        return 0;
    }
    dir->next = dir->end = 0;
    if (lseek(dir->fd, offset, SEEK_SET) < 0) {
        return err_errno(err, "seek in the directory");
    }
    dir->at = offset;
    return 0;
}

/* Fetches more entries; 0 at the end. */
static int fill(struct direct_dir *dir, struct err *err)
{
    long n = syscall(SYS_getdents64, dir->fd, dir->buffer, LISTING_SIZE);

    if (n < 0) {
        return err_errno(err, "getdents64");
    }
    dir->next = 0;
    dir->end = (size_t)n;
    return n > 0;
}

static bool tell(struct direct_dir *dir, const struct dirent64 *entry,
                 ws_entry_fn *fn, void *arg)
{
    const struct direct_node *node = direct_node_of(dir->base.node);
    struct direct *d = direct_tree(node);
    struct stat attr = {.st_mode = (mode_t)DTTOIF(entry->d_type),
                        .st_dev = d->root.key.dev,
                        .st_ino = entry->d_ino};

    attr.st_ino = direct_ino(d, &attr);
    if (node == &d->root && strcmp(entry->d_name, "..") == 0) {
        attr.st_ino = node->base.ino; /* Nothing of what lies outside. */
    }
    return fn(arg, entry->d_name, &attr, entry->d_off);
}

static int list(struct direct_dir *dir, ws_entry_fn *fn, void *arg,
                struct err *err)
{
    for (;;) {
        const struct dirent64 *entry;

        if (dir->next >= dir->end) {
            int rc = fill(dir, err);

            if (rc <= 0) {
                return rc;
            }
        }
        entry = (const void *)(dir->buffer + dir->next);
        if (!tell(dir, entry, fn, arg)) {
            return 0;
        }
        dir->at = entry->d_off;
        dir->next += entry->d_reclen;
    }
}

int direct_readdir(struct ws_dir *base, off_t offset, ws_entry_fn *fn,
                   void *arg, const struct ws_ctx *ctx, struct err *err)
{
    struct direct_dir *dir = dir_of(base);
    int rc;

    (void)ctx;
    mutex_lock(&dir->lock);
    rc = open_now(dir, err);
    if (rc == 0) {
        rc = seek_to(dir, offset, err);
    }
    if (rc == 0) {
        rc = list(dir, fn, arg, err);
    }
    mutex_unlock(&dir->lock);
    return rc;
}
