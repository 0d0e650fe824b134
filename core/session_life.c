/*
 * What happens to a sandbox. Runs in the life thread of its session, one step
 * at a time; each step is recorded before and after the engine is called, so
 * that a start after a crash knows what may be there.
 */
#include "core/checkpoint_priv.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/crash.h"
#include "core/json.h"
#include "core/registry_priv.h"
#include "core/session_priv.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* Whether a state is about another instance than the record. */
static bool replaces(struct session *session, const struct store_state *state)
{
    const struct store_state *record = &session->record;
    bool other;

    mutex_lock(&session->lock);
    other =
        session->has_record && record->instance.external_id &&
        !same_text(record->instance.external_id, state->instance.external_id);
    mutex_unlock(&session->lock);
    return other;
}

static int put_event(struct session *session, struct store_state *state,
                     const struct life_event *what, struct err *err)
{
    struct js *detail = js_object();
    const struct store_event event = {
        .name = what->name, .caller = what->caller, .detail = detail};
    int rc;

    js_set_int(detail, "generation", (int64_t)state->generation);
    if (state->instance.external_id) {
        js_set_text(detail, "external_id", state->instance.external_id);
    }
    if (what->cause) {
        js_set_text(detail, "cause", what->cause);
    }
    if (what->replaced) {
        js_set_bool(detail, "replaced", true);
    }
    if (what->checkpoint) {
        char label[CHECKPOINT_LABEL_SIZE];

        checkpoint_label(what->checkpoint, label);
        js_set_text(detail, "checkpoint", label);
    }
    if (what->processes_lost) {
        js_set_text(detail, "processes", "lost");
    }
    rc = session_record_put(session, state, &event, err);
    js_free(detail);
    return rc;
}

int session_life_put(struct session *session, struct store_state *state,
                     const struct life_event *what, struct err *err)
{
    struct life_event event = *what;
    int rc;

    if (!replaces(session, state)) {
        return what->name ? put_event(session, state, what, err)
                          : session_record_put(session, state, NULL, err);
    }
    state->generation++;
    event.replaced = true;
    if (!event.name) {
        event.name = "sandbox.replaced";
    }
    rc = put_event(session, state, &event, err);
    session_files_drop(session);
    session_changed(session);
    return rc;
}

/* The same for an event without a cause. */
static int put(struct session *session, struct store_state *state,
               const char *name, const struct caller *caller, struct err *err)
{
    const struct life_event what = {.name = name, .caller = caller};

    return session_life_put(session, state, &what, err);
}

void session_life_failed(struct session *session, const char *operation,
                         const struct caller *caller, const struct err *why)
{
    struct js *detail = js_object();
    const char *name = strerrorname_np(why->code);

    js_set_text(detail, "operation", operation);
    js_set_text(detail, "errno", name ? name : "EIO");
    js_set_text(detail, "message", why->msg);
    session_event(session, "sandbox.failed", 0, caller, detail);
}

/* Somebody else wrote the record while we made a sandbox: ours goes, unless
 * theirs is the same. */
static void disown(struct session *session, struct session_call *call)
{
    struct limits limits = session_limits(session, SESSION_WAIT_CALL);
    struct err ignored = ERR_INIT;

    if (replaces(session, &call->state)) {
        (void)!provider_destroy(session->provider, &call->sandbox, &limits,
                                &ignored);
    }
}

int session_life_change(struct session *session,
                        const struct life_change *change,
                        const struct life_event *event, struct err *err)
{
    struct limits limits = session_limits(session, change->wait);
    struct session_call call;
    int rc = session_call_init(session, &call, err);

    if (rc < 0) {
        return rc;
    }
    rc = change->call(session->provider, &call.sandbox, &limits, err);
    crash_point(change->point);
    if (rc == 0) {
        call.state.status = change->status;
        if (!session->config.init_count && !call.state.init_completed_us) {
            call.state.init_completed_us = clock_wall_us();
        }
        rc = session_life_put(session, &call.state, event, err);
        if (rc == -ESTALE && change->call == provider_create) {
            disown(session, &call);
        }
    }
    session_call_done(&call);
    return rc;
}

bool session_record_status(struct session *session, enum session_status *out)
{
    bool has;

    mutex_lock(&session->lock);
    has = session->has_record;
    *out = has ? session->record.status : SESSION_ABSENT;
    mutex_unlock(&session->lock);
    return has;
}

