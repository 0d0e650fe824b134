/* A sandbox's process 1 in service. See keeper.h and wire.h. */
#include "providers/local/keeper.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/list.h"
#include "providers/local/spawn.h"
#include "providers/local/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

/* The path of the shell that scripts are given to. */
static char shell[] = "/bin/sh";

enum {
    PATH_SIZE = 64,
};

/* A command that has not ended. */
struct run {
    struct list link;
    uint64_t n;
    pid_t pid;   /* Of the command, or of its reaper. */
    int cgroup;  /* -1: there is none, but a reaper. */
    bool killed; /* Once at least. */
    int reply;
    char script[PATH_SIZE]; /* "" for a command without one. */
};

struct init {
    const struct init_plan *plan;
    int signals;
    bool frozen; /* By us: what is stopped shall stay so. */
    struct list runs;
};

static void reply(int fd, const struct wire *wire)
{
    /* Less than PIPE_BUF, so whole or not at all; a reader may be gone. */
    ssize_t n = write(fd, wire, sizeof(*wire));

    (void)n;
}

static void reply_failure(int fd, const struct err *err)
{
    struct wire wire = {.type = WIRE_FAILED, .code = err->code};

    (void)snprintf(wire.words, sizeof(wire.words), "%s", err->msg);
    reply(fd, &wire);
}

/* Its name in the directory of scripts. */
static const char *script_name(const struct run *run)
{
    return run->script + sizeof(WIRE_SCRIPTS);
}

/* Writes the script where only process 1 can change it. */
static int write_script(const struct init *init,
                        const struct spawn_request *request, struct run *run,
                        struct err *err)
{
    AUTO_FD int fd = -1;
    size_t done = 0;

    (void)snprintf(run->script, sizeof(run->script), WIRE_SCRIPTS "/%" PRIu64,
                   run->n);
    fd = openat(init->plan->scripts, script_name(run),
                O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (fd < 0) {
        int rc = err_errno(err, "cannot write the script");

        run->script[0] = '\0';
        return rc;
    }
    while (done < request->head->script_size) {
        ssize_t n = write(fd, request->script + done,
                          request->head->script_size - done);

        if (n < 0) {
            return err_errno(err, "cannot write the script");
        }
        done += (size_t)n;
    }
    request->argv[0] = shell;
    request->argv[1] = run->script;
    return 0;
}

/* Else the daemon would not see the end of what they belong to. */
static void close_others(const struct init *init)
{
    (void)close(init->plan->sock);
    (void)close(init->plan->scripts);
    (void)close(init->plan->oom);
    (void)close(init->signals);
    list_each(node, &init->runs)
    {
        (void)close(container_of(node, struct run, link)->reply);
    }
}

/* A child that runs the command and stays until all its processes are gone. */
NORETURN static void be_reaper(const struct init *init,
                               const struct spawn_request *request,
                               const struct run *run, const int *fds)
{
    struct wire started = {.type = WIRE_STARTED, .n = run->n};
    struct init_plan plan = *init->plan;
    struct err err = ERR_INIT;
    pid_t pid = 0;
    int rc;

    close_others(init);
    plan.oom = -1; /* It is process 1's. */
    rc = reaper_become(&err);
    if (rc == 0) {
        rc = spawn_command(&plan, request, fds, &pid, &err);
    }
    if (rc < 0) {
        reply_failure(fds[WIRE_EXEC_REPLY], &err);
        _exit(0);
    }
    started.pid = pid;
    reply(fds[WIRE_EXEC_REPLY], &started);
    reaper_serve(pid, fds[WIRE_EXEC_REPLY]);
}

static int spawn_reaper(const struct init *init,
                        const struct spawn_request *request, const int *fds,
                        struct run *run, struct err *err)
{
    pid_t pid;

