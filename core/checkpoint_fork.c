/* Sessions that start from another one's checkpoint. See checkpoint.h. */
#include "core/checkpoint_priv.h"
#include "core/clock.h"
#include "core/crash.h"
#include "core/json.h"
#include "core/registry_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A fork that somebody waits for. */
struct forking {
    struct registry *registry;
    uint64_t number; /* Of the new session. */
    done_fn *done;
    void *arg;
};

/* ---- Undoing ---- */

static void swept(void *arg, int rc, const struct err *err)
{
    struct session *session = arg;
    struct registry *registry = session->registry;
    struct err why = ERR_INIT;

    (void)err;
    if (rc == 0) {
        mutex_lock(&session->lock);
        session->gone = true;
        mutex_unlock(&session->lock);
        if (store_session_remove(registry->store, session->number, &why) == 0) {
            registry_trash(registry, session->number);
        }
    }
    session_unref(session);
}

/* Its id is free again; what is left of it goes, now or after a restart. */
static void sweep(struct registry *registry, uint64_t number)
{
    struct job job = {.kind = JOB_DESTROY, .internal = true, .done = swept};
    struct session *session = NULL;
    struct err ignored = ERR_INIT;

    (void)!store_fork_abandon(registry->store, number, &ignored);
    if (registry_load(registry, number, &session, &ignored) == 0) {
        job.arg = session_ref(session);
        session_submit(session, &job);
        session_unref(session);
    }
}

int checkpoint_sweep(struct registry *registry, struct err *err)
{
    uint64_t number = 0;
    int rc = store_fork_next(registry->store, 0, &number, err);

    while (rc > 0) {
        sweep(registry, number);
        rc = store_fork_next(registry->store, number, &number, err);
    }
    return rc;
}

/* ---- Making ---- */

/* Records what is about to be made. */
static int put_intent(struct session *child, const struct store_state *parent,
                      struct err *err)
{
    struct store_state state = {
        .status = SESSION_STARTING,
        .provider = strdup(parent->provider),
        .generation = 1,
        .created_us = clock_wall_us(),
    };
    int rc = state.provider ? session_make_dir(child, err) : err_no_memory(err);

    if (rc == 0) {
        rc = session_record_put(child, &state, NULL, err);
    }
    store_state_done(&state);
    return rc;
}

/* Calls the provider of both, and records the new one. */
static int make(struct session_call *from, struct session *child, uint64_t key,
                struct err *err)
{
    struct limits limits = session_limits(child, SESSION_WAIT_CREATE);
    struct session_call to;
    int rc = put_intent(child, &from->state, err);

    crash_point("fork-intent");
    if (rc == 0) {
        rc = session_call_init(child, &to, err);
    }
    if (rc < 0) {
        return rc;
    }
    rc = provider_snapshot_fork(from->provider, &from->sandbox, key,
                                &to.sandbox, &limits, err);
    crash_point("fork-made");
    if (rc == 0) {
        to.state.status = SESSION_PAUSED;
        to.state.init_completed_us = from->state.init_completed_us;
        rc = session_record_put(child, &to.state, NULL, err);
    }
    session_call_done(&to);
    return rc;
}

/* The new one starts with a checkpoint of its own, to come back to. */
static int keep_start(struct session *child, const struct caller *caller,
                      struct err *err)
{
    const struct checkpoint_why why = {.cause = CHECKPOINT_FORK,
                                       .caller = caller};
    struct checkpoint made;
    int rc = session_need_provider(child, err);

    return rc < 0 ? rc : checkpoint_add(child, &why, &made, err);
}

static int show(struct session *session, struct session *child,
                const struct checkpoint *from, const struct caller *caller,
                struct err *err)
{
    struct js *detail = js_object();
    const struct store_event event = {
        .name = "session.created", .caller = caller, .detail = detail};
    char id[SESSION_ID_SIZE];
    char label[CHECKPOINT_LABEL_SIZE];
    int rc;

    session_id(session, id);
    js_set_text(detail, "forked_from", id);
    if (from) {
        checkpoint_label(from, label);
        js_set_text(detail, "checkpoint", label);
    }
    rc = store_fork_end(session->registry->store, child->number, &event, err);
    js_free(detail);
    return rc;
}

/* What a fork of the present starts from. */
static int take_present(struct session *session, const struct caller *caller,
                        struct checkpoint *out, struct err *err)
{
    const struct checkpoint_why why = {.cause = CHECKPOINT_FORK,
                                       .caller = caller};

