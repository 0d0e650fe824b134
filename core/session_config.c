/* A session's config: what it says, and how it changes. See session.h. */
#include "core/cleanup.h"
#include "core/json.h"
#include "core/registry_priv.h"
#include "core/session_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- What it says ---- */

static int read_config(const struct registry *registry, const char *text,
                       struct config *out, struct err *err)
{
    struct config config;
    const struct provider_ops *ops;
    int rc = config_parse(text, &config, err);

    if (rc < 0) {
        return rc;
    }
    ops = registry_ops(registry, config.provider);
    rc = ops ? config_fill(&config, ops->keys, err) : 0;
    if (rc < 0) {
        config_done(&config);
        return rc;
    }
    *out = config;
    return 0;
}

/* Takes what the provider was told, where that much can be read. */
static int salvage(const char *text, struct config *out, struct err *err)
{
    struct buf inner = BUF_INIT(CONFIG_TEXT_MAX);
    struct js *js = NULL;
    struct js *value = NULL;
    int rc = 0;

    if (js_parse(text, strlen(text), &js, err) == 0 && js_is_object(js)) {
        value = js_get(js, "provider_config");
    }
    if (value && js_is_object(value)) {
        rc = js_write(value, &inner);
    }
    if (rc == 0 && inner.size) {
        char *copy = strdup(buf_str(&inner));

        rc = copy ? 0 : -ENOMEM;
        if (copy) {
            free(out->provider_config);
            out->provider_config = copy;
        }
    }
    js_free(value);
    js_free(js);
    buf_done(&inner);
    return rc < 0 ? err_no_memory(err) : 0;
}

/* So that the session can be seen, and its sandbox ended. */
static int stand_in(struct session *session, const char *text, struct err *why)
    REQUIRES(session->lock)
{
    const struct registry *registry = session->registry;
    const char *provider = session->has_record && session->record.provider
                               ? session->record.provider
                               : registry->provider;
    struct err err = ERR_INIT;
    int rc = config_default(provider, &session->config, &err);

    if (rc == 0) {
        rc = salvage(text, &session->config, &err);
    }
    session->unreadable = rc < 0 ? NULL : malloc(sizeof(*why));
    if (!session->unreadable) {
        return err_no_memory(why);
    }
    (void)err_set(session->unreadable, EIO,
                  "the stored config cannot be read; write another to "
                  "config.json, or 'absent' to status, then rmdir: %s",
                  why->msg);
    err_clear(why);
    return 0;
}

int session_config_load(struct session *session, const char *text,
                        struct err *err)
{
    int rc = read_config(session->registry, text, &session->config, err);

    if (rc < 0 && rc != -ENOMEM) {
        rc = stand_in(session, text, err);
    }
    if (rc == 0) {
        session->provider =
            registry_provider(session->registry, session->config.provider);
    }
    return rc;
}

static int text_of(struct session *session, char **out, uint64_t *version,
                   struct err *err)
{
    int rc;

    mutex_lock(&session->lock);
    *version = session->config_version;
    rc = config_text(&session->config, out, err);
    mutex_unlock(&session->lock);
    return rc;
}

/* As it is stored. */
static int stored_text(struct session *session, char **out, struct err *err)
{
    struct store_session row;
    int rc =
        store_session_get(session->registry->store, session->number, &row, err);

    if (rc == 0) {
        *out = TAKE_PTR(row.config);
        store_session_done(&row);
    }
    return rc;
}

int session_config_text(struct session *session, struct buf *out,
                        struct err *err)
{
    AUTO_FREE char *text = NULL;
    uint64_t version;
    bool unreadable;
    int rc;

    mutex_lock(&session->lock);
    unreadable = session->unreadable;
    mutex_unlock(&session->lock);
    rc = unreadable ? stored_text(session, &text, err)
                    : text_of(session, &text, &version, err);
    if (rc < 0) {
        return rc;
    }
    return buf_add(out, text, strlen(text)) < 0 ? err_no_memory(err) : 0;
}

/* ---- What changes ---- */

/* A config that is about to come after another one. */
struct change {
    uint64_t version; /* Of the one before. */
    char *text;       /* Of the new one. */
    struct config config;
    struct js *before;  /* The one before. */
    struct js *changed; /* The names of fields that differ, an array. */
    size_t count;       /* Of them, */
    bool other;         /* and whether one is not `init`. */
};

static void change_done(struct change *change)
{
    config_done(&change->config);
    js_free(change->before);
    js_free(change->changed);
    free(change->text);
}

static int compare(void *arg, const char *key, const struct js *value,
                   struct err *err)
{
    struct change *change = arg;
    struct js *before = js_get(change->before, key);

    (void)err;
    if (!js_equal(before, value)) {
        js_add_bytes(change->changed, key, strlen(key));
        change->count++;
        change->other |= strcmp(key, "init") != 0;
    }
    js_free(before);
    return 0;
}

