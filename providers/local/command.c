/*
 * The start of a command, by the thread that asks for it. See local.h; from
 * the moment it runs, running.c has it.
 */
#include "providers/local/running.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "providers/local/cgroup.h"
#include "providers/local/request.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>

enum {
    CLOSE_MS = 5000
};

/* What a start needs until the command runs; all fds are closed in the end. */
struct preparation {
    int fds[WIRE_FD_MAX];         /* For init. */
    int streams[RUNNING_STREAMS]; /* Our ends. */
    int reply;
};

static void init_preparation(struct preparation *preparation)
{
    for (int i = 0; i < WIRE_FD_MAX; i++) {
        preparation->fds[i] = -1;
    }
    for (int i = 0; i < RUNNING_STREAMS; i++) {
        preparation->streams[i] = -1;
    }
    preparation->reply = -1;
}

static void end_preparation(struct preparation *preparation)
{
    wire_close(preparation->fds);
    for (int i = 0; i < RUNNING_STREAMS; i++) {
        cleanup_fd(&preparation->streams[i]);
    }
    cleanup_fd(&preparation->reply);
}

static int make_pipe(int *ours, int *theirs, struct err *err)
{
    int pair[2];

    if (pipe2(pair, O_CLOEXEC) < 0) {
        return err_errno(err, "pipe2");
    }
    *ours = pair[0];
    *theirs = pair[1];
    if (fcntl(*ours, F_SETFL, O_NONBLOCK) < 0) {
        return err_errno(err, "fcntl");
    }
    return 0;
}

/* A program that opens /dev/stdout needs to own the pipe behind it. */
static int make_output(int *ours, int *theirs, const struct box *box,
                       struct err *err)
{
    int rc = make_pipe(ours, theirs, err);

    if (rc == 0 && fchown(*theirs, box->ids.user, box->ids.group) < 0) {
        rc = err_errno(err, "cannot give away a pipe");
    }
    return rc;
}

static int prepare(struct preparation *out, const struct box *box,
                   const struct command *command, struct err *err)
{
    int rc = request_write(command, &out->fds[WIRE_EXEC_REQUEST], err);

    if (rc == 0) {
        rc = request_input(command, &out->fds[WIRE_EXEC_STDIN], err);
    }
    if (rc == 0) {
        rc = make_pipe(&out->reply, &out->fds[WIRE_EXEC_REPLY], err);
    }
    if (rc == 0) {
        rc = make_output(&out->streams[COMMAND_STDOUT],
                         &out->fds[WIRE_EXEC_STDOUT], box, err);
    }
    if (rc == 0) {
        rc = make_output(&out->streams[COMMAND_STDERR],
                         &out->fds[WIRE_EXEC_STDERR], box, err);
    }
    return rc;
}

/* Hands the command to init and waits until it runs. */
static int hand_over(struct running *running, struct preparation *preparation,
                     const struct limits *limits, struct err *err)
{
    const struct box *box = running->box;
    struct wire wire = {.type = WIRE_EXEC, .n = running->n};
    int rc = box_send(box, &wire, preparation->fds, WIRE_EXEC_FDS, err);

    while (rc == -EAGAIN) {
        rc = limits_wait(limits, box->sock, POLLOUT, err);
        if (rc == 0) {
            rc = box_send(box, &wire, preparation->fds, WIRE_EXEC_FDS, err);
        }
    }
    /* So that the end of init shows as the end of the pipe. */
    cleanup_fd(&preparation->fds[WIRE_EXEC_REPLY]);
    if (rc == 0) {
        rc = limits_wait(limits, preparation->reply, POLLIN, err);
    }
    if (rc < 0) {
        return rc;
    }
    if (read(preparation->reply, &wire, sizeof(wire)) !=
        (ssize_t)sizeof(wire)) {
        return err_set(err, EHOSTDOWN, "the sandbox ended");
    }
    if (wire.type == WIRE_EXITED) {
        /* It killed its reaper before that could tell of its start. */
        running_note_end(running, &wire);
    } else if (wire.type != WIRE_STARTED) {
        wire.words[sizeof(wire.words) - 1] = '\0';
        return err_set(err, wire.code > 0 ? wire.code : EPROTO, "%s",
                       wire.words);
    }
    running->pid = wire.pid;
    return 0;
}

/* Its processes are born into a group of their own, where there are groups. */
static int make_cgroup(struct running *running, struct err *err)
{
    struct box *box = running->box;

    if (box->cgroup < 0) {
        return 0;
    }
    return box_begin_command(box, &running->cgroup_name, &running->cgroup, err);
}

/* If init comes to it yet, it is born dead. */
static void abandon(const struct running *running)
{
    struct err ignored = ERR_INIT;

    if (running->cgroup >= 0) {
        (void)cgroup_kill(running->cgroup, &ignored);
        (void)cgroup_remove(running->box->cgroup, running->cgroup_name->name);
    } else {
        (void)running_kill(running, &ignored);
    }
    running_unhold(running->box, running->n);
}

/* Before it runs: so none runs that is not held. */
static void hold(const struct running *running,
                 const struct preparation *preparation)
{
    const int fds[WIRE_COMMAND_FDS] = {
        [WIRE_COMMAND_REPLY] = preparation->reply,
        [WIRE_COMMAND_STDOUT] = preparation->streams[COMMAND_STDOUT],
        [WIRE_COMMAND_STDERR] = preparation->streams[COMMAND_STDERR]};

    running_hold(running, fds);
}

