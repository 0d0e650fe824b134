/* A session's object and what it tells of itself. See session.h. */
#include "core/session.h"

#include "core/buf.h"
#include "core/checkpoint_priv.h"
#include "core/cleanup.h"
#include "core/exec_priv.h"
#include "core/json.h"
#include "core/registry_priv.h"
#include "core/session_priv.h"

#include <stdio.h>
#include <string.h>

enum {
    FILE_THREADS = 16,
    LIMITS_MAX = 8 * 1024,
};

const char *session_status_name(enum session_status status)
{
    static const char *const names[] = {
        [SESSION_ABSENT] = "absent",           [SESSION_STARTING] = "starting",
        [SESSION_RUNNING] = "running",         [SESSION_PAUSING] = "pausing",
        [SESSION_PAUSED] = "paused",           [SESSION_LOST] = "lost",
        [SESSION_DELETING] = "deleting",       [SESSION_ERROR] = "error",
        [SESSION_UNREACHABLE] = "unreachable",
    };

    return names[status];
}

/* One whose init commands run, or are about to, is not ready for anything
 * else. */
static enum session_status told_locked(struct session *session)
    REQUIRES(session->lock)
{
    enum session_status status = session_status_locked(session);
    bool inits = session->initing ||
                 (session->ensuring && session_init_due_locked(session));

    return status == SESSION_RUNNING && inits ? SESSION_STARTING : status;
}

static int read_record(struct session *session, struct err *err)
    REQUIRES(session->lock)
{
    int rc = store_state_load(session->registry->store, session->number,
                              &session->record, err);

    session->has_record = rc == 0;
    if (rc == -ENOENT) {
        err_clear(err);
        return 0;
    }
    return rc;
}

static int fill(struct session *session, const struct store_session *row,
                struct err *err) REQUIRES(session->lock)
{
    int rc;

    session->life = workers_new(1);
    session->status = workers_new(1);
    session->files = workers_new(FILE_THREADS);
    if (!session->life || !session->status || !session->files ||
        asprintf(&session->dir, "%s/sessions/%llu",
                 session->registry->state_dir,
                 (unsigned long long)row->number) < 0) {
        session->dir = NULL;
        return err_no_memory(err);
    }
    session->number = row->number;
    session->created_us = row->created_us;
    session->generation = row->generation;
    memcpy(session->id, row->id, sizeof(session->id));
    rc = read_record(session, err);
    if (rc == 0) {
        rc = session_config_load(session, row->config, err);
    }
    session->shown = told_locked(session);
    return rc;
}

int session_new(struct registry *registry, const struct store_session *row,
                struct session **out, struct err *err)
{
    struct session *session = calloc(1, sizeof(*session));
    int rc;

    if (!session) {
        return err_no_memory(err);
    }
    session->registry = registry;
    mutex_init(&session->lock);
    cond_init(&session->files_left);
    list_init(&session->link);
    list_init(&session->retry_link);
    list_init(&session->idle_link);
    list_init(&session->wrote_link);
    session_touch(session);
    mutex_lock(&session->lock);
    list_init(&session->queue);
    list_init(&session->joined);
    list_init(&session->execs);
    list_init(&session->files_waiting);
    list_init(&session->views);
    rc = fill(session, row, err);
    session->unsent = rc == 0 && session_unsent_look(session->dir);
    mutex_unlock(&session->lock);
    if (rc < 0) {
        session_free(session);
        return err_wrap(err, rc, "load session '%s'", row->id);
    }
    *out = session;
    return 0;
}

void session_doubted(struct session *session, bool doubted)
{
    mutex_lock(&session->lock);
    session->doubted = doubted && session->has_record;
    mutex_unlock(&session->lock);
}

