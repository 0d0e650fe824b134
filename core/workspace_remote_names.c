/* Names of a remote tree: making, moving and removing. */
#include "core/remote_aside.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>

enum {
    /* A larger file that is open cannot be read any more when it is removed. */
    ORPHAN_MOST = 64 * 1024 * 1024
};

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

/* Ends a call that changes the file. */
static int end(const struct about *about, int rc, struct err *err)
{
    rc = (int)remote_end(about->r, rc, err);
    remote_forget(about->r, about->path.text);
    return rc;
}

/* Ends a call that has made something; what the engine told of it is known,
 * and nothing else has changed but its directory's times. */
static int end_new(const struct about *about, int rc, const struct stat *now,
                   struct err *err)
{
    if (rc < 0 || !now->st_mode) {
        return end(about, rc, err);
    }
    remote_cache_set(about->r->cache, about->path.text, now);
    return (int)remote_end(about->r, rc, err);
}

static bool is_fresh(struct remote_node *node)
{
    struct remote *r = remote_tree(node);
    bool fresh;

    mutex_lock(&r->base.lock);
    fresh = node->stage && node->stage->fresh;
    mutex_unlock(&r->base.lock);
    return fresh;
}

/* Begins to make a name; it is not one that is not sent yet either. */
static int begin_new(struct about *about, const struct ws_place *place,
                     struct err *err)
{
    struct remote_node *node =
        remote_node_find(remote_node_of(place->dir), place->name);
    bool fresh = node && is_fresh(node);

    ws_node_unref(node ? &node->base : NULL);
    return fresh ? err_set(err, EEXIST, "it is there")
                 : begin(about, place->dir, place->name, place->ctx, err);
}

/* Sends a file that the engine does not have, so that it can be named there. */
static int send_fresh(struct remote_node *node, const struct ws_ctx *ctx,
                      struct err *err)
{
    return node && is_fresh(node) ? remote_send(node, &ctx->limits, err) : 0;
}

int remote_make_dir(struct remote *r, const char *path,
                    const struct limits *limits, struct err *err)
{
    struct stat now;
    int rc;

    if (!r->files->make_dir) {
        return remote_cannot(err);
    }
    rc = remote_begin(r, limits, err);
    if (rc < 0) {
        return rc;
    }
    rc = r->files->make_dir(r->provider, &r->sandbox, path, 0755, limits, &now,
                            err);
    rc = (int)remote_end(r, rc, err);
    remote_forget(r, path);
    return rc;
}

int remote_mkdir(const struct ws_place *place, struct ws_node **out,
                 struct stat *attr, struct err *err)
{
    struct stat now = {.st_mode = 0};
    struct about about;
    int rc;

    if (!remote_of(place->dir->tree)->files->make_dir) {
        return remote_cannot(err);
    }
    rc = begin_new(&about, place, err);
    if (rc < 0) {
        return rc;
    }
    rc = about.r->files->make_dir(about.r->provider, &about.r->sandbox,
                                  about.path.text, place->mode,
                                  &place->ctx->limits, &now, err);
    rc = end_new(&about, rc, &now, err);
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
    struct stat now = {.st_mode = 0};
    struct about about;
    int rc;

    if (!remote_of(place->dir->tree)->files->create) {
        return remote_cannot(err);
    }
    rc = begin_new(&about, place, err);
    if (rc < 0) {
        return rc;
    }
    rc = about.r->files->create(about.r->provider, &about.r->sandbox,
                                about.path.text, place->mode & 07777,
                                &place->ctx->limits, &now, err);
    return end_new(&about, rc, &now, err);
}

int remote_mknod(const struct ws_place *place, struct ws_node **out,
                 struct stat *attr, struct err *err)
{
    int rc;

    if (!S_ISREG(place->mode)) {
        return remote_cannot(err);
    }
    rc = make_file(place, err);
    return rc < 0 ? rc
                  : remote_lookup(place->dir, place->name, place->ctx, out,
                                  attr, err);
}

int remote_symlink(const struct ws_place *place, const char *target,
                   struct ws_node **out, struct stat *attr, struct err *err)
{
    struct stat now = {.st_mode = 0};
    struct about about;
    int rc;

