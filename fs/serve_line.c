/* Lines of a connection. See serve_priv.h. */
#include "fs/serve_priv.h"

#include "core/base64.h"
#include "core/json_bytes.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum {
    CHUNK = 64 * 1024,
    VALUE_MAX = 1024 * 1024, /* Of what is not written piece by piece. */
};

/* ---- Reading ---- */

/* Forgets the lines that were taken. */
static void drop_taken(struct conn *conn)
{
    size_t left = conn->in.size - conn->taken;

    if (!left) {
        buf_done(&conn->in); /* It may have been a large one. */
    } else if (conn->taken) {
        memmove(conn->in.data, conn->in.data + conn->taken, left);
        conn->in.size = left;
    }
    conn->taken = 0;
}

/* Reads more; 1, 0 at the end, or a negative errno. */
static int fill(struct conn *conn)
{
    char chunk[CHUNK];
    ssize_t n;
    int rc;

    do {
        n = recv(conn->fd, chunk, sizeof(chunk), 0);
    } while (n < 0 && errno == EINTR);
    if (n <= 0) {
        return 0;
    }
    rc = buf_add(&conn->in, chunk, (size_t)n);
    if (rc == -EFBIG) {
        /* Only its end is of interest any more. */
        const char *end = memchr(chunk, '\n', (size_t)n);

        conn->too_long = true;
        buf_done(&conn->in);
        rc = end ? buf_add(&conn->in, end, (size_t)(chunk + n - end)) : 0;
    }
    return rc < 0 ? rc : 1;
}

/* Takes what lies before a line's end, or all that there is. */
static int take(struct conn *conn, size_t size, bool ended, const char **line,
                size_t *out)
{
    *line = buf_str(&conn->in);
    *out = size;
    conn->taken = size + ended;
    if (conn->too_long) {
        conn->too_long = false;
        return -EFBIG;
    }
    return 1;
}

int serve_read_line(struct conn *conn, const char **line, size_t *size)
{
    size_t seen = 0;
    int rc;

    drop_taken(conn);
    do {
        const char *from = buf_str(&conn->in);
        const char *end = memchr(from + seen, '\n', conn->in.size - seen);

        if (end) {
            return take(conn, (size_t)(end - from), true, line, size);
        }
        seen = conn->in.size;
        rc = fill(conn);
        seen = conn->in.size < seen ? 0 : seen;
    } while (rc > 0);
    return rc == 0 && (conn->in.size || conn->too_long)
               ? take(conn, conn->in.size, false, line, size)
               : rc;
}

/* ---- Writing ---- */

void serve_write(struct conn *conn, const void *data, size_t size)
{
    const char *at = data;

    while (size && !conn->broken) {
        ssize_t n = send(conn->fd, at, size, MSG_NOSIGNAL);

        if (n >= 0) {
            at += n;
            size -= (size_t)n;
        } else if (errno != EINTR) {
            conn->broken = true;
        }
    }
}

void serve_write_text(struct conn *conn, const char *text)
{
    serve_write(conn, text, strlen(text));
}

void serve_begin(struct conn *conn, const char *what)
{
    serve_write_text(conn, "{\"id\":");
    serve_write(conn, buf_str(&conn->id), conn->id.size);
    serve_write_text(conn, ",\"");
    serve_write_text(conn, what);
    serve_write_text(conn, "\":");
}

void serve_write_base64(struct conn *conn, const void *data, size_t size)
{
    const char *at = data;

    while (size) {
        struct buf text = BUF_INIT(2 * (size_t)CHUNK);
        size_t n = size < CHUNK / 3 * 3 ? size : CHUNK / 3 * 3;

        if (base64_encode(at, n, &text) < 0) {
            conn->broken = true; /* Half a text is worse than none. */
        }
        serve_write(conn, buf_str(&text), text.size);
        buf_done(&text);
        at += n;
        size -= n;
    }
}

void serve_say(struct conn *conn, const char *what, struct js *value)
{
    struct buf json = BUF_INIT(VALUE_MAX);
    struct buf text = BUF_INIT(VALUE_MAX); /* It never grows. */

    if (js_write(value, &json) < 0 ||
        js_bytes_write(buf_str(&json), json.size, &text) < 0) {
        conn->broken = true;
    }
    serve_begin(conn, what);
    serve_write(conn, buf_str(&text), text.size);
    serve_write_text(conn, "}\n");
    buf_done(&json);
    buf_done(&text);
    js_free(value);
}

/* Whether to try again makes sense. */
static bool passes(int code)
{
    return code == EAGAIN || code == ETIMEDOUT || code == ENOTCONN ||
           code == EBUSY || code == EHOSTDOWN || code == EINPROGRESS;
}

/* As Python tells of failures, whom clients know: "[Errno 2] words", and the
 * error's own text in any case. */
static void set_message(struct js *js, const struct err *err)
{
    struct buf words = BUF_INIT(4 * (size_t)ERR_MSG_SIZE);
    char text[128];
    const char *name = strerror_r(err->code, text, sizeof(text));
    bool told = strstr(err->msg, name) != NULL;

    if (buf_printf(&words, "[Errno %d] %s%s%s", err->code, told ? "" : name,
                   told ? "" : ": ", err->msg) < 0) {
        js_set_text(js, "message", err->msg);
    } else {
        serve_set(js, "message", buf_str(&words));
    }
    buf_done(&words);
}

void serve_say_error(struct conn *conn, const struct err *err)
{
    struct js *js = js_object();

    js_set_text(js, "code", conn->code ? conn->code : "provider_failure");
    if (conn->code) {
        serve_set(js, "message", err->msg); /* About what was asked for. */
    } else {
        set_message(js, err);
    }
    js_set_bool(js, "retryable", passes(err->code));
    serve_say(conn, "error", js);
}