int session_need_engine(struct session *session, struct err *err)
{
    return registry_engines_closed(session->registry)
               ? err_set(err, ESHUTDOWN, "the filesystem is being unmounted")
               : session_need_provider(session, err);
}

/* ---- Deleting ---- */

static int call_destroy(struct session *session, struct err *err)
{
    struct limits limits = session_limits(session, SESSION_WAIT_CALL);
    struct session_call call;
    int rc = session_call_init(session, &call, err);

    if (rc == 0) {
        rc = provider_destroy(session->provider, &call.sandbox, &limits, err);
        session_call_done(&call);
    }
    return rc;
}

/* Records why a deletion is not confirmed, and tries again later. */
static void destroy_later(struct session *session, const struct caller *caller,
                          const struct err *why)
{
    struct err err = ERR_INIT;
    struct store_state state;

    if (session_record_copy(session, &state, &err) == 0) {
        bool same = state.err.code == why->code;

        state.err = *why;
        (void)!session_record_put(session, &state, NULL, &err);
        store_state_done(&state);
        if (!same) {
            session_life_failed(session, "delete", caller, why);
        }
    }
    session_retry(session, SESSION_RETRY_DESTROY);
}

static int mark_deleting(struct session *session, const struct caller *caller,
                         struct err *err)
{
    struct store_state state;
    int rc = session_record_copy(session, &state, err);

    if (rc < 0) {
        return rc;
    }
    if (state.status != SESSION_DELETING) {
        state.status = SESSION_DELETING;
        rc = put(session, &state, "sandbox.deleting", caller, err);
    }
    store_state_done(&state);
    return rc;
}

/* Destroys a sandbox that has a record. */
static int destroy(struct session *session, const struct caller *caller,
                   struct err *err)
{
    struct store_event event = {.name = "sandbox.deleted", .caller = caller};
    struct store *store = session->registry->store;
    int rc;

    store_spend_reserve(store);
    rc = mark_deleting(session, caller, err);
    if (rc < 0) {
        return rc;
    }
    crash_point("destroy-intent");
    session_files_drop(session);
    session_unsent_drop(session);
    rc = call_destroy(session, err);
    if (rc < 0) {
        destroy_later(session, caller, err);
        return rc;
    }
    crash_point("destroy-done");
    rc = session_record_drop(session, &event, err);
    if (rc < 0) {
        session_retry(session, SESSION_RETRY_DESTROY);
    }
    store_keep_reserve(store);
    checkpoint_view_drop(session, 0);
    checkpoint_clean(session, false);
    session_changed(session);
    return rc;
}

int session_life_destroy(struct session *session, const struct caller *caller,
                         struct err *err)
{
    enum session_status status;
    int rc;

    if (!session_record_status(session, &status)) {
        return 0;
    }
    rc = session_need_engine(session, err);
    return rc < 0 ? rc : destroy(session, caller, err);
}

/* ---- Creating ---- */

/* The call failed, but may have made something: nothing of it may stay. */
static void abandon(struct session *session, const struct caller *caller,
                    const struct err *why)
{
    enum session_status status;
    struct err err = ERR_INIT;

    session_life_failed(session, "create", caller, why);
    /* What is not confirmed is tried again later. Another writer's sandbox is
     * not ours to destroy. */
    if (session_record_status(session, &status) && status == SESSION_STARTING) {
        (void)!destroy(session, caller, &err);
    }
}

int session_make_dir(struct session *session, struct err *err)
{
    return mkdir(session->dir, 0700) < 0 && errno != EEXIST
               ? err_errno(err, "make the directory of the session")
               : 0;
}

/* Records what is about to be made. */
static int put_intent(struct session *session, const struct caller *caller,
                      struct err *err)
{
    struct store_state state = {
        .status = SESSION_STARTING,
        .provider = strdup(session->config.provider),
        .created_us = clock_wall_us(),
    };
    int rc;

    if (!state.provider) {
        return err_no_memory(err);
    }
    mutex_lock(&session->lock);
    state.generation = session->generation + 1;
    mutex_unlock(&session->lock);
    rc = put(session, &state, "sandbox.starting", caller, err);
    store_state_done(&state);
    return rc;
}

static int create(struct session *session, const struct caller *caller,
                  struct err *err)
{
    static const struct life_change creation = {
        .call = provider_create,
        .wait = SESSION_WAIT_CREATE,
        .point = "create-done",
        .status = SESSION_RUNNING,
    };
    const struct life_event created = {.name = "sandbox.created",
                                       .caller = caller};
    int rc = session_make_dir(session, err);

