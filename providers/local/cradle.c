/* Processes that wait in a sandbox's groups. See cradle.h. */
#include "providers/local/cradle.h"

#include "core/cleanup.h"
#include "providers/local/shelf.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

NORETURN static void be_cradle(const struct cradle *cradle, int sock)
{
    struct control_groups groups;
    struct wire request;
    struct err err = ERR_INIT;
    struct err gone = ERR_INIT;
    int fds[WIRE_FD_MAX];
    char name[32];
    int rc;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    shelf_leave();
    (void)snprintf(name, sizeof(name), "%" PRIu64, cradle->made);
    rc = control_make(cradle->control, name, &groups, &err);
    if (rc == 0) {
        rc = control_enter(&groups, &err);
    }
    if (wire_recv(sock, &request, fds, &gone) == 0) {
        (void)close(sock);
        cradle->serve(cradle->arg, &request, fds, rc < 0 ? NULL : &groups, name,
                      &err);
    }
    _exit(0);
}

static int make_spare(struct cradle *cradle, struct err *err)
{
    struct clone_args args = {.exit_signal = SIGCHLD};
    int pair[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        return err_errno(err, "socketpair");
    }
    cradle->made++;
    pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0) {
        (void)close(pair[0]);
        be_cradle(cradle, pair[1]);
    }
    if (pid < 0) {
        int rc = err_errno(err, "cannot make a process");

        (void)close(pair[0]);
        (void)close(pair[1]);
        return rc;
    }
    (void)close(pair[1]);
    cradle->sock = pair[0];
    cradle->pid = pid;
    return 0;
}

void cradle_prepare(struct cradle *cradle)
{
    struct err ignored = ERR_INIT;

    if (make_spare(cradle, &ignored) < 0) {
        cradle->sock = -1;
    }
}

int cradle_hand_over(struct cradle *cradle, const struct wire *request,
                     const int *fds, size_t count, struct err *err)
{
    int rc = -EPIPE;

    if (cradle->sock >= 0) {
        rc = wire_send(cradle->sock, request, fds, count, err);
        cleanup_fd(&cradle->sock);
    }
    if (rc < 0) {
        /* There was none, or somebody has killed it. */
        rc = make_spare(cradle, err);
        if (rc == 0) {
            rc = wire_send(cradle->sock, request, fds, count, err);
            cleanup_fd(&cradle->sock);
        }
    }
    cradle_prepare(cradle);
    return rc;
}

void cradle_close(struct cradle *cradle)
{
    if (cradle->sock < 0) {
        return;
    }
    (void)kill(cradle->pid, SIGKILL);
    cleanup_fd(&cradle->sock);
    /* Its groups can be removed then. Others that still make a sandbox end
     * with that. */
    while (waitpid(cradle->pid, NULL, 0) < 0 && errno == EINTR) {
    }
}
