/*
 * Files by the protocol. What lies below the workspace without a link or `..`
 * on the way is reached directly; for all else a command in the sandbox does
 * the work, see serve_inside.c.
 */
#include "fs/serve_place.h"

#include "core/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    CHUNK = 256 * 1024,
    FILE_MODE = 0644,
};

static int answer_nothing(struct conn *conn, const struct asked *asked, int rc,
                          struct err *err)
{
    if (rc < 0) {
        return err_wrap(err, rc, "'%.300s'", asked->given);
    }
    serve_say(conn, "result", js_object());
    return 0;
}

/* ---- read_file ---- */

static int read_node(struct conn *conn, struct ws_node *node, struct buf *out,
                     struct err *err)
{
    AUTO_FREE char *chunk = malloc(CHUNK);
    struct ws_ctx ctx = serve_ctx(conn);
    struct ws_file *file = NULL;
    ssize_t n = 1;
    int rc = chunk ? ws_open(node, O_RDONLY | O_NONBLOCK, &ctx, &file, err)
                   : err_no_memory(err);

    if (rc < 0) {
        return rc;
    }
    while (n > 0) {
        ctx = serve_ctx(conn);
        n = ws_read(file, chunk, CHUNK, (off_t)out->size, &ctx, err);
        if (n > 0 && buf_add(out, chunk, (size_t)n) < 0) {
            n = err_set(err, EFBIG, "it is over %zu bytes", out->cap);
        }
    }
    ws_close(file);
    return (int)n;
}

static int check_regular(const struct place *place, struct err *err)
{
    if (!place->node) {
        return err_set(err, ENOENT, "No such file or directory");
    }
    if (S_ISDIR(place->attr.st_mode)) {
        return err_set(err, EISDIR, "Is a directory");
    }
    return S_ISREG(place->attr.st_mode)
               ? 0
               : err_set(err, EINVAL, "it is not a regular file");
}

static int read_below(struct conn *conn, struct asked *asked, struct buf *out,
                      struct err *err)
{
    struct place place;
    int rc = place_enter(conn, asked, SESSION_READ, false, &place, err);

    if (rc < 0) {
        return rc;
    }
    rc = place.node && S_ISLNK(place.attr.st_mode) ? BY_COMMAND
                                                   : check_regular(&place, err);
    if (rc == 0) {
        rc = read_node(conn, place.node, out, err);
    }
    place_leave(asked, &place);
    return rc;
}

int serve_read_file(struct conn *conn, const struct js *params, struct err *err)
{
    struct buf data = BUF_INIT(SERVE_FILE_MAX);
    struct asked asked;
    int rc = asked_get(conn, params, &asked, err);

    if (rc < 0) {
        return rc;
    }
    rc = read_below(conn, &asked, &data, err);
    if (rc == BY_COMMAND) {
        rc = inside_read(conn, &asked.target, asked.path, &data, err);
    }
    if (rc < 0) {
        (void)err_wrap(err, rc, "'%.300s'", asked.given);
    } else {
        serve_begin(conn, "result");
        serve_write_text(conn, "{\"content_base64\":\"");
        serve_write_base64(conn, buf_str(&data), data.size);
        serve_write_text(conn, "\"}}\n");
    }
    buf_done(&data);
    asked_done(&asked);
    return rc;
}

/* ---- write_file ---- */

static int write_all(struct conn *conn, struct ws_file *file,
                     const struct buf *data, struct err *err)
{
    struct ws_ctx ctx = serve_ctx(conn);
    size_t at = 0;

    while (at < data->size) {
        size_t size = data->size - at < CHUNK ? data->size - at : CHUNK;
        ssize_t n;

        ctx = serve_ctx(conn);
        n = ws_write(file, data->data + at, size, (off_t)at, &ctx, err);
        if (n <= 0) {
            return n < 0 ? (int)n : err_set(err, ENOSPC, "no room for it");
        }
        at += (size_t)n;
    }
    ctx = serve_ctx(conn);
    return ws_flush(file, &ctx, err);
}

/* The new file has the mode and owner of the one that it replaces. */
static int keep_attr(struct ws_node *node, struct ws_file *file,
                     const struct place *place, const struct stat *attr,
                     const struct ws_ctx *ctx, struct err *err)
{
    struct stat now;
    unsigned mask = PROVIDER_ATTR_MODE;

    if (attr->st_uid != place->attr.st_uid ||
        attr->st_gid != place->attr.st_gid) {
        mask |= PROVIDER_ATTR_UID | PROVIDER_ATTR_GID;
    }
    return ws_setattr(node, file, mask, &place->attr, ctx, &now, err);
}

/* Readers see the old content or the new, and a failure leaves the old. */
static int replace(struct conn *conn, const struct place *place,
                   const struct buf *data, struct err *err)
{
    struct ws_ctx ctx = serve_ctx(conn);
    struct ws_node *node = NULL;
    struct ws_file *file = NULL;
    struct err ignored = ERR_INIT;
    struct stat attr;
    char name[32];
    unsigned tag;
    int rc;

    if (getrandom(&tag, sizeof(tag), 0) != (ssize_t)sizeof(tag)) {
        return err_errno(err, "make a name");
    }
    (void)snprintf(name, sizeof(name), ".sessionfs-%08x", tag);
    rc = ws_create(place->dir, name, FILE_MODE, O_WRONLY | O_EXCL, &ctx, &node,
                   &file, &attr, err);
    if (rc < 0) {
        return rc;
    }
    rc = write_all(conn, file, data, err);
    ctx = serve_ctx(conn);
    if (rc == 0 && place->node) {
        rc = keep_attr(node, file, place, &attr, &ctx, err);
    }
    ws_close(file);
    if (rc == 0) {
        rc = ws_rename(place->dir, name, place->dir, place->name, 0, &ctx, err);
    }
    if (rc < 0) {
        ctx = serve_ctx(conn);
        (void)!ws_unlink(place->dir, name, &ctx, &ignored);
    }
    ws_node_unref(node);
    return rc;
}

