/*
 * Configs: `new` makes a session by one, `config.json` is a session's own,
 * profiles/ and providers/ tell what there is to choose from.
 */
#include "core/config.h"
#include "core/session.h"
#include "fs/files.h"
#include "fs/gather.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- new ---- */

/* What the handle reads: the id that its last write made. By file->lock. */
struct made {
    char text[SESSION_ID_SIZE + 1];
};

static int new_init(struct file *file, struct err *err)
{
    file->own = calloc(1, sizeof(struct made));
    return file->own ? 0 : err_no_memory(err);
}

static void free_own(struct file *file)
{
    free(file->own);
}

static int new_write(struct file *file, const struct file_call *call,
                     const void *data, size_t size, struct err *err)
{
    struct made *made = file->own;
    char id[SESSION_ID_SIZE];
    int rc =
        registry_new(file->mount->registry, data, size, &call->caller, id, err);

    if (rc < 0) {
        return rc;
    }
    mutex_lock(&file->lock);
    (void)snprintf(made->text, sizeof(made->text), "%s\n", id);
    file->place = 0;
    mutex_unlock(&file->lock);
    return 0;
}

/* The handle keeps a place of its own: the offset counts what was written. */
static ssize_t new_read(struct file *file, const struct file_call *call,
                        uint64_t offset, void *out, size_t size,
                        struct err *err)
{
    const struct made *made = file->own;
    size_t left;

    (void)call;
    (void)offset;
    (void)err;
    mutex_lock(&file->lock);
    left = strlen(made->text) - (size_t)file->place;
    size = size < left ? size : left;
    memcpy(out, made->text + file->place, size);
    file->place += size;
    mutex_unlock(&file->lock);
    return (ssize_t)size;
}

const struct file_ops files_new_ops = {
    .init = new_init,
    .done = free_own,
    .read = new_read,
    .write = new_write,
};

/* ---- profiles/ and providers/ ---- */

static const char *const suffixes[] = {
    [REGISTRY_PROFILES] = ".json",
    [REGISTRY_PROVIDERS] = "",
};

/* The file name of one; false: there are not so many. */
static bool name_at(const struct node_ctx *ctx, enum registry_list list,
                    uint64_t number, char out[NODE_NAME_MAX + 1])
{
    const char *name = registry_name(ctx->mount->registry, list, number);

    if (name) {
        (void)snprintf(out, NODE_NAME_MAX + 1, "%s%s", name, suffixes[list]);
    }
    return name;
}

static int find(const struct node_ctx *ctx, enum registry_list list,
                const char *name, struct node *out, struct err *err)
{
    char there[NODE_NAME_MAX + 1];

    for (uint64_t n = 1; name_at(ctx, list, n, there); n++) {
        if (strcmp(there, name) == 0) {
            out->exec_n = n;
            return 0;
        }
    }
    return err_set(err, ENOENT, "no such file");
}

static int each(const struct node_ctx *ctx, enum registry_list list,
                uint64_t after,
                bool (*fn)(void *arg, uint64_t number, const char *name),
                void *arg)
{
    char name[NODE_NAME_MAX + 1];

    for (uint64_t n = after + 1; name_at(ctx, list, n, name); n++) {
        if (!fn(arg, n, name)) {
            break;
        }
    }
    return 0;
}

static int profiles_find(const struct node_ctx *ctx, const char *name,
                         struct node *out, struct err *err)
{
    return find(ctx, REGISTRY_PROFILES, name, out, err);
}

static int profiles_list(const struct node_ctx *ctx, uint64_t after,
                         bool (*fn)(void *arg, uint64_t number,
                                    const char *name),
                         void *arg, struct err *err)
{
    (void)err;
    return each(ctx, REGISTRY_PROFILES, after, fn, arg);
}

static int profile_show(const struct node_ctx *ctx, struct buf *out,
                        struct err *err)
{
    return registry_about(ctx->mount->registry, REGISTRY_PROFILES, ctx->number,
                          out, err);
}

static int providers_find(const struct node_ctx *ctx, const char *name,
                          struct node *out, struct err *err)
{
    return find(ctx, REGISTRY_PROVIDERS, name, out, err);
}

