/* What all trees share: references, checks of names, dispatch. */
#include "core/workspace_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/xattr.h>

void ws_init(struct workspace *ws, const struct workspace_ops *ops,
             struct ws_node *root)
{
    ws->ops = ops;
    atomic_init(&ws->refs, 1);
    mutex_init(&ws->lock);
    ws->root = root;
    root->tree = ws;
    root->refs = 0;
}

void ws_done(struct workspace *ws)
{
    mutex_done(&ws->lock);
}

struct workspace *ws_ref(struct workspace *ws)
{
    (void)atomic_fetch_add(&ws->refs, 1);
    return ws;
}

void ws_unref(struct workspace *ws)
{
    if (ws && atomic_fetch_sub(&ws->refs, 1) == 1) {
        ws->ops->free(ws);
    }
}

bool ws_used(const struct workspace *ws)
{
    return atomic_load(&ws->refs) > 1;
}

bool ws_blocks(const struct workspace *ws)
{
    return ws->ops->blocks;
}

void ws_changed(struct workspace *ws)
{
    if (ws->ops->changed) {
        ws->ops->changed(ws);
    }
}

bool ws_fixed(const struct workspace *ws)
{
    return ws->fixed;
}

bool ws_busy(struct workspace *ws)
{
    return !ws->ops->busy || ws->ops->busy(ws);
}

int ws_move(struct workspace *ws, int root, struct err *err)
{
    return ws->ops->move ? ws->ops->move(ws, root, err)
                         : err_set(err, EOPNOTSUPP, "it cannot be moved");
}

void ws_contested(struct workspace *ws, bool contested)
{
    if (ws->ops->contested) {
        ws->ops->contested(ws, contested);
    }
}

bool ws_unsent(struct workspace *ws)
{
    return ws->ops->unsent && ws->ops->unsent(ws, NULL);
}

bool ws_unsent_file(struct ws_file *file)
{
    struct workspace *ws = file->node->tree;

    return ws->ops->unsent && ws->ops->unsent(ws, file);
}

int ws_sync(struct workspace *ws, const struct limits *limits, struct err *err)
{
    return ws->ops->sync ? ws->ops->sync(ws, limits, err) : 0;
}

void ws_end(struct workspace *ws, const struct limits *limits,
            const struct ws_told *told)
{
    if (ws->ops->end) {
        ws->ops->end(ws, limits, told);
    }
}

void ws_keep(struct ws_file *file, const struct ws_told *told)
{
    if (file->node->tree->ops->keep) {
        file->node->tree->ops->keep(file, told);
    }
}

int ws_send_kept(struct workspace *ws, const struct limits *limits,
                 const struct ws_told *told, struct err *err)
{
    return ws->ops->send_kept ? ws->ops->send_kept(ws, limits, told, err) : 0;
}

bool ws_node_shared(const struct ws_node *node)
{
    return atomic_load_explicit(&node->shared, memory_order_relaxed);
}

bool ws_shared_written(const struct workspace *ws)
{
    return atomic_load(&ws->shared_writers) > 0;
}

void ws_lift(struct ws_node *node, ws_lifted_fn *fn, void *arg)
{
    if (node->tree->ops->lift) {
        node->tree->ops->lift(node, fn, arg);
    }
}

void ws_node_init(struct ws_node *node, struct workspace *ws, uint64_t ino)
{
    node->tree = ws_ref(ws);
    node->ino = ino;
    node->refs = 1;
}

struct ws_node *ws_node_ref_locked(struct ws_node *node)
{
    if (node->refs++ == 0) {
        (void)ws_ref(node->tree); /* The root, which outlives its users. */
    }
    return node;
}

struct ws_node *ws_node_ref(struct ws_node *node)
{
    struct workspace *ws = node->tree;

    mutex_lock(&ws->lock);
    (void)ws_node_ref_locked(node);
    mutex_unlock(&ws->lock);
    return node;
}

struct ws_node *ws_root(struct workspace *ws)
{
    return ws_node_ref(ws->root);
}

void ws_node_unref(struct ws_node *node)
{
    struct workspace *ws = node ? node->tree : NULL;
    bool last;

    if (!node) {
        return;
    }
    mutex_lock(&ws->lock);
    last = --node->refs == 0;
    if (last && node != ws->root) {
        ws->ops->node_unhash(node);
    }
    mutex_unlock(&ws->lock);
    if (!last) {
        return;
    }
    if (node != ws->root) {
        ws->ops->node_free(node);
    }
    ws_unref(ws);
}

