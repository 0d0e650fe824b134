/* Attempts to reach what lies outside. See local_attempts.h. */
#include "tests/contract/local_attempts.h"

#include <arpa/inet.h>
#include <dirent.h>
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

static int opens(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);

    if (fd < 0) {
        return -1;
    }
    (void)close(fd);
    return 0;
}

/* Opens and finds something in it. */
static int reads(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char byte;
    ssize_t n;

    if (fd < 0) {
        return -1;
    }
    n = read(fd, &byte, 1);
    (void)close(fd);
    if (n == 0) {
        errno = ENODATA;
    }
    return n == 1 ? 0 : -1;
}

static int lists(const char *path)
{
    DIR *dir = opendir(path);

    if (!dir) {
        return -1;
    }
    (void)closedir(dir);
    return 0;
}

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

#define OPENS(name, path, flags)                                               \
    static int name(const struct attempt_ctx *ctx)                             \
    {                                                                          \
        (void)ctx;                                                             \
        return opens(path, flags);                                             \
    }
#define READS(name, path)                                                      \
    static int name(const struct attempt_ctx *ctx)                             \
    {                                                                          \
        (void)ctx;                                                             \
        return reads(path);                                                    \
    }
#define LISTS(name, path)                                                      \
    static int name(const struct attempt_ctx *ctx)                             \
    {                                                                          \
        (void)ctx;                                                             \
        return lists(path);                                                    \
    }
#define SOCKET(name, family, type)                                             \
    static int name(const struct attempt_ctx *ctx)                             \
    {                                                                          \
        (void)ctx;                                                             \
        return of_fd(socket(family, (type) | SOCK_CLOEXEC, 0));                \
    }
/* ---- Files of the machine ---- */

READS(shadow, "/etc/shadow")
READS(machine_id, "/etc/machine-id")
LISTS(root_home, "/root")
LISTS(var_lib, "/var/lib")
LISTS(sysfs, "/sys/kernel")
LISTS(cgroupfs, "/sys/fs/cgroup")
LISTS(root_of_init, "/proc/1/root/")
READS(environ_of_init, "/proc/1/environ")
OPENS(memory_of_init, "/proc/1/mem", O_RDONLY)
LISTS(fds_of_init, "/proc/1/fd")
READS(maps_of_init, "/proc/1/maps")
OPENS(core_pattern, "/proc/sys/kernel/core_pattern", O_WRONLY)
OPENS(sysctl_file, "/proc/sys/kernel/hostname", O_WRONLY)
OPENS(sysrq, "/proc/sysrq-trigger", O_WRONLY)
OPENS(kcore, "/proc/kcore", O_RDONLY)
READS(kallsyms, "/proc/kallsyms")
READS(keys_file, "/proc/keys")
READS(kernel_command_line, "/proc/cmdline")
OPENS(oom_of_init, "/proc/1/oom_score_adj", O_WRONLY)
OPENS(kernel_log, "/dev/kmsg", O_RDONLY)
OPENS(fuse_device, "/dev/fuse", O_RDWR)
OPENS(kvm_device, "/dev/kvm", O_RDWR)
OPENS(disk, "/dev/vda", O_RDONLY)

static int file_outside(const struct attempt_ctx *ctx)
{
    return reads(ctx->file);
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
    return lists(path);
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
    {"read /etc/shadow", CONTROL_ALLOWED, shadow},
    {"read /etc/machine-id", CONTROL_MAY, machine_id},
    {"read a file outside", CONTROL_ALLOWED, file_outside},
    {"list /root", CONTROL_ALLOWED, root_home},
    {"list /var/lib", CONTROL_ALLOWED, var_lib},
    {"list /sys", CONTROL_ALLOWED, sysfs},
    {"list /sys/fs/cgroup", CONTROL_ALLOWED, cgroupfs},
    {"list the root of process 1", CONTROL_MAY, root_of_init},
    {"read the environment of process 1", CONTROL_MAY, environ_of_init},
    {"open the memory of process 1", CONTROL_MAY, memory_of_init},
    {"list the fds of process 1", CONTROL_MAY, fds_of_init},
    {"read the maps of process 1", CONTROL_MAY, maps_of_init},
    {"open core_pattern to write", CONTROL_ALLOWED, core_pattern},
    {"open a sysctl to write", CONTROL_ALLOWED, sysctl_file},
    {"open sysrq-trigger to write", CONTROL_MAY, sysrq},
    {"open kcore", CONTROL_MAY, kcore},
    {"read kallsyms", CONTROL_MAY, kallsyms},
    {"read /proc/keys", CONTROL_MAY, keys_file},
    {"read the kernel's command line", CONTROL_ALLOWED, kernel_command_line},
    {"open the OOM score of process 1", CONTROL_MAY, oom_of_init},
    {"open /dev/kmsg", CONTROL_MAY, kernel_log},
    {"open /dev/fuse", CONTROL_ALLOWED, fuse_device},
    {"open /dev/kvm", CONTROL_MAY, kvm_device},
    {"open a disk", CONTROL_MAY, disk},
    {"write in /usr/bin", CONTROL_ALLOWED, write_usr},
    {"write in /etc", CONTROL_ALLOWED, write_etc},
    {"write in /", CONTROL_ALLOWED, write_root},
    {"write in /run", CONTROL_ALLOWED, write_run},
    {"make a character device", CONTROL_MAY, character_device},
    {"make a block device", CONTROL_MAY, block_device},
    {"open a vsock", CONTROL_MAY, vsock},
    {"open a vsock with a hidden family", CONTROL_MAY, hidden_vsock},
    {"open a packet socket", CONTROL_ALLOWED, packet_socket},
    {"open a raw socket", CONTROL_ALLOWED, raw_socket},
    {"open a crypto socket", CONTROL_MAY, crypto_socket},
    {"connect to a port outside", CONTROL_ALLOWED, tcp_outside},
    {"find a way to the Internet", CONTROL_MAY, udp_away},
    {"connect to an abstract socket", CONTROL_ALLOWED, abstract_socket},
    {"signal a process outside", CONTROL_ALLOWED, signal_outside},
    {"see a process outside", CONTROL_ALLOWED, see_outside},
    {"signal process 1", CONTROL_ALLOWED, signal_init},
    {"read a limit of process 1", CONTROL_MAY, limit_init},
    {"trace a child", CONTROL_ALLOWED, trace_child},
    {"read a child's memory", CONTROL_ALLOWED, read_child},
    {"become root", CONTROL_ALLOWED, become_root},
    {"become group root", CONTROL_ALLOWED, become_group},
    {"drop groups", CONTROL_ALLOWED, drop_groups},
    {"raise the priority", CONTROL_MAY, nice_up},
    {"run in real time", CONTROL_MAY, real_time},
    {"raise a limit", CONTROL_MAY, many_files},
    {"lock much memory", CONTROL_ALLOWED, lock_memory},
    {NULL, CONTROL_MAY, NULL},
};

const struct attempt *const attempt_tables[] = {attempts_reach, attempts_kernel,
                                                NULL};
