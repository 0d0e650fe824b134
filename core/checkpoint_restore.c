/* Going back to a checkpoint, in the life thread. See checkpoint.h. */
#include "core/checkpoint_priv.h"
#include "core/crash.h"
#include "core/registry_priv.h"

#include <errno.h>

/* Nobody is inside, and nobody comes in. */
static int restore_closed(struct session *session, uint64_t key,
                          const struct life_event *event, struct err *err)
{
    struct limits limits = session_limits(session, SESSION_WAIT_CALL);
    struct session_call call;
    int rc = session_call_init(session, &call, err);

    if (rc < 0) {
        return rc;
    }
    rc = provider_snapshot_restore(call.provider, &call.sandbox, key, &limits,
                                   err);
    crash_point("restore-done");
    if (rc == 0) {
        call.state.status = SESSION_PAUSED;
        call.state.head = key;
        rc = session_life_put(session, &call.state, event, err);
    }
    session_call_done(&call);
    if (rc == 0) {
        checkpoint_clean(session, false);
        session_files_drop(session);
        session_saw(session, 0, PROVIDER_PAUSED);
    }
    return rc;
}

static int restore(struct session *session, uint64_t key,
                   const struct life_event *event, struct err *err)
{
    int rc = session_files_close(
        session, session_deadline(session, SESSION_WAIT_CALL), err);

    if (rc < 0) {
        return rc;
    }
    session_doing(session, SESSION_STARTING);
    rc = restore_closed(session, key, event, err);
    session_doing(session, SESSION_ABSENT);
    if (rc == 0) { /* Before anybody comes in: the kernel forgets. */
        session_changed(session);
    }
    session_files_open(session);
    return rc;
}

/* What there is now is kept, unless there is nothing any more. */
static int keep_present(struct session *session, const struct caller *caller,
                        struct err *err)
{
    const struct checkpoint_why why = {.cause = CHECKPOINT_RESTORE,
                                       .caller = caller};
    enum provider_state state = PROVIDER_LOST;
    struct checkpoint made;
    int rc = session_ask(session, &state, err);

    if (rc < 0 || state == PROVIDER_LOST) {
        return rc;
    }
    rc = checkpoint_add(session, &why, &made, err);
    crash_point("restore-kept");
    return rc;
}

static int run(struct session *session, const struct job *job, struct err *err)
{
    struct checkpoint wanted;
    struct life_event event = {.name = "checkpoint.restored",
                               .caller = &job->caller};
    int rc = checkpoint_settle(session, err);

    if (rc == 0) {
        rc = store_checkpoint_get(session->registry->store, session->number,
                                  job->key, &wanted, err);
    }
    if (rc == 0) {
        rc = keep_present(session, &job->caller, err);
    }
    if (rc < 0) {
        return rc;
    }
    event.checkpoint = &wanted;
    return restore(session, wanted.key, &event, err);
}

int checkpoint_run_restore(struct session *session, const struct job *job,
                           struct err *err)
{
    enum session_status status;
    int rc = session_need_engine(session, err);

    if (rc < 0) {
        return rc;
    }
    if (!session_record_status(session, &status) ||
        (status != SESSION_RUNNING && status != SESSION_PAUSED)) {
        return err_set(err, ENOENT, "there is no sandbox to restore");
    }
    rc = run(session, job, err);
    if (rc < 0) {
        session_life_failed(session, "restore", &job->caller, err);
    }
    return rc;
}

bool checkpoint_has_head(struct session *session)
{
    bool has;

    mutex_lock(&session->lock);
    has = session->has_record && session->record.head;
    mutex_unlock(&session->lock);
    return has;
}

/* The one that it is since; where that is gone, the newest. */
static int find_last(struct session *session, struct checkpoint *out,
                     struct err *err)
{
    struct store *store = session->registry->store;
    struct err none = ERR_INIT;
    uint64_t head;

    mutex_lock(&session->lock);
    head = session->record.head;
    mutex_unlock(&session->lock);
    if (head &&
        store_checkpoint_row(store, session->number, head, out, &none) > 0) {
        return 0;
    }
    return store_checkpoint_get(store, session->number, 0, out, err);
}

int checkpoint_revive(struct session *session, const struct caller *caller,
                      struct err *err)
{
    const struct provider_snapshots *slots = session->provider->ops->snapshots;
    struct life_event event = {
        .name = "sandbox.revived", .caller = caller, .processes_lost = true};
    struct checkpoint last;
    int rc;

    if (!slots || !slots->restore || !checkpoint_has_head(session)) {
        return err_set(err, ENOENT, "there is no checkpoint");
    }
    rc = checkpoint_settle(session, err);
    if (rc == 0) {
        rc = find_last(session, &last, err);
    }
    if (rc == 0) {
        event.checkpoint = &last;
        rc = restore(session, last.key, &event, err);
        crash_point("revived");
    }
    return rc;
}
