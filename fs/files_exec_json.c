/*
 * `exec.json`: write a request, read its answer.
 *
 * A request is queued by the write that completes its JSON. Closing the
 * handle, and reading, wait: for the command's end, or for its start where it
 * runs in the background. One that could not be run has an answer as well:
 * shells hide the error that its close gives.
 */
#include "core/exec.h"
#include "core/exec_request.h"
#include "core/session.h"
#include "fs/exec_handle.h"
#include "fs/files.h"

#include <errno.h>
#include <stdlib.h>
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

static void json_open(struct file *file, const struct caller *caller,
                      done_fn *done, void *arg)
{
    struct err err = ERR_INIT;

    if (file_writes(file)) {
        exec_handle_open(file, caller, done, arg);
    } else {
        done(arg, session_exec_refused(file->node.session, &err), &err);
    }
}

/* A request that a write has completed. */
struct asked {
    struct list link;
    struct buf json;
    struct exec *exec; /* A reference, once it is queued. */
};

static void free_asked(struct list *list)
{
    list_each_safe(at, list)
    {
        struct asked *asked = container_of(at, struct asked, link);

        list_remove(at);
        exec_unref(asked->exec);
        buf_done(&asked->json);
        free(asked);
    }
}

static int poison(struct file *file, int rc)
{
    struct exec_handle *handle = file->own;

    if (rc == -EINVAL || rc == -EFBIG) {
        mutex_lock(&file->lock);
        gather_poison(&handle->gather, -rc);
        mutex_unlock(&file->lock);
    }
    return rc;
}

/* Takes the next request of a write. */
static int take_one(struct file *file, uint64_t owner, const char *data,
                    size_t size, size_t *used, struct list *out,
                    struct err *err)
{
    struct exec_handle *handle = file->own;
    struct asked *asked = calloc(1, sizeof(*asked));
    int rc;

    if (!asked) {
        return err_no_memory(err);
    }
    buf_init(&asked->json, EXEC_REQUEST_MAX);
    mutex_lock(&file->lock);
    rc = gather_json(&handle->gather, owner, data, size, used, &asked->json,
                     err);
    mutex_unlock(&file->lock);
    list_add(out, &asked->link);
    if (rc > 0) {
        return poison(file,
                      exec_check_json(file->node.session, asked->json.data,
                                      asked->json.size, err));
    }
    list_remove(&asked->link);
    buf_done(&asked->json);
    free(asked);
    return rc;
}

static int run(struct file *file, const struct file_call *call,
               struct asked *asked, struct err *err)
{
    int rc =
        exec_submit_json(file->node.session, asked->json.data, asked->json.size,
                         &call->caller, &asked->exec, err);

    if (rc == 0) {
        exec_handle_bind(file, asked->exec);
        rc = exec_handle_pend(file, call->owner, asked->exec, err);
    }
    return rc;
}

/* All, or none: those that were queued before one that cannot be are told to
 * end. */
static int run_all(struct file *file, const struct file_call *call,
                   struct list *list, struct err *err)
{
    int rc = 0;

    list_each(at, list)
    {
        if (rc == 0) {
            rc = run(file, call, container_of(at, struct asked, link), err);
        }
    }
    list_each(at, list)
    {
        struct exec *exec = container_of(at, struct asked, link)->exec;

        if (rc < 0 && exec) {
            exec_cancel(exec);
        }
    }
    return rc;
}

/* Nothing of a write that is refused runs: first all of it is looked at. */
static int json_write(struct file *file, const struct file_call *call,
                      const void *data, size_t size, struct err *err)
{
    struct list list;
    size_t done = 0;
    int rc = 0;

    list_init(&list);
    while (done < size && rc == 0) {
        size_t used = 0;

        rc = take_one(file, call->owner, (const char *)data + done, size - done,
                      &used, &list, err);
        done += used;
    }
    if (rc == 0) {
        rc = run_all(file, call, &list, err);
    }
    free_asked(&list);
    return rc;
}

/* What is left of a process that closes is no whole request. */
static int drop_rest(struct file *file, const struct file_call *call,
                     struct err *err)
{
    struct exec_handle *handle = file->own;
    struct buf rest = BUF_INIT(EXEC_REQUEST_MAX);
    int rc;

    mutex_lock(&file->lock);
    rc = gather_take(&handle->gather, call->owner, &rest, err);
    mutex_unlock(&file->lock);
    buf_done(&rest);
    return rc > 0 ? err_set(err, EINVAL, "the JSON is incomplete") : rc;
}

static int json_flush(struct file *file, const struct file_call *call,
                      struct file_wait *out, struct err *err)
{
    int rc = drop_rest(file, call, err);

    exec_handle_take(file, call->owner, out);
    if (rc == 0 && list_empty(&out->pending)) {
        return 0;
    }
    if (!exec_handle_may_run(call, &out->brief)) {
        file_pending_done(&out->pending);
        err_clear(err);
        return 0;
    }
    if (rc < 0) {
        file_pending_done(&out->pending);
        session_exec_refuse(file->node.session, -rc);
    }
    return rc;
}

/* Makes the answer where there is one, once. The command is `current`. */
static int make_answer(struct file *file, struct exec *exec, bool ran,
                       struct err *err)
{
    struct exec_handle *handle = file->own;
    struct buf text = BUF_INIT(NODE_TEXT_MAX);
    struct exec_info info;
    bool begun;
    int rc;

    exec_info(exec, &info);
    begun = ran && info.background && info.status != EXEC_FAILED;
    rc = exec_answer(exec, info.mode, begun, &text, err);
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
    exec_handle_follow(file);
    exec_handle_seek(file, offset);
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
    if (exec_answered(exec) &&
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
    .open = json_open,
    .read = json_read,
    .watch = json_watch,
    .write = json_write,
    .flush = json_flush,
    .readable = json_readable,
};
