/* Attempts to have the kernel do more. See local_attempts.h. */
#include "tests/contract/local_attempts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

CALLS(new_user_namespace, SYS_unshare, CLONE_NEWUSER)
CALLS(new_mount_namespace, SYS_unshare, CLONE_NEWNS)
CALLS(new_net_namespace, SYS_unshare, CLONE_NEWNET)
CALLS(add_key, SYS_add_key, "user", "sessionfs", "x", 1, -2)
CALLS(join_keyring, SYS_keyctl, 1, "sessionfs")
CALLS(kernel_messages, SYS_syslog, 10, NULL, 0)
CALLS(change_root, SYS_chroot, "/tmp")
MAY_CALL(swap, SYS_swapon, "/tmp/none", 0)
MAY_CALL(load_module, SYS_init_module, NULL, 0, "")
MAY_CALL(restart, SYS_reboot, 0, 0, 0, NULL)
CALLS(compare_processes, SYS_kcmp, getpid(), getpid(), 1, 0, 0)
CALLS(io_ports, SYS_iopl, 3)
MAY_CALL(accounting, SYS_acct, "/tmp/none")
CALLS_FD(userfaults, SYS_userfaultfd, O_CLOEXEC)
CALLS_FD(file_notices, SYS_fanotify_init, 0, O_RDONLY)
CALLS_FD(filesystem_context, SYS_fsopen, "tmpfs", 0)
CALLS_FD(copy_mounts, SYS_open_tree, AT_FDCWD, "/", 1)
CALLS_FD(secret_memory, SYS_memfd_secret, 0)

/* Ends a process that was made, in it and outside. */
static int end_clone(long pid)
{
    if (pid == 0) {
        _exit(0);
    }
    if (pid > 0) {
        (void)waitpid((pid_t)pid, NULL, 0);
    }
    return pid < 0 ? -1 : 0;
}

static int clone_namespace(const struct attempt_ctx *ctx)
{
    long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, 0);

    (void)ctx;
    return end_clone(pid);
}

static int clone3_namespace(const struct attempt_ctx *ctx)
{
    struct clone_args args = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
    long pid = syscall(SYS_clone3, &args, sizeof(args));

    (void)ctx;
    return end_clone(pid);
}

static int mount_tmpfs(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return mount("tmpfs", "/tmp", "tmpfs", 0, NULL);
}

static int remount_usr(const struct attempt_ctx *ctx)
{
    (void)ctx;
    /* Outside it may be no mount; inside it is one. */
    (void)mount("/usr", "/usr", NULL, MS_BIND, NULL);
    return mount(NULL, "/usr", NULL, MS_BIND | MS_REMOUNT, NULL);
}

static int unmount_proc(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return umount2("/proc", MNT_DETACH);
}

static int host_name(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return sethostname("attempt", 7);
}

static int enter_namespace(const struct attempt_ctx *ctx)
{
    int fd = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);
    int rc = setns(fd, CLONE_NEWUTS);
    int saved = errno;

    (void)ctx;
    (void)close(fd);
    errno = saved;
    return rc;
}

static int performance_events(const struct attempt_ctx *ctx)
{
    struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE,
                                   .size = sizeof(attr),
                                   .config = PERF_COUNT_SW_CPU_CLOCK};

    (void)ctx;
    return of_fd(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0UL));
}

static int bpf_map(const struct attempt_ctx *ctx)
{
    struct {
        uint32_t type, key_size, value_size, entries;
    } attr = {2, 4, 4, 1};
    char space[128] = "";

    (void)ctx;
    memcpy(space, &attr, sizeof(attr));
    return of_fd(syscall(SYS_bpf, 0, space, sizeof(space)));
}

static int submission_ring(const struct attempt_ctx *ctx)
{
    char params[120] = "";

    (void)ctx;
    return of_fd(syscall(SYS_io_uring_setup, 1, params));
}

static int file_handle(const struct attempt_ctx *ctx)
{
    struct {
        struct file_handle head;
        char bytes[MAX_HANDLE_SZ];
    } handle = {.head.handle_bytes = MAX_HANDLE_SZ};
    int id;
    int at;
    int rc;

    (void)ctx;
    /* The number 2 is the root directory of most filesystems. */
    if (name_to_handle_at(AT_FDCWD, "/usr", &handle.head, &id, 0) < 0) {
        return -1;
    }
    at = open("/usr", O_RDONLY | O_CLOEXEC);
    rc = of_fd(open_by_handle_at(at, &handle.head, O_RDONLY | O_CLOEXEC));
    (void)close(at);
    return rc;
}

