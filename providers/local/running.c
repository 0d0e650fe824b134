/* A command as the loop's thread follows it. See running.h. */
#include "providers/local/running.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "providers/local/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

enum {
    READ_SIZE = 64 * 1024, /* Of one callback, so that others have a turn. */
    GRACE_MS = 1000,       /* From TERM to KILL. */
    CHECK_MS = 5,          /* Between looks for the end of a killed tree. */
    AGAIN_MS = 150,        /* When init is asked to kill it once more. */
    DEAD_MS = 900,         /* When we stop looking: all in all in 2 s. */
};

static loop_fn on_timer;
static loop_fd_fn on_reply;

struct running *running_new(struct local *local, struct box *box,
                            const struct command *command)
{
    struct running *running = calloc(1, sizeof(*running));

    if (!running) {
        return NULL;
    }
    list_init(&running->link);
    running->timer = loop_timer_new(local->loop, on_timer, running);
    if (!running->timer) {
        free(running);
        return NULL;
    }
    running->local = local;
    running->box = box_ref(box);
    running->n = command->n;
    running->cgroup = -1;
    running->reply = -1;
    running->cancel = -1;
    running->streams[0].fd = -1;
    running->streams[1].fd = -1;
    running->result.end = COMMAND_LOST;
    return running;
}

/* ---- The end of a command, in the loop's thread ---- */

void running_free(struct running *running)
{
    cleanup_fd(&running->cgroup);
    cleanup_fd(&running->reply);
    cleanup_fd(&running->cancel);
    for (int i = 0; i < RUNNING_STREAMS; i++) {
        cleanup_fd(&running->streams[i].fd);
    }
    loop_timer_free(running->timer);
    free(running->cgroup_name);
    box_unref(running->box);
    free(running);
}

void running_hold(const struct running *running,
                  const int fds[WIRE_COMMAND_FDS])
{
    struct wire wire = {.held = {.box = running->box->name_held,
                                 .number = running->box->number,
                                 .command = running->n}};

    if (running->cgroup_name) {
        (void)snprintf(wire.held.name, sizeof(wire.held.name), "%s",
                       running->cgroup_name->name);
    }
    link_hold(running->local->link, &wire, fds, WIRE_COMMAND_FDS);
}

void running_unhold(const struct box *box, uint64_t n)
{
    const struct wire_held held = {.box = box->name_held, .command = n};

    link_drop(box->keeper, &held);
}

static void close_if_done(struct running *running)
{
    struct local *local = running->local;

    if (running->phase != RUNNING_OVER || running->streams[0].fd >= 0 ||
        running->streams[1].fd >= 0) {
        return;
    }
    running->sink->closed(running->arg);
    mutex_lock(&local->lock);
    if (running->recorded) { /* Else it is held until it is. */
        /* Waits for nobody; whoever closes us waits for this. */
        running_unhold(running->box, running->n);
    }
    list_remove(&running->link);
    cond_broadcast(&local->quiet);
    mutex_unlock(&local->lock);
    /* Processes that it left behind may be gone by now. */
    box_sweep(running->box);
    running_free(running);
}

static void close_stream(struct running_stream *stream)
{
    loop_source_free(stream->source);
    stream->source = NULL;
    cleanup_fd(&stream->fd);
}

/* By the sink where it can: what we have read would die with us. */
static ssize_t take_stream(struct running_stream *stream, size_t most)
{
    struct running *running = stream->running;
    enum command_stream which =
        stream == &running->streams[0] ? COMMAND_STDOUT : COMMAND_STDERR;
    struct pollfd fd = {.fd = stream->fd, .events = POLLIN};
    char data[READ_SIZE];
    ssize_t n = -EINVAL;

    if (running->sink->take && !stream->plain) {
        if (poll(&fd, 1, 0) <= 0) {
            return -EAGAIN;
        }
        if (!(fd.revents & POLLIN)) {
            return 0;
        }
        n = running->sink->take(running->arg, which, stream->fd, most);
        stream->plain = n == -EINVAL;
    }
    if (n == -EINVAL) {
        n = read(stream->fd, data, most < sizeof(data) ? most : sizeof(data));
        if (n > 0) {
            running->sink->output(running->arg, which, data, (size_t)n);
        }
        n = n < 0 ? -errno : n;
    }
    return n;
}

