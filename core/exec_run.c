/*
 * Running a command. Its queue waits without a thread: the life thread starts
 * it, the sink's thread takes its output, and the life thread ends it. See
 * exec_end.c.
 */
#include "core/buf.h"
#include "core/checkpoint_priv.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/crash.h"
#include "core/exec_priv.h"
#include "core/exec_request.h"
#include "core/registry_priv.h"

#include <errno.h>
#include <stdio.h>

/* Life thread. */
static void finish(void *arg)
{
    exec_conclude(arg, true);
}

static void wake_init(struct init_wait *wait)
{
    mutex_lock(&wait->lock);
    wait->exited = true;
    cond_broadcast(&wait->come);
    mutex_unlock(&wait->lock);
}

/* ---- The sink ---- */

static void sink_started(void *arg, int64_t pid)
{
    struct exec *exec = arg;

    crash_point("exec-started");
    mutex_lock(&exec->lock);
    exec->info.process_id = pid;
    exec->started = true;
    mutex_unlock(&exec->lock);
    exec_wake(exec);
}

static void sink_output(void *arg, enum command_stream stream, const void *data,
                        size_t size)
{
    struct exec *exec = arg;
    struct err err = ERR_INIT;

    session_touch(exec->job.session);
    if (exec->discard) {
        return;
    }
    if (exec_log_append(exec->log, stream, data, size, &err) < 0 &&
        !exec->exited && !exec->log_err.code) {
        exec->log_err = err;
    }
    exec_wake(exec);
    session_news(exec->job.session);
}

static ssize_t sink_take(void *arg, enum command_stream stream, int pipe,
                         size_t most)
{
    struct exec *exec = arg;
    ssize_t n = exec->discard
                    ? -EINVAL /* It is read, and comes to sink_output(). */
                    : exec_log_take(exec->log, stream, pipe, most);

    if (n > 0) {
        session_touch(exec->job.session);
        exec_wake(exec);
        session_news(exec->job.session);
    }
    return n;
}

static void sink_exited(void *arg, const struct command_result *result)
{
    struct exec *exec = arg;
    struct session *session = exec->job.session;

    exec->result = *result;
    exec->exited = true;
    if (exec->init) {
        wake_init(exec->init);
    } else if (session_run(session, session->life, finish, exec) < 0) {
        /* Without a thread: better late in the loop than never. */
        finish(exec);
    }
}

static void sink_closed(void *arg)
{
    struct exec *exec = arg;
    struct registry *registry = exec->job.session->registry;

    exec_log_stop(exec->log);
    exec_unref(exec);
    registry_sink_end(registry);
}

const struct command_sink exec_sink = {
    .started = sink_started,
    .output = sink_output,
    .exited = sink_exited,
    .closed = sink_closed,
    .take = sink_take,
};

/* ---- Its start ---- */

/* It is about to run: from here on a cancel goes by the token. */
static int begin(struct exec *exec, struct err *err)
{
    struct session *session = exec->job.session;
    struct store_event event = {
        .name = "exec.started", .exec = exec->n, .caller = &exec->job.caller};
    struct exec_info info;
    int rc = exec_log_start(exec->log, err);

    if (rc < 0) {
        return rc;
    }
    session_touch(session);
    mutex_lock(&exec->lock);
    rc = exec->cancelled ? err_set(err, ECANCELED, "cancelled")
                         : cancel_init(&exec->token, err);
    if (rc == 0) {
        exec->has_token = true;
        exec->info.status = EXEC_RUNNING;
        exec->info.started_us = clock_wall_us();
    }
    info = exec->info;
    mutex_unlock(&exec->lock);
    return rc < 0 ? rc
                  : store_exec_save(session->registry->store, session->number,
                                    &info, &event, err);
}

/* A directory below the workspace, as the sandbox sees it; NULL: as given. */
static int place_cwd(const struct exec_request *request,
                     const struct instance *instance, char **out,
                     struct err *err)
{
    if (!request->cwd || request->cwd[0] == '/' || !instance->workspace_path) {
        *out = NULL;
    } else if (asprintf(out, "%s/%s", instance->workspace_path, request->cwd) <
               0) {
        return err_no_memory(err);
    }
    return 0;
}

static int call_provider(struct exec *exec, const struct exec_request *request,
                         const struct session_call *call, struct err *err)
{
    const struct limits limits = {
        .deadline_ms = session_deadline(exec->job.session, SESSION_WAIT_CALL),
        .cancel = &exec->token,
    };
    struct command command = {
        .n = exec->n,
        .shell = request->argv ? NULL : buf_str(&request->text),
        .shell_size = request->argv ? 0 : request->text.size,
        .argv = request->argv,
        .env = request->env,
        .input = request->has_input ? buf_str(&request->input) : NULL,
        .input_size = request->input.size,
        .timeout_ms = request->timeout_ms,
    };
    AUTO_FREE char *cwd = NULL;
    int rc = place_cwd(request, &call->state.instance, &cwd, err);

    if (rc < 0) {
        return rc;
    }
    command.cwd = cwd ? cwd : request->cwd;
    return provider_exec(call->provider, &call->sandbox, &command, &limits,
                         &exec_sink, exec, err);
}

static int call_exec(struct exec *exec, const struct exec_request *request,
                     struct err *err)
{
    struct session_call call;
    int rc = session_call_init(exec->job.session, &call, err);

