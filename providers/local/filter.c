/*
 * The system calls that commands have. See keeper.h.
 *
 * Two filters lie one on the other. The kernel remembers which calls an
 * allow-list always lets pass, so that most never run it; arguments are looked
 * at by a second, short one, which libseccomp cannot express in the first. Both
 * are process 1's, and commands inherit them; a third one, of four
 * instructions, takes from a command what only process 1 needs.
 */
#include "providers/local/keeper.h"

#include "core/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum {
    NAME_SIZE = 32,
    SET_DELEGATION = F_SETLEASE + 16, /* fcntl()'s, of Linux 6.19. */
};

/*
 * Names with a blank after each. Not every machine knows all of them: such are
 * passed over.
 */
static const char allowed[] =
    /* Files. */
    "_llseek access chdir chmod chown close close_range copy_file_range "
    "creat dup dup2 dup3 faccessat faccessat2 fadvise64 fallocate fchdir "
    "fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr "
    "flistxattr flock fremovexattr fsetxattr fstat fstatfs fsync ftruncate "
    "futimesat getcwd getdents getdents64 getxattr ioctl lchown lgetxattr "
    "link linkat listxattr llistxattr lremovexattr lseek lsetxattr lstat "
    "mkdir mkdirat mknod mknodat newfstatat open openat openat2 pread64 "
    "preadv preadv2 pwrite64 pwritev pwritev2 read readahead readlink "
    "readlinkat readv removexattr rename renameat renameat2 rmdir sendfile "
    "setxattr splice stat statfs statx symlink symlinkat sync "
    "sync_file_range syncfs tee truncate umask unlink unlinkat utime "
    "utimensat utimes vmsplice write writev "
    /* Waiting and events. */
    "epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 "
    "epoll_wait eventfd eventfd2 inotify_add_watch inotify_init "
    "inotify_init1 inotify_rm_watch pause pipe pipe2 poll ppoll pselect6 "
    "select signalfd signalfd4 timerfd_create timerfd_gettime "
    "timerfd_settime "
    /* Memory. */
    "brk get_mempolicy madvise map_shadow_stack membarrier memfd_create "
    "mincore mlock mlock2 mlockall mmap mprotect mremap mseal msync munlock "
    "munlockall munmap pkey_alloc pkey_free pkey_mprotect process_madvise "
    "process_mrelease remap_file_pages shmat shmctl shmdt shmget "
    /* Processes, threads and signals. */
    "arch_prctl capget capset clone execve execveat exit exit_group fork "
    "futex futex_requeue futex_wait futex_waitv futex_wake get_robust_list "
    "get_thread_area getcpu getpgid getpgrp getpid getpriority getppid "
    "getrlimit getrusage getsid gettid ioprio_get ioprio_set kill "
    "pidfd_open pidfd_send_signal prctl prlimit64 restart_syscall rseq "
    "rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn "
    "rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max "
    "sched_get_priority_min sched_getaffinity sched_getattr sched_getparam "
    "sched_getscheduler sched_rr_get_interval sched_setaffinity "
    "sched_setattr sched_setparam sched_setscheduler sched_yield seccomp "
    "set_robust_list set_thread_area set_tid_address setpgid setpriority "
    "setrlimit setsid sigaltstack tgkill tkill uretprobe vfork wait4 waitid "
    /* Ids: without a privilege they change nothing. */
    "getegid geteuid getgid getgroups getresgid getresuid getuid setfsgid "
    "setfsuid setgid setgroups setregid setresgid setresuid setreuid setuid "
    /* Sockets and System V. */
    "accept accept4 bind connect getpeername getsockname getsockopt listen "
    "mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink "
    "msgctl msgget msgrcv msgsnd recvfrom recvmmsg recvmsg semctl semget "
    "semop semtimedop sendmmsg sendmsg sendto setsockopt shutdown socket "
    "socketpair "
    /* Time and the system. */
    "alarm clock_getres clock_gettime clock_nanosleep getitimer getrandom "
    "gettimeofday nanosleep setitimer sysinfo time timer_create "
    "timer_delete timer_getoverrun timer_gettime timer_settime times uname ";