    if (!remote_of(place->dir->tree)->files->symlink) {
        return remote_cannot(err);
    }
    rc = begin_new(&about, place, err);
    if (rc < 0) {
        return rc;
    }
    rc = about.r->files->symlink(about.r->provider, &about.r->sandbox, target,
                                 about.path.text, &place->ctx->limits, &now,
                                 err);
    rc = end_new(&about, rc, &now, err);
    return rc < 0 ? rc
                  : remote_lookup(place->dir, place->name, place->ctx, out,
                                  attr, err);
}

int remote_link(struct ws_node *node, const struct ws_place *place,
                struct stat *attr, struct err *err)
{
    struct remote_path from;
    struct about about;
    int rc;

    if (!remote_of(node->tree)->files->link) {
        return err_set(err, EPERM, "the provider has no hard links");
    }
    if (remote_is_aside(remote_node_of(node))) {
        return err_set(err, EPERM, "it is on this side alone: move it");
    }
    rc = send_fresh(remote_node_of(node), place->ctx, err);
    if (rc == 0) {
        rc = remote_path(remote_node_of(node), NULL, &from, err);
    }
    if (rc == 0) {
        rc = begin_new(&about, place, err);
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

/* ---- Removing and moving ---- */

/* A directory in which something is not sent yet is not empty. */
static int check_empty(struct remote_node *dir, struct err *err)
{
    struct remote *r = remote_tree(dir);
    bool empty = true;

    mutex_lock(&r->base.lock);
    list_each(link, &r->staged)
    {
        const struct remote_stage *stage =
            container_of(link, struct remote_stage, link);

        if (stage->fresh && !stage->orphan && stage->node->parent == dir) {
            empty = false;
        }
    }
    mutex_unlock(&r->base.lock);
    return empty ? 0 : err_set(err, ENOTEMPTY, "the directory is not empty");
}

/* A file whose name is about to go: what who has it open may still read is
 * brought here. The stage is entered, NULL where none is needed. */
static int begin_removal(struct remote_node *node, const struct ws_ctx *ctx,
                         struct remote_stage **out, struct err *err)
{
    struct remote *r = remote_tree(node);
    struct remote_stage *stage = NULL;
    struct err unused = ERR_INIT;
    bool open;
    int rc;

    mutex_lock(&r->base.lock);
    open = node->opens && S_ISREG(node->type);
    mutex_unlock(&r->base.lock);
    rc = remote_stage_enter(node, open ? REMOTE_MAKE : REMOTE_FIND,
                            &ctx->limits, &stage, err);
    if (rc == -ETIMEDOUT || rc == -ECANCELED) {
        return rc;
    }
    err_clear(err);
    if (rc == 0 && stage && open && stage->attr.st_size <= ORPHAN_MOST) {
        /* What cannot be had is not there for who reads it later. */
        (void)!remote_stage_fill(stage, &ctx->limits, &unused);
    }
    *out = stage;
    return 0;
}

static void end_removal(struct remote_stage *stage, bool removed)
{
    struct remote *r;

    if (!stage) {
        return;
    }
    r = remote_tree(stage->node);
    mutex_lock(&r->base.lock);
    stage->orphan = stage->orphan || removed;
    mutex_unlock(&r->base.lock);
    remote_stage_leave(stage, !removed && !stage->changed);
}

/* Forgets what was known of a file that is going, and of its other names: one
 * of which nothing is known may have some. */
static void forget_going(struct remote *r, const char *path)
{
    struct stat attr;

    if (remote_cache_find(r->cache, path, &attr) == REMOTE_UNKNOWN) {
        remote_cache_changed(r->cache);
    }
    remote_forget(r, path);
}

static int remove_theirs(struct ws_node *dir, const char *name, bool is_dir,
                         const struct ws_ctx *ctx, struct err *err)
{
    struct about about;
    int rc = begin(&about, dir, name, ctx, err);

    if (rc < 0) {
        return rc;
    }
    rc = about.r->files->remove(about.r->provider, &about.r->sandbox,
                                about.path.text, is_dir, &ctx->limits, err);
    forget_going(about.r, about.path.text);
    return (int)remote_end(about.r, rc, err);
}

static int remove_node(struct ws_node *dir, const char *name,
                       struct remote_node *node, bool is_dir,
                       const struct ws_ctx *ctx, struct err *err)
{
    struct remote_stage *stage = NULL;
    int rc = 0;

    if (node && is_dir) {
        rc = check_empty(node, err);
    } else if (node) {
        rc = begin_removal(node, ctx, &stage, err);
    }
    if (rc == 0 && !(stage && stage->fresh)) {
        rc = remove_theirs(dir, name, is_dir, ctx, err);
    }
    end_removal(stage, rc == 0);
    return rc;
}

int remote_remove(struct ws_node *dir, const char *name, bool is_dir,
                  const struct ws_ctx *ctx, struct err *err)
{
    struct remote *r = remote_of(dir->tree);
    struct remote_node *node;
    struct remote_path path;
    int rc;

    if (!r->files->remove) {
        return remote_cannot(err);
    }
    node = remote_node_find(remote_node_of(dir), name);
    rc = node && remote_is_aside(node)
             ? remote_aside_remove(node, err)
             : remove_node(dir, name, node, is_dir, ctx, err);
    if (rc == 0) {
        rc = remote_path(remote_node_of(dir), name, &path, err);
    }
    if (rc == 0) {
        remote_cache_set(r->cache, path.text, NULL);
        remote_node_removed(remote_node_of(dir), name);
    }
    ws_node_unref(node ? &node->base : NULL);
    return rc;
}

static int rename_theirs(const struct ws_move *move, struct err *err)
{
    struct remote_path from;
    struct about about;
    int rc = remote_path(remote_node_of(move->from), move->name, &from, err);

    if (rc == 0) {
        rc = begin(&about, move->to, move->new_name, move->ctx, err);
    }
    if (rc < 0) {
        return rc;
    }
    rc = about.r->files->rename(about.r->provider, &about.r->sandbox, from.text,
                                about.path.text, move->flags,
                                &move->ctx->limits, err);
    forget_going(about.r, about.path.text);
    remote_forget(about.r, from.text);
    return (int)remote_end(about.r, rc, err);
}

/* What lies below a directory that moves is not sent meanwhile. */
static int move_both(const struct ws_move *move, struct remote_node *a,
                     struct remote_node *b, struct err *err)
{
    struct remote_node *other = move->flags & RENAME_EXCHANGE ? b : NULL;
    int rc = remote_move_begin(a, &move->ctx->limits, err);

    if (rc < 0) {
        return rc;
    }
    rc = remote_move_begin(other, &move->ctx->limits, err);
    if (rc == 0) {
        rc = a && remote_is_aside(a) ? remote_aside_move(move, a, err)
                                     : rename_theirs(move, err);
        if (rc == 0) {
            remote_node_moved(move);
        }
        remote_move_end(other);
    }
    remote_move_end(a);
    return rc;
}

/* Both ends, where they have nodes. */
static int rename_nodes(const struct ws_move *move, struct remote_node *a,
                        struct remote_node *b, struct err *err)
{
    bool replaces =
        b && b != a && !(move->flags & (RENAME_EXCHANGE | RENAME_NOREPLACE));
    struct remote_stage *stage = NULL;
    struct remote_stage *moving = NULL; /* Nobody sends it meanwhile. */
    int rc = send_fresh(a, move->ctx, err);

    if (rc == 0 && a) {
        rc = remote_stage_enter(a, REMOTE_FIND, &move->ctx->limits, &moving,
                                err);
    }
    if (rc == 0 && b && b != a && remote_is_aside(b)) {
        rc = err_set(err, EPERM,
                     "nothing can take the place of what is not sent");
    }
    if (rc == 0 && b != a) {
        rc = send_fresh(b, move->ctx, err);
    }
    if (rc == 0 && replaces && S_ISDIR(b->type)) {
        rc = check_empty(b, err);
    } else if (rc == 0 && replaces) {
        rc = begin_removal(b, move->ctx, &stage, err);
    }
    if (rc == 0) {
        rc = move_both(move, a, b, err);
    }
    end_removal(stage, rc == 0);
    if (moving) {
        remote_stage_leave(moving, false);
    }
    return rc;
}

int remote_rename(const struct ws_move *move, struct err *err)
{
    struct remote_node *a, *b;
    int rc;

    if (!remote_of(move->from->tree)->files->rename) {
        return remote_cannot(err);
    }
    a = remote_node_find(remote_node_of(move->from), move->name);
    b = remote_node_find(remote_node_of(move->to), move->new_name);
    rc = rename_nodes(move, a, b, err);
    ws_node_unref(a ? &a->base : NULL);
    ws_node_unref(b ? &b->base : NULL);
    return rc;
}

/* ---- Making and opening ---- */

/* The engine's numbers are known to be there, or not, before one is made. */
static int learn_inos(const struct ws_place *place, struct err *err)
{
    struct remote_node *dir = remote_node_of(place->dir);
    struct remote *r = remote_tree(dir);
    struct remote_path path;
    struct stat attr;
    bool known;
    int rc;

    mutex_lock(&r->base.lock);
    known = r->has_inos;
    mutex_unlock(&r->base.lock);
    rc = known ? 0 : remote_path(dir, NULL, &path, err);
    if (rc == 0 && !known) {
        rc = remote_attr(r, path.text, &place->ctx->limits, &attr, err);
    }
    if (rc == 0 && !known) {
        mutex_lock(&r->base.lock);
        r->has_inos = attr.st_ino != 0;
        mutex_unlock(&r->base.lock);
    }
    return rc;
}

/* Makes a file here alone; it is sent when it is closed. */
static int create_here(const struct ws_place *place, int flags,
                       struct ws_node **node, struct ws_file **file,
                       struct stat *attr, struct err *err)
{
    bool any = (flags & O_TRUNC) && !(flags & O_EXCL);
    struct remote_node *made = NULL;
    struct remote_stage *stage;
    int rc = learn_inos(place, err);

    if (rc == 0) {
        rc = remote_node_make(remote_node_of(place->dir), place->name, &made,
                              err);
    }
    if (rc == 0) {
        rc = remote_stage_fresh(made, place->mode, any, &stage, err);
    }
    if (rc == 0) {
        stage->appended = !(flags & O_EXCL);
        rc = remote_file_new(&made->base, flags, file, err);
        remote_stage_leave(stage, rc < 0);
    }
    if (rc == 0) {
        rc = remote_getattr(&made->base, *file, place->ctx, attr, err);
    }
    if (rc < 0) {
        ws_node_unref(made ? &made->base : NULL);
        return rc;
    }
    *node = &made->base;
    return 0;
}

/* Opens what is there. */
static int open_there(struct ws_node *found, struct stat *now, int flags,
                      const struct ws_place *place, struct ws_file **file,
                      struct err *err)
{
    int rc = flags & O_EXCL ? err_set(err, EEXIST, "it is there")
                            : remote_open(found, flags, place->ctx, file, err);

    if (rc == 0 && (flags & O_TRUNC)) {
        now->st_size = 0;
    }
    return rc;
}

/* Nobody else may make it meanwhile: the engine decides. */
static bool is_contested(const struct ws_place *place, int flags)
{
    struct remote *r = remote_of(place->dir->tree);
    bool contested;

    mutex_lock(&r->base.lock);
    contested = r->contested && (flags & O_EXCL);
    mutex_unlock(&r->base.lock);
    return contested;
}

int remote_create(const struct ws_place *place, int flags,
                  struct ws_node **node, struct ws_file **file,
                  struct stat *attr, struct err *err)
{
    struct ws_node *found = NULL;
    struct stat now;
    int rc;

    if (is_contested(place, flags)) {
        rc = make_file(place, err);
        if (rc < 0) {
            return rc;
        }
        flags &= ~O_EXCL;
    }
    rc = remote_lookup(place->dir, place->name, place->ctx, &found, &now, err);
    if (rc == -ENOENT) {
        err_clear(err);
        return create_here(place, flags, node, file, attr, err);
    }
    if (rc < 0) {
        return rc;
    }
    rc = open_there(found, &now, flags, place, file, err);
    if (rc < 0) {
        ws_node_unref(found);
        return rc;
    }
    *node = found;
    *attr = now;
    return 0;
}
