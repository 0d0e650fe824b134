/*
 * What becomes of the data of a file when its last name goes: it goes at once,
 * as everywhere, and not when the kernel forgets the file, which is while its
 * user goes on and may be writing the next one. See ws_large().
 */
#include "core/workspace_direct.h"

#include <sys/stat.h>

enum {
    LARGE = 1 << 20 /* Less takes no time worth mentioning. */
};

struct ws_node *direct_large(struct ws_node *base, const char *name)
{
    struct direct_node *dir = direct_node_of(base);
    int fd = direct_fd_try(dir);
    struct ws_node *node = NULL;
    struct stat attr;

    if (fd < 0) {
        return NULL;
    }
    if (fstatat(fd, name, &attr, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(attr.st_mode) && attr.st_nlink == 1 && attr.st_size >= LARGE) {
        node = direct_node_at(dir, fd, name);
    }
    direct_fd_put(dir);
    return node;
}

bool direct_leave(struct ws_node *base)
{
    struct direct_node *node = direct_node_of(base);
    struct direct *d = direct_tree(node);
    int fd = direct_fd_try(node);
    struct stat attr;
    bool gone = fd >= 0 && fstat(fd, &attr) == 0 && attr.st_nlink == 0;

    if (fd >= 0) {
        direct_fd_put(node);
    }
    if (!gone) {
        return false;
    }
    /* First, since its number may be another file's then. */
    mutex_lock(&d->base.lock);
    direct_node_unhash_locked(d, node);
    mutex_unlock(&d->base.lock);
    return direct_fd_leave(node);
}
