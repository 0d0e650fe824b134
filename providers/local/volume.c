/* Workspaces on disk and their mounts. See volume.h. */
#include "providers/local/volume.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/list.h"
#include "core/mutex.h"
#include "providers/local/changes.h"
#include "providers/local/hostdir.h"
#include "providers/local/link.h"
#include "providers/local/remove.h"
#include "providers/local/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>

/* Names in a sandbox's directory. */
#define UPPER_DIR   "upper"
#define WORK_DIR    "work"
#define LOWER_DIR   "lower"
#define PLAIN_DIR   "workspace"
#define REMOVED_DIR "workspace.removed"

enum {
    TURN_MS = 50, /* How often a waiter looks at its token. */
    REMOVE_TRIES = 20,
    REMOVE_STEP_MS = 5
};

/* A mounted overlay, or one that is being mounted. */
struct volume {
    struct list link;
    uint64_t number; /* Of the session. */
    int mount;       /* -1: not yet; waited for. */
};

struct volumes {
    struct link *link;
    struct mutex lock;
    struct cond mounted;
    struct list all GUARDED; /* by lock */
};

int volumes_new(struct link *link, struct volumes **out)
{
    struct volumes *volumes = calloc(1, sizeof(*volumes));

    if (!volumes) {
        return -ENOMEM;
    }
    volumes->link = link;
    mutex_init(&volumes->lock);
    cond_init(&volumes->mounted);
    list_init(&volumes->all);
    *out = volumes;
    return 0;
}

static void free_volume(struct volume *volume)
{
    cleanup_fd(&volume->mount);
    free(volume);
}

void volumes_free(struct volumes *volumes)
{
    struct list *node;

    if (!volumes) {
        return;
    }
    mutex_lock(&volumes->lock);
    node = list_pop(&volumes->all);
    while (node) {
        free_volume(container_of(node, struct volume, link));
        node = list_pop(&volumes->all);
    }
    mutex_unlock(&volumes->lock);
    cond_done(&volumes->mounted);
    mutex_done(&volumes->lock);
    free(volumes);
}

/* ---- On disk ---- */

