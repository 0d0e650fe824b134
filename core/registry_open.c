/* The registry's beginning and end. See registry.h. */
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/exec.h"
#include "core/registry_priv.h"
#include "core/session_priv.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    LIST_BATCH = 256,
    AFTERMATH_MS = 5000, /* How long cancelled work may take to end. */
};

/* ---- Opening ---- */

static const struct provider_ops *
find_ops(const struct provider_ops *const *table, const char *name)
{
    for (; *table; table++) {
        if (strcmp((*table)->name, name) == 0) {
            return *table;
        }
    }
    return NULL;
}

static struct registry_provider *find_provider(struct registry *registry,
                                               const char *name)
{
    list_each(node, &registry->providers)
    {
        struct registry_provider *entry =
            container_of(node, struct registry_provider, link);

        if (strcmp(entry->ops->name, name) == 0) {
            return entry;
        }
    }
    return NULL;
}

struct provider *registry_provider(struct registry *registry, const char *name)
{
    const struct registry_provider *entry = find_provider(registry, name);

    return entry ? entry->provider : NULL;
}

static int not_registered(const char *name, int code, struct err *err)
{
    return err_set(err, code, "Session sandbox provider '%s' is not registered",
                   name);
}

int registry_no_provider(struct registry *registry, const char *name,
                         struct err *err)
{
    const struct registry_provider *entry = find_provider(registry, name);

    if (!entry) {
        return not_registered(name, ENODEV, err);
    }
    *err = entry->err;
    return -err->code;
}

static int add_provider(struct registry *registry, const char *name,
                        struct err *err)
{
    const struct provider_ops *ops = find_ops(registry->table, name);
    struct registry_provider *entry;
    int rc;

    if (!ops) {
        return not_registered(name, ENOENT, err);
    }
    entry = calloc(1, sizeof(*entry));
    if (!entry) {
        return err_set(err, ENOMEM, "out of memory");
    }
    entry->ops = ops;
    list_add(&registry->providers, &entry->link);
    rc = provider_open(ops, &registry->env, &entry->provider, &entry->err);
    if (rc < 0) {
        rc = err_wrap(&entry->err, rc, "provider '%s'", name);
        *err = entry->err;
    }
    return rc;
}

/* Opens what older sessions use. One that cannot be had leaves its sessions
 * in the status `error`, with the reason at their first use. */
static int add_used_providers(struct registry *registry, struct err *err)
{
    for (size_t i = 0; registry->table[i]; i++) {
        const char *name = registry->table[i]->name;
        struct err ignored = ERR_INIT;
        int used;

        if (registry_provider(registry, name)) {
            continue;
        }
        used = store_provider_used(registry->store, name, err);
        if (used < 0) {
            return used;
        }
        if (used) {
            (void)!add_provider(registry, name, &ignored);
        }
    }
    return 0;
}

static int make_dir(const struct registry *registry, const char *name,
                    struct err *err)
{
    AUTO_FREE char *path = NULL;

    if (asprintf(&path, "%s/%s", registry->state_dir, name) < 0) {
        path = NULL;
        return err_set(err, ENOMEM, "out of memory");
    }
    return mkdir(path, 0700) < 0 && errno != EEXIST
               ? err_errno(err, "make '%s'", path)
               : 0;
}

/* Deletes again what has that status: nobody knows a sandbox whose create was
 * cut off, and an unconfirmed deletion goes on. */
static int settle(struct registry *registry, enum session_status status,
                  struct err *err)
{
    const struct job job = {.kind = JOB_DESTROY, .internal = true};
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
            session_submit(session, &job);
            session_unref(session);
            after = numbers[i];
        }
    }
    return count < 0 ? (int)count : 0;
}

static int open_all(struct registry *registry, struct err *err)
{
    int rc = store_open(registry->state_dir, &registry->store, err);

    if (rc == 0) {
        rc = make_dir(registry, "sessions", err);
    }
    if (rc == 0) {
        rc = make_dir(registry, "trash", err);
    }
    if (rc == 0) {
        rc = store_exec_lose_all(registry->store, err);
    }
    if (rc == 0) {
        rc = add_provider(registry, registry->provider, err);
    }
    if (rc == 0) {
        rc = add_used_providers(registry, err);
    }
    if (rc == 0) {
        rc = settle(registry, SESSION_STARTING, err);
    }
    if (rc == 0) {
        rc = settle(registry, SESSION_DELETING, err);
    }
    return rc;
}