/* Calls that exist and that programs expect to be refused. */
static const char refused[] =
    "acct add_key adjtimex bpf chroot clock_adjtime clock_settime "
    "delete_module fanotify_init fanotify_mark finit_module fsconfig "
    "fsmount fsopen fspick init_module ioperm iopl kcmp kexec_file_load "
    "kexec_load keyctl lookup_dcookie mbind migrate_pages modify_ldt mount "
    "mount_setattr move_mount move_pages name_to_handle_at "
    "open_by_handle_at open_tree perf_event_open pidfd_getfd pivot_root "
    "process_vm_readv process_vm_writev ptrace quotactl quotactl_fd reboot "
    "request_key set_mempolicy setdomainname setns sethostname settimeofday "
    "swapoff swapon syslog umount2 unshare userfaultfd vhangup ";

/* Where an argument has, in the bits of mask, this value: refused. */
static const struct bad_argument {
    const char *call;
    unsigned arg;
    uint64_t mask;
    uint64_t value;
} bad_arguments[] = {
    {"clone", 0, CLONE_NEWNS, CLONE_NEWNS},
    {"clone", 0, CLONE_NEWCGROUP, CLONE_NEWCGROUP},
    {"clone", 0, CLONE_NEWUTS, CLONE_NEWUTS},
    {"clone", 0, CLONE_NEWIPC, CLONE_NEWIPC},
    {"clone", 0, CLONE_NEWUSER, CLONE_NEWUSER},
    {"clone", 0, CLONE_NEWPID, CLONE_NEWPID},
    {"clone", 0, CLONE_NEWNET, CLONE_NEWNET},
    {"ioctl", 1, UINT32_MAX, TIOCSTI},
    {"ioctl", 1, UINT32_MAX, TIOCLINUX},
    /* Loads the kernel's module of whatever line discipline is asked for. */
    {"ioctl", 1, UINT32_MAX, TIOCSETD},
    {"mknod", 1, S_IFMT, S_IFCHR},
    {"mknod", 1, S_IFMT, S_IFBLK},
    {"mknodat", 2, S_IFMT, S_IFCHR},
    {"mknodat", 2, S_IFMT, S_IFBLK},
    /* Process 1, which may have the commands' id. */
    {"ioprio_set", 1, UINT32_MAX, 1},
    {"kill", 0, UINT32_MAX, 1},
    {"pidfd_open", 0, UINT32_MAX, 1},
    {"prlimit64", 0, UINT32_MAX, 1},
    {"rt_sigqueueinfo", 0, UINT32_MAX, 1},
    {"rt_tgsigqueueinfo", 0, UINT32_MAX, 1},
    {"sched_setaffinity", 0, UINT32_MAX, 1},
    {"sched_setattr", 0, UINT32_MAX, 1},
    {"sched_setparam", 0, UINT32_MAX, 1},
    {"sched_setscheduler", 0, UINT32_MAX, 1},
    {"setpriority", 1, UINT32_MAX, 1},
    {"tgkill", 0, UINT32_MAX, 1},
    {"tkill", 0, UINT32_MAX, 1},
};

/* The last that is checked one by one; all above are refused. */
enum {
    FAMILY_LAST = 64,
    NETLINK_LAST = 31,
};

/* Protocols of the Internet that few need and whose modules load by a call. */
static const unsigned bad_protocols[] = {
    33 /* DCCP */, 115 /* L2TP */, 132 /* SCTP */, 256 /* SMC */
};

static bool family_allowed(int family)
{
    return family == AF_UNIX || family == AF_INET || family == AF_INET6 ||
           family == AF_NETLINK;
}

static int add_name(scmp_filter_ctx context, const char *name, size_t len,
                    uint32_t action)
{
    char text[NAME_SIZE];
    int call;

    (void)snprintf(text, sizeof(text), "%.*s", (int)len, name);
    call = seccomp_syscall_resolve_name(text);
    /* Negative: another architecture's, or newer than the library. */
    return call < 0 ? 0 : seccomp_rule_add(context, action, call, 0);
}

