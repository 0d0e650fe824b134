/*
 * Commands that an earlier daemon has started and a provider has kept: those
 * that run are the current jobs of their sessions again, or run beside their
 * queues; of those that ended it may be the output that goes on. See
 * provider_each_kept().
 */
#include "core/array.h"
#include "core/clock.h"
#include "core/exec_priv.h"
#include "core/registry_priv.h"

#include <errno.h>
#include <stdlib.h>

enum {
    MS_US = 1000
};

/* What goes on, by session and number. */
struct adopted {
    struct registry *registry;
    struct provider *provider;
    struct exec_key *list;
    size_t count;
    size_t room;
};

static bool note(struct adopted *adopted, uint64_t number, uint64_t n)
{
    void *wide = array_grow(adopted->list, adopted->count, &adopted->room,
                            sizeof(*adopted->list));

    if (!wide) {
        return false;
    }
    adopted->list = wide;
    adopted->list[adopted->count++] = (struct exec_key){number, n};
    return true;
}

/* ---- One that has ended, but for its output ---- */

static void ignore_start(void *arg, int64_t pid)
{
    (void)arg;
    (void)pid;
}

static void ignore_end(void *arg, const struct command_result *result)
{
    (void)arg;
    (void)result;
}

static void add_output(void *arg, enum command_stream stream, const void *data,
                       size_t size)
{
    exec_sink.output(arg, stream, data, size);
}

static ssize_t take_output(void *arg, enum command_stream stream, int pipe,
                           size_t most)
{
    return exec_sink.take(arg, stream, pipe, most);
}

static void end_output(void *arg)
{
    exec_sink.closed(arg);
}

static const struct command_sink output_sink = {
    .started = ignore_start,
    .output = add_output,
    .exited = ignore_end,
    .closed = end_output,
    .take = take_output,
};

/* ---- Objects ---- */

/* The object of a command, with a reference, and its output open. */
static int make(struct session *session, const struct exec_info *info,
                bool ended, struct exec **out, struct err *err)
{
    struct exec *exec;
    int rc = exec_new(session, &exec, err);

    if (rc < 0) {
        return rc;
    }
    (void)session_ref(session);
    mutex_lock(&session->lock);
    exec_become(session, exec, info, ended);
    mutex_unlock(&session->lock);
    rc = exec_log_continue(exec->log, err);
    if (rc < 0) {
        exec_unref(exec);
        return rc;
    }
    *out = exec;
    return 0;
}

static void find_caller(struct session *session, struct exec *exec)
{
    const struct store_event started = {.name = "exec.started",
                                        .exec = exec->n};
    struct err ignored = ERR_INIT;

    exec->unasked =
        store_event_caller(session->registry->store, session->number, &started,
                           &exec->job.caller, &ignored) < 0;
}

/* Its job goes on where it was. */
static void take_place(struct session *session, struct exec *exec)
{
    (void)registry_job_begin(session->registry, true);
    mutex_lock(&session->lock);
    if (exec->background) {
        session->background++;
    } else {
        session->current = &exec->job;
        session->command_runs = true;
    }
    mutex_unlock(&session->lock);
}

/* Its time runs from its start, whoever ran then. */
static int find_deadline(struct exec *exec, const struct exec_info *info,
                         int64_t *out, struct err *err)
{
    int64_t now = clock_wall_us();
    /* The clock may have been set. */
    int64_t from = info->started_us < now ? info->started_us : now;
    int64_t ms = 0;
    int rc = exec_timeout(exec, &ms, err);

    *out = rc == 0 && ms > 0 ? from + ms * MS_US : 0;
    return rc;
}

/* What it was told by the one before it is told again. */
static int arm(struct exec *exec, const struct exec_info *info, struct err *err)
{
    int rc;

    mutex_lock(&exec->lock);
    rc = cancel_init(&exec->token, err);
    exec->has_token = rc == 0;
    exec->started = true;
    exec->cancelled = info->cancelled;
    if (exec->has_token && info->cancelled) {
        cancel_fire(&exec->token);
    }
    mutex_unlock(&exec->lock);
    return rc;
}

