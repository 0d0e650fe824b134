/*
 * `exec`: write a script, read its output.
 *
 * A handle has what its processes gathered, the command it reads, and a place
 * in that command's output. One that never ran a command reads the session's
 * last one.
 */
#include "core/exec.h"
#include "core/session.h"
#include "fs/files.h"
#include "fs/gather.h"
#include "fs/task.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

struct handle {
    /* All by file->lock. */
    struct gather gather;
    struct exec *current; /* A reference, or NULL. */
    bool ran;             /* current was written through this handle. */
    bool at_end;          /* Its end has been told. */
};

static int exec_init(struct file *file, struct err *err)
{
    struct handle *handle = calloc(1, sizeof(*handle));

    if (!handle) {
        return err_set(err, ENOMEM, "out of memory");
    }
    gather_init(&handle->gather, EXEC_SCRIPT_MAX);
    file->own = handle;
    return 0;
}

static void exec_done(struct file *file)
{
    struct handle *handle = file->own;

    gather_done(&handle->gather);
    exec_unref(handle->current);
    free(handle);
}

/* A reader is told that a command could not be run: shells hide the error
 * that its close gave. */
static int check_failed(struct exec *exec, struct err *err)
{
    struct exec_info info;

    exec_info(exec, &info);
    if (info.status != EXEC_FAILED) {
        return 0;
    }
    *err = info.err;
    return err_wrap(err, -info.err.code, "command %llu",
                    (unsigned long long)info.n);
}

static int check_last(struct session *session, struct err *err)
{
    struct err none = ERR_INIT;
    struct exec *exec = NULL;
    int rc;

    if (session_exec_last(session, &exec, &none) < 0) {
        return 0;
    }
    rc = check_failed(exec, err);
    exec_unref(exec);
    return rc;
}

static void exec_open(struct file *file, const struct caller *caller,
                      done_fn *done, void *arg)
{
    struct session *session = file->node.session;
    struct err err = ERR_INIT;

    if (!file_writes(file)) {
        done(arg, check_last(session, &err), &err);
    } else if (file->flags & O_NONBLOCK) {
        done(arg, 0, &err);
    } else {
        session_ensure(session, false, caller, done, arg);
    }
}

static int exec_write(struct file *file, const struct file_call *call,
                      const void *data, size_t size, struct err *err)
{
    struct handle *handle = file->own;
    int rc;

    mutex_lock(&file->lock);
    rc = gather_add(&handle->gather, call->owner, data, size, err);
    mutex_unlock(&file->lock);
    return rc;
}

/* Makes a command the one that the handle reads, from its start. Returns the
 * one before, to be unreferenced without the lock. */
static struct exec *bind_locked(struct file *file, struct exec *exec)
    REQUIRES(file->lock)
{
    struct handle *handle = file->own;
    struct exec *before = handle->current;

    handle->current = exec;
    handle->at_end = false;
    file->place = 0;
    return before;
}

/* Runs a script; out: the command, one more reference. */
static int run(struct file *file, const struct file_call *call,
               const struct buf *script, struct exec **out, struct err *err)
{
    struct handle *handle = file->own;
    struct exec *exec = NULL;
    struct exec *before;
    int rc = exec_submit(file->node.session, script->data, script->size,
                         &call->caller, &exec, err);

    if (rc < 0) {
        return rc;
    }
    *out = exec_ref(exec);
    mutex_lock(&file->lock);
    before = bind_locked(file, exec);
    handle->ran = true;
    mutex_unlock(&file->lock);
    exec_unref(before);
    return 0;
}

/* A killed writer leaves nothing to run; nor does one that exits and whose
 * exit code we may not see. */
static bool may_run(const struct file_call *call, bool *exiting)
{
    struct task task;

    task_look(call->caller.pid, &task);
    *exiting = task.exiting;
    return !task.exiting || (!task.killed && task_readable(call->caller.uid));
}

static int exec_flush(struct file *file, const struct file_call *call,
                      struct file_wait *out, struct err *err)
{
    struct handle *handle = file->own;
    struct buf script = BUF_INIT(EXEC_SCRIPT_MAX);
    bool exiting = false;
    bool something;
    int rc = 0;

    mutex_lock(&file->lock);
    something = gather_take(&handle->gather, call->owner, &script);
    mutex_unlock(&file->lock);
    if (something && may_run(call, &exiting)) {
        rc = run(file, call, &script, &out->exec, err);
        out->brief = exiting;
    }
    buf_done(&script);
    return rc;
}

static int run_gathered(struct file *file, const struct file_call *call,
                        struct err *err)
{
    struct handle *handle = file->own;
    struct buf script = BUF_INIT(EXEC_SCRIPT_MAX);
    struct exec *exec = NULL;
    bool something;
    int rc = 0;

    mutex_lock(&file->lock);
    something = gather_take(&handle->gather, call->owner, &script);
    mutex_unlock(&file->lock);
    if (something) {
        rc = run(file, call, &script, &exec, err);
        exec_unref(exec);
    }
    buf_done(&script);
    return rc;
}

/* Where the handle has no command of its own and has told the last one's end,
 * it goes on with a newer one. */
static void follow_last(struct file *file)
{
    struct handle *handle = file->own;
    struct err none = ERR_INIT;
    struct exec *last = NULL;
    bool follow;

    mutex_lock(&file->lock);
    follow = !handle->ran && (!handle->current || handle->at_end);
    mutex_unlock(&file->lock);
    if (!follow || session_exec_last(file->node.session, &last, &none) < 0) {
        return;
    }
    mutex_lock(&file->lock);
    if (!handle->ran && (!handle->current ||
                         exec_number(handle->current) != exec_number(last))) {
        last = bind_locked(file, last);
    }
    mutex_unlock(&file->lock);
    exec_unref(last);
}

static ssize_t read_locked(struct file *file, void *out, size_t size,
                           struct err *err) REQUIRES(file->lock)
{
    struct handle *handle = file->own;
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
        n = check_failed(handle->current, err);
    }
    return n;
}

/* Ignores the offset: a handle keeps its own place. */
static ssize_t exec_read_file(struct file *file, const struct file_call *call,
                              uint64_t offset, void *out, size_t size,
                              struct err *err)
{
    ssize_t n;
    int rc = run_gathered(file, call, err);

    (void)offset;
    if (rc < 0) {
        return rc;
    }
    follow_last(file);
    mutex_lock(&file->lock);
    n = read_locked(file, out, size, err);
    mutex_unlock(&file->lock);
    return n;
}

static struct exec *exec_watch_file(struct file *file, struct exec_watch *watch)
{
    struct handle *handle = file->own;
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
    struct handle *handle = file->own;
    bool readable = true;

    follow_last(file);
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
    .done = exec_done,
    .open = exec_open,
    .read = exec_read_file,
    .watch = exec_watch_file,
    .write = exec_write,
    .flush = exec_flush,
    .readable = exec_readable,
};
