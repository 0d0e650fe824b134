/* Commands by the protocol: exec and spawn. */
#include "fs/serve_priv.h"

#include "core/cleanup.h"
#include "core/exec.h"
#include "core/exec_request.h"
#include "core/json_bytes.h"
#include "fs/serve_exec.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 48 * 1024, /* Of output in one message: a multiple of three. */
    KILLED = 128,      /* An exit code above it tells a signal. */
};

/* ---- The request ---- */

/* Takes over what is there. */
static void pass(struct js *to, const struct js *params, const char *key)
{
    struct js *value = serve_get(params, key);

    if (value) {
        js_set(to, key, value);
    }
}

/* Commands do not wait for each other, as those of several processes do not;
 * only their own process waits. */
static int make_request(struct conn *conn, const struct js *params,
                        const struct target *target, bool discard,
                        struct buf *out, struct err *err)
{
    AUTO_FREE char *given = NULL;
    AUTO_FREE char *cwd = NULL;
    struct js *js;
    int rc = serve_text(conn, params, "cwd", false, &given, err);

    if (rc == 0) {
        rc = target_path(target, given ? given : target->cwd, &cwd, err);
    }
    if (rc < 0) {
        return rc;
    }
    js = js_object();
    pass(js, params, "argv");
    pass(js, params, "env");
    pass(js, params, "stdin_base64");
    serve_set(js, "cwd", cwd);
    js_set_bool(js, "background", true);
    js_set_bool(js, "discard_output", discard);
    return serve_exec_text(js, out, err);
}

static int submit(struct conn *conn, const struct js *params, bool discard,
                  struct exec **out, struct err *err)
{
    struct buf request = BUF_INIT(EXEC_REQUEST_MAX);
    struct target target;
    int rc = target_get(conn, params, &target, err);

    if (rc < 0) {
        return rc;
    }
    rc = make_request(conn, params, &target, discard, &request, err);
    if (rc == 0) {
        rc = exec_submit_json(target.session, buf_str(&request), request.size,
                              &conn->caller, out, err);
    }
    if (rc == -EINVAL) {
        conn->code = "bad_request";
    }
    buf_done(&request);
    target_done(&target);
    return rc;
}

/* ---- Events ---- */

static void set_process(struct js *js, const struct exec_info *info)
{
    char text[24];

    if (info->process_id) {
        (void)snprintf(text, sizeof(text), "%" PRId64, info->process_id);
        js_set_text(js, "process_id", text);
    }
}

static void say_started(struct conn *conn, const struct exec_info *info)
{
    struct js *event = js_object();

    js_set_text(event, "type", "started");
    set_process(event, info);
    serve_say(conn, "event", event);
}

static void say_exited(struct conn *conn, int code)
{
    struct js *event = js_object();

    js_set_text(event, "type", "exited");
    js_set_int(event, "exit_code", code);
    serve_say(conn, "event", event);
}

static void say_output(struct conn *conn, const char *stream, const char *data,
                       size_t size)
{
    char head[64];

    (void)snprintf(head, sizeof(head), "{\"type\":\"%s\",\"data_base64\":\"",
                   stream);
    serve_begin(conn, "event");
    serve_write_text(conn, head);
    serve_write_base64(conn, data, size);
    serve_write_text(conn, "\"}}\n");
}

/* ---- exec ---- */

/* What was told of each output. */
struct told {
    uint64_t out;
    uint64_t err;
};

/* Tells what has come of one; whether there was anything. */
static int tell(struct conn *conn, struct exec *exec, enum exec_view view,
                uint64_t *offset, struct err *err)
{
    char piece[PIECE];
    ssize_t n = exec_read(exec, view, *offset, piece, sizeof(piece), err);

    if (n > 0) {
        say_output(conn, view == EXEC_STDOUT ? "stdout" : "stderr", piece,
                   (size_t)n);
        *offset += (uint64_t)n;
    }
    return n < 0 ? (int)n : n > 0;
}

static int tell_both(struct conn *conn, struct exec *exec, struct told *told,
                     struct err *err)
{
    int more = tell(conn, exec, EXEC_STDOUT, &told->out, err);
    int rc = more < 0 ? more : tell(conn, exec, EXEC_STDERR, &told->err, err);