void session_free(struct session *session)
{
    exec_save_late(session, true);
    workers_free(session->life);
    workers_free(session->status);
    workers_free(session->files);
    session_files_drop(session);
    checkpoint_view_drop(session, 0);
    mutex_lock(&session->lock);
    store_state_done(&session->record);
    buf_done(&session->kept.text);
    config_done(&session->config);
    free(session->unreadable);
    mutex_unlock(&session->lock);
    cond_done(&session->files_left);
    mutex_done(&session->lock);
    free(session->dir);
    free(session);
}

struct work {
    struct registry *registry;
    work_fn *fn;
    void *arg;
};

static void do_work(void *arg)
{
    struct work *work = arg;
    struct registry *registry = work->registry;

    work->fn(work->arg);
    free(work);
    registry_work_end(registry);
}

int session_run(struct session *session, struct workers *workers, work_fn *fn,
                void *arg)
{
    struct work *work = malloc(sizeof(*work));
    int rc;

    if (!work) {
        return -ENOMEM;
    }
    *work = (struct work){session->registry, fn, arg};
    registry_work_begin(work->registry);
    rc = workers_run(workers, do_work, work);
    if (rc < 0) {
        registry_work_end(work->registry);
        free(work);
    }
    return rc;
}

static int check_match(const struct session *session, struct err *err)
    REQUIRES(session->lock)
{
    const char *is = session->has_record ? session->record.provider : NULL;

    return is && strcmp(is, session->config.provider) != 0
               ? err_set(err, EINVAL,
                         "Session sandbox provider mismatch: state has '%s', "
                         "config requests '%s'",
                         is, session->config.provider)
               : 0;
}

int session_usable_locked(struct session *session, struct err *err)
{
    if (session->gone) {
        return err_set(err, ENOENT, "the session was removed");
    }
    if (session->unreadable) {
        *err = *session->unreadable;
        return -err->code;
    }
    return 0;
}

int session_need_provider_locked(struct session *session, struct err *err)
{
    int rc = check_match(session, err);

    return rc < 0 || session->provider
               ? rc
               : registry_no_provider(session->registry,
                                      session->config.provider, err);
}

int session_need_provider(struct session *session, struct err *err)
{
    struct provider *provider;
    int rc;

    mutex_lock(&session->lock);
    rc = check_match(session, err);
    provider = session->provider;
    mutex_unlock(&session->lock);
    if (rc < 0 || provider) {
        return rc;
    }
    rc = registry_open_provider(session->registry, session->config.provider,
                                &provider, err);
    if (rc == 0) {
        mutex_lock(&session->lock);
        session->provider = provider;
        mutex_unlock(&session->lock);
    }
    return rc;
}

const struct provider_ops *session_ops(struct session *session)
{
    const struct provider_ops *ops;

    mutex_lock(&session->lock);
    ops = registry_ops(session->registry, session->config.provider);
    mutex_unlock(&session->lock);
    return ops;
}

uint64_t session_number(const struct session *session)
{
    return session->number;
}

void session_id(struct session *session, char out[SESSION_ID_SIZE])
{
    mutex_lock(&session->lock);
    memcpy(out, session->id, SESSION_ID_SIZE);
    mutex_unlock(&session->lock);
}

int64_t session_created_us(const struct session *session)
{
    return session->created_us;
}

bool session_gone(struct session *session)
{
    bool gone;

    mutex_lock(&session->lock);
    gone = session->gone;
    mutex_unlock(&session->lock);
    return gone;
}

enum session_status session_status(struct session *session)
{
    enum session_status status;

    session_observe(session);
    mutex_lock(&session->lock);
    status = told_locked(session);
    mutex_unlock(&session->lock);
    return status;
}

static const char *state_word(const struct observation *seen)
{
    if (!seen->known || seen->rc < 0) {
        return NULL;
    }
    switch (seen->state) {
    case PROVIDER_RUNNING:
        return "running";
    case PROVIDER_PAUSED:
        return "paused";
    case PROVIDER_LOST:
        break;
    }
    return "lost";
}

