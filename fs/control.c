/* Names, attributes and directories of control files. See control.h. */
#include "fs/control.h"

#include "core/buf.h"
#include "core/cleanup.h"
#include "core/session.h"
#include "fs/inode.h"
#include "fs/park.h"
#include "fs/reply.h"
#include "fs/workspace.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node control_node(const struct inode *inode)
{
    const struct inode_key *key = inode_key(inode);
    struct node node = {key->row, key->session, key->exec_n, key->begin};

    return node;
}

static int begin(fuse_req_t req, const struct node *node, struct node_ctx *ctx,
                 struct err *err)
{
    struct caller caller = fs_caller(req);

    return node_ctx_init(&fs_of(req)->mount, &caller, node, ctx, err);
}

struct reply_about control_about(const char *op, const struct inode *inode,
                                 const char *name, bool always)
{
    const struct node node = control_node(inode);
    struct reply_about out = {
        .op = op,
        .session = node.session,
        .name = name ? name : node.row->name,
        .exec_n = node_command(&node),
        .always = always,
    };

    return out;
}

static void fail(fuse_req_t req, const char *op, const struct inode *inode,
                 const char *name, const struct err *err)
{
    struct reply_about what = control_about(op, inode, name, false);

    reply_err(req, &what, -err->code, err);
}

static void fail_change(fuse_req_t req, const char *op,
                        const struct inode *inode, const char *name,
                        const struct err *err)
{
    struct reply_about what = control_about(op, inode, name, true);

    reply_err(req, &what, -err->code, err);
}

/* ---- Attributes ---- */

/* A group that may use the mount changes files, but no names. */
static mode_t share(mode_t mode)
{
    mode_t most = S_ISDIR(mode) ? S_IRGRP | S_IXGRP : S_IRWXG;

    return mode | ((mode & S_IRWXU) >> 3 & most);
}

static int stat_node(fuse_req_t req, const struct node *node, struct stat *out,
                     struct err *err)
{
    const struct fs *fs = fs_of(req);
    struct node_ctx ctx;
    int rc = begin(req, node, &ctx, err);

    if (rc < 0) {
        return rc;
    }
    rc = node_stat(&ctx, node, out, err);
    node_ctx_done(&ctx);
    if (rc == 0) {
        out->st_uid = fs->uid;
        out->st_gid = fs->gid;
        out->st_mode = fs->shared ? share(out->st_mode) : out->st_mode;
    }
    return rc;
}

static int stat_inode(fuse_req_t req, const struct inode *inode,
                      struct stat *out, struct err *err)
{
    struct node node = control_node(inode);

    return stat_node(req, &node, out, err);
}

static void control_getattr(fuse_req_t req, struct inode *inode,
                            struct fuse_file_info *fi)
{
    struct err err = ERR_INIT;
    struct stat attr;

    (void)fi;
    if (stat_inode(req, inode, &attr, &err) < 0) {
        fail(req, "getattr", inode, NULL, &err);
        return;
    }
    reply_attr(req, inode, NULL, &attr);
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* Whether a setattr asks for nothing new; the present time and a truncation
 * count as that, so that `touch` and `>` work. */
static bool changes_nothing(const struct stat *is, const struct stat *want,
                            int to_set)
{
    return (!(to_set & FUSE_SET_ATTR_MODE) ||
            ((is->st_mode ^ want->st_mode) & 07777) == 0) &&
           (!(to_set & FUSE_SET_ATTR_UID) || is->st_uid == want->st_uid) &&
           (!(to_set & FUSE_SET_ATTR_GID) || is->st_gid == want->st_gid) &&
           (!(to_set & FUSE_SET_ATTR_ATIME) ||
            (to_set & FUSE_SET_ATTR_ATIME_NOW) ||
            same_time(&is->st_atim, &want->st_atim)) &&
           (!(to_set & FUSE_SET_ATTR_MTIME) ||
            (to_set & FUSE_SET_ATTR_MTIME_NOW) ||
            same_time(&is->st_mtim, &want->st_mtim));
}

static void control_setattr(fuse_req_t req, struct inode *inode,
                            struct stat *want, int to_set,
                            struct fuse_file_info *fi)
{
    struct err err = ERR_INIT;
    struct stat attr;
    int rc = stat_inode(req, inode, &attr, &err);

