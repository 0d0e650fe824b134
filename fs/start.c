/* See start.h. */
#include "fs/start.h"

#include "fs/options.h"

#include <unistd.h>

enum {
    OVERTIME_MS = 10000, /* What an end may take besides its timeout. */
};

int64_t start_end_ms(const struct options *options)
{
    return INT64_C(1000) * options->unmount_timeout;
}

/* A path that may be missing. */
static const char *path_of(const char *option)
{
    return option[0] ? option : NULL;
}

static struct registry_config config_of(const struct options *options,
                                        struct loop *loop,
                                        const struct registry_hooks *hooks)
{
    return (struct registry_config){
        .state_dir = options->state,
        .provider = options->provider,
        .profiles = path_of(options->profiles),
        .base = path_of(options->base),
        .mount = path_of(options->mount_point),
        .trust_config = options->trust == OPTIONS_TRUST_CONFIG,
        .uid = getuid(),
        .gid = options->gid,
        .on_unmount = (enum registry_end)options->on_unmount,
        .leave_s = options->adopt_timeout,
        .wait_ms = start_end_ms(options) + OVERTIME_MS,
        .durable_power = options->durable == OPTIONS_DURABLE_POWER,
        .events_keep = options->events_keep,
        .execs_keep = options->execs_keep,
        .cache_bytes = (uint64_t)options->cache_mib << 20,
        .stage_bytes = (uint64_t)options->stage_mib << 20,
        .raw_links = options->links == OPTIONS_LINKS_RAW,
        .loop = loop,
        .hooks = *hooks,
    };
}

int start_registry(const struct options *options,
                   const struct provider_ops *const *providers,
                   struct loop *loop, const struct registry_hooks *hooks,
                   struct registry **out, struct err *err)
{
    const struct registry_config config = config_of(options, loop, hooks);

    return registry_open(&config, providers, out, err);
}

int start_check_profiles(const struct options *options,
                         const struct provider_ops *const *providers,
                         struct buf *lacking, struct err *err)
{
    const struct registry_hooks none = {.arg = NULL};
    struct registry_config config;
    struct loop *loop = NULL;
    int rc = loop_new(&loop, err);

    if (rc == 0) {
        config = config_of(options, loop, &none);
        rc = registry_check_profiles(&config, providers, lacking, err);
        loop_free(loop);
    }
    return rc;
}
