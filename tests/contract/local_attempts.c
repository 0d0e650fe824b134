/* Attempts to reach what lies outside. See local_attempts.h. */
#include "tests/contract/local_attempts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs `act` on a child that waits; the child is gone afterwards. */
static int on_child(int (*act)(pid_t pid))
{
    pid_t pid = fork();
    int rc;
    int saved;

    if (pid == 0) {
        (void)pause();
        _exit(0);
    }
    rc = pid < 0 ? -1 : act(pid);
    saved = errno;
    if (pid > 0) {
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
    }
    errno = saved;
    return rc;
}

#define SOCKET(name, family, type)                                             \
    static int name(const struct attempt_ctx *ctx)                             \
    {                                                                          \
        (void)ctx;                                                             \
        return of_fd(socket(family, (type) | SOCK_CLOEXEC, 0));                \
    }
/* ---- Files of the machine ---- */

static int file_outside(const struct attempt_ctx *ctx)
{
    struct attempt row = {.text = ctx->file};
    struct attempt_ctx own = {.row = &row};

    return attempt_read(&own);
}

static int write_in(const char *dir)
{
    char path[64];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/sessionfs-attempt", dir);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return -1;
    }
    (void)close(fd);
    return unlink(path);
}

static int write_usr(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return write_in("/usr/bin");
}

static int write_etc(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return write_in("/etc");
}

static int write_root(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return write_in("/");
}

static int write_run(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return write_in("/run");
}

static int make_node(mode_t type)
{
    int rc = mknod("/tmp/sessionfs-attempt", type | 0600, makedev(1, 3));

    (void)unlink("/tmp/sessionfs-attempt");
    return rc;
}

static int character_device(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return make_node(S_IFCHR);
}

static int block_device(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return make_node(S_IFBLK);
}

/* ---- Network and sockets ---- */

SOCKET(vsock, AF_VSOCK, SOCK_STREAM)
SOCKET(packet_socket, AF_PACKET, SOCK_RAW)

static int raw_socket(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return of_fd(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP));
}

SOCKET(crypto_socket, 38 /* AF_ALG */, SOCK_SEQPACKET)

/* The family's upper bits hide it from a careless filter. */
static int hidden_vsock(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return of_fd(syscall(SYS_socket, 0x100000000L | AF_VSOCK, SOCK_STREAM, 0));
}

static int tcp_outside(const struct attempt_ctx *ctx)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)ctx->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = connect(fd, (const struct sockaddr *)&to, sizeof(to));
    int saved = errno;

    (void)close(fd);
    errno = saved;
    return rc;
}

static int udp_away(const struct attempt_ctx *ctx)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(53),
                             .sin_addr.s_addr = htonl(0x08080808)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int rc = connect(fd, (const struct sockaddr *)&to, sizeof(to));
    int saved = errno;

    (void)ctx;
    (void)close(fd);
    errno = saved;
    return rc;
}

static int abstract_socket(const struct attempt_ctx *ctx)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t len = strlen(ctx->abstract);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int saved;
    int rc;

    memcpy(to.sun_path + 1, ctx->abstract, len);
    rc = connect(fd, (const struct sockaddr *)&to,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len));
    saved = errno;
    (void)close(fd);
    errno = saved;
    return rc;
}

/* ---- Processes ---- */

static int signal_outside(const struct attempt_ctx *ctx)
{
    return kill(ctx->pid, 0);
}

static int signal_init(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return kill(1, 0);
}

static int see_outside(const struct attempt_ctx *ctx)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%d", ctx->pid);
    return access(path, F_OK);
}

static int limit_init(const struct attempt_ctx *ctx)
{
    struct rlimit limit;

    (void)ctx;
    return prlimit(1, RLIMIT_NOFILE, NULL, &limit);
}

static int attach(pid_t pid)
{
    return ptrace(PTRACE_ATTACH, pid, NULL, NULL) < 0 ? -1 : 0;
}

static int peek(pid_t pid)
{
    char byte = 0;
    struct iovec here = {.iov_base = &byte, .iov_len = 1};

    return process_vm_readv(pid, &here, 1, &here, 1, 0) == 1 ? 0 : -1;
}

static int trace_child(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return on_child(attach);
}

static int read_child(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return on_child(peek);
}

CALLS(become_root, SYS_setresuid, 0, 0, 0)
CALLS(become_group, SYS_setresgid, 0, 0, 0)
CALLS(drop_groups, SYS_setgroups, 0, NULL)

static int nice_up(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return setpriority(PRIO_PROCESS, 0, -5);
}

static int real_time(const struct attempt_ctx *ctx)
{
    struct sched_param param = {.sched_priority = 1};

    (void)ctx;
    return sched_setscheduler(0, SCHED_FIFO, &param);
}

static int many_files(const struct attempt_ctx *ctx)
{
    struct rlimit limit = {1 << 20, 1 << 20};

    (void)ctx;
    return setrlimit(RLIMIT_NOFILE, &limit);
}

static int lock_memory(const struct attempt_ctx *ctx)
{
    size_t size = 6 << 20;
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int rc = mlock(at, size);
    int saved = errno;

    (void)ctx;
    (void)munmap(at, size);
    errno = saved;
    return rc;
}

