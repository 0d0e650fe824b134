/* The relay between a client and the daemon. See serve.h. */
#include "fs/serve.h"

#include "core/cleanup.h"
#include "core/log.h"
#include "core/store_dir.h"
#include "fs/options.h"
#include "fs/serve_daemon.h"
#include "fs/serve_link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum {
    CHUNK = 64 * 1024,
    ATTEMPTS = 5, /* At a daemon that does not end just then. */
};

#define LOCK_NAME "serve.lock"

/* ---- Finding the daemon, or starting one ---- */

/* Of two relays one starts the daemon, and the other one finds it. */
static int lock_start(const char *state, int *out, struct err *err)
{
    AUTO_FD int dir = -1;
    AUTO_FD int fd = -1;
    int rc = store_dir_make(state, &dir, err);

    if (rc < 0) {
        return rc;
    }
    fd =
        openat(dir, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || flock(fd, LOCK_EX) < 0) {
        return err_errno(err, "lock '" LOCK_NAME "' in '%s'", state);
    }
    *out = TAKE_FD(fd);
    return 0;
}

/* The first process of the daemon. Of ours it has nothing but the end of a pipe
 * for its words: a client may wait until nobody has its descriptors. */
NORETURN static void be_daemon(const struct options *options,
                               const struct provider_ops *const *providers,
                               int words)
{
    struct err err = ERR_INIT;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    bool apart = null >= 0 && dup2(null, STDIN_FILENO) >= 0 &&
                 dup2(null, STDOUT_FILENO) >= 0 &&
                 dup2(words, STDERR_FILENO) >= 0;

    (void)close_range(STDERR_FILENO + 1, ~0U, 0);
    if (!apart || serve_daemon(options, providers, &err) < 0) {
        log_error("%s", err.msg);
        exit(EXIT_FAILURE); /* NOLINT(concurrency-mt-unsafe) */
    }
    exit(EXIT_SUCCESS); /* NOLINT(concurrency-mt-unsafe) */
}

/* Passes the words of a start on until that has succeeded or failed. */
static void pass_words(int words, int end)
{
    struct pollfd fds[] = {
        {.fd = words, .events = POLLIN},
        {.fd = end, .events = POLLIN},
    };
    char text[1024];
    ssize_t n = 1;

    while (n > 0 && (poll(fds, ARRAY_SIZE(fds), -1) > 0 || errno == EINTR)) {
        if (fds[0].revents) {
            n = read(words, text, sizeof(text));
            (void)!write(STDERR_FILENO, text, n > 0 ? (size_t)n : 0);
        } else if (fds[1].revents) {
            return;
        }
    }
}

static int await_start(pid_t pid, int words, struct err *err)
{
    AUTO_FD int end = (int)syscall(SYS_pidfd_open, pid, 0U);
    int status = 0;

    if (end >= 0) {
        pass_words(words, end);
    }
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return err_errno(err, "wait for the daemon");
        }
    }
    return status == 0 ? 0
                       : err_set(err, EIO, "the daemon could not be started");
}

static int start_daemon(const struct options *options,
                        const struct provider_ops *const *providers,
                        struct err *err)
{
    int words[2];
    pid_t pid;
    int rc;

    if (pipe2(words, O_CLOEXEC) < 0) {
        return err_errno(err, "pipe");
    }
    pid = fork();
    if (pid == 0) {
        be_daemon(options, providers, words[1]);
    }
    (void)close(words[1]);
    rc = pid < 0 ? err_errno(err, "fork") : await_start(pid, words[0], err);
    (void)close(words[0]);
    return rc;
}

/* Whether the daemon has taken us on; else it was about to end. */
static bool is_served(int fd)
{
    char mark = 1;
    ssize_t n;

    do {
        n = recv(fd, &mark, 1, 0);
    } while (n < 0 && errno == EINTR);
    return n == 1 && mark == SERVE_MARK;
}

