/*
 * changes/: what differs between two states of a workspace. Its files are
 * found by name only: `base`, a checkpoint's name, `A..B`. And the like of a
 * command.
 *
 * A text is made when its file is opened, in a thread of the session, and is
 * then the handle's.
 */
#include "core/checkpoint.h"
#include "fs/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A text that is being made. */
struct making {
    struct file *file; /* A reference. */
    struct provider_span span;
    done_fn *done;
    void *arg;
};

static void finish(struct making *making, int rc, const struct err *err)
{
    making->done(making->arg, rc, err);
    file_close(making->file);
    free(making);
}

static void take_text(struct making *making, struct buf *text, int rc,
                      const struct err *err)
{
    struct file *file = making->file;

    if (rc == 0) {
        mutex_lock(&file->lock);
        buf_done(&file->text);
        file->text = *text;
        file->shown = true;
        mutex_unlock(&file->lock);
    } else {
        buf_done(text);
    }
    finish(making, rc, err);
}

static struct making *new_making(struct file *file,
                                 const struct provider_span *span,
                                 done_fn *done, void *arg)
{
    struct making *making = malloc(sizeof(*making));
    struct err err = ERR_INIT;

    if (!making) {
        done(arg, err_no_memory(&err), &err);
        return NULL;
    }
    *making = (struct making){file_ref(file), *span, done, arg};
    return making;
}

/* ---- Against the base: as it is now ---- */

/* In a thread of the session, with its file lock. */
static void make_present(void *arg)
{
    struct making *making = arg;
    struct session *session = making->file->node.session;
    struct buf text = BUF_INIT(NODE_TEXT_MAX);
    struct err err = ERR_INIT;
    int rc = session_changes(session, &making->span, &text, &err);

    session_files_leave(session);
    take_text(making, &text, rc, &err);
}

static void entered(void *arg, int rc, struct workspace *ws,
                    const struct err *err)
{
    struct making *making = arg;
    struct session *session = making->file->node.session;
    struct err none = ERR_INIT;

    if (rc < 0) {
        finish(making, rc, err);
        return;
    }
    ws_unref(ws);
    rc = ws ? session_files_run(session, make_present, making) : 0;
    if (ws && rc == 0) {
        return;
    }
    /* Where there is no sandbox nothing has changed. */
    session_files_leave(session);
    finish(making,
           rc < 0 ? err_set(&none, -rc, "no thread for the changes") : 0,
           &none);
}

static void base_open(struct file *file, const struct caller *caller,
                      done_fn *done, void *arg)
{
    static const struct provider_span span = {.from = 0, .to = 0};
    struct making *making = new_making(file, &span, done, arg);

    if (making) {
        session_files_enter(file->node.session, SESSION_PEEK, caller, entered,
                            making);
    }
}

static ssize_t text_read(struct file *file, const struct file_call *call,
                         uint64_t offset, void *out, size_t size,
                         struct err *err)
{
    size_t n = 0;

    (void)call;
    (void)err;
    mutex_lock(&file->lock);
    if (offset < file->text.size) {
        n = file->text.size - (size_t)offset;
        n = n < size ? n : size;
        memcpy(out, file->text.data + offset, n);
    }
    mutex_unlock(&file->lock);
    return (ssize_t)n;
}

/* To know it a text would have to be made: it is that of the newest one. */
static uint64_t base_size(const struct node_ctx *ctx)
{
    return session_changes_size(ctx->session);
}

static const struct file_ops base_ops = {
    .size = base_size,
    .open = base_open,
    .read = text_read,
};

const struct node_row files_changes_rows[] = {
    {
        .name = "base",
        .id = FILES_ID_CHANGES_BASE,
        .flags = NODE_UNLISTED,
        .mode = S_IFREG | 0400,
        .ops = &base_ops,
    },
    {.name = NULL},
};

/* ---- Between checkpoints: they never change ---- */

/* In a thread of the session. */
static void make_span(void *arg)
{
    struct making *making = arg;
    struct buf text = BUF_INIT(NODE_TEXT_MAX);
    struct err err = ERR_INIT;
    int rc = checkpoint_changes(making->file->node.session, &making->span,
                                &text, &err);

    take_text(making, &text, rc, &err);
}

