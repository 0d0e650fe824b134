/* Open files and directories as the kernel holds them. See wcall.h. */
#include "fs/wcall.h"

#include "core/checkpoint.h"
#include "core/clock.h"

#include <stdlib.h>

struct wopen *wopen_new(const struct workspace *tree, struct ws_file *file,
                        struct ws_dir *dir)
{
    struct wopen *handle = calloc(1, sizeof(*handle));

    if (!handle) {
        ws_close(file);
        ws_closedir(dir);
        return NULL;
    }
    atomic_init(&handle->refs, 1);
    handle->tree = tree;
    handle->file = file;
    handle->dir = dir;
    return handle;
}

struct wopen *wopen_of(const struct fuse_file_info *fi)
{
    return (struct wopen *)(uintptr_t)fi->fh;
}

struct wopen *wopen_ref(struct wopen *handle)
{
    (void)atomic_fetch_add(&handle->refs, 1);
    return handle;
}

void wopen_unref(struct wopen *handle)
{
    if (handle && atomic_fetch_sub(&handle->refs, 1) == 1) {
        ws_close(handle->file);
        ws_closedir(handle->dir);
        free(handle);
    }
}

static void drop_open(struct held *held)
{
    wopen_unref(container_of(held, struct wopen, held));
}

void wcall_give(struct wcall *call, struct inode *inode)
{
    call->fi.fh = (uint64_t)(uintptr_t)call->opened;
    call->opened->held.drop = drop_open;
    held_add(call->fs->held, &call->opened->held);
    inode_opened(call->fs->inodes, inode);
}

void wcall_take_back(struct wcall *call, struct inode *inode)
{
    if (call->opened->file) {
        kernel_pass_close(call->fs->kernel, inode_backing(inode));
    }
    inode_closed(call->fs->inodes, inode);
    held_remove(call->fs->held, &call->opened->held);
}

/* A handle whose last close could not send what was written. */
struct late {
    struct wopen *handle;
    struct session *session; /* Referenced. */
};

/* Tries once more; nobody but `error` and the log can be told. */
static void close_late(void *arg)
{
    static struct cancel never = CANCEL_NEVER;
    const struct ws_ctx ctx = {
        .limits = {.deadline_ms = clock_deadline(WCALL_MOST_MS),
                   .cancel = &never}};
    const struct caller nobody = {.uid = 0};
    struct late *late = arg;
    struct err err = ERR_INIT;

    if (ws_fsync(late->handle->file, false, &ctx, &err) < 0) {
        session_fail(late->session, "close", 0, NULL, &nobody, &err);
        session_files_keep(late->session, late->handle->file);
    }
    wopen_unref(late->handle);
    session_unref(late->session);
    free(late);
}

static void close_handle(struct wopen *handle, struct session *session)
{
    struct late *late = NULL;

    if (handle->file && ws_unsent_file(handle->file)) {
        late = calloc(1, sizeof(*late));
    }
    if (!late) {
        wopen_unref(handle);
        return;
    }
    late->handle = handle;
    late->session = session_ref(session);
    if (session_files_run(session, close_late, late) < 0) {
        close_late(late);
    }
}

void wopen_release(fuse_req_t req, struct inode *inode,
                   const struct fuse_file_info *fi)
{
    struct wopen *handle = wopen_of(fi);
    struct fs *fs = fs_of(req);

    if (handle->file && (fi->flags & O_ACCMODE) != O_RDONLY) {
        /* The kernel may have written by itself. */
        checkpoint_wrote(inode_key(inode)->session);
    }
    if (handle->passed) {
        session_touch(inode_key(inode)->session);
    }
    if (handle->file) {
        kernel_pass_close(fs->kernel, inode_backing(inode));
    }
    held_remove(fs->held, &handle->held);
    close_handle(handle, inode_key(inode)->session);
    inode_closed(fs->inodes, inode);
    reply_ok(req);
}