/* Once. Returns the bytes, 0 when there are none. */
static size_t read_stream(struct running_stream *stream, size_t most)
{
    ssize_t n = take_stream(stream, most);

    if (n > 0) {
        return (size_t)n;
    }
    if (n != -EAGAIN && n != -EINTR) {
        close_stream(stream);
    }
    return 0;
}

/* What the command wrote before its end comes before its end. */
static void drain(struct running_stream *stream)
{
    int left = 0;

    if (stream->fd < 0 || ioctl(stream->fd, FIONREAD, &left) < 0) {
        return;
    }
    while (left > 0 && stream->fd >= 0) {
        size_t n = read_stream(stream, (size_t)left);

        if (n == 0) {
            return;
        }
        left -= (int)n;
    }
}

/* Itself, or the program that its shell ran last. */
static bool ended_by(const struct command_result *result, int number)
{
    return result->end == COMMAND_KILLED
               ? result->signal == number
               : result->end == COMMAND_EXITED && result->code == 128 + number;
}

/* One that went well met no limit, whatever another did. */
static void note_limit(struct running *running)
{
    struct command_result *result = &running->result;
    struct err why = ERR_INIT;

    if ((result->end == COMMAND_EXITED && result->code == 0) ||
        result->end == COMMAND_LEFT || result->why.code) {
        return;
    }
    if (box_met_limit(running->box, &why)) {
        result->why = why;
    } else if (ended_by(result, SIGXFSZ)) {
        (void)err_set(&result->why, EDQUOT,
                      "file_size_bytes: a file was to be longer than %" PRId64
                      " bytes",
                      running->box->quota.file_size_bytes);
    }
}

static bool runs_beside(const struct running *running)
{
    struct local *local = running->local;
    bool beside = false;

    mutex_lock(&local->lock);
    list_each(node, &local->commands)
    {
        const struct running *other = container_of(node, struct running, link);

        beside |= other->box == running->box && !atomic_load(&other->over);
    }
    mutex_unlock(&local->lock);
    return beside;
}

/* What a command has met that ended well all the same, the next one has not. */
static void forget_limits(const struct running *running)
{
    struct err ignored = ERR_INIT;

    if (!runs_beside(running)) {
        (void)box_met_limit(running->box, &ignored);
    }
}

static void finish(struct running *running)
{
    loop_source_free(running->reply_source);
    loop_source_free(running->cancel_source);
    loop_timer_free(running->timer);
    running->reply_source = NULL;
    running->cancel_source = NULL;
    running->timer = NULL;
    atomic_store(&running->over, true);
    for (int i = 0; i < RUNNING_STREAMS; i++) {
        drain(&running->streams[i]);
    }
    running->phase = RUNNING_OVER;
    note_limit(running);
    running->sink->exited(running->arg, &running->result);
    forget_limits(running);
    box_end_command(running->box, TAKE_PTR(running->cgroup_name));
    close_if_done(running);
}

/* Whether a process of it lives, or may. */
static bool has_processes(const struct running *running)
{
    return running->cgroup >= 0 ? cgroup_is(running->cgroup, "populated")
                                : running->reply >= 0;
}

/*
 * Finishes when nothing must be waited for any more. A command that we end is
 * over when its whole tree is dead, and when init has said so.
 */
static void settle(struct running *running)
{
    bool look = running->phase == RUNNING_KILL || running->told;
    struct err err = ERR_INIT;

    if (running->phase == RUNNING_FREELY) {
        if (running->told) {
            finish(running);
        }
        return;
    }
    if ((running->told && !has_processes(running)) ||
        (running->phase == RUNNING_KILL && clock_ms() >= running->give_up_ms)) {
        finish(running);
        return;
    }
    if (running->phase == RUNNING_KILL && running->cgroup < 0 &&
        clock_ms() >= running->kill_again_ms) {
        (void)running_kill(running, &err);
        running->kill_again_ms = clock_deadline(AGAIN_MS);
    }
    /* The tree may outlive the shell by a moment; nothing tells its end. */
    loop_timer_set(running->timer,
                   look ? clock_deadline(CHECK_MS) : running->give_up_ms);
}

