/*
 * What the kernel keeps, and that it stays true. See kernel.h.
 *
 * A change is told by two means: the epoch, since which no name is believed,
 * and a notification for each inode whose attributes were told since the last
 * change, for those who hold a file or a directory without looking it up. What
 * was found out before a change and told after it is taken back by whoever
 * tells it.
 */
#include "core/log.h"
#include "core/session.h"
#include "core/workspace.h"
#include "fs/inode.h"
#include "fs/kernel_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double long_s = 24 * 60 * 60.0; /* While nothing changes it, */
static const double short_s = 0.5;           /* while something may. */
static const double remote_s = 1.0; /* What an engine may change itself. */

double kernel_keep_steady_s(const struct fs *fs)
{
    return kernel_uses(fs->kernel, KERNEL_EPOCH) ? long_s : 0.0;
}

double kernel_keep_s(const struct fs *fs, struct session *session,
                     const struct workspace *ws)
{
    if (!ws || !kernel_uses(fs->kernel, KERNEL_EPOCH)) {
        return 0.0;
    }
    if (ws_fixed(ws)) {
        return long_s;
    }
    if (ws_blocks(ws)) {
        return remote_s;
    }
    return session_quiet(session) ? long_s : short_s;
}

unsigned long kernel_state(const struct fs *fs, struct session *session,
                           const struct workspace *ws, unsigned long changes)
{
    return kernel_keep_s(fs, session, ws) >= long_s ? changes + 1 : 0;
}

unsigned long kernel_changes(const struct fs *fs)
{
    return atomic_load(&fs->kernel->changes);
}

void kernel_telling(struct fs *fs, struct inode *inode)
{
    inode_tell(fs->inodes, inode);
}

void kernel_moved(struct fs *fs, fuse_ino_t number)
{
    if (kernel_tell_begin(fs->kernel)) {
        (void)fuse_lowlevel_notify_inval_inode(fs->fuse, number, -1, 0);
        kernel_tell_end(fs->kernel);
    }
}

void kernel_told(struct fs *fs, fuse_ino_t number, unsigned long changes)
{
    if (kernel_changes(fs) != changes) {
        kernel_moved(fs, number);
    }
}

bool kernel_keeps(struct fs *fs, struct inode *inode,
                  const struct workspace *ws, unsigned long changes, bool *keep)
{
    const struct inode_key *key = inode_key(inode);
    bool may = kernel_uses(fs->kernel, KERNEL_LISTINGS) &&
               !(key->ws && ws_node_shared(key->ws)) &&
               !ws_shared_written(ws) &&
               kernel_keep_s(fs, key->session, ws) >= long_s;
    /* 0 is never what a count and one are. */
    unsigned long before = inode_set_kept(inode, may ? changes + 1 : 0);

    *keep = may && before == changes + 1;
    return may;
}

void kernel_shared(struct fs *fs, const struct session *session,
                   const struct ws_node *node, const struct stat *attr)
{
    if (ws_node_shared(node) && attr->st_nlink <= 1) {
        kernel_changed(fs, session);
    }
}

static void bump_epoch(const struct kernel *kernel)
{
    struct wire_out head = {sizeof(head), WIRE_NOTIFY_EPOCH, 0};
    ssize_t n = write(kernel->fd, &head, sizeof(head));

    if (n < 0 && errno != ENODEV && errno != ENOTCONN) {
        log_debug("cannot bump the epoch: %s", strerror(errno));
    }
}

void kernel_changed(struct fs *fs, const struct session *session)
{
    fuse_ino_t *numbers = NULL;
    size_t n;

    if (!kernel_tell_begin(fs->kernel)) {
        return;
    }
    (void)atomic_fetch_add(&fs->kernel->changes, 1);
    if (kernel_uses(fs->kernel, KERNEL_EPOCH)) {
        bump_epoch(fs->kernel);
    }
    n = inode_take_told(fs->inodes, session, &numbers);
    for (size_t i = 0; i < n; i++) {
        (void)fuse_lowlevel_notify_inval_inode(fs->fuse, numbers[i], -1, 0);
    }
    free(numbers);
    kernel_tell_end(fs->kernel);
}
