/* A tree over a provider's file calls: names and attributes. */
#include "core/remote_aside.h"
#include "core/remote_halves.h"

#include "core/cleanup.h"
#include "core/workers.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <time.h>

enum {
    KEEP_MS = 1000, /* How long an answer of the engine holds. */
    AHEAD_THREADS = 8,
    LIST_THREADS = 8, /* Directories that are told at one time. */
};

/* Of one tree, where nobody says otherwise. */
static const uint64_t CACHE_BYTES = (uint64_t)256 << 20;
static const uint64_t STAGE_BYTES = (uint64_t)4 << 30;

struct remote *remote_of(struct workspace *ws)
{
    return container_of(ws, struct remote, base);
}

struct remote_node *remote_node_of(struct ws_node *node)
{
    return container_of(node, struct remote_node, base);
}

struct remote *remote_tree(const struct remote_node *node)
{
    return remote_of(node->base.tree);
}

static void free_copies(struct remote *r)
{
    instance_done(&r->instance);
    free((void *)(uintptr_t)r->sandbox.id);
    free((void *)(uintptr_t)r->sandbox.dir);
    free((void *)(uintptr_t)r->sandbox.config);
}

/* What may be there of a tree that was not made whole, too. */
static void free_parts(struct remote *r)
{
    workers_free(r->ahead);
    workers_free(r->listers);
    remote_aside_done(r);
    remote_nodes_done(r);
    remote_cache_free(r->cache);
    remote_data_free(r->data);
    free_copies(r);
}

static void remote_free(struct workspace *ws)
{
    struct remote *r = remote_of(ws);

    cancel_fire(&r->end);
    free_parts(r);
    cancel_done(&r->end);
    cond_done(&r->turn);
    ws_done(ws);
    free(r);
}

void remote_forget(struct remote *r, const char *path)
{
    struct stat attr;

    if (remote_cache_find(r->cache, path, &attr) == REMOTE_THERE &&
        !S_ISDIR(attr.st_mode) && attr.st_nlink > 1) {
        remote_cache_changed(r->cache);
    }
    remote_cache_forget(r->cache, path);
}

int remote_cannot(struct err *err)
{
    return err_set(err, EOPNOTSUPP, "the provider cannot do that");
}

static int stat_path(struct ws_node *node, const char *name,
                     const struct ws_ctx *ctx, struct stat *out,
                     struct err *err)
{
    struct remote *r = remote_of(node->tree);
    struct remote_path path;
    int rc = remote_path(remote_node_of(node), name, &path, err);

    return rc < 0 ? rc : remote_attr(r, path.text, &ctx->limits, out, err);
}

/* Finds a file that the engine does not have yet. */
static bool lookup_staged(struct remote_node *dir, const char *name,
                          struct ws_node **out, struct stat *attr)
{
    struct remote_node *node = remote_node_find(dir, name);
    struct err unused = ERR_INIT;

    if (node && remote_stage_attr(node, attr) &&
        remote_show(node, attr, &unused) == 0) {
        *out = &node->base;
        return true;
    }
    ws_node_unref(node ? &node->base : NULL);
    return false;
}

int remote_lookup(struct ws_node *dir, const char *name,
                  const struct ws_ctx *ctx, struct ws_node **out,
                  struct stat *attr, struct err *err)
{
    struct stat found;
    int rc;

    if (lookup_staged(remote_node_of(dir), name, out, &found) ||
        remote_aside_find(remote_node_of(dir), name, out, &found)) {
        *attr = found;
        return 0;
    }
    rc = stat_path(dir, name, ctx, &found, err);
    if (rc == 0) {
        rc = remote_node_meet(remote_node_of(dir), name, &found, out, err);
    }
    if (rc == 0) {
        *attr = found;
    }
    return rc;
}

