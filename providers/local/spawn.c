/* The start of a command's process. See spawn.h. */
#include "providers/local/spawn.h"

#include "core/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum {
    BIRTH_TURN_MS = 5,
    BIRTH_TURNS = 1000, /* When a command that does not run is given up. */
    OOM_FIRST = 1000,
};

void spawn_free_request(struct spawn_request *request)
{
    if (request->map) {
        (void)munmap(request->map, request->map_size);
    }
    free(request->argv);
    free(request->env);
}

/* Takes `count` strings from *at on; NULL when the request ends before. */
static char **take_strings(const struct spawn_request *request, char **at,
                           uint32_t count, size_t extra)
{
    const char *end = (const char *)request->map + request->map_size;
    char **out = calloc(count + extra + 1, sizeof(*out));

    for (uint32_t i = 0; out && i < count; i++) {
        size_t room = (size_t)(end - *at);
        size_t len = strnlen(*at, room);

        if (len == room) {
            free(out);
            return NULL;
        }
        out[i] = *at;
        *at += len + 1;
    }
    return out;
}

int spawn_read_request(int fd, struct spawn_request *out, struct err *err)
{
    struct stat st;
    char *at;
    char **cwd;

    memset(out, 0, sizeof(*out));
    if (fstat(fd, &st) < 0 || st.st_size < (off_t)sizeof(*out->head)) {
        return err_set(err, EPROTO, "not a request");
    }
    out->map_size = (size_t)st.st_size;
    out->map = mmap(NULL, out->map_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (out->map == MAP_FAILED) {
        out->map = NULL;
        return err_errno(err, "cannot map the request");
    }
    out->head = out->map;
    at = (char *)out->map + sizeof(*out->head);
    cwd = take_strings(out, &at, 1, 0);
    out->cwd = cwd ? cwd[0] : NULL;
    free(cwd);
    out->argv = out->cwd ? take_strings(out, &at, out->head->argc, 2) : NULL;
    out->env = out->argv ? take_strings(out, &at, out->head->envc, 0) : NULL;
    if (!out->env || (size_t)((char *)out->map + out->map_size - at) !=
                         out->head->script_size) {
        return err_set(err, EPROTO, "a request that is cut off");
    }
    out->script = at;
    return 0;
}

/* Files are the user's from here on; but nobody whose id that is may signal a
 * process whose real id it is not. */
static int act_as_user(struct err *err)
{
    if (setgroups(0, NULL) < 0 ||
        setresgid(WIRE_GROUP, WIRE_GROUP, WIRE_GROUP) < 0 ||
        setresuid((uid_t)-1, WIRE_USER, (uid_t)-1) < 0) {
        return err_errno(err, "cannot act as the sandbox's user");
    }
    return 0;
}

static int become_user(struct err *err)
{
    return setresuid(WIRE_USER, WIRE_USER, WIRE_USER) < 0
               ? err_errno(err, "cannot become the sandbox's user")
               : 0;
}

/* Process 1 ignores but one; a reaper nearly all. */
static void reset_signals(bool reaper)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t none;

    (void)sigaction(SIGPIPE, &plain, NULL);
    for (int i = 1; reaper && i < NSIG; i++) {
        (void)sigaction(i, &plain, NULL);
    }
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static int set_stdio(const int *fds, struct err *err)
{
    int input = fds[WIRE_EXEC_STDIN];

    if (input < 0) {
        input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    if (input < 0 || dup2(input, 0) < 0 || dup2(fds[WIRE_EXEC_STDOUT], 1) < 0 ||
        dup2(fds[WIRE_EXEC_STDERR], 2) < 0) {
        return err_errno(err, "cannot set up the standard streams");
    }
    if (syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) < 0) {
        return err_errno(err, "close_range");
    }
    return 0;
}

/* A command's process that is being made. */
struct birth {
    const struct init_plan *plan;
    const struct spawn_request *request;
    const int *fds;
    int tell; /* Gets an error; ends where there is none. */
};

static int set_up(const struct birth *birth, struct err *err)
{
    bool one_id = birth->plan->one_id;
    int rc;

    reset_signals(birth->fds[WIRE_EXEC_CGROUP] < 0);
    (void)setsid();
    (void)umask(022);
    rc = set_stdio(birth->fds, err);
    if (rc == 0) {
        rc = filter_take_clone3();
        if (rc < 0) {
            (void)err_set(err, -rc, "cannot install the seccomp filter");
        }
    }
    if (rc == 0 && !one_id) {
        rc = act_as_user(err);
    }
    if (rc == 0 && chdir(birth->request->cwd) < 0) {
        rc = err_errno(err, "cannot work in '%s'", birth->request->cwd);
    }
    return rc == 0 && !one_id ? become_user(err) : rc;
}

/* The command's process up to its program; says why when it cannot be. */
NORETURN static void be_command(const struct birth *birth)
{
    char **argv = birth->request->argv;
    struct err err = ERR_INIT;
    ssize_t n;

    if (set_up(birth, &err) == 0) {
        environ = birth->request->env; /* Where the program is looked for. */
        (void)execvp(argv[0], argv);
        (void)err_errno(&err, "cannot run '%s'", argv[0]);
    }
    n = write(birth->tell, &err, sizeof(err));
    _exit(n == (ssize_t)sizeof(err) ? 127 : 126);
}

/*
 * The child has a copy of the memory. Were it shared, as vfork's is, the caller
 * would end with it where memory ends: the kernel passes over such a child and
 * takes its parent.
 */
static pid_t clone_command(const struct birth *birth)
{
    const int cgroup = birth->fds[WIRE_EXEC_CGROUP];
    struct clone_args args = {.exit_signal = SIGCHLD};
    pid_t pid;

    if (cgroup >= 0) {
        args.flags = CLONE_INTO_CGROUP;
        args.cgroup = (__u64)cgroup;
    }
    pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0) {
        be_command(birth);
    }
    return pid;
}

