/* A keeper that is not root, or has mounts of its own. See keeper.h. */
#include "providers/local/keeper.h"

#include "core/cleanup.h"
#include "providers/local/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

/* Switches that keep users from namespaces, as they are then. */
static const struct refusal {
    const char *path;
    const char *value;
    const char *words;
} refusals[] = {
    {"/proc/sys/kernel/unprivileged_userns_clone", "0",
     "kernel.unprivileged_userns_clone is 0"},
    {"/proc/sys/user/max_user_namespaces", "0",
     "user.max_user_namespaces is 0"},
    {"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1",
     "AppArmor allows them to confined programs only "
     "(kernel.apparmor_restrict_unprivileged_userns is 1)"},
};

static bool file_says(const char *path, const char *value)
{
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    char text[16] = "";
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    if (n < 0) {
        return false;
    }
    text[strcspn(text, "\n")] = '\0';
    return strcmp(text, value) == 0;
}

/* In a chroot they are refused to all. */
static bool in_chroot(void)
{
    struct stat ours;
    struct stat machines;

    return stat("/", &ours) == 0 && stat("/proc/1/root/.", &machines) == 0 &&
           (ours.st_dev != machines.st_dev || ours.st_ino != machines.st_ino);
}

/* Takes errno, and says what is known of its cause. */
static int refuse(const char *what, struct err *err)
{
    int code = errno;

    for (size_t i = 0; i < ARRAY_SIZE(refusals); i++) {
        if (file_says(refusals[i].path, refusals[i].value)) {
            return err_set(err, code, "%s: %s", what, refusals[i].words);
        }
    }
    if (in_chroot()) {
        return err_set(err, code, "%s: not in a chroot", what);
    }
    errno = code;
    return err_errno(err, "%s", what);
}

bool user_maps_ids(void)
{
    FILE *map = geteuid() == 0 ? fopen("/proc/self/uid_map", "re") : NULL;
    unsigned first = 0;
    unsigned outside = 0;
    unsigned count = 0;
    bool found;

    if (!map) {
        return false;
    }
    /* In a container root may have a few ids only, none of ours. */
    found = fscanf(map, "%u %u %u", &first, &outside, &count) == 3 &&
            count == UINT_MAX;
    (void)fclose(map);
    return found;
}

/* Each id is itself, so that files look as they did. */
static int map_own(uid_t uid, gid_t gid, struct err *err)
{
    char map[64];
    int rc;

    (void)snprintf(map, sizeof(map), "%u %u 1", uid, uid);
    rc = proc_write(getpid(), "uid_map", map, err);
    if (rc == 0) {
        rc = proc_write(getpid(), "setgroups", "deny", err);
    }
    if (rc == 0) {
        (void)snprintf(map, sizeof(map), "%u %u 1", gid, gid);
        rc = proc_write(getpid(), "gid_map", map, err);
    }
    return rc;
}

/* Mounts that were made there can be copied there only. */
int user_join(int user, int mounts, struct err *err)
{
    if ((user >= 0 && setns(user, CLONE_NEWUSER) < 0) ||
        setns(mounts, CLONE_NEWNS) < 0 ||
        (user >= 0 && unshare(CLONE_NEWCGROUP) < 0)) {
        return err_errno(err, "cannot enter the last keeper's namespaces");
    }
    return 0;
}

int user_namespaces(int *user, int *mounts, struct err *err)
{
    AUTO_FD int first = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
    AUTO_FD int second = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);

    if (first < 0 || second < 0) {
        return err_errno(err, "/proc/self/ns");
    }
    if (user) {
        *user = TAKE_FD(first);
    }
    *mounts = TAKE_FD(second);
    return 0;
}

/* What is mounted later outside is there as well, but not the other way. */
static int be_slave(struct err *err)
{
    /* AppArmor lets the namespaces be made, and refuses all else in them. */
    return mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0
               ? refuse("this machine refuses mounts to users that are not "
                        "root",
                        err)
               : 0;
}

int user_enter_mounts(struct err *err)
{
    return unshare(CLONE_NEWNS) < 0
               ? err_errno(err, "cannot make a mount namespace")
               : be_slave(err);
}

int user_enter(struct err *err)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();
    int rc;

    if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWCGROUP) < 0) {
        return refuse("this machine refuses namespaces to users that are not "
                      "root",
                      err);
    }
    rc = map_own(uid, gid, err);
    return rc == 0 ? be_slave(err) : rc;
}

int user_path(int fd, char out[PATH_MAX], struct err *err)
{
    char link[64];
    ssize_t n;

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, out, PATH_MAX - 1);
    if (n < 0) {
        return err_errno(err, "%s", link);
    }
    out[n] = '\0';
    return 0;
}

/* What is mounted there now. */
static int open_path(int fd, struct err *err)
{
    char path[PATH_MAX];
    int rc = user_path(fd, path, err);
    int out;

    if (rc < 0) {
        return rc;
    }
    out = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return out < 0 ? err_errno(err, "%s", path) : out;
}

int user_reopen(int fd, struct err *err)
{
    AUTO_FD int ours =
        open_tree(fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
    struct stat want;
    struct stat got;

    if (ours >= 0) {
        return fcntl(fd, F_DUPFD_CLOEXEC, 0);
    }
    ours = open_path(fd, err);
    if (ours < 0) {
        return ours;
    }
    if (fstat(fd, &want) < 0 || fstat(ours, &got) < 0) {
        return err_errno(err, "fstat");
    }
    if (want.st_dev != got.st_dev || want.st_ino != got.st_ino) {
        return err_set(err, ESTALE, "a directory has changed");
    }
    return TAKE_FD(ours);
}
