/*
 * What happens to a sandbox. Runs in the life thread of its session, one step
 * at a time; each step is recorded before and after the engine is called, so
 * that a start after a crash knows what may be there.
 */
#include "core/buf.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/crash.h"
#include "core/json.h"
#include "core/session_priv.h"

#include <string.h>
#include <sys/stat.h>

enum {
    DETAIL_MAX = 8 * 1024
};

/* Puts the record with an event that tells of the instance. */
static int put(struct session *session, struct store_state *state,
               const char *name, const struct caller *caller, struct err *err)
{
    struct buf text = BUF_INIT(DETAIL_MAX);
    struct store_event event = {.name = name, .caller = caller};
    struct js *detail = js_object();
    int rc;

    js_set_int(detail, "generation", (int64_t)state->generation);
    if (state->instance.external_id) {
        js_set_text(detail, "external_id", state->instance.external_id);
    }
    if (js_write(detail, &text) == 0) {
        event.detail = buf_str(&text);
    }
    rc = session_record_put(session, state, &event, err);
    js_free(detail);
    buf_done(&text);
    return rc;
}

static void tell_failed(struct session *session, const char *operation,
                        const struct caller *caller, const struct err *why)
{
    struct js *detail = js_object();
    const char *name = strerrorname_np(why->code);

    js_set_text(detail, "operation", operation);
    js_set_text(detail, "errno", name ? name : "EIO");
    js_set_text(detail, "message", why->msg);
    session_event(session, "sandbox.failed", 0, caller, detail);
}

/* A call that leaves the sandbox in another status. */
struct change {
    provider_life_fn *call;
    int64_t ms;        /* It may take that long. */
    const char *point; /* Of a chosen crash: called, and not yet recorded. */
    enum session_status status;
    const char *event;
};

/* Calls the engine and records what it did. */
static int do_change(struct session *session, const struct change *change,
                     const struct caller *caller, struct err *err)
{
    struct limits limits = session_limits(session, change->ms);
    struct session_call call;
    int rc = session_call_init(session, &call, err);

    if (rc < 0) {
        return rc;
    }
    rc = change->call(session->provider, &call.sandbox, &limits, err);
    crash_point(change->point);
    if (rc == 0) {
        call.state.status = change->status;
        rc = put(session, &call.state, change->event, caller, err);
    }
    session_call_done(&call);
    return rc;
}

/* ---- Deleting ---- */

static int call_destroy(struct session *session, struct err *err)
{
    struct limits limits = session_limits(session, SESSION_CALL_MS);
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
        if (session_record_put(session, &state, NULL, &err) < 0) {
            store_state_done(&state);
        }
        if (!same) {
            tell_failed(session, "delete", caller, why);
        }
    }
    session_retry(session);
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
    int rc = mark_deleting(session, caller, err);

    if (rc < 0) {
        return rc;
    }
    crash_point("destroy-intent");
    session_files_drop(session);
    rc = call_destroy(session, err);
    if (rc < 0) {
        destroy_later(session, caller, err);
        return rc;
    }
    crash_point("destroy-done");
    rc = session_record_drop(session, &event, err);
    if (rc < 0) {
        session_retry(session);
    }
    session_changed(session);
    return rc;
}

static bool find_status(struct session *session, enum session_status *out)
{
    bool has;

    mutex_lock(&session->lock);
    has = session->has_record;
    *out = has ? session->record.status : SESSION_ABSENT;
    mutex_unlock(&session->lock);
    return has;
}

int session_life_destroy(struct session *session, const struct caller *caller,
                         struct err *err)
{
    enum session_status status;
    int rc;

    if (!find_status(session, &status)) {
        return 0;
    }
    rc = session_need_provider(session, err);
    return rc < 0 ? rc : destroy(session, caller, err);
}

/* ---- Creating ---- */

/* The call failed, but may have made something: nothing of it may stay. */
static void abandon(struct session *session, const struct caller *caller,
                    const struct err *why)
{
    struct err err = ERR_INIT;

    tell_failed(session, "create", caller, why);
    /* What is not confirmed is tried again later. */
    (void)!destroy(session, caller, &err);
}

