/*
 * File operations that a command in the sandbox does: on paths outside of the
 * workspace, and on those that links or `..` lead through, where the sandbox's
 * own view is the one that counts.
 */
#include "fs/serve_priv.h"

#include "core/base64.h"
#include "core/cleanup.h"
#include "core/exec_request.h"
#include "fs/serve_exec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 4 * 1024 * 1024, /* Of a file, given to one command. */
    WORDS_MAX = 300,         /* Of what a command says of its failure. */
    CHUNK = 64 * 1024,
    PREFIX_MAX = 64,
};

#define NOT_A_FILE "not a regular file"

/* A FIFO would never come to an end, a device perhaps not either. */
#define ONLY_FILES                                                             \
    "if [ -e \"$1\" ] && [ ! -f \"$1\" ]; then "                               \
    "printf '%s: " NOT_A_FILE "\\n' \"$1\" >&2; exit 1; fi; "

/* ---- A command ---- */

static int read_all(struct exec *exec, enum exec_view view, struct buf *out,
                    struct err *err)
{
    char chunk[CHUNK];
    uint64_t offset = 0;
    ssize_t n;

    do {
        n = exec_read(exec, view, offset, chunk, sizeof(chunk), err);
        if (n > 0 && buf_add(out, chunk, (size_t)n) < 0) {
            return err_set(err, EFBIG, "it is over %zu bytes", out->cap);
        }
        offset += n > 0 ? (uint64_t)n : 0;
    } while (n > 0);
    return n < 0 ? (int)n : 0;
}

/* The errno that the words of a program are the text of. */
static int guess(const char *words)
{
    static const int known[] = {ENOENT, EACCES, EISDIR, ENOTDIR,
                                ENOSPC, EROFS,  EDQUOT, EPERM,
                                ELOOP,  EEXIST, EBUSY,  ENOTEMPTY};
    char text[128];

    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        if (strstr(words, strerror_r(known[i], text, sizeof(text)))) {
            return known[i];
        }
    }
    return strstr(words, NOT_A_FILE) ? EINVAL : EIO;
}

static int tell_failure(struct exec *exec, const struct exec_info *info,
                        struct err *err)
{
    char words[WORDS_MAX + 1] = "";
    ssize_t n;

    if (!info->has_exit_code) {
        return serve_exec_failure(info, err);
    }
    n = exec_read(exec, EXEC_STDERR, 0, words, WORDS_MAX, err);
    words[n > 0 ? n : 0] = '\0';
    words[strcspn(words, "\n")] = '\0';
    if (words[0]) {
        (void)err_set(err, guess(words), "%s", words);
    } else {
        (void)err_set(err, EIO, "a command for it ended with %d",
                      info->exit_code);
    }
    err->quotes = true;
    return -err->code;
}

static int finish(struct conn *conn, struct exec *exec,
                  const struct inside *inside, struct err *err)
{
    struct exec_info info;
    int rc = serve_exec_end(conn, exec, err);

    if (rc < 0) {
        exec_cancel(exec);
        return rc;
    }
    exec_info(exec, &info);
    if (!info.has_exit_code || info.exit_code) {
        return tell_failure(exec, &info, err);
    }
    return inside->output ? read_all(exec, EXEC_STDOUT, inside->output, err)
                          : 0;
}

static int set_input(struct js *js, const struct inside *inside,
                     struct err *err)
{
    struct buf text = BUF_INIT(EXEC_REQUEST_MAX);
    int rc = inside->input
                 ? base64_encode(inside->input, inside->input_size, &text)
                 : 0;

    if (inside->input && rc == 0) {
        js_set_bytes(js, "stdin_base64", buf_str(&text), text.size);
    }
    buf_done(&text);
    return rc < 0 ? err_set(err, -rc, "out of memory") : 0;
}

static int make_request(const struct inside *inside, struct buf *out,
                        struct err *err)
{
    struct js *argv = js_array();
    struct js *js = js_object();
    int rc = set_input(js, inside, err);

