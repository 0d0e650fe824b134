/*
 * The idle pause: one timer for all sandboxes that run. What uses a sandbox
 * notes the time and no more; when the timer fires, those whose time has come
 * are paused, and it is set to the next one's.
 */
#include "core/clock.h"
#include "core/registry_priv.h"
#include "core/session_priv.h"
#include "core/workspace.h"

enum {
    SECOND_MS = 1000
};

void session_touch(struct session *session)
{
    atomic_store_explicit(&session->active_ms, clock_ms(),
                          memory_order_relaxed);
}

static int64_t patience_ms(const struct session *session)
    REQUIRES(session->lock)
{
    return session->config.idle_pause_after_seconds * SECOND_MS;
}

static int64_t due_locked(struct session *session) REQUIRES(session->lock)
{
    return atomic_load_explicit(&session->active_ms, memory_order_relaxed) +
           patience_ms(session);
}

bool session_can_pause_locked(struct session *session)
{
    return !session->provider || session->provider->ops->pause;
}

/* Whether the sandbox runs, as far as anybody knows, and is to be paused. */
static bool wanted_locked(struct session *session) REQUIRES(session->lock)
{
    return !session->gone && session->has_record &&
           session->record.status == SESSION_RUNNING &&
           session->config.idle_pause_enabled &&
           session_can_pause_locked(session) &&
           session_status_locked(session) != SESSION_LOST;
}

bool session_idle_due_locked(struct session *session)
{
    return wanted_locked(session) && clock_ms() >= due_locked(session) &&
           list_empty(&session->queue) && !session->background;
}

static void drop(struct session *session)
{
    list_remove(&session->idle_link);
    session_unref(session);
}

static void paused(void *arg, int rc, const struct err *err)
{
    struct session *session = arg;

    (void)err;
    if (rc < 0) { /* Not at once again. */
        session_touch(session);
    }
    session_idle_watch(session);
    session_unref(session);
}

static void pause_now(struct session *session)
{
    const struct job job = {.kind = JOB_PAUSE,
                            .idle = true,
                            .done = paused,
                            .arg = session_ref(session)};

    drop(session);
    session_submit(session, &job);
}

/* Pauses a sandbox whose time has come; else tells when to look again,
 * DEADLINE_NONE for never. */
static int64_t look(struct session *session)
{
    int64_t now = clock_ms();
    int64_t next;
    bool wanted, works, idle;

    mutex_lock(&session->lock);
    wanted = wanted_locked(session);
    next = due_locked(session);
    /* What is written to an open file need not come by us. */
    works = session->current || !list_empty(&session->queue) ||
            session->background || (session->tree && ws_writing(session->tree));
    idle = session_idle_locked(session);
    if (works) { /* Its end is a use. */
        next = now + patience_ms(session);
    }
    mutex_unlock(&session->lock);
    if (!wanted) {
        drop(session);
        return DEADLINE_NONE;
    }
    if (next > now) {
        return next;
    }
    /* A file operation is inside, for its moment; or something was written and
     * is not sent yet. */
    if (!idle || session_files_unsent(session)) {
        return now + SECOND_MS;
    }
    pause_now(session);
    return DEADLINE_NONE;
}

static int64_t look_at(struct list *entry)
{
    return look(container_of(entry, struct session, idle_link));
}

void session_idle_init(struct registry *registry)
{
    alarms_init(&registry->idlers, registry->loop, look_at);
}

static void watch(void *arg)
{
    struct session *session = arg;
    struct registry *registry = session->registry;
    int64_t due;
    bool wanted;

    mutex_lock(&session->lock);
    wanted = wanted_locked(session);
    due = due_locked(session);
    mutex_unlock(&session->lock);
    if (!wanted || registry_closing(registry) ||
        !alarms_add(&registry->idlers, &session->idle_link, due)) {
        session_unref(session);
    }
}

void session_idle_watch(struct session *session)
{
    loop_post(session->registry->loop, watch, session_ref(session));
}

void session_idle_drop_all(struct registry *registry)
{
    list_each_safe(entry, &registry->idlers.entries)
    {
        drop(container_of(entry, struct session, idle_link));
    }
    alarms_done(&registry->idlers);
}
