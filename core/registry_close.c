/* The registry's end. See registry.h. */
#include "core/checkpoint_priv.h"
#include "core/clock.h"
#include "core/exec.h"
#include "core/registry_priv.h"
#include "core/session_priv.h"

#include <stdlib.h>

enum {
    AFTERMATH_MS = 5000 /* How long cancelled work may take to end. */
};

/* What registry_close() waits for in the loop's thread. */
struct barrier {
    struct registry *registry;
    struct mutex lock;
    struct cond passed;
    bool done GUARDED;
};

static void pass(void *arg)
{
    struct barrier *barrier = arg;

    session_retry_drop_all(barrier->registry);
    session_idle_drop_all(barrier->registry);
    checkpoint_watch_drop_all(barrier->registry);
    mutex_lock(&barrier->lock);
    barrier->done = true;
    cond_broadcast(&barrier->passed);
    mutex_unlock(&barrier->lock);
}

/* Waits until the loop has run what was posted before; no timer of a session
 * waits then. */
static void flush_loop(struct registry *registry)
{
    struct barrier barrier = {.registry = registry};

    mutex_init(&barrier.lock);
    cond_init(&barrier.passed);
    loop_post(registry->loop, pass, &barrier);
    mutex_lock(&barrier.lock);
    while (!barrier.done) {
        (void)cond_wait(&barrier.passed, &barrier.lock, DEADLINE_NONE);
    }
    mutex_unlock(&barrier.lock);
    cond_done(&barrier.passed);
    mutex_done(&barrier.lock);
}

/* The loaded session with the lowest number above one, with a reference. */
static struct session *next_loaded(struct registry *registry, uint64_t after)
{
    struct session *next = NULL;

    mutex_lock(&registry->lock);
    for (size_t i = 0; i < REGISTRY_BUCKETS; i++) {
        list_each(node, &registry->buckets[i])
        {
            struct session *session = container_of(node, struct session, link);

            if (session->number > after &&
                (!next || session->number < next->number)) {
                next = session;
            }
        }
    }
    if (next) {
        next->refs++;
    }
    mutex_unlock(&registry->lock);
    return next;
}

static void each_loaded(struct registry *registry,
                        void (*fn)(struct session *session))
{
    struct session *session = next_loaded(registry, 0);

    while (session) {
        uint64_t number = session->number;

        fn(session);
        session_unref(session);
        session = next_loaded(registry, number);
    }
}

/* What registry_close() waits for the end of. */
enum {
    CALM_JOBS = 1 << 0,
    CALM_WORKS = 1 << 1,
    CALM_SINKS = 1 << 2,
};

static bool calm_locked(struct registry *registry, unsigned what)
    REQUIRES(registry->lock)
{
    return !((what & CALM_JOBS) && registry->jobs) &&
           !((what & CALM_WORKS) && registry->works) &&
           !((what & CALM_SINKS) && registry->sinks);
}

static bool wait_calm(struct registry *registry, unsigned what,
                      int64_t deadline_ms)
{
    bool calm;
    int rc = 0;

    mutex_lock(&registry->lock);
    while (!calm_locked(registry, what) && rc == 0) {
        rc = cond_wait(&registry->calm, &registry->lock, deadline_ms);
    }
    calm = calm_locked(registry, what);
    mutex_unlock(&registry->lock);
    return calm;
}

/* What cannot be read is left alone. */
static void each_with(struct registry *registry, enum session_status status,
                      void (*fn)(struct session *session))
{
    struct err ignored = ERR_INIT;

    (void)!registry_each_with(registry, status, fn, &ignored);
}

/* Those whose sandbox runs, or may: its making was not seen to end. */
static void each_running(struct registry *registry,
                         void (*fn)(struct session *session))
{
    each_with(registry, SESSION_STARTING, fn);
    each_with(registry, SESSION_RUNNING, fn);
}

/* Behind what the session still does. What cannot be paused stays. */
static void submit_pause(struct session *session)
{
    const struct job job = {
        .kind = JOB_PAUSE, .internal = true, .cause = "unmount"};
    bool can;

    mutex_lock(&session->lock);
    can = session_can_pause_locked(session);
    mutex_unlock(&session->lock);
    if (can) {
        session_submit(session, &job);
    }
}

static void submit_destroy(struct session *session)
{
    const struct job job = {.kind = JOB_DESTROY, .internal = true};

    session_submit(session, &job);
}

/* Begins what is to become of each sandbox. */
static void begin_end(struct registry *registry)
{
    switch (registry->on_unmount) {
    case REGISTRY_PAUSE:
        each_running(registry, submit_pause);
        return;
    case REGISTRY_DELETE:
        each_running(registry, submit_destroy);
        each_with(registry, SESSION_PAUSED, submit_destroy);
        return;
    case REGISTRY_KEEP:
        return;
    }
}

/* ---- What could not be done in time ---- */