/* The job's reference is the object's first, the sink's the second. */
static int go_on(struct adopted *adopted, struct session *session,
                 const struct exec_info *info, struct err *err)
{
    static const struct command_result lost = {.end = COMMAND_LOST};
    struct adoption what = {.number = session->number, .n = info->n};
    struct exec *exec;
    int rc;

    if (!note(adopted, session->number, info->n)) {
        return err_no_memory(err);
    }
    rc = make(session, info, false, &exec, err);
    if (rc < 0) {
        adopted->count--;
        return rc;
    }
    find_caller(session, exec);
    take_place(session, exec);
    session_stir_begin(session);
    registry_sink_begin(session->registry);
    (void)exec_ref(exec);
    rc = arm(exec, info, err);
    if (rc == 0) {
        rc = find_deadline(exec, info, &what.deadline_us, err);
    }
    if (rc == 0) {
        what.cancel = &exec->token;
        rc = provider_adopt(adopted->provider, &what, &exec_sink, exec, err);
    }
    if (rc < 0) {
        exec_sink.exited(exec, &lost);
        exec_sink.closed(exec);
    }
    return rc;
}

/* What it has left behind writes on, to the output that there is. */
static int listen_on(const struct adopted *adopted, struct session *session,
                     const struct exec_info *info, struct err *err)
{
    const struct adoption what = {
        .number = session->number, .n = info->n, .over = true};
    struct exec *exec;
    int rc = make(session, info, true, &exec, err);

    if (rc < 0) {
        return rc;
    }
    exec->exited = true;
    registry_sink_begin(session->registry);
    rc = provider_adopt(adopted->provider, &what, &output_sink, exec, err);
    if (rc < 0) {
        output_sink.closed(exec);
    }
    return rc;
}

/* Nobody asks for it again: an init command is run anew, from the first. */
static bool is_wanted(struct session *session, const struct exec_info *info)
{
    enum session_status status;

    return !info->init && info->status != EXEC_QUEUED &&
           session_record_status(session, &status) &&
           status != SESSION_DELETING && status != SESSION_STARTING;
}

static int adopt(struct adopted *adopted, uint64_t number, uint64_t n,
                 struct err *err)
{
    struct session *session = NULL;
    struct exec_info info;
    int rc = registry_load(adopted->registry, number, &session, err);

    if (rc < 0) {
        return rc;
    }
    rc = store_exec_load(adopted->registry->store, number, n, &info, err);
    if (rc == 0 && !is_wanted(session, &info)) {
        rc = err_set(err, ESTALE, "nobody waits for it");
    }
    if (rc == 0) {
        rc = info.status == EXEC_RUNNING
                 ? go_on(adopted, session, &info, err)
                 : listen_on(adopted, session, &info, err);
    }
    session_unref(session);
    return rc;
}

static void adopt_one(void *arg, uint64_t number, uint64_t n)
{
    struct adopted *adopted = arg;
    const struct adoption what = {.number = number, .n = n};
    struct err err = ERR_INIT;

    if (adopt(adopted, number, n, &err) < 0) {
        err_clear(&err);
        (void)!provider_adopt(adopted->provider, &what, NULL, NULL, &err);
    }
}

static void adopt_all(void *arg, struct provider *provider)
{
    struct adopted *adopted = arg;

    adopted->provider = provider;
    provider_each_kept(provider, adopt_one, adopted);
}

int registry_adopt(struct registry *registry, struct err *err)
{
    struct adopted adopted = {.registry = registry};
    int rc;

    registry_each_open(registry, adopt_all, &adopted);
    rc = store_exec_lose_all(registry->store, adopted.list, adopted.count, err);
    free(adopted.list);
    return rc;
}
