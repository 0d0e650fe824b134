/*
 * What an engine has not done: deletions that it has not confirmed, and files
 * that it has not taken. Tried again with back-off, by timers of the loop. The
 * record says DELETING until then, and the files are kept, so a start after a
 * crash goes on where this one stopped.
 */
#include "core/clock.h"
#include "core/registry_priv.h"
#include "core/session_priv.h"

enum {
    FIRST_MS = 1000,
    MOST_DOUBLINGS = 8,
};

/* What was to be done again. */
static unsigned retry_over(struct session *session)
{
    unsigned what;

    mutex_lock(&session->lock);
    what = session->retry_what;
    session->retry_what = 0;
    session->retry_waits = false;
    mutex_unlock(&session->lock);
    return what;
}

static unsigned drop_timer(struct session *session)
{
    list_remove(&session->retry_link);
    loop_timer_free(session->retry_timer);
    session->retry_timer = NULL;
    return retry_over(session);
}

static void fire(void *arg)
{
    struct session *session = arg;
    const struct job job = {
        .kind = JOB_DESTROY, .retry = true, .internal = true};
    unsigned what = drop_timer(session);

    if (registry_closing(session->registry)) {
        what = 0;
    }
    if (what & SESSION_RETRY_DESTROY) {
        /* Why it fails again will be in the record. */
        session_submit(session, &job);
    }
    if (what & SESSION_RETRY_SEND) {
        session_unsent_send(session);
    }
    session_unref(session);
}

static int64_t delay_of(struct session *session)
{
    unsigned doublings;

    mutex_lock(&session->lock);
    doublings = session->retries++;
    mutex_unlock(&session->lock);
    if (doublings > MOST_DOUBLINGS) {
        doublings = MOST_DOUBLINGS;
    }
    return (int64_t)FIRST_MS << doublings;
}

static void arm(void *arg)
{
    struct session *session = arg;
    struct loop_timer *timer =
        registry_closing(session->registry)
            ? NULL
            : loop_timer_new(session->registry->loop, fire, session);

    if (!timer) {
        (void)retry_over(session);
        session_unref(session);
        return;
    }
    session->retry_timer = timer;
    list_add(&session->registry->retries, &session->retry_link);
    loop_timer_set(timer, clock_deadline(delay_of(session)));
}

void session_retry(struct session *session, enum session_retry what)
{
    bool waits;

    mutex_lock(&session->lock);
    session->retry_what |= what;
    waits = session->retry_waits;
    session->retry_waits = true;
    mutex_unlock(&session->lock);
    if (!waits) {
        loop_post(session->registry->loop, arm, session_ref(session));
    }
}

void session_retry_drop_all(struct registry *registry)
{
    while (!list_empty(&registry->retries)) {
        struct session *session =
            container_of(registry->retries.next, struct session, retry_link);

        (void)drop_timer(session);
        session_unref(session);
    }
}
