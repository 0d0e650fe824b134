/* A session's queue: one job at a time, in arrival order. See session.h. */
#include "core/checkpoint_priv.h"
#include "core/cleanup.h"
#include "core/exec_priv.h"
#include "core/registry_priv.h"
#include "core/session_priv.h"

#include <inttypes.h>
#include <stdlib.h>

static struct exec *exec_of(struct job *job)
{
    return container_of(job, struct exec, job);
}

static void tell(const struct job *job, int rc, const struct err *err)
{
    if (job->done) {
        job->done(job->arg, rc, err);
    }
}

/* Answers and frees a job that is no command. */
static void answer(struct job *job, int rc, const struct err *err)
{
    struct session *session = job->session;

    tell(job, rc, err);
    free(job);
    registry_job_end(session->registry);
    session_unref(session);
}

/* Ensures, and answers those who asked for the same meanwhile. */
static int ensure_phase(struct session *session, const struct job *job,
                        struct err *err)
{
    struct list joined;
    struct list *node;
    int rc;

    rc = session_life_ensure(session, job->replace, &job->caller, err);
    /* Its ENOENT is not that of the file which was asked for. */
    err->notable = rc < 0;
    list_init(&joined);
    mutex_lock(&session->lock);
    session->ensuring = false;
    session->command_runs = job->kind == JOB_EXEC && rc == 0;
    node = list_pop(&session->joined);
    while (node) {
        list_add(&joined, node);
        node = list_pop(&session->joined);
    }
    mutex_unlock(&session->lock);
    session_note(session);
    node = list_pop(&joined);
    while (node) {
        answer(container_of(node, struct job, link), rc, err);
        node = list_pop(&joined);
    }
    return rc;
}

int session_ensure_for_exec(struct session *session, struct err *err)
{
    const struct job *job;

    mutex_lock(&session->lock);
    job = session->current;
    mutex_unlock(&session->lock);
    return ensure_phase(session, job, err);
}

/* A retried deletion must not hit a sandbox that was made since. */
static bool still_deleting(struct session *session)
{
    bool deleting;

    mutex_lock(&session->lock);
    deleting =
        session->has_record && (session->record.status == SESSION_DELETING ||
                                session->record.status == SESSION_STARTING);
    mutex_unlock(&session->lock);
    return deleting;
}

static int run_checkpoint(struct session *session, const struct job *job,
                          struct err *err)
{
    if (!job->name[0]) {
        checkpoint_gather(session);
        return 0;
    }
    return checkpoint_run_named(session, job, err);
}

static int run_life(struct session *session, const struct job *job,
                    struct err *err)
{
    /* What core asks for by itself nobody has asked for. */
    const struct caller *caller =
        job->internal || job->idle ? NULL : &job->caller;

    switch (job->kind) {
    case JOB_ENSURE:
        return job->joins ? 0 : ensure_phase(session, job, err);
    case JOB_PAUSE:
        return job->idle ? session_life_pause_idle(session, err)
                         : session_life_pause(session, caller, job->cause, err);
    case JOB_DESTROY:
        if (job->retry && !still_deleting(session)) {
            return 0;
        }
        return session_life_destroy(session, caller, err);
    case JOB_CHECKPOINT:
        return run_checkpoint(session, job, err);
    case JOB_DROP:
        return checkpoint_run_drop(session, job, err);
    case JOB_RESTORE:
        return checkpoint_run_restore(session, job, err);
    case JOB_FORK:
        return checkpoint_run_fork(session, job, err);
    case JOB_EXEC:
        break;
    }
    abort();
}

static void run_job(void *arg)
{
    struct job *job = arg;
    struct session *session = job->session;
    struct err err = ERR_INIT;
    int rc;

    if (job->kind == JOB_EXEC) {
        exec_run(exec_of(job));
        return;
    }
    rc = run_life(session, job, &err);
    session_job_over(session);
    answer(job, rc, &err);
}

static bool stops(const struct job *job)
{
    return job->kind == JOB_PAUSE || job->kind == JOB_DESTROY ||
           job->kind == JOB_RESTORE;
}

/* What would find files half written while a command runs. */
static bool looks(const struct job *job)
{
    return job->kind == JOB_CHECKPOINT || (job->kind == JOB_FORK && !job->key);
}

/* Before the first command: whoever opens `exec` while commands wait must not
 * wait for their ends. */
static struct list *place_of(struct session *session, const struct job *job)
    REQUIRES(session->lock)
{
    if (job->kind == JOB_ENSURE) {
        list_each(node, &session->queue)
        {
            if (container_of(node, struct job, link)->kind == JOB_EXEC) {
                return node;
            }
        }
    }
    return &session->queue;
}

/* Of core's own: means nothing to a sandbox that is being deleted. */
static bool is_upkeep(const struct job *job)
{
    return job->idle || (job->kind == JOB_CHECKPOINT && !job->name[0]);
}

static bool ensures(const struct job *job)
{
    return job->kind == JOB_EXEC || (job->kind == JOB_ENSURE && !job->joins);
}

