/* Names and attributes below workspace/. See workspace.h. */
#include "fs/workspace.h"

#include "fs/wcall.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

static void reply_attributes(struct wcall *call, fuse_req_t req)
{
    wcall_show_top(call, &call->attr);
    call->told = inode_number(call->inode);
    reply_attr(req, call->inode, call->ws, &call->attr);
}

static void reply_made(struct wcall *call, fuse_req_t req)
{
    struct inode *inode = wcall_look_up(call, call->made);

    if (!inode) {
        wcall_no_memory(call, req);
        return;
    }
    call->told = inode_number(inode);
    reply_entry(req, inode, &call->attr);
}

/* ---- lookup ---- */

static int run_lookup(struct wcall *call, struct err *err)
{
    if (kernel_uses(call->fs->kernel, KERNEL_NEGATIVE)) {
        call->ctx.state =
            kernel_state(call->fs, call->session, call->ws, call->changes);
    }
    return ws_lookup(call->node, call->name, &call->ctx, &call->made,
                     &call->attr, err);
}

static void workspace_lookup(fuse_req_t req, struct inode *dir,
                             const char *name)
{
    static const struct wcall_kind kind = {.name = "lookup",
                                           .need = SESSION_LOOK,
                                           .looks = true,
                                           .late = ETIMEDOUT,
                                           .run = run_lookup,
                                           .reply = reply_made};
    struct wcall *call = wcall_new(req, &kind, dir);

    if (call) {
        wcall_name(call, name);
        wcall_start(call);
    }
}

/* ---- getattr, setattr, readlink ---- */

/* What workspace/ looks like while there is no sandbox. */
static int empty_getattr(struct wcall *call, struct err *err)
{
    int64_t made_us = session_created_us(call->session);

    (void)err;
    call->attr.st_mode = S_IFDIR | 0755;
    call->attr.st_nlink = 2;
    call->attr.st_uid = call->fs->uid;
    call->attr.st_gid = call->fs->gid;
    call->attr.st_mtim.tv_sec = made_us / 1000000;
    call->attr.st_mtim.tv_nsec = made_us % 1000000 * 1000;
    call->attr.st_atim = call->attr.st_mtim;
    call->attr.st_ctim = call->attr.st_mtim;
    return 0;
}

static int run_getattr(struct wcall *call, struct err *err)
{
    struct ws_file *file = call->open ? call->open->file : NULL;
    int rc = ws_getattr(call->node, file, &call->ctx, &call->attr, err);

    if (rc < 0 && ws_blocks(call->ws) && !inode_key(call->inode)->ws) {
        /* The engine does not answer, but the directory is there. */
        err_clear(err);
        return empty_getattr(call, err);
    }
    return rc;
}

static void workspace_getattr(fuse_req_t req, struct inode *inode,
                              struct fuse_file_info *fi)
{
    static const struct wcall_kind kind = {.name = "getattr",
                                           .need = SESSION_LOOK,
                                           .stats = true,
                                           .run = run_getattr,
                                           .empty = empty_getattr,
                                           .reply = reply_attributes};
    struct wcall *call = wcall_new(req, &kind, inode);

    if (call) {
        wcall_open(call, fi);
        wcall_start(call);
    }
}

static int run_setattr(struct wcall *call, struct err *err)
{
    struct ws_file *file = call->open ? call->open->file : NULL;
    int rc = ws_setattr(call->node, file, call->mask, &call->want, &call->ctx,
                        &call->attr, err);

    if (rc == 0) {
        kernel_shared(call->fs, call->session, call->node, &call->attr);
    }
    return rc;
}

/* The kernel's bits as core's. */
static unsigned attr_mask(int to_set)
{
    static const struct {
        int theirs;
        unsigned ours;
    } rows[] = {
        {FUSE_SET_ATTR_MODE, PROVIDER_ATTR_MODE},
        {FUSE_SET_ATTR_UID, PROVIDER_ATTR_UID},
        {FUSE_SET_ATTR_GID, PROVIDER_ATTR_GID},
        {FUSE_SET_ATTR_SIZE, PROVIDER_ATTR_SIZE},
        {FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW, PROVIDER_ATTR_ATIME},
        {FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW, PROVIDER_ATTR_MTIME},
    };
    unsigned mask = 0;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        mask |= to_set & rows[i].theirs ? rows[i].ours : 0;
    }
    return mask;
}

static void workspace_setattr(fuse_req_t req, struct inode *inode,
                              struct stat *attr, int to_set,
                              struct fuse_file_info *fi)
{
    static const struct wcall_kind kind = {.name = "setattr",
                                           .need = SESSION_WRITE,
                                           .late = EINPROGRESS,
                                           .run = run_setattr,
                                           .reply = reply_attributes};
    struct wcall *call = wcall_new(req, &kind, inode);

