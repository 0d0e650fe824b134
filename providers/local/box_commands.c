/* The cgroups of a box's commands. See box.h. */
#include "providers/local/box.h"

#include "core/cleanup.h"
#include "providers/local/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>

static void add_leftover(struct box *box, uint64_t serial)
{
    struct box_leftover *leftover = calloc(1, sizeof(*leftover));

    if (leftover) {
        list_init(&leftover->link);
        (void)snprintf(leftover->name, sizeof(leftover->name), "%" PRIu64,
                       serial);
        list_add(&box->leftovers, &leftover->link);
    }
}

void box_find_commands(struct box *box)
{
    int fd = openat(box->cgroup, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry = dir ? readdir(dir) : NULL;

    while (entry) {
        uint64_t serial = strtoull(entry->d_name, NULL, 10);

        if (entry->d_type == DT_DIR && entry->d_name[0] >= '0' &&
            entry->d_name[0] <= '9') {
            add_leftover(box, serial);
            if (serial >= atomic_load(&box->serial)) {
                atomic_store(&box->serial, serial + 1);
            }
        }
        entry = readdir(dir);
    }
    if (dir) {
        (void)closedir(dir);
    } else {
        cleanup_fd(&fd);
    }
}

/* ---- Made ahead ---- */

static struct box_group *take_spare(struct box *box)
{
    struct box_group *spare;

    mutex_lock(&box->lock);
    spare = TAKE_PTR(box->spare);
    mutex_unlock(&box->lock);
    return spare;
}

void box_drop_spare(struct box *box)
{
    struct box_group *spare = take_spare(box);

    if (spare) {
        (void)close(spare->fd);
        free(spare->name);
        free(spare);
    }
}

static int make_group(struct box *box, struct box_leftover **name, int *fd,
                      struct err *err)
{
    struct box_leftover *made = calloc(1, sizeof(*made));
    int rc;

    if (!made) {
        return err_no_memory(err);
    }
    list_init(&made->link);
    (void)snprintf(made->name, sizeof(made->name), "%" PRIu64,
                   (uint64_t)atomic_fetch_add(&box->serial, 1));
    rc = cgroup_make(box->cgroup, made->name, box->ids.init, fd, err);
    if (rc < 0) {
        free(made);
        return rc;
    }
    *name = made;
    return 0;
}

int box_begin_command(struct box *box, struct box_leftover **name, int *fd,
                      struct err *err)
{
    struct box_group *spare = take_spare(box);

    if (!spare) {
        return make_group(box, name, fd, err);
    }
    *name = spare->name;
    *fd = spare->fd;
    free(spare);
    return 0;
}

void box_end_command(struct box *box, struct box_leftover *name)
{
    if (name) {
        list_add(&box->leftovers, &name->link);
    }
}

/* Not while the box's own group is removed, or that could not be. */
static void make_spare(struct box *box)
{
    struct err ignored = ERR_INIT;

    mutex_lock(&box->lock);
    if (!box->spare && !box->ended) {
        struct box_group *spare = calloc(1, sizeof(*spare));

        if (spare && make_group(box, &spare->name, &spare->fd, &ignored) < 0) {
            free(TAKE_PTR(spare));
        }
        box->spare = spare;
    }
    mutex_unlock(&box->lock);
}

void box_sweep(struct box *box)
{
    if (box->cgroup < 0) {
        return;
    }
    list_each_safe(node, &box->leftovers)
    {
        struct box_leftover *leftover =
            container_of(node, struct box_leftover, link);

        if (cgroup_remove(box->cgroup, leftover->name) != -EBUSY) {
            list_remove(&leftover->link);
            free(leftover);
        }
    }
    make_spare(box);
}

void box_kill_leftovers(const struct box *box)
{
    struct wire wire = {.type = WIRE_END, .n = 0, .code = SIGKILL};
    struct err ignored = ERR_INIT;

    if (box->cgroup < 0) {
        /* Else it is dead, or the next look comes soon. */
        (void)!box_send(box, &wire, NULL, 0, &ignored);
        return;
    }
    list_each(node, &box->leftovers)
    {
        const struct box_leftover *leftover =
            container_of(node, struct box_leftover, link);
        AUTO_FD int group = openat(box->cgroup, leftover->name,
                                   O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (group >= 0) {
            (void)cgroup_kill(group, &ignored);
        }
    }
}
