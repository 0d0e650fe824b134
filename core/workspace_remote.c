/* A tree over a provider's file calls: names and attributes. */
#include "core/workspace_remote.h"

#include "core/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <time.h>

enum {
    KEEP_MS = 1000 /* How long an answer of the engine holds. */
};

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

static void remote_free(struct workspace *ws)
{
    struct remote *r = remote_of(ws);

    remote_nodes_done(r);
    remote_cache_free(r->cache);
    cond_done(&r->turn);
    ws_done(ws);
    free_copies(r);
    free(r);
}

/* A call about one path. */
struct about {
    struct remote *r;
    struct remote_path path;
};

static int begin(struct about *about, struct ws_node *base, const char *name,
                 const struct ws_ctx *ctx, struct err *err)
{
    struct remote_node *node = remote_node_of(base);
    int rc = remote_path(node, name, &about->path, err);

    about->r = remote_tree(node);
    return rc < 0 ? rc : remote_begin(about->r, &ctx->limits, err);
}

/* Forgets what was known of a file that is about to be, or was, changed, and of
 * its other names, which nobody can tell. */
static void forget(struct remote *r, const char *path)
{
    struct stat attr;

    if (remote_cache_find(r->cache, path, &attr) == REMOTE_THERE &&
        !S_ISDIR(attr.st_mode) && attr.st_nlink > 1) {
        remote_cache_changed(r->cache);
    }
    remote_cache_forget(r->cache, path);
}

/* Ends a call that changes the file. */
static int end(const struct about *about, int rc, struct err *err)
{
    rc = (int)remote_end(about->r, rc, err);
    forget(about->r, about->path.text);
    return rc;
}

/* For slots that a provider may lack. */
static int cannot(struct err *err)
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

static int remote_lookup(struct ws_node *dir, const char *name,
                         const struct ws_ctx *ctx, struct ws_node **out,
                         struct stat *attr, struct err *err)
{
    struct stat found;
    int rc = stat_path(dir, name, ctx, &found, err);

    if (rc == 0) {
        rc = remote_node_meet(remote_node_of(dir), name, &found, out, err);
    }
    if (rc == 0) {
        *attr = found;
    }
    return rc;
}

static int remote_getattr(struct ws_node *node, struct ws_file *file,
                          const struct ws_ctx *ctx, struct stat *attr,
                          struct err *err)
{
    struct stat found;
    int rc = stat_path(node, NULL, ctx, &found, err);

