/* See exec_handle.h. */
#include "fs/exec_handle.h"

#include "core/session.h"
#include "fs/task.h"

#include <fcntl.h>
#include <stdlib.h>

struct exec_handle *exec_handle_of(struct file *file)
{
    return file->own;
}

int exec_handle_init(struct file *file, const struct gather_kind *kind,
                     struct err *err)
{
    struct exec_handle *handle = calloc(1, sizeof(*handle));

    if (!handle) {
        return err_no_memory(err);
    }
    gather_init(&handle->gather, kind);
    list_init(&handle->pending);
    buf_init(&handle->answer, NODE_TEXT_MAX);
    file->own = handle;
    return 0;
}

void exec_handle_done(struct file *file)
{
    struct exec_handle *handle = file->own;

    gather_done(&handle->gather);
    file_pending_done(&handle->pending);
    exec_unref(handle->current);
    buf_done(&handle->answer);
    free(handle);
}

int exec_handle_check(struct exec *exec, struct err *err)
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
    int rc = session_exec_refused(session, err);

    if (rc < 0) {
        return rc;
    }
    if (session_exec_last(session, &exec, &none) < 0) {
        return 0;
    }
    rc = exec_handle_check(exec, err);
    exec_unref(exec);
    return rc;
}

void exec_handle_open(struct file *file, const struct caller *caller,
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

/* Makes a command the one that the handle reads, from its start. Returns the
 * one before, to be unreferenced without the lock. */
static struct exec *bind_locked(struct file *file, struct exec *exec)
    REQUIRES(file->lock)
{
    struct exec_handle *handle = file->own;
    struct exec *before = handle->current;

    handle->current = exec;
    handle->at_end = false;
    handle->answered = false;
    buf_done(&handle->answer);
    file->place = 0;
    return before;
}

void exec_handle_bind(struct file *file, struct exec *exec)
{
    struct exec_handle *handle = file->own;
    struct exec *before;

    mutex_lock(&file->lock);
    before = bind_locked(file, exec_ref(exec));
    handle->ran = true;
    mutex_unlock(&file->lock);
    exec_unref(before);
}

/* Whoever writes on and on without a close must not fill the memory. */
static void forget_answered(struct exec_handle *handle, struct list *out)
{
    list_each_safe(at, &handle->pending)
    {
        struct file_pending *pending =
            container_of(at, struct file_pending, link);
        struct exec_info info;

        exec_info(pending->exec, &info);
        if (exec_answered(pending->exec) && info.status != EXEC_FAILED) {
            list_remove(at);
            list_add(out, at);
        }
    }
}

int exec_handle_pend(struct file *file, uint64_t owner, struct exec *exec,
                     struct err *err)
{
    struct exec_handle *handle = file->own;
    struct list answered;
    int rc;

    list_init(&answered);
    mutex_lock(&file->lock);
    forget_answered(handle, &answered);
    rc = file_pending_add(&handle->pending, owner, exec, err);
    mutex_unlock(&file->lock);
    file_pending_done(&answered);
    return rc;
}

bool exec_handle_may_run(const struct file_call *call, bool *exiting)
{
    struct task task;

    task_look(call->caller.pid, &task);
    *exiting = task.exiting;
    return !task.exiting || (!task.killed && task_readable(call->caller.uid));
}

void exec_handle_take(struct file *file, uint64_t owner, struct file_wait *out)
{
    struct exec_handle *handle = file->own;

    mutex_lock(&file->lock);
    list_each_safe(at, &handle->pending)
    {
        if (container_of(at, struct file_pending, link)->owner == owner) {
            list_remove(at);
            list_add(&out->pending, at);
        }
    }
    mutex_unlock(&file->lock);
}

static bool follows(const struct exec_handle *handle)
{
    return !handle->ran && (!handle->current || handle->at_end);
}

void exec_handle_seek(struct file *file, uint64_t offset)
{
    if (offset == 0) {
        mutex_lock(&file->lock);
        file->place = 0;
        ((struct exec_handle *)file->own)->at_end = false;
        mutex_unlock(&file->lock);
    }
}

void exec_handle_follow(struct file *file)
{
    struct exec_handle *handle = file->own;
    struct err none = ERR_INIT;
    struct exec *last = NULL;
    bool follow;

    mutex_lock(&file->lock);
    follow = follows(handle);
    mutex_unlock(&file->lock);
    if (!follow || session_exec_last(file->node.session, &last, &none) < 0) {
        return;
    }
    mutex_lock(&file->lock);
    /* Another read may have begun a command meanwhile. */
    if (follows(handle) && (!handle->current || exec_number(handle->current) !=
                                                    exec_number(last))) {
        last = bind_locked(file, last);
    }
    mutex_unlock(&file->lock);
    exec_unref(last);
}
