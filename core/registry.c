/* All sessions of a mount. See registry.h. */
#include "core/registry.h"

#include "core/cleanup.h"
#include "core/config.h"
#include "core/crash.h"
#include "core/json.h"
#include "core/registry_priv.h"
#include "core/session_priv.h"

#include <stdio.h>
#include <string.h>

enum {
    LIST_BATCH = 64
};

#define ALNUM "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

bool session_id_valid(const char *id)
{
    size_t size = strlen(id);

    return size <= SESSION_ID_MAX && strspn(id, ALNUM) > 0 &&
           strspn(id, ALNUM "._-") == size;
}

int registry_check_id(const char *id, struct err *err)
{
    return session_id_valid(id)
               ? 0
               : err_set(err, EINVAL,
                         "a session's name is up to %d of A-Z a-z 0-9 . _ - "
                         "and begins with a letter or digit",
                         SESSION_ID_MAX);
}

/* ---- Loaded sessions ---- */

static struct list *bucket_of(struct registry *registry, uint64_t number)
    REQUIRES(registry->lock)
{
    return &registry->buckets[number % REGISTRY_BUCKETS];
}

static struct session *find_loaded(struct registry *registry, uint64_t number)
    REQUIRES(registry->lock)
{
    list_each(node, bucket_of(registry, number))
    {
        struct session *session = container_of(node, struct session, link);

        if (session->number == number) {
            session->refs++;
            return session;
        }
    }
    return NULL;
}

bool registry_first_met(struct registry *registry, uint64_t number)
{
    const char none = 0;
    const unsigned bit = 1U << number % 8;
    struct buf *met = &registry->met;
    unsigned char *at;
    bool first;

    while (met->size <= number / 8) {
        if (buf_add(met, &none, 1) < 0) {
            return true;
        }
    }
    at = (unsigned char *)&met->data[number / 8];
    first = !(*at & bit);
    *at = (unsigned char)(*at | bit);
    return first;
}

static int load_locked(struct registry *registry,
                       const struct store_session *row, struct session **out,
                       struct err *err) REQUIRES(registry->lock)
{
    struct session *session = find_loaded(registry, row->number);
    int rc;

    if (session) {
        *out = session;
        return 0;
    }
    rc = session_new(registry, row, &session, err);
    if (rc == 0) {
        session_doubted(session, store_cut_off(registry->store) &&
                                     registry_first_met(registry, row->number));
        session->refs = 1;
        list_add(bucket_of(registry, row->number), &session->link);
        registry->loaded++;
        *out = session;
    }
    return rc;
}

int registry_load(struct registry *registry, uint64_t number,
                  struct session **out, struct err *err)
{
    struct store_session row;
    int rc;

    mutex_lock(&registry->lock);
    rc = store_session_get(registry->store, number, &row, err);
    if (rc == 0) {
        rc = load_locked(registry, &row, out, err);
        store_session_done(&row);
    }
    mutex_unlock(&registry->lock);
    return rc;
}

int registry_each_with(struct registry *registry, enum session_status status,
                       void (*fn)(struct session *session), struct err *err)
{
    uint64_t numbers[LIST_BATCH];
    uint64_t after = 0;
    ssize_t count = LIST_BATCH;

    while (count == LIST_BATCH) {
        count = store_state_list(registry->store, status, after, numbers,
                                 LIST_BATCH, err);
        for (ssize_t i = 0; i < count; i++) {
            struct session *session = NULL;
            int rc = registry_load(registry, numbers[i], &session, err);

            if (rc < 0) {
                return rc;
            }
            fn(session);
            session_unref(session);
            after = numbers[i];
        }
    }
    return count < 0 ? (int)count : 0;
}

static int find_locked(struct registry *registry, const char *id,
                       struct session **out, struct err *err)
    REQUIRES(registry->lock)
{
    struct store_session row;
    int rc = session_id_valid(id)
                 ? store_session_find(registry->store, id, &row, err)
                 : err_set(err, ENOENT, "no such session");

    if (rc == 0) {
        rc = load_locked(registry, &row, out, err);
        store_session_done(&row);
    }
    return rc;
}

int registry_find(struct registry *registry, const char *id,
                  struct session **out, struct err *err)
{
    int rc;

    mutex_lock(&registry->lock);
    rc = find_locked(registry, id, out, err);
    mutex_unlock(&registry->lock);
    return rc;
}

