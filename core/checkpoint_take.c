/* Taking checkpoints, in the life thread of a session. See checkpoint.h. */
#include "core/array.h"
#include "core/buf.h"
#include "core/checkpoint_priv.h"
#include "core/clock.h"
#include "core/crash.h"
#include "core/json.h"
#include "core/registry_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct provider_snapshots *slots_of(const struct session *session)
{
    return session->provider->ops->snapshots;
}

bool checkpoint_can(const struct session *session)
{
    return slots_of(session) || session->provider->ops->checkpoint;
}

/* ---- Making store and provider agree ---- */

/* The keys that a provider has. */
struct keys {
    uint64_t *keys;
    size_t count;
    size_t room;
    uint64_t last;
};

static int add_key(void *arg, uint64_t key)
{
    struct keys *keys = arg;
    void *wide =
        array_grow(keys->keys, keys->count, &keys->room, sizeof(*keys->keys));

    if (!wide) {
        return -ENOMEM;
    }
    keys->keys = wide;
    keys->keys[keys->count++] = key;
    keys->last = key > keys->last ? key : keys->last;
    return 0;
}

static bool has_key(const struct keys *keys, uint64_t key)
{
    for (size_t i = 0; i < keys->count; i++) {
        if (keys->keys[i] == key) {
            return true;
        }
    }
    return false;
}

/* What core knows nothing of was taken and not recorded. */
static int drop_unknown(struct session *session,
                        const struct session_call *call,
                        const struct keys *keys, struct err *err)
{
    struct limits limits = session_limits(session, SESSION_WAIT_CALL);
    struct store *store = session->registry->store;
    int rc = 0;

    for (size_t i = 0; i < keys->count && rc == 0; i++) {
        struct checkpoint c;

        rc = store_checkpoint_row(store, session->number, keys->keys[i], &c,
                                  err);
        if (rc == 0) {
            rc = provider_snapshot_drop(call->provider, &call->sandbox,
                                        keys->keys[i], &limits, err);
        } else {
            rc = rc < 0 ? rc : 0;
        }
    }
    return rc;
}

static void tell_lost(struct session *session, const struct checkpoint *c)
{
    static const struct caller nobody = {.pid = 0};
    char label[CHECKPOINT_LABEL_SIZE];
    struct err err = ERR_INIT;

    checkpoint_label(c, label);
    (void)err_set(&err, ESTALE,
                  "checkpoint '%s' is lost: the engine does not "
                  "have it any more",
                  label);
    session_fail(session, "checkpoint", 0, label, &nobody, &err);
}

/* A record whose tree is gone says what is not so. */
static int forget_lost(struct session *session, const struct keys *keys,
                       struct err *err)
{
    const struct store_event event = {.name = "checkpoint.lost"};
    struct store *store = session->registry->store;
    struct checkpoint c = {.key = 0};
    int rc = 1;

    while (rc > 0) {
        rc = store_checkpoint_any(store, session->number, c.key + 1, &c, err);
        if (rc > 0 && !has_key(keys, c.key)) {
            int dropped = store_checkpoint_drop(store, session->number, &c,
                                                c.gone ? NULL : &event, err);

            if (dropped == 0 && !c.gone) {
                tell_lost(session, &c);
            }
            rc = dropped < 0 ? dropped : 1;
        }
    }
    return rc;
}

static int agree(struct session *session, struct keys *keys, struct err *err)
{
    struct limits limits = session_limits(session, SESSION_WAIT_CALL);
    struct session_call call;
    int rc = session_call_init(session, &call, err);

    if (rc < 0) {
        return rc;
    }
    rc = provider_snapshot_list(call.provider, &call.sandbox, &limits, add_key,
                                keys, err);
    if (rc == 0) {
        rc = drop_unknown(session, &call, keys, err);
    }
    session_call_done(&call);
    return rc < 0 ? rc : forget_lost(session, keys, err);
}