int remote_getattr(struct ws_node *node, struct ws_file *file,
                   const struct ws_ctx *ctx, struct stat *attr, struct err *err)
{
    struct stat found;
    bool staged = remote_stage_attr(remote_node_of(node), &found);
    bool orphan = staged && !found.st_nlink;
    int rc = 0;

    (void)file;
    if (!staged && remote_is_aside(remote_node_of(node))) {
        rc = remote_aside_attr(remote_node_of(node), &found, err);
    } else if (!staged) {
        rc = stat_path(node, NULL, ctx, &found, err);
    }
    if (rc == 0) {
        rc = remote_show(remote_node_of(node), &found, err);
    }
    if (rc == 0) {
        found.st_nlink = orphan ? 0 : found.st_nlink;
        *attr = found;
    }
    return rc;
}

/* Makes a time plain, and drops it where it shall stay. */
static void resolve_time(unsigned *mask, unsigned bit, struct timespec *time)
{
    if (time->tv_nsec == UTIME_OMIT) {
        *mask &= ~bit;
    } else if (time->tv_nsec == UTIME_NOW) {
        (void)clock_gettime(CLOCK_REALTIME, time);
    }
}

/* Checks owners, which cannot change: all is the mounting user's. */
static int drop_owners(const struct remote *r, unsigned *mask,
                       const struct stat *want, struct err *err)
{
    const unsigned owners = PROVIDER_ATTR_UID | PROVIDER_ATTR_GID;

    if (((*mask & PROVIDER_ATTR_UID) && want->st_uid != r->view.uid) ||
        ((*mask & PROVIDER_ATTR_GID) && want->st_gid != r->view.gid)) {
        return err_set(err, EPERM, "files are the mounting user's");
    }
    *mask &= ~owners;
    return 0;
}

void remote_apply(struct stat *attr, unsigned mask, const struct stat *want)
{
    (void)clock_gettime(CLOCK_REALTIME, &attr->st_ctim);
    if (mask & PROVIDER_ATTR_MODE) {
        attr->st_mode = (attr->st_mode & S_IFMT) | (want->st_mode & 07777);
    }
    if (mask & PROVIDER_ATTR_ATIME) {
        attr->st_atim = want->st_atim;
    }
    if (mask & PROVIDER_ATTR_MTIME) {
        attr->st_mtim = want->st_mtim;
    }
}

/* Changes what is staged; 1 where nothing is, nor is to be. */
static int set_staged(struct remote_node *node, bool make, unsigned mask,
                      const struct stat *want, const struct ws_ctx *ctx,
                      struct err *err)
{
    struct remote_stage *stage = NULL;
    int rc = remote_stage_enter(node, make ? REMOTE_MAKE : REMOTE_FIND,
                                &ctx->limits, &stage, err);

    if (rc < 0 || !stage) {
        return rc < 0 ? rc : 1;
    }
    if (mask & PROVIDER_ATTR_SIZE) {
        rc = remote_stage_resize(stage, want->st_size, &ctx->limits, err);
    }
    if (rc == 0) {
        remote_stage_set(stage, mask & ~(unsigned)PROVIDER_ATTR_SIZE, want);
    }
    remote_stage_leave(stage, false);
    return rc;
}

/* Changes the engine's file at once. What it looks like then is known but for
 * a length's time: else it is asked. */
static int set_theirs(struct remote_node *node, unsigned mask,
                      const struct stat *want, const struct ws_ctx *ctx,
                      struct stat *attr, struct err *err)
{
    struct remote *r = remote_tree(node);
    struct remote_path path;
    bool known;
    int rc = remote_path(node, NULL, &path, err);

    if (rc == 0 && !r->files->set_attr) {
        rc = remote_cannot(err);
    }
    if (rc == 0) {
        rc = remote_begin(r, &ctx->limits, err);
    }
    if (rc < 0) {
        return rc;
    }
    known = remote_cache_find(r->cache, path.text, attr) == REMOTE_THERE &&
            !(mask & PROVIDER_ATTR_SIZE);
    rc = r->files->set_attr(r->provider, &r->sandbox, path.text, mask, want,
                            &ctx->limits, err);
    rc = (int)remote_end(r, rc, err);
    remote_forget(r, path.text);
    if (rc < 0 || !known) {
        return rc < 0 ? rc : remote_getattr(&node->base, NULL, ctx, attr, err);
    }
    remote_apply(attr, mask, want);
    return remote_show(node, attr, err);
}

