/* Two files compared. See compare.h. */
#include "providers/local/compare.h"

#include "core/cleanup.h"
#include "providers/local/below.h"
#include "providers/local/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum {
    PIECE = 64 * 1024,
};

int compare_find(int top, const char *path, struct compare_file *out,
                 struct err *err)
{
    struct compare_file found = {.fd = -1};

    if (top >= 0) {
        found.fd = below_open(top, path, O_PATH);
    }
    if (top >= 0 && found.fd < 0 && found.fd != -ENOENT &&
        found.fd != -ENOTDIR && found.fd != -ELOOP && found.fd != -EXDEV) {
        return err_set(err, -found.fd, "cannot look at '%.128s'", path);
    }
    found.fd = found.fd < 0 ? -1 : found.fd;
    if (found.fd >= 0 && fstat(found.fd, &found.attr) < 0) {
        int rc = err_errno(err, "cannot look at '%.128s'", path);

        (void)close(found.fd);
        return rc;
    }
    *out = found;
    return 0;
}

/* ---- Contents ---- */

/* Only of what is known to be a regular file. */
static int open_data(int store, const struct compare_file *file,
                     struct parts **out, struct err *err)
{
    int rc = parts_open(store, file->fd, out);

    return rc < 0 ? err_set(err, -rc, "cannot read a file") : 0;
}

/* Compares from an offset on: 1 the same so far, 0 at the end, -1 different. */
static int compare_piece(const struct parts *a, const struct parts *b,
                         char *buffers, uint64_t offset, struct err *err,
                         int *out)
{
    ssize_t in_a = parts_read(a, buffers, PIECE, offset);
    ssize_t in_b = parts_read(b, buffers + PIECE, PIECE, offset);

    if (in_a < 0 || in_b < 0) {
        return err_set(err, in_a < 0 ? (int)-in_a : (int)-in_b,
                       "cannot read a file");
    }
    if (in_a != in_b || memcmp(buffers, buffers + PIECE, (size_t)in_a) != 0) {
        *out = -1;
    } else {
        *out = in_a == PIECE;
    }
    return 0;
}

static int same_parts(const struct parts *a, const struct parts *b,
                      const struct limits *limits, bool *out, struct err *err)
{
    AUTO_FREE char *buffers = malloc((size_t)PIECE * 2);
    int going = 1;
    int rc = buffers ? 0 : err_no_memory(err);

    for (uint64_t at = 0; rc == 0 && going > 0; at += PIECE) {
        rc = limits_check(limits, "comparing files takes too long", err);
        if (rc == 0) {
            rc = compare_piece(a, b, buffers, at, err, &going);
        }
    }
    if (rc == 0) {
        *out = going == 0;
    }
    return rc;
}

static int same_data(int store, const struct compare_file *a,
                     const struct compare_file *b, const struct limits *limits,
                     bool *out, struct err *err)
{
    struct parts *in_a = NULL;
    struct parts *in_b = NULL;
    int rc = open_data(store, a, &in_a, err);

    if (rc == 0) {
        rc = open_data(store, b, &in_b, err);
    }
    if (rc == 0) {
        rc = same_parts(in_a, in_b, limits, out, err);
    }
    parts_close(in_a);
    parts_close(in_b);
    return rc;
}

static int same_link(const struct compare_file *a, const struct compare_file *b,
                     bool *out, struct err *err)
{
    char target_a[PATH_MAX];
    char target_b[PATH_MAX];
    ssize_t in_a = readlinkat(a->fd, "", target_a, sizeof(target_a));
    ssize_t in_b = readlinkat(b->fd, "", target_b, sizeof(target_b));

    if (in_a < 0 || in_b < 0) {
        return err_errno(err, "cannot read a link");
    }
    *out = in_a == in_b && memcmp(target_a, target_b, (size_t)in_a) == 0;
    return 0;
}

int compare_same(int store, const struct compare_file *a,
                 const struct compare_file *b, const struct limits *limits,
                 bool *out, struct err *err)
{
    int rc;

    if (a->attr.st_mode != b->attr.st_mode) {
        *out = false;
        return 0;
    }
    if (S_ISLNK(a->attr.st_mode)) {
        return same_link(a, b, out, err);
    }
    if (!S_ISREG(a->attr.st_mode)) {
        *out = a->attr.st_rdev == b->attr.st_rdev;
        return 0;
    }
    if (a->attr.st_size != b->attr.st_size) {
        *out = false;
        return 0;
    }
    rc = same_data(store, a, b, limits, out, err);
    if (rc == -EACCES) { /* They are shut to us, who are not root. */
        err_clear(err);
        *out = a->attr.st_mtim.tv_sec == b->attr.st_mtim.tv_sec &&
               a->attr.st_mtim.tv_nsec == b->attr.st_mtim.tv_nsec;
        rc = 0;
    }
    return rc;
}
