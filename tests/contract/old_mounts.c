/*
 * The kernel's rules about mounts before Linux 6.15, for a keeper that runs on
 * a later one: what is attached nowhere in our namespace is neither copied nor
 * a layer, and layers are not added one by one.
 */
#include "core/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

int __real_open_tree(int at, const char *path, unsigned flags);
int __wrap_open_tree(int at, const char *path, unsigned flags);
int __real_fsconfig(int fd, unsigned cmd, const char *key, const void *value,
                    int aux);
int __wrap_fsconfig(int fd, unsigned cmd, const char *key, const void *value,
                    int aux);
int __real_mount(const char *source, const char *target, const char *type,
                 unsigned long flags, const void *data);
int __wrap_mount(const char *source, const char *target, const char *type,
                 unsigned long flags, const void *data);

/* Whether the mount that an fd is in is one of our namespace. */
static bool is_attached(int fd)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    struct statx st;
    char line[8192];
    bool found = false;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) < 0) {
        st.stx_mnt_id = 0;
    }
    while (file && !found && fgets(line, sizeof(line), file)) {
        found = strtoull(line, NULL, 10) == st.stx_mnt_id;
    }
    if (file) {
        (void)fclose(file);
    }
    return found;
}

int __wrap_open_tree(int at, const char *path, unsigned flags)
{
    if ((flags & OPEN_TREE_CLONE) && !path[0] && !is_attached(at)) {
        errno = EINVAL;
        return -1;
    }
    return __real_open_tree(at, path, flags);
}

int __wrap_fsconfig(int fd, unsigned cmd, const char *key, const void *value,
                    int aux)
{
    if (key && strcmp(key, "lowerdir+") == 0) {
        errno = EINVAL;
        return -1;
    }
    return __real_fsconfig(fd, cmd, key, value, aux);
}

/* The lowest layer is the one that need not be ours. */
int __wrap_mount(const char *source, const char *target, const char *type,
                 unsigned long flags, const void *data)
{
    static const char by_fd[] = "/proc/self/fd/";
    const char *lower =
        type && strcmp(type, "overlay") == 0 ? strstr(data, by_fd) : NULL;

    if (lower && !is_attached((int)strtol(lower + strlen(by_fd), NULL, 10))) {
        errno = EINVAL;
        return -1;
    }
    return __real_mount(source, target, type, flags, data);
}
