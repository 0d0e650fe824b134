/* The life of sandboxes in memory. See mem.h. */
#include "providers/mem/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mem *mem_of(struct provider *provider)
{
    return container_of(provider, struct mem, base);
}

static int mem_open(const struct provider_env *env, struct provider **out,
                    struct err *err)
{
    const char *control = getenv("SESSIONFS_MEM_CONTROL");
    struct mem *mem = calloc(1, sizeof(*mem));

    if (mem && control) {
        mem->control = strdup(control);
    }
    if (!mem || (control && !mem->control)) {
        free(mem);
        return err_no_memory(err);
    }
    mem->loop = env->loop;
    mutex_init(&mem->lock);
    cond_init(&mem->closed);
    list_init(&mem->boxes);
    list_init(&mem->commands);
    *out = &mem->base;
    return 0;
}

static void mem_close(struct provider *provider)
{
    struct mem *mem = mem_of(provider);

    mem_settle(mem);
    mutex_lock(&mem->lock);
    list_each_safe(node, &mem->boxes)
    {
        mem_box_drop(mem, container_of(node, struct mem_box, link));
    }
    mutex_unlock(&mem->lock);
    cond_done(&mem->closed);
    mutex_done(&mem->lock);
    free(mem->control);
    free(mem);
}

struct mem_box *mem_find(struct mem *mem, const struct sandbox *sandbox)
{
    const char *id = sandbox->instance->external_id;

    list_each(node, &mem->boxes)
    {
        struct mem_box *box = container_of(node, struct mem_box, link);

        if (box->number == sandbox->number && id &&
            strcmp(box->external_id, id) == 0) {
            return box;
        }
    }
    return NULL;
}

void mem_box_drop(struct mem *mem, struct mem_box *box)
{
    (void)mem;
    list_remove(&box->link);
    mem_tree_done(box);
    free(box->external_id);
    free(box);
}

/* A sandbox with an empty tree; NULL without memory. */
static struct mem_box *new_box(struct mem *mem, uint64_t number)
    REQUIRES(mem->lock)
{
    struct mem_box *box = calloc(1, sizeof(*box));
    char id[64];

    (void)snprintf(id, sizeof(id), "mem-%" PRIu64 "-%" PRIu64, number,
                   ++mem->made);
    if (box) {
        box->number = number;
        box->external_id = strdup(id);
    }
    if (!box || !box->external_id || mem_tree_init(box) < 0) {
        if (box) {
            free(box->external_id);
        }
        free(box);
        return NULL;
    }
    list_add(&mem->boxes, &box->link);
    return box;
}

static int fill_instance(const char *external_id, struct instance *instance,
                         struct err *err)
{
    char name[] = "in memory";
    char path[] = "/workspace";
    char json[] = "{}";
    char id[64];
    struct instance made = {.external_id = id,
                            .display_name = name,
                            .workspace_path = path,
                            .provider_state = json,
                            .metadata = json};
    struct instance copy = {0};

    (void)snprintf(id, sizeof(id), "%s", external_id);
    if (instance_copy(&copy, &made) < 0) {
        return err_no_memory(err);
    }
    instance_done(instance);
    *instance = copy;
    return 0;
}

int mem_make_box(struct mem *mem, struct sandbox *sandbox, struct mem_box **out,
                 struct err *err)
{
    struct mem_box *box = new_box(mem, sandbox->number);
    int rc;

    if (!box) {
        return err_no_memory(err);
    }
    rc = fill_instance(box->external_id, sandbox->instance, err);
    if (rc < 0) {
        mem_box_drop(mem, box);
    } else {
        *out = box;
    }
    return rc;
}

static int mem_create(struct provider *provider, struct sandbox *sandbox,
                      const struct limits *limits, struct err *err)
{
    struct mem *mem = mem_of(provider);
    struct mem_box *box;
    int rc = mem_fault(mem, "create", sandbox, limits, err);

    if (rc < 0) {
        return rc;
    }
    mutex_lock(&mem->lock);
    rc = mem_make_box(mem, sandbox, &box, err);
    mutex_unlock(&mem->lock);
    return rc;
}

static int set_paused(struct mem *mem, const struct sandbox *sandbox,
                      bool paused, struct err *err)
{
    struct mem_box *box;

    mutex_lock(&mem->lock);
    box = mem_find(mem, sandbox);
    if (box) {
        box->paused = paused;
    }
    mutex_unlock(&mem->lock);
    return box ? 0 : err_set(err, ESTALE, "the sandbox is gone");
}