    if (rc == 0) {
        rc = put_intent(session, caller, err);
    }
    if (rc < 0) {
        return rc;
    }
    crash_point("create-intent");
    rc = session_life_change(session, &creation, &created, err);
    if (rc < 0) {
        abandon(session, caller, err);
        return rc;
    }
    crash_point("create-recorded");
    session_saw(session, 0, PROVIDER_RUNNING);
    session_changed(session);
    return 0;
}

/* ---- Resuming ---- */

/* Whether processes of a sandbox that is stopped have ended with an earlier
 * daemon, or by themselves. */
static bool lost_processes(struct session *session,
                           const struct store_state *state)
{
    return session->provider->ops->has_processes &&
           !provider_has_processes(session->provider, session->number) &&
           (state->status == SESSION_RUNNING ||
            state->updated_us < session->registry->opened_us);
}

static int call_resume(struct session *session, const struct caller *caller,
                       struct err *err)
{
    struct limits limits = session_limits(session, SESSION_WAIT_CALL);
    struct life_event event = {.name = "sandbox.resumed", .caller = caller};
    struct session_call call;
    int rc = session_call_init(session, &call, err);

    if (rc < 0) {
        return rc;
    }
    event.processes_lost = lost_processes(session, &call.state);
    rc = provider_resume(session->provider, &call.sandbox, &limits, err);
    crash_point("resume-done");
    if (rc == 0) {
        call.state.status = SESSION_RUNNING;
        free(TAKE_PTR(call.state.last_init_error));
        rc = session_life_put(session, &call.state, &event, err);
    }
    session_call_done(&call);
    return rc;
}

static int resume(struct session *session, const struct caller *caller,
                  struct err *err)
{
    int rc;

    session_doing(session, SESSION_STARTING);
    rc = call_resume(session, caller, err);
    if (rc == 0) {
        session_saw(session, 0, PROVIDER_RUNNING);
    } else if (rc == -ESTALE) {
        session_saw(session, 0, PROVIDER_LOST);
    }
    session_doing(session, SESSION_ABSENT);
    if (rc < 0) {
        session_life_failed(session, "resume", caller, err);
    } else {
        session_changed(session);
    }
    return rc;
}

/* ---- Ensuring ---- */

/* Nothing is left of the old one but perhaps traces; a new one comes. */
static int replace_lost(struct session *session, const struct caller *caller,
                        struct err *err)
{
    int rc = destroy(session, caller, err);

    return rc < 0 ? rc : create(session, caller, err);
}

/* The engine says it runs; the record may not know yet. */
static int note_running(struct session *session, const struct caller *caller,
                        struct err *err)
{
    struct store_state state;
    int rc = session_record_copy(session, &state, err);

    if (rc < 0) {
        return rc;
    }
    if (state.status != SESSION_RUNNING) {
        state.status = SESSION_RUNNING;
        rc = put(session, &state, "sandbox.resumed", caller, err);
    }
    store_state_done(&state);
    return rc;
}

static int ensure_existing(struct session *session, bool replace,
                           const struct caller *caller, struct err *err)
{
    enum provider_state state = PROVIDER_LOST;
    int rc = session_ask(session, &state, err);

    if (rc < 0) {
        return rc;
    }
    switch (state) {
    case PROVIDER_RUNNING:
        return note_running(session, caller, err);
    case PROVIDER_PAUSED:
        return resume(session, caller, err);
    case PROVIDER_LOST:
        break;
    }
    rc = checkpoint_revive(session, caller, err);
    if (rc != -ENOENT) {
        return rc < 0 ? rc : resume(session, caller, err);
    }
    err_clear(err);
    if (replace) {
        return replace_lost(session, caller, err);
    }
    return err_set(err, ESTALE,
                   "the engine no longer has the sandbox; write 'running' to "
                   "status for an empty one");
}

int session_life_ensure(struct session *session, bool replace,
                        const struct caller *caller, struct err *err)
{
    enum session_status status;
    bool has = session_record_status(session, &status);
    int rc = session_need_engine(session, err);

    if (rc < 0) {
        return rc;
    }
    if (has && (status == SESSION_DELETING || status == SESSION_STARTING)) {
        rc = destroy(session, caller, err);
        if (rc < 0) {
            return err_wrap(err, rc, "the old sandbox is not deleted yet");
        }
        has = false;
    }
    rc = has ? ensure_existing(session, replace, caller, err)
             : create(session, caller, err);
    return rc < 0 ? rc : session_life_init(session, caller, err);
}