    int rc = checkpoint_add(session, &why, out, err);

    return rc == 0 && !out->key
               ? err_set(err, EOPNOTSUPP, "the sandbox keeps no checkpoints")
               : rc;
}

static int find_start(struct session *session, const struct job *job,
                      struct checkpoint *out, struct err *err)
{
    int rc = session_need_engine(session, err);

    if (rc == 0 && !session->provider->ops->snapshots) {
        rc = err_set(err, EOPNOTSUPP, "%s cannot fork",
                     session->provider->ops->name);
    }
    if (rc == 0) {
        rc = checkpoint_settle(session, err);
    }
    if (rc == 0) {
        rc = job->key
                 ? store_checkpoint_get(session->registry->store,
                                        session->number, job->key, out, err)
                 : take_present(session, &job->caller, out, err);
    }
    return rc;
}

static int fork_files(struct session *session, struct session *child,
                      const struct checkpoint *start,
                      const struct caller *caller, struct err *err)
{
    struct session_call from;
    int rc = session_call_init(session, &from, err);

    if (rc < 0) {
        return rc;
    }
    rc = make(&from, child, start->key, err);
    session_call_done(&from);
    return rc < 0 ? rc : keep_start(child, caller, err);
}

int checkpoint_run_fork(struct session *session, const struct job *job,
                        struct err *err)
{
    const struct forking *forking = job->arg;
    struct session *child = NULL;
    struct checkpoint start = {.key = 0};
    enum session_status status;
    bool has = session_record_status(session, &status);
    int rc = has ? find_start(session, job, &start, err) : 0;

    if (rc == 0) {
        rc = registry_load(session->registry, forking->number, &child, err);
    }
    if (rc == 0 && has) {
        rc = fork_files(session, child, &start, &job->caller, err);
    }
    if (rc == 0) {
        crash_point("fork-whole");
        rc = show(session, child, has ? &start : NULL, &job->caller, err);
    }
    if (rc < 0) {
        session_life_failed(session, "fork", &job->caller, err);
    }
    session_unref(child);
    return rc;
}

/* ---- Asking ---- */

static void forked(void *arg, int rc, const struct err *err)
{
    struct forking *forking = arg;

    if (rc < 0) {
        sweep(forking->registry, forking->number);
    }
    forking->done(forking->arg, rc, err);
    free(forking);
}

/* Reserves the id, with a copy of the config. */
static int reserve(struct session *session, const char *id, uint64_t *number,
                   struct err *err)
{
    struct store *store = session->registry->store;
    struct store_session row;
    int rc = registry_check_id(id, err);

    if (rc == 0) {
        rc = store_session_get(store, session->number, &row, err);
    }
    if (rc == 0) {
        rc = store_fork_begin(store, id, row.config, number, err);
        store_session_done(&row);
    }
    return rc;
}

static int prepare(struct session *session, const char *id, const char *name,
                   struct job *job, struct err *err)
{
    struct checkpoint start = {.key = 0};
    struct forking *forking = NULL;
    uint64_t number = 0;
    int rc;

    mutex_lock(&session->lock);
    rc = session_usable_locked(session, err);
    mutex_unlock(&session->lock);
    if (rc == 0 && name) {
        rc = checkpoint_find(session, name, &start, err);
    }
    err->notable = rc < 0; /* Not that of the file that was written. */
    if (rc == 0) {
        rc = reserve(session, id, &number, err);
    }
    if (rc < 0) {
        return rc;
    }
    forking = malloc(sizeof(*forking));
    if (!forking) {
        sweep(session->registry, number);
        return err_no_memory(err);
    }
    *forking = (struct forking){session->registry, number, job->done, job->arg};
    job->key = start.key;
    job->done = forked;
    job->arg = forking;
    return 0;
}

void checkpoint_fork(struct session *session, const char *id, const char *name,
                     const struct caller *caller, done_fn *done, void *arg)
{
    struct job job = {
        .kind = JOB_FORK, .caller = *caller, .done = done, .arg = arg};
    struct err err = ERR_INIT;
    int rc = prepare(session, id, name, &job, &err);

    if (rc < 0) {
        done(arg, rc, &err);
        return;
    }
    crash_point("fork-reserved");
    session_submit(session, &job);
}
