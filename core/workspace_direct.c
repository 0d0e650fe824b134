/* A tree over a directory fd: making and ending it. */
#include "core/workspace_direct.h"

#include "core/cleanup.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct direct *direct_of(struct workspace *ws)
{
    return container_of(ws, struct direct, base);
}

struct direct_node *direct_node_of(struct ws_node *node)
{
    return container_of(node, struct direct_node, base);
}

struct direct *direct_tree(const struct direct_node *node)
{
    return direct_of(node->base.tree);
}

struct direct_proc_path direct_proc(int fd)
{
    struct direct_proc_path path;

    (void)snprintf(path.text, sizeof(path.text), "/proc/self/fd/%d", fd);
    return path;
}

static void direct_free(struct workspace *ws)
{
    struct direct *d = direct_of(ws);

    direct_nodes_done(d);
    direct_absent_done(&d->absent);
    direct_fd_drop(&d->root);
    cleanup_fd(&d->dir_fd);
    mutex_done(&d->meeting);
    mutex_done(&d->inos_lock);
    ws_inos_free(d->inos);
    ws_done(ws);
    free(d->path);
    free(d);
}

static int direct_statfs(struct workspace *ws, const struct ws_ctx *ctx,
                         struct statvfs *out, struct err *err)
{
    (void)ctx;
    if (fstatvfs(direct_of(ws)->dir_fd, out) < 0) {
        return err_errno(err, "fstatvfs");
    }
    out->f_namemax = NAME_MAX;
    return 0;
}

static const struct workspace_ops direct_ops = {
    .blocks = false,
    .free = direct_free,
    .node_unhash = direct_node_unhash,
    .node_free = direct_node_free,
    .lookup = direct_lookup,
    .getattr = direct_getattr,
    .setattr = direct_setattr,
    .readlink = direct_readlink,
    .mkdir = direct_mkdir,
    .mknod = direct_mknod,
    .symlink = direct_symlink,
    .link = direct_link,
    .remove = direct_remove,
    .large = direct_large,
    .leave = direct_leave,
    .rename = direct_rename,
    .open = direct_open,
    .create = direct_create,
    .read = direct_read,
    .write = direct_write,
    .fsync = direct_fsync,
    .fallocate = direct_fallocate,
    .lseek = direct_lseek,
    .copy_range = direct_copy_range,
    .file_fd = direct_file_fd,
    .open_later = direct_open_later,
    .pass = direct_pass,
    .close = direct_close,
    .lift = direct_lift,
    .writers = direct_writers,
    .writing = direct_writing,
    .busy = direct_busy,
    .move = direct_move,
    .opendir = direct_opendir,
    .readdir = direct_readdir,
    .fsyncdir = direct_fsyncdir,
    .closedir = direct_closedir,
    .statfs = direct_statfs,
    .getxattr = direct_getxattr,
    .listxattr = direct_listxattr,
    .setxattr = direct_setxattr,
    .removexattr = direct_removexattr,
};

/* Fills the root's node and what needs its fd. */
static int init_root(struct direct *d, int root_fd, struct err *err)
{
    struct stat attr;

    if (fstat(root_fd, &attr) < 0) {
        return err_errno(err, "fstat of the workspace");
    }
    if (!S_ISDIR(attr.st_mode)) {
        return err_set(err, ENOTDIR, "the workspace is no directory");
    }
    d->dir_fd = openat(root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->dir_fd < 0) {
        return err_errno(err, "open the workspace");
    }
    d->handles = direct_fd_handles(d->dir_fd);
    d->root.key = (struct direct_key){attr.st_dev, attr.st_ino};
    d->root.type = S_IFDIR;
    d->root.fd = -1;
    d->root.base.ino = ws_ino_shown(d->number, attr.st_ino);
    list_init(&d->root.lru);
    list_init(&d->writers);
    return 0;
}

static int init(struct direct *d, const struct provider_root *root,
                struct err *err)
{
    int rc;

    d->host_uid = root->base;
    d->host_gid = root->gid_base;
    d->ids.count = root->count;
    d->ids.user = root->user;
    d->ids.group = root->group;
    rc = init_root(d, root->fd, err);
    if (rc < 0) {
        return rc;
    }
    d->parts = root->parts;
    d->parts_arg = root->parts_arg;
    d->path = root->path ? strdup(root->path) : NULL;
    if (root->path && !d->path) {
        return err_no_memory(err);
    }
    rc = direct_nodes_init(d);
    return rc < 0 ? err_no_memory(err) : 0;
}

int ws_new_direct(const struct provider_root *root, uint64_t number,
                  const struct ws_view *view, struct workspace **out,
                  struct err *err)
{
    struct direct *d = calloc(1, sizeof(*d));
    int rc;

    if (!d) {
        return err_no_memory(err);
    }
    d->number = number;
    d->ids.uid = view->uid;
    d->ids.gid = view->gid;
    d->raw_links = view->raw_links;
    d->dir_fd = -1;
    rc = init(d, root, err);
    if (rc < 0) {
        cleanup_fd(&d->dir_fd);
        free(d->path);
        free(d);
        return rc;
    }
    direct_absent_init(&d->absent);
    mutex_init(&d->meeting);
    mutex_init(&d->inos_lock);
    ws_init(&d->base, &direct_ops, &d->root.base);
    d->base.fixed = view->fixed;
    (void)direct_fd_give(&d->root, root->fd); /* Never put: it stays. */
    *out = &d->base;
    return 0;
}
