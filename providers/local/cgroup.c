/* Control groups by directory fds. See cgroup.h. */
#include "providers/local/cgroup.h"

#include "core/cleanup.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TEXT_SIZE = 1024
};

/* The hierarchy where this machine has mounted it. */
static int open_mounted(int *out, struct err *err)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    char line[2 * PATH_MAX];
    char place[PATH_MAX] = "";
    int fd;

    while (file && !place[0] && fgets(line, sizeof(line), file)) {
        if (!strstr(line, " - cgroup2 ") ||
            sscanf(line, "%*s %*s %*s / %4095s", place) != 1) {
            place[0] = '\0';
        }
    }
    if (file) {
        (void)fclose(file);
    }
    if (!place[0]) {
        return err_set(err, ENOENT, "no cgroup2 is mounted");
    }
    fd = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return err_errno(err, "%s", place);
    }
    *out = fd;
    return 0;
}

static int mount_hierarchy(int *out, struct err *err)
{
    AUTO_FD int context = fsopen("cgroup2", FSOPEN_CLOEXEC);
    int fd;

    if (context < 0 && errno == EPERM) {
        return open_mounted(out, err);
    }
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

/* An earlier keeper may have gone there with the daemon. */
static void leave_aside(char *path)
{
    size_t len = strlen(path);
    size_t aside = strlen("/" CGROUP_ASIDE);

    if (len >= aside && strcmp(path + len - aside, "/" CGROUP_ASIDE) == 0) {
        path[len - aside] = '\0';
        path[len - aside + 1] = '\0'; /* So of what was the root, too. */
    }
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
    leave_aside(line);
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
    /* Whatever our umask is: a sandbox's process 1 looks into it. */
    if (fd < 0 || fchmod(fd, 0755) < 0 ||
        fchownat(fd, "cgroup.procs", owner, (gid_t)-1, 0) < 0) {
        int rc = err_errno(err, "cannot set up cgroup '%s'", name);

        (void)unlinkat(parent, name, AT_REMOVEDIR);
        return rc;
    }
    *out = TAKE_FD(fd);
    return 0;
}

int cgroup_write(int group, const char *name, const char *text, struct err *err)
{
    AUTO_FD int fd = openat(group, name, O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, text, strlen(text)) < 0) {
        return err_errno(err, "%s", name);
    }
    return 0;
}

int cgroup_kill(int group, struct err *err)
{
    return cgroup_write(group, "cgroup.kill", "1", err);
}

int cgroup_freeze(int group, bool freeze, struct err *err)
{
    return cgroup_write(group, "cgroup.freeze", freeze ? "1" : "0", err);
}

/* A small file of a group, with a NUL; false where it cannot be read. */
static bool read_file(int group, const char *name, char *out, size_t size)
{
    AUTO_FD int fd = openat(group, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);

    if (n < 0) {
        return false;
    }
    out[n] = '\0';
    return true;
}

/* The text behind a word that is whole, or NULL. */
static const char *behind_word(const char *text, const char *word)
{
    const char *at = strstr(text, word);
    size_t len = strlen(word);

    while (at && ((at != text && !isspace((unsigned char)at[-1])) ||
                  !isspace((unsigned char)at[len]))) {
        at = strstr(at + len, word);
    }
    return at ? at + len : NULL;
}

bool cgroup_has_word(int group, const char *name, const char *word)
{
    char text[TEXT_SIZE];

    return read_file(group, name, text, sizeof(text)) &&
           behind_word(text, word) != NULL;
}

int64_t cgroup_count(int group, const char *name, const char *key)
{
    char text[TEXT_SIZE];
    const char *value = NULL;

    if (read_file(group, name, text, sizeof(text))) {
        value = behind_word(text, key);
    }
    return value ? strtoll(value, NULL, 10) : 0;
}

bool cgroup_is(int group, const char *key)
{
    return cgroup_count(group, "cgroup.events", key) == 1;
}

static int remove_one(int parent, const char *name)
{
    return unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno
                                                                       : 0;
}

/* Below ours there are two levels: sandboxes, and their commands. */
int cgroup_remove(int parent, const char *name)
{
    int rc = remove_one(parent, name);
    int fd =
        rc == 0 ? -1 : openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;

    if (!dir) {
        cleanup_fd(&fd);
        return rc;
    }
    entry = readdir(dir);
    while (entry) {
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
            (void)cgroup_remove(dirfd(dir), entry->d_name);
        }
        entry = readdir(dir);
    }
    (void)closedir(dir);
    return remove_one(parent, name);
}

void cgroup_each_keeper(int parent,
                        void (*fn)(int parent, const char *name, int arg),
                        int arg)
{
    int fd = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;

    if (!dir) {
        cleanup_fd(&fd);
        return;
    }
    entry = readdir(dir);
    while (entry) {
        if (strncmp(entry->d_name, CGROUP_PREFIX, strlen(CGROUP_PREFIX)) == 0) {
            fn(parent, entry->d_name, arg);
        }
        entry = readdir(dir);
    }
    (void)closedir(dir);
}
