/* An engine of variables. See engine.h. */
#include "tests/fakes/engine.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/mutex.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    SLICE_MS = 5
};

static struct {
    atomic_int fail[ENGINE_SLOTS];
    atomic_bool hold[ENGINE_SLOTS];
    atomic_uint calls[ENGINE_SLOTS];
    atomic_int state;
    atomic_int replace; /* enum engine_slot; ENGINE_SLOTS: none. */
    atomic_bool gate;
    atomic_size_t metadata;
    atomic_uint made;
    atomic_uint commands; /* Threads of commands that live. */
} engine;

void engine_reset(void)
{
    for (int i = 0; i < ENGINE_SLOTS; i++) {
        atomic_store(&engine.fail[i], 0);
        atomic_store(&engine.hold[i], false);
        atomic_store(&engine.calls[i], 0);
    }
    atomic_store(&engine.state, PROVIDER_LOST);
    atomic_store(&engine.replace, ENGINE_SLOTS);
    atomic_store(&engine.gate, false);
    atomic_store(&engine.metadata, 0);
}

void engine_fail(enum engine_slot slot, int code)
{
    atomic_store(&engine.fail[slot], code);
}

void engine_hold(enum engine_slot slot, bool hold)
{
    atomic_store(&engine.hold[slot], hold);
}

unsigned engine_calls(enum engine_slot slot)
{
    return atomic_load(&engine.calls[slot]);
}

void engine_set_state(enum provider_state state)
{
    atomic_store(&engine.state, (int)state);
}

void engine_replace_at(enum engine_slot slot)
{
    atomic_store(&engine.replace, (int)slot);
}

void engine_set_metadata(size_t size)
{
    atomic_store(&engine.metadata, size);
}

void engine_open_gate(void)
{
    atomic_store(&engine.gate, true);
}

/* Waits a little; an error when the limits are over. */
static int wait_slice(const struct limits *limits, struct err *err)
{
    struct limits slice = {
        .deadline_ms = clock_deadline(SLICE_MS),
        .cancel = limits->cancel,
    };
    struct err ignored = ERR_INIT;

    if (limits_wait(&slice, -1, 0, &ignored) == -ECANCELED) {
        return err_set(err, ECANCELED, "the engine was told to stop");
    }
    return clock_ms() >= limits->deadline_ms
               ? err_set(err, ETIMEDOUT, "the engine took too long")
               : 0;
}

static int enter(enum engine_slot slot, const struct limits *limits,
                 struct err *err)
{
    int rc = 0;
    int code;

    atomic_fetch_add(&engine.calls[slot], 1);
    while (rc == 0 && atomic_load(&engine.hold[slot])) {
        rc = wait_slice(limits, err);
    }
    code = atomic_load(&engine.fail[slot]);
    if (rc == 0 && code) {
        rc = err_set(err, code, "the engine fails on purpose");
    }
    return rc;
}

static int engine_open(const struct provider_env *env, struct provider **out,
                       struct err *err)
{
    struct provider *provider;
    int code = atomic_load(&engine.fail[ENGINE_OPEN]);

    (void)env;
    if (code) {
        return err_set(err, code, "the engine fails on purpose");
    }
    provider = calloc(1, sizeof(*provider));
    if (!provider) {
        return err_no_memory(err);
    }
    *out = provider;
    return 0;
}

static void engine_close(struct provider *provider)
{
    atomic_store(&engine.gate, true);
    while (atomic_load(&engine.commands)) {
        (void)usleep(1000);
    }
    free(provider);
}

static int set_external_id(struct sandbox *sandbox, struct err *err)
{
    char *id = NULL;

    if (asprintf(&id, "box-%u", atomic_fetch_add(&engine.made, 1)) < 0) {
        return err_no_memory(err);
    }
    free(sandbox->instance->external_id);
    sandbox->instance->external_id = id;
    return 0;
}

/* A JSON text of the size that is asked for. */
static int set_metadata(struct sandbox *sandbox, struct err *err)
{
    size_t size = atomic_load(&engine.metadata);
    char *text;

    if (!size) {
        return 0;
    }
    text = malloc(size + 1);
    if (!text) {
        return err_no_memory(err);
    }
    memset(text, 'm', size);
    text[0] = '"';
    text[size - 1] = '"';
    text[size] = '\0';
    free(sandbox->instance->metadata);
    sandbox->instance->metadata = text;
    return 0;
}

