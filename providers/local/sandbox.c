/* A sandbox's process 1, from its birth to its lock-down. See keeper.h. */
#include "providers/local/keeper.h"

#include "core/cleanup.h"
#include "providers/local/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* The group namespace comes later, when init is in its own group. */
#define NAMESPACES                                                             \
    ((uint64_t)CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |     \
     CLONE_NEWIPC | CLONE_NEWUTS)

/* What init has open besides its streams. */
enum {
    INIT_SOCK = 3,
    INIT_SCRIPTS,
    INIT_OOM,
    INIT_FDS
};

/* What init keeps: to become the commands' user, and to signal them. Where it
 * has their id it needs nothing. */
#define INIT_CAPS ((1U << CAP_SETUID) | (1U << CAP_SETGID) | (1U << CAP_KILL))

static int raise_loopback(struct err *err)
{
    AUTO_FD int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};

    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0) {
        return err_errno(err, "cannot raise the loopback interface");
    }
    return 0;
}

/* Nothing that this process or a child does can gain a privilege again. */
static int drop_privileges(bool one_id, struct err *err)
{
    const __u32 kept = one_id ? 0 : INIT_CAPS;
    struct __user_cap_header_struct head = {
        .version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    struct __user_cap_data_struct data[2] = {
        {.effective = kept, .permitted = kept, .inheritable = 0},
        {.effective = 0, .permitted = 0, .inheritable = 0},
    };
    unsigned long cap = 0;

    while (prctl(PR_CAPBSET_DROP, cap) == 0) {
        cap++;
    }
    if (errno != EINVAL) { /* There are no more. */
        return err_errno(err, "PR_CAPBSET_DROP");
    }
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0) {
        return err_errno(err, "PR_CAP_AMBIENT");
    }
    if (syscall(SYS_capset, &head, data) < 0) {
        return err_errno(err, "capset");
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
        return err_errno(err, "PR_SET_NO_NEW_PRIVS");
    }
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0) {
        return err_errno(err, "PR_SET_DUMPABLE");
    }
    return 0;
}

/* From here on its uid is one that means nothing outside; or the one that there
 * is. */
static int take_ids(bool one_id, struct err *err)
{
    if (!one_id && (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 ||
                    setresuid(0, 0, 0) < 0)) {
        return err_errno(err, "cannot take the sandbox's ids");
    }
    /* A change of ids forgets it, so it comes here. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) {
        return err_errno(err, "PR_SET_PDEATHSIG");
    }
    return 0;
}

/*
 * Leaves only the three open, under their numbers, so that no other can leak.
 * The standard streams stay taken: else others would come to lie there.
 */
static int keep_only(int sock, int scripts, int oom, struct err *err)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int high = fcntl(scripts, F_DUPFD_CLOEXEC, INIT_FDS);
    int higher = fcntl(oom, F_DUPFD_CLOEXEC, INIT_FDS);

    if (null < 0 || high < 0 || higher < 0) {
        return err_errno(err, "/dev/null");
    }
    for (int fd = 0; fd < INIT_SOCK; fd++) {
        if (dup2(null, fd) < 0) {
            return err_errno(err, "cannot set up init's streams");
        }
    }
    if (dup3(sock, INIT_SOCK, O_CLOEXEC) < 0 ||
        dup3(high, INIT_SCRIPTS, O_CLOEXEC) < 0 ||
        dup3(higher, INIT_OOM, O_CLOEXEC) < 0 ||
        syscall(SYS_close_range, (unsigned)INIT_FDS, ~0U, 0U) < 0) {
        return err_errno(err, "cannot close the keeper's files");
    }
    return 0;
}

static int set_up(const struct sandbox_plan *plan, int workspace, int sock,
                  struct err *err)
{
    int scripts = -1;
    int oom = -1;
    int rc = take_ids(plan->one_id, err);

    if (rc == 0) {
        rc = tree_enter(workspace, plan->quota.tmp_bytes, &scripts, &oom, err);
    }
    if (rc == 0) {
        rc = raise_loopback(err);
    }
    if (rc == 0 && sethostname("sandbox", strlen("sandbox")) < 0) {
        rc = err_errno(err, "sethostname");
    }
    if (rc == 0 && unshare(CLONE_NEWCGROUP) < 0) {
        rc = err_errno(err, "cannot make a cgroup namespace");
    }
    if (rc == 0) {
        rc = rlimit_set_all(&plan->quota, plan->counts_pids, err);
    }
    if (rc == 0) {
        rc = drop_privileges(plan->one_id, err);
    }
    return rc == 0 ? keep_only(sock, scripts, oom, err) : rc;
}

static int read_int(int fd)
{
    char text[16];
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

    text[n < 0 ? 0 : n] = '\0';
    return (int)strtol(text, NULL, 10);
}

/*
 * The clone's first steps. `go` is readable once the ids are mapped, and ends
 * without a byte when they cannot be.
 */