static void kill_tree(struct running *running)
{
    struct err err = ERR_INIT;

    (void)running_kill(running, &err);
    running->phase = RUNNING_KILL;
    running->kill_again_ms = clock_deadline(AGAIN_MS);
    running->give_up_ms = clock_deadline(DEAD_MS);
}

int running_kill(const struct running *running, struct err *err)
{
    struct wire wire = {.type = WIRE_END, .n = running->n, .code = SIGKILL};

    return running->cgroup >= 0 ? cgroup_kill(running->cgroup, err)
                                : box_send(running->box, &wire, NULL, 0, err);
}

int running_signal(const struct running *running, int signal, struct err *err)
{
    struct wire wire = {.type = WIRE_SIGNAL, .n = running->n, .code = signal};

    return box_send(running->box, &wire, NULL, 0, err);
}

static void ask_to_end(struct running *running, enum command_end end)
{
    struct wire wire = {.type = WIRE_END, .n = running->n, .code = SIGTERM};
    struct err err = ERR_INIT;

    if (running->phase != RUNNING_FREELY) {
        return;
    }
    running->result.end = end;
    running->phase = RUNNING_TERM;
    running->give_up_ms = clock_deadline(GRACE_MS);
    /* KILL comes in any case. */
    if (box_send(running->box, &wire, NULL, 0, &err) < 0) {
        kill_tree(running);
    }
    loop_timer_set(running->timer, clock_deadline(GRACE_MS));
}

/* ---- Callbacks ---- */

/* Output lies on the disk too. */
static void count_output(struct running *running, size_t n)
{
    int64_t limit = running->box->quota.disk_bytes;
    struct err why = ERR_INIT;

    running->output += (int64_t)n;
    if (running->output > limit && running->output - (int64_t)n <= limit) {
        (void)err_set(&why, EDQUOT,
                      "disk_bytes: the command's output was to be longer than "
                      "%" PRId64 " bytes",
                      limit);
        running_stop(running, &why);
    }
}

static void on_output(void *arg, uint32_t events)
{
    struct running_stream *stream = arg;

    (void)events;
    count_output(stream->running, read_stream(stream, READ_SIZE));
    close_if_done(stream->running);
}

/* Whether it was killed by the daemon that had it, which has died since. */
static bool met_deadline(const struct running *running)
{
    return running->deadline_us &&
           running->result.ended_us >= running->deadline_us;
}

void running_note_end(struct running *running, const struct wire *told)
{
    struct command_result *result = &running->result;
    bool ours = running->phase != RUNNING_FREELY;
    enum command_end end = COMMAND_LOST;

    result->ended_us = told ? told->at_us : 0;
    if (told && WIFEXITED(told->code)) {
        end = COMMAND_EXITED;
        result->code = WEXITSTATUS(told->code);
    } else if (told && WIFSIGNALED(told->code)) {
        end = met_deadline(running) ? COMMAND_TIMEOUT : COMMAND_KILLED;
        result->signal = WTERMSIG(told->code);
    }
    if (!ours) {
        result->end = end;
    }
    running->told = true;
}

/* Looks at what init has said next and leaves it in the pipe, where the next
 * daemon finds it should we die. As read(). */
static ssize_t look_at_reply(const struct running *running, struct wire *out)
{
    const int *look = running->local->look;
    ssize_t n = tee(running->reply, look[1], sizeof(*out), SPLICE_F_NONBLOCK);

    return n > 0 ? read(look[0], out, sizeof(*out)) : n;
}

static void hear_reply(struct running *running)
{
    struct wire wire;
    ssize_t n = look_at_reply(running, &wire);

    if (n == (ssize_t)sizeof(wire) && wire.type == WIRE_STARTED) {
        /* An earlier daemon died before it heard that. */
        (void)!read(running->reply, &wire, sizeof(wire));
        n = look_at_reply(running, &wire);
    }
    if (n == (ssize_t)sizeof(wire) && wire.type == WIRE_EXITED) {
        running_note_end(running, &wire);
    } else if (n >= 0 || errno != EAGAIN) {
        running_note_end(running, NULL);
    }
}