const struct attempt attempts_reach[] = {
    {"read /etc/shadow", CONTROL_ALLOWED, attempt_read, "/etc/shadow", 0},
    {"read /etc/machine-id", CONTROL_MAY, attempt_read, "/etc/machine-id", 0},
    {"read a file outside", CONTROL_ALLOWED, file_outside, NULL, 0},
    {"list /root", CONTROL_ALLOWED, attempt_list, "/root", 0},
    {"list /var/lib", CONTROL_ALLOWED, attempt_list, "/var/lib", 0},
    {"list /sys", CONTROL_ALLOWED, attempt_list, "/sys/kernel", 0},
    {"list /sys/fs/cgroup", CONTROL_ALLOWED, attempt_list, "/sys/fs/cgroup", 0},
    {"list the root of process 1", CONTROL_MAY, attempt_list, "/proc/1/root/",
     0},
    {"read the environment of process 1", CONTROL_MAY, attempt_read,
     "/proc/1/environ", 0},
    {"open the memory of process 1", CONTROL_MAY, attempt_open, "/proc/1/mem",
     O_RDONLY},
    {"list the fds of process 1", CONTROL_MAY, attempt_list, "/proc/1/fd", 0},
    {"read the maps of process 1", CONTROL_MAY, attempt_read, "/proc/1/maps",
     0},
    {"open core_pattern to write", CONTROL_ALLOWED, attempt_open,
     "/proc/sys/kernel/core_pattern", O_WRONLY},
    {"open a sysctl to write", CONTROL_ALLOWED, attempt_open,
     "/proc/sys/kernel/hostname", O_WRONLY},
    {"open sysrq-trigger to write", CONTROL_MAY, attempt_open,
     "/proc/sysrq-trigger", O_WRONLY},
    {"open kcore", CONTROL_MAY, attempt_open, "/proc/kcore", O_RDONLY},
    {"read kallsyms", CONTROL_MAY, attempt_read, "/proc/kallsyms", 0},
    {"read /proc/keys", CONTROL_MAY, attempt_read, "/proc/keys", 0},
    {"read the kernel's command line", CONTROL_ALLOWED, attempt_read,
     "/proc/cmdline", 0},
    {"open the OOM score of process 1", CONTROL_MAY, attempt_open,
     "/proc/1/oom_score_adj", O_WRONLY},
    {"open /dev/kmsg", CONTROL_MAY, attempt_open, "/dev/kmsg", O_RDONLY},
    {"open /dev/fuse", CONTROL_ALLOWED, attempt_open, "/dev/fuse", O_RDWR},
    {"open /dev/kvm", CONTROL_MAY, attempt_open, "/dev/kvm", O_RDWR},
    {"open a disk", CONTROL_MAY, attempt_open, "/dev/vda", O_RDONLY},
    {"write in /usr/bin", CONTROL_ALLOWED, write_usr, NULL, 0},
    {"write in /etc", CONTROL_ALLOWED, write_etc, NULL, 0},
    {"write in /", CONTROL_ALLOWED, write_root, NULL, 0},
    {"write in /run", CONTROL_ALLOWED, write_run, NULL, 0},
    {"make a character device", CONTROL_MAY, character_device, NULL, 0},
    {"make a block device", CONTROL_MAY, block_device, NULL, 0},
    {"open a vsock", CONTROL_MAY, vsock, NULL, 0},
    {"open a vsock with a hidden family", CONTROL_MAY, hidden_vsock, NULL, 0},
    {"open a packet socket", CONTROL_ALLOWED, packet_socket, NULL, 0},
    {"open a raw socket", CONTROL_ALLOWED, raw_socket, NULL, 0},
    {"open a crypto socket", CONTROL_MAY, crypto_socket, NULL, 0},
    {"connect to a port outside", CONTROL_ALLOWED, tcp_outside, NULL, 0},
    {"find a way to the Internet", CONTROL_MAY, udp_away, NULL, 0},
    {"connect to an abstract socket", CONTROL_ALLOWED, abstract_socket, NULL,
     0},
    {"signal a process outside", CONTROL_ALLOWED, signal_outside, NULL, 0},
    {"see a process outside", CONTROL_ALLOWED, see_outside, NULL, 0},
    {"signal process 1", CONTROL_ALLOWED, signal_init, NULL, 0},
    {"read a limit of process 1", CONTROL_MAY, limit_init, NULL, 0},
    {"trace a child", CONTROL_ALLOWED, trace_child, NULL, 0},
    {"read a child's memory", CONTROL_ALLOWED, read_child, NULL, 0},
    {"become root", CONTROL_ALLOWED, become_root, NULL, 0},
    {"become group root", CONTROL_ALLOWED, become_group, NULL, 0},
    {"drop groups", CONTROL_ALLOWED, drop_groups, NULL, 0},
    {"raise the priority", CONTROL_MAY, nice_up, NULL, 0},
    {"run in real time", CONTROL_MAY, real_time, NULL, 0},
    {"raise a limit", CONTROL_MAY, many_files, NULL, 0},
    {"lock much memory", CONTROL_ALLOWED, lock_memory, NULL, 0},
    {NULL, CONTROL_MAY, NULL, NULL, 0},
};

const struct attempt *const attempt_tables[] = {
    attempts_reach,     attempts_kernel,  attempts_files,
    attempts_processes, attempts_sockets, NULL};