    (void)fi;
    if (rc == 0 && !changes_nothing(&attr, want, to_set)) {
        rc = err_set(&err, EPERM, "a control file's attributes are fixed");
    }
    if (rc < 0) {
        fail(req, "setattr", inode, NULL, &err);
        return;
    }
    reply_attr(req, inode, NULL, &attr);
}

static int read_link(fuse_req_t req, const struct inode *inode, struct buf *out,
                     struct err *err)
{
    struct node node = control_node(inode);
    struct node_ctx ctx;
    int rc;

    if (!S_ISLNK(node.row->mode)) {
        return err_set(err, EINVAL, "not a link");
    }
    rc = begin(req, &node, &ctx, err);
    if (rc == 0) {
        rc = node.row->show(&ctx, out, err);
        node_ctx_done(&ctx);
    }
    return rc;
}

static void control_readlink(fuse_req_t req, struct inode *inode)
{
    struct buf target = BUF_INIT(PATH_MAX);
    struct err err = ERR_INIT;

    if (read_link(req, inode, &target, &err) < 0) {
        fail(req, "readlink", inode, NULL, &err);
    } else {
        (void)fuse_reply_readlink(req, buf_str(&target));
    }
    buf_done(&target);
}

static void control_statfs(fuse_req_t req, struct inode *inode)
{
    struct err err = ERR_INIT;
    struct statvfs figures;

    if (inode_key(inode)->session) {
        workspace_part.statfs(req, inode);
        return;
    }
    if (registry_statfs(fs_of(req)->mount.registry, &figures, &err) < 0) {
        fail(req, "statfs", inode, NULL, &err);
        return;
    }
    figures.f_namemax = NODE_NAME_MAX;
    (void)fuse_reply_statfs(req, &figures);
}

/* ---- Names ---- */

/* Answers with a file; its references are given back. */
static void reply_node(fuse_req_t req, const char *op, struct inode *dir,
                       const char *name, struct node *node)
{
    struct inode_key key = {
        .part =
            node->row->flags & NODE_WORKSPACE ? &workspace_part : &control_part,
        .row = node->row,
        .session = node->session,
        .exec_n = node->exec_n,
        .begin = node->begin,
    };
    struct inode *inode = NULL;
    struct err err = ERR_INIT;
    struct stat attr;
    int rc = stat_node(req, node, &attr, &err);

    if (rc == 0) {
        inode = inode_look_up(fs_of(req)->inodes, &key);
        rc = inode ? 0 : err_no_memory(&err);
    }
    if (rc < 0) {
        fail(req, op, dir, name, &err);
    } else {
        reply_entry(req, inode, &attr);
    }
    node_drop(node);
}

/* Answers with the file of a name. */
static void find_node(fuse_req_t req, const char *op, struct inode *dir,
                      const char *name)
{
    struct node parent = control_node(dir);
    struct err err = ERR_INIT;
    struct node_ctx ctx;
    struct node found;
    int rc = begin(req, &parent, &ctx, &err);

    if (rc == 0) {
        rc = node_find(&ctx, &parent, name, &found, &err);
        node_ctx_done(&ctx);
    }
    if (rc < 0) {
        fail(req, op, dir, name, &err);
        return;
    }
    reply_node(req, op, dir, name, &found);
}

static void control_lookup(fuse_req_t req, struct inode *dir, const char *name)
{
    find_node(req, "lookup", dir, name);
}

/* Refuses what would change the names of a directory. */
static void fail_names(fuse_req_t req, const char *op, const struct inode *dir,
                       const char *name)
{
    const struct node_children *children = control_node(dir).row->children;
    bool makes = children && (children->make || children->start);
    struct err err = ERR_INIT;

    (void)err_set(&err, EPERM, "%s",
                  makes ? "only mkdir makes something here"
                        : "names here are fixed");
    fail_change(req, op, dir, name, &err);
}

static void control_getxattr(fuse_req_t req, struct inode *inode,
                             const char *name, size_t size)
{
    struct reply_about what = control_about("getxattr", inode, NULL, false);
    struct err err = ERR_INIT;

    (void)name;
    (void)size;
    what.probe = true;
    reply_err(req, &what, err_set(&err, EOPNOTSUPP, "not for this file"), &err);
}

static void control_create(fuse_req_t req, struct inode *dir, const char *name,
                           mode_t mode, struct fuse_file_info *fi)
{
    (void)mode;
    (void)fi;
    fail_names(req, "create", dir, name);
}

/* A mkdir that takes time. */
struct making {
    struct park *park;
    struct inode_table *inodes;
    struct inode *dir; /* A reference. */
    char name[NODE_NAME_MAX + 1];
};

static void making_free(void *arg)
{
    struct making *making = arg;

    inode_unref(making->inodes, making->dir);
    free(making);
}

static void made(void *arg, int rc, const struct err *err)
{
    struct making *making = arg;
    fuse_req_t req = park_take(making->park);

    if (req && rc < 0) {
        reply_err(req, park_about(making->park), rc, err);
    } else if (req) {
        find_node(req, "mkdir", making->dir, making->name);
    }
    park_unref(making->park);
}

static void start_making(fuse_req_t req, struct making *making,
                         const struct node_ctx *ctx,
                         const struct node_children *children)
{
    static const struct park_kind kind = {
        .most_ms = PARK_LOCKED_MS, .late = EINPROGRESS, .free = making_free};
    struct reply_about what =
        control_about("mkdir", making->dir, making->name, true);
    struct park *park = park_new(req, &what, &kind, making);

    if (park) {
        making->park = park;
        children->start(ctx, making->name, made, making);
        park_wait(park);
    }
}

static void make_later(fuse_req_t req, struct inode *dir, const char *name,
                       const struct node_children *children)
{
    struct node parent = control_node(dir);
    struct making *making = calloc(1, sizeof(*making));
    struct err err = ERR_INIT;
    struct node_ctx ctx;
    int rc = making ? 0 : err_no_memory(&err);

    if (rc == 0 && strlen(name) > NODE_NAME_MAX) {
        rc = err_set(&err, ENAMETOOLONG, "a name of over %d bytes",
                     NODE_NAME_MAX);
    }
    if (rc == 0) {
        rc = begin(req, &parent, &ctx, &err);
    }
    if (rc < 0) {
        free(making);
        fail_change(req, "mkdir", dir, name, &err);
        return;
    }
    making->inodes = fs_of(req)->inodes;
    making->dir = inode_ref(making->inodes, dir);
    (void)snprintf(making->name, sizeof(making->name), "%s", name);
    start_making(req, making, &ctx, children);
    node_ctx_done(&ctx);
}

static void control_mkdir(fuse_req_t req, struct inode *dir, const char *name,
                          mode_t mode)
{
    struct node parent = control_node(dir);
    const struct node_children *children = parent.row->children;
    struct node made = {.row = children ? children->row : NULL};
    struct err err = ERR_INIT;
    struct node_ctx ctx;
    int rc;

    (void)mode;
    if (children && children->start) {
        make_later(req, dir, name, children);
        return;
    }
    if (!children || !children->make) {
        fail_names(req, "mkdir", dir, name);
        return;
    }
    rc = begin(req, &parent, &ctx, &err);
    if (rc == 0) {
        rc = children->make(&ctx, name, &made, &err);
        node_ctx_done(&ctx);
    }
    if (rc < 0) {
        fail_change(req, "mkdir", dir, name, &err);
        return;
    }
    reply_node(req, "mkdir", dir, name, &made);
}

static void control_rmdir(fuse_req_t req, struct inode *dir, const char *name)
{
    struct node parent = control_node(dir);
    const struct node_children *children = parent.row->children;
    struct err err = ERR_INIT;
    struct node_ctx ctx;
    int rc;

    if (!children || !children->remove) {
        fail_names(req, "rmdir", dir, name);
        return;
    }
    rc = begin(req, &parent, &ctx, &err);
    if (rc == 0) {
        rc = children->remove(&ctx, name, &err);
        node_ctx_done(&ctx);
    }
    if (rc < 0) {
        fail_change(req, "rmdir", dir, name, &err);
        return;
    }
    reply_ok(req);
}

static int rename_child(fuse_req_t req, const struct node *dir,
                        const char *name, const char *new_name, unsigned flags,
                        struct err *err)
{
    struct node_ctx ctx;
    int rc;