static void add_record(struct session *session, struct js *js)
    REQUIRES(session->lock)
{
    const struct store_state *record = &session->record;
    const struct instance *instance = &record->instance;

    js_set_text(js, "session_status",
                session->has_record ? session_status_name(record->status)
                                    : NULL);
    js_set_text(js, "external_id", instance->external_id);
    js_set_text(js, "display_name", instance->display_name);
    js_set_text(js, "workspace_path", instance->workspace_path);
    js_set_raw(js, "metadata", instance->metadata);
    js_set_time(js, "init_completed_at", record->init_completed_us);
    js_set_text(js, "last_init_error",
                session->initing ? NULL : record->last_init_error);
    js_set_time(js, "created_at", record->created_us);
    js_set_time(js, "updated_at", record->updated_us);
}

static void add_all(struct session *session, struct js *js)
    REQUIRES(session->lock)
{
    const struct observation *seen = &session->seen;

    js_set_bool(js, "configured", !session->unreadable);
    js_set_bool(js, "exists", session->has_record);
    js_set_text(js, "provider", session->config.provider);
    add_record(session, js);
    js_set_text(js, "observed", session_status_name(told_locked(session)));
    js_set_time(js, "observed_at", seen->known ? seen->at_us : 0);
    js_set_text(js, "engine_state", state_word(seen));
    js_set_int(js, "generation", (int64_t)session->generation);
}

/* Asks the provider how a sandbox's limits are enforced here. */
static void add_limits(struct session *session, struct js *js)
{
    AUTO_FREE char *config = NULL;
    char id[SESSION_ID_SIZE];
    struct instance instance = {.external_id = NULL};
    struct sandbox sandbox = {
        .number = session->number,
        .id = id,
        .dir = session->dir,
        .instance = &instance,
    };
    struct buf text = BUF_INIT(LIMITS_MAX);
    struct err err = ERR_INIT;
    struct provider *provider;

    mutex_lock(&session->lock);
    memcpy(id, session->id, sizeof(id));
    config = strdup(session->config.provider_config);
    provider = session->provider;
    mutex_unlock(&session->lock);
    sandbox.config = config;
    if (!provider || !config ||
        provider_limits(provider, &sandbox, &text, &err) < 0) {
        js_set(js, "limits", js_object());
    } else {
        js_set_raw(js, "limits", buf_str(&text));
    }
    buf_done(&text);
}

int session_status_json(struct session *session, struct buf *out,
                        struct err *err)
{
    struct js *js = js_object();
    int rc;

    session_observe(session);
    if (js) {
        mutex_lock(&session->lock);
        add_all(session, js);
        mutex_unlock(&session->lock);
        add_limits(session, js);
    }
    rc = js_write(js, out);
    js_free(js);
    if (rc == 0) {
        rc = buf_add(out, "\n", 1);
    }
    return rc < 0 ? err_set(err, -rc, "cannot write the status") : 0;
}

void session_news(struct session *session)
{
    const struct registry_hooks *hooks = &session->registry->hooks;

    if (hooks->news) {
        hooks->news(hooks->arg, session);
    }
}

void session_changed(struct session *session)
{
    const struct registry_hooks *hooks = &session->registry->hooks;

    session_files_changed(session);
    if (hooks->changed) {
        hooks->changed(hooks->arg, session);
    }
}

void session_note(struct session *session)
{
    enum session_status status;
    bool news;

    mutex_lock(&session->lock);
    status = told_locked(session);
    news = status != session->shown;
    session->shown = status;
    mutex_unlock(&session->lock);
    if (news) {
        session_news(session);
    }
}

void session_event(struct session *session, const char *name, uint64_t exec_n,
                   const struct caller *caller, struct js *detail)
{
    const struct store_event event = {
        .name = name, .exec = exec_n, .caller = caller, .detail = detail};
    struct err err = ERR_INIT;

    /* What the event tells has happened, whether it can be written or not. */
    (void)!store_event_add(session->registry->store, session->number, &event,
                           &err);
    js_free(detail);
    session_news(session);
}