static int providers_list(const struct node_ctx *ctx, uint64_t after,
                          bool (*fn)(void *arg, uint64_t number,
                                     const char *name),
                          void *arg, struct err *err)
{
    (void)err;
    return each(ctx, REGISTRY_PROVIDERS, after, fn, arg);
}

static int provider_show(const struct node_ctx *ctx, struct buf *out,
                         struct err *err)
{
    return registry_about(ctx->mount->registry, REGISTRY_PROVIDERS, ctx->number,
                          out, err);
}

static const struct node_row profile_row = {
    .name = "NAME.json",
    .id = FILES_ID_PROFILE,
    .mode = S_IFREG | 0400,
    .show = profile_show,
};

static const struct node_row provider_row = {
    .name = "NAME",
    .id = FILES_ID_PROVIDER,
    .mode = S_IFREG | 0400,
    .show = provider_show,
};

const struct node_children files_profiles = {
    .row = &profile_row,
    .numbered = true,
    .find = profiles_find,
    .list = profiles_list,
};

const struct node_children files_providers = {
    .row = &provider_row,
    .numbered = true,
    .find = providers_find,
    .list = providers_list,
};

/* ---- config.json ---- */

static const struct gather_kind documents = {
    .name = "config",
    .bad = "what was written before is no config",
    .max = CONFIG_TEXT_MAX,
};

int files_config_show(const struct node_ctx *ctx, struct buf *out,
                      struct err *err)
{
    return session_config_text(ctx->session, out, err);
}

static int config_init(struct file *file, struct err *err)
{
    struct gather *gather = calloc(1, sizeof(*gather));

    if (!gather) {
        return err_no_memory(err);
    }
    gather_init(gather, &documents);
    file->own = gather;
    return 0;
}

static void config_done_file(struct file *file)
{
    gather_done(file->own);
    free(file->own);
}

/* A document that cannot go on, or that is no object, goes to the one who
 * knows the words for it. 1: there is a document. */
static int take_document(struct file *file, const struct file_call *call,
                         const char *data, size_t size, struct buf *out,
                         struct err *err)
{
    size_t used = 0;
    int rc;

    mutex_lock(&file->lock);
    rc = gather_json(file->own, call->owner, data, size, &used, out, err);
    mutex_unlock(&file->lock);
    if (rc == -EINVAL && out->size) {
        err_clear(err);
        return 1;
    }
    if (rc > 0 && !buf_blank(data + used, size - used) &&
        buf_add(out, data + used, size - used) < 0) {
        return err_set(err, EFBIG, "a config of over %d bytes",
                       CONFIG_TEXT_MAX);
    }
    return rc;
}

/* The next write begins another document. */
static void begin_again(struct file *file)
{
    mutex_lock(&file->lock);
    gather_done(file->own);
    gather_init(file->own, &documents);
    mutex_unlock(&file->lock);
}

static int config_write(struct file *file, const struct file_call *call,
                        const void *data, size_t size, struct err *err)
{
    struct buf text = BUF_INIT(CONFIG_TEXT_MAX);
    int rc = take_document(file, call, data, size, &text, err);

    if (rc > 0) {
        rc = session_configure(file->node.session, text.data, text.size,
                               &call->caller, err);
        if (rc == 0) {
            begin_again(file);
        }
    }
    buf_done(&text);
    return rc;
}

/* What is left of a process that closes is no whole document. */
static int config_flush(struct file *file, const struct file_call *call,
                        struct file_wait *out, struct err *err)
{
    struct buf rest = BUF_INIT(CONFIG_TEXT_MAX);
    int rc;

    (void)out;
    mutex_lock(&file->lock);
    rc = gather_take(file->own, call->owner, &rest, err);
    mutex_unlock(&file->lock);
    buf_done(&rest);
    return rc > 0 ? err_set(err, EINVAL, "the JSON is incomplete") : rc;
}

const struct file_ops files_config_ops = {
    .init = config_init,
    .done = config_done_file,
    .write = config_write,
    .flush = config_flush,
};