bool session_begins_locked(struct session *session)
{
    const struct store_state *record = &session->record;
    bool made = session->has_record && (record->status == SESSION_RUNNING ||
                                        record->status == SESSION_PAUSED);

    if (made && (record->init_completed_us || !session->config.init_count)) {
        return false;
    }
    if (session->ensuring) {
        return true;
    }
    list_each(node, &session->queue)
    {
        if (ensures(container_of(node, struct job, link))) {
            return true;
        }
    }
    return false;
}

/* What stops the sandbox waits for the commands beside the queue: such a job
 * is core's own, or it had been refused. */
static struct job *take_next(struct session *session) REQUIRES(session->lock)
{
    struct job *job = container_of(session->queue.next, struct job, link);

    if (session->current || list_empty(&session->queue) ||
        (session->background && stops(job))) {
        return NULL;
    }
    list_remove(&job->link);
    session->current = job;
    /* Whoever asks for the same from now on must not wait for its end. */
    session->ensuring = ensures(job);
    session->ensuring_replace = job->replace;
    return job;
}

/* The current job is over. Those who joined one that has not ensured ask
 * again. */
static void leave_current(struct session *session) REQUIRES(session->lock)
{
    struct list *node = list_pop(&session->joined);

    session->current = NULL;
    session->command_runs = false;
    session->ensuring = false;
    while (node) {
        list_add(place_of(session, container_of(node, struct job, link)), node);
        node = list_pop(&session->joined);
    }
}

/* No thread can be had: the job ends without having begun. */
static void refuse(struct session *session, struct job *job, int rc)
{
    struct err err = ERR_INIT;

    (void)err_set(&err, -rc, "no thread for the work of the session");
    mutex_lock(&session->lock);
    leave_current(session);
    mutex_unlock(&session->lock);
    if (job->kind == JOB_EXEC) {
        exec_end_unrun(exec_of(job), EXEC_FAILED, &err, false);
    } else {
        answer(job, rc, &err);
    }
}

void session_pump(struct session *session)
{
    struct job *job;
    int rc = -1;

    while (rc < 0) {
        mutex_lock(&session->lock);
        job = take_next(session);
        mutex_unlock(&session->lock);
        if (!job) {
            return;
        }
        rc = session_run(session, session->life, run_job, job);
        if (rc < 0) {
            refuse(session, job, rc);
        }
    }
}

void session_job_over(struct session *session)
{
    mutex_lock(&session->lock);
    leave_current(session);
    mutex_unlock(&session->lock);
    session_pump(session);
}

void session_background_begin(struct session *session)
{
    mutex_lock(&session->lock);
    session->background++;
    mutex_unlock(&session->lock);
}

void session_background_over(struct session *session)
{
    mutex_lock(&session->lock);
    session->background--;
    mutex_unlock(&session->lock);
    session_pump(session);
}

static bool has_commands(struct session *session) REQUIRES(session->lock)
{
    if (session->background || session->initing ||
        (session->current && session->current->kind == JOB_EXEC)) {
        return true;
    }
    list_each(node, &session->queue)
    {
        if (container_of(node, struct job, link)->kind == JOB_EXEC) {
            return true;
        }
    }
    return false;
}

/* The oldest command of that status, or 0. */
static uint64_t oldest(struct session *session, enum exec_status status)
    REQUIRES(session->lock)
{
    uint64_t n = 0;

    list_each(node, &session->execs)
    {
        struct exec *exec = container_of(node, struct exec, link);
        struct exec_info info;

        exec_info(exec, &info);
        if (info.status == status && !exec_ended(exec) && (!n || info.n < n)) {
            n = info.n;
        }
    }
    return n;
}

static int refuse_stop(struct session *session, struct err *err)
    REQUIRES(session->lock)
{
    uint64_t runs = oldest(session, EXEC_RUNNING);
    uint64_t waits = runs ? 0 : oldest(session, EXEC_QUEUED);

    if (runs) {
        return err_set(err, EBUSY,
                       "command %" PRIu64 " runs; echo KILL > execs/%" PRIu64
                       "/signal ends it",
                       runs, runs);
    }
    return waits ? err_set(err, EBUSY, "command %" PRIu64 " is about to run",
                           waits)
                 : err_set(err, EBUSY, "a command begins or ends");
}

bool session_idle_locked(struct session *session)
{
    return !session->current && list_empty(&session->queue) &&
           !session->background && !session->files_inside;
}

static bool is_deleted(struct session *session) REQUIRES(session->lock)
{
    const struct job *last = session->current;

    if (!list_empty(&session->queue)) {
        last = container_of(session->queue.prev, struct job, link);
    }
    return !session->has_record || (last && last->kind == JOB_DESTROY);
}

int session_enqueue_locked(struct session *session, struct job *job,
                           struct err *err)
{
    /* What ends a sandbox needs no config. */
    const bool ends = job->kind == JOB_PAUSE || job->kind == JOB_DESTROY;
    int rc = ends && !session->gone ? 0 : session_usable_locked(session, err);

