/* Attempts on processes, and of processes on the machine's limits. */
#include "tests/contract/local_attempts.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/kcmp.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

/* ---- The calls of other tables ---- */

static int call_32_bit(const struct attempt_ctx *ctx)
{
#if defined(__x86_64__)
    long rc;

    (void)ctx;
    /* getpid */
    __asm__ volatile("int $0x80" : "=a"(rc) : "a"(20L) : "memory");
    errno = rc < 0 && rc > -4096 ? (int)-rc : EINVAL;
    return rc > 0 ? 0 : -1;
#else
    (void)ctx;
    errno = ENOSYS;
    return -1;
#endif
}

CALLS(call_x32, SYS_getpid | 0x40000000)

/* ---- Other processes ---- */

static int open_pid(const struct attempt_ctx *ctx)
{
    return of_fd(syscall(SYS_pidfd_open, ctx->pid, 0));
}

static int signal_thread(const struct attempt_ctx *ctx)
{
    return syscall(SYS_tgkill, ctx->pid, ctx->pid, 0) < 0 ? -1 : 0;
}

static int limit_outside(const struct attempt_ctx *ctx)
{
    struct rlimit limit;

    return prlimit(ctx->pid, RLIMIT_NOFILE, NULL, &limit);
}

static int nice_outside(const struct attempt_ctx *ctx)
{
    return setpriority(PRIO_PROCESS, (id_t)ctx->pid, 1);
}

static int own_signals_to_outside(const struct attempt_ctx *ctx)
{
    int pair[2];

    return pipe2(pair, O_CLOEXEC) < 0
               ? -1
               : fcntl(pair[0], F_SETOWN, (long)ctx->pid);
}

static int read_memory(const struct attempt_ctx *ctx)
{
    char byte = 0;
    struct iovec here = {.iov_base = &byte, .iov_len = 1};
    pid_t pid = ctx->row->number ? (pid_t)ctx->row->number : ctx->pid;

    return process_vm_readv(pid, &here, 1, &here, 1, 0) < 0 && errno != EFAULT
               ? -1
               : 0;
}

static int write_child(const struct attempt_ctx *ctx)
{
    static int word;
    struct iovec there = {.iov_base = &word, .iov_len = sizeof(word)};
    pid_t pid = fork();
    int rc;
    int saved;

    (void)ctx;
    if (pid == 0) {
        (void)pause();
        _exit(0);
    }
    rc = process_vm_writev(pid, &there, 1, &there, 1, 0) > 0 ? 0 : -1;
    saved = errno;
    (void)kill(pid, SIGKILL);
    errno = saved;
    return rc;
}

static int trace_one(const struct attempt_ctx *ctx)
{
    return ptrace(PTRACE_SEIZE, (pid_t)ctx->row->number, NULL, NULL) < 0 ? -1
                                                                         : 0;
}

static int be_traced(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0 ? -1 : 0;
}

static int take_fd(const struct attempt_ctx *ctx)
{
    int pidfd = (int)syscall(SYS_pidfd_open, (pid_t)ctx->row->number, 0);

    if (pidfd < 0) {
        return -1;
    }
    return after_close(pidfd, of_fd(syscall(SYS_pidfd_getfd, pidfd, 0, 0)));
}

static int enter_init(const struct attempt_ctx *ctx)
{
    int fd = open(ctx->row->text, O_RDONLY | O_CLOEXEC);

    return fd < 0 ? -1 : after_close(fd, setns(fd, 0));
}

static int read_name(const struct attempt_ctx *ctx)
{
    char text[256];

    return readlink(ctx->row->text, text, sizeof(text)) < 0 ? -1 : 0;
}

static int compare_with_init(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return syscall(SYS_kcmp, getpid(), 1, KCMP_VM, 0, 0) < 0 ? -1 : 0;
}

