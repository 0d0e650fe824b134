/* Commands: submitting, finding, reading, watching. See exec.h. */
#include "core/exec.h"

#include "core/buf.h"
#include "core/cleanup.h"
#include "core/exec_priv.h"
#include "core/registry_priv.h"

#include <stdio.h>

enum {
    LIST_BATCH = 256
};

const char *exec_status_name(enum exec_status status)
{
    static const char *const names[] = {
        [EXEC_QUEUED] = "queued",   [EXEC_RUNNING] = "running",
        [EXEC_EXITED] = "exited",   [EXEC_KILLED] = "killed",
        [EXEC_TIMEOUT] = "timeout", [EXEC_LOST] = "lost",
        [EXEC_FAILED] = "failed",
    };

    return names[status];
}

/* ---- Objects ---- */

static int new_log(struct session *session, struct exec_log **out,
                   struct err *err)
{
    AUTO_FREE char *dir = NULL;

    if (asprintf(&dir, "%s/execs", session->dir) < 0) {
        dir = NULL;
        return err_no_memory(err);
    }
    return exec_log_new(dir, 0, out, err);
}

int exec_new(struct session *session, struct exec **out, struct err *err)
{
    struct exec *exec = calloc(1, sizeof(*exec));
    int rc;

    if (!exec) {
        return err_no_memory(err);
    }
    rc = new_log(session, &exec->log, err);
    if (rc < 0) {
        free(exec);
        return rc;
    }
    mutex_init(&exec->lock);
    atomic_init(&exec->refs, 1);
    list_init(&exec->link);
    list_init(&exec->job.link);
    exec->job.kind = JOB_EXEC;
    exec->job.session = session;
    mutex_lock(&exec->lock);
    list_init(&exec->watches);
    mutex_unlock(&exec->lock);
    *out = exec;
    return 0;
}

void exec_discard(struct exec *exec)
{
    exec_log_free(exec->log);
    mutex_done(&exec->lock);
    free(exec);
}

void exec_become(struct session *session, struct exec *exec,
                 const struct exec_info *info, bool ended)
{
    exec->n = info->n;
    exec->background = info->background;
    exec_log_name(exec->log, info->n);
    mutex_lock(&exec->lock);
    exec->info = *info;
    exec->ended = ended;
    mutex_unlock(&exec->lock);
    list_add(&session->execs, &exec->link);
}

struct exec *exec_ref(struct exec *exec)
{
    (void)atomic_fetch_add(&exec->refs, 1);
    return exec;
}

void exec_unref(struct exec *exec)
{
    struct session *session;
    bool last;

    if (!exec) {
        return;
    }
    session = exec->job.session;
    mutex_lock(&session->lock);
    last = atomic_fetch_sub(&exec->refs, 1) == 1;
    if (last) {
        list_remove(&exec->link);
    }
    mutex_unlock(&session->lock);
    if (last && exec->due) {
        exec_retire_due(session, exec->n);
    }
    if (last) {
        exec_discard(exec);
        session_unref(session);
    }
}

/* ---- Finding ---- */

static struct exec *find_held(struct session *session, uint64_t n)
    REQUIRES(session->lock)
{
    list_each(node, &session->execs)
    {
        struct exec *exec = container_of(node, struct exec, link);

        if (exec->n == n) {
            return exec;
        }
    }
    return NULL;
}

bool exec_retire_held(struct session *session, uint64_t n)
{
    struct exec *exec = find_held(session, n);

    if (exec) {
        /* One that still runs is looked for after its end. */
        exec->due = exec_ended(exec);
    }
    return exec != NULL;
}

/* n 0: the newest. The session's reference for a new object is the caller's. */
static int find_locked(struct session *session, uint64_t n, bool *made,
                       struct exec **out, struct err *err)
    REQUIRES(session->lock)
{
    struct exec_info info;
    struct exec *exec;
    int rc = store_exec_load(session->registry->store, session->number, n,
                             &info, err);

    if (rc < 0) {
        return rc;
    }
    exec = find_held(session, info.n);
    if (exec) {
        *out = exec_ref(exec);
        return 0;
    }
    rc = exec_new(session, &exec, err);
    if (rc == 0) {
        /* What has not ended is held. */
        exec_become(session, exec, &info, true);
        *made = true;
        *out = exec;
    }
    return rc;
}

