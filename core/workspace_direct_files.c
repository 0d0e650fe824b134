/* Open files of a direct tree. */
#include "core/workspace_direct.h"

#include "core/cleanup.h"

#include <errno.h>
#include <linux/limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct direct_file *direct_file_of(struct ws_file *file)
{
    return container_of(file, struct direct_file, base);
}

/* Opens what was opened for later; somebody else may do so at the same time. */
static int open_now(struct direct_file *file)
{
    int fd = open(direct_proc(file->path_fd).text, direct_open_flags(O_RDONLY));
    int there = -1;

    if (fd < 0) {
        return -errno;
    }
    if (!atomic_compare_exchange_strong(&file->fd, &there, fd)) {
        (void)close(fd);
        return there;
    }
    return fd;
}

int direct_file_fd(struct ws_file *base)
{
    struct direct_file *file = direct_file_of(base);
    int fd = file->parts ? -EOPNOTSUPP : atomic_load(&file->fd);

    return fd >= 0 || file->parts ? fd : open_now(file);
}

int direct_file_data(struct ws_file *file, struct err *err)
{
    int fd = direct_file_fd(file);

    return fd < 0 ? err_set(err, -fd, "cannot open the file: %s", strerror(-fd))
                  : fd;
}

/* What writes a file with set-id bits takes them away, unless it is root: that
 * is for us to do. */
enum ws_pass direct_pass(struct ws_file *base, int *fd)
{
    const struct direct_file *file = direct_file_of(base);
    struct stat attr;

    if (file->parts) {
        *fd = -1;
        return WS_PASS_NOT;
    }
    *fd = file->path_fd;
    if ((file->flags & O_ACCMODE) == O_RDONLY) {
        return WS_PASS_ALL;
    }
    return fstat(file->path_fd, &attr) == 0 &&
                   !(attr.st_mode & (S_ISUID | S_ISGID))
               ? WS_PASS_ALL
               : WS_PASS_MAPS;
}

/*
 * O_NONBLOCK, because a lease that the sandbox holds would make us wait for
 * it. O_DIRECT is left out: the kernel's buffers here are not aligned.
 */
int direct_open_flags(int flags)
{
    return (flags & (O_ACCMODE | O_APPEND | O_SYNC | O_NOATIME)) | O_NONBLOCK |
           O_CLOEXEC;
}

static bool writes(const struct direct_file *file)
{
    return (file->flags & O_ACCMODE) != O_RDONLY;
}

static bool is_shared(const struct direct_file *file)
{
    struct direct_node *node = direct_node_of(file->base.node);
    struct stat attr;

    if (fstat(file->path_fd, &attr) == 0) {
        direct_node_saw(node, &attr);
    }
    return ws_node_shared(&node->base);
}

static void note_writer(struct direct_file *file)
{
    struct direct *d = direct_of(file->base.node->tree);

    if (writes(file)) {
        file->shared = is_shared(file);
        if (file->shared) {
            (void)atomic_fetch_add(&d->base.shared_writers, 1);
        }
        mutex_lock(&d->base.lock);
        list_add(&d->writers, &file->writing);
        mutex_unlock(&d->base.lock);
    }
}

static void forget_writer(struct direct_file *file)
{
    struct direct *d = direct_of(file->base.node->tree);

    if (writes(file)) {
        mutex_lock(&d->base.lock);
        list_remove(&file->writing);
        mutex_unlock(&d->base.lock);
        if (file->shared) {
            (void)atomic_fetch_sub(&d->base.shared_writers, 1);
        }
    }
}

/*
 * The path of an open file as the kernel knows it, which the sandbox's own
 * renames change too; NULL where it does not know, or no memory.
 */
static char *kernel_path(const struct direct *d, int fd)
{
    static const char gone[] = " (deleted)";
    char root[PATH_MAX], path[PATH_MAX];
    ssize_t top = readlink(direct_proc(d->dir_fd).text, root, sizeof(root));
    ssize_t len = readlink(direct_proc(fd).text, path, sizeof(path) - 1);
    const char *end;

    if (top == 1) {
        top = 0; /* The root of a mount: "/" ends with what follows it. */
    }
    if (top < 0 || len <= top + 1 || len >= (ssize_t)sizeof(path) - 1 ||
        memcmp(root, path, (size_t)top) != 0 || path[top] != '/') {
        return NULL;
    }
    path[len] = '\0';
    end = path + len - (sizeof(gone) - 1);
    return end > path && strcmp(end, gone) == 0 ? NULL : strdup(path + top + 1);
}