struct workspace *ws_node_tree(struct ws_node *node)
{
    return node->tree;
}

uint64_t ws_node_ino(const struct ws_node *node)
{
    return node->ino;
}

static int check_name(const char *name, struct err *err)
{
    if (!name[0] || strchr(name, '/') || strcmp(name, ".") == 0 ||
        strcmp(name, "..") == 0) {
        return err_set(err, EINVAL, "not a file name");
    }
    if (strlen(name) > NAME_MAX) {
        return err_set(err, ENAMETOOLONG, "a name over %d bytes", NAME_MAX);
    }
    return 0;
}

static int check_writable(const struct workspace *ws, struct err *err)
{
    return ws->fixed ? err_set(err, EROFS, "this tree never changes") : 0;
}

/* The same, and that a name is one, where it is to be changed. */
static int check_change(const struct ws_node *dir, const char *name,
                        struct err *err)
{
    int rc = check_name(name, err);

    return rc < 0 ? rc : check_writable(dir->tree, err);
}

int ws_lookup(struct ws_node *dir, const char *name, const struct ws_ctx *ctx,
              struct ws_node **out, struct stat *attr, struct err *err)
{
    int rc = check_name(name, err);

    return rc < 0 ? rc : dir->tree->ops->lookup(dir, name, ctx, out, attr, err);
}

int ws_getattr(struct ws_node *node, struct ws_file *file,
               const struct ws_ctx *ctx, struct stat *attr, struct err *err)
{
    return node->tree->ops->getattr(node, file, ctx, attr, err);
}

int ws_setattr(struct ws_node *node, struct ws_file *file, unsigned mask,
               const struct stat *want, const struct ws_ctx *ctx,
               struct stat *attr, struct err *err)
{
    int rc = check_writable(node->tree, err);

    return rc < 0 ? rc
                  : node->tree->ops->setattr(node, file, mask, want, ctx, attr,
                                             err);
}

int ws_readlink(struct ws_node *node, const struct ws_ctx *ctx, char *out,
                size_t size, struct err *err)
{
    return node->tree->ops->readlink(node, ctx, out, size, err);
}

int ws_mkdir(struct ws_node *dir, const char *name, mode_t mode,
             const struct ws_ctx *ctx, struct ws_node **out, struct stat *attr,
             struct err *err)
{
    const struct ws_place place = {dir, name, mode & 07777, ctx};
    int rc = check_change(dir, name, err);

    return rc < 0 ? rc : dir->tree->ops->mkdir(&place, out, attr, err);
}

int ws_mknod(struct ws_node *dir, const char *name, mode_t mode,
             const struct ws_ctx *ctx, struct ws_node **out, struct stat *attr,
             struct err *err)
{
    const struct ws_place place = {dir, name, mode, ctx};
    int rc = check_change(dir, name, err);

    if (rc < 0) {
        return rc;
    }
    if (S_ISCHR(mode) || S_ISBLK(mode)) {
        return err_set(err, EPERM, "no devices in a workspace");
    }
    if (!S_ISREG(mode) && !S_ISFIFO(mode) && !S_ISSOCK(mode)) {
        return err_set(err, EINVAL, "mknod makes no such file");
    }
    return dir->tree->ops->mknod(&place, out, attr, err);
}

int ws_symlink(struct ws_node *dir, const char *name, const char *target,
               const struct ws_ctx *ctx, struct ws_node **out,
               struct stat *attr, struct err *err)
{
    const struct ws_place place = {dir, name, 0777, ctx};
    int rc = check_change(dir, name, err);

    return rc < 0 ? rc
                  : dir->tree->ops->symlink(&place, target, out, attr, err);
}

int ws_link(struct ws_node *node, struct ws_node *dir, const char *name,
            const struct ws_ctx *ctx, struct stat *attr, struct err *err)
{
    const struct ws_place place = {dir, name, 0, ctx};
    int rc = check_change(dir, name, err);

    if (rc < 0) {
        return rc;
    }
    if (node->tree != dir->tree) {
        return err_set(err, EXDEV, "another workspace");
    }
    return dir->tree->ops->link(node, &place, attr, err);
}

