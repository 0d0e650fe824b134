/* See serve_exec.h. */
#include "fs/serve_exec.h"

#include "core/exec_request.h"
#include "core/json_bytes.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* A watch that wakes a thread. */
struct waker {
    struct exec_watch watch;
    int fd;
};

static void wake(struct exec_watch *watch)
{
    (void)eventfd_write(container_of(watch, struct waker, watch)->fd, 1);
}

static int waker_init(struct waker *waker, struct err *err)
{
    waker->watch.wake = wake;
    waker->fd = eventfd(0, EFD_CLOEXEC);
    return waker->fd < 0 ? err_errno(err, "eventfd") : 0;
}

/* Until the watch wakes, the client goes, or the server ends. */
static int await(struct conn *conn, const struct waker *waker, struct err *err)
{
    struct pollfd fds[] = {
        {.fd = waker->fd, .events = POLLIN},
        {.fd = conn->server->stop.fd, .events = POLLIN},
        /* No more input is no reason: a client may have sent its last. */
        {.fd = conn->fd, .events = 0},
    };

    while (poll(fds, ARRAY_SIZE(fds), -1) < 0) {
        if (errno != EINTR) {
            return err_errno(err, "poll");
        }
    }
    if (fds[0].revents) {
        return 0;
    }
    conn->broken = true;
    return err_set(err, ECANCELED, "nobody waits any more");
}

/* Ends a watch. One that wakes has written when it is read. */
static void waker_done(struct waker *waker, struct exec *exec, bool on)
{
    uint64_t count;

    if (on && !exec_unwatch(exec, &waker->watch)) {
        while (read(waker->fd, &count, sizeof(count)) < 0 && errno == EINTR) {
        }
    }
    (void)close(waker->fd);
}

static bool watch(struct exec *exec, struct exec_watch *it,
                  enum exec_event event, uint64_t offset)
{
    switch (event) {
    case EXEC_END:
        return exec_watch_end(exec, it);
    case EXEC_ANSWER:
        return exec_watch_answer(exec, it);
    case EXEC_MORE:
        break;
    }
    return exec_watch_output(exec, it, EXEC_OUTPUT, offset);
}

static int wait_for(struct conn *conn, struct exec *exec, enum exec_event event,
                    uint64_t offset, struct err *err)
{
    struct waker waker;
    int rc = waker_init(&waker, err);
    bool on;

    if (rc < 0) {
        return rc;
    }
    on = watch(exec, &waker.watch, event, offset);
    if (on) {
        rc = await(conn, &waker, err);
    }
    waker_done(&waker, exec, on);
    return rc;
}

int serve_exec_text(struct js *js, struct buf *out, struct err *err)
{
    struct buf json = BUF_INIT(EXEC_REQUEST_MAX);
    int rc = js_write(js, &json);

    if (rc == 0) {
        rc = js_bytes_write(buf_str(&json), json.size, out);
    }
    buf_done(&json);
    js_free(js);
    return rc < 0 ? err_set(err, -rc,
                            rc == -EFBIG
                                ? "the command and its input are over 8 MiB"
                                : "out of memory")
                  : 0;
}

int serve_exec_failure(const struct exec_info *info, struct err *err)
{
    if (info->err.code) {
        *err = info->err;
        return -err->code;
    }
    return err_set(err, info->status == EXEC_LOST ? ESTALE : EINTR,
                   info->status == EXEC_LOST
                       ? "how the command ended is not known"
                       : "the command was cancelled before it ran");
}

int serve_exec_start(struct conn *conn, struct exec *exec,
                     struct exec_info *info, struct err *err)
{
    int rc = wait_for(conn, exec, EXEC_ANSWER, 0, err);

    if (rc < 0) {
        return rc;
    }
    exec_info(exec, info);
    return info->status == EXEC_FAILED || !info->started_us
               ? serve_exec_failure(info, err)
               : 0;
}

int serve_exec_more(struct conn *conn, struct exec *exec, uint64_t offset,
                    struct err *err)
{
    return wait_for(conn, exec, EXEC_MORE, offset, err);
}

int serve_exec_end(struct conn *conn, struct exec *exec, struct err *err)
{
    return wait_for(conn, exec, EXEC_END, 0, err);
}