    return rc < 0 ? rc : more | rc;
}

/* Tells all output up to the command's end. */
static int follow(struct conn *conn, struct exec *exec, struct told *told,
                  struct err *err)
{
    bool ended;
    int rc;

    do {
        /* In this order: after its end nothing is missed. */
        ended = exec_ended(exec);
        do {
            rc = tell_both(conn, exec, told, err);
        } while (rc > 0 && !conn->broken);
        if (rc == 0 && !ended && !conn->broken) {
            rc = serve_exec_more(conn, exec, told->out + told->err, err);
        }
    } while (rc == 0 && !ended && !conn->broken);
    return rc;
}

/* Writes what was told once more, piece by piece: it may be long. */
static int repeat(struct conn *conn, struct exec *exec, enum exec_view view,
                  uint64_t size, struct err *err)
{
    char piece[PIECE];
    uint64_t at = 0;

    while (at < size && !conn->broken) {
        size_t most = size - at < PIECE ? (size_t)(size - at) : PIECE;
        size_t got = 0;

        while (got < most) {
            ssize_t n =
                exec_read(exec, view, at + got, piece + got, most - got, err);

            if (n <= 0) {
                return n < 0 ? (int)n : err_set(err, EIO, "output is gone");
            }
            got += (size_t)n;
        }
        serve_write_base64(conn, piece, got);
        at += got;
    }
    return 0;
}

/* Half a message cannot be taken back: the connection breaks where the output
 * cannot be read. */
static void say_result(struct conn *conn, struct exec *exec, int code,
                       const struct told *told)
{
    struct err err = ERR_INIT;
    char head[64];

    (void)snprintf(head, sizeof(head), "{\"exit_code\":%d,\"stdout_base64\":\"",
                   code);
    serve_begin(conn, "result");
    serve_write_text(conn, head);
    if (repeat(conn, exec, EXEC_STDOUT, told->out, &err) < 0) {
        conn->broken = true;
    }
    serve_write_text(conn, "\",\"stderr_base64\":\"");
    if (repeat(conn, exec, EXEC_STDERR, told->err, &err) < 0) {
        conn->broken = true;
    }
    serve_write_text(conn, "\"}}\n");
}

/* A signal's number is negative, as Python tells of processes. */
static int code_of(const struct exec_info *info)
{
    return info->status == EXEC_KILLED && info->exit_code > KILLED
               ? KILLED - info->exit_code
               : info->exit_code;
}

static int run(struct conn *conn, struct exec *exec, struct err *err)
{
    struct told told = {0, 0};
    struct exec_info info;
    int rc = serve_exec_start(conn, exec, &info, err);

    if (rc < 0) {
        return rc;
    }
    say_started(conn, &info);
    rc = follow(conn, exec, &told, err);
    if (rc < 0) {
        return rc;
    }
    exec_info(exec, &info);
    if (!info.has_exit_code && !conn->broken) {
        return serve_exec_failure(&info, err);
    }
    say_exited(conn, code_of(&info));
    say_result(conn, exec, code_of(&info), &told);
    return 0;
}

int serve_exec(struct conn *conn, const struct js *params, struct err *err)
{
    struct exec *exec = NULL;
    int rc = submit(conn, params, false, &exec, err);

    if (rc < 0) {
        return rc;
    }
    rc = run(conn, exec, err);
    if (rc < 0 || conn->broken) {
        exec_cancel(exec); /* Nobody will ever hear of its end. */
    }
    exec_unref(exec);
    return rc;
}

/* ---- spawn ---- */

int serve_spawn(struct conn *conn, const struct js *params, struct err *err)
{
    struct exec *exec = NULL;
    struct exec_info info;
    struct js *result;
    int rc = submit(conn, params, true, &exec, err);

    if (rc < 0) {
        return rc;
    }
    rc = serve_exec_start(conn, exec, &info, err);
    if (rc < 0) {
        exec_cancel(exec);
    } else {
        say_started(conn, &info);
        result = js_object();
        set_process(result, &info);
        serve_say(conn, "result", result);
    }
    exec_unref(exec);
    return rc;
}