static int find(struct session *session, uint64_t n, struct exec **out,
                struct err *err)
{
    bool made = false;
    int rc;

    exec_save_late(session, false);
    (void)session_ref(session);
    mutex_lock(&session->lock);
    rc = find_locked(session, n, &made, out, err);
    mutex_unlock(&session->lock);
    if (!made) {
        session_unref(session);
    }
    return rc;
}

int session_exec_last(struct session *session, struct exec **out,
                      struct err *err)
{
    return find(session, 0, out, err);
}

int session_exec_find(struct session *session, uint64_t n, struct exec **out,
                      struct err *err)
{
    return n ? find(session, n, out, err)
             : err_set(err, ENOENT, "no such command");
}

int session_exec_each(struct session *session, uint64_t after,
                      bool (*fn)(void *arg, uint64_t n), void *arg,
                      struct err *err)
{
    uint64_t batch[LIST_BATCH];
    ssize_t count = LIST_BATCH;

    if (after == 0) {
        exec_retire_left(session);
    }
    while (count == LIST_BATCH) {
        count = store_exec_list(session->registry->store, session->number,
                                after, batch, LIST_BATCH, err);
        for (ssize_t i = 0; i < count; i++) {
            if (!fn(arg, batch[i])) {
                return 0;
            }
            after = batch[i];
        }
    }
    return count < 0 ? (int)count : 0;
}

/* ---- What is known of one ---- */

uint64_t exec_number(const struct exec *exec)
{
    return exec->n;
}

void exec_info(struct exec *exec, struct exec_info *out)
{
    mutex_lock(&exec->lock);
    *out = exec->info;
    mutex_unlock(&exec->lock);
}

bool exec_ended(struct exec *exec)
{
    bool ended;

    mutex_lock(&exec->lock);
    ended = exec->ended;
    mutex_unlock(&exec->lock);
    return ended;
}

bool exec_answered(struct exec *exec)
{
    bool answered;

    mutex_lock(&exec->lock);
    answered = exec->ended || (exec->background && exec->started);
    mutex_unlock(&exec->lock);
    return answered;
}

int exec_command(struct exec *exec, struct buf *out, struct err *err)
{
    const struct session *session = exec->job.session;

    return store_exec_text(session->registry->store, session->number, exec->n,
                           out, err);
}

uint64_t exec_size(struct exec *exec, enum exec_view view)
{
    return exec_log_size(exec->log, view);
}

ssize_t exec_read(struct exec *exec, enum exec_view view, uint64_t offset,
                  void *out, size_t size, struct err *err)
{
    return exec_log_read(exec->log, view, offset, out, size, err);
}

/* ---- Watching ---- */

static bool is_due(struct exec *exec, const struct exec_watch *watch)
    REQUIRES(exec->lock)
{
    if (exec->ended) {
        return true;
    }
    switch (watch->event) {
    case EXEC_ANSWER:
        return exec->background && exec->started;
    case EXEC_MORE:
        return exec_size(exec, watch->view) > watch->offset;
    case EXEC_END:
        break;
    }
    return false;
}

static bool add_watch(struct exec *exec, struct exec_watch *watch)
{
    bool due;

    mutex_lock(&exec->lock);
    due = is_due(exec, watch);
    if (due) {
        list_init(&watch->link);
    } else {
        list_add(&exec->watches, &watch->link);
    }
    mutex_unlock(&exec->lock);
    return !due;
}

bool exec_watch_end(struct exec *exec, struct exec_watch *watch)
{
    watch->event = EXEC_END;
    return add_watch(exec, watch);
}