static int make_dir(struct session *session, struct err *err)
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
        .created_us = clock_wall_us(),
    };
    int rc;

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
    static const struct change creation = {
        .call = provider_create,
        .ms = SESSION_CREATE_MS,
        .point = "create-done",
        .status = SESSION_RUNNING,
        .event = "sandbox.created",
    };
    int rc = make_dir(session, err);

    if (rc == 0) {
        rc = put_intent(session, caller, err);
    }
    if (rc < 0) {
        return rc;
    }
    crash_point("create-intent");
    rc = do_change(session, &creation, caller, err);
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

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* Records what resume made of the instance. `before` is the external id that
 * it had. */
static int put_resumed(struct session *session, struct store_state *state,
                       const char *before, const struct caller *caller,
                       struct err *err)
{
    bool same = same_text(before, state->instance.external_id);

    state->status = SESSION_RUNNING;
    free(TAKE_PTR(state->last_init_error));
    if (!same) {
        state->generation++;
        session_files_drop(session);
    }
    return put(session, state, same ? "sandbox.resumed" : "sandbox.replaced",
               caller, err);
}

static int call_resume(struct session *session, const struct caller *caller,
                       struct err *err)
{
    struct limits limits = session_limits(session, SESSION_CALL_MS);
    AUTO_FREE char *before = NULL;
    struct session_call call;
    const char *id;
    int rc = session_call_init(session, &call, err);

    if (rc < 0) {
        return rc;
    }
    id = call.state.instance.external_id;
    before = id ? strdup(id) : NULL;
    rc = id && !before
             ? err_set(err, ENOMEM, "out of memory")
             : provider_resume(session->provider, &call.sandbox, &limits, err);
    crash_point("resume-done");
    if (rc == 0) {
        rc = put_resumed(session, &call.state, before, caller, err);
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
        tell_failed(session, "resume", caller, err);
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
    bool has = find_status(session, &status);
    int rc = session_need_provider(session, err);

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
    return has ? ensure_existing(session, replace, caller, err)
               : create(session, caller, err);
}

/* ---- Pausing ---- */

static int pause_running(struct session *session, const struct caller *caller,
                         struct err *err)
{
    static const struct change pausing = {
        .call = provider_pause,
        .ms = SESSION_CALL_MS,
        .point = "pause-done",
        .status = SESSION_PAUSED,
        .event = "sandbox.paused",
    };
    int rc = session_files_close(session, clock_deadline(SESSION_CALL_MS), err);

    if (rc < 0) {
        return rc;
    }
    session_doing(session, SESSION_PAUSING);
    rc = do_change(session, &pausing, caller, err);
    if (rc == 0) {
        session_saw(session, 0, PROVIDER_PAUSED);
    }
    session_doing(session, SESSION_ABSENT);
    session_files_open(session);
    if (rc < 0) {
        tell_failed(session, "pause", caller, err);
    }
    return rc;
}

/* Recorded as paused, and the engine has not said otherwise. */
static bool is_paused(struct session *session)
{
    const struct observation *seen = &session->seen;
    bool paused;

    mutex_lock(&session->lock);
    paused = session->record.status == SESSION_PAUSED &&
             !(seen->known && seen->rc == 0 && seen->state == PROVIDER_RUNNING);
    mutex_unlock(&session->lock);
    return paused;
}

int session_life_pause(struct session *session, const struct caller *caller,
                       struct err *err)
{
    enum session_status status;
    int rc;

    if (!find_status(session, &status) || is_paused(session)) {
        return 0;
    }
    rc = session_need_provider(session, err);
    if (rc < 0) {
        return rc;
    }
    if (status == SESSION_DELETING) {
        return err_set(err, EBUSY, "the sandbox is being deleted");
    }
    return pause_running(session, caller, err);
}

/* ---- Checkpoints ---- */

int session_life_checkpoint(struct session *session, struct err *err)
{
    struct limits limits = session_limits(session, SESSION_CALL_MS);
    struct session_call call;
    int rc;

    if (!session->provider->ops->checkpoint) {
        return 0;
    }
    rc = session_call_init(session, &call, err);
    if (rc == 0) {
        rc =
            provider_checkpoint(session->provider, &call.sandbox, &limits, err);
        if (rc == 0) {
            rc = session_record_put(session, &call.state, NULL, err);
        }
        session_call_done(&call);
    }
    return rc < 0 ? err_wrap(err, rc, "checkpoint") : 0;
}