    if (!call) {
        return;
    }
    wcall_open(call, fi);
    call->mask = attr_mask(to_set);
    call->want = *attr;
    if (to_set & FUSE_SET_ATTR_ATIME_NOW) {
        call->want.st_atim.tv_nsec = UTIME_NOW;
    }
    if (to_set & FUSE_SET_ATTR_MTIME_NOW) {
        call->want.st_mtim.tv_nsec = UTIME_NOW;
    }
    wcall_start(call);
}

static int run_readlink(struct wcall *call, struct err *err)
{
    call->out = malloc(PATH_MAX);
    if (!call->out) {
        return err_no_memory(err);
    }
    return ws_readlink(call->node, &call->ctx, call->out, PATH_MAX, err);
}

static void reply_readlink(struct wcall *call, fuse_req_t req)
{
    (void)fuse_reply_readlink(req, call->out);
}

static void workspace_readlink(fuse_req_t req, struct inode *inode)
{
    static const struct wcall_kind kind = {.name = "readlink",
                                           .need = SESSION_LOOK,
                                           .run = run_readlink,
                                           .reply = reply_readlink};
    struct wcall *call = wcall_new(req, &kind, inode);

    if (call) {
        wcall_start(call);
    }
}

/* ---- names ---- */

static int run_mkdir(struct wcall *call, struct err *err)
{
    return ws_mkdir(call->node, call->name, call->mode, &call->ctx, &call->made,
                    &call->attr, err);
}

static int run_mknod(struct wcall *call, struct err *err)
{
    return ws_mknod(call->node, call->name, call->mode, &call->ctx, &call->made,
                    &call->attr, err);
}

static int run_symlink(struct wcall *call, struct err *err)
{
    return ws_symlink(call->node, call->name, call->text, &call->ctx,
                      &call->made, &call->attr, err);
}

/* Starts a call that changes one name of a directory. */
static void start_name(fuse_req_t req, const struct wcall_kind *kind,
                       struct inode *dir, const char *name, mode_t mode,
                       const char *text)
{
    struct wcall *call = wcall_new(req, kind, dir);

    if (!call) {
        return;
    }
    wcall_name(call, name);
    if (text) {
        wcall_text(call, text);
    }
    call->mode = mode;
    wcall_start(call);
}

static void workspace_mkdir(fuse_req_t req, struct inode *dir, const char *name,
                            mode_t mode)
{
    static const struct wcall_kind kind = {.name = "mkdir",
                                           .need = SESSION_GROW,
                                           .late = EINPROGRESS,
                                           .run = run_mkdir,
                                           .reply = reply_made};

    start_name(req, &kind, dir, name, mode, NULL);
}

static void workspace_mknod(fuse_req_t req, struct inode *dir, const char *name,
                            mode_t mode, dev_t rdev)
{
    static const struct wcall_kind kind = {.name = "mknod",
                                           .need = SESSION_GROW,
                                           .late = EINPROGRESS,
                                           .run = run_mknod,
                                           .reply = reply_made};

    (void)rdev;
    start_name(req, &kind, dir, name, mode, NULL);
}

static void workspace_symlink(fuse_req_t req, const char *target,
                              struct inode *dir, const char *name)
{
    static const struct wcall_kind kind = {.name = "symlink",
                                           .need = SESSION_GROW,
                                           .late = EINPROGRESS,
                                           .run = run_symlink,
                                           .reply = reply_made};

    start_name(req, &kind, dir, name, 0, target);
}

static int run_unlink(struct wcall *call, struct err *err)
{
    struct ws_node *large = ws_large(call->node, call->name);
    int rc = ws_unlink(call->node, call->name, &call->ctx, err);

    if (large && rc == 0 && ws_leave(large)) {
        const struct inode_key key = wcall_key(call, large);

        inode_leave(call->fs->inodes, &key);
    }
    ws_node_unref(large);
    return rc;
}

static int run_rmdir(struct wcall *call, struct err *err)
{
    return ws_rmdir(call->node, call->name, &call->ctx, err);
}

static void workspace_unlink(fuse_req_t req, struct inode *dir,
                             const char *name)
{
    static const struct wcall_kind kind = {.name = "unlink",
                                           .need = SESSION_WRITE,
                                           .late = EINPROGRESS,
                                           .run = run_unlink};

    start_name(req, &kind, dir, name, 0, NULL);
}