int ws_unlink(struct ws_node *dir, const char *name, const struct ws_ctx *ctx,
              struct err *err)
{
    int rc = check_change(dir, name, err);

    return rc < 0 ? rc : dir->tree->ops->remove(dir, name, false, ctx, err);
}

struct ws_node *ws_large(struct ws_node *dir, const char *name)
{
    struct err ignored = ERR_INIT;

    return dir->tree->ops->large && check_change(dir, name, &ignored) == 0
               ? dir->tree->ops->large(dir, name)
               : NULL;
}

bool ws_leave(struct ws_node *node)
{
    return node->tree->ops->leave && node->tree->ops->leave(node);
}

int ws_rmdir(struct ws_node *dir, const char *name, const struct ws_ctx *ctx,
             struct err *err)
{
    int rc = check_change(dir, name, err);

    return rc < 0 ? rc : dir->tree->ops->remove(dir, name, true, ctx, err);
}

int ws_rename(struct ws_node *from, const char *name, struct ws_node *to,
              const char *new_name, unsigned flags, const struct ws_ctx *ctx,
              struct err *err)
{
    const struct ws_move move = {from, name, to, new_name, flags, ctx};
    int rc = check_change(from, name, err);

    if (rc == 0) {
        rc = check_name(new_name, err);
    }
    if (rc < 0) {
        return rc;
    }
    if (flags && flags != RENAME_NOREPLACE && flags != RENAME_EXCHANGE) {
        return err_set(err, EINVAL, "unknown flags of rename: %#x", flags);
    }
    if (from->tree != to->tree) {
        return err_set(err, EXDEV, "another workspace");
    }
    return from->tree->ops->rename(&move, err);
}

int ws_open(struct ws_node *node, int flags, const struct ws_ctx *ctx,
            struct ws_file **out, struct err *err)
{
    bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC);
    int rc = writes ? check_writable(node->tree, err) : 0;

    return rc < 0 ? rc : node->tree->ops->open(node, flags, ctx, out, err);
}

int ws_create(struct ws_node *dir, const char *name, mode_t mode, int flags,
              const struct ws_ctx *ctx, struct ws_node **node,
              struct ws_file **file, struct stat *attr, struct err *err)
{
    const struct ws_place place = {dir, name, mode & 07777, ctx};
    int rc = check_change(dir, name, err);

    if (rc < 0) {
        return rc;
    }
    return dir->tree->ops->create(&place, flags, node, file, attr, err);
}

static const struct workspace_ops *file_ops(const struct ws_file *file)
{
    return file->node->tree->ops;
}

ssize_t ws_read(struct ws_file *file, void *out, size_t size, off_t offset,
                const struct ws_ctx *ctx, struct err *err)
{
    return file_ops(file)->read(file, out, size, offset, ctx, err);
}

ssize_t ws_write(struct ws_file *file, const void *data, size_t size,
                 off_t offset, const struct ws_ctx *ctx, struct err *err)
{
    return file_ops(file)->write(file, data, size, offset, ctx, err);
}

int ws_flush(struct ws_file *file, const struct ws_ctx *ctx, struct err *err)
{
    const struct workspace_ops *ops = file_ops(file);

    return ops->flush ? ops->flush(file, ctx, err) : 0;
}

int ws_fsync(struct ws_file *file, bool data_only, const struct ws_ctx *ctx,
             struct err *err)
{
    return file_ops(file)->fsync(file, data_only, ctx, err);
}

int ws_fallocate(struct ws_file *file, int mode, off_t offset, off_t size,
                 const struct ws_ctx *ctx, struct err *err)
{
    return file_ops(file)->fallocate(file, mode, offset, size, ctx, err);
}

off_t ws_lseek(struct ws_file *file, off_t offset, int whence,
               const struct ws_ctx *ctx, struct err *err)
{
    if (whence != SEEK_DATA && whence != SEEK_HOLE) {
        return err_set(err, EINVAL, "only SEEK_DATA and SEEK_HOLE");
    }
    return file_ops(file)->lseek(file, offset, whence, ctx, err);
}

ssize_t ws_copy_range(struct ws_file *in, off_t in_offset, struct ws_file *out,
                      off_t out_offset, size_t size, const struct ws_ctx *ctx,
                      struct err *err)
{
    if (in->node->tree != out->node->tree) {
        return err_set(err, EXDEV, "another workspace");
    }
    return file_ops(in)->copy_range(in, in_offset, out, out_offset, size, ctx,
                                    err);
}