    spawn_set_oom(init->plan, true);
    pid = fork();
    if (pid == 0) {
        be_reaper(init, request, run, fds);
    }
    spawn_set_oom(init->plan, false);
    if (pid < 0) {
        return err_errno(err, "cannot make a process");
    }
    run->pid = pid;
    return 0;
}

static void end_run(const struct init *init, struct run *run)
{
    if (run->script[0]) {
        (void)unlinkat(init->plan->scripts, script_name(run), 0);
    }
    cleanup_fd(&run->cgroup);
    cleanup_fd(&run->reply);
    list_remove(&run->link);
    free(run);
}

static int start(struct init *init, uint64_t n, int *fds, struct run *run,
                 struct err *err)
{
    struct spawn_request request;
    int rc = spawn_read_request(fds[WIRE_EXEC_REQUEST], &request, err);

    run->n = n;
    if (rc == 0 && request.head->argc == 0) {
        rc = write_script(init, &request, run, err);
    }
    if (rc == 0) {
        rc = fds[WIRE_EXEC_CGROUP] < 0
                 ? spawn_reaper(init, &request, fds, run, err)
                 : spawn_command(init->plan, &request, fds, &run->pid, err);
    }
    spawn_free_request(&request);
    return rc;
}

static void serve_exec(struct init *init, uint64_t n, int *fds)
{
    struct wire started = {.type = WIRE_STARTED, .n = n};
    struct err err = ERR_INIT;
    struct run *run = calloc(1, sizeof(*run));

    if (!run) {
        (void)err_no_memory(&err);
        reply_failure(fds[WIRE_EXEC_REPLY], &err);
        return;
    }
    run->cgroup = -1;
    run->reply = -1;
    list_init(&run->link);
    if (start(init, n, fds, run, &err) < 0) {
        reply_failure(fds[WIRE_EXEC_REPLY], &err);
        end_run(init, run);
        return;
    }
    run->cgroup = TAKE_FD(fds[WIRE_EXEC_CGROUP]);
    run->reply = TAKE_FD(fds[WIRE_EXEC_REPLY]);
    list_add(&init->runs, &run->link);
    started.pid = run->pid;
    if (run->cgroup >= 0) { /* Else its reaper says so. */
        reply(run->reply, &started);
    }
}

/* Once over all processes of a command; tells how many there were. */
static int signal_pass(int cgroup, int signal)
{
    int fd = openat(cgroup, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    char line[32];
    int count = 0;

    if (!file) {
        cleanup_fd(&fd);
        return 0;
    }
    while (fgets(line, sizeof(line), file)) {
        /* As this process counts: none outside the sandbox can be meant. */
        pid_t pid = (pid_t)strtol(line, NULL, 10);

        if (pid > 1 && kill(pid, signal) == 0) {
            count++;
        }
    }
    (void)fclose(file);
    return count;
}

static struct run *find_run(const struct init *init, uint64_t n)
{
    list_each(node, &init->runs)
    {
        struct run *run = container_of(node, struct run, link);

        if (run->n == n) {
            return run;
        }
    }
    return NULL;
}

static void serve_signal(const struct init *init, uint64_t n, int signal)
{
    const struct run *run = find_run(init, n);

    if (run && run->cgroup >= 0) {
        (void)signal_pass(run->cgroup, signal);
    } else if (run) {
        (void)reaper_signal(run->pid, signal);
    }
}

/* Without a cgroup asked for again and again until the reaper has ended. */
static void serve_end(const struct init *init, uint64_t n, int signal)
{
    list_each(node, &init->runs)
    {
        struct run *run = container_of(node, struct run, link);

        if (n != 0 && run->n != n) {
            continue;
        }
        if (run->cgroup >= 0) {
            (void)signal_pass(run->cgroup, signal);
            (void)signal_pass(run->cgroup, SIGCONT);
        } else {
            reaper_end(run->pid, signal, run->killed);
            run->killed = signal == SIGKILL;
        }
    }
}

static void serve_freeze(struct init *init, uint64_t n, bool freeze)
{
    struct wire wire = {.type = WIRE_FROZEN, .n = n};
    struct err err = ERR_INIT;

    init->frozen = freeze;
    (void)kill(-1, freeze ? SIGSTOP : SIGCONT);
    wire.code = freeze ? reaper_count_running() : 0;
    if (wire_send(init->plan->sock, &wire, NULL, 0, &err) < 0) {
        _exit(0);
    }
}

static void serve_request(struct init *init)
{
    struct wire request;
    struct err err = ERR_INIT;
    int fds[WIRE_FD_MAX];

    if (wire_recv(init->plan->sock, &request, fds, &err) < 0) {
        /* Daemon and keeper are gone; all others in here end with process 1. */
        _exit(0);
    }
    if (request.type == WIRE_EXEC) {
        serve_exec(init, request.n, fds);
    } else if (request.type == WIRE_SIGNAL) {
        serve_signal(init, request.n, request.code);
    } else if (request.type == WIRE_END) {
        serve_end(init, request.n, request.code);
    } else if (request.type == WIRE_FREEZE) {
        serve_freeze(init, request.n, request.code != 0);
    }
    wire_close(fds);
}

/* A reaper that was killed can neither reap nor tell. */
static void end_strays(const struct init *init)
{
    size_t count = 0;
    AUTO_FREE pid_t *reapers = NULL;

    list_each(node, &init->runs)
    {
        count++;
    }
    reapers = calloc(count + 1, sizeof(*reapers));
    count = 0;
    list_each(node, &init->runs)
    {
        if (reapers) {
            reapers[count++] = container_of(node, struct run, link)->pid;
        }
    }
    reaper_kill_strays(reapers, count);
}

static void tell_end(struct init *init, pid_t pid, int status)
{
    struct wire wire = {.type = WIRE_EXITED,
                        .code = status,
                        .pid = pid,
                        .at_us = clock_wall_us()};
    bool strays = false;

    list_each_safe(node, &init->runs)
    {
        struct run *run = container_of(node, struct run, link);

        if (run->pid == pid) {
            strays |= run->cgroup < 0 && WIFSIGNALED(status);
            wire.n = run->n;
            /* Where its reaper has said so, it is not listened to. */
            reply(run->reply, &wire);
            end_run(init, run);
        }
    }
    if (strays) {
        end_strays(init);
    }
}

/* A command may stop its reaper, which then could tell nothing. */
static void continue_reaper(const struct init *init, pid_t pid)
{
    list_each(node, &init->runs)
    {
        const struct run *run = container_of(node, struct run, link);

        if (run->pid == pid && run->cgroup < 0 && !init->frozen) {
            (void)kill(pid, SIGCONT);
        }
    }
}

static void reap(struct init *init)
{
    struct signalfd_siginfo info;
    int status;
    pid_t pid;

    while (read(init->signals, &info, sizeof(info)) > 0) {
    }
    pid = waitpid(-1, &status, WNOHANG | WUNTRACED);
    while (pid > 0) {
        if (WIFSTOPPED(status)) {
            continue_reaper(init, pid);
        } else {
            tell_end(init, pid, status);
        }
        pid = waitpid(-1, &status, WNOHANG | WUNTRACED);
    }
}

static int set_up(struct init *init, struct err *err)
{
    sigset_t child;
    int rc;

    (void)signal(SIGCHLD, SIG_DFL);
    (void)sigemptyset(&child);
    (void)sigaddset(&child, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &child, NULL);
    init->signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (clearenv() != 0 || init->signals < 0) {
        return err_errno(err, "cannot set up process 1");
    }
    rc = filter_install(init->plan->filter);
    return rc < 0 ? err_set(err, -rc, "cannot install the seccomp filter") : 0;
}

void init_serve(const struct init_plan *plan)
{
    struct init init = {.plan = plan};
    struct wire wire = {.type = WIRE_READY};
    struct err err = ERR_INIT;
    struct pollfd fds[2];

    list_init(&init.runs);
    if (set_up(&init, &err) < 0) {
        wire.type = WIRE_FAILED;
        wire.code = err.code;
        (void)snprintf(wire.words, sizeof(wire.words), "%s", err.msg);
    }
    if (wire_send(plan->sock, &wire, NULL, 0, &err) < 0 ||
        wire.type == WIRE_FAILED) {
        _exit(1);
    }
    fds[0] = (struct pollfd){.fd = init.signals, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = plan->sock, .events = POLLIN};
    for (;;) {
        if (poll(fds, 2, -1) < 0) {
            continue;
        }
        if (fds[0].revents) {
            reap(&init);
        }
        if (fds[1].revents) {
            serve_request(&init);
        }
    }
}