static int start_prepared(struct running *running,
                          struct preparation *preparation,
                          const struct limits *limits, struct err *err)
{
    int rc = make_cgroup(running, err);

    if (rc < 0) {
        return rc;
    }
    hold(running, preparation);
    preparation->fds[WIRE_EXEC_CGROUP] = running->cgroup;
    rc = hand_over(running, preparation, limits, err);
    preparation->fds[WIRE_EXEC_CGROUP] = -1;
    if (rc < 0) {
        abandon(running);
        return rc;
    }
    for (int i = 0; i < RUNNING_STREAMS; i++) {
        running->streams[i].running = running;
        running->streams[i].fd = TAKE_FD(preparation->streams[i]);
    }
    running->reply = TAKE_FD(preparation->reply);
    return 0;
}

int command_start(struct local *local, struct box *box,
                  const struct command *command, const struct limits *limits,
                  const struct command_sink *sink, void *arg, struct err *err)
{
    struct running *running = running_new(local, box, command);
    struct preparation preparation;
    int rc;

    if (!running) {
        return err_no_memory(err);
    }
    init_preparation(&preparation);
    running->sink = sink;
    running->arg = arg;
    /* Of our own: one token may be watched for several commands. */
    running->cancel = fcntl(limits->cancel->fd, F_DUPFD_CLOEXEC, 0);
    rc = running->cancel < 0 ? err_errno(err, "cannot watch the token")
                             : prepare(&preparation, box, command, err);
    if (rc == 0) {
        rc = start_prepared(running, &preparation, limits, err);
    }
    end_preparation(&preparation);
    if (rc < 0) {
        running_free(running);
        return rc;
    }
    running->timeout_at_ms = command->timeout_ms > 0
                                 ? clock_deadline(command->timeout_ms)
                                 : DEADLINE_NONE;
    running_follow(running);
    return 0;
}

int command_signal(struct local *local, uint64_t number, uint64_t n, int signal,
                   struct err *err)
{
    int rc = -ESRCH;

    mutex_lock(&local->lock);
    list_each(node, &local->commands)
    {
        const struct running *running =
            container_of(node, struct running, link);

        if (running->box->number == number && running->n == n &&
            !atomic_load(&running->over)) {
            rc = running_signal(running, signal, err);
            break;
        }
    }
    mutex_unlock(&local->lock);
    if (rc == -ESRCH || rc == -EPIPE) {
        return err_set(err, ESRCH, "command %" PRIu64 " does not run", n);
    }
    return rc;
}

struct stop {
    struct local *local;
    uint64_t number;
    struct err why;
};

/* The next command of a session behind one, or NULL. */
static struct running *next_of(struct local *local, struct list *after,
                               uint64_t number) REQUIRES(local->lock)
{
    for (struct list *node = after->next; node != &local->commands;
         node = node->next) {
        struct running *running = container_of(node, struct running, link);

        if (running->box->number == number) {
            return running;
        }
    }
    return NULL;
}

/* In the loop's thread, the only one that takes commands out of the list. */
static void stop_all(void *arg)
{
    struct stop *stop = arg;
    struct local *local = stop->local;
    struct running *running;

    mutex_lock(&local->lock);
    list_each(node, &local->boxes)
    {
        struct box *box = container_of(node, struct box, link);

        if (box->number == stop->number) {
            box_kill_leftovers(box);
        }
    }
    running = next_of(local, &local->commands, stop->number);
    while (running) {
        mutex_unlock(&local->lock);
        running_stop(running, &stop->why);
        mutex_lock(&local->lock);
        running = next_of(local, &running->link, stop->number);
    }
    local->stops--;
    cond_broadcast(&local->quiet);
    mutex_unlock(&local->lock);
    free(stop);
}

void command_stop_all(struct local *local, uint64_t number,
                      const struct err *why)
{
    struct stop *stop = malloc(sizeof(*stop));

    if (!stop) {
        return; /* The next look comes soon. */
    }
    *stop = (struct stop){.local = local, .number = number, .why = *why};
    mutex_lock(&local->lock);
    local->stops++;
    mutex_unlock(&local->lock);
    loop_post(local->loop, stop_all, stop);
}

/* In the loop's thread. */
static void close_each(struct local *local, bool leave)
{
    mutex_lock(&local->lock);
    while (!list_empty(&local->commands)) {
        struct running *running =
            container_of(local->commands.next, struct running, link);

        mutex_unlock(&local->lock);
        running_close(running, leave);
        mutex_lock(&local->lock);
    }
    local->stops--;
    cond_broadcast(&local->quiet);
    mutex_unlock(&local->lock);
}

static void close_by_force(void *arg)
{
    close_each(arg, false);
}

static void leave_all(void *arg)
{
    close_each(arg, true);
}

static bool await_quiet(struct local *local, int64_t deadline_ms)
{
    bool quiet;
    int rc = 0;

    mutex_lock(&local->lock);
    while ((!list_empty(&local->commands) || local->stops) && rc == 0) {
        rc = cond_wait(&local->quiet, &local->lock, deadline_ms);
    }
    quiet = list_empty(&local->commands) && !local->stops;
    mutex_unlock(&local->lock);
    return quiet;
}

void command_close_all(struct local *local, bool leave)
{
    if (leave || !await_quiet(local, clock_deadline(CLOSE_MS))) {
        /* Counted: all may be quiet before it comes to run. */
        mutex_lock(&local->lock);
        local->stops++;
        mutex_unlock(&local->lock);
        loop_post(local->loop, leave ? leave_all : close_by_force, local);
        (void)await_quiet(local, DEADLINE_NONE);
    }
}