static int add_names(scmp_filter_ctx context, const char *names,
                     uint32_t action)
{
    int rc = 0;

    while (rc == 0 && *names) {
        size_t len = strcspn(names, " ");

        rc = add_name(context, names, len, action);
        names += len + 1;
    }
    return rc;
}

static int add_arguments(scmp_filter_ctx context)
{
    for (size_t i = 0; i < ARRAY_SIZE(bad_arguments); i++) {
        const struct bad_argument *bad = &bad_arguments[i];
        int call = seccomp_syscall_resolve_name(bad->call);
        int rc;

        if (call < 0) {
            continue;
        }
        rc = seccomp_rule_add(
            context, SCMP_ACT_ERRNO(EPERM), call, 1,
            SCMP_CMP(bad->arg, SCMP_CMP_MASKED_EQ, bad->mask, bad->value));
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* The kernel takes a family as 32 bits: the upper ones must not hide it. */
static int add_families(scmp_filter_ctx context)
{
    static const int calls[] = {SCMP_SYS(socket), SCMP_SYS(socketpair)};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(calls); i++) {
        rc = seccomp_rule_add(context, SCMP_ACT_ERRNO(EAFNOSUPPORT), calls[i],
                              1, SCMP_A0(SCMP_CMP_GT, FAMILY_LAST, 0));
        for (int f = 0; rc == 0 && f <= FAMILY_LAST; f++) {
            if (!family_allowed(f)) {
                rc = seccomp_rule_add(
                    context, SCMP_ACT_ERRNO(EAFNOSUPPORT), calls[i], 1,
                    SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)(unsigned)f, 0));
            }
        }
    }
    return rc;
}

static int add_protocol(scmp_filter_ctx context, unsigned family,
                        unsigned protocol)
{
    return seccomp_rule_add(context, SCMP_ACT_ERRNO(EPROTONOSUPPORT),
                            SCMP_SYS(socket), 2,
                            SCMP_A0(SCMP_CMP_MASKED_EQ, UINT32_MAX, family),
                            SCMP_A2(SCMP_CMP_MASKED_EQ, UINT32_MAX, protocol));
}

/* Of netlink there are routes and the events of devices; none is seen here. */
static int add_protocols(scmp_filter_ctx context)
{
    int rc = 0;

    for (unsigned p = 0; rc == 0 && p <= NETLINK_LAST; p++) {
        if (p != NETLINK_ROUTE && p != NETLINK_KOBJECT_UEVENT) {
            rc = add_protocol(context, AF_NETLINK, p);
        }
    }
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(bad_protocols); i++) {
        rc = add_protocol(context, AF_INET, bad_protocols[i]);
        if (rc == 0) {
            rc = add_protocol(context, AF_INET6, bad_protocols[i]);
        }
    }
    return rc;
}

/*
 * The limit of core files is 1, see rlimit.c, and stays so. Programs that
 * want none, as those that hold secrets do, end when they cannot say so:
 * they are told that it is done, and no core is written.
 */
static int add_core_limit(scmp_filter_ctx context)
{
    const struct scmp_arg_cmp core =
        SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, RLIMIT_CORE);
    int rc =
        seccomp_rule_add(context, SCMP_ACT_ERRNO(0), SCMP_SYS(setrlimit), 1,
                         SCMP_A0(SCMP_CMP_MASKED_EQ, UINT32_MAX, RLIMIT_CORE));

    if (rc == 0) {
        rc = seccomp_rule_add(context, SCMP_ACT_ERRNO(0), SCMP_SYS(prlimit64),
                              3, core, SCMP_A2(SCMP_CMP_NE, 0, 0),
                              SCMP_A3(SCMP_CMP_EQ, 0, 0));
    }
    if (rc == 0) {
        /* Nobody would fill in the old limit. */
        rc = seccomp_rule_add(
            context, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(prlimit64), 3, core,
            SCMP_A2(SCMP_CMP_NE, 0, 0), SCMP_A3(SCMP_CMP_NE, 0, 0));
    }
    return rc;
}

/*
 * Where all sandboxes have one id, files that are common to them are each one's
 * own: who has a lease of one holds up all who open it. Leases for reading, on
 * what nobody can write, hold up nobody.
 */