struct session *session_ref(struct session *session)
{
    (void)atomic_fetch_add(&session->refs, 1);
    return session;
}

/* Frees a session that nobody holds any more; in the loop's thread, since a
 * session's own threads cannot wait for themselves. */
static void reap(void *arg)
{
    struct session *session = arg;
    struct registry *registry = session->registry;
    bool unused;

    mutex_lock(&registry->lock);
    session->reap_posted = false;
    unused = session->refs == 0;
    if (unused) {
        list_remove(&session->link);
        registry->loaded--;
    }
    mutex_unlock(&registry->lock);
    if (unused) {
        session_free(session);
    }
}

/* Gives back a reference that is not the last: no lock is needed for it. */
static bool unref_one_of_many(struct session *session)
{
    unsigned refs = atomic_load(&session->refs);

    while (refs > 1) {
        if (atomic_compare_exchange_weak(&session->refs, &refs, refs - 1)) {
            return true;
        }
    }
    return false;
}

void session_unref(struct session *session)
{
    struct registry *registry;
    bool post;

    if (!session || unref_one_of_many(session)) {
        return;
    }
    registry = session->registry;
    mutex_lock(&registry->lock);
    session->refs--;
    post = session->refs == 0 && !session->reap_posted && !registry->dead;
    session->reap_posted = session->reap_posted || post;
    if (post) {
        loop_post(registry->loop, reap, session);
    }
    mutex_unlock(&registry->lock);
}

/* ---- Counting ---- */

bool registry_job_begin(struct registry *registry, bool internal)
{
    bool open;

    mutex_lock(&registry->lock);
    open = internal || !registry->closing;
    registry->jobs += open;
    mutex_unlock(&registry->lock);
    return open;
}

void registry_job_end(struct registry *registry)
{
    mutex_lock(&registry->lock);
    registry->jobs--;
    cond_broadcast(&registry->calm);
    mutex_unlock(&registry->lock);
}

void registry_work_begin(struct registry *registry)
{
    mutex_lock(&registry->lock);
    registry->works++;
    mutex_unlock(&registry->lock);
}

void registry_work_end(struct registry *registry)
{
    mutex_lock(&registry->lock);
    registry->works--;
    cond_broadcast(&registry->calm);
    mutex_unlock(&registry->lock);
}

void registry_sink_begin(struct registry *registry)
{
    mutex_lock(&registry->lock);
    registry->sinks++;
    mutex_unlock(&registry->lock);
}

void registry_sink_end(struct registry *registry)
{
    mutex_lock(&registry->lock);
    registry->sinks--;
    cond_broadcast(&registry->calm);
    mutex_unlock(&registry->lock);
}

bool registry_closing(struct registry *registry)
{
    bool closing;

    mutex_lock(&registry->lock);
    closing = registry->closing;
    mutex_unlock(&registry->lock);
    return closing;
}

bool registry_engines_closed(struct registry *registry)
{
    bool closed;

    mutex_lock(&registry->lock);
    closed = registry->engines_closed;
    mutex_unlock(&registry->lock);
    return closed;
}

/* ---- Creating, removing, renaming ---- */

static int create_locked(struct registry *registry, const char *id,
                         const char *config, const struct caller *caller,
                         struct session **out, struct err *err)
    REQUIRES(registry->lock)
{
    struct store_session row;
    uint64_t number = 0;
    int rc =
        store_session_add(registry->store, id, config, caller, &number, err);

    if (rc < 0 || !out) {
        return rc;
    }
    rc = store_session_get(registry->store, number, &row, err);
    if (rc == 0) {
        rc = load_locked(registry, &row, out, err);
        store_session_done(&row);
    }
    return rc;
}

int registry_add(struct registry *registry, const char *id,
                 const struct config *config, const struct caller *caller,
                 struct session **out, struct err *err)
{
    AUTO_FREE char *text = NULL;
    struct session *session = NULL;
    bool needed = out || config->auto_start;
    int rc = registry_check_id(id, err);

    if (rc == 0) {
        rc = registry_look(registry, config, err);
    }
    if (rc == 0) {
        rc = config_text(config, &text, err);
    }
    if (rc < 0) {
        return rc;
    }
    mutex_lock(&registry->lock);
    rc = create_locked(registry, id, text, caller, needed ? &session : NULL,
                       err);
    mutex_unlock(&registry->lock);
    if (rc < 0) {
        return rc;
    }
    if (config->auto_start) {
        session_auto_start(session, caller);
    }
    if (out) {
        *out = session;
    } else {
        session_unref(session);
    }
    return 0;
}