int checkpoint_settle(struct session *session, struct err *err)
{
    const struct provider_snapshots *slots = slots_of(session);
    struct keys keys = {.keys = NULL};
    uint64_t next = 0;
    int rc;

    if (session->settled) {
        return 0;
    }
    rc = store_checkpoint_next(session->registry->store, session->number, &next,
                               err);
    if (rc == 0 && slots && slots->list) {
        rc = agree(session, &keys, err);
    }
    free(keys.keys);
    if (rc < 0) {
        return err_wrap(err, rc, "cannot look through the checkpoints");
    }
    session->next_key = next > keys.last ? next : keys.last + 1;
    session->hidden = true; /* Perhaps, from before. */
    session->settled = true;
    return 0;
}

/* ---- Taking ---- */

/* The paths of files that are open for writing. */
struct writing {
    char **paths; /* Ends with NULL, once there is one. */
    size_t count;
};

static int add_writer(void *arg, const char *path)
{
    struct writing *writing = arg;
    char **more =
        reallocarray((void *)writing->paths, writing->count + 2, sizeof(*more));

    if (!more) {
        return -ENOMEM;
    }
    writing->paths = more;
    more[writing->count] = strdup(path);
    more[writing->count + 1] = NULL;
    return more[writing->count++] ? 0 : -ENOMEM;
}

static void writing_done(struct writing *writing)
{
    for (size_t i = 0; i < writing->count; i++) {
        free(writing->paths[i]);
    }
    free((void *)writing->paths);
}

static int find_writing(struct session *session, struct writing *out,
                        struct err *err)
{
    struct workspace *tree = session_files_tree(session, NULL);
    int rc = tree ? ws_writers(tree, add_writer, out) : 0;
    ws_unref(tree);
    return rc < 0 ? err_set(err, -rc, "cannot learn which files are open") : 0;
}

/* Whether the workspace may become another directory meanwhile. Commands begin
 * in this thread only. */
static bool is_still(struct session *session)
{
    struct workspace *tree = session_files_tree(session, NULL);
    bool still = !tree || !ws_busy(tree);

    mutex_lock(&session->lock);
    still = still && !session->background;
    mutex_unlock(&session->lock);
    ws_unref(tree);
    return still;
}

static int move_tree(const struct session_call *call, struct workspace *tree,
                     struct err *err)
{
    struct provider_root root;
    int rc = provider_root(call->provider, &call->sandbox, &root, err);

    if (rc == 0) {
        rc = ws_move(tree, root.fd, err);
        if (rc < 0) {
            (void)close(root.fd);
        }
    }
    return rc;
}

/* What has been seen of the workspace stays: its files are elsewhere. */
static void follow(struct session *session, const struct session_call *call)
{
    const struct registry_hooks *hooks = &session->registry->hooks;
    struct workspace *tree = session_files_tree(session, NULL);
    struct err ignored = ERR_INIT;

    if (!tree) {
        return;
    }
    if (hooks->moved) {
        hooks->moved(hooks->arg, session);
    }
    if (move_tree(call, tree, &ignored) < 0) {
        session_files_drop(session);
        session_changed(session);
    }
    ws_unref(tree);
}

static int take_tree(struct session *session, const struct session_call *call,
                     uint64_t key, struct snapshot_made *out, struct err *err)
{
    struct limits limits = session_limits(session, SESSION_WAIT_CALL);
    struct writing writing = {.paths = NULL};
    struct snapshot_ask ask = {.key = key, .still = is_still(session)};
    int rc = find_writing(session, &writing, err);

    if (rc == 0) {
        ask.writing = (const char *const *)writing.paths;
        rc = provider_snapshot_take(call->provider, &call->sandbox, &ask,
                                    &limits, out, err);
        if (rc < 0 ? ask.still : out->moved) {
            follow(session, call);
        }
    }
    writing_done(&writing);
    /* What is open for writing may change unseen, and is looked at again. */
    if (rc == 0) {
        checkpoint_clean(session, ask.writing != NULL);
    }
    return rc;
}