/*
 * Waits until the new process runs its program or has failed to. One that the
 * workload stops before that is let go on: it would hold up all others.
 */
static int await_birth(int birth, pid_t pid, struct err *err)
{
    struct pollfd fd = {.fd = birth, .events = POLLIN};
    struct err said;
    ssize_t n;

    for (int i = 0; poll(&fd, 1, BIRTH_TURN_MS) == 0; i++) {
        if (i == BIRTH_TURNS) {
            return err_set(err, EAGAIN, "the command does not come to run");
        }
        (void)kill(pid, SIGCONT);
    }
    n = read(birth, &said, sizeof(said));
    if (n == (ssize_t)sizeof(said)) {
        *err = said;
        return -err->code;
    }
    return 0;
}

void spawn_set_oom(const struct init_plan *plan, bool command)
{
    char text[16];
    int len =
        snprintf(text, sizeof(text), "%d", command ? OOM_FIRST : plan->oom_own);
    ssize_t n = plan->oom < 0 ? 0 : write(plan->oom, text, (size_t)len);

    (void)n; /* A preference. */
}

int spawn_command(const struct init_plan *plan,
                  const struct spawn_request *request, const int *fds,
                  pid_t *out, struct err *err)
{
    struct birth birth = {.plan = plan, .request = request, .fds = fds};
    AUTO_FD int ours = -1;
    AUTO_FD int theirs = -1;
    int pair[2];
    pid_t pid;
    int rc;

    if (pipe2(pair, O_CLOEXEC) < 0) {
        return err_errno(err, "pipe2");
    }
    ours = pair[0];
    theirs = pair[1];
    birth.tell = theirs;
    spawn_set_oom(plan, true);
    pid = clone_command(&birth);
    rc = pid < 0 ? err_errno(err, "cannot make a process") : 0;
    spawn_set_oom(plan, false);
    cleanup_fd(&theirs);
    if (rc == 0) {
        rc = await_birth(ours, pid, err);
        if (rc < 0) {
            (void)kill(pid, SIGKILL);
            (void)waitpid(pid, NULL, 0);
        }
    }
    if (rc == 0) {
        *out = pid;
    }
    return rc;
}