static struct registry *alloc(const struct registry_config *config,
                              const struct provider_ops *const *table)
{
    struct registry *registry = calloc(1, sizeof(*registry));

    if (!registry) {
        return NULL;
    }
    mutex_init(&registry->lock);
    cond_init(&registry->calm);
    list_init(&registry->providers);
    list_init(&registry->retries);
    registry->cancel.fd = -1;
    mutex_lock(&registry->lock);
    for (size_t i = 0; i < REGISTRY_BUCKETS; i++) {
        list_init(&registry->buckets[i]);
    }
    mutex_unlock(&registry->lock);
    registry->loop = config->loop;
    registry->hooks = config->hooks;
    registry->table = table;
    registry->state_dir = strdup(config->state_dir);
    registry->provider = strdup(config->provider);
    registry->trash = workers_new(1);
    registry->env = (struct provider_env){
        .state_dir = registry->state_dir,
        .loop = config->loop,
        .uid = config->uid,
        .gid = config->gid,
    };
    return registry;
}

int registry_open(const struct registry_config *config,
                  const struct provider_ops *const *table,
                  struct registry **out, struct err *err)
{
    struct registry *registry = alloc(config, table);
    int rc;

    if (!registry) {
        return err_set(err, ENOMEM, "out of memory");
    }
    if (!registry->state_dir || !registry->provider || !registry->trash) {
        rc = err_set(err, ENOMEM, "out of memory");
    } else {
        rc = cancel_init(&registry->cancel, err);
    }
    if (rc == 0) {
        rc = open_all(registry, err);
    }
    if (rc < 0) {
        (void)registry_close(registry, 0);
        return rc;
    }
    registry_sweep(registry);
    *out = registry;
    return 0;
}

/* ---- Closing ---- */

/* What registry_close() waits for in the loop's thread. */
struct barrier {
    struct registry *registry;
    struct mutex lock;
    struct cond passed;
    bool done GUARDED;
};

static void pass(void *arg)
{
    struct barrier *barrier = arg;

    session_retry_drop_all(barrier->registry);
    mutex_lock(&barrier->lock);
    barrier->done = true;
    cond_broadcast(&barrier->passed);
    mutex_unlock(&barrier->lock);
}

/* Waits until the loop has run what was posted before; no retry waits then. */
static void flush_loop(struct registry *registry)
{
    struct barrier barrier = {.registry = registry};

    mutex_init(&barrier.lock);
    cond_init(&barrier.passed);
    loop_post(registry->loop, pass, &barrier);
    mutex_lock(&barrier.lock);
    while (!barrier.done) {
        (void)cond_wait(&barrier.passed, &barrier.lock, DEADLINE_NONE);
    }
    mutex_unlock(&barrier.lock);
    cond_done(&barrier.passed);
    mutex_done(&barrier.lock);
}

/* The loaded session with the lowest number above one, with a reference. */
static struct session *next_loaded(struct registry *registry, uint64_t after)
{
    struct session *next = NULL;

    mutex_lock(&registry->lock);
    for (size_t i = 0; i < REGISTRY_BUCKETS; i++) {
        list_each(node, &registry->buckets[i])
        {
            struct session *session = container_of(node, struct session, link);

            if (session->number > after &&
                (!next || session->number < next->number)) {
                next = session;
            }
        }
    }
    if (next) {
        next->refs++;
    }
    mutex_unlock(&registry->lock);
    return next;
}

static void cancel_commands(struct registry *registry)
{
    struct session *session = next_loaded(registry, 0);

    while (session) {
        uint64_t number = session->number;

        session_cancel_all(session);
        session_unref(session);
        session = next_loaded(registry, number);
    }
}

/* What registry_close() waits for the end of. */
enum {
    CALM_JOBS = 1 << 0,
    CALM_WORKS = 1 << 1,
    CALM_SINKS = 1 << 2,
};