static int call_take(struct session *session, struct session_call *call,
                     uint64_t key, struct snapshot_made *out, struct err *err)
{
    struct limits limits = session_limits(session, SESSION_WAIT_CALL);
    const struct life_event nothing = {.name = NULL};
    int rc;

    if (slots_of(session)) {
        return take_tree(session, call, key, out, err);
    }
    rc = provider_checkpoint(call->provider, &call->sandbox, &limits, err);
    if (rc == 0) {
        rc = session_life_put(session, &call->state, &nothing, err);
    }
    if (rc == 0) {
        checkpoint_clean(session, false);
    }
    return rc;
}

/* Nobody is inside, and nobody comes in. */
static int take_closed(struct session *session, struct checkpoint *made,
                       struct err *err)
{
    struct snapshot_made cost = {.changed = 0};
    struct session_call call;
    int rc = session_call_init(session, &call, err);

    if (rc < 0) {
        return rc;
    }
    made->key = session->next_key;
    made->before = call.state.head;
    rc = call_take(session, &call, made->key, &cost, err);
    session_call_done(&call);
    crash_point("checkpoint-taken");
    if (rc == 0) {
        session->next_key++;
        made->changed = cost.changed;
        made->bytes = cost.bytes;
    }
    return rc;
}

static int take(struct session *session, struct checkpoint *made,
                struct err *err)
{
    int rc = session_files_close(
        session, session_deadline(session, SESSION_WAIT_CALL), err);

    if (rc == 0) {
        rc = take_closed(session, made, err);
        session_files_open(session);
    }
    return rc;
}

int checkpoint_make(struct session *session, const struct checkpoint_why *why,
                    struct checkpoint *out, struct err *err)
{
    struct checkpoint made = {
        .cause = why->cause, .exec = why->exec, .time_us = clock_wall_us()};
    int rc = 0;

    if (why->name) {
        (void)snprintf(made.name, sizeof(made.name), "%s", why->name);
    }
    if (checkpoint_can(session)) {
        rc = checkpoint_settle(session, err);
        if (rc == 0) {
            rc = take(session, &made, err);
        }
    }
    if (rc == -EOPNOTSUPP) { /* This sandbox has none, whatever others have. */
        err_clear(err);
        made.key = 0;
        rc = 0;
    }
    if (rc < 0) {
        return err_wrap(err, rc, "checkpoint");
    }
    *out = made;
    return 0;
}

void checkpoint_made(struct session *session, const struct checkpoint *made)
{
    mutex_lock(&session->lock);
    if (session->has_record) {
        session->record.head = made->key;
    }
    mutex_unlock(&session->lock);
    crash_point("checkpoint-recorded");
    checkpoint_retain(session);
    session_news(session);
}

void checkpoint_unmake(struct session *session, const struct checkpoint *made)
{
    struct limits limits = session_limits(session, SESSION_WAIT_CALL);
    struct err ignored = ERR_INIT;
    struct session_call call;

    if (!made->key || !slots_of(session) ||
        session_call_init(session, &call, &ignored) < 0) {
        return;
    }
    /* Else the next start drops it. */
    (void)!provider_snapshot_drop(call.provider, &call.sandbox, made->key,
                                  &limits, &ignored);
    session_call_done(&call);
}

static struct js *detail_of(const struct checkpoint *made)
{
    struct js *detail = js_object();
    char label[CHECKPOINT_LABEL_SIZE];

    checkpoint_label(made, label);
    js_set_text(detail, "checkpoint", label);
    js_set_text(detail, "cause", checkpoint_cause_name(made->cause));
    js_set_int(detail, "changed", (int64_t)made->changed);
    return detail;
}

