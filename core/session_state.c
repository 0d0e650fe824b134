/* The record of a sandbox, and what the engine says of it. */
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/json.h"
#include "core/registry_priv.h"
#include "core/session_priv.h"

#include <errno.h>
#include <string.h>

enum {
    MOST_DOUBLINGS = 5 /* Of the time that an error holds. */
};

static int copy_state(const struct store_state *from, struct store_state *out,
                      struct err *err)
{
    struct store_state copy = *from;

    copy.instance = (struct instance){.external_id = NULL};
    copy.provider = from->provider ? strdup(from->provider) : NULL;
    copy.last_init_error =
        from->last_init_error ? strdup(from->last_init_error) : NULL;
    if ((from->provider && !copy.provider) ||
        (from->last_init_error && !copy.last_init_error) ||
        instance_copy(&copy.instance, &from->instance) < 0) {
        store_state_done(&copy);
        return err_no_memory(err);
    }
    *out = copy;
    return 0;
}

static int init_call_locked(struct session *session, struct session_call *out,
                            struct err *err) REQUIRES(session->lock)
{
    int rc = session->has_record
                 ? copy_state(&session->record, &out->state, err)
                 : err_set(err, ENOENT, "there is no sandbox");

    if (rc < 0) {
        return rc;
    }
    out->config = strdup(session->config.provider_config);
    if (!out->config) {
        store_state_done(&out->state);
        return err_no_memory(err);
    }
    out->provider = session->provider;
    memcpy(out->id, session->id, sizeof(out->id));
    return 0;
}

int session_call_init(struct session *session, struct session_call *out,
                      struct err *err)
{
    int rc;

    mutex_lock(&session->lock);
    rc = init_call_locked(session, out, err);
    mutex_unlock(&session->lock);
    if (rc < 0) {
        return rc;
    }
    out->sandbox = (struct sandbox){
        .number = session->number,
        .id = out->id,
        .dir = session->dir,
        .config = out->config,
        .instance = &out->state.instance,
    };
    return 0;
}

void session_call_done(struct session_call *call)
{
    store_state_done(&call->state);
    free(call->config);
}

int64_t session_deadline(struct session *session, enum session_wait wait)
{
    int64_t ms, create_ms;

    mutex_lock(&session->lock);
    ms = session->config.call_timeout_ms;
    create_ms = session->config.create_timeout_ms;
    mutex_unlock(&session->lock);
    switch (wait) {
    case SESSION_WAIT_CREATE:
        ms = create_ms;
        break;
    case SESSION_WAIT_LOOK:
        ms = ms < SESSION_LOOK_MS ? ms : SESSION_LOOK_MS;
        break;
    case SESSION_WAIT_CALL:
        break;
    }
    return clock_deadline(ms);
}

struct limits session_limits(struct session *session, enum session_wait wait)
{
    return (struct limits){
        .deadline_ms = session_deadline(session, wait),
        .cancel = &session->registry->cancel,
    };
}

int session_record_copy(struct session *session, struct store_state *out,
                        struct err *err)
{
    int rc;

    mutex_lock(&session->lock);
    rc = session->has_record ? copy_state(&session->record, out, err)
                             : err_set(err, ENOENT, "there is no sandbox");
    mutex_unlock(&session->lock);
    return rc;
}

static uint64_t generation_of(struct session *session)
{
    uint64_t generation;

    mutex_lock(&session->lock);
    generation = session->generation;
    mutex_unlock(&session->lock);
    return generation;
}

static int check_size(const char *name, const char *text, struct err *err)
{
    size_t size = text ? strlen(text) : 0;

    return size > PROVIDER_STATE_MAX
               ? err_set(err, EPROTO, "sandbox %s is %zu bytes; maximum is %d",
                         name, size, PROVIDER_STATE_MAX)
               : 0;
}

static int check_instance(const struct instance *instance, struct err *err)
{
    int rc = check_size("provider_state", instance->provider_state, err);

    return rc < 0 ? rc : check_size("metadata", instance->metadata, err);
}

/* Takes the record as somebody else wrote it. */
static void reload(struct session *session)
{
    struct registry *registry = session->registry;
    struct store_state state = {.status = SESSION_ABSENT};
    struct store_session row;
    struct err err = ERR_INIT;
    int has;

    if (store_session_get(registry->store, session->number, &row, &err) < 0) {
        return; /* The session is gone, or nothing can be read. */
    }
    has = store_state_load(registry->store, session->number, &state, &err);
    mutex_lock(&session->lock);
    if (has == 0 || has == -ENOENT) {
        store_state_done(&session->record);
        session->record = state;
        session->has_record = has == 0;
        session->generation = row.generation;
        session->seen.known = false;
        session->epoch++;
    }
    mutex_unlock(&session->lock);
    store_session_done(&row);
    session_files_drop(session);
    session_changed(session);
    session_note(session);
}

