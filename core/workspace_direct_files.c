/* Open files of a direct tree. */
#include "core/workspace_direct.h"

#include "core/cleanup.h"

#include <errno.h>

static struct direct_file *file_of(struct ws_file *file)
{
    return container_of(file, struct direct_file, base);
}

int direct_file_fd(const struct ws_file *file)
{
    return ((const struct direct_file *)(const void *)file)->fd;
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

int direct_file_new(struct ws_node *node, int fd, struct ws_file **out,
                    struct err *err)
{
    struct direct_file *file = calloc(1, sizeof(*file));
    int rc;

    if (!file) {
        return err_set(err, ENOMEM, "out of memory");
    }
    /* While it has a user the node's fd is not evicted: without handles an
     * unlinked file could not be found again. */
    rc = direct_fd_get(direct_node_of(node), err);
    if (rc < 0) {
        free(file);
        return rc;
    }
    file->base.node = ws_node_ref(node);
    file->fd = fd;
    *out = &file->base;
    return 0;
}

void direct_close(struct ws_file *base)
{
    struct direct_file *file = file_of(base);

    (void)close(file->fd);
    direct_fd_put(direct_node_of(base->node));
    free(file);
}

/* Opens the data of an O_PATH fd; the type of its node is known. */
static int open_data(mode_t type, int path_fd, int flags, struct err *err)
{
    int fd;

    if (S_ISDIR(type)) {
        return err_set(err, EISDIR, "a directory");
    }
    if (!S_ISREG(type)) {
        return err_set(err, S_ISLNK(type) ? ELOOP : ENXIO,
                       "only files have data");
    }
    fd = open(direct_proc(path_fd).text, direct_open_flags(flags));
    return fd < 0 ? err_errno(err, "open") : fd;
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
        rc = direct_file_new(base, fd, out, err);
    }
    if (rc == 0) {
        (void)TAKE_FD(fd);
    }
    return rc;
}

ssize_t direct_read(struct ws_file *file, void *out, size_t size, off_t offset,
                    const struct ws_ctx *ctx, struct err *err)
{
    int fd = direct_file_fd(file);
    size_t done = 0;

    (void)ctx;
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
    int fd = direct_file_fd(file);
    size_t done = 0;
    int rc = direct_drop_setid(fd, ctx, err);

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
    int fd = direct_file_fd(file);

    (void)ctx;
    return (data_only ? fdatasync(fd) : fsync(fd)) < 0 ? err_errno(err, "fsync")
                                                       : 0;
}

int direct_fallocate(struct ws_file *file, int mode, off_t offset, off_t size,
                     const struct ws_ctx *ctx, struct err *err)
{
    int fd = direct_file_fd(file);
    int rc = direct_drop_setid(fd, ctx, err);

    if (rc < 0) {
        return rc;
    }
    do {
        rc = fallocate(fd, mode, offset, size);
    } while (rc < 0 && errno == EINTR);
    return rc < 0 ? err_errno(err, "fallocate") : 0;
}

off_t direct_lseek(struct ws_file *file, off_t offset, int whence,
                   const struct ws_ctx *ctx, struct err *err)
{
    off_t found = lseek(direct_file_fd(file), offset, whence);

    (void)ctx;
    return found < 0 ? err_errno(err, "lseek") : found;
}

ssize_t direct_copy_range(struct ws_file *in, off_t in_offset,
                          struct ws_file *out, off_t out_offset, size_t size,
                          const struct ws_ctx *ctx, struct err *err)
{
    int rc = direct_drop_setid(direct_file_fd(out), ctx, err);
    ssize_t n;

    if (rc < 0) {
        return rc;
    }
    do {
        n = copy_file_range(direct_file_fd(in), &in_offset, direct_file_fd(out),
                            &out_offset, size, 0);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? err_errno(err, "copy_file_range") : n;
}
