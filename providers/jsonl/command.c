/*
 * Commands. The slot sends the request and looks for a moment whether it was
 * refused; then the loop's thread follows what comes. A command has a process
 * of its program to itself, which is idle again when it ends; where a command
 * does not end though it should, the process is ended instead, and the command
 * told as ended, with words that it may still run. See jsonl.h and command.h.
 */
#include "providers/jsonl/command.h"

#include "core/cleanup.h"
#include "core/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>

enum {
    LOOK_MS = 500,      /* For a refusal. */
    PATIENCE_MS = 1900, /* For an end that we asked for. */
    CLOSE_MS = 3000,    /* For what runs on, when all is over. */
    MOST_SIGNAL = 64,
};

/* It does not run any more, or never has. */
static void forget_mark(struct running *running)
{
    if (running->marked) {
        mark_drop(running->lease, running->mark);
        running->marked = false;
    }
}

static void free_running(struct running *running)
{
    struct jsonl *jsonl = running->jsonl;

    loop_timer_free(running->timeout);
    loop_timer_free(running->patience);
    message_done(&running->first);
    if (running->peer) {
        pool_give(jsonl->pool, &running->lease->program, running->peer);
    }
    ending_tidy(running);
    lease_unref(jsonl, running->lease);
    free(running);
}

/* ---- Its end; the loop's thread ---- */

/* Giving a process back may wait for its end. */
static void let_go(void *arg)
{
    struct running *running = arg;
    struct jsonl *jsonl = running->jsonl;

    free_running(running);
    mutex_lock(&jsonl->lock);
    jsonl->leaving--;
    cond_broadcast(&jsonl->closed);
    mutex_unlock(&jsonl->lock);
}

static void finish(struct running *running, const struct command_result *result)
{
    struct jsonl *jsonl = running->jsonl;

    loop_source_free(TAKE_PTR(running->out));
    loop_source_free(TAKE_PTR(running->err));
    loop_source_free(TAKE_PTR(running->end));
    loop_source_free(TAKE_PTR(running->token));
    loop_timer_free(TAKE_PTR(running->timeout));
    loop_timer_free(TAKE_PTR(running->patience));
    mutex_lock(&jsonl->lock);
    running->over = true;
    mutex_unlock(&jsonl->lock);
    if (!running->started) {
        running->sink->started(running->arg, 0);
    }
    running->sink->exited(running->arg, result);
    running->sink->closed(running->arg);
    mutex_lock(&jsonl->lock);
    list_remove(&running->link);
    jsonl->leaving++;
    mutex_unlock(&jsonl->lock);
    if (workers_run(jsonl->aside, let_go, running) < 0) {
        let_go(running);
    }
}

/* What may run on is ended, soon; else before the session's next use by
 * another daemon. */
static void finish_lost(struct running *running,
                        const struct command_result *result)
{
    (void)!ending_begin(running, ENDING_LOST, 0);
    finish(running, result);
}

/* The engine cannot say how it ended, or never will. */
static void lose(struct running *running, const struct err *why)
{
    struct command_result result = {
        .end = running->ending ? running->as : COMMAND_LOST, .why = *why};

    running->peer->broken = true;
    if (result.end == COMMAND_KILLED) {
        result.signal = SIGKILL;
    }
    atomic_store(&running->lease->doubtful, true);
    finish_lost(running, &result);
}

/* By a signal is what a negative code tells. That of 1 is also told of a
 * program that lost its way to the command. */
static void finish_with(struct running *running, int64_t code)
{
    struct command_result result = {.end = COMMAND_EXITED, .code = (int)code};

    if (running->ending) {
        result.end = running->as;
        result.code = 0;
        result.signal = running->as == COMMAND_KILLED ? SIGKILL : 0;
    } else if (code < 0 && code >= -MOST_SIGNAL &&
               (code != -1 || atomic_load(&running->sent) == 1)) {
        result.end = COMMAND_KILLED;
        result.signal = (int)-code;
        result.code = 0;
    } else if (code < 0) {
        result.end = COMMAND_LOST;
        result.code = 0;
        (void)err_set(&result.why, EIO,
                      "the engine lost the command: exit code %" PRId64, code);
        finish_lost(running, &result);
        return;
    }
    forget_mark(running);
    finish(running, &result);
}

static void fail(struct running *running, const char *what)
{
    struct err err = ERR_INIT;

    (void)err_set(&err, EPROTO, "'%s' %s", running->peer->name, what);
    lose(running, &err);
}

