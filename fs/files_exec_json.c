/*
 * `exec.json`: write a request, read its answer.
 *
 * A request is queued by the write that completes its JSON. Closing the
 * handle, and reading, wait: for the command's end, or for its start where it
 * runs in the background.
 */
#include "core/exec.h"
#include "core/exec_request.h"
#include "core/session.h"
#include "fs/exec_handle.h"
#include "fs/files.h"

#include <errno.h>
#include <string.h>

static const struct gather_kind requests = {
    .name = "request",
    .bad = "what was written is no JSON object, or not a valid request",
    .max = EXEC_REQUEST_MAX,
};

static int json_init(struct file *file, struct err *err)
{
    return exec_handle_init(file, &requests, err);
}

static int run(struct file *file, const struct file_call *call,
               const struct buf *json, struct err *err)
{
    struct exec *exec = NULL;
    int rc = exec_submit_json(file->node.session, json->data, json->size,
                              &call->caller, &exec, err);

    if (rc == 0) {
        exec_handle_bind(file, exec);
        rc = exec_handle_pend(file, call->owner, exec, err);
        exec_unref(exec);
    }
    return rc;
}

static void poison(struct file *file, int rc)
{
    struct exec_handle *handle = file->own;

    if (rc == -EINVAL || rc == -EFBIG) {
        mutex_lock(&file->lock);
        gather_poison(&handle->gather, -rc);
        mutex_unlock(&file->lock);
    }
}

static int json_write(struct file *file, const struct file_call *call,
                      const void *data, size_t size, struct err *err)
{
    struct exec_handle *handle = file->own;
    const char *at = data;
    size_t done = 0;
    int rc = 0;

    while (done < size && rc >= 0) {
        struct buf json = BUF_INIT(EXEC_REQUEST_MAX);
        size_t used = 0;

        mutex_lock(&file->lock);
        rc = gather_json(&handle->gather, call->owner, at + done, size - done,
                         &used, &json, err);
        mutex_unlock(&file->lock);
        if (rc > 0) {
            rc = run(file, call, &json, err);
            poison(file, rc);
        }
        done += used;
        buf_done(&json);
    }
    return rc < 0 ? rc : 0;
}

/* What is left of a process that closes is no whole request. */
static bool drop_rest(struct file *file, const struct file_call *call)
{
    struct exec_handle *handle = file->own;
    struct buf rest = BUF_INIT(EXEC_REQUEST_MAX);
    bool something;

    mutex_lock(&file->lock);
    something = gather_take(&handle->gather, call->owner, &rest);
    mutex_unlock(&file->lock);
    buf_done(&rest);
    return something;
}

static int json_flush(struct file *file, const struct file_call *call,
                      struct file_wait *out, struct err *err)
{
    bool rest = drop_rest(file, call);

    exec_handle_take(file, call->owner, out);
    if (!rest && list_empty(&out->pending)) {
        return 0;
    }
    if (!exec_handle_may_run(call, &out->brief)) {
        file_pending_done(&out->pending);
        return 0;
    }
    if (rest) {
        file_pending_done(&out->pending);
        session_exec_refuse(file->node.session, EINVAL);
        return err_set(err, EINVAL, "the JSON is incomplete");
    }
    return 0;
}

/* Makes the answer where there is one, once. The command is `current`. */
static int make_answer(struct file *file, struct exec *exec, bool ran,
                       struct err *err)
{
    struct exec_handle *handle = file->own;
    struct buf text = BUF_INIT(NODE_TEXT_MAX);
    struct exec_info info;
    int rc = exec_handle_check(exec, err);

    exec_info(exec, &info);
    if (rc == 0) {
        rc = exec_answer(exec, info.mode, ran && info.background, &text, err);
    }
    mutex_lock(&file->lock);
    if (handle->current != exec) {
        /* Another read has gone on to a newer one. */
    } else if (rc < 0) {
        handle->at_end = true;
    } else if (!handle->answered) {
        handle->answer = text;
        handle->answered = true;
        buf_init(&text, NODE_TEXT_MAX);
    }
    mutex_unlock(&file->lock);
    buf_done(&text);
    return rc;
}

static ssize_t slice_locked(struct file *file, void *out, size_t size)
    REQUIRES(file->lock)
{
    struct exec_handle *handle = file->own;
    size_t left = handle->answer.size - (size_t)file->place;

    if (left == 0) {
        handle->at_end = true;
        return 0;
    }
    size = size < left ? size : left;
    memcpy(out, handle->answer.data + file->place, size);
    file->place += size;
    return (ssize_t)size;
}

/* Reads of the answer that is there; -EAGAIN: none is. `exec`: a reference to
 * the command that it would be about, or NULL. */
static ssize_t read_made(struct file *file, void *out, size_t size,
                         struct exec **exec, bool *ran)
{
    struct exec_handle *handle = file->own;
    ssize_t n = -EAGAIN;

    mutex_lock(&file->lock);
    *exec = handle->current ? exec_ref(handle->current) : NULL;
    *ran = handle->ran;
    if (!handle->current) {
        n = 0;
    } else if (handle->answered) {
        n = slice_locked(file, out, size);
    }
    mutex_unlock(&file->lock);
    return n;
}

static ssize_t json_read(struct file *file, const struct file_call *call,
                         uint64_t offset, void *out, size_t size,
                         struct err *err)
{
    ssize_t n = -EAGAIN;
    int rc = 0;

    (void)call;
    (void)offset;
    exec_handle_follow(file);
    while (n == -EAGAIN && rc == 0) {
        struct exec *exec = NULL;
        bool ran = false;

        n = read_made(file, out, size, &exec, &ran);
        if (n == -EAGAIN) {
            rc = exec_answered(exec) ? make_answer(file, exec, ran, err)
                                     : -EAGAIN;
        }
        exec_unref(exec);
    }
    return rc < 0 ? rc : n;
}

static struct exec *json_watch(struct file *file, struct exec_watch *watch)
{
    struct exec_handle *handle = file->own;
    struct exec *exec;

    mutex_lock(&file->lock);
    exec = handle->current ? exec_ref(handle->current) : NULL;
    mutex_unlock(&file->lock);
    if (exec && exec_watch_answer(exec, watch)) {
        return exec;
    }
    exec_unref(exec);
    return NULL;
}

static uint64_t json_size(const struct node_ctx *ctx)
{
    struct buf text = BUF_INIT(NODE_TEXT_MAX);
    struct err none = ERR_INIT;
    struct exec *exec = NULL;
    struct exec_info info;
    uint64_t size = 0;

    if (session_exec_last(ctx->session, &exec, &none) < 0) {
        return 0;
    }
    exec_info(exec, &info);
    if (exec_answered(exec) && info.status != EXEC_FAILED &&
        exec_answer(exec, info.mode, false, &text, &none) == 0) {
        size = text.size;
    }
    buf_done(&text);
    exec_unref(exec);
    return size;
}

static bool json_readable(struct file *file)
{
    struct exec_handle *handle = file->own;
    bool readable;

    exec_handle_follow(file);
    mutex_lock(&file->lock);
    readable = !handle->current || exec_answered(handle->current);
    mutex_unlock(&file->lock);
    return readable;
}

const struct file_ops files_exec_json_ops = {
    .slow = true,
    .size = json_size,
    .init = json_init,
    .done = exec_handle_done,
    .open = exec_handle_open,
    .read = json_read,
    .watch = json_watch,
    .write = json_write,
    .flush = json_flush,
    .readable = json_readable,
};