/* All fields are in both. */
static int find_changes(struct change *change, struct err *err)
{
    struct js *now = NULL;
    int rc = config_text(&change->config, &change->text, err);

    if (rc == 0) {
        rc = js_parse(change->text, strlen(change->text), &now, err);
    }
    if (rc == 0) {
        change->changed = js_array();
        rc = js_each(now, compare, change, err);
    }
    js_free(now);
    return rc;
}

/* Reads a config that comes after the present one. */
static int read_change(struct session *session, const struct js *js,
                       struct change *out, struct err *err)
{
    AUTO_FREE char *text = NULL;
    struct config before;
    int rc = text_of(session, &text, &out->version, err);

    if (rc == 0) {
        rc = js_parse(text, strlen(text), &out->before, err);
    }
    if (rc == 0) {
        rc = config_read(out->before, &before, err);
    }
    if (rc < 0) {
        return rc;
    }
    rc = registry_read_config(session->registry, js, config_is_none(js),
                              &before, &out->config, err);
    config_done(&before);
    if (rc == 0) {
        rc = registry_look(session->registry, &out->config, err);
    }
    return rc < 0 ? rc : find_changes(out, err);
}

/* ---- Changing ---- */

static int may_change(struct session *session, const struct change *change,
                      struct err *err) REQUIRES(session->lock)
{
    if (session->gone) {
        return err_set(err, ENOENT, "the session was removed");
    }
    if (session->config_version != change->version) {
        return err_set(err, EAGAIN, "somebody else changed the config");
    }
    if (change->count == 0) {
        return 0;
    }
    if (session->has_record && !session->unreadable &&
        (change->other || session->record.init_completed_us)) {
        return err_set(err, EBUSY,
                       "the session has a sandbox: only its 'init' may "
                       "change, until it has succeeded; write 'absent' to "
                       "status first");
    }
    return session->current ? err_set(err, EBUSY,
                                      "the session's sandbox is being started, "
                                      "used or deleted")
                            : 0;
}

static int record(struct session *session, struct change *change,
                  const struct caller *caller, struct err *err)
{
    struct js *detail = js_object();
    const struct store_event event = {
        .name = "session.configured", .caller = caller, .detail = detail};
    int rc;

    js_set_text(detail, "provider", change->config.provider);
    js_set(detail, "changed", TAKE_PTR(change->changed));
    rc = store_session_configure(session->registry->store, session->number,
                                 change->text, &event, err);
    js_free(detail);
    return rc;
}

static int change_locked(struct session *session, struct change *change,
                         struct provider *provider, const struct caller *caller,
                         struct err *err) REQUIRES(session->lock)
{
    struct config old;
    int rc = may_change(session, change, err);

    if (rc < 0 || change->count == 0) {
        return rc;
    }
    rc = record(session, change, caller, err);
    if (rc < 0) {
        return rc;
    }
    old = session->config;
    session->config = change->config;
    change->config = old;
    session->provider = provider;
    free(TAKE_PTR(session->unreadable));
    session->config_version++;
    return 0;
}

static int apply(struct session *session, const struct js *js,
                 const struct caller *caller, bool *changed, struct err *err)
{
    struct change change = {.version = 0};
    int rc = read_change(session, js, &change, err);

    if (rc == 0) {
        struct provider *provider =
            registry_provider(session->registry, change.config.provider);

        mutex_lock(&session->lock);
        /* What cannot be read is replaced, by what stands in for it too. */
        change.count += session->unreadable != NULL;
        rc = change_locked(session, &change, provider, caller, err);
        mutex_unlock(&session->lock);
        *changed = change.count > 0;
    }
    change_done(&change);
    return rc;
}

int session_configure(struct session *session, const char *text, size_t size,
                      const struct caller *caller, struct err *err)
{
    struct js *js = NULL;
    bool changed = false;
    int rc = config_json(text, size, &js, err);

    if (rc < 0) {
        return rc;
    }
    do {
        err_clear(err);
        rc = apply(session, js, caller, &changed, err);
    } while (rc == -EAGAIN);
    js_free(js);
    if (rc == 0 && changed) {
        session_news(session);
    }
    return rc;
}

/* ---- Starting by itself ---- */

struct start {
    struct session *session; /* A reference. */
    struct caller caller;
};

static void started(void *arg, int rc, const struct err *err)
{
    struct start *start = arg;
    struct js *detail;

    if (rc < 0) {
        session_fail(start->session, "auto_start", 0, NULL, &start->caller,
                     err);
        detail = js_object();
        js_set_text(detail, "message", err->msg);
        session_event(start->session, "session.not_started", 0, &start->caller,
                      detail);
    }
    session_unref(start->session);
    free(start);
}

void session_auto_start(struct session *session, const struct caller *caller)
{
    struct start *start = malloc(sizeof(*start));

    /* The first use starts it then. */
    if (!start) {
        return;
    }
    start->session = session_ref(session);
    start->caller = *caller;
    session_ensure(session, false, caller, started, start);
}