static int mem_resume(struct provider *provider, struct sandbox *sandbox,
                      const struct limits *limits, struct err *err)
{
    struct mem *mem = mem_of(provider);
    int rc = mem_fault(mem, "resume", sandbox, limits, err);

    return rc < 0 ? rc : set_paused(mem, sandbox, false, err);
}

static int mem_pause(struct provider *provider, struct sandbox *sandbox,
                     const struct limits *limits, struct err *err)
{
    struct mem *mem = mem_of(provider);
    int rc = mem_fault(mem, "pause", sandbox, limits, err);

    if (rc < 0) {
        return rc;
    }
    rc = set_paused(mem, sandbox, true, err);
    if (rc == 0) {
        mem_end_commands(mem, sandbox->number, COMMAND_KILLED);
    }
    return rc;
}

static int mem_destroy(struct provider *provider, struct sandbox *sandbox,
                       const struct limits *limits, struct err *err)
{
    struct mem *mem = mem_of(provider);
    struct mem_box *box;
    int rc = mem_fault(mem, "destroy", sandbox, limits, err);

    if (rc < 0) {
        return rc;
    }
    mem_end_commands(mem, sandbox->number, COMMAND_KILLED);
    mutex_lock(&mem->lock);
    box = mem_find(mem, sandbox);
    if (box) {
        mem_box_drop(mem, box);
    }
    mem_drop_all(sandbox);
    mutex_unlock(&mem->lock);
    return 0;
}

static int mem_status(struct provider *provider, const struct sandbox *sandbox,
                      const struct limits *limits, enum provider_state *out,
                      struct err *err)
{
    struct mem *mem = mem_of(provider);
    const struct mem_box *box;
    int rc = mem_fault(mem, "status", sandbox, limits, err);

    if (rc < 0) {
        return rc;
    }
    mutex_lock(&mem->lock);
    box = mem_find(mem, sandbox);
    if (!box) {
        *out = PROVIDER_LOST;
    } else {
        *out = box->paused ? PROVIDER_PAUSED : PROVIDER_RUNNING;
    }
    mutex_unlock(&mem->lock);
    return 0;
}

static const char *const network_words[] = {"none", "host", NULL};

/* Kept and not obeyed: they are for tests of configs, a few of each kind. */
static const struct config_key mem_keys[] = {
    {
        .name = "label",
        .type = CONFIG_TEXT,
        .trust = CONFIG_ANYONE,
        .fallback = "\"\"",
        .text = "What people call the sandbox",
    },
    {
        .name = "quiet",
        .type = CONFIG_BOOL,
        .trust = CONFIG_ANYONE,
        .fallback = "false",
        .text = "Whether it is quiet",
    },
    {
        .name = "tags",
        .type = CONFIG_MAP,
        .trust = CONFIG_ANYONE,
        .text = "Names and what they say",
    },
    {
        .name = "delay",
        .type = CONFIG_INT,
        .trust = CONFIG_UP_TO,
        .fallback = "100",
        .min = 1,
        .max = 60000,
        .unit = "ms",
        .text = "How long a call takes",
    },
    {
        .name = "network",
        .type = CONFIG_WORD,
        .trust = CONFIG_UP_TO,
        .fallback = "\"none\"",
        .words = network_words,
        .text = "What the sandbox reaches",
    },
    {
        .name = "base",
        .type = CONFIG_PATH,
        .trust = CONFIG_OPERATOR,
        .text = "What its files begin as",
    },
    {
        .name = "socket",
        .type = CONFIG_PATH,
        .trust = CONFIG_OPERATOR,
        .text = "Where its engine listens",
    },
    {
        .name = "program",
        .type = CONFIG_TEXTS,
        .trust = CONFIG_OPERATOR,
        .text = "What runs it",
    },
    {
        .name = "user",
        .type = CONFIG_TEXT,
        .trust = CONFIG_OPERATOR,
        .fallback = "\"nobody\"",
        .text = "Whose rights it has",
    },
    {.name = NULL},
};

const struct provider_ops provider_mem = {
    .name = "mem",
    .summary = "sandboxes in the daemon's memory, for tests",
    .flags = PROVIDER_SPLIT_STDERR | PROVIDER_BACKGROUND,
    .keys = mem_keys,
    .open = mem_open,
    .close = mem_close,
    .create = mem_create,
    .resume = mem_resume,
    .pause = mem_pause,
    .destroy = mem_destroy,
    .status = mem_status,
    .exec = mem_exec,
    .signal = mem_signal,
    .files = &mem_files,
    .changes = mem_changes,
    .snapshots = &mem_snapshots,
};
