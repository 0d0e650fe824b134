/*
 * Pausing a sandbox, because somebody asks or nobody uses it, and what a start
 * does with those that an earlier daemon left running. See session_life.c.
 */
#include "core/checkpoint_priv.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/registry_priv.h"
#include "core/session_priv.h"

#include <errno.h>

enum {
    DOOR_MS = 1000 /* How long an idle pause waits for file operations. */
};

/* Nobody is inside and nobody comes in. */
static int pause_closed(struct session *session, const struct life_event *event,
                        struct err *err)
{
    static const struct life_change pausing = {
        .call = provider_pause,
        .wait = SESSION_WAIT_CALL,
        .point = "pause-done",
        .status = SESSION_PAUSED,
    };
    int rc;

    session_doing(session, SESSION_PAUSING);
    rc = session_life_change(session, &pausing, event, err);
    if (rc == 0) {
        session_saw(session, 0, PROVIDER_PAUSED);
    }
    session_doing(session, SESSION_ABSENT);
    return rc;
}

static int pause_running(struct session *session,
                         const struct life_event *event, struct err *err)
{
    int rc;

    checkpoint_gather(session);
    rc = session_files_close(session,
                             session_deadline(session, SESSION_WAIT_CALL), err);
    if (rc < 0) {
        return rc;
    }
    rc = session_files_send(session, err);
    if (rc < 0 && registry_closing(session->registry)) {
        log_warning("at the end: %s", err->msg);
        err_clear(err);
        rc = 0;
    }
    if (rc == 0) {
        rc = pause_closed(session, event, err);
    }
    session_files_open(session);
    if (rc < 0) {
        session_life_failed(session, "pause", event->caller, err);
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
                       const char *cause, struct err *err)
{
    const struct life_event event = {
        .name = "sandbox.paused", .cause = cause, .caller = caller};
    enum session_status status;
    int rc;

    if (!session_record_status(session, &status) || is_paused(session)) {
        return 0;
    }
    rc = session_need_engine(session, err);
    if (rc < 0) {
        return rc;
    }
    if (status == SESSION_DELETING) {
        return err_set(err, EBUSY, "the sandbox is being deleted");
    }
    return pause_running(session, &event, err);
}

static bool still_idle(struct session *session)
{
    bool idle;

    mutex_lock(&session->lock);
    idle = session_idle_due_locked(session);
    mutex_unlock(&session->lock);
    return idle && !session_files_unsent(session);
}

int session_life_pause_idle(struct session *session, struct err *err)
{
    const struct life_event event = {.name = "sandbox.paused", .cause = "idle"};
    int rc = session_need_engine(session, err);

    if (rc == 0) {
        checkpoint_gather(session);
        rc = session_files_close(session, clock_deadline(DOOR_MS), err);
    }
    if (rc < 0) {
        return rc;
    }
    if (still_idle(session)) {
        rc = pause_closed(session, &event, err);
    }
    session_files_open(session);
    if (rc < 0) {
        session_life_failed(session, "pause", NULL, err);
    }
    return rc;
}

/* ---- Taking up ---- */

/* Its processes have ended with the daemon that had it; or that died while it
 * paused them. */
static void put_stopped(struct session *session)
{
    const bool has = provider_has_processes(session->provider, session->number);
    const struct life_event event = {.name = has ? "sandbox.paused"
                                                 : "sandbox.processes_lost",
                                     .cause = has ? "restart" : NULL};
    struct store_state state;
    struct err err = ERR_INIT;

    if (session_record_copy(session, &state, &err) == 0) {
        state.status = SESSION_PAUSED;
        /* Else the next to ask the engine learns it too. */
        (void)!session_life_put(session, &state, &event, &err);
        store_state_done(&state);
    }
}

void session_life_take_up(struct session *session)
{
    enum provider_state state = PROVIDER_RUNNING;
    struct err err = ERR_INIT;

    /* Such an engine answers at once; others are asked when it is needed. */
    if (session->provider && session->provider->ops->has_processes &&
        session_ask(session, &state, &err) < 0) {
        return;
    }
    if (session->provider && provider_left(session->provider, session->dir)) {
        session_observe(session); /* That ends them. */
    }
    if (state == PROVIDER_PAUSED) {
        put_stopped(session);
    } else if (state == PROVIDER_RUNNING) {
        session_idle_watch(session);
    }
}