/* The path of a writer; the tree's lock is held. */
static int writer_path(const struct direct *d, const struct direct_file *file,
                       char **out)
{
    *out = kernel_path(d, file->path_fd);
    return *out ? 0
                : direct_node_path_locked(d, direct_node_of(file->base.node),
                                          out);
}

/* The paths of all writers; as many as there is memory for. */
static char **list_writers(struct direct *d, size_t *count, int *rc)
{
    char **paths = NULL;
    size_t n = 0;

    *count = 0;
    mutex_lock(&d->base.lock);
    list_each(at, &d->writers)
    {
        n++;
    }
    paths = calloc(n + 1, sizeof(*paths));
    *rc = paths ? 0 : -ENOMEM;
    list_each(at, &d->writers)
    {
        const struct direct_file *file =
            container_of(at, struct direct_file, writing);

        if (*rc == 0) {
            *rc = writer_path(d, file, &paths[*count]);
            *count += *rc == 0;
            *rc = *rc == -ESTALE ? 0 : *rc;
        }
    }
    mutex_unlock(&d->base.lock);
    return paths;
}

int direct_writers(struct workspace *ws, ws_writer_fn *fn, void *arg)
{
    size_t count;
    int rc;
    char **paths = list_writers(direct_of(ws), &count, &rc);

    for (size_t i = 0; i < count; i++) {
        rc = rc == 0 ? fn(arg, paths[i]) : rc;
        free(paths[i]);
    }
    free(paths);
    return rc;
}

bool direct_writing(struct workspace *ws)
{
    struct direct *d = direct_of(ws);
    bool writing;

    mutex_lock(&ws->lock);
    writing = !list_empty(&d->writers);
    mutex_unlock(&ws->lock);
    return writing;
}

/* What does not lie whole in its tree is not read by its fd. */
static int open_parts(struct direct_file *file, const struct direct *d,
                      struct err *err)
{
    int rc = d->parts && d->parts->is(file->path_fd)
                 ? d->parts->open(d->parts_arg, file->path_fd, &file->parts)
                 : 0;

    return rc < 0 ? err_set(err, -rc, "open: %s", strerror(-rc)) : 0;
}

int direct_file_new(struct ws_node *node, int fd, int flags,
                    struct ws_file **out, struct err *err)
{
    struct direct_file *file = calloc(1, sizeof(*file));
    int rc;

    if (!file) {
        return err_no_memory(err);
    }
    /* While it has a user the node's fd is not evicted: without handles an
     * unlinked file could not be found again. */
    rc = direct_fd_get(direct_node_of(node), err);
    if (rc < 0) {
        free(file);
        return rc;
    }
    file->path_fd = rc;
    rc = open_parts(file, direct_of(node->tree), err);
    if (rc < 0) {
        direct_fd_put(direct_node_of(node));
        free(file);
        return rc;
    }
    file->base.node = ws_node_ref(node);
    file->flags = flags;
    atomic_init(&file->fd, fd);
    note_writer(file);
    (void)atomic_fetch_add(&direct_of(node->tree)->opens, 1);
    *out = &file->base;
    return 0;
}

void direct_close(struct ws_file *base)
{
    struct direct_file *file = direct_file_of(base);
    int fd = atomic_load(&file->fd);

    forget_writer(file);
    if (file->parts) {
        direct_of(base->node->tree)->parts->close(file->parts);
    }
    cleanup_fd(&fd);
    direct_fd_put(direct_node_of(base->node));
    (void)atomic_fetch_sub(&direct_of(base->node->tree)->opens, 1);
    free(file);
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

/* Opens the data of an O_PATH fd; the type of its node is known. */
static int open_data(mode_t type, int path_fd, int flags, struct err *err)
{
    int rc = check_type(type, err);
    int fd;

    if (rc < 0) {
        return rc;
    }
    fd = open(direct_proc(path_fd).text, direct_open_flags(flags));
    return fd < 0 ? err_errno(err, "open") : fd;
}

int direct_open_later(struct ws_node *base, const struct ws_ctx *ctx,
                      struct ws_file **out, struct err *err)
{
    int rc = check_type(direct_node_of(base)->type, err);

    (void)ctx;
    return rc < 0 ? rc : direct_file_new(base, -1, O_RDONLY, out, err);
}

int direct_open(struct ws_node *base, int flags, const struct ws_ctx *ctx,
                struct ws_file **out, struct err *err)
{
    struct direct_node *node = direct_node_of(base);
    int path_fd = direct_fd_get(node, err);
    AUTO_FD int fd = -1;
    int rc = 0;

    if (path_fd < 0) {
        return path_fd;
    }
    fd = open_data(node->type, path_fd, flags, err);
    direct_fd_put(node);
    if (fd < 0) {
        return fd;
    }
    if ((flags & O_TRUNC) && (flags & O_ACCMODE) != O_RDONLY) {
        rc = direct_truncate(fd, 0, ctx, err);
    }
    if (rc == 0) {
        rc = direct_file_new(base, fd, flags, out, err);
    }
    if (rc == 0) {
        (void)TAKE_FD(fd);
    }
    return rc;
}

static ssize_t read_parts(const struct direct_file *file, void *out,
                          size_t size, off_t offset, struct err *err)
{
    const struct direct *d = direct_of(file->base.node->tree);
    ssize_t n = d->parts->read(file->parts, out, size, (uint64_t)offset);

    return n < 0 ? err_set(err, (int)-n, "read: %s", strerror((int)-n)) : n;
}

ssize_t direct_read(struct ws_file *file, void *out, size_t size, off_t offset,
                    const struct ws_ctx *ctx, struct err *err)
{
    size_t done = 0;
    int fd;

    (void)ctx;
    if (direct_file_of(file)->parts) {
        return read_parts(direct_file_of(file), out, size, offset, err);
    }
    fd = direct_file_data(file, err);
    if (fd < 0) {
        return fd;
    }
    while (done < size) {
        ssize_t n =
            pread(fd, (char *)out + done, size - done, offset + (off_t)done);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return err_errno(err, "read");
        }
        if (n == 0) {
            break;
        }
        done += (size_t)n;
    }
    return (ssize_t)done;
}

