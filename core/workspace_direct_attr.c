/* Attributes, links' targets and extended attributes of a direct tree. */
#include "core/workspace_direct.h"

#include "core/cleanup.h"

#include <errno.h>
#include <limits.h>
#include <linux/limits.h>
#include <string.h>
#include <sys/xattr.h>

enum {
    BLOCK = 512 /* Of st_blocks. */
};

/* The sandbox's id for one of the host, or one that it does not have. */
static uint32_t inside(const struct direct *d, uint32_t host, uint32_t base)
{
    uint32_t id = host - base;

    return host >= base && id < d->ids.count ? id : UINT32_MAX;
}

/* The number but for what has moved. */
static uint64_t plain_ino(const struct direct *d, const struct stat *attr)
{
    uint64_t ino = attr->st_ino;

    if (attr->st_dev != d->root.key.dev) {
        ino |= (uint64_t)attr->st_dev << 40; /* Apart from the root's own. */
    }
    return ws_ino_shown(d->number, ino);
}

uint64_t direct_ino(struct direct *d, const struct stat *attr)
{
    const uint64_t plain = plain_ino(d, attr);
    uint64_t shown;

    mutex_lock(&d->inos_lock);
    shown = ws_inos_shown(d->inos, plain);
    mutex_unlock(&d->inos_lock);
    return shown;
}

void direct_ino_keep(struct direct *d, const struct stat *attr, uint64_t shown)
{
    const uint64_t plain = plain_ino(d, attr);

    mutex_lock(&d->inos_lock);
    ws_inos_keep(&d->inos, plain, shown);
    mutex_unlock(&d->inos_lock);
}

void direct_show(struct direct *d, struct stat *attr)
{
    attr->st_ino = direct_ino(d, attr);
    attr->st_uid = ws_uid_shown(&d->ids, inside(d, attr->st_uid, d->host_uid));
    attr->st_gid = ws_gid_shown(&d->ids, inside(d, attr->st_gid, d->host_gid));
}

void direct_show_room(const struct direct *d, int fd, struct stat *attr)
{
    const off_t full = (attr->st_size + BLOCK - 1) / BLOCK;

    if (d->parts && S_ISREG(attr->st_mode) && attr->st_blocks < full &&
        d->parts->is(fd)) {
        attr->st_blocks = full;
    }
}

int direct_getattr(struct ws_node *base, struct ws_file *file,
                   const struct ws_ctx *ctx, struct stat *attr, struct err *err)
{
    struct direct_node *node = direct_node_of(base);
    struct stat found;
    int fd, rc;

    (void)ctx;
    fd = file ? direct_file_of(file)->path_fd : direct_fd_get(node, err);
    if (fd < 0) {
        return fd;
    }
    rc = fstat(fd, &found) < 0 ? err_errno(err, "fstat") : 0;
    if (rc == 0) {
        direct_show_room(direct_tree(node), fd, &found);
    }
    if (!file) {
        direct_fd_put(node);
    }
    if (rc < 0) {
        return rc;
    }
    direct_node_saw(node, &found);
    direct_show(direct_tree(node), &found);
    *attr = found;
    return 0;
}

int direct_drop_setid(int fd, const struct ws_ctx *ctx, struct err *err)
{
    struct stat attr;
    mode_t drop;

    if (ctx->uid == 0) {
        return 0; /* As CAP_FSETID does. */
    }
    if (fstat(fd, &attr) < 0) {
        return err_errno(err, "fstat");
    }
    drop = attr.st_mode & S_ISUID;
    if (attr.st_mode & S_IXGRP) {
        drop |= attr.st_mode & S_ISGID;
    }
    if (drop && fchmod(fd, attr.st_mode & 07777 & ~drop) < 0) {
        return err_errno(err, "drop set-id bits");
    }
    return 0;
}

int direct_truncate(int fd, off_t size, const struct ws_ctx *ctx,
                    struct err *err)
{
    int rc = direct_drop_setid(fd, ctx, err);

    if (rc < 0) {
        return rc;
    }
    do {
        rc = ftruncate(fd, size);
    } while (rc < 0 && errno == EINTR);
    return rc < 0 ? err_errno(err, "truncate") : 0;
}

int direct_chmod(int fd, mode_t mode, struct err *err)
{
    const struct direct_proc_path path = direct_proc(fd);

    return chmod(path.text, mode & 07777) < 0 ? err_errno(err, "chmod") : 0;
}

