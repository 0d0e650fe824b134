/* How processes are made, and files of /proc that set them up. See keeper.h. */
#include "providers/local/keeper.h"

#include "core/cleanup.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum {
    END_MS = 1000
};

int proc_write(pid_t pid, const char *name, const char *text, struct err *err)
{
    char path[64];
    AUTO_FD int fd = -1;
    size_t size = strlen(text);

    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, size) != (ssize_t)size) {
        return err_errno(err, "cannot write %s", path);
    }
    return 0;
}

int proc_clone(uint64_t flags, int cgroup, struct proc_child *out,
               struct err *err)
{
    AUTO_FD int ours = -1;
    AUTO_FD int theirs = -1;
    int pidfd = -1;
    struct clone_args args = {.flags = flags | (uint64_t)CLONE_PIDFD,
                              .exit_signal = SIGCHLD,
                              .pidfd = (__u64)(uintptr_t)&pidfd};
    int pair[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        return err_errno(err, "socketpair");
    }
    ours = pair[0];
    theirs = pair[1];
    if (flags & CLONE_PARENT) {
        args.exit_signal = 0; /* It has the caller's own. */
    }
    if (cgroup >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (__u64)cgroup;
    }
    pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (pid < 0) {
        return err_errno(err, "cannot make a process");
    }
    *out =
        (struct proc_child){.pid = pid,
                            .sock = pid == 0 ? TAKE_FD(theirs) : TAKE_FD(ours),
                            .pidfd = pidfd};
    return 0;
}

void proc_end(struct proc_child *child)
{
    struct pollfd end = {.fd = child->pidfd, .events = POLLIN};

    if (!child->pid) {
        return;
    }
    (void)kill(child->pid, SIGKILL);
    /* One that the kernel does not let end is left to who reaps all. */
    if (poll(&end, 1, END_MS) > 0) {
        (void)waitpid(child->pid, NULL, WNOHANG);
    }
    proc_forget(child);
}

void proc_forget(struct proc_child *child)
{
    cleanup_fd(&child->sock);
    cleanup_fd(&child->pidfd);
    child->pid = 0;
}