static int engine_create(struct provider *provider, struct sandbox *sandbox,
                         const struct limits *limits, struct err *err)
{
    int rc = enter(ENGINE_CREATE, limits, err);

    (void)provider;
    if (rc == 0) {
        rc = set_external_id(sandbox, err);
    }
    if (rc == 0) {
        rc = set_metadata(sandbox, err);
    }
    if (rc == 0) {
        atomic_store(&engine.state, PROVIDER_RUNNING);
    }
    return rc;
}

/* A call that may give another external id. */
static int become_other(enum engine_slot slot, struct sandbox *sandbox,
                        const struct limits *limits, struct err *err)
{
    int rc = enter(slot, limits, err);

    return rc == 0 && atomic_load(&engine.replace) == (int)slot
               ? set_external_id(sandbox, err)
               : rc;
}

static int engine_resume(struct provider *provider, struct sandbox *sandbox,
                         const struct limits *limits, struct err *err)
{
    int rc = become_other(ENGINE_RESUME, sandbox, limits, err);

    (void)provider;
    if (rc == 0) {
        atomic_store(&engine.state, PROVIDER_RUNNING);
    }
    return rc;
}

static int engine_pause(struct provider *provider, struct sandbox *sandbox,
                        const struct limits *limits, struct err *err)
{
    int rc = become_other(ENGINE_PAUSE, sandbox, limits, err);

    (void)provider;
    if (rc == 0) {
        atomic_store(&engine.state, PROVIDER_PAUSED);
    }
    return rc;
}

static int engine_destroy(struct provider *provider, struct sandbox *sandbox,
                          const struct limits *limits, struct err *err)
{
    int rc = enter(ENGINE_DESTROY, limits, err);

    (void)provider;
    (void)sandbox;
    if (rc == 0) {
        atomic_store(&engine.state, PROVIDER_LOST);
    }
    return rc;
}

static int engine_status(struct provider *provider,
                         const struct sandbox *sandbox,
                         const struct limits *limits, enum provider_state *out,
                         struct err *err)
{
    int rc = enter(ENGINE_STATUS, limits, err);

    (void)provider;
    (void)sandbox;
    if (rc == 0) {
        *out = (enum provider_state)atomic_load(&engine.state);
    }
    return rc;
}

static int engine_checkpoint(struct provider *provider, struct sandbox *sandbox,
                             const struct limits *limits, struct err *err)
{
    (void)provider;
    return become_other(ENGINE_CHECKPOINT, sandbox, limits, err);
}

static int engine_root(struct provider *provider, const struct sandbox *sandbox,
                       struct provider_root *out, struct err *err)
{
    int code = atomic_load(&engine.fail[ENGINE_ROOT]);
    int fd;

    (void)provider;
    if (code) {
        return err_set(err, code, "the engine fails on purpose");
    }
    fd = open(sandbox->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return err_errno(err, "open the root");
    }
    *out = (struct provider_root){.fd = fd,
                                  .base = geteuid(),
                                  .gid_base = getegid(),
                                  .count = 1,
                                  .path = "/workspace"};
    return 0;
}

static int engine_room(struct provider *provider, uint64_t number,
                       struct err *err)
{
    int code = atomic_load(&engine.fail[ENGINE_ROOM]);

    (void)provider;
    (void)number;
    return code ? err_set(err, code, "the engine is full") : 0;
}

/* ---- Commands ---- */

struct running {
    const struct command_sink *sink;
    void *arg;
    struct cancel *cancel;
    int64_t deadline_ms; /* Of its timeout. */
    char *words;
    const char *late;
    struct command_result result;
};

static void wait_for_gate(struct running *running)
{
    while (!atomic_load(&engine.gate) && !cancel_fired(running->cancel)) {
        (void)usleep(1000);
    }
}

static void wait_for_token(struct running *running)
{
    while (!cancel_fired(running->cancel)) {
        (void)usleep(1000);
        if (clock_ms() >= running->deadline_ms) {
            running->result.end = COMMAND_TIMEOUT;
            return;
        }
    }
}

static void output(struct running *running, enum command_stream stream,
                   const char *text)
{
    if (*text) {
        running->sink->output(running->arg, stream, text, strlen(text));
    }
}

static void fill(struct running *running, long size)
{
    char piece[4096];

    memset(piece, 'x', sizeof(piece));
    for (long left = size; left > 0; left -= (long)sizeof(piece)) {
        size_t n = left < (long)sizeof(piece) ? (size_t)left : sizeof(piece);

        running->sink->output(running->arg, COMMAND_STDOUT, piece, n);
    }
}

