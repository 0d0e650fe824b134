/* The background. See daemon.h. */
#include "fs/daemon.h"

#include "core/log.h"
#include "fs/options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#ifdef SESSIONFS_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

/* Waits for the second process's byte, or for its end without one. */
NORETURN static void wait_ready(int fd)
{
    char byte;
    ssize_t n;

    do {
        n = read(fd, &byte, 1);
    } while (n < 0 && errno == EINTR);
    _exit(n == 1 ? EXIT_SUCCESS : EXIT_FAILURE);
}

int daemon_start(struct daemon *daemon, bool foreground, struct err *err)
{
    int fds[2];
    pid_t pid;

    daemon->report_fd = -1;
    if (foreground) {
        return 0;
    }
    if (pipe2(fds, O_CLOEXEC) < 0) {
        return err_errno(err, "pipe");
    }
    pid = fork();
    if (pid < 0) {
        int rc = err_errno(err, "fork");

        (void)close(fds[0]);
        (void)close(fds[1]);
        return rc;
    }
    if (pid > 0) {
        (void)close(fds[1]);
        wait_ready(fds[0]);
    }
    (void)close(fds[0]);
    (void)setsid();
    (void)chdir("/");
    daemon->report_fd = fds[1];
    return 0;
}

static enum log_target find_log(const struct options *options)
{
    switch ((enum options_log)options->log) {
    case OPTIONS_LOG_STDERR:
        return LOG_TO_STDERR;
    case OPTIONS_LOG_SYSLOG:
        return LOG_TO_SYSLOG;
    case OPTIONS_LOG_JOURNAL:
        return LOG_TO_JOURNAL;
    case OPTIONS_LOG_AUTO:
        break;
    }
    if (options->foreground) {
        return LOG_TO_STDERR;
    }
    return log_has_journal() ? LOG_TO_JOURNAL : LOG_TO_SYSLOG;
}

static void leave_terminal(bool stderr_too)
{
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (fd >= 0) {
        (void)dup2(fd, STDIN_FILENO);
        (void)dup2(fd, STDOUT_FILENO);
        if (stderr_too) {
            (void)dup2(fd, STDERR_FILENO);
        }
        if (fd > STDERR_FILENO) {
            (void)close(fd);
        }
    }
}

static void report(int fd)
{
    ssize_t n;

    do {
        n = write(fd, "\n", 1);
    } while (n < 0 && errno == EINTR);
    (void)close(fd);
}

/* Does nothing where systemd does not wait for it. */
static void notify(const char *news)
{
#ifdef SESSIONFS_SYSTEMD
    (void)sd_notify(0, news);
#else
    (void)news;
#endif
}

void daemon_ready(struct daemon *daemon, const struct options *options)
{
    enum log_target target = find_log(options);

    log_setup(target, options->debug ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO);
    if (daemon->report_fd >= 0) {
        leave_terminal(target != LOG_TO_STDERR);
        report(daemon->report_fd);
        daemon->report_fd = -1;
    }
    if (options->ready_fd >= 0) {
        report(options->ready_fd);
    }
    notify("READY=1");
}

void daemon_ending(void)
{
    notify("STOPPING=1");
}
