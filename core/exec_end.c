/*
 * The end of a command: what came of it, its checkpoint, and the record of
 * both. An end that cannot be recorded is kept and recorded later.
 */
#include "core/checkpoint_priv.h"
#include "core/clock.h"
#include "core/crash.h"
#include "core/exec_priv.h"
#include "core/json.h"
#include "core/registry_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>

static int save_end(struct exec *exec, const struct exec_info *info,
                    const struct checkpoint *made, struct err *err)
{
    struct session *session = exec->job.session;
    struct js *detail = js_object();
    const struct store_event event = {
        .name = "exec.ended",
        .exec = exec->n,
        .caller = exec->unasked ? NULL : &exec->job.caller,
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
    rc = store_checkpoint_exec(session->registry->store, session->number, info,
                               made, &event, err);
    js_free(detail);
    return rc;
}

/* No later daemon need learn how it ended. */
static void settle(struct exec *exec)
{
    struct session *session = exec->job.session;
    struct provider *provider;

    mutex_lock(&session->lock);
    provider = session->provider;
    mutex_unlock(&session->lock);
    if (provider && !registry_engines_closed(session->registry)) {
        provider_settled(provider, session->number, exec->n);
    }
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
    }
    if (found) {
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
        rc = save_end(exec, &info, NULL, &err);
        if (rc == 0 && !last) {
            settle(exec);
        }
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

/* Records the end, with its checkpoint where it ran, lets the queue go on where
 * the command was the current job, and only then tells everybody: who hears of
 * it may pause the session. */
static void end(struct exec *exec, struct exec_info *info,
                const struct checkpoint *made, bool current)
{
    struct session *session = exec->job.session;
    bool ran = made != NULL;
    bool kept = made && made->key;
    struct err err = ERR_INIT;
    bool saved;

    if (!info->ended_us) {
        info->ended_us = clock_wall_us();
    }
    session_touch(session);
    crash_point("exec-ended");
    saved = save_end(exec, info, kept ? made : NULL, &err) == 0;
    if (saved && kept) {
        checkpoint_made(session, made);
    } else if (kept) {
        checkpoint_unmake(session, made);
        checkpoint_doubt(session);
        info->checkpoint = 0;
    }
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
        session_stir_end(session);
    }
    if (current && ran && exec->background) {
        session_background_over(session);
    } else if (current) {
        session_job_over(session);
    }
    if (ran) {
        session_files_changed(session); /* Commands run no more. */
    }
    publish_end(exec, info);
    if (saved) {
        settle(exec);
        exec_save_late(session, false);
        exec_retire(session, exec->n);
    } else {
        keep_unsaved(exec);
    }
}

void exec_end_unrun(struct exec *exec, enum exec_status status,
                    const struct err *err, bool current)
{
    struct registry *registry = exec->job.session->registry;
    struct exec_info info;

    exec_info(exec, &info);
    info.status = status;
    info.err = *err;
    end(exec, &info, NULL, current);
    exec_unref(exec);
    registry_job_end(registry);
}

/* What the engine's answer means. */
static void read_result(const struct command_result *result,
                        struct exec_info *info)
{
    info->has_exit_code = true;
    info->ended_us = result->ended_us;
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
    case COMMAND_LEFT:
        break;
    }
    info->status = EXEC_LOST;
    info->has_exit_code = false;
    (void)err_set(&info->err, ESTALE,
                  "the engine cannot say how the command ended");
}

/* Whose limit it was, the command's or its session's, is one to whoever reads
 * it. */
static void tell_timeout(struct exec *exec, struct exec_info *info)
{
    struct err none = ERR_INIT;
    int64_t ms = 0;

    if (exec_timeout(exec, &ms, &none) == 0 && ms) {
        (void)err_set(&info->err, ETIMEDOUT,
                      "it was ended after its timeout of %" PRId64 " ms", ms);
    }
}

/* A checkpoint is due after each command, however it ended. */
static void checkpoint(struct exec *exec, struct exec_info *info,
                       struct checkpoint *made)
{
    const struct checkpoint_why why = {.cause = CHECKPOINT_EXEC,
                                       .exec = exec->n};
    struct session *session = exec->job.session;
    struct err err = ERR_INIT;

    if (registry_engines_closed(session->registry)) {
        return;
    }
    if (checkpoint_make(session, &why, made, &err) == 0) {
        info->checkpoint = made->key;
        info->before = made->before;
        info->changed = made->changed;
        return;
    }
    checkpoint_doubt(session); /* The next command takes what this one did. */
    if (info->status != EXEC_LOST) { /* There it has words already. */
        info->status = EXEC_FAILED;
        info->err = err;
    }
}

/* The next daemon goes on with it: its record stays as it is. */
static void part(struct exec *exec)
{
    struct session *session = exec->job.session;
    struct exec_info info;

    exec_info(exec, &info);
    info.status = EXEC_LOST;
    (void)err_set(&info.err, ESHUTDOWN, "the command runs on without us");
    if (exec->background) {
        session_background_over(session);
    } else {
        session_job_over(session);
    }
    publish_end(exec, &info);
}

static void conclude(struct exec *exec, bool current)
{
    struct checkpoint made = {.key = 0};
    struct exec_info info;

    exec_info(exec, &info);
    read_result(&exec->result, &info);
    if (info.status == EXEC_LOST) {
        session_doubt(exec->job.session);
    } else if (info.status == EXEC_TIMEOUT && !info.err.code) {
        tell_timeout(exec, &info);
    }
    checkpoint(exec, &info, &made);
    if (exec->job.session->registry->env.durable_power && !exec->log_err.code) {
        (void)!exec_log_sync(exec->log, &exec->log_err);
    }
    if (exec->log_err.code) {
        info.status = EXEC_FAILED;
        info.err = exec->log_err;
    }
    end(exec, &info, &made, current);
}

void exec_conclude(struct exec *exec, bool current)
{
    struct registry *registry = exec->job.session->registry;

    if (exec->result.end == COMMAND_LEFT) {
        part(exec);
    } else {
        conclude(exec, current);
    }
    exec_unref(exec);
    registry_job_end(registry);
}