/* ---- What comes; the loop's thread ---- */

static void tell_start(struct running *running, const char *pid)
{
    if (!running->started) {
        running->started = true;
        running->sink->started(running->arg, pid ? strtoll(pid, NULL, 10) : 0);
    }
}

static int tell_bytes(struct running *running, const struct js *from,
                      const char *key, int stream, struct err *err)
{
    struct buf data = BUF_INIT(PEER_LINE_MAX);
    int rc = wire_bytes(from, key, &data, err);

    tell_start(running, NULL);
    if (rc == 0 && data.size > running->skip) {
        running->sink->output(running->arg, (enum command_stream)stream,
                              data.data + running->skip,
                              data.size - running->skip);
    }
    if (rc == 0 && !running->skip) {
        running->streamed[stream] += data.size;
    }
    buf_done(&data);
    return rc;
}

static int take_event(struct running *running, const struct js *event,
                      struct err *err)
{
    const char *type = js_text(event, "type");

    if (!type) {
        return err_set(err, EPROTO, "'%s' sent an event without a type",
                       running->peer->name);
    }
    if (strcmp(type, "started") == 0) {
        tell_start(running, js_text(event, "process_id"));
    } else if (strcmp(type, "stdout") == 0) {
        return tell_bytes(running, event, "data_base64", COMMAND_STDOUT, err);
    } else if (strcmp(type, "stderr") == 0) {
        return tell_bytes(running, event, "data_base64", COMMAND_STDERR, err);
    } else if (strcmp(type, "exited") == 0) {
        running->has_code = wire_int(event, "exit_code", &running->code);
    }
    return 0; /* What we do not know is for others. */
}

/* What events have left out of a stream; mostly nothing. */
static int tell_rest(struct running *running, const struct js *result,
                     const char *key, int stream, struct err *err)
{
    const struct trim *trim = &running->peer->trim;
    uint64_t all = trim_bytes(trim, stream);
    uint64_t told = running->streamed[stream];
    int rc = 0;

    if (trim->cut[stream] && all != told) {
        return err_set(err, EPROTO,
                       "'%s' sent %" PRIu64 " bytes of output and says it "
                       "were %" PRIu64,
                       running->peer->name, told, all);
    }
    if (!trim->cut[stream] && (all > told || (!told && trim->length[stream]))) {
        running->skip = (size_t)told;
        rc = tell_bytes(running, result, key, stream, err);
        running->skip = 0;
    }
    return rc;
}

static void take_result(struct running *running, const struct js *result)
{
    struct err err = ERR_INIT;
    int64_t code = running->code;
    bool has_code = wire_int(result, "exit_code", &code) || running->has_code;
    int rc = tell_rest(running, result, "stdout_base64", COMMAND_STDOUT, &err);

    if (rc == 0) {
        rc = tell_rest(running, result, "stderr_base64", COMMAND_STDERR, &err);
    }
    if (rc < 0) {
        lose(running, &err);
    } else if (!has_code || code > INT32_MAX || code < INT32_MIN) {
        fail(running, "answered exec without an exit_code");
    } else {
        finish_with(running, code);
    }
}

static void take_error(struct running *running, const struct js *error)
{
    struct command_result result = {.end = running->ending ? running->as
                                                           : COMMAND_LOST};
    struct answer answer;

    answer_init(&answer, 0);
    wire_failure(error, &answer);
    (void)wire_fail(&answer, &result.why);
    answer_done(&answer);
    atomic_store(&running->lease->doubtful, true);
    finish_lost(running, &result);
}

/* Returns false when the command is over. */
static bool take_message(struct running *running, struct message *message)
{
    struct err err = ERR_INIT;

    switch (message->kind) {
    case MESSAGE_EVENT:
        if (take_event(running, message->body, &err) < 0) {
            lose(running, &err);
            return false;
        }
        running->peer->cut =
            running->streamed[0] > 0 || running->streamed[1] > 0;
        return true;
    case MESSAGE_ERROR:
        take_error(running, message->body);
        return false;
    case MESSAGE_RESULT:
        break;
    }
    take_result(running, message->body);
    return false;
}

static void take_all(struct running *running)
{
    struct message message = {.body = NULL};
    struct err err = ERR_INIT;
    bool goes_on = true;
    int rc = 1;

    while (goes_on && rc > 0) {
        rc = peer_take(running->peer, &message, &err);
        if (rc > 0) {
            goes_on = take_message(running, &message);
            message_done(&message);
        }
    }
    if (rc < 0) {
        lose(running, &err);
    }
}