static int set_size(struct direct_node *node, int fd, off_t size,
                    struct ws_file *file, const struct ws_ctx *ctx,
                    struct err *err)
{
    AUTO_FD int own = -1;

    if (file && (direct_file_of(file)->flags & O_ACCMODE) != O_RDONLY) {
        return direct_truncate(direct_file_fd(file), size, ctx, err);
    }
    if (!S_ISREG(node->type)) {
        return err_set(err, S_ISDIR(node->type) ? EISDIR : EINVAL,
                       "only files have a length");
    }
    own = open(direct_proc(fd).text, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (own < 0) {
        return err_errno(err, "open");
    }
    return direct_truncate(own, size, ctx, err);
}

/* Changes the owner; an id that is shown already is left as it is. */
static int set_owner(struct direct *d, int fd, unsigned mask,
                     const struct stat *want, struct err *err)
{
    struct stat now;
    uint32_t uid = UINT32_MAX, gid = UINT32_MAX;
    int rc = 0;

    if (fstat(fd, &now) < 0) {
        return err_errno(err, "fstat");
    }
    direct_show(d, &now);
    if ((mask & PROVIDER_ATTR_UID) && want->st_uid != now.st_uid) {
        rc = ws_uid_inside(&d->ids, want->st_uid, &uid, err);
        uid += d->host_uid;
    }
    if (rc == 0 && (mask & PROVIDER_ATTR_GID) && want->st_gid != now.st_gid) {
        rc = ws_gid_inside(&d->ids, want->st_gid, &gid, err);
        gid += d->host_gid;
    }
    if (rc < 0) {
        return rc;
    }
    return fchownat(fd, "", uid, gid, AT_EMPTY_PATH) < 0
               ? err_errno(err, "chown")
               : 0;
}

static int set_times(int fd, unsigned mask, const struct stat *want,
                     struct err *err)
{
    struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT},
        {.tv_nsec = UTIME_OMIT},
    };

    if (mask & PROVIDER_ATTR_ATIME) {
        times[0] = want->st_atim;
    }
    if (mask & PROVIDER_ATTR_MTIME) {
        times[1] = want->st_mtim;
    }
    return utimensat(fd, "", times, AT_EMPTY_PATH) < 0
               ? err_errno(err, "utimensat")
               : 0;
}

static int set_all(struct direct_node *node, int fd, struct ws_file *file,
                   unsigned mask, const struct stat *want,
                   const struct ws_ctx *ctx, struct err *err)
{
    int rc = 0;

    if (mask & PROVIDER_ATTR_SIZE) {
        rc = set_size(node, fd, want->st_size, file, ctx, err);
    }
    if (rc == 0 && (mask & (PROVIDER_ATTR_UID | PROVIDER_ATTR_GID))) {
        rc = set_owner(direct_tree(node), fd, mask, want, err);
    }
    /* After the owner, whose change takes set-id bits away. */
    if (rc == 0 && (mask & PROVIDER_ATTR_MODE)) {
        rc = S_ISLNK(node->type)
                 ? err_set(err, EOPNOTSUPP, "links have no mode")
                 : direct_chmod(fd, want->st_mode, err);
    }
    if (rc == 0 && (mask & (PROVIDER_ATTR_ATIME | PROVIDER_ATTR_MTIME))) {
        rc = set_times(fd, mask, want, err);
    }
    return rc;
}

int direct_setattr(struct ws_node *base, struct ws_file *file, unsigned mask,
                   const struct stat *want, const struct ws_ctx *ctx,
                   struct stat *attr, struct err *err)
{
    struct direct_node *node = direct_node_of(base);
    int fd = direct_fd_get(node, err);
    int rc;

    if (fd < 0) {
        return fd;
    }
    rc = set_all(node, fd, file, mask, want, ctx, err);
    direct_fd_put(node);
    return rc < 0 ? rc : direct_getattr(base, file, ctx, attr, err);
}

/* Reads a link as it is stored. */
static int read_stored(int fd, char *out, size_t size, struct stat *attr,
                       struct err *err)
{
    ssize_t n = readlinkat(fd, "", out, size);

    if (n < 0 || fstat(fd, attr) < 0) {
        return err_errno(err, "readlink");
    }
    if ((size_t)n >= size) {
        return err_set(err, ENAMETOOLONG, "the link's target is too long");
    }
    out[n] = '\0';
    return 0;
}