static void workspace_rmdir(fuse_req_t req, struct inode *dir, const char *name)
{
    static const struct wcall_kind kind = {.name = "rmdir",
                                           .need = SESSION_WRITE,
                                           .late = EINPROGRESS,
                                           .run = run_rmdir};

    start_name(req, &kind, dir, name, 0, NULL);
}

/* Refuses what is about two sessions; the kernel sees one filesystem. */
static bool apart(fuse_req_t req, const struct wcall_kind *kind,
                  const struct inode *a, const struct inode *b)
{
    const struct reply_about about = {.op = kind->name,
                                      .session = inode_key(a)->session};
    struct err err = ERR_INIT;

    if (inode_key(a)->session == inode_key(b)->session &&
        inode_key(a)->exec_n == inode_key(b)->exec_n) {
        return false;
    }
    reply_err(req, &about, err_set(&err, EXDEV, "another session's workspace"),
              &err);
    return true;
}

static int run_rename(struct wcall *call, struct err *err)
{
    return ws_rename(call->node, call->name, call->other_node, call->text,
                     (unsigned)call->flags, &call->ctx, err);
}

static void workspace_rename(fuse_req_t req, struct inode *dir,
                             const char *name, struct inode *new_dir,
                             const char *new_name, unsigned flags)
{
    static const struct wcall_kind kind = {.name = "rename",
                                           .need = SESSION_WRITE,
                                           .late = EINPROGRESS,
                                           .run = run_rename};
    struct wcall *call;

    if (apart(req, &kind, dir, new_dir)) {
        return;
    }
    call = wcall_new(req, &kind, dir);
    if (call) {
        wcall_name(call, name);
        wcall_text(call, new_name);
        call->other = new_dir;
        call->flags = (int)flags;
        wcall_start(call);
    }
}

static int run_link(struct wcall *call, struct err *err)
{
    int rc = ws_link(call->node, call->other_node, call->name, &call->ctx,
                     &call->attr, err);

    if (rc == 0) {
        call->made = ws_node_ref(call->node);
    }
    return rc;
}

static void workspace_link(fuse_req_t req, struct inode *inode,
                           struct inode *dir, const char *name)
{
    static const struct wcall_kind kind = {.name = "link",
                                           .need = SESSION_GROW,
                                           .late = EINPROGRESS,
                                           .run = run_link,
                                           .reply = reply_made};
    struct wcall *call;

    if (apart(req, &kind, inode, dir)) {
        return;
    }
    call = wcall_new(req, &kind, inode);
    if (call) {
        wcall_name(call, name);
        call->other = dir;
        wcall_start(call);
    }
}

/* ---- statfs ---- */

static int run_statfs(struct wcall *call, struct err *err)
{
    return ws_statfs(call->ws, &call->ctx, &call->room, err);
}

static int empty_statfs(struct wcall *call, struct err *err)
{
    return registry_statfs(call->fs->mount.registry, &call->room, err);
}

static void reply_room(struct wcall *call, fuse_req_t req)
{
    (void)fuse_reply_statfs(req, &call->room);
}

static void workspace_statfs(fuse_req_t req, struct inode *inode)
{
    static const struct wcall_kind kind = {.name = "statfs",
                                           .need = SESSION_LOOK,
                                           .stats = true,
                                           .run = run_statfs,
                                           .empty = empty_statfs,
                                           .reply = reply_room};
    struct wcall *call = wcall_new(req, &kind, inode);

    if (call) {
        wcall_start(call);
    }
}

const struct fs_part workspace_part = {
    .lookup = workspace_lookup,
    .getattr = workspace_getattr,
    .setattr = workspace_setattr,
    .readlink = workspace_readlink,
    .mknod = workspace_mknod,
    .mkdir = workspace_mkdir,
    .unlink = workspace_unlink,
    .rmdir = workspace_rmdir,
    .symlink = workspace_symlink,
    .rename = workspace_rename,
    .link = workspace_link,
    .open = workspace_open,
    .create = workspace_create,
    .read = workspace_read,
    .write = workspace_write,
    .flush = workspace_flush,
    .release = workspace_release,
    .fsync = workspace_fsync,
    .opendir = workspace_opendir,
    .readdir = workspace_readdir,
    .releasedir = workspace_release,
    .fsyncdir = workspace_fsyncdir,
    .statfs = workspace_statfs,
    .setxattr = workspace_setxattr,
    .getxattr = workspace_getxattr,
    .listxattr = workspace_listxattr,
    .removexattr = workspace_removexattr,
    .fallocate = workspace_fallocate,
    .lseek = workspace_lseek,
    .copy_file_range = workspace_copy,
};
