/* Open files and directories of a remote tree. */
#include "core/remote_aside.h"

#include "core/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    AHEAD_MOST = 15 /* Chunks: with the one that is read, 4 MiB. */
};

static struct remote_file *file_of(struct ws_file *file)
{
    return container_of(file, struct remote_file, base);
}

static struct remote *tree_of(const struct ws_file *file)
{
    return remote_of(file->node->tree);
}

int remote_file_fd(struct ws_file *file)
{
    (void)file;
    return -EOPNOTSUPP;
}

static int check_type(mode_t type, struct err *err)
{
    if (S_ISDIR(type)) {
        return err_set(err, EISDIR, "a directory");
    }
    if (!S_ISREG(type)) {
        return err_set(err, S_ISLNK(type) ? ELOOP : ENXIO,
                       "only files have data");
    }
    return 0;
}

int remote_file_new(struct ws_node *node, int flags, struct ws_file **out,
                    struct err *err)
{
    struct remote_file *file = calloc(1, sizeof(*file));

    if (!file) {
        return err_no_memory(err);
    }
    mutex_lock(&node->tree->lock);
    remote_node_of(node)->opens++;
    file->base.node = ws_node_ref_locked(node);
    mutex_unlock(&node->tree->lock);
    file->flags = flags;
    file->aside = -1;
    *out = &file->base;
    return 0;
}

/* Cuts a file for who opens it so; the engine has it when it is closed. */
static int cut(struct ws_node *node, const struct ws_ctx *ctx, struct err *err)
{
    struct remote_stage *stage = NULL;
    int rc = remote_stage_enter(remote_node_of(node), REMOTE_MAKE, &ctx->limits,
                                &stage, err);

    if (rc < 0) {
        return rc;
    }
    rc = remote_stage_resize(stage, 0, &ctx->limits, err);
    stage->any = true;
    remote_stage_leave(stage, false);
    return rc;
}

/* Opens what is on this side alone. */
static int open_aside(struct ws_node *node, int flags, struct ws_file **out,
                      struct err *err)
{
    int fd = -1;
    int rc = remote_aside_open(remote_node_of(node), flags, &fd, err);

    if (rc == 0) {
        rc = remote_file_new(node, flags, out, err);
        if (rc == 0) {
            file_of(*out)->aside = TAKE_FD(fd);
        }
        cleanup_fd(&fd);
    }
    return rc;
}

int remote_open(struct ws_node *node, int flags, const struct ws_ctx *ctx,
                struct ws_file **out, struct err *err)
{
    bool cuts = (flags & O_TRUNC) && (flags & O_ACCMODE) != O_RDONLY;
    struct ws_file *file;
    struct remote_path path;
    struct stat attr;
    int rc = check_type(remote_node_of(node)->type, err);

    if (rc == 0 && remote_is_aside(remote_node_of(node))) {
        return open_aside(node, flags, out, err);
    }
    if (rc == 0 && !remote_stage_attr(remote_node_of(node), &attr)) {
        /* Told now, -ESTALE makes the kernel look the name up again. */
        rc = remote_path(remote_node_of(node), NULL, &path, err);
    }
    if (rc == 0) {
        rc = remote_file_new(node, flags, &file, err);
    }
    if (rc == 0 && cuts) {
        rc = cut(node, ctx, err);
        if (rc < 0) {
            ws_close(file);
        }
    }
    if (rc == 0) {
        *out = file;
    }
    return rc;
}

/* What nobody can send or read any more goes. */
static void drop_stage(struct remote_node *node)
{
    struct remote *r = remote_tree(node);
    struct remote_stage *stage = NULL;

    mutex_lock(&r->base.lock);
    if (!node->opens && node->stage && !node->stage->busy &&
        !node->stage->sending) {
        stage = node->stage;
        stage->busy = true;
    }
    mutex_unlock(&r->base.lock);
    if (stage) { /* Else who is in it ends it. */
        remote_stage_leave(stage, true);
    }
}

void remote_close(struct ws_file *file)
{
    struct remote_node *node = remote_node_of(file->node);
    struct remote *r = remote_tree(node);

    mutex_lock(&r->base.lock);
    node->opens--;
    mutex_unlock(&r->base.lock);
    drop_stage(node);
    cleanup_fd(&file_of(file)->aside);
    free(file_of(file));
}

/* How many chunks to fetch besides the one that is read. */
static uint64_t look_ahead(struct remote_file *file, uint64_t chunk)
{
    struct remote *r = tree_of(&file->base);
    uint64_t ahead;

    mutex_lock(&r->base.lock);
    if (chunk == file->next) { /* On and on. */
        ahead = file->ahead * 2 + 1;
        file->ahead = ahead < AHEAD_MOST ? ahead : AHEAD_MOST;
        file->next = chunk + file->ahead + 1;
    } else if (chunk > file->next || file->next - chunk > file->ahead + 1) {
        file->ahead = 0;
        file->next = chunk + 1;
    }
    ahead = file->ahead;
    mutex_unlock(&r->base.lock);
    return ahead;
}

