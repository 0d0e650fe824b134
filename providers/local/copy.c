/* Copies of files. See copy.h. */
#include "providers/local/copy.h"

#include "core/cleanup.h"
#include "providers/local/note.h"
#include "providers/local/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

enum {
    PIECE = 128 * 1024,
    CLONE_LEAST = 64 * 1024, /* Smaller ones are copied as fast. */
    BLOCK = 512,             /* Of st_blocks. */
    UNIT = 4096,             /* A file's room without content. */
    FD_PATH = 32,
};

/* ---- Opening ---- */

/* Ours are the modes of all that the workload has, where we are not root. */
static int open_shut(int dir, const char *name, int flags)
{
    AUTO_FD int place = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    char path[FD_PATH];
    struct stat attr;
    int fd;

    if (place < 0 || fstat(place, &attr) < 0) {
        return -errno;
    }
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", place);
    if (chmod(path, (attr.st_mode & ALLPERMS) | S_IRUSR | S_IXUSR) < 0) {
        return -EACCES;
    }
    fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | flags);
    fd = fd < 0 ? -errno : fd;
    (void)chmod(path, attr.st_mode & ALLPERMS);
    return fd;
}

int copy_open(int dir, const char *name, int flags)
{
    int fd = openat(dir, name,
                    O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC | flags);

    if (fd < 0 && errno == EACCES && geteuid() != 0) {
        return open_shut(dir, name, flags);
    }
    return fd < 0 ? -errno : fd;
}

int copy_step_in(int *fd, const char *name)
{
    int next = copy_open(*fd, name, O_DIRECTORY);

    if (next < 0) {
        return next;
    }
    (void)close(*fd);
    *fd = next;
    return 0;
}

int copy_step_out(int *fd)
{
    return copy_step_in(fd, "..");
}

/* ---- Content ---- */

static int write_all(int fd, const char *data, size_t size, off_t at)
{
    while (size > 0) {
        ssize_t n = pwrite(fd, data, size, at);

        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        if (n > 0) {
            data += n;
            size -= (size_t)n;
            at += n;
        }
    }
    return 0;
}

static int copy_range(int src, int dst, off_t at, off_t end)
{
    static _Thread_local char data[PIECE];

    while (at < end) {
        size_t most = end - at < PIECE ? (size_t)(end - at) : PIECE;
        ssize_t n = pread(src, data, most, at);
        int rc = n > 0 ? write_all(dst, data, (size_t)n, at) : 0;

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0 || rc < 0) {
            return n < 0 ? -errno : rc;
        }
        at += n;
    }
    return 0;
}

/* Holes stay holes. */
static int copy_stretches(int src, int dst, off_t size)
{
    off_t at = 0;
    int rc = 0;

    while (rc == 0 && at < size) {
        off_t data = lseek(src, at, SEEK_DATA);
        off_t hole = data < 0 ? -1 : lseek(src, data, SEEK_HOLE);

        if (data < 0) {
            return errno == ENXIO ? 0 : -errno;
        }
        if (hole < 0) {
            return -errno;
        }
        rc = copy_range(src, dst, data, hole < size ? hole : size);
        at = hole;
    }
    return rc;
}

int copy_clone(int from, int to)
{
    return ioctl(to, FICLONE, from) < 0 ? -errno : 0;
}

int copy_content(int from, int to)
{
    struct stat attr;

    if (fstat(from, &attr) < 0) {
        return -errno;
    }
    if (attr.st_size >= CLONE_LEAST && copy_clone(from, to) == 0) {
        return 0;
    }
    if (attr.st_blocks * BLOCK >= attr.st_size) {
        return copy_range(from, to, 0, attr.st_size);
    }
    return ftruncate(to, attr.st_size) < 0
               ? -errno
               : copy_stretches(from, to, attr.st_size);
}

/* ---- Attributes ---- */

static int copy_one_xattr(int src, int dst, const char *name)
{
    AUTO_FREE char *value = malloc(XATTR_SIZE_MAX);
    ssize_t size;

    if (!value) {
        return -ENOMEM;
    }
    size = fgetxattr(src, name, value, XATTR_SIZE_MAX);
    if (size < 0) {
        return errno == ENODATA ? 0 : -errno;
    }
    return fsetxattr(dst, name, value, (size_t)size, 0) < 0 ? -errno : 0;
}