    if (rc < 0) {
        return rc;
    }
    if (is_upkeep(job) && is_deleted(session)) {
        return err_set(err, ENOENT, "the sandbox is being deleted");
    }
    if (job->joins && !session_begins_locked(session)) {
        return err_set(err, EALREADY, "nothing is being started");
    }
    if ((stops(job) || looks(job)) && !job->internal && has_commands(session)) {
        return refuse_stop(session, err);
    }
    if (job->kind == JOB_ENSURE && session->ensuring &&
        (!job->replace || session->ensuring_replace)) {
        list_add(&session->joined, &job->link);
    } else {
        list_add(place_of(session, job), &job->link);
    }
    return 0;
}

static bool stop_queued(struct session *session) REQUIRES(session->lock)
{
    list_each(node, &session->queue)
    {
        if (stops(container_of(node, struct job, link))) {
            return true;
        }
    }
    return false;
}

int session_init_begin(struct session *session, struct err *err)
{
    int rc = 0;

    mutex_lock(&session->lock);
    if (stop_queued(session)) {
        rc = err_set(err, EBUSY,
                     "the sandbox is to be paused or deleted; its init "
                     "commands were not run");
    } else {
        session->initing = true;
    }
    mutex_unlock(&session->lock);
    session_note(session);
    return rc;
}

void session_init_over(struct session *session)
{
    mutex_lock(&session->lock);
    session->initing = false;
    mutex_unlock(&session->lock);
    session_note(session);
}

static int enqueue(struct session *session, struct job *job, struct err *err)
    EXCLUDES(session->lock)
{
    int rc;

    if (!registry_job_begin(session->registry, job->internal)) {
        return err_set(err, ESHUTDOWN, "the filesystem is being unmounted");
    }
    mutex_lock(&session->lock);
    rc = session_enqueue_locked(session, job, err);
    mutex_unlock(&session->lock);
    if (rc < 0) {
        registry_job_end(session->registry);
    }
    return rc;
}

bool session_unqueue(struct session *session, struct job *job)
{
    bool queued;

    mutex_lock(&session->lock);
    queued = session->current != job && !list_empty(&job->link);
    if (queued) {
        list_remove(&job->link);
    }
    mutex_unlock(&session->lock);
    return queued;
}

/* ---- Beside the queue ---- */

/* What a running command need not end for: it is about a checkpoint alone. It
 * runs in the life thread, so never while another call of such kind does. */
static bool is_beside(const struct job *job)
{
    return (job->kind == JOB_FORK || job->kind == JOB_DROP) && job->key;
}

static void run_beside(void *arg)
{
    struct job *job = arg;
    struct err err = ERR_INIT;
    int rc = run_life(job->session, job, &err);

    answer(job, rc, &err);
}

static int start_beside(struct session *session, struct job *job,
                        struct err *err)
{
    int rc;

    if (!registry_job_begin(session->registry, job->internal)) {
        return err_set(err, ESHUTDOWN, "the filesystem is being unmounted");
    }
    rc = session_run(session, session->life, run_beside, job);
    if (rc < 0) {
        registry_job_end(session->registry);
        return err_set(err, -rc, "no thread for the work of the session");
    }
    return 0;
}

void session_submit(struct session *session, const struct job *model)
{
    struct err err = ERR_INIT;
    struct job *job = malloc(sizeof(*job));
    int rc;

    if (!job) {
        rc = err_no_memory(&err);
        tell(model, rc, &err);
        return;
    }
    *job = *model;
    list_init(&job->link);
    job->session = session_ref(session);
    rc = is_beside(job) ? start_beside(session, job, &err)
                        : enqueue(session, job, &err);
    if (rc < 0) {
        free(job);
        session_unref(session);
        tell(model, rc, &err);
        return;
    }
    session_pump(session);
}

void session_ensure(struct session *session, bool replace,
                    const struct caller *caller, done_fn *done, void *arg)
{
    struct job job = {
        .kind = JOB_ENSURE,
        .caller = *caller,
        .replace = replace,
        .done = done,
        .arg = arg,
    };
    struct err err = ERR_INIT;
    bool runs;

    mutex_lock(&session->lock);
    runs = session->command_runs;
    mutex_unlock(&session->lock);
    if (runs) {
        done(arg, 0, &err);
    } else {
        session_submit(session, &job);
    }
}

void session_await_start(struct session *session, const struct caller *caller,
                         done_fn *done, void *arg)
{
    const struct job job = {
        .kind = JOB_ENSURE,
        .caller = *caller,
        .joins = true,
        .done = done,
        .arg = arg,
    };

    session_submit(session, &job);
}

void session_pause(struct session *session, const struct caller *caller,
                   done_fn *done, void *arg)
{
    struct job job = {
        .kind = JOB_PAUSE, .caller = *caller, .done = done, .arg = arg};

    session_submit(session, &job);
}

void session_destroy(struct session *session, const struct caller *caller,
                     done_fn *done, void *arg)
{
    struct job job = {
        .kind = JOB_DESTROY, .caller = *caller, .done = done, .arg = arg};

    session_submit(session, &job);
}