ssize_t direct_write(struct ws_file *file, const void *data, size_t size,
                     off_t offset, const struct ws_ctx *ctx, struct err *err)
{
    int fd = direct_file_data(file, err);
    size_t done = 0;
    int rc = fd < 0 ? fd : direct_drop_setid(fd, ctx, err);

    if (rc < 0) {
        return rc;
    }
    while (done < size) {
        ssize_t n = pwrite(fd, (const char *)data + done, size - done,
                           offset + (off_t)done);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0 && done) {
            break; /* The next write tells why. */
        }
        if (n < 0) {
            return err_errno(err, "write");
        }
        done += (size_t)n;
    }
    return (ssize_t)done;
}

int direct_fsync(struct ws_file *file, bool data_only, const struct ws_ctx *ctx,
                 struct err *err)
{
    int fd = direct_file_data(file, err);

    (void)ctx;
    if (fd < 0) {
        return fd;
    }
    return (data_only ? fdatasync(fd) : fsync(fd)) < 0 ? err_errno(err, "fsync")
                                                       : 0;
}

int direct_fallocate(struct ws_file *file, int mode, off_t offset, off_t size,
                     const struct ws_ctx *ctx, struct err *err)
{
    int fd = direct_file_data(file, err);
    int rc = fd < 0 ? fd : direct_drop_setid(fd, ctx, err);

    if (rc < 0) {
        return rc;
    }
    do {
        rc = fallocate(fd, mode, offset, size);
    } while (rc < 0 && errno == EINTR);
    return rc < 0 ? err_errno(err, "fallocate") : 0;
}

/* All of it is data: holes are where it lies elsewhere. */
static off_t seek_parts(const struct direct_file *file, off_t offset,
                        int whence, struct err *err)
{
    struct stat attr;

    if (fstat(file->path_fd, &attr) < 0) {
        return err_errno(err, "fstat");
    }
    if (offset < 0 || offset >= attr.st_size) {
        return err_set(err, ENXIO, "behind the end");
    }
    return whence == SEEK_DATA ? offset : attr.st_size;
}

off_t direct_lseek(struct ws_file *file, off_t offset, int whence,
                   const struct ws_ctx *ctx, struct err *err)
{
    off_t found;
    int fd;

    (void)ctx;
    if (direct_file_of(file)->parts) {
        return seek_parts(direct_file_of(file), offset, whence, err);
    }
    fd = direct_file_data(file, err);
    if (fd < 0) {
        return fd;
    }
    found = lseek(fd, offset, whence);
    return found < 0 ? err_errno(err, "lseek") : found;
}

ssize_t direct_copy_range(struct ws_file *in, off_t in_offset,
                          struct ws_file *out, off_t out_offset, size_t size,
                          const struct ws_ctx *ctx, struct err *err)
{
    int in_fd = direct_file_data(in, err);
    int out_fd = in_fd < 0 ? in_fd : direct_file_data(out, err);
    int rc = out_fd < 0 ? out_fd : direct_drop_setid(out_fd, ctx, err);
    ssize_t n;

    if (rc < 0) {
        return rc;
    }
    do {
        n = copy_file_range(in_fd, &in_offset, out_fd, &out_offset, size, 0);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? err_errno(err, "copy_file_range") : n;
}