    /* A taken name is refused in any case. */
    if (flags & ~(unsigned)RENAME_NOREPLACE) {
        return err_set(err, EINVAL, "cannot exchange sessions");
    }
    rc = begin(req, dir, &ctx, err);
    if (rc == 0) {
        rc = dir->row->children->rename(&ctx, name, new_name, err);
        node_ctx_done(&ctx);
    }
    if (rc == -ENOTEMPTY && (flags & RENAME_NOREPLACE)) {
        err->code = EEXIST;
        rc = -EEXIST;
    }
    return rc;
}

static void control_rename(fuse_req_t req, struct inode *dir, const char *name,
                           struct inode *new_dir, const char *new_name,
                           unsigned flags)
{
    struct node parent = control_node(dir);
    const struct node_children *children = parent.row->children;
    struct err err = ERR_INIT;
    int rc;

    if (!children || !children->rename ||
        (dir != new_dir && control_node(new_dir).row != children->row)) {
        fail_names(req, "rename", dir, name);
        return;
    }
    /* Where the new id is taken, mv asks for a place in that session. */
    rc = dir == new_dir
             ? rename_child(req, &parent, name, new_name, flags, &err)
             : err_set(&err, ENOTEMPTY, "no session goes into another one");
    if (rc < 0) {
        fail_change(req, "rename", dir, name, &err);
        return;
    }
    reply_ok(req);
}

/* ---- Directories ---- */

static void control_opendir(fuse_req_t req, struct inode *inode,
                            struct fuse_file_info *fi)
{
    (void)inode;
    (void)fuse_reply_open(req, fi);
}

static void control_releasedir(fuse_req_t req, struct inode *inode,
                               struct fuse_file_info *fi)
{
    (void)inode;
    (void)fi;
    reply_ok(req);
}

static void control_fsync(fuse_req_t req, struct inode *inode, int data_only,
                          struct fuse_file_info *fi)
{
    (void)inode;
    (void)data_only;
    (void)fi;
    reply_ok(req);
}

struct filling {
    fuse_req_t req;
    char *data;
    size_t size;
    size_t used;
    bool plus;
};

/* An entry of readdirplus without a node number: the kernel looks it up when
 * it needs it, so that a listing loads nothing. */
static bool fill(void *arg, const char *name, const struct stat *attr,
                 uint64_t next)
{
    struct filling *filling = arg;
    char *at = filling->data + filling->used;
    size_t left = filling->size - filling->used;
    struct fuse_entry_param entry;
    size_t n;

    if (filling->plus) {
        memset(&entry, 0, sizeof(entry));
        entry.attr = *attr;
        n = fuse_add_direntry_plus(filling->req, at, left, name, &entry,
                                   (off_t)next);
    } else {
        n = fuse_add_direntry(filling->req, at, left, name, attr, (off_t)next);
    }
    if (n > left) {
        return false;
    }
    filling->used += n;
    return true;
}

static void control_readdir(fuse_req_t req, struct inode *inode, size_t size,
                            off_t off, struct fuse_file_info *fi, bool plus)
{
    AUTO_FREE char *data = malloc(size);
    struct filling filling = {req, data, size, 0, plus};
    struct node node = control_node(inode);
    struct err err = ERR_INIT;
    struct node_ctx ctx;
    int rc = data ? begin(req, &node, &ctx, &err) : err_no_memory(&err);

    (void)fi;
    if (rc == 0) {
        rc = node_list(&ctx, &node, (uint64_t)off, fill, &filling, &err);
        node_ctx_done(&ctx);
    }
    if (rc < 0) {
        fail(req, "readdir", inode, NULL, &err);
        return;
    }
    (void)fuse_reply_buf(req, data, filling.used);
}

/* ---- SEEK_DATA and SEEK_HOLE: no file has holes ---- */

static void control_lseek(fuse_req_t req, struct inode *inode, off_t off,
                          int whence, struct fuse_file_info *fi)
{
    struct err err = ERR_INIT;
    struct stat attr;
    int rc = stat_inode(req, inode, &attr, &err);

    (void)fi;
    if (rc == 0 && (off < 0 || off >= attr.st_size)) {
        rc = err_set(&err, ENXIO, "behind the end");
    }
    if (rc < 0) {
        fail(req, "lseek", inode, NULL, &err);
        return;
    }
    (void)fuse_reply_lseek(req, whence == SEEK_HOLE ? attr.st_size : off);
}

const struct fs_part control_part = {
    .lookup = control_lookup,
    .getattr = control_getattr,
    .setattr = control_setattr,
    .readlink = control_readlink,
    .create = control_create,
    .getxattr = control_getxattr,
    .mkdir = control_mkdir,
    .rmdir = control_rmdir,
    .rename = control_rename,
    .open = control_open,
    .read = control_read,
    .write = control_write,
    .flush = control_flush,
    .release = control_release,
    .fsync = control_fsync,
    .opendir = control_opendir,
    .readdir = control_readdir,
    .releasedir = control_releasedir,
    .fsyncdir = control_fsync,
    .statfs = control_statfs,
    .lseek = control_lseek,
    .poll = control_poll,
};
