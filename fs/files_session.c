/* The files of one session, but its commands'. */
#include "core/buf.h"
#include "core/cleanup.h"
#include "core/session.h"
#include "fs/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int status_show(const struct node_ctx *ctx, struct buf *out,
                       struct err *err)
{
    enum session_status status = session_status(ctx->session);
    int rc = buf_printf(out, "%s\n", session_status_name(status));

    return rc < 0 ? err_set(err, -rc, "status") : 0;
}

static void ensure(struct session *session, const struct caller *caller,
                   done_fn *done, void *arg)
{
    session_ensure(session, true, caller, done, arg);
}

static void status_store(const struct node_ctx *ctx, const char *text,
                         done_fn *done, void *arg)
{
    static const struct {
        const char *word;
        void (*start)(struct session *, const struct caller *, done_fn *,
                      void *);
    } words[] = {
        {"running", ensure},         {"resume", ensure},
        {"paused", session_pause},   {"pause", session_pause},
        {"absent", session_destroy}, {"delete", session_destroy},
    };
    struct err err = ERR_INIT;

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (strcmp(text, words[i].word) == 0) {
            words[i].start(ctx->session, &ctx->caller, done, arg);
            return;
        }
    }
    done(arg,
         err_set(&err, EINVAL, "'%.64s' is none of running, paused and absent",
                 text),
         &err);
}

static int status_json_show(const struct node_ctx *ctx, struct buf *out,
                            struct err *err)
{
    return session_status_json(ctx->session, out, err);
}

static int error_show(const struct node_ctx *ctx, struct buf *out,
                      struct err *err)
{
    return session_errors(ctx->session, out, err);
}

/*
 * `events` loses its oldest lines. What is found by the name is then another
 * file, which begins with the first line that is kept; whoever has the former
 * one open goes on in it without noticing. So the size of each is right, and
 * none ever shrinks.
 */
static uint64_t events_begin(const struct node_ctx *ctx)
{
    return session_events_begin(ctx->session);
}

static uint64_t events_size(const struct node_ctx *ctx)
{
    return session_events_end(ctx->session) - ctx->begin;
}

/* What is left of a line that a reader has begun: it ends whatever goes. */
struct rest {
    uint64_t at;
    size_t size;
    char data[];
};

static void events_done(struct file *file)
{
    free(file->own);
}

static ssize_t read_rest(const struct rest *rest, uint64_t at, void *out,
                         size_t size)
{
    size_t left = 0;

    if (rest && at >= rest->at && at - rest->at < rest->size) {
        left = rest->size - (size_t)(at - rest->at);
    }
    size = size < left ? size : left;
    if (size) {
        memcpy(out, rest->data + (at - rest->at), size);
    }
    return (ssize_t)size;
}

/* Keeps what follows up to the end of a line; without memory there is none. */
static void keep_rest(struct file *file, uint64_t at, const char *data,
                      size_t size)
{
    const char *end = memchr(data, '\n', size);
    struct rest *rest;

    size = end ? (size_t)(end - data) + 1 : 0;
    rest = size ? malloc(sizeof(*rest) + size) : NULL;
    if (rest) {
        rest->at = at;
        rest->size = size;
        memcpy(rest->data, data, size);
    }
    free(file->own);
    file->own = rest;
}

/* Reads on to the end of the last line, which may be gone the next time. */
static ssize_t read_lines(struct file *file, uint64_t *at, char *out,
                          size_t size, struct err *err)
{
    AUTO_FREE char *data = malloc(size + SESSION_EVENT_MAX);
    ssize_t n;

    if (!data) {
        return err_no_memory(err);
    }
    n = session_events_read(file->node.session, at, data,
                            size + SESSION_EVENT_MAX, err);
    if (n > 0 && (size_t)n > size) {
        bool whole = data[size - 1] == '\n';

        keep_rest(file, *at + size, data + size, whole ? 0 : (size_t)n - size);
        n = (ssize_t)size;
    }
    if (n > 0) {
        memcpy(out, data, (size_t)n);
    }
    return n;
}

