/* See run_follow.h. */
#include "fs/run_follow.h"

#include "core/cleanup.h"
#include "core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>

enum {
    CHUNK = 128 * 1024,
    STREAMS = 2,
    GRACE_MS = 2000, /* From TERM to KILL. */
    AGAIN_MS = 20,   /* Between looks at whether it can be signalled yet. */
};

/* Bytes on their way from a file of the command to one of ours. */
struct stream {
    int from;
    int to; /* -1: they are dropped. */
    bool ended;
    char *data;
    size_t at; /* What lies between is to be written. */
    size_t end;
};

struct follow {
    int dir;
    int signals;
    struct stream streams[STREAMS];
    int due; /* A signal that is to be sent; 0: none. */
    int64_t kill_ms;
    struct run_followed followed;
    struct err failed; /* An output, but for a reader that went away. */
};

/* Their places in what is polled. */
enum {
    POLL_SIGNALS,
    POLL_STREAMS,
    POLLS = POLL_STREAMS + 2 * STREAMS,
};

static int open_stream(struct follow *follow, size_t i, const char *name,
                       int to, struct err *err)
{
    struct stream *stream = &follow->streams[i];

    stream->to = to;
    stream->data = malloc(CHUNK);
    if (!stream->data) {
        return err_no_memory(err);
    }
    stream->from = openat(follow->dir, name, O_RDONLY | O_CLOEXEC);
    return stream->from < 0 ? err_errno(err, "the command's %s", name) : 0;
}

static int open_streams(struct follow *follow, bool quiet, struct err *err)
{
    int rc;

    for (size_t i = 0; i < STREAMS; i++) {
        follow->streams[i] = (struct stream){.from = -1, .to = -1};
    }
    if (quiet) {
        follow->streams[1].ended = true;
        return open_stream(follow, 0, "wait", -1, err);
    }
    rc = open_stream(follow, 0, "stdout", STDOUT_FILENO, err);
    return rc < 0 ? rc : open_stream(follow, 1, "stderr", STDERR_FILENO, err);
}

static void close_streams(struct follow *follow)
{
    for (size_t i = 0; i < STREAMS; i++) {
        if (follow->streams[i].from >= 0) {
            (void)close(follow->streams[i].from);
        }
        free(follow->streams[i].data);
    }
}

static bool is_done(const struct stream *stream)
{
    return stream->ended && stream->at == stream->end;
}

/* ---- Signals ---- */

/* Whether the command has ended, so that it needs no signal any more. */
static bool has_ended(const struct follow *follow)
{
    AUTO_FD int fd = openat(follow->dir, "status", O_RDONLY | O_CLOEXEC);
    char text[16] = "";
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    return n > 0 && strcmp(text, "queued\n") != 0 &&
           strcmp(text, "running\n") != 0;
}

static int send_due(struct follow *follow, struct err *err)
{
    const char *name = sigabbrev_np(follow->due);
    AUTO_FD int fd = openat(follow->dir, "signal", O_WRONLY | O_CLOEXEC);

    if (fd < 0) {
        return err_errno(err, "the command's signal");
    }
    if (has_ended(follow)) {
        follow->due = 0;
    } else if (write(fd, name, strlen(name)) >= 0) {
        follow->followed.signal = follow->due;
        follow->due = 0;
    } else if (errno != ESRCH) {
        return err_errno(err, "the command goes on: SIG%s cannot be sent",
                         name);
    }
    /* Else it just begins, or ends. */
    return 0;
}

static void take_signal(struct follow *follow)
{
    struct signalfd_siginfo info;
    bool again = follow->due || follow->followed.signal;

    if (read(follow->signals, &info, sizeof(info)) == sizeof(info)) {
        follow->due = again ? SIGKILL : (int)info.ssi_signo;
        if (!follow->followed.taken) {
            follow->followed.taken = (int)info.ssi_signo;
        }
    }
}

static void output_failed(struct follow *follow, struct stream *stream,
                          int code)
{
    stream->to = -1;
    stream->at = stream->end;
    if (code == EPIPE) {
        follow->followed.unread = true;
    } else if (!follow->failed.code) {
        (void)err_set(&follow->failed, code, "standard %s: %s",
                      stream == &follow->streams[0] ? "output" : "error",
                      strerror(code));
    }
    if (!follow->due && !follow->followed.signal) {
        follow->due = SIGTERM;
        follow->kill_ms = clock_deadline(GRACE_MS);
    }
}

