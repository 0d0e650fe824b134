/* What requests say. See serve_priv.h. */
#include "fs/serve_priv.h"

#include "core/base64.h"
#include "core/cleanup.h"
#include "core/json_bytes.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int serve_bad_request(struct conn *conn, struct err *err, const char *fmt, ...)
{
    va_list va;

    conn->code = "bad_request";
    err->code = EINVAL;
    va_start(va, fmt);
    (void)vsnprintf(err->msg, sizeof(err->msg), fmt, va);
    va_end(va);
    return -EINVAL;
}

struct js *serve_get(const struct js *js, const char *key)
{
    struct js *value = js_get(js, key);

    if (value && js_type(value) == JS_NULL) {
        js_free(value);
        value = NULL;
    }
    return value;
}

/* A member that is a text, or missing. */
static int get_text(struct conn *conn, const struct js *js, const char *key,
                    bool needed, struct js **out, struct err *err)
{
    struct js *value = serve_get(js, key);

    if (value && js_type(value) != JS_TEXT) {
        js_free(value);
        return serve_bad_request(conn, err, "'%s' must be a string", key);
    }
    if (!value && needed) {
        return serve_bad_request(conn, err, "'%s' is missing", key);
    }
    *out = value;
    return 0;
}

int serve_text(struct conn *conn, const struct js *js, const char *key,
               bool needed, char **out, struct err *err)
{
    struct buf bytes = BUF_INIT(SERVE_LINE_MAX);
    struct js *value = NULL;
    const char *text;
    size_t size;
    int rc = get_text(conn, js, key, needed, &value, err);

    *out = NULL;
    if (rc < 0 || !value) {
        return rc;
    }
    text = js_bytes(value, &size);
    rc = js_bytes_take(text, size, &bytes);
    if (rc == 0) {
        rc = buf_add(&bytes, "", 0);
    }
    js_free(value);
    if (rc < 0) {
        buf_done(&bytes);
        return err_set(err, -rc, "out of memory");
    }
    if (strlen(bytes.data) != bytes.size) {
        buf_done(&bytes);
        return serve_bad_request(conn, err, "'%s' holds a NUL byte", key);
    }
    *out = bytes.data;
    return 0;
}

int serve_base64(struct conn *conn, const struct js *js, const char *key,
                 struct buf *out, struct err *err)
{
    struct js *value = NULL;
    const char *text;
    size_t size;
    int rc = get_text(conn, js, key, true, &value, err);

    if (rc < 0) {
        return rc;
    }
    text = js_bytes(value, &size);
    rc = base64_decode(text, size, out);
    js_free(value);
    if (rc == -EINVAL) {
        return serve_bad_request(conn, err, "'%s' is no base64", key);
    }
    return rc < 0 ? err_set(err, -rc, "'%s' is over %zu bytes", key, out->cap)
                  : 0;
}

int serve_object(struct conn *conn, const struct js *js, const char *key,
                 struct js **out, struct err *err)
{
    struct js *value = serve_get(js, key);

    if (!value || !js_is_object(value)) {
        js_free(value);
        return serve_bad_request(conn, err, "'%s' must be an object", key);
    }
    *out = value;
    return 0;
}

/* Without memory it is no text, and the value says so when it is written. */
static const char *give(const char *bytes, struct buf *out)
{
    return js_bytes_give(bytes, strlen(bytes), out) < 0 ? NULL : buf_str(out);
}

void serve_add(struct js *js, const char *bytes)
{
    struct buf text = BUF_INIT(3 * strlen(bytes));
    const char *given = give(bytes, &text);

    js_add_bytes(js, given, text.size);
    buf_done(&text);
}

void serve_set(struct js *js, const char *key, const char *bytes)
{
    struct buf text = BUF_INIT(3 * strlen(bytes));
    const char *given = give(bytes, &text);

    js_set_bytes(js, key, given, text.size);
    buf_done(&text);
}