static void open_span(struct file *file, const struct provider_span *span,
                      done_fn *done, void *arg)
{
    struct making *making = new_making(file, span, done, arg);
    struct err err = ERR_INIT;
    int rc;

    if (!making) {
        return;
    }
    rc = span->from == span->to
             ? 1
             : session_files_run(file->node.session, make_span, making);
    if (rc > 0) { /* There is no such thing: nothing has changed. */
        finish(making, 0, &err);
    } else if (rc < 0) {
        finish(making, err_set(&err, -rc, "no thread for the changes"), &err);
    }
}

static void span_open(struct file *file, const struct caller *caller,
                      done_fn *done, void *arg)
{
    const struct provider_span span = {.from = file->node.begin,
                                       .to = file->node.exec_n};

    (void)caller;
    open_span(file, &span, done, arg);
}

static uint64_t span_size(const struct node_ctx *ctx)
{
    const struct provider_span span = {.from = ctx->begin, .to = ctx->number};

    return checkpoint_changes_size(ctx->session, &span);
}

static const struct file_ops span_ops = {
    .size = span_size,
    .open = span_open,
    .read = text_read,
};

static const struct node_row span_row = {
    .name = "A..B",
    .id = FILES_ID_CHANGES_SPAN,
    .flags = NODE_KEYED,
    .mode = S_IFREG | 0400,
    .ops = &span_ops,
};

/* `NAME` against the one before, or `A..B`. */
static int find_span(const struct node_ctx *ctx, const char *name,
                     struct node *out, struct err *err)
{
    struct checkpoint from = {.key = 0};
    struct checkpoint to;
    char first[CHECKPOINT_LABEL_SIZE];
    const char *dots = strstr(name, "..");
    int rc = checkpoint_find(ctx->session, dots ? dots + 2 : name, &to, err);

    if (rc < 0) {
        err->notable = true; /* Nothing is listed here: it was meant. */
        return rc;
    }
    if (!dots) {
        out->exec_n = to.key;
        out->begin = to.before;
        return 0;
    }
    if ((size_t)(dots - name) >= sizeof(first)) {
        return err_set(err, ENOENT, "no such checkpoint");
    }
    memcpy(first, name, (size_t)(dots - name));
    first[dots - name] = '\0';
    rc = checkpoint_find(ctx->session, first, &from, err);
    if (rc == -ENOENT && strcmp(first, "base") == 0) {
        err_clear(err);
        rc = 0;
    }
    out->exec_n = to.key;
    out->begin = from.key;
    return rc;
}

static int list_no_span(const struct node_ctx *ctx, uint64_t after,
                        bool (*fn)(void *arg, uint64_t number,
                                   const char *name),
                        void *arg, struct err *err)
{
    (void)ctx;
    (void)after;
    (void)fn;
    (void)arg;
    (void)err;
    return 0;
}

const struct node_children files_spans = {
    .row = &span_row,
    .find = find_span,
    .list = list_no_span,
};

/* ---- What a command changed ---- */

static struct provider_span command_span(struct exec *exec)
{
    struct exec_info info;

    exec_info(exec, &info);
    return (struct provider_span){.from = info.before, .to = info.checkpoint};
}

static void command_open(struct file *file, const struct caller *caller,
                         done_fn *done, void *arg)
{
    const struct provider_span span = command_span(file->exec);

    (void)caller;
    open_span(file, &span, done, arg);
}

/* Nobody read them, and the sandbox with its checkpoints is gone. */
static bool command_there(const struct node_ctx *ctx)
{
    const struct provider_span span = command_span(ctx->exec);

    return checkpoint_changes_there(ctx->session, &span);
}

static uint64_t command_size(const struct node_ctx *ctx)
{
    const struct provider_span span = command_span(ctx->exec);

    return checkpoint_changes_size(ctx->session, &span);
}

const struct file_ops files_command_changes_ops = {
    .there = command_there,
    .size = command_size,
    .open = command_open,
    .read = text_read,
};
