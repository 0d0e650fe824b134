/*
 * Request lines of sandbox.v1, up to where core is asked: the functions of
 * core that a request leads to know no session but one. Each answer must be a
 * line that a client can read.
 */
#include "tests/fuzz/fuzz.h"

#include "core/exec.h"
#include "core/exec_request.h"
#include "core/json_bytes.h"
#include "fs/serve_priv.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    ROOM = 64 * 1024 /* Of requests: the socket holds them and the answers. */
};

/* ---- In place of core ---- */

int __wrap_registry_find(struct registry *registry, const char *id,
                         struct session **out, struct err *err);
int __wrap_registry_load(struct registry *registry, uint64_t number,
                         struct session **out, struct err *err);
int __wrap_registry_new_by(struct registry *registry,
                           const struct registry_order *order, bool *lacks,
                           struct session **out, struct err *err);
int __wrap_registry_check_place(const struct registry *registry,
                                const char *path, struct err *err);
int __wrap_registry_remove(struct registry *registry, const char *id,
                           struct err *err);
int __wrap_registry_each(struct registry *registry, uint64_t after,
                         bool (*fn)(void *arg, uint64_t number, const char *id),
                         void *arg, struct err *err);
int __wrap_serve_destroy(struct conn *conn, struct session *session,
                         struct err *err);
int __wrap_serve_enter(struct conn *conn, struct session *session,
                       enum session_need need, struct workspace **ws,
                       struct err *err);
int __wrap_exec_submit_json(struct session *session, const char *json,
                            size_t size, const struct caller *caller,
                            struct exec **out, struct err *err);
int __wrap_session_workspace_path(struct session *session, char **out,
                                  struct err *err);
int64_t __wrap_session_created_us(const struct session *session);
bool __wrap_session_gone(struct session *session);
void __wrap_session_id(struct session *session, char out[SESSION_ID_SIZE]);
void __wrap_session_unref(struct session *session);
void __wrap_session_cancel_all(struct session *session);

int __wrap_registry_find(struct registry *registry, const char *id,
                         struct session **out, struct err *err)
{
    (void)registry;
    *out = NULL;
    return strcmp(id, "s") == 0 ? 0 : err_set(err, ENOENT, "no '%s'", id);
}

int __wrap_registry_load(struct registry *registry, uint64_t number,
                         struct session **out, struct err *err)
{
    (void)registry;
    *out = NULL;
    return number == 1 ? 0 : err_set(err, ENOENT, "no session");
}

int __wrap_registry_new_by(struct registry *registry,
                           const struct registry_order *order, bool *lacks,
                           struct session **out, struct err *err)
{
    (void)registry;
    (void)lacks;
    (void)out;
    DEMAND(order->base[0] == '/' && strlen(order->id) < SESSION_ID_SIZE);
    return err_set(err, ENOENT, "there is no profile '%s'", order->profile);
}

int __wrap_registry_check_place(const struct registry *registry,
                                const char *path, struct err *err)
{
    (void)registry;
    DEMAND(path[0] == '/');
    return strcmp(path, "/proc") == 0 ? err_set(err, EINVAL, "not there") : 0;
}

int __wrap_registry_remove(struct registry *registry, const char *id,
                           struct err *err)
{
    (void)registry;
    (void)id;
    (void)err;
    return 0;
}

int __wrap_registry_each(struct registry *registry, uint64_t after,
                         bool (*fn)(void *arg, uint64_t number, const char *id),
                         void *arg, struct err *err)
{
    (void)registry;
    (void)after;
    (void)fn;
    (void)arg;
    (void)err;
    return 0;
}

int __wrap_serve_destroy(struct conn *conn, struct session *session,
                         struct err *err)
{
    (void)conn;
    (void)session;
    (void)err;
    return 0;
}

int __wrap_serve_enter(struct conn *conn, struct session *session,
                       enum session_need need, struct workspace **ws,
                       struct err *err)
{
    (void)conn;
    (void)session;
    (void)need;
    (void)ws;
    return err_set(err, ENOENT, "no sandbox");
}

/* What the server makes of a request is one that core takes, or the client's
 * own fault. */
int __wrap_exec_submit_json(struct session *session, const char *json,
                            size_t size, const struct caller *caller,
                            struct exec **out, struct err *err)
{
    struct exec_request request;
    int rc = exec_request_parse(json, size, &request, err);

    (void)session;
    (void)caller;
    (void)out;
    DEMAND_ERR(rc, err);
    if (rc == 0) {
        exec_request_done(&request);
        rc = err_set(err, ESTALE, "it is lost");
    }
    return rc;
}

int __wrap_session_workspace_path(struct session *session, char **out,
                                  struct err *err)
{
    (void)session;
    (void)err;
    *out = strdup("/workspace");
    return 0;
}

int64_t __wrap_session_created_us(const struct session *session)
{
    (void)session;
    return 0;
}

bool __wrap_session_gone(struct session *session)
{
    (void)session;
    return true;
}

void __wrap_session_id(struct session *session, char out[SESSION_ID_SIZE])
{
    (void)session;
    (void)snprintf(out, SESSION_ID_SIZE, "s");
}

void __wrap_session_unref(struct session *session)
{
    (void)session;
}

void __wrap_session_cancel_all(struct session *session)
{
    (void)session;
}

/* ---- The target ---- */

static void check_line(const char *line, size_t size)
{
    struct buf json = BUF_INIT(12 * (size + 1));
    struct err err = ERR_INIT;
    struct js *js = NULL;
    struct js *code;
    struct js *error;

    DEMAND(js_bytes_read(line, size, &json) == 0);
    DEMAND(js_parse(buf_str(&json), json.size, &js, &err) == 0);
    error = js_get(js, "error");
    code = error ? js_get(error, "code") : NULL;
    DEMAND(js_text(js, "id"));
    DEMAND(!error || (code && js_type(code) == JS_TEXT));
    js_free(code);
    js_free(error);
    js_free(js);
    buf_done(&json);
}

static void check_answers(int fd)
{
    struct buf all = BUF_INIT(SIZE_MAX);
    char data[4096];
    const char *at;
    const char *end;
    ssize_t n;

    while ((n = recv(fd, data, sizeof(data), MSG_DONTWAIT)) > 0) {
        DEMAND(buf_add(&all, data, (size_t)n) == 0);
    }
    at = buf_str(&all);
    while ((end = memchr(at, '\n', all.size - (size_t)(at - buf_str(&all))))) {
        check_line(at, (size_t)(end - at));
        at = end + 1;
    }
    DEMAND(!*at);
    buf_done(&all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct server server;
    struct conn conn = {.server = &server};
    int room = 8 * 1024 * 1024;
    int fds[2];

    if (size > ROOM) {
        return 0;
    }
    server.stop = (struct cancel)CANCEL_NEVER;
    DEMAND(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    (void)setsockopt(fds[0], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
    (void)setsockopt(fds[1], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
    DEMAND(send(fds[1], data, size, 0) == (ssize_t)size);
    DEMAND(shutdown(fds[1], SHUT_WR) == 0);
    conn.fd = fds[0];
    buf_init(&conn.in, SERVE_LINE_MAX);
    buf_init(&conn.id, SERVE_LINE_MAX);
    serve_requests(&conn);
    check_answers(fds[1]);
    buf_done(&conn.in);
    buf_done(&conn.id);
    (void)close(fds[0]);
    (void)close(fds[1]);
    return 0;
}
