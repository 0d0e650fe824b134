/* Open files below workspace/. */
#include "fs/wcall.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Makes the handle of what a call opened; both are taken. */
static int keep_open(struct wcall *call, struct ws_file *file, struct err *err)
{
    call->opened = wopen_new(call->ws, file, NULL);
    return call->opened ? 0 : err_no_memory(err);
}

/*
 * Decides how the kernel reaches the data. Where it does so by itself and that
 * would break something, by what is written here or for want of room, it may
 * map the file but asks us to read and write.
 */
static uint32_t pass(struct wcall *call, struct inode *inode)
{
    struct fs *fs = call->fs;
    int fd;
    enum ws_pass how = ws_file_pass(call->opened->file, &fd);
    uint32_t backing = kernel_pass_open(fs->kernel, inode_backing(inode),
                                        how == WS_PASS_NOT ? -1 : fd);

    if (backing) {
        call->fi.direct_io = how == WS_PASS_MAPS || call->no_room;
        call->opened->passed = true;
        session_touch(call->session);
    }
    return backing;
}

/*
 * Hands the handle to the kernel. Where nothing is staged a close has nothing
 * to tell, so the kernel need not ask.
 */
static int give_handle(struct wcall *call, struct inode *inode,
                       uint32_t *backing, struct err *err)
{
    struct fs *fs = call->fs;
    bool keep = false;

    wcall_give(call, inode);
    *backing = pass(call, inode);
    if (!*backing && !ws_blocks(call->ws)) {
        int fd = ws_file_fd(call->opened->file);

        if (fd < 0 && fd != -EOPNOTSUPP) {
            wcall_take_back(call, inode);
            return err_set(err, -fd, "open: %s", strerror(-fd));
        }
        (void)kernel_keeps(fs, inode, call->ws, call->changes, &keep);
    }
    call->fi.keep_cache = keep;
    call->fi.noflush =
        !ws_blocks(call->ws) && kernel_uses(fs->kernel, KERNEL_NOFLUSH);
    return 0;
}

static bool only_reads(int flags)
{
    return (flags & O_ACCMODE) == O_RDONLY && !(flags & O_TRUNC);
}

/*
 * Whether the kernel alone may open the file. Not while there are processes in
 * the sandbox: one may hold a lease, and then it is we who must be refused, not
 * the reader who must wait.
 */
static bool opens_later(const struct wcall *call)
{
    return only_reads(call->fi.flags) &&
           kernel_uses(call->fs->kernel, KERNEL_PASSTHROUGH) &&
           (ws_fixed(call->ws) || session_quiet(call->session));
}

/* What is going to be written may have been told by another node. */
static void note_shared(struct wcall *call, struct ws_file *file)
{
    struct err ignored = ERR_INIT;
    struct stat attr;

    if (ws_node_shared(call->node) &&
        ws_getattr(call->node, file, &call->ctx, &attr, &ignored) == 0) {
        kernel_shared(call->fs, call->session, call->node, &attr);
    }
}

static int run_open(struct wcall *call, struct err *err)
{
    struct err full = ERR_INIT;
    struct ws_file *file = NULL;
    int flags = call->fi.flags;
    int rc = opens_later(call)
                 ? ws_open_later(call->node, &call->ctx, &file, err)
                 : ws_open(call->node, flags, &call->ctx, &file, err);

    if (rc == 0 && !only_reads(flags)) {
        call->no_room = session_room(call->session, &full) < 0;
        note_shared(call, file);
    }
    return rc < 0 ? rc : keep_open(call, file, err);
}

static void reply_opened(struct wcall *call, fuse_req_t req)
{
    struct err err = ERR_INIT;
    uint32_t backing;
    int rc = give_handle(call, call->inode, &backing, &err);

    if (rc < 0) {
        wcall_fail(call, req, rc, &err);
        return;
    }
    if (kernel_reply_open(req, &call->fi, backing) < 0) {
        wcall_take_back(call, call->inode);
        return;
    }
    call->opened = NULL;
}

void workspace_open(fuse_req_t req, struct inode *inode,
                    struct fuse_file_info *fi)
{
    static const struct wcall_kind reads = {.name = "open",
                                            .need = SESSION_READ,
                                            .run = run_open,
                                            .reply = reply_opened};
    static const struct wcall_kind writes = {.name = "open",
                                             .need = SESSION_WRITE,
                                             .late = EINPROGRESS,
                                             .run = run_open,
                                             .reply = reply_opened};
    bool only_read = (fi->flags & O_ACCMODE) == O_RDONLY;
    struct wcall *call = wcall_new(req, only_read ? &reads : &writes, inode);