static void act(struct running *running, const char *word)
{
    if (strncmp(word, "o:", 2) == 0) {
        output(running, COMMAND_STDOUT, word + 2);
    } else if (strncmp(word, "e:", 2) == 0) {
        output(running, COMMAND_STDERR, word + 2);
    } else if (strncmp(word, "fill:", 5) == 0) {
        fill(running, atol(word + 5));
    } else if (strncmp(word, "exit:", 5) == 0) {
        running->result.code = atoi(word + 5);
    } else if (strncmp(word, "kill:", 5) == 0) {
        running->result.end = COMMAND_KILLED;
        running->result.signal = atoi(word + 5);
    } else if (strncmp(word, "limit:", 6) == 0) {
        (void)err_set(&running->result.why, EDQUOT, "%s", word + 6);
    } else if (strcmp(word, "lost") == 0) {
        running->result.end = COMMAND_LOST;
    } else if (strcmp(word, "hang") == 0) {
        wait_for_token(running);
    } else if (strcmp(word, "gate") == 0) {
        wait_for_gate(running);
    } else if (strncmp(word, "late:", 5) == 0) {
        running->late = word + 5;
    }
}

static void *command_main(void *arg)
{
    struct running *running = arg;
    char *rest = NULL;
    char *word = strtok_r(running->words, " \n", &rest);

    running->sink->started(running->arg, 1);
    while (word && !cancel_fired(running->cancel)) {
        act(running, word);
        word = strtok_r(NULL, " \n", &rest);
    }
    if (cancel_fired(running->cancel)) {
        running->result.end = COMMAND_CANCELED;
    }
    running->sink->exited(running->arg, &running->result);
    if (running->late) {
        (void)usleep(20000);
        output(running, COMMAND_STDOUT, running->late);
    }
    running->sink->closed(running->arg);
    free(running->words);
    free(running);
    atomic_fetch_sub(&engine.commands, 1);
    return NULL;
}

static int start_thread(struct running *running, struct err *err)
{
    pthread_t thread;
    int rc;

    atomic_fetch_add(&engine.commands, 1);
    rc = pthread_create(&thread, NULL, command_main, running);
    if (rc) {
        atomic_fetch_sub(&engine.commands, 1);
        return err_set(err, rc, "cannot start a thread");
    }
    (void)pthread_detach(thread);
    return 0;
}

static int engine_exec(struct provider *provider, const struct sandbox *sandbox,
                       const struct command *command,
                       const struct limits *limits,
                       const struct command_sink *sink, void *arg,
                       struct err *err)
{
    struct running *running;
    int rc = enter(ENGINE_EXEC, limits, err);

    (void)provider;
    (void)sandbox;
    if (rc < 0) {
        return rc;
    }
    running = calloc(1, sizeof(*running));
    if (running) {
        running->words = strndup(command->shell, command->shell_size);
    }
    if (!running || !running->words) {
        free(running);
        return err_no_memory(err);
    }
    running->sink = sink;
    running->arg = arg;
    running->cancel = limits->cancel;
    running->deadline_ms = command->timeout_ms
                               ? clock_deadline(command->timeout_ms)
                               : DEADLINE_NONE;
    if (strncmp(running->words, "now", 3) == 0) {
        atomic_fetch_add(&engine.commands, 1);
        (void)command_main(running);
        return 0;
    }
    rc = start_thread(running, err);
    if (rc < 0) {
        free(running->words);
        free(running);
    }
    return rc;
}

/* They have ended with the provider that had them. */
static bool engine_has_processes(struct provider *provider, uint64_t number)
{
    (void)provider;
    (void)number;
    return false;
}

const struct provider_ops engine_local = {
    .name = "local",
    .summary = "an engine of variables, with a directory",
    .flags = PROVIDER_FILES_WHEN_PAUSED,
    .open = engine_open,
    .close = engine_close,
    .create = engine_create,
    .resume = engine_resume,
    .pause = engine_pause,
    .destroy = engine_destroy,
    .status = engine_status,
    .exec = engine_exec,
    .has_processes = engine_has_processes,
    .root = engine_root,
    .room = engine_room,
};

/* Nobody goes beyond the tree's object here. */
static const struct provider_files engine_files = {.stat = NULL};

const struct provider_ops engine_remote = {
    .name = "remote",
    .summary = "an engine of variables, with checkpoints",
    .open = engine_open,
    .close = engine_close,
    .create = engine_create,
    .resume = engine_resume,
    .pause = engine_pause,
    .destroy = engine_destroy,
    .status = engine_status,
    .exec = engine_exec,
    .checkpoint = engine_checkpoint,
    .files = &engine_files,
};