static int connect_or_start(const struct options *options,
                            const struct provider_ops *const *providers,
                            int *out, struct err *err)
{
    AUTO_FD int lock = -1;
    int rc = lock_start(options->state, &lock, err);

    if (rc < 0) {
        return rc;
    }
    rc = serve_link_connect(options->state, out, err);
    if (rc == -ENOENT || rc == -ECONNREFUSED) {
        struct err why = ERR_INIT;
        int started = start_daemon(options, providers, &why);

        /* Also where that failed: another one may have been quicker. */
        err_clear(err);
        rc = serve_link_connect(options->state, out, err);
        if (started < 0 && rc < 0) {
            *err = why;
        }
    }
    return rc;
}

static int find_daemon(const struct options *options,
                       const struct provider_ops *const *providers, int *out,
                       struct err *err)
{
    for (int i = 0; i < ATTEMPTS; i++) {
        AUTO_FD int fd = -1;
        int rc = connect_or_start(options, providers, &fd, err);

        if (rc < 0) {
            return rc;
        }
        if (is_served(fd)) {
            *out = TAKE_FD(fd);
            return 0;
        }
    }
    return err_set(err, EAGAIN, "the daemon of '%s' ends", options->state);
}

/* ---- Passing lines on ---- */

/* From the client to the daemon, in a thread of its own; its end is passed on
 * too. */
static void *pass_requests(void *arg)
{
    static char chunk[CHUNK];
    int fd = *(const int *)arg;
    ssize_t n;

    do {
        n = read(STDIN_FILENO, chunk, sizeof(chunk));
        for (ssize_t at = 0; at < n;) {
            ssize_t sent = send(fd, chunk + at, (size_t)(n - at), MSG_NOSIGNAL);

            if (sent < 0 && errno != EINTR) {
                return NULL; /* The other direction tells. */
            }
            at += sent > 0 ? sent : 0;
        }
    } while (n > 0 || (n < 0 && errno == EINTR));
    (void)shutdown(fd, SHUT_WR);
    return NULL;
}

static int write_out(const char *data, size_t size)
{
    while (size) {
        ssize_t n = write(STDOUT_FILENO, data, size);

        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        data += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Waits for the daemon; false: nobody reads what we write any more. */
static bool wait_readable(int fd)
{
    struct pollfd fds[] = {
        {.fd = fd, .events = POLLIN},
        {.fd = STDOUT_FILENO, .events = 0},
    };

    while (poll(fds, ARRAY_SIZE(fds), -1) < 0 && errno == EINTR) {
    }
    return fds[0].revents || !(fds[1].revents & (POLLERR | POLLHUP));
}

/* From the daemon to the client, to the end that the daemon marks. */
static int pass_answers(int fd, struct err *err)
{
    static char chunk[CHUNK];
    bool marked = false;
    ssize_t n = 1;

    while (n > 0 || (n < 0 && errno == EINTR)) {
        if (!wait_readable(fd)) {
            return 0;
        }
        n = recv(fd, chunk, sizeof(chunk), 0);
        marked = marked || (n > 0 && chunk[n - 1] == SERVE_MARK);
        if (n > 0 && write_out(chunk, (size_t)(n - marked)) < 0) {
            return 0; /* The client is gone, which is how it ends. */
        }
    }
    return marked ? 0 : err_set(err, ECONNRESET, "the daemon ended");
}

static int relay(int fd, struct err *err)
{
    pthread_t thread;
    int rc;

    /* A write to a client that is gone shall fail. */
    (void)signal(SIGPIPE, SIG_IGN);
    rc = pthread_create(&thread, NULL, pass_requests, &fd);
    if (rc != 0) {
        return err_set(err, rc, "no thread");
    }
    /* The thread may read for ever; the process's end is its end. */
    (void)pthread_detach(thread);
    return pass_answers(fd, err);
}

int serve_main(const struct options *options,
               const struct provider_ops *const *providers, struct err *err)
{
    AUTO_FD int fd = -1;
    int rc;

    if (options->foreground) {
        return serve_daemon(options, providers, err);
    }
    rc = find_daemon(options, providers, &fd, err);
    return rc < 0 ? rc : relay(fd, err);
}