    if (call) {
        call->fi = *fi;
        wcall_start(call);
    }
}

static int run_create(struct wcall *call, struct err *err)
{
    struct ws_file *file = NULL;
    int rc = ws_create(call->node, call->name, call->mode, call->fi.flags,
                       &call->ctx, &call->made, &file, &call->attr, err);

    return rc < 0 ? rc : keep_open(call, file, err);
}

static void reply_created(struct wcall *call, fuse_req_t req)
{
    struct inode *inode = wcall_look_up(call, call->made);
    struct err err = ERR_INIT;
    uint32_t backing;
    int rc;

    if (!inode) {
        wcall_no_memory(call, req);
        return;
    }
    rc = give_handle(call, inode, &backing, &err);
    if (rc < 0) {
        inode_forget(call->fs->inodes, inode, 1);
        wcall_fail(call, req, rc, &err);
        return;
    }
    call->told = inode_number(inode);
    if (!reply_create(req, inode, &call->attr, &call->fi, backing)) {
        wcall_take_back(call, inode);
        return;
    }
    call->opened = NULL;
}

void workspace_create(fuse_req_t req, struct inode *dir, const char *name,
                      mode_t mode, struct fuse_file_info *fi)
{
    static const struct wcall_kind kind = {.name = "create",
                                           .need = SESSION_GROW,
                                           .late = EINPROGRESS,
                                           .run = run_create,
                                           .reply = reply_created};
    struct wcall *call = wcall_new(req, &kind, dir);

    if (call) {
        wcall_name(call, name);
        call->mode = mode;
        call->fi = *fi;
        wcall_start(call);
    }
}

void workspace_release(fuse_req_t req, struct inode *inode,
                       struct fuse_file_info *fi)
{
    wopen_release(req, inode, fi);
}

/* Reads into memory, unless the reply can take the data from the fd itself. */
static int run_read(struct wcall *call, struct err *err)
{
    ssize_t n;

    if (ws_file_fd(call->open->file) >= 0) {
        return 0;
    }
    call->out = malloc(call->size + 1);
    if (!call->out) {
        return err_no_memory(err);
    }
    n = ws_read(call->open->file, call->out, call->size, call->offset,
                &call->ctx, err);
    if (n < 0) {
        return (int)n;
    }
    call->out_size = (size_t)n;
    return 0;
}

static void reply_read(struct wcall *call, fuse_req_t req)
{
    int fd = ws_file_fd(call->open->file);
    struct fuse_bufvec data = FUSE_BUFVEC_INIT(call->size);

    if (fd < 0) {
        (void)fuse_reply_buf(req, call->out, call->out_size);
        return;
    }
    data.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
    data.buf[0].fd = fd;
    data.buf[0].pos = call->offset;
    (void)fuse_reply_data(req, &data, 0);
}

/* Makes a call about an open file. */
static struct wcall *new_file_call(fuse_req_t req,
                                   const struct wcall_kind *kind,
                                   struct inode *inode,
                                   const struct fuse_file_info *fi)
{
    struct wcall *call = wcall_new(req, kind, inode);

    if (call) {
        wcall_open(call, fi);
    }
    return call;
}

void workspace_read(fuse_req_t req, struct inode *inode, size_t size, off_t off,
                    struct fuse_file_info *fi)
{
    static const struct wcall_kind kind = {.name = "read",
                                           .need = SESSION_READ,
                                           .data = true,
                                           .run = run_read,
                                           .reply = reply_read};
    struct wcall *call = new_file_call(req, &kind, inode, fi);

    if (call) {
        call->size = size;
        call->offset = off;
        wcall_start(call);
    }
}

static void reply_count(struct wcall *call, fuse_req_t req)
{
    (void)fuse_reply_write(req, call->out_size);
}

static int run_write(struct wcall *call, struct err *err)
{
    ssize_t n = ws_write(call->open->file, call->data, call->size, call->offset,
                         &call->ctx, err);

    if (n < 0) {
        return (int)n;
    }
    call->out_size = (size_t)n;
    return 0;
}

