/* The keeper's own control group. See group.h. */
#include "providers/local/group.h"

#include "core/cleanup.h"
#include "providers/local/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    GROUP_TRIES = 100,
    CLEAR_WAIT_MS = 10000,
};

static void sleep_ms(int ms)
{
    struct timespec ts = {.tv_sec = 0, .tv_nsec = ms * 1000000L};

    (void)nanosleep(&ts, NULL);
}

/* Ends everything in a group and removes it. */
static bool clear_group(int parent, int group, const char *name)
{
    struct err err = ERR_INIT;

    for (int waited = 0; waited < CLEAR_WAIT_MS; waited++) {
        /* Again each time: what was being born may have escaped a kill. */
        if (cgroup_kill(group, &err) < 0) {
            return false;
        }
        if (!cgroup_is(group, "populated") &&
            cgroup_remove(parent, name) == 0) {
            return true;
        }
        sleep_ms(1);
    }
    return false;
}

/*
 * A group whose lock can be had belongs to a keeper that died: nobody else
 * can end what is left in it.
 */
static void clear_leftover(int parent, const char *name, int unused)
{
    AUTO_FD int group =
        openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    (void)unused;
    if (group >= 0 && flock(group, LOCK_EX | LOCK_NB) == 0) {
        (void)clear_group(parent, group, name);
    }
}

/* Between mkdir and lock another keeper may take the group for a leftover. */
static int lock_group(const struct group *group, int own, struct err *err)
{
    struct stat locked;
    struct stat named;

    if (flock(own, LOCK_EX | LOCK_NB) < 0) {
        return err_errno(err, "cannot lock cgroup '%s'", group->name);
    }
    if (fstat(own, &locked) < 0 ||
        fstatat(group->self, group->name, &named, 0) < 0 ||
        locked.st_ino != named.st_ino) {
        return err_set(err, EAGAIN, "cgroup '%s' was removed", group->name);
    }
    return 0;
}

static int make_own(struct group *group, struct err *err)
{
    int rc = -EEXIST;

    for (int i = 0; i < GROUP_TRIES && (rc == -EEXIST || rc == -EAGAIN); i++) {
        AUTO_FD int own = -1;

        (void)snprintf(group->name, sizeof(group->name), CGROUP_PREFIX "%d.%d",
                       (int)getpid(), i);
        rc = cgroup_make(group->self, group->name, geteuid(), &own, err);
        if (rc == 0) {
            rc = lock_group(group, own, err);
        }
        if (rc == 0) {
            group->own = TAKE_FD(own);
        }
    }
    return rc;
}

static int need_file(int group, const char *name, const char *release,
                     struct err *err)
{
    if (faccessat(group, name, W_OK, 0) < 0) {
        return err_errno(err, "%s is needed (Linux %s)", name, release);
    }
    return 0;
}

/* Whether processes can be started in it, frozen and killed. */
static int check_own(const struct group *group, struct err *err)
{
    int rc = need_file(group->own, "cgroup.freeze", "5.2", err);

    if (rc == 0) {
        rc = need_file(group->own, "cgroup.kill", "5.14", err);
    }
    if (rc == 0 && cgroup_has_word(group->own, "cgroup.type", "invalid")) {
        rc = err_set(err, EOPNOTSUPP, "our own is one of threads");
    }
    /* A process is not born into it without a right to our own. */
    if (rc == 0 && faccessat(group->self, "cgroup.procs", W_OK, 0) < 0) {
        rc = err_errno(err, "cgroup.procs");
    }
    return rc;
}

int group_open(struct group *out, struct err *err)
{
    AUTO_FD int mount = -1;
    int rc = cgroup_open_self(&mount, &out->self, err);

    if (rc < 0) {
        return rc;
    }
    cgroup_each_keeper(out->self, clear_leftover, 0);
    rc = make_own(out, err);
    if (rc == 0) {
        rc = check_own(out, err);
    }
    if (rc < 0 && out->own >= 0) {
        (void)cgroup_remove(out->self, out->name);
        cleanup_fd(&out->own);
    }
    return rc;
}

bool group_close(struct group *group)
{
    bool gone = clear_group(group->self, group->own, group->name);

    cleanup_fd(&group->own);
    cleanup_fd(&group->self);
    return gone;
}
