/* Workspaces on disk and their mounts. See volume.h. */
#include "providers/local/volume.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/list.h"
#include "core/mutex.h"
#include "providers/local/hostdir.h"
#include "providers/local/layers.h"
#include "providers/local/link.h"
#include "providers/local/volume_priv.h"
#include "providers/local/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

enum {
    TURN_MS = 50 /* How often a waiter looks at its token. */
};

/* A mounted overlay, or one that is being mounted. */
struct volume {
    struct list link;
    uint64_t number; /* Of the session. */
    int mount;       /* -1: not yet; waited for. */
};

struct volumes {
    struct link *link;
    struct layers *layers;
    bool synced; /* See volumes_new(). */
    struct mutex lock;
    struct cond mounted;
    struct list all GUARDED; /* by lock */
};

int volumes_new(struct link *link, struct layers *layers, bool synced,
                struct volumes **out)
{
    struct volumes *volumes = calloc(1, sizeof(*volumes));

    if (!volumes) {
        return -ENOMEM;
    }
    volumes->link = link;
    volumes->layers = layers;
    volumes->synced = synced;
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

/* ---- Mounting ---- */

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
    return fd >= 0 ? fd : volume_below(dir, VOLUME_LOWER, err);
}

/* Whose ids the files have. */
static int find_ids(const struct volumes *volumes,
                    const struct sandbox *sandbox, int dir,
                    struct link_ids *out, struct err *err)
{
    struct head head;
    int rc = head_read(dir, sandbox->number, &head, err);

    if (rc == 0) {
        *out = link_ids(volumes->link, head.ids);
    }
    return rc;
}

/* Mounts the chain of a head, with what is written on top unless `fixed`. */
static int mount_head(struct volumes *volumes, const struct sandbox *sandbox,
                      int dir, const struct head *head, bool fixed,
                      const struct limits *limits, int *out, struct err *err)
{
    const struct link_ids ids = link_ids(volumes->link, head->ids);
    struct link_overlay overlay = {.upper = -1,
                                   .work = -1,
                                   .layers = layers_dir(volumes->layers),
                                   .synced = volumes->synced,
                                   .id_base = ids.base};
    AUTO_FREE uint64_t *chain = NULL;
    AUTO_FD int upper = -1;
    AUTO_FD int work = -1;
    AUTO_FD int lower = open_lower(sandbox, dir, &overlay.map_lower, err);
    char name[HEAD_NAME_SIZE];
    int rc = lower < 0 ? lower
                       : layers_chain(volumes->layers, head->top, &chain,
                                      &overlay.deep, err);

    if (rc == 0 && !fixed) {
        head_upper(head, name);
        upper = volume_below(dir, name, err);
        work = upper < 0 ? -1 : volume_fresh_work(dir, head, limits, err);
        rc = work < 0 ? -err->code : 0;
    }
    if (rc < 0) {
        return rc;
    }
    overlay.upper = upper;
    overlay.lower = lower;
    overlay.work = work;
    overlay.chain = chain;
    return link_mount(volumes->link, &overlay, limits, out, err);
}

static int mount_dirs(struct volumes *volumes, const struct sandbox *sandbox,
                      int dir, const struct limits *limits, int *out,
                      struct err *err)
{
    struct head head;
    int rc = head_read(dir, sandbox->number, &head, err);