/* What the store said of a change of the record. */
static int written(struct session *session, int rc, const char *what,
                   struct err *err)
{
    if (rc == -ESTALE) {
        reload(session);
    }
    return rc < 0 ? err_wrap(err, rc, "%s", what) : 0;
}

int session_record_put(struct session *session, struct store_state *state,
                       const struct store_event *event, struct err *err)
{
    bool runs = state->status == SESSION_RUNNING;
    struct store_state old;
    int rc;

    rc = check_instance(&state->instance, err);
    if (rc < 0) {
        return rc;
    }
    state->updated_us = clock_wall_us();
    rc = store_state_save(session->registry->store, session->number,
                          generation_of(session), state, event, err);
    rc = written(session, rc, "cannot record the sandbox", err);
    if (rc < 0) {
        return rc;
    }
    mutex_lock(&session->lock);
    old = session->record;
    session->record = *state;
    session->has_record = true;
    session->generation = state->generation;
    session->epoch++;
    mutex_unlock(&session->lock);
    *state = (struct store_state){.status = SESSION_ABSENT};
    if (runs && old.status != SESSION_RUNNING) {
        session_touch(session);
        session_idle_watch(session);
    }
    store_state_done(&old);
    session_note(session);
    if (event) {
        session_news(session);
    }
    return 0;
}

int session_record_drop(struct session *session,
                        const struct store_event *event, struct err *err)
{
    int rc = store_state_remove(session->registry->store, session->number,
                                generation_of(session), event, err);

    rc = written(session, rc, "cannot record the end of the sandbox", err);
    if (rc < 0) {
        return rc;
    }
    mutex_lock(&session->lock);
    store_state_done(&session->record);
    session->has_record = false;
    session->seen.known = false;
    session->retries = 0;
    session->epoch++;
    mutex_unlock(&session->lock);
    session_note(session);
    return 0;
}

void session_doing(struct session *session, enum session_status doing)
{
    mutex_lock(&session->lock);
    session->doing = doing;
    session->epoch++;
    mutex_unlock(&session->lock);
    session_note(session);
}

static enum session_status seen_status(const struct observation *seen)
{
    if (seen->rc == -ENOTCONN || seen->rc == -ETIMEDOUT) {
        return SESSION_UNREACHABLE;
    }
    if (seen->rc < 0) {
        return SESSION_ERROR;
    }
    switch (seen->state) {
    case PROVIDER_RUNNING:
        return SESSION_RUNNING;
    case PROVIDER_PAUSED:
        return SESSION_PAUSED;
    case PROVIDER_LOST:
        break;
    }
    return SESSION_LOST;
}

enum session_status session_status_locked(struct session *session)
{
    if (session->doing != SESSION_ABSENT) {
        return session->doing;
    }
    if (session->has_record && (session->record.status == SESSION_STARTING ||
                                session->record.status == SESSION_DELETING)) {
        return session->record.status;
    }
    if (session->unreadable || (session->has_record && !session->provider)) {
        return SESSION_ERROR;
    }
    if (!session->has_record) {
        return SESSION_ABSENT;
    }
    return session->seen.known ? seen_status(&session->seen)
                               : session->record.status;
}

/* Returns whether the engine has lost the sandbox since it was last asked. */
static bool saw_locked(struct session *session, int rc,
                       enum provider_state state) REQUIRES(session->lock)
{
    const struct observation *seen = &session->seen;
    bool was_lost =
        seen->known && seen->rc == 0 && seen->state == PROVIDER_LOST;
    unsigned silences = seen->known && seen->rc < 0 ? seen->silences : 0;

    session->seen = (struct observation){
        .known = true,
        .rc = rc,
        .state = state,
        .silences = rc < 0 ? silences + 1 : 0,
        .at_ms = clock_ms(),
        .at_us = clock_wall_us(),
    };
    return rc == 0 && state == PROVIDER_LOST && !was_lost;
}

static void tell_lost(struct session *session, bool lost)
{
    if (lost) {
        session_event(session, "sandbox.lost", 0, NULL, js_object());
    }
    session_note(session);
}

