/*
 * What a sandbox sees of this machine, and what it gets of its own.
 * See keeper.h. It begins with a copy of the template's mounts. The workspace
 * is copied in the keeper, which may, and attached in the sandbox, which is the
 * only place where it appears.
 */
#include "providers/local/keeper.h"

#include "core/cleanup.h"
#include "providers/local/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define FILES_ATTR (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

/* Always there, empty, and read-only. */
#define EMPTY_DIR "/home"

/* Filesystems of the sandbox's own, in order. */
static const struct own_mount {
    const char *type;
    const char *place;
    unsigned long flags;
    const char *options;
    bool sized; /* Commands may fill it up to their limit. */
} own_mounts[] = {
    {"tmpfs", "dev/shm", MS_NOSUID | MS_NODEV, "mode=1777", true},
    {"devpts", "dev/pts", MS_NOSUID | MS_NOEXEC,
     "newinstance,ptmxmode=0666,mode=0600,max=256", false},
    {"tmpfs", "tmp", MS_NOSUID | MS_NODEV, "mode=1777", true},
    {"tmpfs", "var/tmp", MS_NOSUID | MS_NODEV, "mode=1777", true},
    {"proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, false},
};

/* Parts of /proc that concern the whole machine and are nobody's business. */
static const char *const proc_masked[] = {
    "/proc/acpi",          "/proc/asound",     "/proc/cmdline",
    "/proc/interrupts",    "/proc/kallsyms",   "/proc/kcore",
    "/proc/key-users",     "/proc/keys",       "/proc/kmsg",
    "/proc/kpagecgroup",   "/proc/kpagecount", "/proc/kpageflags",
    "/proc/latency_stats", "/proc/modules",    "/proc/sched_debug",
    "/proc/scsi",          "/proc/timer_list", "/proc/timer_stats",
};

int tree_set_attr(int fd, const char *path, unsigned flags, uint64_t attr,
                  struct err *err)
{
    struct mount_attr set = {.attr_set = attr, .propagation = MS_PRIVATE};

    if (mount_setattr(fd, path, flags, &set, sizeof(set)) < 0) {
        return err_errno(err, "mount_setattr (Linux 5.12)");
    }
    return 0;
}

int tree_leave_old(struct err *err)
{
    /* The old root comes to lie upon the new one, and is taken off. */
    if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
        chdir("/") < 0) {
        return err_errno(err, "cannot leave the machine's root directory");
    }
    return 0;
}

/* ---- In the keeper ---- */

int tree_open(int workspace, int *out, struct err *err)
{
    int fd = open_tree(workspace, "",
                       OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
    int rc;

    if (fd < 0) {
        return err_errno(err, "cannot copy the mount of the workspace");
    }
    rc = tree_set_attr(fd, "", AT_EMPTY_PATH, FILES_ATTR, err);
    if (rc < 0) {
        (void)close(fd);
        return rc;
    }
    *out = fd;
    return 0;
}

/* ---- In the sandbox ---- */

static int mount_own(const struct own_mount *own, int64_t tmp_bytes,
                     struct err *err)
{
    char sized[64];

    (void)snprintf(sized, sizeof(sized), "%s,size=%" PRId64,
                   own->options ? own->options : "", tmp_bytes);
    if (mount(own->type, own->place, own->type, own->flags,
              own->sized ? sized : own->options) < 0) {
        return err_errno(err, "cannot mount %s on /%s", own->type, own->place);
    }
    return 0;
}

static int attach(int mount, const char *place, struct err *err)
{
    return move_mount(mount, "", AT_FDCWD, place, MOVE_MOUNT_F_EMPTY_PATH) < 0
               ? err_errno(err, "cannot attach %s", place)
               : 0;
}

static int mask(const char *path, struct err *err)
{
    struct stat st;
    int rc;

    if (lstat(path, &st) < 0) {
        return 0;
    }
    rc = mount(S_ISDIR(st.st_mode) ? EMPTY_DIR : "/dev/null", path, NULL,
               MS_BIND, NULL);
    return rc < 0 ? err_errno(err, "cannot mask %s", path) : 0;
}

/* Through the template's mount: that of the sandbox will be read-only. */
static int open_oom(int *out, struct err *err)
{
    int fd = -1;

    /* The file is the caller's as long as it may be dumped. */
    if (prctl(PR_SET_DUMPABLE, 1) == 0) {
        fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    }
    if (fd < 0) {
        return err_errno(err, "oom_score_adj");
    }
    *out = fd;
    return 0;
}

/*
 * Nothing in it can be written, be it of the whole machine or of a process: a
 * command must not make its own memory dearer where memory ends.
 */
static int guard_proc(struct err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(proc_masked); i++) {
        rc = mask(proc_masked[i], err);
    }
    return rc == 0 ? tree_set_attr(AT_FDCWD, "/proc", 0,
                                   SYSTEM_ATTR | MOUNT_ATTR_NOEXEC, err)
                   : rc;
}

/*
 * The commands of a sandbox may have the id that process 1 has, so it is the
 * mount, not the mode, that keeps them from each other's scripts.
 */
static int mount_scripts(int *out, struct err *err)
{
    const char *place = &WIRE_SCRIPTS[1];
    AUTO_FD int fd = -1;
    int rc;

    if (mount("tmpfs", place, "tmpfs", MS_NOSUID | MS_NODEV,
              "mode=755,size=64m") < 0) {
        return err_errno(err, "cannot mount tmpfs on /%s", place);
    }
    fd = open_tree(AT_FDCWD, place, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (fd < 0) {
        return err_errno(err, "cannot copy the mount of /%s", place);
    }
    rc = tree_set_attr(AT_FDCWD, place, 0, SYSTEM_ATTR, err);
    if (rc == 0) {
        *out = TAKE_FD(fd);
    }
    return rc;
}

int tree_enter(int workspace, int64_t tmp_bytes, int *scripts, int *oom,
               struct err *err)
{
    AUTO_FD int to_scripts = -1;
    AUTO_FD int to_oom = -1;
    int rc = open_oom(&to_oom, err);

    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(own_mounts); i++) {
        rc = mount_own(&own_mounts[i], tmp_bytes, err);
    }
    if (rc == 0) {
        rc = attach(workspace, &WIRE_WORKSPACE[1], err);
    }
    if (rc == 0) {
        rc = mount_scripts(&to_scripts, err);
    }
    if (rc == 0) {
        rc = guard_proc(err);
    }
    if (rc == 0) {
        *scripts = TAKE_FD(to_scripts);
        *oom = TAKE_FD(to_oom);
    }
    return rc;
}