static bool calm_locked(struct registry *registry, unsigned what)
    REQUIRES(registry->lock)
{
    return !((what & CALM_JOBS) && registry->jobs) &&
           !((what & CALM_WORKS) && registry->works) &&
           !((what & CALM_SINKS) && registry->sinks);
}

static bool wait_calm(struct registry *registry, unsigned what,
                      int64_t deadline_ms)
{
    bool calm;
    int rc = 0;

    mutex_lock(&registry->lock);
    while (!calm_locked(registry, what) && rc == 0) {
        rc = cond_wait(&registry->calm, &registry->lock, deadline_ms);
    }
    calm = calm_locked(registry, what);
    mutex_unlock(&registry->lock);
    return calm;
}

/* Pauses what is recorded with that status, behind what each session still
 * does. What cannot be paused stays. */
static void pause_all(struct registry *registry, enum session_status status)
{
    const struct job job = {.kind = JOB_PAUSE, .internal = true};
    uint64_t numbers[LIST_BATCH];
    struct err err = ERR_INIT;
    uint64_t after = 0;
    ssize_t count = LIST_BATCH;

    while (count == LIST_BATCH) {
        count = store_state_list(registry->store, status, after, numbers,
                                 LIST_BATCH, &err);
        for (ssize_t i = 0; i < count; i++) {
            struct session *session = NULL;

            if (registry_load(registry, numbers[i], &session, &err) == 0) {
                session_submit(session, &job);
                session_unref(session);
            }
            after = numbers[i];
        }
    }
}

static void close_engines(struct registry *registry)
{
    struct list *node = list_pop(&registry->providers);

    mutex_lock(&registry->lock);
    registry->engines_closed = true;
    mutex_unlock(&registry->lock);
    while (node) {
        struct registry_provider *entry =
            container_of(node, struct registry_provider, link);

        provider_close(entry->provider);
        free(entry);
        node = list_pop(&registry->providers);
    }
}

static struct session *take_session(struct registry *registry)
{
    struct session *session = NULL;

    mutex_lock(&registry->lock);
    for (size_t i = 0; i < REGISTRY_BUCKETS && !session; i++) {
        struct list *node = list_pop(&registry->buckets[i]);

        session = node ? container_of(node, struct session, link) : NULL;
    }
    mutex_unlock(&registry->lock);
    return session;
}

static void free_sessions(struct registry *registry)
{
    struct session *session;

    mutex_lock(&registry->lock);
    registry->dead = true;
    mutex_unlock(&registry->lock);
    flush_loop(registry);
    session = take_session(registry);
    while (session) {
        session_free(session);
        session = take_session(registry);
    }
}

/* Ends commands and pauses what runs within a bound, then ends every call of
 * an engine; false when one does not end. */
static bool wind_down(struct registry *registry, int64_t pause_ms)
{
    int64_t deadline = clock_deadline(pause_ms);

    store_closing(registry->store);
    mutex_lock(&registry->lock);
    registry->closing = true;
    mutex_unlock(&registry->lock);
    flush_loop(registry);
    cancel_commands(registry);
    pause_all(registry, SESSION_STARTING);
    pause_all(registry, SESSION_RUNNING);
    (void)wait_calm(registry, CALM_JOBS, deadline);
    cancel_fire(&registry->cancel);
    return wait_calm(registry, CALM_WORKS, clock_deadline(AFTERMATH_MS));
}

static void free_registry(struct registry *registry)
{
    free_sessions(registry);
    workers_free(registry->trash);
    store_close(registry->store);
    cancel_done(&registry->cancel);
    cond_done(&registry->calm);
    mutex_done(&registry->lock);
    free(registry->provider);
    free(registry->state_dir);
    free(registry);
}

bool registry_close(struct registry *registry, int64_t pause_ms)
{
    const unsigned all = CALM_JOBS | CALM_WORKS | CALM_SINKS;

    if (!registry) {
        return true;
    }
    if (registry->store && !wind_down(registry, pause_ms)) {
        return false;
    }
    close_engines(registry);
    if (!wait_calm(registry, all, clock_deadline(AFTERMATH_MS))) {
        return false;
    }
    free_registry(registry);
    return true;
}