static int processors_of_init(const struct attempt_ctx *ctx)
{
    cpu_set_t set;

    (void)ctx;
    return sched_getaffinity(1, sizeof(set), &set) < 0
               ? -1
               : sched_setaffinity(1, sizeof(set), &set);
}

/* ---- Rights ---- */

static int capabilities(const struct attempt_ctx *ctx)
{
    struct __user_cap_header_struct head = {.version =
                                                _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    uint32_t bit = 1U << ctx->row->number;

    data[0].effective = data[0].permitted = data[0].inheritable = bit;
    return syscall(SYS_capset, &head, data) < 0 ? -1 : 0;
}

static int bounding_set(const struct attempt_ctx *ctx)
{
    (void)ctx;
    for (unsigned long cap = 0; cap < 32; cap++) {
        if (prctl(PR_CAPBSET_READ, cap) == 1) {
            return 0;
        }
    }
    errno = EPERM;
    return -1;
}

static int secure_bits(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return prctl(PR_SET_SECUREBITS, 1UL);
}

static int new_privileges(const struct attempt_ctx *ctx)
{
    (void)ctx;
    errno = EPERM;
    return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0 ? 0 : -1;
}

/* Waits until a child runs as another user than we. */
static int become_by_program(const struct attempt_ctx *ctx)
{
    struct stat attr;
    char path[32];
    pid_t pid;
    int rc = -1;

    if (geteuid() == 0 || stat(ctx->row->text, &attr) < 0) {
        return -1;
    }
    pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        (void)dup2(null, 1);
        (void)dup2(null, 2);
        (void)raise(SIGSTOP);
        (void)execl(ctx->row->text, ctx->row->text, (char *)NULL);
        _exit(1);
    }
    (void)waitpid(pid, NULL, WUNTRACED);
    (void)kill(pid, SIGCONT);
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    for (int i = 0; rc < 0 && i < 100; i++) {
        char text[2048] = "";
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = read(fd, text, sizeof(text) - 1);
        const char *ids = n > 0 ? strstr(text, "\nUid:") : NULL;
        unsigned real;
        unsigned effective;

        (void)close(fd);
        if (ids && sscanf(ids, "\nUid: %u %u", &real, &effective) == 2 &&
            effective == 0) {
            rc = 0;
        }
        (void)usleep(2000);
    }
    (void)kill(pid, SIGKILL);
    errno = EPERM;
    return rc;
}

/* ---- What belongs to the whole machine ---- */

static int dearer_memory(const struct attempt_ctx *ctx)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    (void)ctx;
    return fd < 0 ? -1 : after_close(fd, write(fd, "0", 1) == 1 ? 0 : -1);
}

/* With a limit of 0 the machine's handler of cores is still run, as root. */
static int core_for_the_machine(const struct attempt_ctx *ctx)
{
    struct rlimit none = {0, 0};
    struct rlimit now;

    (void)ctx;
    if (setrlimit(RLIMIT_CORE, &none) < 0 || getrlimit(RLIMIT_CORE, &now) < 0) {
        return -1;
    }
    errno = EPERM;
    return now.rlim_cur == 1 ? -1 : 0;
}

static int core_by_prlimit(const struct attempt_ctx *ctx)
{
    struct rlimit none = {0, 0};
    struct rlimit old;

    (void)ctx;
    return prlimit(0, RLIMIT_CORE, &none, &old);
}

static int many_terminals(const struct attempt_ctx *ctx)
{
    (void)ctx;
    for (int i = 0; i < 300; i++) {
        if (posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC) < 0) {
            return -1;
        }
    }
    return 0;
}

static int line_discipline(const struct attempt_ctx *ctx)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    int kind = (int)ctx->row->number;
    int slave;

    if (master < 0 || unlockpt(master) < 0) {
        return -1;
    }
    slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    return slave < 0 ? -1 : ioctl(slave, TIOCSETD, &kind);
}