static int remote_setattr(struct ws_node *base, struct ws_file *file,
                          unsigned mask, const struct stat *want,
                          const struct ws_ctx *ctx, struct stat *attr,
                          struct err *err)
{
    struct remote_node *node = remote_node_of(base);
    bool cut = file && (mask & PROVIDER_ATTR_SIZE);
    struct stat plain = *want;
    struct stat now = {.st_size = 0};
    int rc = remote_is_aside(node)
                 ? remote_aside_open(node, O_WRONLY, &(int){-1}, err)
                 : drop_owners(remote_tree(node), &mask, want, err);

    resolve_time(&mask, PROVIDER_ATTR_ATIME, &plain.st_atim);
    resolve_time(&mask, PROVIDER_ATTR_MTIME, &plain.st_mtim);
    if (rc == 0) {
        rc = mask ? set_staged(node, cut, mask, &plain, ctx, err) : 0;
    }
    if (rc == 0) {
        return remote_getattr(base, file, ctx, attr, err);
    }
    if (rc > 0) {
        rc = set_theirs(node, mask, &plain, ctx, &now, err);
    }
    if (rc == 0) {
        *attr = now;
    }
    return rc;
}

/* A link's target is kept as the content of other files is. */
static int read_target(struct remote *r, const char *path,
                       const struct ws_ctx *ctx, char *out, size_t size,
                       struct err *err)
{
    struct stat attr;
    int rc = remote_attr(r, path, &ctx->limits, &attr, err);
    ssize_t n =
        rc < 0 ? rc : remote_data_read(r->data, path, &attr, 0, 0, out, size);

    if (rc < 0 || n >= 0) {
        out[n > 0 && (size_t)n < size ? n : 0] = '\0';
        return rc;
    }
    rc = remote_begin(r, &ctx->limits, err);
    if (rc < 0) {
        return rc;
    }
    rc = r->files->read_link(r->provider, &r->sandbox, path, &ctx->limits, out,
                             size, err);
    rc = (int)remote_end(r, rc, err);
    if (rc == 0) {
        out[size - 1] = '\0';
        remote_data_keep(r->data, path, &attr, 0, out, strlen(out));
    }
    return rc;
}

static int remote_readlink(struct ws_node *node, const struct ws_ctx *ctx,
                           char *out, size_t size, struct err *err)
{
    struct remote_node *link = remote_node_of(node);
    struct remote *r = remote_tree(link);
    unsigned depth = remote_depth(link);
    struct remote_path path;
    int rc;

    if (!S_ISLNK(link->type)) {
        return err_set(err, EINVAL, "not a link");
    }
    rc = remote_path(link, NULL, &path, err);
    if (rc == 0) {
        rc = read_target(r, path.text, ctx, out, size, err);
    }
    if (rc < 0) {
        return rc;
    }
    out[size - 1] = '\0';
    if (r->view.raw_links) {
        return 0;
    }
    rc = ws_link_check(out, size, depth, depth, r->instance.workspace_path);
    return rc < 0 ? err_set(err, -rc, "the link leads out of the workspace")
                  : 0;
}

static int remote_statfs(struct workspace *ws, const struct ws_ctx *ctx,
                         struct statvfs *out, struct err *err)
{
    struct remote *r = remote_of(ws);
    struct statvfs room = {.f_bsize = 0};
    int rc;

    if (!r->files->statfs) {
        return remote_cannot(err);
    }
    rc = remote_begin(r, &ctx->limits, err);
    if (rc < 0) {
        return rc;
    }
    rc = r->files->statfs(r->provider, &r->sandbox, &ctx->limits, &room, err);
    rc = (int)remote_end(r, rc, err);
    if (rc == 0) {
        room.f_namemax = NAME_MAX;
        *out = room;
    }
    return rc;
}

static void remote_changed(struct workspace *ws)
{
    remote_cache_changed(remote_of(ws)->cache);
}