static int write_below(struct conn *conn, struct asked *asked,
                       const struct buf *data, struct err *err)
{
    struct place place;
    int rc = place_enter(conn, asked, SESSION_GROW, true, &place, err);

    if (rc < 0) {
        return rc;
    }
    if (place.node && S_ISLNK(place.attr.st_mode)) {
        rc = BY_COMMAND;
    } else if (place.node) {
        rc = check_regular(&place, err);
    }
    if (rc == 0) {
        rc = replace(conn, &place, data, err);
    }
    place_leave(asked, &place);
    return rc;
}

int serve_write_file(struct conn *conn, const struct js *params,
                     struct err *err)
{
    struct buf data = BUF_INIT(SERVE_FILE_MAX);
    struct asked asked;
    int rc = serve_base64(conn, params, "content_base64", &data, err);

    if (rc == 0) {
        rc = asked_get(conn, params, &asked, err);
    }
    if (rc < 0) {
        buf_done(&data);
        return rc;
    }
    rc = write_below(conn, &asked, &data, err);
    if (rc == BY_COMMAND) {
        rc = inside_write(conn, &asked.target, asked.path, &data, err);
    }
    rc = answer_nothing(conn, &asked, rc, err);
    buf_done(&data);
    asked_done(&asked);
    return rc;
}

/* ---- create_dir_all ---- */

static int make_below(struct conn *conn, struct asked *asked, struct err *err)
{
    struct place place;
    int rc = place_enter(conn, asked, SESSION_GROW, true, &place, err);

    if (rc == 0) {
        rc = place_descend(conn, true, &place, err);
        place_leave(asked, &place);
    }
    return rc;
}

int serve_create_dir_all(struct conn *conn, const struct js *params,
                         struct err *err)
{
    struct asked asked;
    int rc = asked_get(conn, params, &asked, err);

    if (rc < 0) {
        return rc;
    }
    rc = make_below(conn, &asked, err);
    if (rc == BY_COMMAND) {
        rc = inside_make_dir(conn, &asked.target, asked.path, err);
    }
    rc = answer_nothing(conn, &asked, rc, err);
    asked_done(&asked);
    return rc;
}

/* ---- remove ---- */

/* A link goes itself, and not what it leads to. */
static int remove_place(struct conn *conn, const struct place *place,
                        struct err *err)
{
    struct ws_ctx ctx = serve_ctx(conn);
    int rc;

    if (!place->dir) {
        return err_set(err, EBUSY, "it is the workspace itself");
    }
    if (!place->node) {
        return 0;
    }
    rc = S_ISDIR(place->attr.st_mode)
             ? ws_rmdir(place->dir, place->name, &ctx, err)
             : ws_unlink(place->dir, place->name, &ctx, err);
    return rc == -ENOTEMPTY ? BY_COMMAND : rc;
}

static int remove_below(struct conn *conn, struct asked *asked, struct err *err)
{
    struct place place;
    int rc = place_enter(conn, asked, SESSION_WRITE, false, &place, err);

    if (rc == 0) {
        rc = remove_place(conn, &place, err);
        place_leave(asked, &place);
    }
    if (rc == -ENOENT || rc == -ENOTDIR) {
        err_clear(err);
        rc = 0; /* It is not there. */
    }
    return rc;
}

/* A slash at the end would lead through a link. */
static void trim(char *path)
{
    size_t len = strlen(path);

    while (len > 1 && path[len - 1] == '/') {
        path[--len] = '\0';
    }
}

int serve_remove(struct conn *conn, const struct js *params, struct err *err)
{
    struct asked asked;
    int rc = asked_get(conn, params, &asked, err);

    if (rc < 0) {
        return rc;
    }
    rc = remove_below(conn, &asked, err);
    if (rc == BY_COMMAND) {
        trim(asked.path);
        rc = inside_remove(conn, &asked.target, asked.path, err);
    }
    rc = answer_nothing(conn, &asked, rc, err);
    asked_done(&asked);
    return rc;
}

/* ---- create_temp_dir ---- */

int serve_create_temp_dir(struct conn *conn, const struct js *params,
                          struct err *err)
{
    AUTO_FREE char *prefix = NULL;
    AUTO_FREE char *path = NULL;
    struct target target;
    struct js *result;
    int rc = serve_text(conn, params, "prefix", true, &prefix, err);

    if (rc == 0) {
        rc = target_get(conn, params, &target, err);
    }
    if (rc < 0) {
        return rc;
    }
    rc = inside_make_temp(conn, &target, prefix, &path, err);
    target_done(&target);
    if (rc < 0) {
        return err_wrap(err, rc, "cannot make a directory in /tmp");
    }
    result = js_object();
    serve_set(result, "path", path);
    serve_say(conn, "result", result);
    return 0;
}
