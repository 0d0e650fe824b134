/* The registry's beginning. See registry.h. */
#include "core/checkpoint_priv.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/registry_priv.h"
#include "core/session_priv.h"
#include "core/spread.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    MET_MAX = 64 * 1024 * 1024 /* Bytes, for eight sessions each. */
};

static int make_dir(const struct registry *registry, const char *name,
                    struct err *err)
{
    AUTO_FREE char *path = NULL;
    AUTO_FD int fd = -1;

    if (asprintf(&path, "%s/%s", registry->state_dir, name) < 0) {
        path = NULL;
        return err_no_memory(err);
    }
    if (mkdir(path, 0700) < 0 && errno != EEXIST) {
        return err_errno(err, "make '%s'", path);
    }
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return err_errno(err, "open '%s'", path);
    }
    spread_below(fd);
    return 0;
}

/* Deletes again: nobody knows a sandbox whose create was cut off, and an
 * unconfirmed deletion goes on. */
static void settle(struct session *session)
{
    const struct job job = {
        .kind = JOB_DESTROY, .retry = true, .internal = true};

    session_submit(session, &job);
}

static int read_profiles(struct registry *registry,
                         const struct registry_config *config, struct err *err)
{
    int rc = registry_add_providers(registry, err);

    if (rc == 0) {
        rc = registry_set_places(registry, config, err);
    }
    return rc < 0 ? rc
                  : registry_read_profiles(registry, config->profiles, err);
}

static int open_all(struct registry *registry,
                    const struct registry_config *config, struct err *err)
{
    struct provider *provider;
    int rc = read_profiles(registry, config, err);

    if (rc == 0) {
        rc = store_open(registry->state_dir, registry->wait_ms,
                        &registry->store, err);
    }
    if (rc == 0 && config->durable_power) {
        rc = store_survive_power(registry->store, err);
    }
    if (rc == 0) {
        store_events_keep(registry->store, registry->events_keep);
        rc = make_dir(registry, "sessions", err);
    }
    if (rc == 0) {
        rc = make_dir(registry, "trash", err);
    }
    if (rc == 0) {
        rc = registry_open_provider(registry, registry->provider, &provider,
                                    err);
    }
    if (rc == 0) {
        rc = registry_open_used(registry, err);
    }
    if (rc == 0) {
        rc = registry_adopt(registry, err);
    }
    if (rc == 0) {
        rc = registry_each_with(registry, SESSION_STARTING, settle, err);
    }
    if (rc == 0) {
        rc = registry_each_with(registry, SESSION_DELETING, settle, err);
    }
    if (rc == 0) {
        rc = checkpoint_sweep(registry, err);
    }
    if (rc == 0) {
        rc = registry_each_with(registry, SESSION_RUNNING, session_life_take_up,
                                err);
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
    registry->opened_us = clock_wall_us();
    registry->cancel.fd = -1;
    mutex_lock(&registry->lock);
    buf_init(&registry->met, MET_MAX);
    for (size_t i = 0; i < REGISTRY_BUCKETS; i++) {
        list_init(&registry->buckets[i]);
    }
    mutex_unlock(&registry->lock);
    registry->loop = config->loop;
    session_idle_init(registry);
    checkpoint_watch_init(registry);
    registry->hooks = config->hooks;
    registry->table = table;
    registry->on_unmount = config->on_unmount;
    registry->wait_ms = config->wait_ms;
    registry->events_keep = config->events_keep;
    registry->execs_keep = config->execs_keep;
    registry->state_dir = strdup(config->state_dir);
    registry->provider = strdup(config->provider);
    registry->trash = workers_new(1);
    registry->env = (struct provider_env){
        .state_dir = registry->state_dir,
        .loop = config->loop,
        .uid = config->uid,
        .gid = config->gid,
        .durable_power = config->durable_power,
        .leave = config->on_unmount == REGISTRY_KEEP,
        .leave_s = config->leave_s,
    };
    registry->view = (struct ws_view){
        .uid = config->uid,
        .gid = config->gid,
        .raw_links = config->raw_links,
        .cache_bytes = config->cache_bytes,
        .stage_bytes = config->stage_bytes,
    };
    return registry;
}

int registry_check_profiles(const struct registry_config *config,
                            const struct provider_ops *const *table,
                            struct buf *lacking, struct err *err)
{
    struct registry *registry = alloc(config, table);
    int rc;

    if (!registry) {
        return err_no_memory(err);
    }
    rc = registry->provider ? read_profiles(registry, config, err)
                            : err_no_memory(err);
    if (rc == 0) {
        rc = registry_look_all(registry, lacking, err);
    }
    (void)registry_close(registry, 0);
    return rc;
}

int registry_open(const struct registry_config *config,
                  const struct provider_ops *const *table,
                  struct registry **out, struct err *err)
{
    struct registry *registry = alloc(config, table);
    int rc;

    if (!registry) {
        return err_no_memory(err);
    }
    if (!registry->state_dir || !registry->provider || !registry->trash) {
        rc = err_no_memory(err);
    } else {
        rc = cancel_init(&registry->cancel, err);
    }
    if (rc == 0) {
        rc = open_all(registry, config, err);
    }
    if (rc < 0) {
        /* A start that fails changes nothing. */
        registry->on_unmount = REGISTRY_KEEP;
        registry->env.leave = true;
        (void)registry_close(registry, 0);
        return rc;
    }
    registry_sweep(registry);
    registry_find_unsent(registry);
    *out = registry;
    return 0;
}
