/*
 * changes/: what differs between two states of a workspace. Its files are
 * found by name only.
 *
 * A text is made when its file is opened, in a thread of the session, and is
 * then the handle's.
 */
#include "core/session.h"
#include "fs/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A text that is being made. */
struct making {
    struct file *file; /* A reference. */
    done_fn *done;
    void *arg;
};

static void finish(struct making *making, int rc, const struct err *err)
{
    making->done(making->arg, rc, err);
    file_close(making->file);
    free(making);
}

/* In a thread of the session, with its file lock. */
static void make_text(void *arg)
{
    static const struct provider_span span = {.from = 0, .to = 0};
    struct making *making = arg;
    struct file *file = making->file;
    struct buf text = BUF_INIT(NODE_TEXT_MAX);
    struct err err = ERR_INIT;
    int rc = session_changes(file->node.session, &span, &text, &err);

    session_files_leave(file->node.session);
    if (rc == 0) {
        mutex_lock(&file->lock);
        buf_done(&file->text);
        file->text = text;
        file->shown = true;
        mutex_unlock(&file->lock);
    } else {
        buf_done(&text);
    }
    finish(making, rc, &err);
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
    rc = ws ? session_files_run(session, make_text, making) : 0;
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
    struct making *making = malloc(sizeof(*making));
    struct err err = ERR_INIT;

    if (!making) {
        done(arg, err_set(&err, ENOMEM, "out of memory"), &err);
        return;
    }
    *making = (struct making){file_ref(file), done, arg};
    session_files_enter(file->node.session, SESSION_LOOK, caller, entered,
                        making);
}

static ssize_t base_read(struct file *file, const struct file_call *call,
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
    .read = base_read,
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