static int record(struct session *session, const struct checkpoint *made,
                  const struct caller *caller, struct err *err)
{
    struct js *detail = detail_of(made);
    const struct store_event event = {
        .name = "checkpoint.taken", .caller = caller, .detail = detail};
    int rc = store_checkpoint_add(session->registry->store, session->number,
                                  made, &event, err);

    js_free(detail);
    if (rc < 0) {
        checkpoint_unmake(session, made);
        return err_wrap(err, rc, "cannot record the checkpoint");
    }
    checkpoint_made(session, made);
    return 0;
}

int checkpoint_add(struct session *session, const struct checkpoint_why *why,
                   struct checkpoint *out, struct err *err)
{
    struct checkpoint made;
    int rc = checkpoint_make(session, why, &made, err);

    if (rc == 0 && made.key) {
        rc = record(session, &made, why->caller, err);
    }
    if (rc == 0) {
        *out = made;
    }
    return rc;
}

int checkpoint_run_named(struct session *session, const struct job *job,
                         struct err *err)
{
    const struct checkpoint_why why = {
        .cause = CHECKPOINT_NAMED, .name = job->name, .caller = &job->caller};
    enum session_status status;
    struct checkpoint made = {.key = 0};
    int rc = session_need_engine(session, err);

    if (rc == 0 && (!session_record_status(session, &status) ||
                    (status != SESSION_RUNNING && status != SESSION_PAUSED))) {
        rc = err_set(err, ENOENT, "there is no sandbox");
    }
    if (rc == 0) {
        rc = checkpoint_add(session, &why, &made, err);
    }
    if (rc == 0 && !made.key) {
        rc = err_set(err, EOPNOTSUPP, "%s keeps no checkpoints",
                     session->provider->ops->name);
    }
    if (rc < 0) {
        session_life_failed(session, "checkpoint", &job->caller, err);
    }
    return rc;
}

/* ---- Gathering ---- */

static int count_one(void *arg, char kind, const char *path)
{
    uint64_t *count = arg;

    (void)kind;
    (void)path;
    (*count)++;
    return 0;
}

/* Nobody has seen a write: whether there was one tell the files alone. An
 * engine that does not know may have taken what is the same. */
static void look_closely(struct session *session, struct checkpoint *made)
{
    const struct provider_span span = {.from = made->before, .to = made->key};
    struct limits limits = session_limits(session, SESSION_WAIT_CALL);
    struct err ignored = ERR_INIT;
    struct session_call call;
    uint64_t count = 0;

    if (session_call_init(session, &call, &ignored) == 0) {
        if (provider_changes(call.provider, &call.sandbox, &span, &limits,
                             count_one, &count, &ignored) == 0) {
            made->changed = count;
        }
        session_call_done(&call);
    }
}

static int gather(struct session *session, struct err *err)
{
    const struct checkpoint_why why = {.cause = CHECKPOINT_WRITE};
    bool seen = checkpoint_seen(session);
    struct checkpoint made;
    int rc = checkpoint_make(session, &why, &made, err);

    if (rc < 0 || !made.key) {
        return rc;
    }
    if (made.changed && !seen) {
        look_closely(session, &made);
    }
    if (!made.changed) {
        checkpoint_unmake(session, &made); /* Nothing was to be taken. */
        return 0;
    }
    return record(session, &made, NULL, err);
}

static void tell_failed(struct session *session, const struct err *err)
{
    static const struct caller nobody = {.pid = 0};

    session_life_failed(session, "checkpoint", NULL, err);
    session_fail(session, "checkpoint", 0, NULL, &nobody, err);
}

void checkpoint_gather(struct session *session)
{
    struct err err = ERR_INIT;
    enum session_status status;

    if (!session_record_status(session, &status) ||
        (status != SESSION_RUNNING && status != SESSION_PAUSED) ||
        !checkpoint_dirty(session) || session_need_engine(session, &err) < 0 ||
        !slots_of(session)) {
        return;
    }
    if (gather(session, &err) < 0) {
        tell_failed(session, &err);
    }
}
