/* Open files and directories of a remote tree. */
#include "core/workspace_remote.h"

#include "core/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

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
    return -1;
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

int remote_open(struct ws_node *node, int flags, const struct ws_ctx *ctx,
                struct ws_file **out, struct err *err)
{
    const struct stat empty = {.st_size = 0};
    struct remote_file *file;
    struct remote_path path;
    struct stat attr;
    int rc = check_type(remote_node_of(node)->type, err);

    if (rc == 0) {
        /* Told now, -ESTALE makes the kernel look the name up again. */
        rc = remote_path(remote_node_of(node), NULL, &path, err);
    }
    if (rc == 0 && (flags & O_TRUNC) && (flags & O_ACCMODE) != O_RDONLY) {
        rc =
            ws_setattr(node, NULL, PROVIDER_ATTR_SIZE, &empty, ctx, &attr, err);
    }
    if (rc < 0) {
        return rc;
    }
    file = calloc(1, sizeof(*file));
    if (!file) {
        return err_set(err, ENOMEM, "out of memory");
    }
    file->base.node = ws_node_ref(node);
    file->flags = flags;
    *out = &file->base;
    return 0;
}

void remote_close(struct ws_file *file)
{
    free(file_of(file));
}

ssize_t remote_read(struct ws_file *file, void *out, size_t size, off_t offset,
                    const struct ws_ctx *ctx, struct err *err)
{
    struct remote *r = tree_of(file);
    struct remote_path path;
    size_t done = 0;
    ssize_t n = remote_path(remote_node_of(file->node), NULL, &path, err);

    if (n < 0) {
        return n;
    }
    do {
        n = remote_begin(r, &ctx->limits, err);
        if (n < 0) {
            return n;
        }
        n = r->files->read_at(r->provider, &r->sandbox, path.text,
                              (char *)out + done, size - done,
                              (uint64_t)offset + done, &ctx->limits, err);
        n = remote_end(r, n, err);
        if (n > (ssize_t)(size - done)) {
            return err_set(err, EIO, "the engine sent more than was asked");
        }
        done += n > 0 ? (size_t)n : 0;
    } while (n > 0 && done < size);
    return n < 0 ? n : (ssize_t)done;
}

static ssize_t write_at(struct ws_file *file, const void *data, size_t size,
                        uint64_t offset, const struct ws_ctx *ctx,
                        struct err *err)
{
    struct remote *r = tree_of(file);
    struct remote_path path;
    ssize_t rc = remote_path(remote_node_of(file->node), NULL, &path, err);

    if (rc < 0) {
        return rc;
    }
    if (!r->files->write_at) {
        return err_set(err, EOPNOTSUPP, "the provider cannot write");
    }
    rc = remote_begin(r, &ctx->limits, err);
    if (rc < 0) {
        return rc;
    }
    rc = r->files->write_at(r->provider, &r->sandbox, path.text, data, size,
                            offset, &ctx->limits, err);
    rc = remote_end(r, rc, err);
    remote_cache_forget(r->cache, path.text);
    return rc < 0 ? rc : (ssize_t)size;
}

/* Waits until nobody else finds the end of a file and writes there. */
static int take_turn(struct remote *r, const struct ws_ctx *ctx,
                     struct err *err)
{
    int rc = 0;

    mutex_lock(&r->base.lock);
    while (r->appending && rc == 0 && !cancel_fired(ctx->limits.cancel)) {
        rc = cond_wait(&r->turn, &r->base.lock, ctx->limits.deadline_ms);
    }
    rc = r->appending ? -ETIMEDOUT : 0;
    r->appending = true;
    mutex_unlock(&r->base.lock);
    return rc < 0 ? err_set(err, ETIMEDOUT, "another writer is at the end") : 0;
}

static void end_turn(struct remote *r)
{
    mutex_lock(&r->base.lock);
    r->appending = false;
    cond_broadcast(&r->turn);
    mutex_unlock(&r->base.lock);
}

static ssize_t append(struct ws_file *file, const void *data, size_t size,
                      const struct ws_ctx *ctx, struct err *err)
{
    struct remote *r = tree_of(file);
    struct stat attr;
    ssize_t rc = take_turn(r, ctx, err);

    if (rc < 0) {
        return rc;
    }
    rc = ws_getattr(file->node, NULL, ctx, &attr, err);
    if (rc == 0) {
        rc = write_at(file, data, size, (uint64_t)attr.st_size, ctx, err);
    }
    end_turn(r);
    return rc;
}

ssize_t remote_write(struct ws_file *file, const void *data, size_t size,
                     off_t offset, const struct ws_ctx *ctx, struct err *err)
{
    return file_of(file)->flags & O_APPEND
               ? append(file, data, size, ctx, err)
               : write_at(file, data, size, (uint64_t)offset, ctx, err);
}