int direct_readlink(struct ws_node *base, const struct ws_ctx *ctx, char *out,
                    size_t size, struct err *err)
{
    struct direct_node *node = direct_node_of(base);
    unsigned depth = 0, ups = 0;
    struct stat attr;
    int fd, rc;

    (void)ctx;
    if (!S_ISLNK(node->type)) {
        return err_set(err, EINVAL, "not a link");
    }
    fd = direct_fd_get(node, err);
    if (fd < 0) {
        return fd;
    }
    rc = read_stored(fd, out, size, &attr, err);
    direct_fd_put(node);
    if (rc < 0 || direct_tree(node)->raw_links) {
        return rc;
    }
    rc = direct_node_link_depth(node, &depth, &ups);
    if (rc < 0) {
        return err_set(err, -rc, "the link's place is not known");
    }
    if (attr.st_nlink > 1) {
        ups = 0; /* The reader may have come by any of its names. */
    }
    rc = ws_link_check(out, size, depth, ups, direct_tree(node)->path);
    return rc < 0 ? err_set(err, -rc, "the link leads out of the workspace")
                  : 0;
}

/*
 * Extended attributes go through /proc, since the calls refuse O_PATH fds.
 * Only files and directories can have user.* ones.
 */
static int xattr_fd(struct direct_node *node, int none, struct err *err)
{
    if (!S_ISREG(node->type) && !S_ISDIR(node->type)) {
        return err_set(err, none, "only files and directories have them");
    }
    return direct_fd_get(node, err);
}

ssize_t direct_getxattr(struct ws_node *base, const char *name, void *out,
                        size_t size, struct err *err)
{
    struct direct_node *node = direct_node_of(base);
    int fd = xattr_fd(node, ENODATA, err);
    ssize_t n;

    if (fd < 0) {
        return fd;
    }
    n = getxattr(direct_proc(fd).text, name, out, size);
    if (n < 0) {
        n = err_errno(err, "getxattr");
    }
    direct_fd_put(node);
    return n;
}

/* Keeps the user.* names of a list. */
static size_t keep_user(char *list, size_t size)
{
    size_t kept = 0;

    for (size_t at = 0; at < size;) {
        size_t len = strnlen(list + at, size - at) + 1;

        if (strncmp(list + at, "user.", 5) == 0) {
            memmove(list + kept, list + at, len);
            kept += len;
        }
        at += len;
    }
    return kept;
}

ssize_t direct_listxattr(struct ws_node *base, char *out, size_t size,
                         struct err *err)
{
    struct direct_node *node = direct_node_of(base);
    AUTO_FREE char *list = NULL;
    int fd = -1;
    ssize_t n;

    if (!S_ISREG(node->type) && !S_ISDIR(node->type)) {
        return 0;
    }
    list = malloc(XATTR_LIST_MAX + 1);
    if (!list) {
        return err_no_memory(err);
    }
    fd = direct_fd_get(node, err);
    if (fd < 0) {
        return fd;
    }
    n = listxattr(direct_proc(fd).text, list, XATTR_LIST_MAX);
    if (n < 0) {
        n = err_errno(err, "listxattr");
    }
    direct_fd_put(node);
    if (n <= 0) {
        return n;
    }
    list[n] = '\0';
    n = (ssize_t)keep_user(list, (size_t)n);
    if (size && (size_t)n > size) {
        return err_set(err, ERANGE, "the list is longer");
    }
    if (size) {
        memcpy(out, list, (size_t)n);
    }
    return n;
}

int direct_setxattr(struct ws_node *base, const char *name, const void *value,
                    size_t size, int flags, struct err *err)
{
    struct direct_node *node = direct_node_of(base);
    int fd = xattr_fd(node, EPERM, err);
    int rc = 0;

    if (fd < 0) {
        return fd;
    }
    if (setxattr(direct_proc(fd).text, name, value, size, flags) < 0) {
        rc = err_errno(err, "setxattr");
    }
    direct_fd_put(node);
    return rc;
}

int direct_removexattr(struct ws_node *base, const char *name, struct err *err)
{
    struct direct_node *node = direct_node_of(base);
    int fd = xattr_fd(node, EPERM, err);
    int rc = 0;

    if (fd < 0) {
        return fd;
    }
    if (removexattr(direct_proc(fd).text, name) < 0) {
        rc = err_errno(err, "removexattr");
    }
    direct_fd_put(node);
    return rc;
}
