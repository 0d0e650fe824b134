/*
 * What is written through the mount: gathered, and taken when it has been
 * quiet for a while. One timer for all sessions. See checkpoint.h.
 */
#include "core/checkpoint_priv.h"
#include "core/clock.h"
#include "core/registry_priv.h"

enum {
    QUIET_MS = 2000
};

static bool is_on(const struct session *session) REQUIRES(session->lock)
{
    return session->config.checkpoint_writes == CONFIG_WRITES_GATHERED;
}

bool checkpoint_wrote_locked(struct session *session)
{
    bool first = !session->dirty;

    session->dirty = true;
    session->wrote_ms = clock_ms();
    return first && is_on(session);
}

void checkpoint_wrote(struct session *session)
{
    bool first;

    mutex_lock(&session->lock);
    first = checkpoint_wrote_locked(session);
    mutex_unlock(&session->lock);
    if (first) {
        checkpoint_watch(session);
    }
}

bool checkpoint_dirty(struct session *session)
{
    bool dirty;

    mutex_lock(&session->lock);
    dirty = (session->dirty || session->doubted) && is_on(session);
    mutex_unlock(&session->lock);
    return dirty;
}

bool checkpoint_seen(struct session *session)
{
    bool seen;

    mutex_lock(&session->lock);
    seen = session->dirty;
    mutex_unlock(&session->lock);
    return seen;
}

void checkpoint_clean(struct session *session, bool doubted)
{
    mutex_lock(&session->lock);
    session->dirty = false;
    session->doubted = doubted;
    mutex_unlock(&session->lock);
}

void checkpoint_doubt(struct session *session)
{
    mutex_lock(&session->lock);
    session->doubted = true;
    mutex_unlock(&session->lock);
}

void checkpoint_gather_last(struct session *session)
{
    const struct job job = {.kind = JOB_CHECKPOINT, .internal = true};
    bool due;

    mutex_lock(&session->lock);
    due = session->dirty && is_on(session);
    mutex_unlock(&session->lock);
    if (due) {
        session_submit(session, &job);
    }
}

/* ---- The timer: in the loop's thread ---- */

static void drop(struct session *session)
{
    list_remove(&session->wrote_link);
    session_unref(session);
}

/* Takes one where it is time; else tells when to look again. */
static int64_t look(struct session *session)
{
    int64_t due;
    bool dirty;

    mutex_lock(&session->lock);
    dirty = session->dirty && is_on(session) && !session->gone;
    due = session->wrote_ms + QUIET_MS;
    mutex_unlock(&session->lock);
    if (dirty && due > clock_ms()) {
        return due;
    }
    if (dirty) {
        checkpoint_gather_last(session);
    }
    drop(session);
    return DEADLINE_NONE;
}

static int64_t look_at(struct list *entry)
{
    return look(container_of(entry, struct session, wrote_link));
}

void checkpoint_watch_init(struct registry *registry)
{
    alarms_init(&registry->writers, registry->loop, look_at);
}

static void watch(void *arg)
{
    struct session *session = arg;
    struct registry *registry = session->registry;

    if (registry_closing(registry) ||
        !alarms_add(&registry->writers, &session->wrote_link,
                    clock_deadline(QUIET_MS))) {
        session_unref(session);
    }
}

void checkpoint_watch(struct session *session)
{
    loop_post(session->registry->loop, watch, session_ref(session));
}

void checkpoint_watch_drop_all(struct registry *registry)
{
    list_each_safe(entry, &registry->writers.entries)
    {
        struct session *session =
            container_of(entry, struct session, wrote_link);

        /* Only this list may know that it was written to. */
        if (registry->on_unmount != REGISTRY_DELETE) {
            checkpoint_gather_last(session);
        }
        drop(session);
    }
    alarms_done(&registry->writers);
}