    return rc == 0 ? mount_head(volumes, sandbox, dir, &head, false, limits,
                                out, err)
                   : rc;
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
        return err_no_memory(err);
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

int volume_mount_as(struct volumes *volumes, const struct sandbox *sandbox,
                    const struct head *head, const struct limits *limits,
                    int *out, struct err *err)
{
    AUTO_FD int dir = volume_dir(sandbox, err);

    return dir < 0 ? dir
                   : mount_head(volumes, sandbox, dir, head, false, limits, out,
                                err);
}

int volume_swap(struct volumes *volumes, uint64_t number, int mount)
{
    struct volume *volume;
    int old = mount;

    mutex_lock(&volumes->lock);
    volume = find_locked(volumes, number);
    if (volume) {
        old = volume->mount;
        volume->mount = mount;
    }
    mutex_unlock(&volumes->lock);
    return old;
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
    dir = volume_dir(sandbox, err);
    if (dir < 0) {
        return dir;
    }
    return volume_has(dir, VOLUME_PLAIN)
               ? volume_below(dir, VOLUME_PLAIN, err)
               : open_overlay(volumes, sandbox, dir, limits, err);
}

/* Whether a failure is about what this machine can do. */
static bool is_refusal(int rc)
{
    return rc == -EINVAL || rc == -EPERM || rc == -EOPNOTSUPP ||
           rc == -ENOSYS || rc == -ENODEV || rc == -ELOOP || rc == -EREMOTE;
}

/* A workspace that was lost is replaced by an empty one. */
static int begin_head(struct volumes *volumes, const struct sandbox *sandbox,
                      int dir, struct head *out, struct err *err)
{
    char name[HEAD_NAME_SIZE];
    int rc = head_read(dir, sandbox->number, out, err);

    if (rc < 0) {
        return rc;
    }
    head_upper(out, name);
    if ((out->top || volume_has(dir, HEAD_KEYS)) && !volume_has(dir, name)) {
        uint64_t top = out->top;

        /* What was seen of the old one is not true of it. */
        out->upper++;
        out->top = 0;
        rc = head_write(dir, out, err);
        if (rc == 0) {
            layers_unref(volumes->layers, top);
        }
    }
    return rc;
}

static int make_overlay(struct volumes *volumes, const struct sandbox *sandbox,
                        int dir, const struct limits *limits, struct err *err)
{
    char name[HEAD_NAME_SIZE];
    struct head head;
    int rc = begin_head(volumes, sandbox, dir, &head, err);

    if (rc < 0) {
        return rc;
    }
    head_upper(&head, name);
    rc = volume_give_dir(dir, name, link_ids(volumes->link, head.ids), err);
    if (rc == 0) {
        rc = volume_own_dir(dir, VOLUME_LOWER, err);
    }
    return rc == 0 ? open_overlay(volumes, sandbox, dir, limits, err) : rc;
}

static int make_plain(const struct volumes *volumes,
                      const struct sandbox *sandbox, int dir, struct err *err)
{
    int rc = volume_give_dir(dir, VOLUME_PLAIN,
                             link_ids(volumes->link, sandbox->number), err);

    return rc == 0 ? volume_below(dir, VOLUME_PLAIN, err) : rc;
}

/* What a create that was cut off has left has no base below it. */
static int take_plain(int dir, bool has_base, struct err *plain,
                      struct err *err)
{
    if (has_base) {
        return err_set(err, EEXIST, "there is a workspace without a base");
    }
    (void)err_set(plain, EINVAL, "it was made as a plain directory");
    return volume_below(dir, VOLUME_PLAIN, err);
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
    if (volume_has(dir, VOLUME_PLAIN)) {
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
        (void)unlinkat(dir, VOLUME_UPPER, AT_REMOVEDIR);
    }
    return rc;
}

/* What is to be written in, and that it is there: a database on the same disk
 * that waits for its own files does not wait for others. */
static int sync_made(const struct sandbox *sandbox, int dir, struct err *err)
{
    AUTO_FD int written = volume_open_written(sandbox->dir);

    return written < 0 || fsync(written) < 0 || fsync(dir) < 0
               ? err_errno(err, "cannot sync the workspace")
               : 0;
}

int volume_make(struct volumes *volumes, const struct sandbox *sandbox,
                const struct limits *limits, struct err *plain, struct err *err)
{
    AUTO_FD int dir = volume_dir(sandbox, err);
    AUTO_FD int made = -1;
    int rc = 0;

    err_clear(plain);
    made = dir < 0 ? dir : make(volumes, sandbox, dir, limits, plain, err);
    if (made >= 0 && volumes->synced) {
        rc = sync_made(sandbox, dir, err);
    }
    return made < 0 || rc < 0 ? -err->code : TAKE_FD(made);
}

void volume_forget(struct volumes *volumes, uint64_t number)
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

struct link_ids volume_ids(const struct volumes *volumes,
                           const struct sandbox *sandbox)
{
    AUTO_FD int dir = open(sandbox->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct link_ids ids = link_ids(volumes->link, sandbox->number);
    struct err ignored = ERR_INIT;

    /* Before it is made it has its own. */
    if (dir >= 0 && find_ids(volumes, sandbox, dir, &ids, &ignored) < 0) {
        ids = link_ids(volumes->link, sandbox->number);
    }
    return ids;
}

int volume_view(struct volumes *volumes, const struct sandbox *sandbox,
                uint64_t top, const struct limits *limits, struct err *err)
{
    AUTO_FD int dir = volume_dir(sandbox, err);
    AUTO_FD int mount = -1;
    struct head head;
    int rc = dir < 0 ? dir : head_read(dir, sandbox->number, &head, err);
    int fd;

    if (rc == 0) {
        rc = volume_own_dir(dir, VOLUME_LOWER, err);
    }
    if (rc == 0) {
        head.top = top;
        rc =
            mount_head(volumes, sandbox, dir, &head, true, limits, &mount, err);
    }
    if (rc < 0) {
        return rc;
    }
    fd = openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? err_errno(err, "the checkpoint") : fd;
}

int volume_remove(struct volumes *volumes, const struct sandbox *sandbox,
                  const struct limits *limits, struct err *err)
{
    AUTO_FD int dir = open(sandbox->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct head head;
    int rc;

    volume_forget(volumes, sandbox->number);
    if (dir < 0) {
        return errno == ENOENT ? 0 : err_errno(err, "the sandbox's directory");
    }
    rc = head_read(dir, sandbox->number, &head, err);
    return rc == 0 ? volume_clear(dir, &head, limits, err) : rc;
}