/* Of which a machine has a fixed number, for all who are on it. */
static int asynchronous_io(const struct attempt_ctx *ctx)
{
    unsigned long context = 0;

    (void)ctx;
    return syscall(SYS_io_setup, 128, &context) < 0 ? -1 : 0;
}

static int raise_limit(const struct attempt_ctx *ctx)
{
    struct rlimit limit;

    /* Where outside there is no limit, that is as good as a raised one. */
    if (prlimit(0, (__rlimit_resource_t)ctx->row->number, NULL, &limit) < 0) {
        return -1;
    }
    if (limit.rlim_max != RLIM_INFINITY) {
        limit.rlim_max++;
    }
    return setrlimit((__rlimit_resource_t)ctx->row->number, &limit);
}

static int deadline_scheduling(const struct attempt_ctx *ctx)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attr = {sizeof(attr), 6, 0, 0, 0, 10000000, 20000000, 20000000};

    (void)ctx;
    return syscall(SYS_sched_setattr, 0, &attr, 0) < 0 ? -1 : 0;
}

static int round_robin(const struct attempt_ctx *ctx)
{
    struct sched_param param = {.sched_priority = 1};

    (void)ctx;
    return sched_setscheduler(0, SCHED_RR, &param);
}

CALLS(io_first, SYS_ioprio_set, 1, 0, 1 << 13)

static int wake_machine(const struct attempt_ctx *ctx)
{
    timer_t timer;

    (void)ctx;
    return timer_create(CLOCK_REALTIME_ALARM, NULL, &timer);
}

static int page_zero(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED
               ? -1
               : 0;
}

/* To what they are. */
static int set_clock(const struct attempt_ctx *ctx)
{
    struct timespec now;

    (void)ctx;
    return clock_gettime(CLOCK_REALTIME, &now) < 0
               ? -1
               : clock_settime(CLOCK_REALTIME, &now);
}

static int set_day(const struct attempt_ctx *ctx)
{
    struct timeval now;

    (void)ctx;
    return gettimeofday(&now, NULL) < 0 ? -1 : settimeofday(&now, NULL);
}

static int tune_clock(const struct attempt_ctx *ctx)
{
    struct timex now = {.modes = 0};

    (void)ctx;
    if (syscall(SYS_clock_adjtime, CLOCK_REALTIME, &now) < 0) {
        return -1;
    }
    now.modes = ADJ_STATUS;
    return syscall(SYS_clock_adjtime, CLOCK_REALTIME, &now) < 0 ? -1 : 0;
}

CALLS(segments, SYS_modify_ldt, 0, NULL, 0)
CALLS(bind_memory, SYS_mbind, 0, 0, 0, NULL, 0, 0)
CALLS(pages_of, SYS_move_pages, 0, 0, NULL, NULL, NULL, 0)
MAY_CALL(set_domain, SYS_setdomainname, NULL, 65)
MAY_CALL(request_key, SYS_request_key, "user", "sessionfs-none", NULL, 0)
MAY_CALL(read_keyring, SYS_keyctl, 11, -3, NULL, 0)
MAY_CALL(load_bpf, SYS_bpf, 5, NULL, 0)
MAY_CALL(load_kernel, SYS_kexec_load, 0, 0, NULL, 0)
MAY_CALL(load_kernel_file, SYS_kexec_file_load, -1, -1, 0, NULL, 0)
MAY_CALL(load_module_file, SYS_finit_module, -1, "", 0)
MAY_CALL(unload_module, SYS_delete_module, "sessionfs-none", O_NONBLOCK)
CALLS(new_pid_namespace, SYS_unshare, CLONE_NEWPID)
CALLS(new_ipc_namespace, SYS_unshare, CLONE_NEWIPC)
CALLS(new_uts_namespace, SYS_unshare, CLONE_NEWUTS)
CALLS(new_group_namespace, SYS_unshare, CLONE_NEWCGROUP)
CALLS(new_time_namespace, SYS_unshare, CLONE_NEWTIME)