void workspace_write(fuse_req_t req, struct inode *inode, const char *data,
                     size_t size, off_t off, struct fuse_file_info *fi)
{
    static const struct wcall_kind kind = {.name = "write",
                                           .need = SESSION_GROW,
                                           .data = true,
                                           .late = EINPROGRESS,
                                           .run = run_write,
                                           .reply = reply_count};
    struct wcall *call = new_file_call(req, &kind, inode, fi);

    if (call) {
        call->data = data;
        call->size = size;
        call->offset = off;
        wcall_start(call);
    }
}

static int run_flush(struct wcall *call, struct err *err)
{
    return ws_flush(call->open->file, &call->ctx, err);
}

void workspace_flush(fuse_req_t req, struct inode *inode,
                     struct fuse_file_info *fi)
{
    static const struct wcall_kind kind = {
        .name = "flush", .need = SESSION_PEEK, .run = run_flush};
    struct wcall *call = new_file_call(req, &kind, inode, fi);

    if (call) {
        wcall_start(call);
    }
}

static int run_fsync(struct wcall *call, struct err *err)
{
    return ws_fsync(call->open->file, call->flags != 0, &call->ctx, err);
}

void workspace_fsync(fuse_req_t req, struct inode *inode, int data_only,
                     struct fuse_file_info *fi)
{
    static const struct wcall_kind kind = {.name = "fsync",
                                           .need = SESSION_LOOK,
                                           .late = EINPROGRESS,
                                           .run = run_fsync};
    struct wcall *call = new_file_call(req, &kind, inode, fi);

    if (call) {
        call->flags = data_only;
        wcall_start(call);
    }
}

static int run_fallocate(struct wcall *call, struct err *err)
{
    return ws_fallocate(call->open->file, call->flags, call->offset,
                        (off_t)call->size, &call->ctx, err);
}

void workspace_fallocate(fuse_req_t req, struct inode *inode, int mode,
                         off_t off, off_t size, struct fuse_file_info *fi)
{
    static const struct wcall_kind kind = {.name = "fallocate",
                                           .need = SESSION_GROW,
                                           .data = true,
                                           .late = EINPROGRESS,
                                           .run = run_fallocate};
    struct wcall *call = new_file_call(req, &kind, inode, fi);

    if (call) {
        call->flags = mode;
        call->offset = off;
        call->size = (size_t)size;
        wcall_start(call);
    }
}

static int run_lseek(struct wcall *call, struct err *err)
{
    off_t found =
        ws_lseek(call->open->file, call->offset, call->flags, &call->ctx, err);

    if (found < 0) {
        return (int)found;
    }
    call->offset = found;
    return 0;
}

static void reply_lseek(struct wcall *call, fuse_req_t req)
{
    (void)fuse_reply_lseek(req, call->offset);
}

void workspace_lseek(fuse_req_t req, struct inode *inode, off_t off, int whence,
                     struct fuse_file_info *fi)
{
    static const struct wcall_kind kind = {.name = "lseek",
                                           .need = SESSION_READ,
                                           .late = ETIMEDOUT,
                                           .run = run_lseek,
                                           .reply = reply_lseek};
    struct wcall *call = new_file_call(req, &kind, inode, fi);

    if (call) {
        call->offset = off;
        call->flags = whence;
        wcall_start(call);
    }
}

static int run_copy(struct wcall *call, struct err *err)
{
    ssize_t n =
        ws_copy_range(call->open->file, call->offset, call->open_out->file,
                      call->offset_out, call->size, &call->ctx, err);

    if (n < 0) {
        return (int)n;
    }
    call->out_size = (size_t)n;
    return 0;
}

void workspace_copy(fuse_req_t req, struct inode *in, off_t in_off,
                    struct fuse_file_info *in_fi, struct inode *out,
                    off_t out_off, struct fuse_file_info *out_fi, size_t size,
                    int flags)
{
    static const struct wcall_kind kind = {.name = "copy_file_range",
                                           .need = SESSION_GROW,
                                           .data = true,
                                           .late = EINPROGRESS,
                                           .run = run_copy,
                                           .reply = reply_count};
    struct wcall *call;

    if (inode_key(in)->session != inode_key(out)->session ||
        inode_key(in)->exec_n != inode_key(out)->exec_n) {
        (void)fuse_reply_err(req, EXDEV); /* The kernel copies by itself. */
        return;
    }
    call = new_file_call(req, &kind, in, in_fi);
    if (!call) {
        return;
    }
    call->open_out = wopen_ref(wopen_of(out_fi));
    call->other = out;
    call->offset = in_off;
    call->offset_out = out_off;
    call->size = size;
    call->flags = flags;
    wcall_start(call);
}