static int open_dir(const struct sandbox *sandbox, struct err *err)
{
    int fd = open(sandbox->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? err_errno(err, "the sandbox's directory") : fd;
}

/* An O_PATH fd, or -errno with the words. */
static int open_below(int dir, const char *name, struct err *err)
{
    int fd = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 ? err_errno(err, "the workspace's '%s'", name) : fd;
}

static bool is_there(int dir, const char *name)
{
    struct stat st;

    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A directory of the sandbox's user. */
static int give_dir(int dir, const char *name, struct link_ids ids,
                    struct err *err)
{
    if (mkdirat(dir, name, 0755) < 0) {
        return errno == EEXIST ? 0 : err_errno(err, "cannot make '%s'", name);
    }
    /* Our umask is not the sandbox's. */
    if (fchownat(dir, name, ids.user, ids.group, AT_SYMLINK_NOFOLLOW) < 0 ||
        fchmodat(dir, name, 0755, 0) < 0) {
        return err_errno(err, "cannot give away '%s'", name);
    }
    return 0;
}

static int make_own_dir(int dir, const char *name, struct err *err)
{
    return mkdirat(dir, name, 0700) < 0 && errno != EEXIST
               ? err_errno(err, "cannot make '%s'", name)
               : 0;
}

int volume_check(const struct sandbox *sandbox, struct err *err)
{
    AUTO_FD int dir = open(sandbox->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (dir < 0 && errno != ENOENT) {
        return err_errno(err, "the sandbox's directory");
    }
    if (dir < 0 || (!is_there(dir, UPPER_DIR) && !is_there(dir, PLAIN_DIR))) {
        return err_set(err, ESTALE, "the workspace is gone");
    }
    return 0;
}

/* ---- Mounting ---- */

/* The kernel wants a working directory that no mount has used. */
static int fresh_work(int dir, const struct limits *limits, struct err *err)
{
    int rc = remove_tree(dir, WORK_DIR, limits, err);

    if (rc == 0) {
        rc = make_own_dir(dir, WORK_DIR, err);
    }
    return rc == 0 ? open_below(dir, WORK_DIR, err) : rc;
}

/* What lies below: the base that the config names, or nothing. */
static int open_lower(const struct sandbox *sandbox, int dir, bool *is_base,
                      struct err *err)
{
    int fd = -1;
    int rc = hostdir_open(sandbox, "base", &fd, err);

    if (rc < 0) {
        return rc;
    }
    *is_base = fd >= 0;
    return fd >= 0 ? fd : open_below(dir, LOWER_DIR, err);
}

static int mount_dirs(struct volumes *volumes, const struct sandbox *sandbox,
                      int dir, const struct limits *limits, int *out,
                      struct err *err)
{
    const struct link_ids ids = link_ids(volumes->link, sandbox->number);
    struct link_overlay overlay = {.id_base = ids.base};
    AUTO_FD int upper = open_below(dir, UPPER_DIR, err);
    AUTO_FD int lower =
        upper < 0 ? -1 : open_lower(sandbox, dir, &overlay.map_lower, err);
    AUTO_FD int work = lower < 0 ? -1 : fresh_work(dir, limits, err);

    if (work < 0) {
        return -err->code;
    }
    overlay.upper = upper;
    overlay.lower = lower;
    overlay.work = work;
    return link_mount(volumes->link, &overlay, limits, out, err);
}

static struct volume *find_locked(struct volumes *volumes, uint64_t number)
    REQUIRES(volumes->lock)
{
    list_each(node, &volumes->all)
    {
        struct volume *volume = container_of(node, struct volume, link);

        if (volume->number == number) {
            return volume;
        }
    }
    return NULL;
}

/* A volume that is mounted, waited for; or NULL where nobody is about to. */
static int await_locked(struct volumes *volumes, uint64_t number,
                        const struct limits *limits, struct volume **out,
                        struct err *err) REQUIRES(volumes->lock)
{
    int rc = 0;

    *out = find_locked(volumes, number);
    while (*out && (*out)->mount < 0 && rc == 0) {
        (void)cond_wait(&volumes->mounted, &volumes->lock,
                        clock_deadline(TURN_MS));
        rc = limits_check(limits, "the workspace is being mounted", err);
        *out = find_locked(volumes, number);
    }
    return rc;
}

/* Whoever finds none is the one to mount it: `mine` then. */
static int claim(struct volumes *volumes, uint64_t number,
                 const struct limits *limits, bool *mine, struct err *err)
{
    struct volume *fresh = calloc(1, sizeof(*fresh));
    struct volume *volume;
    int rc;

    if (!fresh) {
        return err_set(err, ENOMEM, "out of memory");
    }
    list_init(&fresh->link);
    fresh->number = number;
    fresh->mount = -1;
    mutex_lock(&volumes->lock);
    rc = await_locked(volumes, number, limits, &volume, err);
    *mine = rc == 0 && !volume;
    if (*mine) {
        list_add(&volumes->all, &TAKE_PTR(fresh)->link);
    }
    mutex_unlock(&volumes->lock);
    free(fresh);
    return rc;
}

/* Tells those who wait how it went. It may have been removed meanwhile. */
static void settle(struct volumes *volumes, uint64_t number, int mount)
{
    struct volume *volume;

    mutex_lock(&volumes->lock);
    volume = find_locked(volumes, number);
    if (volume && mount >= 0 && volume->mount < 0) {
        volume->mount = TAKE_FD(mount);
    } else if (volume && mount < 0) {
        list_remove(&volume->link);
        free_volume(volume);
    }
    cond_broadcast(&volumes->mounted);
    mutex_unlock(&volumes->lock);
    cleanup_fd(&mount);
}

static int open_mounted(struct volumes *volumes, uint64_t number,
                        struct err *err)
{
    const struct volume *volume;
    int fd = -1;

    mutex_lock(&volumes->lock);
    volume = find_locked(volumes, number);
    if (volume && volume->mount >= 0) {
        fd = openat(volume->mount, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        fd = fd < 0 ? err_errno(err, "the workspace") : fd;
    } else {
        fd = err_set(err, ESTALE, "the workspace was removed");
    }
    mutex_unlock(&volumes->lock);
    return fd;
}

int volume_mount(struct volumes *volumes, uint64_t number)
{
    const struct volume *volume;
    int fd = -1;

    mutex_lock(&volumes->lock);
    volume = find_locked(volumes, number);
    if (volume && volume->mount >= 0) {
        /* The same file: the mount is there until all of it is closed. */
        fd = fcntl(volume->mount, F_DUPFD_CLOEXEC, 0);
    }
    mutex_unlock(&volumes->lock);
    return fd;
}

int volume_adopt(struct volumes *volumes, uint64_t number, int mount)
{
    struct volume *volume = calloc(1, sizeof(*volume));

    if (!volume) {
        return -ENOMEM;
    }
    list_init(&volume->link);
    volume->number = number;
    volume->mount = mount;
    mutex_lock(&volumes->lock);
    list_add(&volumes->all, &volume->link);
    mutex_unlock(&volumes->lock);
    return 0;
}

static int open_overlay(struct volumes *volumes, const struct sandbox *sandbox,
                        int dir, const struct limits *limits, struct err *err)
{
    bool mine = false;
    int mount = -1;
    int rc = claim(volumes, sandbox->number, limits, &mine, err);

    if (rc == 0 && mine) {
        rc = mount_dirs(volumes, sandbox, dir, limits, &mount, err);
        settle(volumes, sandbox->number, mount);
    }
    return rc == 0 ? open_mounted(volumes, sandbox->number, err) : rc;
}

/* ---- Slots ---- */

int volume_open(struct volumes *volumes, const struct sandbox *sandbox,
                const struct limits *limits, struct err *err)
{
    AUTO_FD int dir = -1;
    int rc = volume_check(sandbox, err);

    if (rc < 0) {
        return rc;
    }
    dir = open_dir(sandbox, err);
    if (dir < 0) {
        return dir;
    }
    return is_there(dir, PLAIN_DIR)
               ? open_below(dir, PLAIN_DIR, err)
               : open_overlay(volumes, sandbox, dir, limits, err);
}

/* Whether a failure is about what this machine can do. */
static bool is_refusal(int rc)
{
    return rc == -EINVAL || rc == -EPERM || rc == -EOPNOTSUPP ||
           rc == -ENOSYS || rc == -ENODEV || rc == -ELOOP || rc == -EREMOTE;
}

static int make_overlay(struct volumes *volumes, const struct sandbox *sandbox,
                        int dir, const struct limits *limits, struct err *err)
{
    int rc =
        give_dir(dir, UPPER_DIR, link_ids(volumes->link, sandbox->number), err);

    if (rc == 0) {
        rc = make_own_dir(dir, LOWER_DIR, err);
    }
    if (rc < 0) {
        return rc;
    }
    return open_overlay(volumes, sandbox, dir, limits, err);
}

static int make_plain(const struct volumes *volumes,
                      const struct sandbox *sandbox, int dir, struct err *err)
{
    int rc =
        give_dir(dir, PLAIN_DIR, link_ids(volumes->link, sandbox->number), err);

    return rc == 0 ? open_below(dir, PLAIN_DIR, err) : rc;
}

/* What a create that was cut off has left has no base below it. */
static int take_plain(int dir, bool has_base, struct err *plain,
                      struct err *err)
{
    if (has_base) {
        return err_set(err, EEXIST, "there is a workspace without a base");
    }
    (void)err_set(plain, EINVAL, "it was made as a plain directory");
    return open_below(dir, PLAIN_DIR, err);
}

/* An overlay, or else a plain directory: but that can have no base. */
static int make(struct volumes *volumes, const struct sandbox *sandbox, int dir,
                const struct limits *limits, struct err *plain, struct err *err)
{
    int has_base = hostdir_named(sandbox, "base", err);
    int rc;

    if (has_base < 0) {
        return has_base;
    }
    if (is_there(dir, PLAIN_DIR)) {
        return take_plain(dir, has_base, plain, err);
    }
    rc = make_overlay(volumes, sandbox, dir, limits, err);
    if (has_base || !is_refusal(rc)) {
        return rc;
    }
    *plain = *err;
    err_clear(err);
    rc = make_plain(volumes, sandbox, dir, err);
    if (rc >= 0) {
        (void)unlinkat(dir, UPPER_DIR, AT_REMOVEDIR);
    }
    return rc;
}

int volume_make(struct volumes *volumes, const struct sandbox *sandbox,
                const struct limits *limits, struct err *plain, struct err *err)
{
    AUTO_FD int dir = open_dir(sandbox, err);

    err_clear(plain);
    return dir < 0 ? dir : make(volumes, sandbox, dir, limits, plain, err);
}

int volume_changes(struct volumes *volumes, const struct sandbox *sandbox,
                   const struct limits *limits,
                   const struct volume_teller *teller, struct err *err)
{
    AUTO_FD int merged = volume_open(volumes, sandbox, limits, err);
    AUTO_FD int dir = merged < 0 ? -1 : open_dir(sandbox, err);
    AUTO_FD int upper = -1;
    AUTO_FD int base = -1;
    struct changes_dirs dirs;
    int rc = dir < 0 ? -err->code : hostdir_open(sandbox, "base", &base, err);

    if (rc < 0) {
        return rc;
    }
    if (!is_there(dir, PLAIN_DIR)) {
        upper = open_below(dir, UPPER_DIR, err);
        if (upper < 0) {
            return upper;
        }
    }
    dirs =
        (struct changes_dirs){.merged = merged, .upper = upper, .base = base};
    return changes_tell(&dirs, limits, teller->fn, teller->arg, err);
}

int volume_open_written(const char *dir)
{
    static const char *const names[] = {UPPER_DIR, PLAIN_DIR};
    AUTO_FD int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = -1;

    for (size_t i = 0; at >= 0 && fd < 0 && i < ARRAY_SIZE(names); i++) {
        fd = openat(at, names[i],
                    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    return fd;
}

static void forget(struct volumes *volumes, uint64_t number)
{
    struct volume *volume;

    mutex_lock(&volumes->lock);
    volume = find_locked(volumes, number);
    if (volume) {
        list_remove(&volume->link);
    }
    mutex_unlock(&volumes->lock);
    if (volume) {
        free_volume(volume);
    }
}

/* Under another name it is no workspace any more, half removed or not. */
static int rename_away(int dir, const char *name, const struct limits *limits,
                       struct err *err)
{
    int rc = remove_tree(dir, REMOVED_DIR, limits, err);

    if (rc < 0 || !is_there(dir, name)) {
        return rc;
    }
    if (renameat(dir, name, dir, REMOVED_DIR) < 0) {
        return err_errno(err, "the workspace");
    }
    return remove_tree(dir, REMOVED_DIR, limits, err);
}

/* A mount that was given up may still be coming about in it. */
static int remove_work(int dir, const struct limits *limits, struct err *err)
{
    int rc = remove_tree(dir, WORK_DIR, limits, err);

    for (int i = 0; rc == -ENOTEMPTY && i < REMOVE_TRIES; i++) {
        (void)poll(NULL, 0, REMOVE_STEP_MS);
        err_clear(err);
        rc = remove_tree(dir, WORK_DIR, limits, err);
    }
    return rc;
}

int volume_remove(struct volumes *volumes, const struct sandbox *sandbox,
                  const struct limits *limits, struct err *err)
{
    AUTO_FD int dir = open(sandbox->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc;

    forget(volumes, sandbox->number);
    if (dir < 0) {
        return errno == ENOENT ? 0 : err_errno(err, "the sandbox's directory");
    }
    rc = rename_away(dir, UPPER_DIR, limits, err);
    if (rc == 0) {
        rc = rename_away(dir, PLAIN_DIR, limits, err);
    }
    if (rc == 0) {
        rc = remove_work(dir, limits, err);
    }
    return rc == 0 ? remove_tree(dir, LOWER_DIR, limits, err) : rc;
}
