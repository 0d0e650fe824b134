/* The registry's beginning. See registry.h. */
#include "core/cleanup.h"
#include "core/registry_priv.h"
#include "core/session_priv.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    LIST_BATCH = 256
};

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
    const struct job job = {
        .kind = JOB_DESTROY, .retry = true, .internal = true};
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
    struct provider *provider;
    int rc = registry_add_providers(registry, err);

    if (rc == 0) {
        rc = store_open(registry->state_dir, &registry->store, err);
    }
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
        rc = registry_open_provider(registry, registry->provider, &provider,
                                    err);
    }
    if (rc == 0) {
        rc = registry_open_used(registry, err);
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
    mutex_init(&registry->providers_lock);
    cond_init(&registry->opened);
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
    registry->on_unmount = config->on_unmount;
    registry->state_dir = strdup(config->state_dir);
    registry->provider = strdup(config->provider);
    registry->trash = workers_new(1);
    registry->env = (struct provider_env){
        .state_dir = registry->state_dir,
        .loop = config->loop,
        .uid = config->uid,
        .gid = config->gid,
    };
    registry->view = (struct ws_view){
        .uid = config->uid,
        .gid = config->gid,
        .raw_links = config->raw_links,
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
        /* A start that fails changes nothing. */
        registry->on_unmount = REGISTRY_KEEP;
        (void)registry_close(registry, 0);
        return rc;
    }
    registry_sweep(registry);
    *out = registry;
    return 0;
}
