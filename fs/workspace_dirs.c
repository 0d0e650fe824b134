/* Directories and extended attributes below workspace/. */
#include "fs/wcall.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int keep_dir(struct wcall *call, struct ws_dir *dir, struct err *err)
{
    call->opened = wopen_new(dir ? call->ws : NULL, NULL, dir);
    return call->opened ? 0 : err_no_memory(err);
}

static int run_opendir(struct wcall *call, struct err *err)
{
    struct ws_dir *dir = NULL;
    int rc = ws_opendir(call->node, &call->ctx, &dir, err);

    return rc < 0 ? rc : keep_dir(call, dir, err);
}

static int empty_opendir(struct wcall *call, struct err *err)
{
    return keep_dir(call, NULL, err);
}

/* Listings of what only the mount changes may be kept. */
static void reply_opendir(struct wcall *call, fuse_req_t req)
{
    wcall_give(call, call->inode);
    if (call->ws && !ws_blocks(call->ws)) {
        bool keep;

        call->fi.cache_readdir =
            kernel_keeps(call->fs, call->inode, call->ws, call->changes, &keep);
        call->fi.keep_cache = keep;
    }
    if (fuse_reply_open(req, &call->fi) < 0) {
        wcall_take_back(call, call->inode);
        return;
    }
    call->opened = NULL;
}

void workspace_opendir(fuse_req_t req, struct inode *inode,
                       struct fuse_file_info *fi)
{
    static const struct wcall_kind kind = {.name = "opendir",
                                           .need = SESSION_LOOK,
                                           .run = run_opendir,
                                           .empty = empty_opendir,
                                           .reply = reply_opendir};
    struct wcall *call = wcall_new(req, &kind, inode);

    if (call) {
        call->fi = *fi;
        wcall_start(call);
    }
}

/* ---- Listings ---- */

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Both names of workspace/ that lead to directories show its own number. */
static struct stat shown(const struct wcall *call, const char *name,
                         const struct stat *attr)
{
    struct stat copy = *attr;

    if (is_dots(name)) {
        wcall_show_top(call, &copy);
    }
    return copy;
}

/* Adds what fits; out_size says how full the answer is. */
static bool fits(struct wcall *call, size_t size)
{
    if (size > call->size - call->out_size) {
        return false;
    }
    call->out_size += size;
    return true;
}

static bool add_plain(void *arg, const char *name, const struct stat *attr,
                      off_t next)
{
    struct wcall *call = arg;
    const struct stat copy = shown(call, name, attr);

    return fits(call, fuse_add_direntry(call->req, call->out + call->out_size,
                                        call->size - call->out_size, name,
                                        &copy, next));
}

/* An entry of readdirplus; without an inode it is a mere name. */
static bool add_plus(struct wcall *call, const char *name,
                     const struct fuse_entry_param *entry, off_t next)
{
    return fits(call, fuse_add_direntry_plus(
                          call->req, call->out + call->out_size,
                          call->size - call->out_size, name, entry, next));
}

/* Finds an entry's inode; NULL where it has gone meanwhile. */
static struct inode *find_entry(struct wcall *call, const char *name,
                                struct stat *attr)
{
    struct ws_node *node = NULL;
    struct err err = ERR_INIT;
    struct inode *inode;

    if (is_dots(name) ||
        ws_lookup(call->node, name, &call->ctx, &node, attr, &err) < 0) {
        return NULL;
    }
    inode = wcall_look_up(call, node);
    ws_node_unref(node);
    return inode;
}

static bool add_found(void *arg, const char *name, const struct stat *attr,
                      off_t next)
{
    struct wcall *call = arg;
    struct fuse_entry_param entry = {.attr = shown(call, name, attr)};
    struct stat found;
    struct inode *inode = find_entry(call, name, &found);

    if (!inode) {
        return add_plus(call, name, &entry, next);
    }
    reply_fill_entry(call->fs, inode, &found, &entry);
    if (!add_plus(call, name, &entry, next)) {
        inode_forget(call->fs->inodes, inode, 1);
        return false;
    }
    call->listed[call->n_listed] = inode;
    call->n_listed++;
    return true;
}

/* A name of a tree that may block: its attributes would be a call each. */
static bool add_name(void *arg, const char *name, const struct stat *attr,
                     off_t next)
{
    const struct fuse_entry_param entry = {.attr = shown(arg, name, attr)};

    return add_plus(arg, name, &entry, next);
}

static int prepare(struct wcall *call, struct err *err)
{
    const size_t least =
        fuse_add_direntry_plus(call->req, NULL, 0, "", NULL, 0);
    const size_t most = call->size / least + 1;

    call->out = malloc(call->size);
    if (call->flags) {
        call->listed = calloc(most, sizeof(struct inode *));
    }
    if (!call->out || (call->flags && !call->listed)) {
        return err_no_memory(err);
    }
    return 0;
}

/* "." and "..", all there is without a sandbox. */
static int list_nothing(struct wcall *call, struct err *err)
{
    const struct stat attr = {.st_mode = S_IFDIR};
    ws_entry_fn *add = call->flags ? add_name : add_plain;
    int rc = prepare(call, err);

    if (rc == 0 && call->offset < 1 && !add(call, ".", &attr, 1)) {
        return 0;
    }
    if (rc == 0 && call->offset < 2) {
        (void)add(call, "..", &attr, 2);
    }
    return rc;
}

