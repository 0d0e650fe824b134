/* Paths of this machine. See path.h. */
#include "core/path.h"

#include "core/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

enum {
    LINKS_MOST = 40,
    RACES_MOST = 1000,
};

/* Any rename on this machine leaves the kernel unsure where a `..` leads. */
static long open_surely(int dir_fd, const char *name,
                        const struct open_how *how)
{
    int races = 0;
    long fd;

    do {
        fd = syscall(SYS_openat2, dir_fd, name, how, sizeof(*how));
    } while (fd < 0 && errno == EAGAIN && ++races < RACES_MOST);
    if (fd < 0 && errno == EAGAIN) {
        errno = EBUSY; /* EAGAIN would be asked for again, for ever. */
    }
    return fd;
}

int path_step(int dir_fd, const char *path, int flags)
{
    const struct open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_NOFOLLOW | O_CLOEXEC),
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
                   RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
    };
    long fd;

    do {
        fd = open_surely(dir_fd, path, &how);
    } while (fd < 0 && errno == EINTR);
    return fd < 0 ? -errno : (int)fd;
}

bool path_begins_with(const char *path, const char *dir)
{
    size_t size = strlen(dir);

    return strncmp(path, dir, size) == 0 &&
           (path[size] == '/' || path[size] == '\0' ||
            (size && dir[size - 1] == '/'));
}

static bool is_same(const char *path, const struct stat *dir)
{
    struct stat st;

    return stat(path, &st) == 0 && st.st_dev == dir->st_dev &&
           st.st_ino == dir->st_ino;
}

bool path_lies_in(const char *path, const char *dir)
{
    char above[PATH_MAX];
    struct stat st;
    char *slash = above;

    if (path_begins_with(path, dir)) {
        return true;
    }
    if (stat(dir, &st) < 0) {
        return false;
    }
    (void)snprintf(above, sizeof(above), "%s", path);
    while (slash && !is_same(above, &st)) {
        slash = strrchr(above, '/');
        if (slash) {
            *slash = '\0';
        }
    }
    return slash || is_same("/", &st);
}

/* ---- Where a path leads ---- */

struct walk {
    const char *path;
    const char *avoid;
    char done[PATH_MAX]; /* Without links; "" is the root. */
    char left[PATH_MAX];
    unsigned links;
};

static int too_long(const struct walk *walk, struct err *err)
{
    return err_set(err, ENAMETOOLONG, "'%.128s...' is too long", walk->path);
}

static void go_up(struct walk *walk)
{
    char *slash = strrchr(walk->done, '/');

    if (slash) {
        *slash = '\0';
    }
}

/* A link stands at the end of what is done: its target comes first now. */
static int follow(struct walk *walk, const char *target, struct err *err)
{
    char rest[PATH_MAX];

    if (++walk->links > LINKS_MOST) {
        return err_set(err, ELOOP, "'%s' has too many links", walk->path);
    }
    memcpy(rest, walk->left, sizeof(rest));
    if (strlen(target) + strlen(rest) + 1 >= sizeof(walk->left)) {
        return too_long(walk, err);
    }
    (void)snprintf(walk->left, sizeof(walk->left), "%s/%s", target, rest);
    if (target[0] == '/') {
        walk->done[0] = '\0';
    } else {
        go_up(walk);
    }
    return 0;
}

static int enter(struct walk *walk, const char *name, struct err *err)
{
    size_t size = strlen(walk->done);
    char target[PATH_MAX];
    ssize_t n;

    if (size + 1 + strlen(name) >= sizeof(walk->done)) {
        return too_long(walk, err);
    }
    (void)snprintf(walk->done + size, sizeof(walk->done) - size, "/%s", name);
    if (walk->avoid && path_begins_with(walk->done, walk->avoid)) {
        return err_set(err, EINVAL, "'%s' lies in the mount", walk->path);
    }
    n = readlink(walk->done, target, sizeof(target) - 1);
    if (n >= 0) {
        target[n] = '\0';
        return follow(walk, target, err);
    }
    /* No link, or nothing there. */
    return errno == EINVAL || errno == ENOENT
               ? 0
               : err_errno(err, "'%s'", walk->path);
}

static int step(struct walk *walk, struct err *err)
{
    char name[PATH_MAX];
    size_t size = strcspn(walk->left, "/");
    size_t next = size + strspn(walk->left + size, "/");

    memcpy(name, walk->left, size);
    name[size] = '\0';
    memmove(walk->left, walk->left + next, strlen(walk->left + next) + 1);
    if (strcmp(name, "..") == 0) {
        go_up(walk);
        return 0;
    }
    return name[0] == '\0' || strcmp(name, ".") == 0 ? 0
                                                     : enter(walk, name, err);
}

int path_resolve(const char *path, const char *avoid, char **out,
                 struct err *err)
{
    struct walk walk = {.path = path, .avoid = avoid};
    int rc = 0;

    if (strlen(path) >= sizeof(walk.left)) {
        return too_long(&walk, err);
    }
    (void)snprintf(walk.left, sizeof(walk.left), "%s", path);
    while (walk.left[0] && rc == 0) {
        rc = step(&walk, err);
    }
    if (rc < 0) {
        return rc;
    }
    *out = strdup(walk.done[0] ? walk.done : "/");
    return *out ? 0 : err_no_memory(err);
}

/* ---- Below a directory ---- */

static int not_below(const char *dir, const char *name, struct err *err)
{
    return err_set(err, EPERM, "'%.128s' does not lie below '%s'", name, dir);
}

static int open_beneath(const char *dir, const char *name, int *out,
                        struct err *err)
{
    const struct open_how how = {
        .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
    };
    AUTO_FD int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    long fd;

    if (dir_fd < 0) {
        return err_errno(err, "'%s'", dir);
    }
    fd = open_surely(dir_fd, name, &how);
    if (fd < 0) {
        return errno == EXDEV ? not_below(dir, name, err)
                              : err_errno(err, "'%.128s' in '%s'", name, dir);
    }
    *out = (int)fd;
    return 0;
}

int path_beneath(const char *dir, const char *name, char **out, struct err *err)
{
    const char *given = name;
    AUTO_FD int fd = -1;
    char link[64];
    char real[PATH_MAX];
    ssize_t n;
    int rc;

    if (name[0] == '/') {
        if (!path_begins_with(name, dir)) {
            return not_below(dir, name, err);
        }
        name += strlen(dir);
        name += strspn(name, "/");
    }
    rc = open_beneath(dir, name[0] ? name : ".", &fd, err);
    if (rc < 0) {
        return rc;
    }
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, real, sizeof(real) - 1);
    if (n < 0) {
        return err_errno(err, "'%.128s' in '%s'", name, dir);
    }
    real[n] = '\0';
    if (!path_begins_with(real, dir) || strcmp(real, dir) == 0) {
        return not_below(dir, given, err);
    }
    *out = strdup(real);
    return *out ? 0 : err_no_memory(err);
}

bool path_is_kernels(int fd)
{
    static const unsigned long kinds[] = {
        PROC_SUPER_MAGIC,    SYSFS_MAGIC,   CGROUP_SUPER_MAGIC,
        CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, TRACEFS_MAGIC,
        SECURITYFS_MAGIC,    BPF_FS_MAGIC,  DEVPTS_SUPER_MAGIC,
    };
    struct statfs st;
    bool found = false;

    if (fstatfs(fd, &st) < 0) {
        return false;
    }
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        found |= (unsigned long)st.f_type == kinds[i];
    }
    return found;
}