static void on_bytes(void *arg, uint32_t events)
{
    struct running *running = arg;
    struct err err = ERR_INIT;

    (void)events;
    if (peer_move(running->peer, &err) < 0) {
        lose(running, &err);
        return;
    }
    if (running->peer->err_ended) {
        loop_source_free(TAKE_PTR(running->err));
    }
    take_all(running);
}

/* ---- Ends that we want; the loop's thread ---- */

static void end_as(struct running *running, enum command_end as,
                   enum ending how)
{
    if (running->ending) {
        return;
    }
    running->ending = true;
    running->as = as;
    loop_source_free(TAKE_PTR(running->token));
    loop_timer_set(running->timeout, DEADLINE_NONE);
    loop_timer_set(running->patience, clock_deadline(PATIENCE_MS));
    (void)!ending_begin(running, how, 0);
}

static void on_timeout(void *arg)
{
    end_as(arg, COMMAND_TIMEOUT, ENDING_TERM);
}

static void on_token(void *arg, uint32_t events)
{
    (void)events;
    end_as(arg, COMMAND_CANCELED, ENDING_TERM);
}

/* Nothing has ended it. */
static void on_patience(void *arg)
{
    struct running *running = arg;
    struct err err = ERR_INIT;

    (void)err_set(&err, ETIMEDOUT,
                  "the command would not end: its engine's process was ended "
                  "instead, and it may still run");
    lose(running, &err);
}

static int watch(struct running *running, struct err *err)
{
    struct loop *loop = running->jsonl->loop;
    int rc = loop_source_new(loop, running->peer->out, EPOLLIN, on_bytes,
                             running, &running->out, err);

    if (rc == 0 && !running->peer->err_ended) {
        rc = loop_source_new(loop, running->peer->err, EPOLLIN, on_bytes,
                             running, &running->err, err);
    }
    if (rc == 0 && running->peer->end >= 0) {
        rc = loop_source_new(loop, running->peer->end, EPOLLIN, on_bytes,
                             running, &running->end, err);
    }
    if (rc == 0 && running->cancel->fd >= 0) {
        rc = loop_source_new(loop, running->cancel->fd, EPOLLIN, on_token,
                             running, &running->token, err);
    }
    return rc;
}

/* The command's first turn. */
static void begin(void *arg)
{
    struct running *running = arg;
    struct err err = ERR_INIT;
    bool goes_on = true;

    mutex_lock(&running->jsonl->lock);
    running->begun = true;
    mutex_unlock(&running->jsonl->lock);
    if (running->first.body) {
        goes_on = take_message(running, &running->first);
    } else {
        tell_start(running, NULL);
    }
    if (!goes_on) {
        return;
    }
    if (watch(running, &err) < 0) {
        lose(running, &err);
        return;
    }
    if (running->timeout_ms) {
        loop_timer_set(running->timeout, clock_deadline(running->timeout_ms));
    }
    take_all(running);
}

static struct running *new_running(struct jsonl *jsonl,
                                   const struct command *command)
{
    struct running *running = calloc(1, sizeof(*running));
    uint64_t random = 0;

    if (!running) {
        return NULL;
    }
    if (getrandom(&random, sizeof(random), 0) != sizeof(random)) {
        random = (uint64_t)clock_wall_us();
    }
    list_init(&running->link);
    running->jsonl = jsonl;
    running->n = command->n;
    running->timeout_ms = command->timeout_ms;
    (void)snprintf(running->mark, sizeof(running->mark),
                   "SESSIONFS_COMMAND=%" PRIu64 "-%016" PRIx64, command->n,
                   random);
    running->timeout = loop_timer_new(jsonl->loop, on_timeout, running);
    running->patience = loop_timer_new(jsonl->loop, on_patience, running);
    if (!running->timeout || !running->patience) {
        free_running(running); /* The timers were never armed. */
        return NULL;
    }
    return running;
}

static void enlist(struct running *running)
{
    struct jsonl *jsonl = running->jsonl;

    mutex_lock(&jsonl->lock);
    list_add(&jsonl->commands, &running->link);
    loop_post(jsonl->loop, begin, running);
    mutex_unlock(&jsonl->lock);
}