/* Nothing changes the record any more: the next start deletes the sandbox. */
static void doom(struct session *session)
{
    struct store_event event = {.name = "sandbox.deleting"};
    struct store_state state;
    struct err err = ERR_INIT;

    if (session_record_copy(session, &state, &err) == 0) {
        state.status = SESSION_DELETING;
        (void)!session_record_put(session, &state, &event, &err);
        store_state_done(&state);
    }
}

static void tell_left(struct session *session)
{
    const struct registry_hooks *hooks = &session->registry->hooks;
    struct store_state state;
    struct err err = ERR_INIT;
    char id[SESSION_ID_SIZE];

    if (hooks->left && session_record_copy(session, &state, &err) == 0) {
        session_id(session, id);
        hooks->left(hooks->arg, id, session_status_name(state.status));
        store_state_done(&state);
    }
}

static void tell_all_left(struct registry *registry)
{
    if (registry->on_unmount == REGISTRY_DELETE) {
        each_running(registry, doom);
        each_with(registry, SESSION_PAUSED, doom);
    }
    each_with(registry, SESSION_DELETING, tell_left);
    if (registry->on_unmount == REGISTRY_PAUSE) {
        each_running(registry, tell_left);
    }
}

/* ---- The end ---- */

static void close_engines(struct registry *registry)
{
    mutex_lock(&registry->lock);
    registry->engines_closed = true;
    mutex_unlock(&registry->lock);
    registry_close_providers(registry);
}

static struct session *take_session(struct registry *registry)
{
    struct session *session = NULL;

    mutex_lock(&registry->lock);
    for (size_t i = 0; i < REGISTRY_BUCKETS && !session; i++) {
        struct list *node = list_pop(&registry->buckets[i]);

        session = node ? container_of(node, struct session, link) : NULL;
    }
    mutex_unlock(&registry->lock);
    return session;
}

static void free_sessions(struct registry *registry)
{
    struct session *session;

    mutex_lock(&registry->lock);
    registry->dead = true;
    mutex_unlock(&registry->lock);
    flush_loop(registry);
    session = take_session(registry);
    while (session) {
        session_free(session);
        session = take_session(registry);
    }
}

/* Ends commands and does to sandboxes what is to be done within a bound, then
 * ends every call of an engine; false when one does not end. */
static bool wind_down(struct registry *registry, int64_t end_ms)
{
    int64_t deadline = clock_deadline(end_ms);
    bool calm;

    store_closing(registry->store);
    mutex_lock(&registry->lock);
    registry->closing = true;
    mutex_unlock(&registry->lock);
    flush_loop(registry);
    each_loaded(registry, registry->on_unmount == REGISTRY_KEEP
                              ? session_leave_all
                              : session_cancel_all);
    if (registry->on_unmount != REGISTRY_DELETE) {
        each_loaded(registry, checkpoint_gather_last);
    }
    begin_end(registry);
    if (wait_calm(registry, CALM_JOBS, deadline)) {
        /* What was queued before the end may have made a sandbox behind it. */
        begin_end(registry);
        (void)wait_calm(registry, CALM_JOBS, deadline);
    }
    cancel_fire(&registry->cancel);
    calm = wait_calm(registry, CALM_WORKS, clock_deadline(AFTERMATH_MS));
    if (calm) {
        tell_all_left(registry);
    }
    return calm;
}

static void free_registry(struct registry *registry)
{
    free_sessions(registry);
    workers_free(registry->trash);
    store_close(registry->store);
    cancel_done(&registry->cancel);
    cond_done(&registry->calm);
    cond_done(&registry->opened);
    mutex_done(&registry->providers_lock);
    mutex_lock(&registry->lock);
    buf_done(&registry->met);
    mutex_unlock(&registry->lock);
    mutex_done(&registry->lock);
    registry_drop_profiles(registry);
    registry_drop_places(registry);
    free(registry->provider);
    free(registry->state_dir);
    free(registry);
}

void registry_mounted(struct registry *registry, unsigned major, unsigned minor)
{
    store_mounted(registry->store, major, minor);
}

void registry_ending(struct registry *registry)
{
    store_closing(registry->store);
}

void registry_send(struct registry *registry, int64_t end_ms)
{
    int64_t deadline = clock_deadline(end_ms);
    struct session *session = registry ? next_loaded(registry, 0) : NULL;

    while (session) {
        uint64_t number = session->number;

        session_files_end(session, deadline);
        session_unref(session);
        session = next_loaded(registry, number);
    }
}

bool registry_close(struct registry *registry, int64_t end_ms)
{
    const unsigned all = CALM_JOBS | CALM_WORKS | CALM_SINKS;

    if (!registry) {
        return true;
    }
    if (registry->store && !wind_down(registry, end_ms)) {
        return false;
    }
    close_engines(registry);
    if (!wait_calm(registry, all, clock_deadline(AFTERMATH_MS))) {
        return false;
    }
    free_registry(registry);
    return true;
}
