/*
 * Init commands: run one after another in a sandbox that is new to its
 * session, until all have gone well once. Each is a command like any other,
 * but for the queue, whose current job ensures meanwhile.
 */
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/crash.h"
#include "core/exec_priv.h"
#include "core/json.h"
#include "core/session_priv.h"

#include <stdio.h>
#include <string.h>

enum {
    OUTPUT_MAX = 200,  /* Bytes of output, */
    COMMAND_MAX = 200, /* and of a command, in the words of a failure. */
};

/* What becomes of the record, and the event that tells it. */
struct outcome {
    const char *event;
    const char *error; /* NULL: none. */
    bool completed;
    const struct exec_info *failed; /* NULL: none. */
    const struct caller *caller;
};

static struct js *detail_of(const struct outcome *outcome)
{
    struct js *detail = js_object();

    if (outcome->failed && outcome->failed->has_exit_code) {
        js_set_int(detail, "exit_code", outcome->failed->exit_code);
    }
    if (outcome->failed) {
        js_set_text(detail, "message", outcome->error);
    }
    return detail;
}

static int put_error(struct store_state *state, const char *error,
                     struct err *err)
{
    char *copy = error ? strdup(error) : NULL;

    if (error && !copy) {
        return err_no_memory(err);
    }
    free(state->last_init_error);
    state->last_init_error = copy;
    return 0;
}

static int put(struct session *session, const struct outcome *outcome,
               struct err *err)
{
    struct js *detail = detail_of(outcome);
    const struct store_event event = {
        .name = outcome->event,
        .exec = outcome->failed ? outcome->failed->n : 0,
        .caller = outcome->caller,
        .detail = detail,
    };
    struct store_state state;
    int rc = session_record_copy(session, &state, err);

    if (rc == 0) {
        if (outcome->completed) {
            state.init_completed_us = clock_wall_us();
        }
        rc = put_error(&state, outcome->error, err);
        if (rc == 0) {
            rc = session_record_put(session, &state, &event, err);
        }
        store_state_done(&state);
    }
    js_free(detail);
    return rc;
}

/* ---- What a failed command said ---- */

/* The end of an output in one line, without blanks behind it. */
static void read_end(struct exec *exec, enum exec_view view,
                     char out[OUTPUT_MAX + 1])
{
    uint64_t size = exec_size(exec, view);
    uint64_t from = size > OUTPUT_MAX ? size - OUTPUT_MAX : 0;
    struct err ignored = ERR_INIT;
    ssize_t n = exec_read(exec, view, from, out, OUTPUT_MAX, &ignored);

    n = n < 0 ? 0 : n;
    while (n && strchr(" \t\r\n", out[n - 1])) {
        n--;
    }
    out[n] = '\0';
    for (ssize_t i = 0; i < n; i++) {
        if (out[i] == '\n') {
            out[i] = ' ';
        }
    }
}

static int say(struct exec *exec, const struct exec_info *info,
               const char *script, struct err *err)
{
    char said[OUTPUT_MAX + 1];
    const char *why = said;
    int rc;

    read_end(exec, EXEC_STDERR, said);
    if (!*said) {
        read_end(exec, EXEC_STDOUT, said);
    }
    if (!*said && info->err.msg[0]) {
        why = info->err.msg;
    } else if (!*said) {
        (void)snprintf(said, sizeof(said), "exit code %d, without output",
                       info->exit_code);
    }
    rc = err_set(err, EIO, "Session sandbox init failed for command '%.*s': %s",
                 COMMAND_MAX, script, why);
    err->quotes = true;
    return rc;
}

static int fail(struct session *session, struct exec *exec, const char *script,
                const struct caller *caller, struct err *err)
{
    AUTO_FREE char *error = NULL;
    struct exec_info info;
    struct outcome outcome = {
        .event = "init.failed", .failed = &info, .caller = caller};
    struct err why = ERR_INIT;
    int n;

    exec_info(exec, &info);
    n = info.has_exit_code
            ? asprintf(&error, "Init command failed with exit code %d: %s",
                       info.exit_code, script)
            : asprintf(&error, "Init command failed: %s: %s", script,
                       info.err.msg);
    if (n < 0) {
        error = NULL;
        return err_no_memory(err);
    }
    outcome.error = error;
    /* That it failed counts, also where it cannot be recorded: the record says
     * already that not all have gone well. */
    (void)!put(session, &outcome, &why);
    return say(exec, &info, script, err);
}

/* ---- Running ---- */

static int run_one(struct session *session, const char *script,
                   const struct caller *caller, struct err *err)
{
    struct exec *exec = NULL;
    struct exec_info info;
    int rc = exec_add_init(session, script, caller, &exec, err);

    if (rc < 0) {
        return err_wrap(err, rc, "Session sandbox init");
    }
    exec_run_init(exec);
    crash_point("init-command");
    exec_info(exec, &info);
    if (info.status != EXEC_EXITED || info.exit_code != 0) {
        rc = fail(session, exec, script, caller, err);
    }
    exec_unref(exec);
    return rc;
}

/* The config does not change while a job runs, and one does. */
static int run_all(struct session *session, const struct caller *caller,
                   struct err *err)
{
    /* What the record says if we die meanwhile. */
    const struct outcome started = {
        .event = "init.started",
        .error = "Init was interrupted before its commands had ended",
        .caller = caller,
    };
    const struct outcome completed = {
        .event = "init.completed", .completed = true, .caller = caller};
    const struct config *config = &session->config;
    int rc = put(session, &started, err);

    crash_point("init-started");
    for (size_t i = 0; i < config->init_count && rc == 0; i++) {
        rc = run_one(session, config->init_commands[i], caller, err);
    }
    if (rc == 0) {
        rc = put(session, &completed, err);
        crash_point("init-completed");
    }
    return rc;
}

bool session_init_due_locked(const struct session *session)
{
    return session->has_record && !session->record.init_completed_us &&
           session->config.init_count;
}

static bool is_due(struct session *session)
{
    bool due;

    mutex_lock(&session->lock);
    due = session_init_due_locked(session);
    mutex_unlock(&session->lock);
    return due;
}

int session_life_init(struct session *session, const struct caller *caller,
                      struct err *err)
{
    int rc;

    if (!is_due(session)) {
        return 0;
    }
    rc = session_init_begin(session, err);
    if (rc == 0) {
        rc = run_all(session, caller, err);
        session_init_over(session);
    }
    return rc;
}