int jsonl_exec(struct provider *provider, const struct sandbox *sandbox,
               const struct command *command, const struct limits *limits,
               const struct command_sink *sink, void *arg, struct err *err)
{
    struct jsonl *jsonl = jsonl_of(provider);
    struct running *running = new_running(jsonl, command);
    int rc;

    if (!running) {
        return err_no_memory(err);
    }
    rc = lease_use(jsonl, sandbox, limits, &running->lease, err);
    if (rc == 0) {
        running->number = sandbox->number;
        running->cancel = limits->cancel;
        running->sink = sink;
        running->arg = arg;
        rc = start_command(running, command, limits, err);
    }
    if (rc < 0) {
        if (running->marked) {
            (void)!ending_begin(running, ENDING_LOST, 0);
        }
        free_running(running);
        return rc;
    }
    enlist(running);
    return 0;
}

/* ---- From outside ---- */

static struct running *find(struct jsonl *jsonl, uint64_t number, uint64_t n)
    REQUIRES(jsonl->lock)
{
    list_each(node, &jsonl->commands)
    {
        struct running *running = container_of(node, struct running, link);

        if (running->begun && !running->over &&
            (!number || running->number == number) && (!n || running->n == n)) {
            return running;
        }
    }
    return NULL;
}

int jsonl_signal(struct provider *provider, const struct sandbox *sandbox,
                 uint64_t n, int signal, struct err *err)
{
    struct jsonl *jsonl = jsonl_of(provider);
    struct running copy = {.jsonl = jsonl};
    struct running *running;

    mutex_lock(&jsonl->lock);
    running = find(jsonl, sandbox->number, n);
    if (running) {
        atomic_store(&running->sent, signal);
        memcpy(copy.mark, running->mark, sizeof(copy.mark));
        copy.lease = running->lease;
        copy.lease->refs++;
    }
    mutex_unlock(&jsonl->lock);
    if (!running) {
        return err_set(err, ESRCH, "command %" PRIu64 " does not run", n);
    }
    if (signal != 0 && ending_begin(&copy, ENDING_SIGNAL, signal) < 0) {
        lease_unref(jsonl, copy.lease);
        return err_set(err, EAGAIN, "there is no thread to send it");
    }
    lease_unref(jsonl, copy.lease);
    return 0;
}

/* An order to end commands, on its way to the loop's thread. */
struct order {
    struct jsonl *jsonl;
    uint64_t number;
};

/* Each once: who is ending already is left alone. */
static void obey_order(void *arg)
{
    struct order *order = arg;
    struct jsonl *jsonl = order->jsonl;
    struct running *running;

    do {
        running = NULL;
        mutex_lock(&jsonl->lock);
        list_each(node, &jsonl->commands)
        {
            struct running *one = container_of(node, struct running, link);

            if (one->begun && !one->over && !one->ending &&
                one->number == order->number) {
                running = one;
            }
        }
        mutex_unlock(&jsonl->lock);
        if (running) {
            end_as(running, COMMAND_KILLED, ENDING_KILL);
        }
    } while (running);
    free(order);
}

void command_end_all(struct jsonl *jsonl, uint64_t number)
{
    struct order *order = malloc(sizeof(*order));

    if (order) {
        *order = (struct order){.jsonl = jsonl, .number = number};
        loop_post(jsonl->loop, obey_order, order);
    }
}

static void lose_all(void *arg)
{
    struct jsonl *jsonl = arg;
    struct running *running;
    struct err err = ERR_INIT;

    (void)err_set(&err, ESHUTDOWN, "the filesystem is being unmounted");
    do {
        mutex_lock(&jsonl->lock);
        running = find(jsonl, 0, 0);
        mutex_unlock(&jsonl->lock);
        if (running) {
            lose(running, &err);
        }
    } while (running);
    mutex_lock(&jsonl->lock);
    jsonl->obeyed = true;
    cond_broadcast(&jsonl->closed);
    mutex_unlock(&jsonl->lock);
}

/* Waits until no command is left, nor work for one, or until then. */
static void await_all(struct jsonl *jsonl, int64_t deadline_ms)
{
    mutex_lock(&jsonl->lock);
    while ((!jsonl->obeyed || !list_empty(&jsonl->commands) || jsonl->leaving ||
            jsonl->endings) &&
           clock_ms() < deadline_ms) {
        (void)cond_wait(&jsonl->closed, &jsonl->lock, deadline_ms);
    }
    mutex_unlock(&jsonl->lock);
}

void command_settle(struct jsonl *jsonl)
{
    loop_post(jsonl->loop, lose_all, jsonl);
    await_all(jsonl, clock_deadline(CLOSE_MS));
    cancel_fire(&jsonl->closing);
    await_all(jsonl, DEADLINE_NONE);
}