int ws_open_later(struct ws_node *node, const struct ws_ctx *ctx,
                  struct ws_file **out, struct err *err)
{
    const struct workspace_ops *ops = node->tree->ops;

    return ops->open_later ? ops->open_later(node, ctx, out, err)
                           : ops->open(node, O_RDONLY, ctx, out, err);
}

int ws_file_fd(struct ws_file *file)
{
    return file_ops(file)->file_fd(file);
}

enum ws_pass ws_file_pass(struct ws_file *file, int *fd)
{
    const struct workspace_ops *ops = file_ops(file);

    *fd = -1;
    return ops->pass ? ops->pass(file, fd) : WS_PASS_NOT;
}

void ws_close(struct ws_file *file)
{
    struct ws_node *node = file ? file->node : NULL;

    if (file) {
        file_ops(file)->close(file);
        ws_node_unref(node);
    }
}

int ws_writers(struct workspace *ws, ws_writer_fn *fn, void *arg)
{
    return ws->ops->writers ? ws->ops->writers(ws, fn, arg) : 0;
}

bool ws_writing(struct workspace *ws)
{
    return ws->ops->writing && ws->ops->writing(ws);
}

int ws_opendir(struct ws_node *node, const struct ws_ctx *ctx,
               struct ws_dir **out, struct err *err)
{
    return node->tree->ops->opendir(node, ctx, out, err);
}

int ws_readdir(struct ws_dir *dir, off_t offset, ws_entry_fn *fn, void *arg,
               const struct ws_ctx *ctx, struct err *err)
{
    return dir->node->tree->ops->readdir(dir, offset, fn, arg, ctx, err);
}

int ws_fsyncdir(struct ws_dir *dir, bool data_only, const struct ws_ctx *ctx,
                struct err *err)
{
    return dir->node->tree->ops->fsyncdir(dir, data_only, ctx, err);
}

void ws_closedir(struct ws_dir *dir)
{
    struct ws_node *node = dir ? dir->node : NULL;

    if (dir) {
        node->tree->ops->closedir(dir);
        ws_node_unref(node);
    }
}

int ws_statfs(struct workspace *ws, const struct ws_ctx *ctx,
              struct statvfs *out, struct err *err)
{
    return ws->ops->statfs(ws, ctx, out, err);
}

static bool is_user_xattr(const char *name)
{
    return strncmp(name, "user.", 5) == 0 && name[5];
}

/*
 * Whether an xattr is one of those that the tree keeps; `other` for those
 * that no user may touch. Of system.* ones, which ACLs are, there are none at
 * all: tools that copy them know what that means.
 */
static int check_xattr(const struct ws_node *node, const char *name, int other,
                       struct err *err)
{
    if (!node->tree->ops->setxattr || strncmp(name, "system.", 7) == 0) {
        return err_set(err, EOPNOTSUPP, "no such attributes here");
    }
    if (!is_user_xattr(name)) {
        return err_set(err, other, "only user.* attributes");
    }
    return 0;
}

static int check_xattr_change(const struct ws_node *node, const char *name,
                              struct err *err)
{
    int rc = check_xattr(node, name, EPERM, err);

    return rc < 0 ? rc : check_writable(node->tree, err);
}

ssize_t ws_getxattr(struct ws_node *node, const char *name, void *out,
                    size_t size, struct err *err)
{
    int rc = check_xattr(node, name, ENODATA, err);

    if (rc < 0) {
        return rc;
    }
    return node->tree->ops->getxattr(node, name, out, size, err);
}

ssize_t ws_listxattr(struct ws_node *node, char *out, size_t size,
                     struct err *err)
{
    return node->tree->ops->listxattr
               ? node->tree->ops->listxattr(node, out, size, err)
               : 0;
}

int ws_setxattr(struct ws_node *node, const char *name, const void *value,
                size_t size, int flags, struct err *err)
{
    int rc = check_xattr_change(node, name, err);

    return rc < 0
               ? rc
               : node->tree->ops->setxattr(node, name, value, size, flags, err);
}

int ws_removexattr(struct ws_node *node, const char *name, struct err *err)
{
    int rc = check_xattr_change(node, name, err);

    return rc < 0 ? rc : node->tree->ops->removexattr(node, name, err);
}