/* What is left is its end, which is always told of. */
static void await_reply_end(struct running *running)
{
    struct err err = ERR_INIT;

    loop_source_free(running->reply_source);
    running->reply_source = NULL;
    if (loop_source_new(running->local->loop, running->reply, 0, on_reply,
                        running, &running->reply_source, &err) < 0) {
        cleanup_fd(&running->reply);
    }
}

static void on_reply(void *arg, uint32_t events)
{
    struct running *running = arg;

    if (!running->told) {
        hear_reply(running);
    }
    if (running->told && (running->cgroup >= 0 || events & EPOLLHUP)) {
        loop_source_free(running->reply_source);
        running->reply_source = NULL;
        cleanup_fd(&running->reply);
    } else if (running->told) {
        await_reply_end(running);
    }
    settle(running);
}

static void on_cancel(void *arg, uint32_t events)
{
    struct running *running = arg;

    (void)events;
    loop_source_free(running->cancel_source);
    running->cancel_source = NULL;
    ask_to_end(running, COMMAND_CANCELED);
}

static void on_timer(void *arg)
{
    struct running *running = arg;

    if (running->phase == RUNNING_FREELY) {
        ask_to_end(running, COMMAND_TIMEOUT);
        return;
    }
    if (running->phase == RUNNING_TERM && clock_ms() >= running->give_up_ms) {
        kill_tree(running);
    }
    settle(running);
}

/* Without sources it cannot be followed: it is ended and called lost. */
static void give_up(struct running *running)
{
    kill_tree(running);
    running->result.end = COMMAND_LOST;
    for (int i = 0; i < RUNNING_STREAMS; i++) {
        close_stream(&running->streams[i]);
    }
    finish(running);
}

static void follow(void *arg)
{
    struct running *running = arg;
    struct loop *loop = running->local->loop;
    struct err err = ERR_INIT;
    int rc = 0;

    running->sink->started(running->arg, running->pid);
    for (int i = 0; rc == 0 && i < RUNNING_STREAMS; i++) {
        rc = loop_source_new(loop, running->streams[i].fd, EPOLLIN, on_output,
                             &running->streams[i], &running->streams[i].source,
                             &err);
    }
    if (rc == 0) {
        rc = loop_source_new(loop, running->reply, EPOLLIN, on_reply, running,
                             &running->reply_source, &err);
    }
    if (rc == 0 && running->cancel >= 0) {
        rc = loop_source_new(loop, running->cancel, EPOLLIN, on_cancel, running,
                             &running->cancel_source, &err);
    }
    if (rc < 0) {
        give_up(running);
        return;
    }
    loop_timer_set(running->timer, running->timeout_at_ms);
    if (!running->told) {
        /* Before its time is looked at, which may be over by now. */
        hear_reply(running);
    }
    if (running->told) {
        settle(running);
    }
}

void running_follow(struct running *running)
{
    struct local *local = running->local;

    mutex_lock(&local->lock);
    list_add(&local->commands, &running->link);
    mutex_unlock(&local->lock);
    loop_post(local->loop, follow, running);
}

void running_stop(struct running *running, const struct err *why)
{
    struct err ignored = ERR_INIT;

    if (running->phase == RUNNING_OVER) {
        (void)running_kill(running, &ignored);
        return;
    }
    if (running->phase == RUNNING_FREELY) {
        running->result.end = COMMAND_KILLED;
        running->result.signal = SIGKILL;
        running->result.why = *why;
    }
    kill_tree(running);
    loop_timer_set(running->timer, clock_deadline(CHECK_MS));
}

void running_close(struct running *running, bool leave)
{
    if (leave && !running->told) {
        running->result.end = COMMAND_LEFT;
    }
    for (int i = 0; i < RUNNING_STREAMS; i++) {
        close_stream(&running->streams[i]);
    }
    if (running->phase == RUNNING_OVER) {
        close_if_done(running);
    } else {
        finish(running);
    }
}