static int run_readdir(struct wcall *call, struct err *err)
{
    ws_entry_fn *add = add_plain;
    int rc;

    if (!call->open->dir) {
        return list_nothing(call, err);
    }
    if (call->flags) {
        add = ws_blocks(call->ws) ? add_name : add_found;
    }
    rc = prepare(call, err);
    return rc < 0 ? rc
                  : ws_readdir(call->open->dir, call->offset, add, call,
                               &call->ctx, err);
}

static void reply_listing(struct wcall *call, fuse_req_t req)
{
    if (fuse_reply_buf(req, call->out, call->out_size) == 0) {
        call->n_told = call->n_listed;
        call->n_listed = 0; /* The kernel has taken the lookups. */
    }
}

void workspace_readdir(fuse_req_t req, struct inode *inode, size_t size,
                       off_t off, struct fuse_file_info *fi, bool plus)
{
    static const struct wcall_kind kind = {.name = "readdir",
                                           .need = SESSION_LOOK,
                                           .late = ETIMEDOUT,
                                           .run = run_readdir,
                                           .empty = list_nothing,
                                           .reply = reply_listing};
    struct wcall *call = wcall_new(req, &kind, inode);

    if (call) {
        wcall_open(call, fi);
        call->size = size;
        call->offset = off;
        call->flags = plus;
        wcall_start(call);
    }
}

static int run_fsyncdir(struct wcall *call, struct err *err)
{
    return call->open->dir
               ? ws_fsyncdir(call->open->dir, call->flags != 0, &call->ctx, err)
               : 0;
}

static int empty_ok(struct wcall *call, struct err *err)
{
    (void)call;
    (void)err;
    return 0;
}

void workspace_fsyncdir(fuse_req_t req, struct inode *inode, int data_only,
                        struct fuse_file_info *fi)
{
    static const struct wcall_kind kind = {.name = "fsyncdir",
                                           .need = SESSION_LOOK,
                                           .late = EINPROGRESS,
                                           .run = run_fsyncdir,
                                           .empty = empty_ok};
    struct wcall *call = wcall_new(req, &kind, inode);

    if (call) {
        wcall_open(call, fi);
        call->flags = data_only;
        wcall_start(call);
    }
}

/* ---- Extended attributes ---- */

/* Takes a result that is a number of bytes. */
static int keep_size(struct wcall *call, ssize_t n)
{
    call->out_size = n < 0 ? 0 : (size_t)n;
    return n < 0 ? (int)n : 0;
}

static int make_room(struct wcall *call, struct err *err)
{
    call->out = malloc(call->size + 1);
    return call->out ? 0 : err_no_memory(err);
}

static int run_getxattr(struct wcall *call, struct err *err)
{
    int rc = make_room(call, err);

    return rc < 0 ? rc
                  : keep_size(call, ws_getxattr(call->node, call->name,
                                                call->out, call->size, err));
}

static int empty_getxattr(struct wcall *call, struct err *err)
{
    (void)call;
    return err_set(err, ENODATA, "there is no sandbox");
}

static int run_listxattr(struct wcall *call, struct err *err)
{
    int rc = make_room(call, err);

    return rc < 0 ? rc
                  : keep_size(call, ws_listxattr(call->node, call->out,
                                                 call->size, err));
}

/* Size 0 asks how much there is. */
static void reply_xattr(struct wcall *call, fuse_req_t req)
{
    if (call->size) {
        (void)fuse_reply_buf(req, call->out, call->out_size);
    } else {
        (void)fuse_reply_xattr(req, call->out_size);
    }
}

void workspace_getxattr(fuse_req_t req, struct inode *inode, const char *name,
                        size_t size)
{
    static const struct wcall_kind kind = {.name = "getxattr",
                                           .probe = true,
                                           .need = SESSION_LOOK,
                                           .stats = true,
                                           .run = run_getxattr,
                                           .empty = empty_getxattr,
                                           .reply = reply_xattr};
    struct wcall *call = wcall_new(req, &kind, inode);

    if (call) {
        wcall_name(call, name);
        call->size = size;
        wcall_start(call);
    }
}

void workspace_listxattr(fuse_req_t req, struct inode *inode, size_t size)
{
    static const struct wcall_kind kind = {.name = "listxattr",
                                           .need = SESSION_LOOK,
                                           .stats = true,
                                           .run = run_listxattr,
                                           .empty = empty_ok,
                                           .reply = reply_xattr};
    struct wcall *call = wcall_new(req, &kind, inode);

    if (call) {
        call->size = size;
        wcall_start(call);
    }
}

static int run_setxattr(struct wcall *call, struct err *err)
{
    return ws_setxattr(call->node, call->name, call->data, call->size,
                       call->flags, err);
}

void workspace_setxattr(fuse_req_t req, struct inode *inode, const char *name,
                        const char *value, size_t size, int flags)
{
    static const struct wcall_kind kind = {.name = "setxattr",
                                           .need = SESSION_WRITE,
                                           .late = EINPROGRESS,
                                           .run = run_setxattr};
    struct wcall *call = wcall_new(req, &kind, inode);

    if (call) {
        wcall_name(call, name);
        call->data = value;
        call->size = size;
        call->flags = flags;
        wcall_start(call);
    }
}

static int run_removexattr(struct wcall *call, struct err *err)
{
    return ws_removexattr(call->node, call->name, err);
}

void workspace_removexattr(fuse_req_t req, struct inode *inode,
                           const char *name)
{
    static const struct wcall_kind kind = {.name = "removexattr",
                                           .need = SESSION_WRITE,
                                           .late = EINPROGRESS,
                                           .run = run_removexattr};
    struct wcall *call = wcall_new(req, &kind, inode);

    if (call) {
        wcall_name(call, name);
        wcall_start(call);
    }
}