/* ---- Bytes ---- */

static int take_bytes(struct stream *stream, short events, struct err *err)
{
    ssize_t n = read(stream->from, stream->data, CHUNK);

    if (n < 0) {
        return errno == EINTR || errno == EAGAIN
                   ? 0
                   : err_errno(err, "the command's output");
    }
    if (n == 0 && !(events & POLLIN)) {
        return err_set(err, EIO, "the command's output cannot be waited for");
    }
    stream->ended = n == 0;
    stream->at = 0;
    stream->end = stream->to < 0 ? 0 : (size_t)n;
    return 0;
}

/* As much as poll has said that there is room for. */
static void give_bytes(struct follow *follow, struct stream *stream)
{
    size_t size = stream->end - stream->at;
    ssize_t n = write(stream->to, stream->data + stream->at,
                      size < PIPE_BUF ? size : PIPE_BUF);

    if (n >= 0) {
        stream->at += (size_t)n;
    } else if (errno != EINTR && errno != EAGAIN) {
        output_failed(follow, stream, errno);
    }
}

static void ask(const struct stream *stream, struct pollfd polls[2])
{
    bool full = stream->at < stream->end;

    polls[0] = (struct pollfd){.fd = -1, .events = POLLIN};
    if (!stream->ended && !full) {
        polls[0].fd = stream->from;
    }
    /* Without events: a reader that goes away is told in any case, unless it
     * has had everything. */
    polls[1] = (struct pollfd){
        .fd = is_done(stream) ? -1 : stream->to,
        .events = full ? POLLOUT : 0,
    };
}

static int serve(struct follow *follow, struct stream *stream,
                 const struct pollfd polls[2], struct err *err)
{
    if (polls[1].revents & POLLOUT) {
        give_bytes(follow, stream);
    } else if (polls[1].revents) {
        output_failed(follow, stream, EPIPE);
    }
    return polls[0].revents ? take_bytes(stream, polls[0].revents, err) : 0;
}

/* ---- The loop ---- */

static int wait_for_more(struct follow *follow, struct pollfd polls[POLLS],
                         struct err *err)
{
    int timeout = follow->due ? AGAIN_MS : clock_timeout(follow->kill_ms);

    polls[POLL_SIGNALS] =
        (struct pollfd){.fd = follow->signals, .events = POLLIN};
    for (size_t i = 0; i < STREAMS; i++) {
        ask(&follow->streams[i], &polls[POLL_STREAMS + 2 * i]);
    }
    if (poll(polls, POLLS, timeout) < 0) {
        for (size_t i = 0; i < POLLS; i++) {
            polls[i].revents = 0;
        }
        return errno == EINTR ? 0 : err_errno(err, "poll");
    }
    return 0;
}

static int step(struct follow *follow, struct err *err)
{
    struct pollfd polls[POLLS];
    int rc = wait_for_more(follow, polls, err);

    if (rc == 0 && polls[POLL_SIGNALS].revents) {
        take_signal(follow);
    }
    for (size_t i = 0; i < STREAMS && rc == 0; i++) {
        rc = serve(follow, &follow->streams[i], &polls[POLL_STREAMS + 2 * i],
                   err);
    }
    if (rc == 0 && clock_timeout(follow->kill_ms) == 0) {
        follow->kill_ms = DEADLINE_NONE;
        follow->due = SIGKILL;
    }
    return rc == 0 && follow->due ? send_due(follow, err) : rc;
}

int run_follow(int dir, int signals, bool quiet, struct run_followed *out,
               struct err *err)
{
    struct follow follow = {
        .dir = dir,
        .signals = signals,
        .kill_ms = DEADLINE_NONE,
    };
    int rc = open_streams(&follow, quiet, err);

    while (rc == 0 &&
           !(is_done(&follow.streams[0]) && is_done(&follow.streams[1]))) {
        rc = step(&follow, err);
    }
    close_streams(&follow);
    if (rc == 0 && follow.failed.code) {
        *err = follow.failed;
        rc = -err->code;
    }
    if (rc == 0) {
        *out = follow.followed;
    }
    return rc;
}
