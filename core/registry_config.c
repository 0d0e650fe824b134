/* What configs of sessions may say, and who may say it. */
#include "core/registry_priv.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int set_place(const char **out, const char *path, struct err *err)
{
    *out = path ? strdup(path) : NULL;
    return path && !*out ? err_no_memory(err) : 0;
}

int registry_set_places(struct registry *registry,
                        const struct registry_config *config, struct err *err)
{
    int rc = set_place(&registry->places.state, config->state_dir, err);

    if (rc == 0) {
        rc = set_place(&registry->places.mount, config->mount, err);
    }
    if (rc == 0) {
        rc = set_place(&registry->places.base, config->base, err);
    }
    registry->trust_config = config->trust_config;
    return rc;
}

int registry_check_place(const struct registry *registry, const char *path,
                         struct err *err)
{
    return config_check_place(&registry->places, path, err);
}

void registry_drop_places(struct registry *registry)
{
    free((void *)(uintptr_t)registry->places.state);
    free((void *)(uintptr_t)registry->places.mount);
    free((void *)(uintptr_t)registry->places.base);
}

int registry_check(const struct registry *registry, struct config *config,
                   const struct config *before, struct err *err)
{
    const struct provider_ops *ops = registry_ops(registry, config->provider);
    bool same = before && strcmp(before->provider, config->provider) == 0;
    const struct config_rules rules = {
        .keys = ops ? ops->keys : NULL,
        .trusted = !before || registry->trust_config,
        .current = same ? before->provider_config : NULL,
        .places = &registry->places,
    };

    return ops ? config_check(config, &rules, err)
               : registry_not_registered(config->provider, err);
}

int registry_look(const struct registry *registry, const struct config *config,
                  struct err *err)
{
    const struct provider_ops *ops = registry_ops(registry, config->provider);

    return ops ? config_there(config, ops->keys, err) : 0;
}

int registry_read_config(const struct registry *registry, const struct js *js,
                         bool none, const struct config *before,
                         struct config *out, struct err *err)
{
    struct config config;
    int rc;

    if (none) {
        return config_copy(&registry_profile(registry, "default")->config, out,
                           err);
    }
    rc = config_read(js, &config, err);
    if (rc < 0) {
        return rc;
    }
    rc = registry_check(registry, &config, before, err);
    if (rc < 0) {
        config_done(&config);
        return rc;
    }
    *out = config;
    return 0;
}
