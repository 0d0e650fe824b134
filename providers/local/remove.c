/*
 * Removal of a hostile tree. See remove.h.
 *
 * A directory that is met below the top one is moved up into the top one,
 * under a name of ours, before its turn comes. So the depth is never more than
 * one, and no path, recursion or `..` is needed.
 */
#include "providers/local/remove.h"

#include "core/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MOVED_PREFIX ".sessionfs-removed."

struct removal {
    int top;
    uint64_t moved; /* Names given so far. */
    const struct limits *limits;
    struct err *err;
};

static int check(const struct removal *removal)
{
    return limits_check(removal->limits, "the workspace is not removed yet",
                        removal->err);
}

/*
 * To root nothing is shut. To another the workload's directories may be, and
 * overlayfs shuts one of its own; they are that user's, who may open them.
 */
static void open_up(int parent, const char *name)
{
    AUTO_FD int fd = -1;
    char path[32];

    if (geteuid() == 0) {
        return;
    }
    fd = openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (fd >= 0) {
        (void)chmod(path, 0700);
    }
}

static DIR *open_dir(int parent, const char *name)
{
    int fd = -1;
    DIR *dir;

    open_up(parent, name);
    fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        cleanup_fd(&fd);
    }
    return dir;
}

static int move_up(struct removal *removal, int dir, const char *name)
{
    char moved[64];
    int rc;

    open_up(dir, name);
    do {
        (void)snprintf(moved, sizeof(moved), MOVED_PREFIX "%" PRIu64,
                       removal->moved++);
        rc = renameat(dir, name, removal->top, moved);
        /* A name of a removal that was cut off, or the workload's own. */
    } while (rc < 0 &&
             (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR));
    return rc < 0 ? err_errno(removal->err, "cannot move a directory") : 0;
}

/* One entry of a directory below the top: gone from it afterwards. */
static int remove_below(struct removal *removal, int dir, const char *name)
{
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT ||
        unlinkat(dir, name, AT_REMOVEDIR) == 0) {
        return 0;
    }
    if (errno != ENOTEMPTY && errno != EEXIST) {
        return err_errno(removal->err, "cannot remove a file");
    }
    return move_up(removal, dir, name);
}

typedef int take_fn(struct removal *removal, int dir, const char *name);

static bool is_dot(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Takes away what one listing of a directory has; tells if it had anything. */
static int take_listed(struct removal *removal, DIR *dir, take_fn *take,
                       bool *found)
{
    const struct dirent *entry;
    int rc = 0;

    *found = false;
    rewinddir(dir);
    for (;;) {
        errno = 0;
        entry = readdir(dir);
        if (!entry) {
            break;
        }
        if (is_dot(entry->d_name)) {
            continue;
        }
        rc = check(removal);
        if (rc == 0) {
            rc = take(removal, dirfd(dir), entry->d_name);
        }
        if (rc < 0) {
            return rc;
        }
        *found = true;
    }
    return errno ? err_errno(removal->err, "cannot list a directory") : 0;
}

/*
 * Takes every entry of a directory away, over and over until it lists none: a
 * listing may leave out what changes during it.
 */
static int empty_dir(struct removal *removal, DIR *dir, take_fn *take)
{
    bool found = true;
    int rc = 0;

    while (rc == 0 && found) {
        rc = take_listed(removal, dir, take, &found);
    }
    return rc;
}

static int remove_at_top(struct removal *removal, int dir, const char *name)
{
    DIR *below;
    int rc;

    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT ||
        unlinkat(dir, name, AT_REMOVEDIR) == 0) {
        return 0;
    }
    below = open_dir(dir, name);
    if (!below) {
        return err_errno(removal->err, "cannot open a directory");
    }
    rc = empty_dir(removal, below, remove_below);
    (void)closedir(below);
    if (rc == 0 && unlinkat(dir, name, AT_REMOVEDIR) < 0) {
        rc = err_errno(removal->err, "cannot remove a directory");
    }
    return rc;
}

int remove_tree(int parent, const char *name, const struct limits *limits,
                struct err *err)
{
    struct removal removal = {.limits = limits, .err = err};
    DIR *top = open_dir(parent, name);
    int rc;

    if (!top) {
        return errno == ENOENT ? 0 : err_errno(err, "cannot open '%s'", name);
    }
    removal.top = dirfd(top);
    rc = empty_dir(&removal, top, remove_at_top);
    (void)closedir(top);
    if (rc == 0 && unlinkat(parent, name, AT_REMOVEDIR) < 0) {
        rc = err_errno(err, "cannot remove '%s'", name);
    }
    return rc;
}
