/* Every request of the mount, handed to the part it belongs to. See fs.h. */
#include "fs/fs.h"

#include "fs/inode.h"
#include "fs/kernel.h"
#include "fs/reply.h"

#include <errno.h>

/* Calls a slot of the inode's part, or answers for it. */
#define PART_CALL(req, inode, slot, code, ...)                                 \
    do {                                                                       \
        const struct fs_part *part_ = inode_key(inode)->part;                  \
                                                                               \
        if (part_->slot) {                                                     \
            part_->slot(req, __VA_ARGS__);                                     \
        } else {                                                               \
            refuse(req, inode, #slot, code);                                   \
        }                                                                      \
    } while (0)

struct fs *fs_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

struct caller fs_caller(fuse_req_t req)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    struct caller caller = {ctx->uid, ctx->pid};

    return caller;
}

static struct inode *find(fuse_req_t req, fuse_ino_t ino)
{
    return inode_find(fs_of(req)->inodes, ino);
}

static void refuse(fuse_req_t req, const struct inode *inode, const char *op,
                   int code)
{
    struct reply_about about = {
        .op = op,
        .session = inode_key(inode)->session,
    };
    struct err err = ERR_INIT;

    reply_err(req, &about, err_set(&err, code, "not for this file"), &err);
}

/* Refuses a request about two files of different parts. */
static bool parted(fuse_req_t req, const struct inode *a, const struct inode *b,
                   const char *op, int code)
{
    if (inode_key(a)->part == inode_key(b)->part) {
        return false;
    }
    refuse(req, a, op, code);
    return true;
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
    struct fs *fs = userdata;

    kernel_init(fs->kernel, conn);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct inode *dir = find(req, parent);

    PART_CALL(req, dir, lookup, EPERM, dir, name);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
    struct fs *fs = fs_of(req);

    inode_forget(fs->inodes, inode_find(fs->inodes, ino), count);
    fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count,
                            struct fuse_forget_data *forgets)
{
    struct fs *fs = fs_of(req);

    for (size_t i = 0; i < count; i++) {
        inode_forget(fs->inodes, inode_find(fs->inodes, forgets[i].ino),
                     forgets[i].nlookup);
    }
    fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino,
                       struct fuse_file_info *fi)
{
    struct inode *inode = find(req, ino);

    PART_CALL(req, inode, getattr, EOPNOTSUPP, inode, fi);
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr,
                       int to_set, struct fuse_file_info *fi)
{
    struct inode *inode = find(req, ino);

    PART_CALL(req, inode, setattr, EPERM, inode, attr, to_set, fi);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
    struct inode *inode = find(req, ino);

    PART_CALL(req, inode, readlink, EINVAL, inode);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name,
                     mode_t mode, dev_t rdev)
{
    struct inode *dir = find(req, parent);

    PART_CALL(req, dir, mknod, EPERM, dir, name, mode, rdev);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name,
                     mode_t mode)
{
    struct inode *dir = find(req, parent);

    PART_CALL(req, dir, mkdir, EPERM, dir, name, mode);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct inode *dir = find(req, parent);

    PART_CALL(req, dir, unlink, EPERM, dir, name);
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct inode *dir = find(req, parent);

    PART_CALL(req, dir, rmdir, EPERM, dir, name);
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent,
                       const char *name)
{
    struct inode *dir = find(req, parent);

    PART_CALL(req, dir, symlink, EPERM, target, dir, name);
}

/* EPERM between parts: after EXDEV mv would copy and delete. */
static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name,
                      fuse_ino_t new_parent, const char *new_name,
                      unsigned flags)
{
    struct inode *dir = find(req, parent);
    struct inode *new_dir = find(req, new_parent);

    if (!parted(req, dir, new_dir, "rename", EPERM)) {
        PART_CALL(req, dir, rename, EPERM, dir, name, new_dir, new_name, flags);
    }
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent,
                    const char *new_name)
{
    struct inode *inode = find(req, ino);
    struct inode *dir = find(req, new_parent);

    if (!parted(req, inode, dir, "link", EPERM)) {
        PART_CALL(req, inode, link, EPERM, inode, dir, new_name);
    }
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct inode *inode = find(req, ino);

    PART_CALL(req, inode, open, EOPNOTSUPP, inode, fi);
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name,
                      mode_t mode, struct fuse_file_info *fi)
{
    struct inode *dir = find(req, parent);

    PART_CALL(req, dir, create, EPERM, dir, name, mode, fi);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                    struct fuse_file_info *fi)
{
    struct inode *inode = find(req, ino);

    PART_CALL(req, inode, read, EOPNOTSUPP, inode, size, off, fi);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *data,
                     size_t size, off_t off, struct fuse_file_info *fi)
{
    struct inode *inode = find(req, ino);

    PART_CALL(req, inode, write, EOPNOTSUPP, inode, data, size, off, fi);
}

