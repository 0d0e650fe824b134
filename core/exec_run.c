/*
 * Running a command. Its queue waits without a thread: the life thread starts
 * it, the sink's thread takes its output, and the life thread ends it.
 */
#include "core/buf.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/crash.h"
#include "core/exec_priv.h"
#include "core/exec_request.h"
#include "core/json.h"
#include "core/registry_priv.h"

#include <signal.h>
#include <stdio.h>

/* ---- Its end ---- */

static int save_end(struct exec *exec, const struct exec_info *info,
                    struct err *err)
{
    struct session *session = exec->job.session;
    struct js *detail = js_object();
    const struct store_event event = {
        .name = "exec.ended",
        .exec = exec->n,
        .caller = &exec->job.caller,
        .detail = detail,
    };
    int rc;

    js_set_text(detail, "status", exec_status_name(info->status));
    if (info->has_exit_code) {
        js_set_int(detail, "exit_code", info->exit_code);
    }
    if (info->err.code) {
        js_set_text(detail, "message", info->err.msg);
    }
    rc = store_exec_save(session->registry->store, session->number, info,
                         &event, err);
    js_free(detail);
    return rc;
}

/* Its object stays until the end is recorded after all: it is not forgotten
 * what came of the command, and no later daemon calls it lost. */
static void keep_unsaved(struct exec *exec)
{
    struct session *session = exec->job.session;

    (void)exec_ref(exec);
    mutex_lock(&session->lock);
    exec->unsaved = true;
    session->unsaved++;
    mutex_unlock(&session->lock);
}

/* One whose end is not recorded, with the reference that kept it, or NULL. */
static struct exec *take_unsaved(struct session *session)
{
    struct exec *found = NULL;

    mutex_lock(&session->lock);
    if (session->unsaved) {
        list_each(node, &session->execs)
        {
            struct exec *exec = container_of(node, struct exec, link);

            found = exec->unsaved ? exec : found;
        }
        found->unsaved = false;
        session->unsaved--;
    }
    mutex_unlock(&session->lock);
    return found;
}

void exec_save_late(struct session *session, bool last)
{
    struct exec *exec = take_unsaved(session);
    struct err err = ERR_INIT;

    while (exec) {
        struct exec_info info;
        int rc;

        exec_info(exec, &info);
        rc = save_end(exec, &info, &err);
        if (rc < 0 && !last && !session_gone(session)) {
            keep_unsaved(exec);
            exec_unref(exec);
            return;
        }
        exec_unref(exec);
        exec = take_unsaved(session);
    }
}

static void publish_end(struct exec *exec, const struct exec_info *info)
{
    mutex_lock(&exec->lock);
    exec->info = *info;
    exec->ended = true;
    if (exec->has_token) {
        exec->has_token = false;
        cancel_done(&exec->token);
    }
    mutex_unlock(&exec->lock);
    exec_wake(exec);
    session_news(exec->job.session);
}

/* Records the end, lets the queue go on where the command was the current job,
 * and only then tells everybody: who hears of it may pause the session. */
static void end(struct exec *exec, struct exec_info *info, bool ran,
                bool current)
{
    struct session *session = exec->job.session;
    struct err err = ERR_INIT;
    bool saved;

    info->ended_us = clock_wall_us();
    session_touch(session);
    crash_point("exec-ended");
    saved = save_end(exec, info, &err) == 0;
    if (!saved) {
        info->status = EXEC_FAILED;
        (void)err_wrap(&err, -err.code, "cannot record the command's end");
        info->err = err;
    }
    crash_point("exec-recorded");
    if (info->status == EXEC_FAILED) {
        session_fail(session, "exec", info->n, NULL, &exec->job.caller,
                     &info->err);
    }
    if (ran) {
        session_changed(session);
    }
    if (current && ran && exec->background) {
        session_background_over(session);
    } else if (current) {
        session_job_over(session);
    }
    publish_end(exec, info);
    if (saved) {
        exec_save_late(session, false);
        exec_retire(session, exec->n);
    } else {
        keep_unsaved(exec);
    }
}