int registry_create(struct registry *registry, const char *id,
                    const struct caller *caller, struct session **out,
                    struct err *err)
{
    const struct profile *profile = registry_profile(registry, "default");

    return registry_add(registry, id, &profile->config, caller, out, err);
}

/* A deletion whose sandbox is gone is as good as over: `absent` is told. And a
 * file operation, without a sandbox, does nothing any more: most were answered
 * and have yet to leave. */
static bool is_busy(struct session *session) REQUIRES(session->lock)
{
    return (session->current && session->current->kind != JOB_DESTROY) ||
           !list_empty(&session->queue) || session->background;
}

/* From here on nothing begins in the session, or it stays. */
static int close_session(struct session *session, struct err *err)
{
    int rc = 0;

    mutex_lock(&session->lock);
    if (session->has_record) {
        rc = err_set(err, ENOTEMPTY,
                     "the session has a sandbox; write 'absent' to its "
                     "status first");
    } else if (is_busy(session)) {
        rc = err_set(err, EBUSY,
                     "the session is busy: a command or a change of its status "
                     "has not ended");
    } else {
        session->gone = true;
    }
    mutex_unlock(&session->lock);
    return rc;
}

static void reopen_session(struct session *session)
{
    mutex_lock(&session->lock);
    session->gone = false;
    mutex_unlock(&session->lock);
}

int registry_remove(struct registry *registry, const char *id, struct err *err)
{
    struct session *session = NULL;
    int rc = registry_find(registry, id, &session, err);

    if (rc < 0) {
        return rc;
    }
    rc = close_session(session, err);
    if (rc == 0) {
        rc = store_session_remove(registry->store, session->number, err);
        if (rc < 0) {
            reopen_session(session);
        } else {
            crash_point("session-removed");
            registry_trash(registry, session->number);
        }
    }
    session_unref(session);
    return rc;
}

static void set_id(struct session *session, const char *id)
{
    mutex_lock(&session->lock);
    (void)snprintf(session->id, sizeof(session->id), "%s", id);
    mutex_unlock(&session->lock);
}

/* Under the registry's lock, so that no load sees half of it. */
static int rename_locked(struct registry *registry, struct session *session,
                         const char *new_id, const struct store_event *event,
                         struct err *err) REQUIRES(registry->lock)
{
    int rc = store_session_rename(registry->store, session->number, new_id,
                                  event, err);

    if (rc == 0) {
        set_id(session, new_id);
    }
    return rc;
}

int registry_rename(struct registry *registry, const char *id,
                    const char *new_id, const struct caller *caller,
                    struct err *err)
{
    struct session *session = NULL;
    struct store_event event = {.name = "session.renamed", .caller = caller};
    struct js *detail;
    int rc = registry_check_id(new_id, err);

    if (rc == 0) {
        rc = registry_find(registry, id, &session, err);
    }
    if (rc < 0) {
        return rc;
    }
    detail = js_object();
    js_set_text(detail, "from", id);
    js_set_text(detail, "to", new_id);
    event.detail = detail;
    mutex_lock(&registry->lock);
    rc = rename_locked(registry, session, new_id, &event, err);
    mutex_unlock(&registry->lock);
    js_free(detail);
    if (rc == 0) {
        session_news(session);
    }
    session_unref(session);
    return rc;
}

int registry_each(struct registry *registry, uint64_t after,
                  bool (*fn)(void *arg, uint64_t number, const char *id),
                  void *arg, struct err *err)
{
    AUTO_FREE struct store_session *rows = calloc(LIST_BATCH, sizeof(*rows));
    ssize_t count = LIST_BATCH;

    if (!rows) {
        return err_no_memory(err);
    }
    while (count == LIST_BATCH) {
        count =
            store_session_list(registry->store, after, rows, LIST_BATCH, err);
        for (ssize_t i = 0; i < count; i++) {
            if (!fn(arg, rows[i].number, rows[i].id)) {
                return 0;
            }
            after = rows[i].number;
        }
    }
    return count < 0 ? (int)count : 0;
}

uint64_t registry_count(struct registry *registry)
{
    return store_session_count(registry->store);
}
