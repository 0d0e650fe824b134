/* `exec`: write a script, read its output. */
#include "core/exec.h"
#include "core/session.h"
#include "fs/exec_handle.h"
#include "fs/files.h"

#include <errno.h>

static const struct gather_kind scripts = {
    .name = "script",
    .bad = "a NUL byte in a script",
    .max = EXEC_SCRIPT_MAX,
};

static int exec_init(struct file *file, struct err *err)
{
    return exec_handle_init(file, &scripts, err);
}

static int exec_write(struct file *file, const struct file_call *call,
                      const void *data, size_t size, struct err *err)
{
    struct exec_handle *handle = file->own;
    int rc;

    mutex_lock(&file->lock);
    rc = gather_add(&handle->gather, call->owner, data, size, err);
    mutex_unlock(&file->lock);
    return rc;
}

/* Takes what a process has gathered. Returns as gather_take(). */
static int take(struct file *file, const struct file_call *call,
                struct buf *out, struct err *err)
{
    struct exec_handle *handle = file->own;
    int rc;

    mutex_lock(&file->lock);
    rc = gather_take(&handle->gather, call->owner, out, err);
    mutex_unlock(&file->lock);
    return rc;
}

/* Runs a script; out: the command, one more reference. */
static int run(struct file *file, const struct file_call *call,
               const struct buf *script, struct exec **out, struct err *err)
{
    int rc = exec_submit(file->node.session, script->data, script->size,
                         &call->caller, out, err);

    if (rc == 0) {
        exec_handle_bind(file, *out);
    }
    return rc;
}

static int exec_flush(struct file *file, const struct file_call *call,
                      struct file_wait *out, struct err *err)
{
    struct buf script = BUF_INIT(EXEC_SCRIPT_MAX);
    struct exec *exec = NULL;
    int rc = take(file, call, &script, err);

    if (rc > 0 && exec_handle_may_run(call, &out->brief)) {
        rc = run(file, call, &script, &exec, err);
        if (rc == 0) {
            rc = file_pending_add(&out->pending, call->owner, exec, err);
            exec_unref(exec);
        }
    }
    buf_done(&script);
    return rc < 0 ? rc : 0;
}

static int run_gathered(struct file *file, const struct file_call *call,
                        struct err *err)
{
    struct buf script = BUF_INIT(EXEC_SCRIPT_MAX);
    struct exec *exec = NULL;
    int rc = take(file, call, &script, err);

    if (rc > 0) {
        rc = run(file, call, &script, &exec, err);
        exec_unref(exec);
    }
    buf_done(&script);
    return rc;
}

static ssize_t read_locked(struct file *file, void *out, size_t size,
                           struct err *err) REQUIRES(file->lock)
{
    struct exec_handle *handle = file->own;
    bool ended;
    ssize_t n;

    if (!handle->current) {
        return 0;
    }
    /* In this order: nothing arrives after the end. */
    ended = exec_ended(handle->current);
    n = exec_read(handle->current, EXEC_OUTPUT, file->place, out, size, err);
    if (n > 0) {
        file->place += (uint64_t)n;
    } else if (n == 0 && !ended) {
        return -EAGAIN;
    } else if (n == 0) {
        handle->at_end = true;
        n = exec_handle_check(handle->current, err);
    }
    return n;
}

static ssize_t exec_read_file(struct file *file, const struct file_call *call,
                              uint64_t offset, void *out, size_t size,
                              struct err *err)
{
    ssize_t n;
    int rc = run_gathered(file, call, err);

    if (rc < 0) {
        return rc;
    }
    exec_handle_follow(file);
    exec_handle_seek(file, offset);
    mutex_lock(&file->lock);
    n = read_locked(file, out, size, err);
    mutex_unlock(&file->lock);
    return n;
}

static struct exec *exec_watch_file(struct file *file, struct exec_watch *watch)
{
    struct exec_handle *handle = file->own;
    struct exec *exec;
    uint64_t place;

    mutex_lock(&file->lock);
    exec = handle->current ? exec_ref(handle->current) : NULL;
    place = file->place;
    mutex_unlock(&file->lock);
    if (exec && exec_watch_output(exec, watch, EXEC_OUTPUT, place)) {
        return exec;
    }
    exec_unref(exec);
    return NULL;
}

static uint64_t exec_size_now(const struct node_ctx *ctx)
{
    struct err none = ERR_INIT;
    struct exec *exec = NULL;
    uint64_t size;

    if (session_exec_last(ctx->session, &exec, &none) < 0) {
        return 0;
    }
    size = exec_size(exec, EXEC_OUTPUT);
    exec_unref(exec);
    return size;
}

static bool exec_readable(struct file *file)
{
    struct exec_handle *handle = file->own;
    bool readable = true;

    exec_handle_follow(file);
    mutex_lock(&file->lock);
    if (handle->current) {
        readable = exec_ended(handle->current) ||
                   exec_size(handle->current, EXEC_OUTPUT) > file->place;
    }
    mutex_unlock(&file->lock);
    return readable;
}

const struct file_ops files_exec_ops = {
    .size = exec_size_now,
    .init = exec_init,
    .done = exec_handle_done,
    .open = exec_handle_open,
    .read = exec_read_file,
    .watch = exec_watch_file,
    .write = exec_write,
    .flush = exec_flush,
    .readable = exec_readable,
};
