/* The provider `jsonl`: its slots. See jsonl.h. */
#include "providers/jsonl/jsonl.h"

#include "core/files_over_exec.h"

#include <signal.h>
#include <stdlib.h>

enum {
    ASIDE_THREADS = 16
};

static provider_open_fn jsonl_open;
static provider_close_fn jsonl_close;

const struct provider_ops provider_jsonl = {
    .name = "jsonl",
    .summary = "sandboxes of any program that speaks sandbox.v1",
    .flags = PROVIDER_SPLIT_STDERR | PROVIDER_STDIN,
    .keys = jsonl_keys,
    .open = jsonl_open,
    .close = jsonl_close,
    .create = jsonl_create,
    .resume = jsonl_resume,
    .destroy = jsonl_destroy,
    .status = jsonl_status,
    .exec = jsonl_exec,
    .signal = jsonl_signal,
    .left = jsonl_left,
    .files = &files_over_exec,
    .run = jsonl_run,
    .read_file = jsonl_read_file,
    .write_file = jsonl_write_file,
};

struct jsonl *jsonl_of(struct provider *provider)
{
    return container_of(provider, struct jsonl, base);
}

static int open_parts(struct jsonl *jsonl, struct err *err)
{
    int rc = cancel_init(&jsonl->closing, err);

    if (rc < 0) {
        return rc;
    }
    jsonl->aside = workers_new(ASIDE_THREADS);
    if (!jsonl->aside || pool_new(&jsonl->pool) < 0) {
        workers_free(jsonl->aside);
        cancel_done(&jsonl->closing);
        return err_no_memory(err);
    }
    return 0;
}

static int jsonl_open(const struct provider_env *env, struct provider **out,
                      struct err *err)
{
    struct jsonl *jsonl = calloc(1, sizeof(*jsonl));
    int rc = jsonl ? open_parts(jsonl, err) : err_no_memory(err);

    if (rc < 0) {
        free(jsonl);
        return rc;
    }
    /* A program that ends while it is written to is no reason to end. */
    (void)signal(SIGPIPE, SIG_IGN);
    jsonl->loop = env->loop;
    mutex_init(&jsonl->lock);
    cond_init(&jsonl->closed);
    list_init(&jsonl->leases);
    list_init(&jsonl->commands);
    *out = &jsonl->base;
    return 0;
}

static void jsonl_close(struct provider *provider)
{
    struct jsonl *jsonl = jsonl_of(provider);

    command_settle(jsonl);
    workers_free(jsonl->aside);
    pool_free(jsonl->pool);
    while (!list_empty(&jsonl->leases)) {
        lease_drop_all(
            jsonl,
            container_of(jsonl->leases.next, struct lease, link)->number);
    }
    cond_done(&jsonl->closed);
    mutex_done(&jsonl->lock);
    cancel_done(&jsonl->closing);
    free(jsonl);
}
