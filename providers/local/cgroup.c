/* Control groups by directory fds. See cgroup.h. */
#include "providers/local/cgroup.h"

#include "core/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static int mount_hierarchy(int *out, struct err *err)
{
    AUTO_FD int context = fsopen("cgroup2", FSOPEN_CLOEXEC);
    int fd;

    if (context < 0) {
        return err_errno(err, "this kernel has no cgroup2 filesystem");
    }
    if (fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0) {
        return err_errno(err, "cannot make a cgroup2 mount");
    }
    fd = fsmount(context, FSMOUNT_CLOEXEC,
                 MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    if (fd < 0) {
        return err_errno(err, "cannot mount cgroup2");
    }
    *out = fd;
    return 0;
}

/* The path of this process in the hierarchy, relative to its root. */
static int self_path(char out[PATH_MAX], struct err *err)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[PATH_MAX + 8];
    bool found = false;

    if (!file) {
        return err_errno(err, "/proc/self/cgroup");
    }
    while (!found && fgets(line, sizeof(line), file)) {
        found = strncmp(line, "0::/", 4) == 0;
    }
    (void)fclose(file);
    if (!found) {
        return err_set(err, ENOTSUP, "this process is in no cgroup2 group");
    }
    line[strcspn(line, "\n")] = '\0';
    (void)snprintf(out, PATH_MAX, "%s", line[4] ? line + 4 : ".");
    return 0;
}

int cgroup_open_self(int *mount, int *self, struct err *err)
{
    AUTO_FD int root = -1;
    char path[PATH_MAX];
    int rc = mount_hierarchy(&root, err);
    int fd;

    if (rc == 0) {
        rc = self_path(path, err);
    }
    if (rc < 0) {
        return rc;
    }
    fd = openat(root, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return err_errno(err, "cannot open our own cgroup '%s'", path);
    }
    *self = fd;
    *mount = TAKE_FD(root);
    return 0;
}

int cgroup_make(int parent, const char *name, uint32_t owner, int *out,
                struct err *err)
{
    AUTO_FD int fd = -1;

    if (mkdirat(parent, name, 0755) < 0) {
        return err_errno(err, "cannot make cgroup '%s'", name);
    }
    fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fchownat(fd, "cgroup.procs", owner, owner, 0) < 0) {
        int rc = err_errno(err, "cannot set up cgroup '%s'", name);

        (void)unlinkat(parent, name, AT_REMOVEDIR);
        return rc;
    }
    *out = TAKE_FD(fd);
    return 0;
}

static int write_file(int group, const char *name, const char *text,
                      struct err *err)
{
    AUTO_FD int fd = openat(group, name, O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, text, strlen(text)) < 0) {
        return err_errno(err, "%s", name);
    }
    return 0;
}

int cgroup_kill(int group, struct err *err)
{
    return write_file(group, "cgroup.kill", "1", err);
}

int cgroup_freeze(int group, bool freeze, struct err *err)
{
    return write_file(group, "cgroup.freeze", freeze ? "1" : "0", err);
}

bool cgroup_is(int group, const char *key)
{
    AUTO_FD int fd = openat(group, "cgroup.events", O_RDONLY | O_CLOEXEC);
    char text[256];
    char line[64];
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    if (n < 0) {
        return false;
    }
    text[n] = '\0';
    (void)snprintf(line, sizeof(line), "%s 1\n", key);
    return strstr(text, line) != NULL;
}

/* Below ours there are two levels: sandboxes, and their commands. */
int cgroup_remove(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;

    if (!dir) {
        cleanup_fd(&fd);
        return errno == ENOENT ? 0 : -errno;
    }
    entry = readdir(dir);
    while (entry) {
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
            (void)cgroup_remove(dirfd(dir), entry->d_name);
        }
        entry = readdir(dir);
    }
    (void)closedir(dir);
    if (unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT) {
        return -errno;
    }
    return 0;
}
