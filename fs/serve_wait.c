/* Waiting for what core does in its own time. See serve_priv.h. */
#include "fs/serve_priv.h"

#include "core/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Held by whoever waits and by core: the later of them frees it. */
struct wait {
    atomic_uint refs;
    struct session *session; /* With a reference. */
    int fd;                  /* Readable when it has ended. */
    struct mutex lock;
    bool left GUARDED;  /* Nobody waits any more. */
    bool ended GUARDED; /* These are set: */
    int rc;
    struct err err;
    struct workspace *ws;
};

static void unref(struct wait *wait)
{
    if (atomic_fetch_sub(&wait->refs, 1) == 1) {
        session_unref(wait->session);
        (void)close(wait->fd);
        mutex_done(&wait->lock);
        free(wait);
    }
}

static int wait_new(struct session *session, struct wait **out, struct err *err)
{
    struct wait *wait = calloc(1, sizeof(*wait));

    if (!wait) {
        return err_no_memory(err);
    }
    wait->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wait->fd < 0) {
        int rc = err_errno(err, "eventfd");

        free(wait);
        return rc;
    }
    atomic_init(&wait->refs, 2);
    mutex_init(&wait->lock);
    wait->session = session_ref(session);
    *out = wait;
    return 0;
}

/* Returns whether somebody waits for it. */
static bool end(struct wait *wait, int rc, struct workspace *ws,
                const struct err *err)
{
    bool left;

    mutex_lock(&wait->lock);
    wait->rc = rc;
    wait->ws = ws;
    if (rc < 0) {
        wait->err = *err;
    }
    wait->ended = true;
    left = wait->left;
    mutex_unlock(&wait->lock);
    (void)eventfd_write(wait->fd, 1);
    return !left;
}

static void done(void *arg, int rc, const struct err *err)
{
    (void)end(arg, rc, NULL, err);
    unref(arg);
}

static void entered(void *arg, int rc, struct workspace *ws,
                    const struct err *err)
{
    struct wait *wait = arg;

    if (!end(wait, rc, ws, err) && rc == 0) {
        ws_unref(ws);
        session_files_leave(wait->session);
    }
    unref(wait);
}

/* Waits for the end of either. */
static int await(struct conn *conn, struct wait *wait, struct err *err)
{
    const struct limits limits = {.deadline_ms = DEADLINE_NONE,
                                  .cancel = &conn->server->stop};
    int rc = limits_wait(&limits, wait->fd, POLLIN, err);
    bool ended;

    mutex_lock(&wait->lock);
    ended = wait->ended;
    wait->left = true;
    mutex_unlock(&wait->lock);
    if (!ended) {
        return rc;
    }
    if (wait->rc < 0) {
        *err = wait->err;
    } else {
        err_clear(err);
    }
    return wait->rc;
}

int serve_ensure(struct conn *conn, struct session *session, struct err *err)
{
    struct wait *wait = NULL;
    int rc = wait_new(session, &wait, err);

    if (rc == 0) {
        session_ensure(session, false, &conn->caller, done, wait);
        rc = await(conn, wait, err);
        unref(wait);
    }
    return rc;
}

int serve_destroy(struct conn *conn, struct session *session, struct err *err)
{
    struct wait *wait = NULL;
    int rc = wait_new(session, &wait, err);

    if (rc == 0) {
        session_destroy(session, &conn->caller, done, wait);
        rc = await(conn, wait, err);
        unref(wait);
    }
    return rc;
}

int serve_enter(struct conn *conn, struct session *session,
                enum session_need need, struct workspace **ws, struct err *err)
{
    struct wait *wait = NULL;
    int rc = wait_new(session, &wait, err);

    if (rc == 0) {
        session_files_enter(session, need, &conn->caller, entered, wait);
        rc = await(conn, wait, err);
        *ws = rc == 0 ? wait->ws : NULL;
        unref(wait);
    }
    return rc;
}

int serve_look(struct conn *conn, struct err *err)
{
    /* No more input is no reason: a client may have sent its last. */
    struct pollfd fd = {.fd = conn->fd, .events = 0};

    if (poll(&fd, 1, 0) > 0) {
        conn->broken = true;
    }
    return conn->broken || cancel_fired(&conn->server->stop)
               ? err_set(err, ECANCELED, "nobody waits any more")
               : 0;
}

int serve_pause(struct conn *conn, int64_t ms, struct err *err)
{
    const struct limits limits = {.deadline_ms = clock_deadline(ms),
                                  .cancel = &conn->server->stop};
    int rc = limits_wait(&limits, -1, 0, err);

    if (rc == -ETIMEDOUT) {
        err_clear(err);
        rc = 0;
    }
    return rc;
}

struct ws_ctx serve_ctx(struct conn *conn)
{
    return (struct ws_ctx){
        .uid = conn->caller.uid,
        .gid = getegid(),
        .limits = {.deadline_ms = clock_deadline(SERVE_CALL_MS),
                   .cancel = &conn->server->stop},
    };
}