    for (size_t i = 0; inside->argv[i]; i++) {
        serve_add(argv, inside->argv[i]);
    }
    js_set(js, "argv", argv);
    js_set_bool(js, "background", true);
    if (rc < 0) {
        js_free(js);
        return rc;
    }
    return serve_exec_text(js, out, err);
}

int inside_run(struct conn *conn, const struct target *target,
               const struct inside *inside, struct err *err)
{
    struct buf request = BUF_INIT(EXEC_REQUEST_MAX);
    struct exec *exec = NULL;
    int rc = make_request(inside, &request, err);

    if (rc == 0) {
        rc = exec_submit_json(target->session, buf_str(&request), request.size,
                              &conn->caller, &exec, err);
    }
    buf_done(&request);
    if (rc == 0) {
        rc = finish(conn, exec, inside, err);
        exec_unref(exec);
    }
    return rc;
}

/* ---- Files ---- */

int inside_read(struct conn *conn, const struct target *target,
                const char *path, struct buf *out, struct err *err)
{
    const char *argv[] = {"/bin/sh", "-c", ONLY_FILES "exec cat -- \"$1\"",
                          "sh",      path, NULL};
    const struct inside inside = {.argv = argv, .output = out};

    return inside_run(conn, target, &inside, err);
}

static int write_piece(struct conn *conn, const struct target *target,
                       const char *path, const struct buf *data, size_t from,
                       struct err *err)
{
    static const char begin[] = ONLY_FILES "mkdir -p -- \"$2\" && cat >\"$1\"";
    AUTO_FREE char *parent = strdup(path);
    const char *argv[] = {"/bin/sh", "-c", from ? "cat >>\"$1\"" : begin,
                          "sh",      path, parent,
                          NULL};
    const struct inside inside = {
        .argv = argv,
        .input = buf_str(data) + from,
        .input_size = data->size - from < PIECE ? data->size - from : PIECE,
    };
    char *slash = parent ? strrchr(parent, '/') : NULL;

    if (!slash) {
        return err_no_memory(err);
    }
    slash[slash == parent] = '\0';
    return inside_run(conn, target, &inside, err);
}

int inside_write(struct conn *conn, const struct target *target,
                 const char *path, const struct buf *data, struct err *err)
{
    size_t from = 0;
    int rc;

    do {
        rc = write_piece(conn, target, path, data, from, err);
        from += PIECE;
    } while (rc == 0 && from < data->size);
    return rc;
}

int inside_make_dir(struct conn *conn, const struct target *target,
                    const char *path, struct err *err)
{
    const char *argv[] = {"mkdir", "-p", "--", path, NULL};
    const struct inside inside = {.argv = argv};

    return inside_run(conn, target, &inside, err);
}

int inside_remove(struct conn *conn, const struct target *target,
                  const char *path, struct err *err)
{
    const char *argv[] = {"rm", "-rf", "--", path, NULL};
    const struct inside inside = {.argv = argv};

    return inside_run(conn, target, &inside, err);
}

int inside_make_temp(struct conn *conn, const struct target *target,
                     const char *prefix, char **out, struct err *err)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    char template[sizeof("/tmp/.XXXXXXXXXX") + PREFIX_MAX];
    const char *argv[] = {"mktemp", "-d", template, NULL};
    struct buf path = BUF_INIT(sizeof(template));
    const struct inside inside = {.argv = argv, .output = &path};
    int rc;

    (void)snprintf(template, sizeof(template), "/tmp/%.*s.XXXXXXXXXX",
                   PREFIX_MAX, prefix);
    for (char *at = template + strlen("/tmp/"); *at; at++) {
        if (!strchr(allowed, *at)) {
            *at = '_';
        }
    }
    rc = inside_run(conn, target, &inside, err);
    if (rc == 0 && path.size > 1 && path.data[0] == '/') {
        path.data[path.size - 1] = '\0'; /* The line's end. */
        *out = TAKE_PTR(path.data);
    } else if (rc == 0) {
        rc = err_set(err, EPROTO, "mktemp gave no path");
    }
    buf_done(&path);
    return rc;
}
