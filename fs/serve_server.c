/* The server's connections. See serve.h. */
#include "fs/serve_priv.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/log.h"
#include "fs/serve_link.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    RETRY_MS = 100 /* When a connection cannot be taken. */
};

/* ---- A connection ---- */

static void conn_free(struct conn *conn)
{
    buf_done(&conn->in);
    buf_done(&conn->id);
    cleanup_fd(&conn->fd);
    free(conn);
}

static void leave(struct conn *conn)
{
    struct server *server = conn->server;

    mutex_lock(&server->lock);
    list_remove(&conn->link);
    if (list_empty(&server->conns)) {
        server->idle_since = clock_ms();
        cond_broadcast(&server->left);
    }
    conn_free(conn);
    mutex_unlock(&server->lock);
}

static void *conn_main(void *arg)
{
    struct conn *conn = arg;

    serve_write(conn, &(char){SERVE_MARK}, 1);
    serve_requests(conn);
    if (!conn->broken && !cancel_fired(&conn->server->stop)) {
        serve_write(conn, &(char){SERVE_MARK}, 1);
    }
    leave(conn);
    return NULL;
}

/* Takes the fd. */
static struct conn *conn_new(struct server *server, int fd)
{
    struct conn *conn = calloc(1, sizeof(*conn));

    if (!conn) {
        (void)close(fd);
        return NULL;
    }
    conn->server = server;
    conn->fd = fd;
    buf_init(&conn->in, SERVE_LINE_MAX);
    buf_init(&conn->id, SERVE_ID_MAX);
    if (!serve_link_trusted(fd, &conn->caller.uid, &conn->caller.pid)) {
        log_warning("user %u may not use the socket of this state",
                    (unsigned)conn->caller.uid);
        conn_free(conn);
        return NULL;
    }
    return conn;
}

static void begin(struct conn *conn)
{
    struct server *server = conn->server;
    pthread_attr_t attr;
    pthread_t thread;
    int rc;

    mutex_lock(&server->lock);
    list_add(&server->conns, &conn->link);
    server->idle_since = DEADLINE_NONE;
    mutex_unlock(&server->lock);
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    rc = pthread_create(&thread, &attr, conn_main, conn);
    (void)pthread_attr_destroy(&attr);
    if (rc != 0) {
        log_warning("no thread for a connection");
        leave(conn);
    }
}

/* ---- The server ---- */

static void accept_one(struct server *server)
{
    int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC);
    struct conn *conn = fd < 0 ? NULL : conn_new(server, fd);

    if (conn) {
        begin(conn);
    } else if (fd < 0 && errno != EAGAIN && errno != EINTR &&
               errno != ECONNABORTED) {
        (void)poll(NULL, 0, RETRY_MS);
    }
}

static void *accept_main(void *arg)
{
    struct server *server = arg;
    struct pollfd fds[] = {
        {.fd = server->listener, .events = POLLIN},
        {.fd = server->stop.fd, .events = POLLIN},
    };

    while (!cancel_fired(&server->stop)) {
        if (poll(fds, ARRAY_SIZE(fds), -1) > 0 && fds[0].revents) {
            accept_one(server);
        }
    }
    return NULL;
}

static void server_free(struct server *server)
{
    cleanup_fd(&server->listener);
    if (server->stop.fd >= 0) {
        cancel_done(&server->stop);
    }
    cond_done(&server->left);
    mutex_done(&server->lock);
    free(server->state);
    free(server);
}

static struct server *server_new(struct registry *registry, const char *state)
{
    struct server *server = calloc(1, sizeof(*server));

    if (!server) {
        return NULL;
    }
    server->registry = registry;
    server->state = strdup(state);
    server->listener = -1;
    server->stop.fd = -1;
    mutex_init(&server->lock);
    cond_init(&server->left);
    mutex_lock(&server->lock);
    list_init(&server->conns);
    server->idle_since = clock_ms();
    mutex_unlock(&server->lock);
    return server;
}

int server_open(struct registry *registry, const char *state,
                struct server **out, struct err *err)
{
    struct server *server = server_new(registry, state);
    int rc = server && server->state ? cancel_init(&server->stop, err)
                                     : err_no_memory(err);

    if (rc == 0) {
        rc = serve_link_listen(state, &server->listener, err);
    }
    if (rc == 0) {
        rc = pthread_create(&server->acceptor, NULL, accept_main, server);
        rc = rc ? err_set(err, rc, "no thread") : 0;
    }
    if (rc < 0) {
        if (server) {
            server_free(server);
        }
        return rc;
    }
    *out = server;
    return 0;
}

int64_t server_idle_since(struct server *server)
{
    int64_t since;

    mutex_lock(&server->lock);
    since = server->idle_since;
    mutex_unlock(&server->lock);
    return since;
}

/* Wakes whoever reads or writes. */
static void cut_off(struct server *server) REQUIRES(server->lock)
{
    list_each(node, &server->conns)
    {
        (void)shutdown(container_of(node, struct conn, link)->fd, SHUT_RDWR);
    }
}

void server_close(struct server *server)
{
    if (!server) {
        return;
    }
    serve_link_remove(server->state);
    cancel_fire(&server->stop);
    (void)pthread_join(server->acceptor, NULL);
    mutex_lock(&server->lock);
    cut_off(server);
    while (!list_empty(&server->conns)) {
        (void)cond_wait(&server->left, &server->lock, DEADLINE_NONE);
    }
    mutex_unlock(&server->lock);
    server_free(server);
}