static void end_unrun(struct exec *exec, enum exec_status status,
                      const struct err *err, bool current)
{
    struct registry *registry = exec->job.session->registry;
    struct exec_info info;

    exec_info(exec, &info);
    info.status = status;
    info.err = *err;
    end(exec, &info, false, current);
    exec_unref(exec);
    registry_job_end(registry);
}

void exec_end_unrun(struct exec *exec, enum exec_status status,
                    const struct err *err)
{
    end_unrun(exec, status, err, false);
}

/* What the engine's answer means. */
static void read_result(const struct command_result *result,
                        struct exec_info *info)
{
    info->has_exit_code = true;
    info->err = result->why;
    switch (result->end) {
    case COMMAND_EXITED:
        info->status = EXEC_EXITED;
        info->exit_code = result->code;
        return;
    case COMMAND_KILLED:
        info->status = EXEC_KILLED;
        info->exit_code = 128 + result->signal;
        return;
    case COMMAND_CANCELED:
        info->status = EXEC_KILLED;
        info->exit_code = 128 + (result->signal ? result->signal : SIGTERM);
        return;
    case COMMAND_TIMEOUT:
        info->status = EXEC_TIMEOUT;
        info->exit_code = 124;
        return;
    case COMMAND_LOST:
        break;
    }
    info->status = EXEC_LOST;
    info->has_exit_code = false;
    (void)err_set(&info->err, ESTALE,
                  "the engine cannot say how the command ended");
}

/* A checkpoint is due after each command, however it ended. */
static void checkpoint(struct exec *exec, struct exec_info *info)
{
    struct session *session = exec->job.session;
    struct err err = ERR_INIT;

    if (registry_engines_closed(session->registry)) {
        return;
    }
    if (session_life_checkpoint(session, &err) < 0) {
        info->status = EXEC_FAILED;
        info->err = err;
    }
}

/* The rest of a command, once its process is gone. */
static void conclude(struct exec *exec, bool current)
{
    struct registry *registry = exec->job.session->registry;
    struct exec_info info;

    exec_info(exec, &info);
    read_result(&exec->result, &info);
    if (info.status == EXEC_LOST) {
        session_doubt(exec->job.session);
    }
    checkpoint(exec, &info);
    if (exec->log_err.code) {
        info.status = EXEC_FAILED;
        info.err = exec->log_err;
    }
    end(exec, &info, true, current);
    exec_unref(exec);
    registry_job_end(registry);
}

/* Life thread. */
static void finish(void *arg)
{
    conclude(arg, true);
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

    if (exec_log_append(exec->log, stream, data, size, &err) < 0 &&
        !exec->exited && !exec->log_err.code) {
        exec->log_err = err;
    }
    session_touch(exec->job.session);
    exec_wake(exec);
    session_news(exec->job.session);
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
        return err_set(err, ENOMEM, "out of memory");
    }
    return 0;
}

static int call_provider(struct exec *exec, const struct exec_request *request,
                         const struct session_call *call, struct err *err)
{
    static const struct command_sink sink = {
        .started = sink_started,
        .output = sink_output,
        .exited = sink_exited,
        .closed = sink_closed,
    };
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
                         &sink, exec, err);
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
    rc = call_exec(exec, request, err);
    if (rc < 0) {
        session_doubt(exec->job.session);
        exec_unref(exec);
        registry_sink_end(registry);
    }
    return rc;
}

static int start(struct exec *exec, struct err *err)
{
    struct exec_request request;
    int rc = load_request(exec, &request, err);

    if (rc == 0) {
        if (!request.timeout_ms && !exec->init) {
            request.timeout_ms = exec->job.session->config.exec_timeout_ms;
        }
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
        end_unrun(exec, EXEC_KILLED, err, current);
    } else {
        end_unrun(exec, EXEC_FAILED, err, current);
    }
}

static void run(struct exec *exec)
{
    struct err err = ERR_INIT;
    int rc = is_cancelled(exec)
                 ? -ECANCELED
                 : session_ensure_for_exec(exec->job.session, &err);

    if (rc == 0 && !is_cancelled(exec)) {
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
        conclude(exec, false);
    }
    cond_done(&wait.come);
    mutex_done(&wait.lock);
}
