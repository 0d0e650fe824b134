/* Requests of a connection: reading, finding the method, answering. */
#include "fs/serve_priv.h"

#include "core/cleanup.h"
#include "core/json_bytes.h"
#include "core/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int capabilities(struct conn *conn, const struct js *params,
                        struct err *err)
{
    struct js *result = js_object();

    (void)params;
    (void)err;
    js_set_bool(result, "exec", true);
    serve_say(conn, "result", result);
    return 0;
}

static int shutdown_method(struct conn *conn, const struct js *params,
                           struct err *err)
{
    (void)params;
    (void)err;
    serve_say(conn, "result", js_object());
    conn->over = true;
    return 0;
}

struct method {
    const char *name;
    serve_method_fn *run;
};

static const struct method methods[] = {
    {"capabilities", capabilities},
    {"open", serve_open},
    {"close", serve_close},
    {"cleanup_group", serve_cleanup_group},
    {"create_temp_dir", serve_create_temp_dir},
    {"create_dir_all", serve_create_dir_all},
    {"write_file", serve_write_file},
    {"read_file", serve_read_file},
    {"remove", serve_remove},
    {"exec", serve_exec},
    {"spawn", serve_spawn},
    {"shutdown", shutdown_method},
};

static const struct method *find_method(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        if (strcmp(methods[i].name, name) == 0) {
            return &methods[i];
        }
    }
    return NULL;
}

/* ---- The id ---- */

/* A text as the line will have it. */
static int set_id(struct conn *conn, const char *text, size_t size)
{
    struct buf json = BUF_INIT(SERVE_ID_MAX);
    struct js *list = js_array();
    int rc;

    js_add_bytes(list, text, size);
    rc = js_write(list, &json);
    buf_done(&conn->id);
    if (rc == 0) {
        /* Without the brackets. */
        rc = js_bytes_write(json.data + 1, json.size - 2, &conn->id);
    }
    buf_done(&json);
    js_free(list);
    return rc;
}

/* For what has no id that could be read. */
static void set_no_id(struct conn *conn)
{
    static const char unknown[] = "unknown";

    if (set_id(conn, unknown, sizeof(unknown) - 1) < 0) {
        conn->broken = true;
    }
}

/* Numbers are answered as texts; what is neither has the id of a line that
 * cannot be read. */
static void read_id(struct conn *conn, const struct js *request)
{
    struct js *id = js_is_object(request) ? serve_get(request, "id") : NULL;
    char number[24];
    const char *text = NULL;
    size_t size = 0;

    if (id && js_type(id) == JS_TEXT) {
        text = js_bytes(id, &size);
    } else if (id && js_type(id) == JS_INT) {
        size = (size_t)snprintf(number, sizeof(number), "%" PRId64, js_int(id));
        text = number;
    }
    if (!text || set_id(conn, text, size) < 0) {
        set_no_id(conn);
    }
    js_free(id);
}

/* ---- A request ---- */

static int refuse(struct conn *conn, const char *code, struct err *err,
                  const char *words)
{
    conn->code = code;
    return err_set(err, EINVAL, "%s", words);
}

/* What the client did wrong, it is told alone; so it is with a file that is not
 * there, which is an everyday answer. */
static void log_it(const struct conn *conn, const struct method *method,
                   const struct err *err)
{
    bool everyday = conn->code || conn->broken || err->code == ENOENT;
    const struct log_failure failure = {
        .op = method->name,
        .uid = conn->caller.uid,
        .pid = conn->caller.pid,
        .err = err,
    };

    log_failure(everyday ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARNING, &failure);
}

static int run(struct conn *conn, const struct method *method,
               const struct js *request, struct err *err)
{
    struct js *params = serve_get(request, "params");
    int rc;

    if (!params) {
        params = js_object();
    }
    rc = js_is_object(params)
             ? method->run(conn, params, err)
             : serve_bad_request(conn, err, "'params' must be an object");
    js_free(params);
    if (rc < 0) {
        log_it(conn, method, err);
    }
    return rc;
}

static int call(struct conn *conn, const struct js *request, struct err *err)
{
    AUTO_FREE char *name = NULL;
    const struct method *method;

    if (serve_text(conn, request, "method", true, &name, err) < 0) {
        return refuse(conn, "invalid_request", err, "'method' is no string");
    }
    method = find_method(name);
    return method
               ? run(conn, method, request, err)
               : refuse(conn, "unknown_method", err, "there is no such method");
}

static int answer(struct conn *conn, const struct js *request, struct err *err)
{
    read_id(conn, request);
    return js_is_object(request) ? call(conn, request, err)
                                 : refuse(conn, "invalid_request", err,
                                          "a request must be a JSON object");
}

static int parse(const char *line, size_t size, struct js **out,
                 struct err *err)
{
    struct buf json = BUF_INIT(size + SERVE_ODD_MAX);
    int rc = js_bytes_read(line, size, &json);

    if (rc < 0) {
        rc = err_set(err, -rc,
                     rc == -EFBIG ? "too many bytes that are no UTF-8"
                                  : "out of memory");
    } else {
        rc = js_parse(buf_str(&json), json.size, out, err);
    }
    buf_done(&json);
    return rc;
}

static void refuse_line(struct conn *conn, const struct err *err)
{
    conn->code = "invalid_request";
    set_no_id(conn);
    serve_say_error(conn, err);
}

static void take_line(struct conn *conn, const char *line, size_t size)
{
    struct err err = ERR_INIT;
    struct js *request = NULL;
    int rc = parse(line, size, &request, &err);

    if (rc < 0) {
        refuse_line(conn, &err);
        return;
    }
    conn->code = NULL;
    if (answer(conn, request, &err) < 0) {
        serve_say_error(conn, &err);
    }
    js_free(request);
}

static void refuse_long(struct conn *conn)
{
    struct err err = ERR_INIT;

    (void)err_set(&err, EFBIG, "a line of over %d bytes", SERVE_LINE_MAX);
    refuse_line(conn, &err);
}

void serve_requests(struct conn *conn)
{
    const char *line;
    size_t size;
    int rc = serve_read_line(conn, &line, &size);

    while (rc == 1 || rc == -EFBIG) {
        if (rc < 0) {
            refuse_long(conn);
        } else if (!buf_blank(line, size)) {
            take_line(conn, line, size);
        }
        if (conn->broken || conn->over) {
            return;
        }
        rc = serve_read_line(conn, &line, &size);
    }
}