static int add_leases(scmp_filter_ctx context)
{
    int rc =
        seccomp_rule_add(context, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(fcntl), 2,
                         SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, F_SETLEASE),
                         SCMP_A2(SCMP_CMP_MASKED_EQ, UINT32_MAX, F_WRLCK));

    /* The newer kind has what it asks for in memory. */
    if (rc == 0) {
        rc = seccomp_rule_add(
            context, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(fcntl), 1,
            SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, SET_DELEGATION));
    }
    return rc;
}

/* Turns a filter into what the kernel takes. */
static int compile(scmp_filter_ctx context, struct sock_fprog *out)
{
    AUTO_FD int fd = memfd_create("filter", MFD_CLOEXEC);
    struct sock_filter *code;
    off_t size;

    if (fd < 0 || seccomp_export_bpf(context, fd) < 0) {
        return -EIO;
    }
    size = lseek(fd, 0, SEEK_END);
    if (size > (off_t)(BPF_MAXINSNS * sizeof(*code))) {
        return -E2BIG;
    }
    code = size > 0 ? malloc((size_t)size) : NULL;
    if (!code || pread(fd, code, (size_t)size, 0) != size) {
        free(code);
        return -ENOMEM;
    }
    out->len = (unsigned short)((size_t)size / sizeof(*code));
    out->filter = code;
    return 0;
}

static int build_allow(struct sock_fprog *out)
{
    scmp_filter_ctx context = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    int rc = context ? 0 : -ENOMEM;

    if (rc == 0) {
        /* 32-bit programs have other call numbers: none of them. */
        rc = seccomp_attr_set(context, SCMP_FLTATR_ACT_BADARCH,
                              SCMP_ACT_ERRNO(ENOSYS));
    }
    if (rc == 0) {
        rc = seccomp_attr_set(context, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    }
    if (rc == 0) {
        rc = add_names(context, allowed, SCMP_ACT_ALLOW);
    }
    if (rc == 0) {
        rc = add_names(context, refused, SCMP_ACT_ERRNO(EPERM));
    }
    if (rc == 0) {
        rc = add_names(context, "clone3 ", SCMP_ACT_ALLOW);
    }
    if (rc == 0) {
        rc = compile(context, out);
    }
    seccomp_release(context);
    return rc;
}

static int build_deny(bool one_id, struct sock_fprog *out)
{
    scmp_filter_ctx context = seccomp_init(SCMP_ACT_ALLOW);
    int rc = context ? 0 : -ENOMEM;

    if (rc == 0) {
        rc = seccomp_attr_set(context, SCMP_FLTATR_ACT_BADARCH,
                              SCMP_ACT_ERRNO(ENOSYS));
    }
    if (rc == 0) {
        rc = seccomp_attr_set(context, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    }
    if (rc == 0) {
        rc = add_arguments(context);
    }
    if (rc == 0) {
        rc = add_families(context);
    }
    if (rc == 0) {
        rc = add_protocols(context);
    }
    if (rc == 0) {
        rc = add_core_limit(context);
    }
    if (rc == 0 && one_id) {
        rc = add_leases(context);
    }
    if (rc == 0) {
        rc = compile(context, out);
    }
    seccomp_release(context);
    return rc;
}

int filter_build(bool one_id, struct filter *out, struct err *err)
{
    int rc = build_allow(&out->allow);

    if (rc == 0) {
        rc = build_deny(one_id, &out->deny);
    }
    return rc < 0 ? err_set(err, -rc, "cannot compile the seccomp filter") : 0;
}

void filter_done(struct filter *filter)
{
    free(filter->allow.filter);
    free(filter->deny.filter);
}

static int install(const struct sock_fprog *program)
{
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0UL, program) < 0
               ? -errno
               : 0;
}

int filter_install(const struct filter *filter)
{
    /* The deny filter first: the other one lets seccomp through. */
    int rc = install(&filter->deny);

    return rc == 0 ? install(&filter->allow) : rc;
}

/* Other architectures' calls are refused before their numbers matter. */
int filter_take_clone3(void)
{
    static struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    static const struct sock_fprog program = {ARRAY_SIZE(code), code};

    return install(&program);
}