static int copy_xattrs(int src, int dst)
{
    AUTO_FREE char *names = NULL;
    ssize_t size = flistxattr(src, NULL, 0);
    int rc = 0;

    if (size <= 0) {
        return size < 0 && errno != EOPNOTSUPP ? -errno : 0;
    }
    names = malloc((size_t)size);
    if (!names) {
        return -ENOMEM;
    }
    size = flistxattr(src, names, (size_t)size);
    for (ssize_t at = 0; rc == 0 && at < size;
         at += (ssize_t)strlen(names + at) + 1) {
        rc = note_is(names + at) || strcmp(names + at, PARTS_MARK) == 0
                 ? 0
                 : copy_one_xattr(src, dst, names + at);
    }
    return size < 0 ? -errno : rc;
}

/* All but the content; an owner's change takes bits of the mode away. */
static int copy_attr(int src, int dst, const struct stat *attr)
{
    const struct timespec times[2] = {attr->st_atim, attr->st_mtim};
    int rc;

    if (fchown(dst, attr->st_uid, attr->st_gid) < 0) {
        return -errno;
    }
    rc = copy_xattrs(src, dst);
    if (rc == 0 && (fchmod(dst, attr->st_mode & ALLPERMS) < 0 ||
                    futimens(dst, times) < 0)) {
        rc = -errno;
    }
    return rc;
}

int copy_dir_attr(int src, int dst, struct err *err)
{
    struct stat attr;
    int rc = fstat(src, &attr) < 0 ? -errno : copy_attr(src, dst, &attr);

    return rc < 0 ? err_set(err, -rc, "cannot copy a directory") : 0;
}

/* ---- Names ---- */

static int copy_regular(int src, const char *name, int dst,
                        const struct copy_how *how, uint64_t *bytes)
{
    AUTO_FD int from = copy_open(src, name, 0);
    AUTO_FD int to = -1;
    struct stat attr;
    int rc;

    if (from < 0) {
        return from;
    }
    if (fstat(from, &attr) < 0 || !S_ISREG(attr.st_mode)) {
        return -ESTALE;
    }
    to = openat(dst, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                0600);
    if (to < 0) {
        return -errno;
    }
    rc = how ? how->content(how->arg, from, to) : copy_content(from, to);
    if (rc == 0) {
        rc = copy_attr(from, to, &attr);
    }
    if (rc == 0 && fstat(to, &attr) == 0) {
        *bytes += (uint64_t)attr.st_blocks * BLOCK;
    }
    return rc;
}

static int copy_link(int src, const char *name, int dst, uint64_t *bytes)
{
    char target[PATH_MAX];
    ssize_t size = readlinkat(src, name, target, sizeof(target) - 1);

    if (size < 0) {
        return -errno;
    }
    target[size] = '\0';
    *bytes += size < 60 ? 0 : UNIT; /* Short ones lie in the inode. */
    return symlinkat(target, dst, name) < 0 ? -errno : 0;
}

/* What has nothing but a name: owner, mode and times by it. */
static int copy_named(int src, const char *name, int dst, uint64_t *bytes)
{
    struct stat attr;
    int rc;

    if (fstatat(src, name, &attr, AT_SYMLINK_NOFOLLOW) < 0) {
        return -errno;
    }
    rc =
        S_ISLNK(attr.st_mode)
            ? copy_link(src, name, dst, bytes)
            : (mknodat(dst, name, attr.st_mode, attr.st_rdev) < 0 ? -errno : 0);
    if (rc < 0) {
        return rc;
    }
    if (fchownat(dst, name, attr.st_uid, attr.st_gid, AT_SYMLINK_NOFOLLOW) <
            0 ||
        (!S_ISLNK(attr.st_mode) &&
         fchmodat(dst, name, attr.st_mode & ALLPERMS, 0) < 0) ||
        utimensat(dst, name,
                  (const struct timespec[]){attr.st_atim, attr.st_mtim},
                  AT_SYMLINK_NOFOLLOW) < 0) {
        return -errno;
    }
    return 0;
}

int copy_file(int src, const char *name, int dst, const struct copy_how *how,
              uint64_t *bytes, struct err *err)
{
    struct stat attr;
    int rc = fstatat(src, name, &attr, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;

    if (rc == 0) {
        rc = S_ISREG(attr.st_mode) ? copy_regular(src, name, dst, how, bytes)
                                   : copy_named(src, name, dst, bytes);
    }
    return rc < 0 ? err_set(err, -rc, "cannot keep '%.128s': %s", name,
                            strerror(-rc))
                  : 0;
}