/* Reads at a path that the file has now. */
static ssize_t read_at_path(struct ws_file *file, const char *path, void *out,
                            size_t size, off_t offset, const struct ws_ctx *ctx,
                            struct err *err)
{
    struct remote *r = tree_of(file);
    struct stat attr;
    const struct remote_range range = {
        .path = path,
        .attr = &attr,
        .ahead = look_ahead(file_of(file), (uint64_t)offset / REMOTE_CHUNK)};
    int rc = remote_attr(r, path, &ctx->limits, &attr, err);

    if (rc == 0 && !offset && attr.st_size <= REMOTE_CHUNK) {
        remote_read_ahead(
            r, path, remote_data_read(r->data, path, &attr, 0, 0, out, 0) < 0);
    }
    return rc < 0 ? rc
                  : remote_content(r, &range, out, size, (uint64_t)offset,
                                   &ctx->limits, err);
}

static ssize_t read_theirs(struct ws_file *file, void *out, size_t size,
                           off_t offset, const struct ws_ctx *ctx,
                           struct err *err)
{
    struct remote_node *node = remote_node_of(file->node);
    struct remote_path path;
    ssize_t n = remote_path(node, NULL, &path, err);

    if (n == 0) {
        n = read_at_path(file, path.text, out, size, offset, ctx, err);
    }
    if (n == -ENOENT && remote_has_moved(node, path.text, &ctx->limits)) {
        err_clear(err); /* It was renamed before the engine was asked. */
        n = remote_path(node, NULL, &path, err);
        n = n < 0 ? n
                  : read_at_path(file, path.text, out, size, offset, ctx, err);
    }
    return n;
}

ssize_t remote_read(struct ws_file *file, void *out, size_t size, off_t offset,
                    const struct ws_ctx *ctx, struct err *err)
{
    struct remote_stage *stage = NULL;
    ssize_t n;

    if (file_of(file)->aside >= 0) {
        n = pread(file_of(file)->aside, out, size, offset);
        return n < 0 ? err_errno(err, "read what was put aside") : n;
    }
    n = remote_stage_enter(remote_node_of(file->node), REMOTE_BESIDE,
                           &ctx->limits, &stage, err);
    if (n < 0) {
        return n;
    }
    if (!stage) {
        return read_theirs(file, out, size, offset, ctx, err);
    }
    n = remote_stage_read(stage, out, size, (uint64_t)offset, &ctx->limits,
                          err);
    remote_stage_leave(stage, false);
    return n;
}

ssize_t remote_write(struct ws_file *file, const void *data, size_t size,
                     off_t offset, const struct ws_ctx *ctx, struct err *err)
{
    const struct provider_files *files = tree_of(file)->files;
    bool append = file_of(file)->flags & O_APPEND;
    struct remote_stage *stage = NULL;
    int rc;

    if (!files->write_at && !files->put) {
        return remote_cannot(err);
    }
    rc = remote_stage_enter(remote_node_of(file->node),
                            append ? REMOTE_MAKE | REMOTE_BESIDE : REMOTE_MAKE,
                            &ctx->limits, &stage, err);
    if (rc < 0) {
        return rc;
    }
    rc = remote_stage_write(stage, data, size, (uint64_t)offset, append,
                            &ctx->limits, err);
    remote_stage_leave(stage, !stage->changed);
    return rc < 0 ? rc : (ssize_t)size;
}

int remote_flush(struct ws_file *file, const struct ws_ctx *ctx,
                 struct err *err)
{
    return (file_of(file)->flags & O_ACCMODE) == O_RDONLY
               ? 0
               : remote_send(remote_node_of(file->node), &ctx->limits, err);
}

int remote_fsync(struct ws_file *file, bool data_only, const struct ws_ctx *ctx,
                 struct err *err)
{
    (void)data_only;
    return remote_send(remote_node_of(file->node), &ctx->limits, err);
}

int remote_fallocate(struct ws_file *file, int mode, off_t offset, off_t size,
                     const struct ws_ctx *ctx, struct err *err)
{
    (void)file;
    (void)mode;
    (void)offset;
    (void)size;
    (void)ctx;
    return err_set(err, EOPNOTSUPP, "the provider reserves no space");
}

/* A file without known holes: all data, and a hole at its end. */
off_t remote_lseek(struct ws_file *file, off_t offset, int whence,
                   const struct ws_ctx *ctx, struct err *err)
{
    struct stat attr;
    int rc = ws_getattr(file->node, file, ctx, &attr, err);

    if (rc < 0) {
        return rc;
    }
    if (offset < 0 || offset >= attr.st_size) {
        return err_set(err, ENXIO, "behind the end");
    }
    return whence == SEEK_DATA ? offset : attr.st_size;
}

ssize_t remote_copy_range(struct ws_file *in, off_t in_offset,
                          struct ws_file *out, off_t out_offset, size_t size,
                          const struct ws_ctx *ctx, struct err *err)
{
    (void)in;
    (void)in_offset;
    (void)out;
    (void)out_offset;
    (void)size;
    (void)ctx;
    return err_set(err, EOPNOTSUPP, "the provider copies no ranges");
}