static int fixed_addresses(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return personality(ADDR_NO_RANDOMIZE) < 0 ? -1 : 0;
}

/* Types a letter into a terminal of its own. */
static int type_letter(const struct attempt_ctx *ctx)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    char letter = 'x';
    int slave;
    int rc;

    (void)ctx;
    if (master < 0 || unlockpt(master) < 0) {
        return -1;
    }
    (void)setsid();
    slave = open(ptsname(master), O_RDWR | O_CLOEXEC);
    rc = slave < 0 ? -1 : ioctl(slave, TIOCSTI, &letter);
    return rc;
}

static int set_capability(const struct attempt_ctx *ctx)
{
    static const unsigned char all[] = {
        1,    0,    0, 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0, 0, 0,    0,    0,    0,    0,    0};
    int fd =
        open("/tmp/sessionfs-attempt", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    int rc;
    int saved;

    (void)ctx;
    rc = (int)syscall(SYS_fsetxattr, fd, "security.capability", all,
                      sizeof(all), 0);
    saved = errno;
    (void)close(fd);
    (void)unlink("/tmp/sessionfs-attempt");
    errno = saved;
    return rc;
}

const struct attempt attempts_kernel[] = {
    {"make a user namespace", CONTROL_ALLOWED, new_user_namespace, NULL, 0},
    {"make a mount namespace", CONTROL_ALLOWED, new_mount_namespace, NULL, 0},
    {"make a network namespace", CONTROL_ALLOWED, new_net_namespace, NULL, 0},
    {"clone into a user namespace", CONTROL_ALLOWED, clone_namespace, NULL, 0},
    {"clone3 into a user namespace", CONTROL_ALLOWED, clone3_namespace, NULL,
     0},
    {"enter a namespace", CONTROL_ALLOWED, enter_namespace, NULL, 0},
    {"mount", CONTROL_ALLOWED, mount_tmpfs, NULL, 0},
    {"remount /usr to write", CONTROL_ALLOWED, remount_usr, NULL, 0},
    {"unmount /proc", CONTROL_ALLOWED, unmount_proc, NULL, 0},
    {"open a filesystem context", CONTROL_ALLOWED, filesystem_context, NULL, 0},
    {"copy mounts", CONTROL_ALLOWED, copy_mounts, NULL, 0},
    {"change the root directory", CONTROL_ALLOWED, change_root, NULL, 0},
    {"change the host's name", CONTROL_ALLOWED, host_name, NULL, 0},
    {"add a key", CONTROL_MAY, add_key, NULL, 0},
    {"join a keyring", CONTROL_MAY, join_keyring, NULL, 0},
    {"read kernel messages", CONTROL_MAY, kernel_messages, NULL, 0},
    {"swap", CONTROL_ALLOWED, swap, NULL, 0},
    {"load a module", CONTROL_MAY, load_module, NULL, 0},
    {"restart the machine", CONTROL_ALLOWED, restart, NULL, 0},
    {"switch accounting on", CONTROL_MAY, accounting, NULL, 0},
    {"compare processes", CONTROL_MAY, compare_processes, NULL, 0},
    {"use io ports", CONTROL_MAY, io_ports, NULL, 0},
    {"handle page faults", CONTROL_MAY, userfaults, NULL, 0},
    {"watch all files", CONTROL_MAY, file_notices, NULL, 0},
    {"use secret memory", CONTROL_MAY, secret_memory, NULL, 0},
    {"open performance events", CONTROL_MAY, performance_events, NULL, 0},
    {"make a bpf map", CONTROL_MAY, bpf_map, NULL, 0},
    {"make an io_uring", CONTROL_MAY, submission_ring, NULL, 0},
    {"open a file by its handle", CONTROL_MAY, file_handle, NULL, 0},
    {"switch off address randomisation", CONTROL_ALLOWED, fixed_addresses, NULL,
     0},
    {"type into a terminal", CONTROL_MAY, type_letter, NULL, 0},
    {"give a file capabilities", CONTROL_ALLOWED, set_capability, NULL, 0},
    {NULL, CONTROL_MAY, NULL, NULL, 0},
};