static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct inode *inode = find(req, ino);

    PART_CALL(req, inode, flush, EOPNOTSUPP, inode, fi);
}

static void op_release(fuse_req_t req, fuse_ino_t ino,
                       struct fuse_file_info *fi)
{
    struct inode *inode = find(req, ino);

    PART_CALL(req, inode, release, EOPNOTSUPP, inode, fi);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int data_only,
                     struct fuse_file_info *fi)
{
    struct inode *inode = find(req, ino);

    PART_CALL(req, inode, fsync, EINVAL, inode, data_only, fi);
}

static void op_opendir(fuse_req_t req, fuse_ino_t ino,
                       struct fuse_file_info *fi)
{
    struct inode *inode = find(req, ino);

    PART_CALL(req, inode, opendir, EOPNOTSUPP, inode, fi);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                       struct fuse_file_info *fi)
{
    struct inode *inode = find(req, ino);

    PART_CALL(req, inode, readdir, EOPNOTSUPP, inode, size, off, fi, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size,
                           off_t off, struct fuse_file_info *fi)
{
    struct inode *inode = find(req, ino);

    PART_CALL(req, inode, readdir, EOPNOTSUPP, inode, size, off, fi, true);
}

static void op_releasedir(fuse_req_t req, fuse_ino_t ino,
                          struct fuse_file_info *fi)
{
    struct inode *inode = find(req, ino);

    PART_CALL(req, inode, releasedir, EOPNOTSUPP, inode, fi);
}

static void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int data_only,
                        struct fuse_file_info *fi)
{
    struct inode *inode = find(req, ino);

    PART_CALL(req, inode, fsyncdir, EINVAL, inode, data_only, fi);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
    struct inode *inode = find(req, ino);

    PART_CALL(req, inode, statfs, EOPNOTSUPP, inode);
}

static void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
                        const char *value, size_t size, int flags)
{
    struct inode *inode = find(req, ino);

    PART_CALL(req, inode, setxattr, EOPNOTSUPP, inode, name, value, size,
              flags);
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
                        size_t size)
{
    struct inode *inode = find(req, ino);

    PART_CALL(req, inode, getxattr, EOPNOTSUPP, inode, name, size);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    struct inode *inode = find(req, ino);

    PART_CALL(req, inode, listxattr, EOPNOTSUPP, inode, size);
}

static void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    struct inode *inode = find(req, ino);

    PART_CALL(req, inode, removexattr, EOPNOTSUPP, inode, name);
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off,
                         off_t size, struct fuse_file_info *fi)
{
    struct inode *inode = find(req, ino);

    PART_CALL(req, inode, fallocate, EOPNOTSUPP, inode, mode, off, size, fi);
}

static void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence,
                     struct fuse_file_info *fi)
{
    struct inode *inode = find(req, ino);

    PART_CALL(req, inode, lseek, EINVAL, inode, off, whence, fi);
}

/* After EOPNOTSUPP the kernel copies by reading and writing. */
static void op_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in,
                               struct fuse_file_info *fi_in, fuse_ino_t ino_out,
                               off_t off_out, struct fuse_file_info *fi_out,
                               size_t size, int flags)
{
    struct inode *in = find(req, ino_in);
    struct inode *out = find(req, ino_out);

    if (!parted(req, in, out, "copy_file_range", EOPNOTSUPP)) {
        PART_CALL(req, in, copy_file_range, EOPNOTSUPP, in, off_in, fi_in, out,
                  off_out, fi_out, size, flags);
    }
}

static void op_poll(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi,
                    struct fuse_pollhandle *handle)
{
    struct inode *inode = find(req, ino);

    PART_CALL(req, inode, poll, EOPNOTSUPP, inode, fi, handle);
}

const struct fuse_lowlevel_ops fs_ops = {
    .init = op_init,
    .lookup = op_lookup,
    .forget = op_forget,
    .forget_multi = op_forget_multi,
    .getattr = op_getattr,
    .setattr = op_setattr,
    .readlink = op_readlink,
    .mknod = op_mknod,
    .mkdir = op_mkdir,
    .unlink = op_unlink,
    .rmdir = op_rmdir,
    .symlink = op_symlink,
    .rename = op_rename,
    .link = op_link,
    .open = op_open,
    .create = op_create,
    .read = op_read,
    .write = op_write,
    .flush = op_flush,
    .release = op_release,
    .fsync = op_fsync,
    .opendir = op_opendir,
    .readdir = op_readdir,
    .readdirplus = op_readdirplus,
    .releasedir = op_releasedir,
    .fsyncdir = op_fsyncdir,
    .statfs = op_statfs,
    .setxattr = op_setxattr,
    .getxattr = op_getxattr,
    .listxattr = op_listxattr,
    .removexattr = op_removexattr,
    .fallocate = op_fallocate,
    .lseek = op_lseek,
    .copy_file_range = op_copy_file_range,
    .poll = op_poll,
};