NORETURN static void be_init(const struct sandbox_plan *plan, int go, int sock,
                             int workspace)
{
    struct init_plan serve = {.sock = INIT_SOCK,
                              .scripts = INIT_SCRIPTS,
                              .oom = INIT_OOM,
                              .one_id = plan->one_id,
                              .filter = plan->filter};
    struct wire wire = {.type = WIRE_FAILED};
    struct err err = ERR_INIT;
    char byte;

    if (read(go, &byte, 1) != 1) {
        _exit(1);
    }
    (void)prctl(PR_SET_NAME, "init");
    if (set_up(plan, workspace, sock, &err) < 0) {
        wire.code = err.code;
        (void)snprintf(wire.words, sizeof(wire.words), "%s", err.msg);
        _exit(wire_send(sock, &wire, NULL, 0, &err) == 0 ? 1 : 2);
    }
    serve.oom_own = read_int(INIT_OOM);
    init_serve(&serve);
}

/* A range of ids that mean nothing outside, or our own one. */
static int write_maps(pid_t pid, const struct sandbox_plan *plan,
                      struct err *err)
{
    unsigned uid = plan->one_id ? geteuid() : plan->id_base;
    unsigned gid = plan->one_id ? getegid() : plan->id_base;
    char map[64];
    int rc;

    (void)snprintf(map, sizeof(map), "%d %u %d", plan->one_id ? WIRE_USER : 0,
                   uid, plan->one_id ? 1 : WIRE_ID_COUNT);
    rc = proc_write(pid, "uid_map", map, err);
    if (rc < 0) {
        return rc;
    }
    (void)snprintf(map, sizeof(map), "%d %u %d", plan->one_id ? WIRE_GROUP : 0,
                   gid, plan->one_id ? 1 : WIRE_ID_COUNT);
    return proc_write(pid, "gid_map", map, err);
}

static int let_go(pid_t pid, const struct sandbox_plan *plan, int go,
                  struct err *err)
{
    int rc = write_maps(pid, plan, err);

    if (rc == 0 && write(go, "", 1) != 1) {
        rc = err_errno(err, "the sandbox's first process ended at once");
    }
    return rc;
}

/* While it may still be opened: see drop_privileges(). */
static int open_space(pid_t pid)
{
    char path[48];

    (void)snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* The first process, whose mounts are a copy of the template's. */
static int clone_init(const struct sandbox_plan *plan, struct proc_child *out,
                      struct err *err)
{
    const uint64_t flags =
        NAMESPACES | (plan->in_cradle ? (uint64_t)CLONE_PARENT : 0);
    struct err back = ERR_INIT;
    int rc = template_enter(plan->mounts, err);

    if (rc < 0) {
        return rc;
    }
    rc = proc_clone(flags, plan->cgroup, out, err);
    if (rc == 0 && out->pid == 0) {
        return 0;
    }
    /* Also after a failure: the next template is made of the machine's. */
    if (template_leave(plan->template, &back) < 0 && rc == 0) {
        proc_end(out);
        *err = back;
        rc = -back.code;
    }
    return rc < 0 ? err_wrap(err, rc, "the sandbox's namespaces") : 0;
}

static int start_with(const struct sandbox_plan *plan, int workspace,
                      struct sandbox_made *out, struct err *err)
{
    AUTO_FD int go_read = -1;
    AUTO_FD int go_write = -1;
    struct proc_child init;
    int pair[2];
    int rc;

    if (pipe2(pair, O_CLOEXEC) < 0) {
        return err_errno(err, "pipe2");
    }
    go_read = pair[0];
    go_write = pair[1];
    rc = clone_init(plan, &init, err);
    if (rc < 0) {
        return rc;
    }
    if (init.pid == 0) {
        /* Else it would hold open what tells it of the others' end. */
        (void)close(go_write);
        (void)close(WIRE_KEEPER_FD);
        be_init(plan, go_read, init.sock, workspace);
    }
    out->space = open_space(init.pid);
    rc = let_go(init.pid, plan, go_write, err);
    if (rc < 0) {
        cleanup_fd(&out->space);
        proc_forget(&init);
        return rc;
    }
    out->sock = init.sock;
    out->pidfd = init.pidfd;
    return 0;
}

int sandbox_start(const struct sandbox_plan *plan, struct sandbox_made *out,
                  struct err *err)
{
    AUTO_FD int workspace = -1;
    int rc = tree_open(plan->workspace, &workspace, err);

    return rc == 0 ? start_with(plan, workspace, out, err) : rc;
}

int sandbox_probe(struct err *err)
{
    struct proc_child child;
    int rc = proc_clone(NAMESPACES, -1, &child, err);

    if (rc < 0) {
        return err_wrap(err, rc,
                        "this machine refuses user, mount, pid, net, ipc and "
                        "uts namespaces");
    }
    if (child.pid == 0) {
        _exit(0);
    }
    proc_forget(&child); /* It is reaped by nobody, as all are. */
    return 0;
}