/* ---- What was left open, or lying about ---- */

static int left_open(const struct attempt_ctx *ctx)
{
    (void)ctx;
    for (int fd = 3; fd < 1024; fd++) {
        if (fcntl(fd, F_GETFD) >= 0) {
            return 0;
        }
    }
    return -1;
}

static int left_in_environment(const struct attempt_ctx *ctx)
{
    (void)ctx;
    errno = ENOENT;
    return getenv(ATTEMPT_SECRET) ? 0 : -1;
}

const struct attempt attempts_processes[] = {
    {"call by the 32-bit table", CONTROL_MAY, call_32_bit, NULL, 0},
    {"call by the x32 table", CONTROL_MAY, call_x32, NULL, 0},
    {"open a process outside", CONTROL_ALLOWED, open_pid, NULL, 0},
    {"signal a thread outside", CONTROL_ALLOWED, signal_thread, NULL, 0},
    {"read a limit of a process outside", CONTROL_ALLOWED, limit_outside, NULL,
     0},
    {"be less nice to a process outside", CONTROL_ALLOWED, nice_outside, NULL,
     0},
    {"have a process outside signalled", CONTROL_ALLOWED,
     own_signals_to_outside, NULL, 0},
    {"read memory outside", CONTROL_ALLOWED, read_memory, NULL, 0},
    {"read the memory of process 1", CONTROL_MAY, read_memory, NULL, 1},
    {"write a child's memory", CONTROL_ALLOWED, write_child, NULL, 0},
    {"trace process 1", CONTROL_MAY, trace_one, NULL, 1},
    {"be traced", CONTROL_ALLOWED, be_traced, NULL, 0},
    {"take an fd of process 1", CONTROL_MAY, take_fd, NULL, 1},
    {"enter the mounts of process 1", CONTROL_MAY, enter_init, "/proc/1/ns/mnt",
     0},
    {"enter the network of process 1", CONTROL_MAY, enter_init,
     "/proc/1/ns/net", 0},
    {"open the program of process 1", CONTROL_MAY, attempt_open, "/proc/1/exe",
     O_RDONLY},
    {"name the program of process 1", CONTROL_MAY, read_name, "/proc/1/exe", 0},
    {"list the directory of process 1", CONTROL_MAY, attempt_list,
     "/proc/1/cwd/", 0},
    {"list a thread's fds of process 1", CONTROL_MAY, attempt_list,
     "/proc/1/task/1/fd", 0},
    {"read the vector of process 1", CONTROL_MAY, attempt_read, "/proc/1/auxv",
     0},
    {"read the work of process 1", CONTROL_MAY, attempt_read, "/proc/1/io", 0},
    {"read the call of process 1", CONTROL_MAY, attempt_read, "/proc/1/syscall",
     0},
    {"read the stack of process 1", CONTROL_MAY, attempt_read, "/proc/1/stack",
     0},
    {"write the ids of process 1", CONTROL_MAY, attempt_open, "/proc/1/uid_map",
     O_WRONLY},
    {"write the name of process 1", CONTROL_MAY, attempt_open, "/proc/1/comm",
     O_WRONLY},
    {"compare with process 1", CONTROL_MAY, compare_with_init, NULL, 0},
    {"move process 1 to other processors", CONTROL_MAY, processors_of_init,
     NULL, 0},
    {"take CAP_SYS_ADMIN", CONTROL_MAY, capabilities, NULL, CAP_SYS_ADMIN},
    {"take CAP_SETUID", CONTROL_MAY, capabilities, NULL, CAP_SETUID},
    {"take CAP_KILL", CONTROL_MAY, capabilities, NULL, CAP_KILL},
    {"find a capability to be had", CONTROL_ALLOWED, bounding_set, NULL, 0},
    {"set secure bits", CONTROL_MAY, secure_bits, NULL, 0},
    {"gain by another program", CONTROL_ALLOWED, new_privileges, NULL, 0},
    {"become root by su", CONTROL_MAY, become_by_program, "/usr/bin/su", 0},
    {"become root by mount", CONTROL_MAY, become_by_program, "/usr/bin/mount",
     0},
    {"make its memory dearer", CONTROL_ALLOWED, dearer_memory, NULL, 0},
    {"have the machine handle its core", CONTROL_ALLOWED, core_for_the_machine,
     NULL, 0},
    {"change the limit of cores", CONTROL_ALLOWED, core_by_prlimit, NULL, 0},
    {"take many terminals", CONTROL_MAY, many_terminals, NULL, 0},
    {"have a line discipline loaded", CONTROL_ALLOWED, line_discipline, NULL,
     0},
    {"take of the machine's requests", CONTROL_MAY, asynchronous_io, NULL, 0},
    {"raise the limit of files", CONTROL_MAY, raise_limit, NULL, RLIMIT_NOFILE},
    {"raise the limit of processes", CONTROL_MAY, raise_limit, NULL,
     RLIMIT_NPROC},
    {"raise the limit of locked memory", CONTROL_MAY, raise_limit, NULL,
     RLIMIT_MEMLOCK},
    {"raise the limit of messages", CONTROL_MAY, raise_limit, NULL,
     RLIMIT_MSGQUEUE},
    {"raise the limit of niceness", CONTROL_MAY, raise_limit, NULL,
     RLIMIT_NICE},
    {"raise the limit of real time", CONTROL_MAY, raise_limit, NULL,
     RLIMIT_RTPRIO},
    {"run by deadlines", CONTROL_MAY, deadline_scheduling, NULL, 0},
    {"run in turn with real time", CONTROL_MAY, round_robin, NULL, 0},
    {"read and write before others", CONTROL_MAY, io_first, NULL, 0},
    {"wake the machine", CONTROL_MAY, wake_machine, NULL, 0},
    {"map page zero", CONTROL_MAY, page_zero, NULL, 0},
    {"use segments", CONTROL_MAY, segments, NULL, 0},
    {"bind memory to a node", CONTROL_MAY, bind_memory, NULL, 0},
    {"move pages", CONTROL_MAY, pages_of, NULL, 0},
    {"set the domain's name", CONTROL_MAY, set_domain, NULL, 0},
    {"set the clock", CONTROL_MAY, set_clock, NULL, 0},
    {"set the day", CONTROL_MAY, set_day, NULL, 0},
    {"tune the clock", CONTROL_MAY, tune_clock, NULL, 0},
    {"request a key", CONTROL_MAY, request_key, NULL, 0},
    {"read a keyring", CONTROL_MAY, read_keyring, NULL, 0},
    {"load a bpf program", CONTROL_MAY, load_bpf, NULL, 0},
    {"load a kernel", CONTROL_MAY, load_kernel, NULL, 0},
    {"load a kernel's file", CONTROL_MAY, load_kernel_file, NULL, 0},
    {"load a module's file", CONTROL_MAY, load_module_file, NULL, 0},
    {"unload a module", CONTROL_MAY, unload_module, NULL, 0},
    {"make a pid namespace", CONTROL_ALLOWED, new_pid_namespace, NULL, 0},
    {"make an ipc namespace", CONTROL_ALLOWED, new_ipc_namespace, NULL, 0},
    {"make a uts namespace", CONTROL_ALLOWED, new_uts_namespace, NULL, 0},
    {"make a cgroup namespace", CONTROL_ALLOWED, new_group_namespace, NULL, 0},
    {"make a time namespace", CONTROL_MAY, new_time_namespace, NULL, 0},
    {"find an fd that was left open", CONTROL_ALLOWED, left_open, NULL, 0},
    {"find a secret in the environment", CONTROL_ALLOWED, left_in_environment,
     NULL, 0},
    {NULL, CONTROL_MAY, NULL, NULL, 0},
};