    (void)file;
    if (rc == 0) {
        rc = remote_show(remote_node_of(node), &found, err);
    }
    if (rc == 0) {
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

static int set_attr(struct ws_node *node, unsigned mask,
                    const struct stat *want, const struct ws_ctx *ctx,
                    struct err *err)
{
    struct remote *r = remote_of(node->tree);
    struct stat plain = *want;
    struct about about;
    int rc = drop_owners(r, &mask, want, err);

    resolve_time(&mask, PROVIDER_ATTR_ATIME, &plain.st_atim);
    resolve_time(&mask, PROVIDER_ATTR_MTIME, &plain.st_mtim);
    if (rc < 0 || !mask) {
        return rc;
    }
    if (!r->files->set_attr) {
        return cannot(err);
    }
    rc = begin(&about, node, NULL, ctx, err);
    if (rc < 0) {
        return rc;
    }
    rc = r->files->set_attr(r->provider, &r->sandbox, about.path.text, mask,
                            &plain, &ctx->limits, err);
    return end(&about, rc, err);
}

static int remote_setattr(struct ws_node *node, struct ws_file *file,
                          unsigned mask, const struct stat *want,
                          const struct ws_ctx *ctx, struct stat *attr,
                          struct err *err)
{
    int rc = set_attr(node, mask, want, ctx, err);

    return rc < 0 ? rc : remote_getattr(node, file, ctx, attr, err);
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
        rc = remote_begin(r, &ctx->limits, err);
    }
    if (rc < 0) {
        return rc;
    }
    rc = r->files->read_link(r->provider, &r->sandbox, path.text, &ctx->limits,
                             out, size, err);
    rc = (int)remote_end(r, rc, err);
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

static int remote_mkdir(const struct ws_place *place, struct ws_node **out,
                        struct stat *attr, struct err *err)
{
    struct about about;
    int rc;

    if (!remote_of(place->dir->tree)->files->make_dir) {
        return cannot(err);
    }
    rc = begin(&about, place->dir, place->name, place->ctx, err);
    if (rc < 0) {
        return rc;
    }
    rc = about.r->files->make_dir(about.r->provider, &about.r->sandbox,
                                  about.path.text, place->mode,
                                  &place->ctx->limits, err);
    rc = end(&about, rc, err);
    if (rc == 0) {
        remote_cache_empty(about.r->cache, about.path.text);
    }
    return rc < 0 ? rc
                  : remote_lookup(place->dir, place->name, place->ctx, out,
                                  attr, err);
}

/* Makes an empty file. */
static int make_file(const struct ws_place *place, struct err *err)
{
    struct about about;
    int rc;

    if (!remote_of(place->dir->tree)->files->create) {
        return cannot(err);
    }
    rc = begin(&about, place->dir, place->name, place->ctx, err);
    if (rc < 0) {
        return rc;
    }
    rc = about.r->files->create(about.r->provider, &about.r->sandbox,
                                about.path.text, place->mode & 07777,
                                &place->ctx->limits, err);
    return end(&about, rc, err);
}

static int remote_mknod(const struct ws_place *place, struct ws_node **out,
                        struct stat *attr, struct err *err)
{
    int rc;

    if (!S_ISREG(place->mode)) {
        return cannot(err);
    }
    rc = make_file(place, err);
    return rc < 0 ? rc
                  : remote_lookup(place->dir, place->name, place->ctx, out,
                                  attr, err);
}

static int remote_symlink(const struct ws_place *place, const char *target,
                          struct ws_node **out, struct stat *attr,
                          struct err *err)
{
    struct about about;
    int rc;

    if (!remote_of(place->dir->tree)->files->symlink) {
        return cannot(err);
    }
    rc = begin(&about, place->dir, place->name, place->ctx, err);
    if (rc < 0) {
        return rc;
    }
    rc = about.r->files->symlink(about.r->provider, &about.r->sandbox, target,
                                 about.path.text, &place->ctx->limits, err);
    rc = end(&about, rc, err);
    return rc < 0 ? rc
                  : remote_lookup(place->dir, place->name, place->ctx, out,
                                  attr, err);
}

static int remote_link(struct ws_node *node, const struct ws_place *place,
                       struct stat *attr, struct err *err)
{
    struct remote_path from;
    struct about about;
    int rc;

    if (!remote_of(node->tree)->files->link) {
        return err_set(err, EPERM, "the provider has no hard links");
    }
    rc = remote_path(remote_node_of(node), NULL, &from, err);
    if (rc == 0) {
        rc = begin(&about, place->dir, place->name, place->ctx, err);
    }
    if (rc < 0) {
        return rc;
    }
    rc = about.r->files->link(about.r->provider, &about.r->sandbox, from.text,
                              about.path.text, &place->ctx->limits, err);
    rc = end(&about, rc, err);
    remote_cache_changed(about.r->cache); /* All its names tell of the new. */
    if (rc < 0) {
        return rc;
    }
    remote_node_linked(remote_node_of(node), remote_node_of(place->dir),
                       place->name);
    return remote_getattr(node, NULL, place->ctx, attr, err);
}

static int remote_remove(struct ws_node *dir, const char *name, bool is_dir,
                         const struct ws_ctx *ctx, struct err *err)
{
    struct about about;
    int rc;

    if (!remote_of(dir->tree)->files->remove) {
        return cannot(err);
    }
    rc = begin(&about, dir, name, ctx, err);
    if (rc < 0) {
        return rc;
    }
    rc = about.r->files->remove(about.r->provider, &about.r->sandbox,
                                about.path.text, is_dir, &ctx->limits, err);
    rc = end(&about, rc, err);
    if (rc == 0) {
        remote_cache_set(about.r->cache, about.path.text, NULL);
        remote_node_removed(remote_node_of(dir), name);
    }
    return rc;
}

static int remote_rename(const struct ws_move *move, struct err *err)
{
    struct remote_path from;
    struct about about;
    int rc;

    if (!remote_of(move->from->tree)->files->rename) {
        return cannot(err);
    }
    rc = remote_path(remote_node_of(move->from), move->name, &from, err);
    if (rc == 0) {
        rc = begin(&about, move->to, move->new_name, move->ctx, err);
    }
    if (rc < 0) {
        return rc;
    }
    rc = about.r->files->rename(about.r->provider, &about.r->sandbox, from.text,
                                about.path.text, move->flags,
                                &move->ctx->limits, err);
    rc = end(&about, rc, err);
    remote_cache_forget(about.r->cache, from.text);
    if (rc == 0) {
        remote_node_moved(move);
    }
    return rc;
}

static int remote_create(const struct ws_place *place, int flags,
                         struct ws_node **node, struct ws_file **file,
                         struct stat *attr, struct err *err)
{
    struct ws_node *found = NULL;
    struct stat now;
    int rc = make_file(place, err);

    if (rc == -EEXIST && !(flags & O_EXCL)) {
        err_clear(err);
        rc = 0;
    }
    if (rc == 0) {
        rc = remote_lookup(place->dir, place->name, place->ctx, &found, &now,
                           err);
    }
    if (rc < 0) {
        return rc;
    }
    rc = remote_open(found, flags, place->ctx, file, err);
    if (rc < 0) {
        ws_node_unref(found);
        return rc;
    }
    if (flags & O_TRUNC) {
        now.st_size = 0;
    }
    *node = found;
    *attr = now;
    return 0;
}

static int remote_statfs(struct workspace *ws, const struct ws_ctx *ctx,
                         struct statvfs *out, struct err *err)
{
    struct remote *r = remote_of(ws);
    struct statvfs room = {.f_bsize = 0};
    int rc;

    if (!r->files->statfs) {
        return cannot(err);
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

static const struct workspace_ops remote_ops = {
    .blocks = true,
    .changed = remote_changed,
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

int ws_new_remote(struct provider *provider, const struct sandbox *sandbox,
                  const struct ws_view *view, struct workspace **out,
                  struct err *err)
{
    struct remote *r = calloc(1, sizeof(*r));

    if (!r) {
        return err_set(err, ENOMEM, "out of memory");
    }
    r->provider = provider;
    r->files = provider->ops->files;
    r->view = *view;
    list_init(&r->loads);
    r->walk.at_ms = INT64_MIN / 2;
    r->cache = remote_cache_new(KEEP_MS);
    if (!r->cache || copy_sandbox(r, sandbox) < 0 || remote_nodes_init(r) < 0) {
        remote_cache_free(r->cache);
        free_copies(r);
        free(r);
        return err_set(err, ENOMEM, "out of memory");
    }
    cond_init(&r->turn);
    ws_init(&r->base, &remote_ops, &r->root.base);
    *out = &r->base;
    return 0;
}
