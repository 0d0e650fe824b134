/*
 * What a workload has shut to its owner. See shut.h.
 *
 * The note has "MODE PATH" with a NUL behind, for each. A directory stands
 * before what is in it, and is shut after it.
 */
#include "providers/local/shut.h"

#include "core/array.h"
#include "core/cleanup.h"
#include "core/crash.h"
#include "providers/local/below.h"
#include "providers/local/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOTE "shut"

enum {
    NS = 1000000000, /* In a second. */
    FD_PATH = 32
};

void shut_init(struct shut *shut, int dir, int upper)
{
    *shut = (struct shut){.dir = dir, .upper = upper, .note = -1};
}

/* ---- Opening ---- */

/* What a look needs. */
static mode_t wanted(const struct scan_node *node)
{
    if (S_ISDIR(node->mode)) {
        return S_IRUSR | S_IXUSR;
    }
    return S_ISREG(node->mode) ? S_IRUSR : 0;
}

static int give_mode(int fd, mode_t mode)
{
    char path[FD_PATH];

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return chmod(path, mode) < 0 ? -errno : 0;
}

static int make_room(struct shut *shut)
{
    void *wide =
        array_grow(shut->all, shut->count, &shut->room, sizeof(*shut->all));

    if (!wide) {
        return -ENOMEM;
    }
    shut->all = wide;
    if (shut->note < 0) {
        shut->note =
            openat(shut->dir, NOTE,
                   O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    }
    return shut->note < 0 ? -errno : 0;
}

static int note(const struct shut *shut, mode_t mode, const char *path)
{
    AUTO_FREE char *text = NULL;
    int size = asprintf(&text, "%o %s", (unsigned)mode, path) + 1;
    ssize_t n;

    if (size <= 0) {
        return -ENOMEM;
    }
    n = write(shut->note, text, (size_t)size);
    if (n < 0) {
        return -errno;
    }
    return n == size ? 0 : -ENOSPC;
}

int shut_open(struct shut *shut, struct scan_node *node)
{
    const mode_t mode = node->mode & ALLPERMS;
    AUTO_FREE char *path = NULL;
    AUTO_FD int fd = -1;
    int rc;

    if ((mode & wanted(node)) == wanted(node) || geteuid() == 0) {
        return 0;
    }
    path = scan_path(node);
    fd = path ? below_open(shut->upper, path, O_PATH) : -ENOMEM;
    rc = fd < 0 ? fd : make_room(shut);
    if (rc == 0) {
        rc = note(shut, mode, path);
    }
    if (rc == 0) {
        shut->used = true;
        shut->all[shut->count++] =
            (struct shut_one){.path = TAKE_PTR(path), .mode = mode};
        rc = give_mode(fd, mode | wanted(node));
    }
    crash_point("local-shut-open");
    return rc;
}

/* ---- Shutting ---- */

static int shut_path(int top, const char *path, mode_t mode, struct stat *attr)
{
    AUTO_FD int fd = below_open(top, path, O_PATH);
    int rc = fd < 0 ? fd : give_mode(fd, mode);

    return rc == 0 && fstat(fd, attr) < 0 ? -errno : rc;
}

/* All names of a file. */
static void set_time(struct scan_node *top, struct scan_node *node,
                     const struct stat *attr)
{
    const int64_t time = attr->st_ctim.tv_sec * NS + attr->st_ctim.tv_nsec;
    struct scan_node *other =
        S_ISREG(node->mode) && node->links > 1 ? scan_walk(top) : NULL;

    node->ctime_ns = time;
    while (other) {
        if (other->ino == node->ino) {
            other->ctime_ns = time;
        }
        other = scan_walk(other);
    }
}

static int shut_one(const struct shut *shut, const struct shut_one *one,
                    struct scan_node *top, int layer)
{
    struct scan_node *node = top ? scan_at(top, one->path) : NULL;
    struct stat attr;
    int rc = layer < 0 ? 0 : shut_path(layer, one->path, one->mode, &attr);

    /* What has not changed was not copied. */
    if (rc == 0 || rc == -ENOENT) {
        rc = shut_path(shut->upper, one->path, one->mode, &attr);
    }
    if (rc == 0 && node) {
        set_time(top, node, &attr);
    }
    return rc;
}

int shut_end(struct shut *shut, struct scan_node *top, int layer,
             struct err *err)
{
    int rc = 0;

    while (shut->count > 0) {
        struct shut_one *one = &shut->all[--shut->count];
        int own = shut_one(shut, one, top, layer);

        rc = rc < 0 ? rc : own;
        free(one->path);
    }
    if (shut->note >= 0 && rc == 0 && unlinkat(shut->dir, NOTE, 0) < 0) {
        rc = -errno;
    }
    cleanup_fd(&shut->note);
    free(TAKE_PTR(shut->all));
    shut->room = 0;
    return rc < 0 ? err_set(err, -rc, "cannot shut what was shut: %s",
                            strerror(-rc))
                  : 0;
}

/* ---- After a crash ---- */

static int read_note(int fd, char **out, size_t *size)
{
    struct stat attr;
    ssize_t n;

    if (fstat(fd, &attr) < 0) {
        return -errno;
    }
    *out = calloc(1, (size_t)attr.st_size + 1);
    if (!*out) {
        return -ENOMEM;
    }
    n = read(fd, *out, (size_t)attr.st_size);
    if (n < 0) {
        return -errno;
    }
    *size = (size_t)n;
    return 0;
}

/* One that the crash has cut off was not opened; the last one comes first. */
static void shut_noted(int upper, char *text, size_t size)
{
    while (size > 0 && text[size - 1] != '\0') {
        size--;
    }
    while (size > 0) {
        struct stat attr;
        char *path;
        mode_t mode;

        text[--size] = '\0';
        while (size > 0 && text[size - 1] != '\0') {
            size--;
        }
        mode = (mode_t)strtoul(text + size, &path, 8) & ALLPERMS;
        /* What cannot be reached lies in one that has been shut already. */
        (void)!shut_path(upper, path + (*path == ' '), mode, &attr);
    }
}

int shut_undo(int dir, int upper, struct err *err)
{
    AUTO_FD int fd = openat(dir, NOTE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    AUTO_FREE char *text = NULL;
    size_t size = 0;
    int rc;

    if (fd < 0) {
        return errno == ENOENT ? 0 : err_errno(err, "'" NOTE "'");
    }
    rc = read_note(fd, &text, &size);
    if (rc < 0) {
        return err_set(err, -rc, "'" NOTE "': %s", strerror(-rc));
    }
    shut_noted(upper, text, size);
    return unlinkat(dir, NOTE, 0) < 0 ? err_errno(err, "'" NOTE "'") : 0;
}
