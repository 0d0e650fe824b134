/*
 * The providers of a registry: one entry for each row of the table. Those that
 * sessions use are opened at the start, others at their first use.
 */
#include "core/clock.h"
#include "core/registry_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const struct provider_ops *registry_ops(const struct registry *registry,
                                        const char *name)
{
    for (size_t i = 0; registry->table[i]; i++) {
        if (strcmp(registry->table[i]->name, name) == 0) {
            return registry->table[i];
        }
    }
    return NULL;
}

int registry_not_registered(const char *name, struct err *err)
{
    return err_set(err, ENODEV,
                   "Session sandbox provider '%s' is not registered", name);
}

static struct registry_provider *find(struct registry *registry,
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
    const struct registry_provider *entry = find(registry, name);
    struct provider *provider = NULL;

    mutex_lock(&registry->providers_lock);
    if (entry) {
        provider = entry->provider;
    }
    mutex_unlock(&registry->providers_lock);
    return provider;
}

int registry_no_provider(struct registry *registry, const char *name,
                         struct err *err)
{
    const struct registry_provider *entry = find(registry, name);
    int rc;

    if (!entry) {
        return registry_not_registered(name, err);
    }
    mutex_lock(&registry->providers_lock);
    rc = -entry->err.code;
    if (rc < 0) {
        *err = entry->err;
    }
    mutex_unlock(&registry->providers_lock);
    return rc;
}

/* Waits for another who opens it; true: it is to be opened by the caller. */
static bool begin_open(struct registry *registry,
                       struct registry_provider *entry)
{
    bool begin;

    mutex_lock(&registry->providers_lock);
    while (entry->opening) {
        (void)cond_wait(&registry->opened, &registry->providers_lock,
                        DEADLINE_NONE);
    }
    begin = !entry->provider && !entry->err.code;
    entry->opening = begin;
    mutex_unlock(&registry->providers_lock);
    return begin;
}

static void open_entry(struct registry *registry,
                       struct registry_provider *entry)
{
    struct provider *provider = NULL;
    struct err err = ERR_INIT;

    if (!begin_open(registry, entry)) {
        return;
    }
    if (registry_closing(registry)) {
        (void)err_set(&err, ESHUTDOWN, "the filesystem is being unmounted");
    } else if (provider_open(entry->ops, &registry->env, &provider, &err) < 0) {
        (void)err_wrap(&err, -err.code, "provider '%s'", entry->ops->name);
    }
    mutex_lock(&registry->providers_lock);
    entry->provider = provider;
    entry->err = err;
    entry->opening = false;
    cond_broadcast(&registry->opened);
    mutex_unlock(&registry->providers_lock);
}

int registry_open_provider(struct registry *registry, const char *name,
                           struct provider **out, struct err *err)
{
    struct registry_provider *entry = find(registry, name);
    struct provider *provider;

    if (entry) {
        open_entry(registry, entry);
    }
    provider = registry_provider(registry, name);
    if (!provider) {
        return registry_no_provider(registry, name, err);
    }
    *out = provider;
    return 0;
}

int registry_open_used(struct registry *registry, struct err *err)
{
    for (size_t i = 0; registry->table[i]; i++) {
        const char *name = registry->table[i]->name;
        struct err why = ERR_INIT;
        struct provider *provider;
        int used = store_provider_used(registry->store, name, err);

        if (used < 0) {
            return used;
        }
        if (used) {
            /* Its sessions tell the reason at their first use. */
            (void)!registry_open_provider(registry, name, &provider, &why);
        }
    }
    return 0;
}

void registry_each_open(struct registry *registry,
                        void (*fn)(void *arg, struct provider *provider),
                        void *arg)
{
    list_each(node, &registry->providers)
    {
        const struct registry_provider *entry =
            container_of(node, struct registry_provider, link);
        struct provider *provider =
            registry_provider(registry, entry->ops->name);

        if (provider) {
            fn(arg, provider);
        }
    }
}

int registry_add_providers(struct registry *registry, struct err *err)
{
    for (size_t i = 0; registry->table[i]; i++) {
        struct registry_provider *entry = calloc(1, sizeof(*entry));

        if (!entry) {
            return err_no_memory(err);
        }
        entry->ops = registry->table[i];
        list_add(&registry->providers, &entry->link);
    }
    return 0;
}

void registry_close_providers(struct registry *registry)
{
    struct list *node = list_pop(&registry->providers);

    while (node) {
        struct registry_provider *entry =
            container_of(node, struct registry_provider, link);

        provider_close(entry->provider);
        free(entry);
        node = list_pop(&registry->providers);
    }
}