static ssize_t events_read(struct file *file, const struct file_call *call,
                           uint64_t offset, void *out, size_t size,
                           struct err *err)
{
    uint64_t at = file->node.begin + offset;
    uint64_t asked;
    ssize_t n;

    (void)call;
    mutex_lock(&file->lock);
    at += file->missed;
    asked = at;
    n = read_rest(file->own, at, out, size);
    if (n == 0 && size) {
        n = read_lines(file, &at, out, size, err);
    }
    if (n >= 0) {
        file->missed += at - asked;
        file->place = at + (uint64_t)n;
    }
    mutex_unlock(&file->lock);
    return n;
}

static bool events_readable(struct file *file)
{
    uint64_t place;

    mutex_lock(&file->lock);
    place = file->place;
    mutex_unlock(&file->lock);
    return session_events_end(file->node.session) > place;
}

static const struct file_ops events_ops = {
    .begin = events_begin,
    .size = events_size,
    .done = events_done,
    .read = events_read,
    .readable = events_readable,
};

const struct node_row files_session_rows[] = {
    {
        .name = "status",
        .id = FILES_ID_STATUS,
        .flags = NODE_NEWS,
        .mode = S_IFREG | 0600,
        .show = status_show,
        .store = status_store,
    },
    {
        .name = "status.json",
        .id = FILES_ID_STATUS_JSON,
        .flags = NODE_NEWS,
        .mode = S_IFREG | 0400,
        .show = status_json_show,
    },
    {
        .name = "config.json",
        .id = FILES_ID_CONFIG,
        .flags = NODE_NEWS,
        .mode = S_IFREG | 0600,
        .show = files_config_show,
        .ops = &files_config_ops,
    },
    [FILES_WORKSPACE_ROW] =
        {
            .name = "workspace",
            .id = FILES_ID_WORKSPACE,
            .flags = NODE_WORKSPACE | NODE_STEADY,
            .mode = S_IFDIR | 0700,
            .up = &files_session,
        },
    {
        .name = "exec",
        .id = FILES_ID_EXEC,
        .mode = S_IFREG | 0600,
        .ops = &files_exec_ops,
    },
    {
        .name = "exec.json",
        .id = FILES_ID_EXEC_JSON,
        .mode = S_IFREG | 0600,
        .ops = &files_exec_json_ops,
    },
    [FILES_EXECS_ROW] =
        {
            .name = "execs",
            .id = FILES_ID_EXECS,
            .mode = S_IFDIR | 0700,
            .up = &files_session,
            .rows = files_execs_rows,
            .children = &files_commands,
        },
    [FILES_CHANGES_ROW] =
        {
            .name = "changes",
            .id = FILES_ID_CHANGES,
            .mode = S_IFDIR | 0700,
            .up = &files_session,
            .rows = files_changes_rows,
            .children = &files_spans,
        },
    [FILES_CHECKPOINTS_ROW] =
        {
            .name = "checkpoints",
            .id = FILES_ID_CHECKPOINTS,
            .mode = S_IFDIR | 0700,
            .up = &files_session,
            .children = &files_checkpoints,
        },
    {
        .name = "checkpoints.log",
        .id = FILES_ID_CHECKPOINTS_LOG,
        .mode = S_IFREG | 0600,
        .show = files_checkpoints_show,
        .store = files_checkpoints_store,
    },
    {
        .name = "restore",
        .id = FILES_ID_RESTORE,
        .mode = S_IFREG | 0600,
        .show = files_nothing_show,
        .store = files_restore_store,
    },
    {
        .name = "fork",
        .id = FILES_ID_FORK,
        .mode = S_IFREG | 0600,
        .show = files_nothing_show,
        .store = files_fork_store,
    },
    {
        .name = "events",
        .id = FILES_ID_EVENTS,
        .mode = S_IFREG | 0400,
        .ops = &events_ops,
    },
    {
        .name = "error",
        .id = FILES_ID_ERROR,
        .mode = S_IFREG | 0400,
        .show = error_show,
    },
    {.name = NULL},
};