static void remote_contested(struct workspace *ws, bool contested)
{
    mutex_lock(&ws->lock);
    remote_of(ws)->contested = contested;
    mutex_unlock(&ws->lock);
}

static const struct workspace_ops remote_ops = {
    .blocks = true,
    .changed = remote_changed,
    .contested = remote_contested,
    .unsent = remote_unsent,
    .sync = remote_sync,
    .end = remote_end_all,
    .keep = remote_keep,
    .send_kept = remote_send_kept,
    .free = remote_free,
    .node_unhash = remote_node_unhash,
    .node_free = remote_node_free,
    .lookup = remote_lookup,
    .getattr = remote_getattr,
    .setattr = remote_setattr,
    .readlink = remote_readlink,
    .mkdir = remote_mkdir,
    .mknod = remote_mknod,
    .symlink = remote_symlink,
    .link = remote_link,
    .remove = remote_remove,
    .rename = remote_rename,
    .open = remote_open,
    .create = remote_create,
    .read = remote_read,
    .write = remote_write,
    .flush = remote_flush,
    .fsync = remote_fsync,
    .fallocate = remote_fallocate,
    .lseek = remote_lseek,
    .copy_range = remote_copy_range,
    .file_fd = remote_file_fd,
    .close = remote_close,
    .opendir = remote_opendir,
    .readdir = remote_readdir,
    .fsyncdir = remote_fsyncdir,
    .closedir = remote_closedir,
    .statfs = remote_statfs,
};

static int copy_text(const char **out, const char *from)
{
    *out = from ? strdup(from) : NULL;
    return from && !*out ? -ENOMEM : 0;
}

static int copy_sandbox(struct remote *r, const struct sandbox *sandbox)
{
    r->sandbox.number = sandbox->number;
    r->sandbox.instance = &r->instance;
    if (copy_text(&r->sandbox.id, sandbox->id) < 0 ||
        copy_text(&r->sandbox.dir, sandbox->dir) < 0 ||
        copy_text(&r->sandbox.config, sandbox->config) < 0) {
        return -ENOMEM;
    }
    return instance_copy(&r->instance, sandbox->instance);
}

static int make_parts(struct remote *r, const struct sandbox *sandbox)
{
    r->cache = remote_cache_new(KEEP_MS);
    r->data = remote_data_new(sandbox->dir, r->view.cache_bytes, KEEP_MS);
    r->ahead = workers_new(AHEAD_THREADS);
    r->listers = workers_new(LIST_THREADS);
    return !r->cache || !r->data || !r->ahead || !r->listers ||
                   copy_sandbox(r, sandbox) < 0 || remote_nodes_init(r) < 0
               ? -ENOMEM
               : 0;
}

int ws_new_remote(struct provider *provider, const struct sandbox *sandbox,
                  const struct ws_view *view, struct workspace **out,
                  struct err *err)
{
    struct remote *r = calloc(1, sizeof(*r));
    int rc;

    if (!r) {
        return err_no_memory(err);
    }
    r->provider = provider;
    r->files = provider->ops->files;
    r->view = *view;
    list_init(&r->loads);
    list_init(&r->fetches);
    list_init(&r->staged);
    if (!r->view.cache_bytes) {
        r->view.cache_bytes = CACHE_BYTES;
    }
    if (!r->view.stage_bytes) {
        r->view.stage_bytes = STAGE_BYTES;
    }
    r->walk.at_ms = INT64_MIN / 2;
    r->small_ms = INT64_MIN / 2;
    atomic_init(&r->aside, -1);
    rc = cancel_init(&r->end, err);
    if (rc == 0 && make_parts(r, sandbox) < 0) {
        cancel_done(&r->end);
        rc = err_no_memory(err);
    }
    if (rc < 0) {
        free_parts(r);
        free(r);
        return rc;
    }
    cond_init(&r->turn);
    remote_aside_init(r);
    ws_init(&r->base, &remote_ops, &r->root.base);
    remote_halves_start(r);
    *out = &r->base;
    return 0;
}
