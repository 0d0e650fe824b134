/*
 * Which checkpoints stay: dropping one, retention, and the texts of changes
 * that outlive what they were made from. See checkpoint.h.
 */
#include "core/buf.h"
#include "core/checkpoint_priv.h"
#include "core/clock.h"
#include "core/crash.h"
#include "core/json.h"
#include "core/registry_priv.h"

#include <errno.h>

enum {
    TEXT_MAX = 16 * 1024 * 1024, /* Of what changed. */
    MOST_DROPS = 32,             /* At once; others have their turn then. */
    SECOND_US = 1000000,
};

/* ---- Texts ---- */

/* Whether a span is what a checkpoint or a command shows as its own. */
static bool is_step(struct session *session, const struct provider_span *span)
{
    struct checkpoint c;
    struct err none = ERR_INIT;

    return store_checkpoint_row(session->registry->store, session->number,
                                span->to, &c, &none) > 0 &&
           c.before == span->from;
}

int checkpoint_changes(struct session *session,
                       const struct provider_span *span, struct buf *out,
                       struct err *err)
{
    struct store *store = session->registry->store;
    struct err none = ERR_INIT;
    int rc = store_changes_get(store, session->number, span->from, span->to,
                               out, err);

    if (rc != -ENOENT) {
        return rc;
    }
    err_clear(err);
    rc = session_changes(session, span, out, err);
    if (rc == 0 && is_step(session, span)) {
        /* Else it is made again. */
        (void)!store_changes_put(store, session->number, span->from, span->to,
                                 buf_str(out), out->size, &none);
    }
    return rc;
}

uint64_t checkpoint_changes_size(struct session *session,
                                 const struct provider_span *span)
{
    uint64_t size = 0;

    return store_changes_size(session->registry->store, session->number,
                              span->from, span->to, &size)
               ? size
               : 0;
}

bool checkpoint_changes_there(struct session *session,
                              const struct provider_span *span)
{
    struct store *store = session->registry->store;
    struct err ignored = ERR_INIT;
    struct checkpoint c;
    uint64_t size;

    return span->from == span->to ||
           store_changes_size(store, session->number, span->from, span->to,
                              &size) ||
           store_checkpoint_row(store, session->number, span->to, &c,
                                &ignored) != 0;
}

static int keep_text(struct session *session, uint64_t from, uint64_t to,
                     struct err *err)
{
    const struct provider_span span = {.from = from, .to = to};
    struct buf text = BUF_INIT(TEXT_MAX);
    int rc = checkpoint_changes(session, &span, &text, err);

    buf_done(&text);
    if (rc == -EOPNOTSUPP || rc == -ENOENT || rc == -EFBIG) {
        err_clear(err); /* There is nothing that could be kept. */
        rc = 0;
    }
    return rc;
}

/* What commands and other checkpoints show needs this one to be made. */
static int keep_texts(struct session *session, const struct checkpoint *c,
                      struct err *err)
{
    struct store *store = session->registry->store;
    struct checkpoint next = {.key = 0};
    int rc = c->exec ? keep_text(session, c->before, c->key, err) : 0;
    int more = 1;

    while (rc == 0 && more > 0) {
        more = store_checkpoint_after(store, session->number, c->key,
                                      next.key + 1, &next, err);
        rc = more > 0 ? keep_text(session, c->key, next.key, err) : more;
    }
    return rc;
}

/* ---- Dropping ---- */

static int call_drop(struct session *session, uint64_t key, struct err *err)
{
    struct limits limits = session_limits(session, SESSION_WAIT_CALL);
    struct session_call call;
    int rc = session_call_init(session, &call, err);

    if (rc < 0) {
        return rc;
    }
    if (call.provider->ops->snapshots) {
        rc = provider_snapshot_drop(call.provider, &call.sandbox, key, &limits,
                                    err);
    }
    session_call_done(&call);
    return rc;
}

static uint64_t head_of(struct session *session)
{
    uint64_t head;

    mutex_lock(&session->lock);
    head = session->has_record ? session->record.head : 0;
    mutex_unlock(&session->lock);
    return head;
}

/* The one that the files are since stays, unseen, until there is another: what
 * changes next is told against it. */
