/*
 * A workspace's overlay where the kernel copies no mount that is attached
 * nowhere: it neither takes one as a layer then, nor lets sandboxes have copies
 * of it. See keeper.h.
 *
 * Such a kernel takes no more than a few layers by fsconfig(): mount() takes
 * more, by names in the directory of all layers.
 */
#include "providers/local/keeper.h"

#include "core/buf.h"
#include "core/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

enum {
    FD_PATH_SIZE = 32,
    DATA_MAX = 4095, /* A page. */
};

static void detach(int mount)
{
    char path[FD_PATH_SIZE];

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", mount);
    (void)umount2(path, MNT_DETACH);
}

/* From the top one down; the last is that which is no layer of ours. */
static int list_layers(const struct overlay_plan *plan, int lower,
                       struct buf *out)
{
    int rc = buf_printf(out, "lowerdir=");

    for (int i = 0; rc == 0 && i < plan->deep; i++) {
        uint64_t id;

        rc = pread(plan->chain, &id, sizeof(id), i * (off_t)sizeof(id)) ==
                     (ssize_t)sizeof(id)
                 ? buf_printf(out, "%" PRIu64 ":", id)
                 : -EIO;
    }
    if (rc == 0) {
        rc = buf_printf(out, "/proc/self/fd/%d", lower);
    }
    if (rc == 0 && plan->upper >= 0) {
        rc = buf_printf(out,
                        ",upperdir=/proc/self/fd/%d,workdir=/proc/self/fd/%d",
                        plan->upper, plan->work);
    }
    return rc;
}

static int list_options(const struct overlay_plan *plan, int lower,
                        struct buf *out, struct err *err)
{
    struct overlay_option options[OVERLAY_OPTIONS];
    size_t count = overlay_list_options(plan, lower, options);
    int rc = list_layers(plan, lower, out);

    for (size_t i = 0; rc == 0 && i < count; i++) {
        const struct overlay_option *option = &options[i];

        rc = buf_printf(out, ",%s%s%s", option->key, option->value ? "=" : "",
                        option->value ? option->value : "");
    }
    return rc < 0 ? err_set(err, -rc, "too many layers for this kernel") : 0;
}

/* Where it is attached: one that is written goes with its own directory. */
static int place_of(const struct overlay_plan *plan)
{
    return plan->upper >= 0 ? plan->work : plan->layers;
}

static int mount_there(const struct overlay_plan *plan, int lower, int *out,
                       struct err *err)
{
    struct buf options = BUF_INIT(DATA_MAX);
    char path[PATH_MAX];
    char place[FD_PATH_SIZE];
    int rc = list_options(plan, lower, &options, err);
    int fd;

    (void)snprintf(place, sizeof(place), "/proc/self/fd/%d", place_of(plan));
    if (rc == 0) {
        rc = user_path(place_of(plan), path, err);
    }
    if (rc == 0 && (fchdir(plan->layers) < 0 ||
                    mount("overlay", place, "overlay", MS_NOSUID | MS_NODEV,
                          buf_str(&options)) < 0)) {
        rc = err_errno(err, "cannot make an overlay");
    }
    buf_done(&options);
    (void)!chdir("/");
    if (rc < 0) {
        return rc;
    }
    fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        rc = err_errno(err, "%s", path);
        (void)umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
        return rc;
    }
    *out = fd;
    return 0;
}

/* Only to be a layer: for a moment, where nothing is looked for by a path. */
static int attach_mapped(const struct overlay_plan *plan, int mapped,
                         struct err *err)
{
    if (mapped >= 0 &&
        move_mount(mapped, "", plan->layers, "",
                   MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0) {
        return err_errno(err, "cannot attach the base");
    }
    return 0;
}

int attached_mount(const struct overlay_plan *plan, int mapped, int *out,
                   struct err *err)
{
    int rc = attach_mapped(plan, mapped, err);
    int fd = -1;

    if (rc < 0) {
        return rc;
    }
    rc = mount_there(plan, mapped < 0 ? plan->lower : mapped, &fd, err);
    if (rc == 0 && plan->upper < 0) {
        detach(fd); /* Nobody needs a copy of it. */
    }
    if (mapped >= 0) {
        detach(mapped);
    }
    if (rc == 0) {
        *out = fd;
    }
    return rc;
}