bool exec_watch_answer(struct exec *exec, struct exec_watch *watch)
{
    watch->event = EXEC_ANSWER;
    return add_watch(exec, watch);
}

bool exec_watch_output(struct exec *exec, struct exec_watch *watch,
                       enum exec_view view, uint64_t offset)
{
    watch->event = EXEC_MORE;
    watch->view = view;
    watch->offset = offset;
    return add_watch(exec, watch);
}

bool exec_unwatch(struct exec *exec, struct exec_watch *watch)
{
    bool on;

    mutex_lock(&exec->lock);
    on = !list_empty(&watch->link);
    list_remove(&watch->link);
    mutex_unlock(&exec->lock);
    return on;
}

static struct exec_watch *take_due(struct exec *exec) REQUIRES(exec->lock)
{
    list_each(node, &exec->watches)
    {
        struct exec_watch *watch = container_of(node, struct exec_watch, link);

        if (is_due(exec, watch)) {
            list_remove(&watch->link);
            return watch;
        }
    }
    return NULL;
}

void exec_wake(struct exec *exec)
{
    struct exec_watch *watch;

    do {
        mutex_lock(&exec->lock);
        watch = take_due(exec);
        mutex_unlock(&exec->lock);
        if (watch) {
            watch->wake(watch);
        }
    } while (watch);
}

/* ---- Cancelling ---- */

/* Returns whether what runs is asked for its end for the first time. */
static bool mark(struct exec *exec, bool fire)
{
    bool first = false;

    mutex_lock(&exec->lock);
    exec->cancelled = true;
    if (fire && exec->has_token) {
        first = !exec->info.cancelled;
        exec->info.cancelled = true;
        cancel_fire(&exec->token);
    }
    mutex_unlock(&exec->lock);
    return first;
}

void exec_cancel(struct exec *exec)
{
    const struct session *session = exec->job.session;
    struct err none = ERR_INIT;

    if (mark(exec, true)) {
        /* Should we die before it has ended, the next daemon ends it. */
        (void)!store_exec_cancel(session->registry->store, session->number,
                                 exec->n, &none);
        err_clear(&none);
    }
    if (session_unqueue(exec->job.session, &exec->job)) {
        exec_end_unrun(exec, EXEC_KILLED, &none, false);
    }
}

/* Init commands are run anew, from the first. */
static bool leave_it(struct exec *exec)
{
    struct session *session = exec->job.session;
    struct provider *provider;
    struct err ignored = ERR_INIT;

    mutex_lock(&session->lock);
    provider = session->provider;
    mutex_unlock(&session->lock);
    if (!provider || exec->init) {
        return false;
    }
    (void)mark(exec, false);
    return provider_leave(provider, session->number, exec->n, &ignored) == 0;
}

/* The first command that was not told to end yet, with a reference; of those
 * that have not begun, or of all. */
static struct exec *next_uncancelled(struct session *session, bool queued)
{
    struct exec *found = NULL;

    mutex_lock(&session->lock);
    list_each(node, &session->execs)
    {
        struct exec *exec = container_of(node, struct exec, link);
        bool wanted;

        mutex_lock(&exec->lock);
        wanted = !exec->ended && !exec->cancelled &&
                 (!queued || exec->info.status == EXEC_QUEUED);
        mutex_unlock(&exec->lock);
        if (wanted && !found) {
            found = exec_ref(exec);
        }
    }
    mutex_unlock(&session->lock);
    return found;
}

static void cancel_each(struct session *session, bool queued, bool leave)
{
    struct exec *exec = next_uncancelled(session, queued);

    while (exec) {
        if (!leave || !leave_it(exec)) {
            exec_cancel(exec);
        }
        exec_unref(exec);
        exec = next_uncancelled(session, queued);
    }
}

void session_cancel_all(struct session *session)
{
    cancel_each(session, false, false);
}

void session_leave_all(struct session *session)
{
    /* First those that the end of others would let begin. */
    cancel_each(session, true, false);
    cancel_each(session, false, true);
}