    if (rc == 0) {
        rc = call_provider(exec, request, &call, err);
        session_call_done(&call);
    }
    return rc;
}

/* What was asked for, from its record: a plain script is a request too. */
static int load_request(struct exec *exec, struct exec_request *out,
                        struct err *err)
{
    const struct session *session = exec->job.session;
    struct exec_request request = {.mode = SHAPE_AUTO};
    struct buf json = BUF_INIT(EXEC_REQUEST_MAX);
    int rc = store_exec_request(session->registry->store, session->number,
                                exec->n, &json, err);

    if (rc == 0 && json.size) {
        rc = exec_request_parse(json.data, json.size, out, err);
    } else if (rc == 0) {
        buf_init(&request.text, EXEC_SCRIPT_MAX);
        buf_init(&request.input, 0);
        rc = exec_command(exec, &request.text, err);
        if (rc < 0) {
            exec_request_done(&request);
        } else {
            *out = request;
        }
    }
    buf_done(&json);
    exec->discard = rc == 0 && out->discard;
    return rc;
}

static int start_request(struct exec *exec, const struct exec_request *request,
                         struct err *err)
{
    struct registry *registry = exec->job.session->registry;
    int rc = begin(exec, err);

    if (rc < 0) {
        return rc;
    }
    crash_point("exec-begun");
    registry_sink_begin(registry);
    (void)exec_ref(exec); /* The sink's. */
    session_stir_begin(exec->job.session);
    rc = call_exec(exec, request, err);
    if (rc < 0) {
        session_stir_end(exec->job.session);
        session_doubt(exec->job.session);
        exec_unref(exec);
        registry_sink_end(registry);
    }
    return rc;
}

static int load_timed(struct exec *exec, struct exec_request *out,
                      struct err *err)
{
    int rc = load_request(exec, out, err);

    if (rc == 0 && !out->timeout_ms && !exec->init) {
        out->timeout_ms = exec->job.session->config.exec_timeout_ms;
    }
    return rc;
}

int exec_timeout(struct exec *exec, int64_t *out, struct err *err)
{
    struct exec_request request;
    int rc = load_timed(exec, &request, err);

    if (rc == 0) {
        *out = request.timeout_ms;
        exec_request_done(&request);
    }
    return rc;
}

static int start(struct exec *exec, struct err *err)
{
    struct exec_request request;
    int rc = load_timed(exec, &request, err);

    if (rc == 0) {
        rc = start_request(exec, &request, err);
        exec_request_done(&request);
    }
    return rc;
}

/* Starts one that the queue does not wait for. It counts before, since it may
 * end before it is said to have begun. */
static int start_aside(struct exec *exec, struct err *err)
{
    struct session *session = exec->job.session;
    int rc;

    session_background_begin(session);
    rc = start(exec, err);
    if (rc < 0) {
        session_background_over(session);
    } else {
        session_job_over(session);
    }
    return rc;
}

static bool is_cancelled(struct exec *exec)
{
    bool cancelled;

    mutex_lock(&exec->lock);
    cancelled = exec->cancelled;
    mutex_unlock(&exec->lock);
    return cancelled;
}

/* It did not begin, for want of something or because nobody wants it. */
static void give_up(struct exec *exec, struct err *err, bool current)
{
    if (is_cancelled(exec)) {
        err_clear(err);
        exec_end_unrun(exec, EXEC_KILLED, err, current);
    } else {
        exec_end_unrun(exec, EXEC_FAILED, err, current);
    }
}

static void run(struct exec *exec)
{
    struct err err = ERR_INIT;
    int rc = is_cancelled(exec)
                 ? -ECANCELED
                 : session_ensure_for_exec(exec->job.session, &err);

    if (rc == 0) {
        rc = session_files_send(exec->job.session, &err);
    }
    if (rc == 0 && !is_cancelled(exec)) {
        checkpoint_gather(exec->job.session);
        rc = exec->background ? start_aside(exec, &err) : start(exec, &err);
        if (rc == 0) {
            session_news(exec->job.session);
            return; /* The sink does the rest. */
        }
    }
    give_up(exec, &err, true);
}

void exec_run(struct exec *exec)
{
    /* The job's reference may go while the command is being started. */
    (void)exec_ref(exec);
    run(exec);
    exec_unref(exec);
}

static void wait_init(struct init_wait *wait)
{
    mutex_lock(&wait->lock);
    while (!wait->exited) {
        (void)cond_wait(&wait->come, &wait->lock, DEADLINE_NONE);
    }
    mutex_unlock(&wait->lock);
}

/* Without a deadline: the command's token ends the wait, a provider that is
 * closed does too. */
void exec_run_init(struct exec *exec)
{
    struct init_wait wait = {.exited = false};
    struct err err = ERR_INIT;

    mutex_init(&wait.lock);
    cond_init(&wait.come);
    exec->init = &wait;
    /* The end of the registry cancels what it finds; this is found, or late. */
    if (registry_closing(exec->job.session->registry)) {
        exec_cancel(exec);
    }
    if (start(exec, &err) < 0) {
        give_up(exec, &err, false);
    } else {
        session_news(exec->job.session);
        wait_init(&wait);
        exec_conclude(exec, false);
    }
    cond_done(&wait.come);
    mutex_done(&wait.lock);
}