static int drop(struct session *session, const struct checkpoint *c,
                const struct store_event *event, struct err *err)
{
    struct store *store = session->registry->store;
    bool stays = c->key == head_of(session);
    int rc = stays ? 0 : keep_texts(session, c, err);

    /* First: nothing is shown that is not there. */
    if (rc == 0 && !c->gone) {
        rc = store_checkpoint_hide(store, session->number, c->key, event, err);
    }
    if (rc == 0 && !stays) {
        checkpoint_view_drop(session, c->key);
        rc = call_drop(session, c->key, err);
        crash_point("drop-done");
    }
    if (rc < 0 || stays) {
        session->hidden = true; /* It is yet to go. */
        return rc;
    }
    return store_checkpoint_drop(store, session->number, c, NULL, err);
}

/* With its event. Nobody asked: retention. */
static int drop_with_event(struct session *session, const struct checkpoint *c,
                           const struct caller *caller, struct err *err)
{
    struct js *detail = js_object();
    const struct store_event event = {
        .name = "checkpoint.dropped", .caller = caller, .detail = detail};
    char label[CHECKPOINT_LABEL_SIZE];
    int rc;

    checkpoint_label(c, label);
    js_set_text(detail, "checkpoint", label);
    if (!caller) {
        js_set_text(detail, "cause", "retention");
    }
    rc = drop(session, c, c->gone ? NULL : &event, err);
    js_free(detail);
    if (rc == 0) {
        session_news(session);
    }
    return rc;
}

int checkpoint_run_drop(struct session *session, const struct job *job,
                        struct err *err)
{
    struct checkpoint c;
    int rc = session_need_engine(session, err);

    if (rc == 0) {
        rc = checkpoint_settle(session, err);
    }
    if (rc == 0) {
        rc = store_checkpoint_get(session->registry->store, session->number,
                                  job->key, &c, err);
    }
    return rc < 0 ? rc : drop_with_event(session, &c, &job->caller, err);
}

/* ---- Retention ---- */

static bool is_too_much(const struct session *session,
                        const struct store_checkpoint_sum *sum)
{
    const struct config *config = &session->config;
    int64_t age_us = clock_wall_us() - sum->time_us;

    return sum->first &&
           ((config->checkpoints_keep &&
             sum->count > (uint64_t)config->checkpoints_keep) ||
            (config->checkpoints_keep_bytes &&
             sum->bytes > (uint64_t)config->checkpoints_keep_bytes) ||
            (config->checkpoints_keep_seconds &&
             age_us > config->checkpoints_keep_seconds * SECOND_US));
}

/* Which one is to go; 1, 0 for none, or a negative errno. */
static int find_surplus(struct session *session, struct checkpoint *out,
                        struct err *err)
{
    struct store *store = session->registry->store;
    struct store_checkpoint_sum sum = {.count = 0};
    uint64_t key;
    int rc = store_checkpoint_sum(store, session->number, head_of(session),
                                  &sum, err);

    if (rc < 0) {
        return rc;
    }
    session->checkpoints = sum.count;
    key = is_too_much(session, &sum) ? sum.first : 0;
    key = sum.gone ? sum.gone : key;
    return key ? store_checkpoint_row(store, session->number, key, out, err)
               : 0;
}

/* What fails now is tried again after the next one. */
static void retain(void *arg)
{
    struct session *session = arg;
    struct err err = ERR_INIT;
    struct checkpoint c;
    int rc = 1;

    for (int i = 0; rc > 0 && i < MOST_DROPS; i++) {
        rc = session_need_engine(session, &err) < 0
                 ? 0
                 : find_surplus(session, &c, &err);
        if (rc > 0 && drop_with_event(session, &c, NULL, &err) < 0) {
            session_life_failed(session, "drop", NULL, &err);
            rc = 0;
        }
    }
    session_unref(session);
}

/* Whether it may be time: to know it would take a look at all of them. */
static bool is_due(struct session *session)
{
    const struct config *config = &session->config;

    session->checkpoints++;
    return session->hidden || config->checkpoints_keep_bytes ||
           config->checkpoints_keep_seconds ||
           (config->checkpoints_keep &&
            session->checkpoints > (uint64_t)config->checkpoints_keep);
}

void checkpoint_retain(struct session *session)
{
    if (!is_due(session)) {
        return;
    }
    session->hidden = false;
    (void)session_ref(session);
    if (session_run(session, session->life, retain, session) < 0) {
        session_unref(session);
    }
}
