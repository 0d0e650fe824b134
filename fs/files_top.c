/* The files at the top of the mount, and sessions/. */
#include "core/buf.h"
#include "fs/files.h"

/* The place of sessions/ in top_rows. */
enum {
    SESSIONS_ROW = 6
};

static int readme_show(const struct node_ctx *ctx, struct buf *out,
                       struct err *err)
{
    int rc = buf_add(out, files_readme, files_readme_size);

    (void)ctx;
    return rc < 0 ? err_set(err, -rc, "README") : 0;
}

static int stats_show(const struct node_ctx *ctx, struct buf *out,
                      struct err *err)
{
    return ctx->mount->stats(ctx->mount->stats_arg, out, err);
}

static int errors_show(const struct node_ctx *ctx, struct buf *out,
                       struct err *err)
{
    return registry_errors(ctx->mount->registry, out, err);
}

static int sessions_find(const struct node_ctx *ctx, const char *name,
                         struct node *out, struct err *err)
{
    return registry_find(ctx->mount->registry, name, &out->session, err);
}

static int sessions_list(const struct node_ctx *ctx, uint64_t after,
                         bool (*fn)(void *arg, uint64_t number,
                                    const char *name),
                         void *arg, struct err *err)
{
    return registry_each(ctx->mount->registry, after, fn, arg, err);
}

static int sessions_make(const struct node_ctx *ctx, const char *name,
                         struct node *out, struct err *err)
{
    return registry_create(ctx->mount->registry, name, &ctx->caller,
                           &out->session, err);
}

static int sessions_remove(const struct node_ctx *ctx, const char *name,
                           struct err *err)
{
    return registry_remove(ctx->mount->registry, name, err);
}

static int sessions_rename(const struct node_ctx *ctx, const char *name,
                           const char *new_name, struct err *err)
{
    return registry_rename(ctx->mount->registry, name, new_name, &ctx->caller,
                           err);
}

static const struct node_children sessions = {
    .row = &files_session,
    .find = sessions_find,
    .list = sessions_list,
    .make = sessions_make,
    .remove = sessions_remove,
    .rename = sessions_rename,
};

static const struct node_row top_rows[] = {
    {
        .name = "README",
        .id = FILES_ID_README,
        .mode = S_IFREG | 0400,
        .show = readme_show,
    },
    {
        .name = "new",
        .id = FILES_ID_NEW,
        .mode = S_IFREG | 0600,
        .ops = &files_new_ops,
    },
    {
        .name = "profiles",
        .id = FILES_ID_PROFILES,
        .mode = S_IFDIR | 0700,
        .up = &node_root,
        .children = &files_profiles,
    },
    {
        .name = "providers",
        .id = FILES_ID_PROVIDERS,
        .mode = S_IFDIR | 0700,
        .up = &node_root,
        .children = &files_providers,
    },
    {
        .name = "stats",
        .id = FILES_ID_STATS,
        .mode = S_IFREG | 0400,
        .show = stats_show,
    },
    {
        .name = "error",
        .id = FILES_ID_ERRORS,
        .mode = S_IFREG | 0400,
        .show = errors_show,
    },
    [SESSIONS_ROW] =
        {
            .name = "sessions",
            .id = FILES_ID_SESSIONS,
            .flags = NODE_STEADY,
            .mode = S_IFDIR | 0700,
            .up = &node_root,
            .children = &sessions,
        },
    {.name = NULL},
};

const struct node_row node_root = {
    .name = "",
    .id = FILES_ID_ROOT,
    .flags = NODE_STEADY,
    .mode = S_IFDIR | 0700,
    .rows = top_rows,
};

const struct node_row files_session = {
    .name = "ID",
    .id = FILES_ID_SESSION,
    .flags = NODE_STEADY,
    .mode = S_IFDIR | 0700,
    .up = &top_rows[SESSIONS_ROW],
    .rows = files_session_rows,
};