int remote_fsync(struct ws_file *file, bool data_only, const struct ws_ctx *ctx,
                 struct err *err)
{
    (void)file;
    (void)data_only;
    (void)ctx;
    (void)err;
    return 0; /* Nothing is held back here. */
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

/* ---- Directories ---- */

struct entry {
    char *name;
    mode_t type;
    uint64_t ino; /* As the engine told it. */
};

/* A listing is taken whole at offset 0, so it tells each entry once. */
struct remote_dir {
    struct ws_dir base;
    struct mutex lock; /* For all below. */
    struct entry *entries;
    size_t n, room;
    bool listed;
};

static struct remote_dir *dir_of(struct ws_dir *dir)
{
    return container_of(dir, struct remote_dir, base);
}

int remote_opendir(struct ws_node *node, const struct ws_ctx *ctx,
                   struct ws_dir **out, struct err *err)
{
    struct remote_dir *dir;

    (void)ctx;
    if (!S_ISDIR(remote_node_of(node)->type)) {
        return err_set(err, ENOTDIR, "not a directory");
    }
    dir = calloc(1, sizeof(*dir));
    if (!dir) {
        return err_set(err, ENOMEM, "out of memory");
    }
    mutex_init(&dir->lock);
    dir->base.node = ws_node_ref(node);
    *out = &dir->base;
    return 0;
}

static void free_entries(struct entry *entries, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(entries[i].name);
    }
    free(entries);
}

void remote_closedir(struct ws_dir *base)
{
    struct remote_dir *dir = dir_of(base);

    free_entries(dir->entries, dir->n);
    mutex_done(&dir->lock);
    free(dir);
}

int remote_fsyncdir(struct ws_dir *dir, bool data_only,
                    const struct ws_ctx *ctx, struct err *err)
{
    (void)dir;
    (void)data_only;
    (void)ctx;
    (void)err;
    return 0; /* Nothing is held back here. */
}

static int gather(void *arg, const struct provider_entry *entry)
{
    struct remote_dir *list = arg;

    if (list->n == list->room) {
        size_t room = list->room ? list->room * 2 : 64;
        struct entry *wide = realloc(list->entries, room * sizeof(*wide));

        if (!wide) {
            return -ENOMEM;
        }
        list->entries = wide;
        list->room = room;
    }
    list->entries[list->n] =
        (struct entry){.name = strdup(entry->name),
                       .type = entry->attr.st_mode & S_IFMT,
                       .ino = entry->attr.st_ino};
    if (!list->entries[list->n].name) {
        return -ENOMEM;
    }
    list->n++;
    return 0;
}

/* Takes a new listing; no lock is held during the call. */
static int list(struct remote_dir *dir, const struct ws_ctx *ctx,
                struct err *err)
{
    struct remote_node *node = remote_node_of(dir->base.node);
    struct remote *r = remote_tree(node);
    struct remote_dir found = {.entries = NULL};
    struct remote_path path;
    int rc = remote_path(node, NULL, &path, err);

    if (rc < 0) {
        return rc;
    }
    rc = remote_list(r, path.text, &ctx->limits, gather, &found, err);
    if (rc < 0) {
        free_entries(found.entries, found.n);
        return rc;
    }
    mutex_lock(&dir->lock);
    free_entries(dir->entries, dir->n);
    dir->entries = found.entries;
    dir->n = found.n;
    dir->room = found.room;
    dir->listed = true;
    mutex_unlock(&dir->lock);
    return 0;
}

/* Tells the entry at an index, where "." is 0 and ".." 1. */
static bool tell(struct remote_dir *dir, size_t index, ws_entry_fn *fn,
                 void *arg)
{
    struct remote_node *node = remote_node_of(dir->base.node);
    struct stat attr = {.st_mode = S_IFDIR, .st_ino = node->base.ino};
    const char *name = index ? ".." : ".";

    if (index >= 2) {
        const struct entry *entry = &dir->entries[index - 2];

        name = entry->name;
        attr.st_mode = entry->type;
        attr.st_ino = remote_ino(node, name, entry->ino);
    }
    return fn(arg, name, &attr, (off_t)index + 1);
}

int remote_readdir(struct ws_dir *base, off_t offset, ws_entry_fn *fn,
                   void *arg, const struct ws_ctx *ctx, struct err *err)
{
    struct remote_dir *dir = dir_of(base);
    size_t index = (size_t)offset;
    bool listed;

    mutex_lock(&dir->lock);
    listed = dir->listed && offset != 0;
    mutex_unlock(&dir->lock);
    if (!listed) {
        int rc = list(dir, ctx, err);

        if (rc < 0) {
            return rc;
        }
    }
    mutex_lock(&dir->lock);
    while (index < dir->n + 2 && tell(dir, index, fn, arg)) {
        index++;
    }
    mutex_unlock(&dir->lock);
    return 0;
}