void session_saw(struct session *session, int rc, enum provider_state state)
{
    bool lost;

    mutex_lock(&session->lock);
    lost = saw_locked(session, rc, state);
    mutex_unlock(&session->lock);
    tell_lost(session, lost);
}

void session_doubt(struct session *session)
{
    mutex_lock(&session->lock);
    session->seen.at_ms = clock_ms() - SESSION_FRESH_MS;
    mutex_unlock(&session->lock);
}

static bool fresh_locked(struct session *session) REQUIRES(session->lock)
{
    return session->seen.known && session->seen.rc == 0 &&
           clock_ms() - session->seen.at_ms < SESSION_FRESH_MS;
}

/* One call of the engine about the sandbox as it is recorded. */
static int call_status(struct session *session, enum session_wait wait,
                       enum provider_state *out, struct err *err)
{
    struct limits limits = session_limits(session, wait);
    struct session_call call;
    int rc = session_call_init(session, &call, err);

    if (rc == 0) {
        rc = provider_status(call.provider, &call.sandbox, &limits, out, err);
        session_call_done(&call);
    }
    return rc;
}

int session_ask(struct session *session, enum provider_state *out,
                struct err *err)
{
    /* A local engine answers at once, and its sandbox can end at any time. */
    bool always = session->provider->ops->root != NULL;
    enum provider_state state = PROVIDER_LOST;
    bool fresh;
    int rc;

    mutex_lock(&session->lock);
    fresh = !always && fresh_locked(session);
    if (fresh) {
        *out = session->seen.state;
    }
    mutex_unlock(&session->lock);
    if (fresh) {
        return 0;
    }
    rc = call_status(session, SESSION_WAIT_CALL, &state, err);
    if (rc != -ECANCELED) {
        session_saw(session, rc, state);
    }
    if (rc < 0) {
        return err_wrap(err, rc, "cannot learn the state of the sandbox");
    }
    *out = state;
    return 0;
}

static void observe_work(void *arg)
{
    struct session *session = arg;
    enum provider_state state = PROVIDER_LOST;
    struct err err = ERR_INIT;
    bool lost = false;
    uint64_t epoch;
    int rc;

    mutex_lock(&session->lock);
    epoch = session->epoch;
    mutex_unlock(&session->lock);
    rc = call_status(session, SESSION_WAIT_LOOK, &state, &err);
    mutex_lock(&session->lock);
    session->observing = false;
    /* What changed meanwhile knows better. */
    if (epoch == session->epoch && rc != -ECANCELED && session->has_record) {
        lost = saw_locked(session, rc, state);
    }
    mutex_unlock(&session->lock);
    tell_lost(session, lost);
    session_unref(session);
}

/* How long an observation holds: that of a silent engine ever longer. */
static int64_t holds_ms(const struct observation *seen)
{
    unsigned doublings =
        seen->silences < MOST_DOUBLINGS ? seen->silences : MOST_DOUBLINGS;

    return (int64_t)SESSION_FRESH_MS << doublings;
}

/* Whether the engine should be asked; it is being asked then. */
static bool observe_begin(struct session *session) REQUIRES(session->lock)
{
    const struct observation *seen = &session->seen;
    bool stale = !seen->known || clock_ms() - seen->at_ms >= holds_ms(seen);

    if (!session->has_record || !session->provider || session->observing ||
        session->doing != SESSION_ABSENT || !stale ||
        (session->record.status != SESSION_RUNNING &&
         session->record.status != SESSION_PAUSED)) {
        return false;
    }
    session->observing = true;
    return true;
}

void session_observe(struct session *session)
{
    bool begin;

    mutex_lock(&session->lock);
    begin = observe_begin(session);
    mutex_unlock(&session->lock);
    if (!begin) {
        return;
    }
    (void)session_ref(session);
    if (registry_engines_closed(session->registry) ||
        session_run(session, session->status, observe_work, session) < 0) {
        mutex_lock(&session->lock);
        session->observing = false;
        mutex_unlock(&session->lock);
        session_unref(session);
    }
}

int session_workspace_path(struct session *session, char **out, struct err *err)
{
    const char *path = NULL;
    int rc = -ENOENT;

    mutex_lock(&session->lock);
    if (session->has_record) {
        path = session->record.instance.workspace_path;
    }
    if (path) {
        *out = strdup(path);
        rc = *out ? 0 : -ENOMEM;
    }
    mutex_unlock(&session->lock);
    return rc < 0 ? err_set(err, -rc,
                            rc == -ENOMEM ? "out of memory"
                                          : "there is no sandbox")
                  : 0;
}
