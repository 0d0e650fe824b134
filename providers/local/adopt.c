/*
 * Sandboxes and commands of an earlier daemon, which the keeper has held. See
 * local.h and link.h.
 */
#include "providers/local/running.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "providers/local/cgroup.h"
#include "providers/local/snapshots.h"
#include "providers/local/volume.h"
#include "providers/local/watch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum {
    BOX_MS = 2000, /* For a box to freeze or thaw, or, dead, to be swept. */
    MS_US = 1000
};

static struct local *local_of(struct provider *provider)
{
    return container_of(provider, struct local, base);
}

/* ---- What the keeper holds ---- */

/* A fork's ids are those of the session that it came from. */
static void find_box(struct local *local, struct box *box,
                     const char *state_dir)
{
    char dir[PATH_MAX];
    const struct sandbox sandbox = {.number = box->number, .dir = dir};
    int size = snprintf(dir, sizeof(dir), "%s/sessions/%" PRIu64, state_dir,
                        box->number);

    if (size >= (int)sizeof(dir)) {
        return;
    }
    box->ids = volume_ids(local->volumes, &sandbox);
    if (watch_add(local->watch, box->number, dir, box->quota.disk_bytes) == 0) {
        watch_runs(local->watch, box->number, !atomic_load(&box->frozen));
    }
}

/* One that lives is as it is to be: its daemon may have died on the way. */
static void settle_box(struct local *local, struct box *box,
                       const char *state_dir)
{
    struct cancel never = CANCEL_NEVER;
    struct limits limits = {.deadline_ms = clock_deadline(BOX_MS),
                            .cancel = &never};
    struct err ignored = ERR_INIT;

    if (box_alive(box) && !snapshots_was_cut(local->snapshots, box->number)) {
        (void)!box_freeze(box, atomic_load(&box->frozen), &limits, &ignored);
        find_box(local, box, state_dir);
        local_add_box(local, box);
    } else {
        (void)!box_end(box, &limits, &ignored);
        box_unhold(box);
        box_unref(box);
    }
}

/* Its mount is taken over in any case: what has died may still be dying. */
static void take_box(struct local *local, struct link_held *held,
                     const char *state_dir)
{
    int *mount = &held->fds[WIRE_BOX_MOUNT];
    struct box *box = box_adopt(local->link, held);

    if (*mount >= 0 &&
        !snapshots_was_cut(local->snapshots, held->wire.held.number) &&
        volume_adopt(local->volumes, held->wire.held.number, *mount) == 0) {
        *mount = -1;
    }
    if (!box) {
        link_drop(local->link, &held->wire.held);
    } else {
        settle_box(local, box, state_dir);
    }
}

static struct box_leftover *name_of(const struct wire_held *held)
{
    struct box_leftover *name = calloc(1, sizeof(*name));

    if (name) {
        list_init(&name->link);
        (void)snprintf(name->name, sizeof(name->name), "%.31s", held->name);
    }
    return name;
}

/* Fills one that waits to be adopted; false where something is missing. */
static bool fill(struct running *running, struct link_held *held)
{
    struct box *box = running->box;
    int *fds = held->fds;

    if (box->cgroup >= 0) {
        running->cgroup_name = name_of(&held->wire.held);
        running->cgroup = openat(box->cgroup, held->wire.held.name,
                                 O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (!running->cgroup_name) {
            return false;
        }
    }
    running->reply = TAKE_FD(fds[WIRE_COMMAND_REPLY]);
    running->streams[0].fd = TAKE_FD(fds[WIRE_COMMAND_STDOUT]);
    running->streams[1].fd = TAKE_FD(fds[WIRE_COMMAND_STDERR]);
    for (int i = 0; i < RUNNING_STREAMS; i++) {
        running->streams[i].running = running;
    }
    return running->reply >= 0 && running->streams[0].fd >= 0 &&
           running->streams[1].fd >= 0;
}

static void take_command(struct local *local, struct link_held *held)
{
    const struct wire_held *what = &held->wire.held;
    const struct command command = {.n = what->command};
    struct box *box = local_find_box(local, what->number);
    struct running *running = NULL;

    if (box && box->name_held == what->box) {
        running = running_new(local, box, &command);
    }
    if (running && fill(running, held)) {
        mutex_lock(&local->lock);
        list_add(&local->kept, &running->link);
        mutex_unlock(&local->lock);
    } else {
        link_drop(local->link, what);
        if (running) {
            running_free(running);
        }
    }
    box_unref(box);
}

static bool has_group(struct local *local, const char *name)
{
    bool has = false;

    mutex_lock(&local->lock);
    list_each(node, &local->boxes)
    {
        has |= strcmp(container_of(node, struct box, link)->name, name) == 0;
    }
    mutex_unlock(&local->lock);
    return has;
}

/* The group of a box that died with its daemon, before it was held. */
static void drop_group(int parent, const char *name)
{
    AUTO_FD int group =
        openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct err ignored = ERR_INIT;

    if (group >= 0) {
        (void)cgroup_kill(group, &ignored);
        (void)cgroup_remove(parent, name);
    }
}

static void sweep_groups(struct local *local)
{
    int parent = link_cgroup(local->link);
    int fd = parent < 0
                 ? -1
                 : openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry = dir ? readdir(dir) : NULL;

    while (entry) {
        if (entry->d_type == DT_DIR && entry->d_name[0] >= '0' &&
            entry->d_name[0] <= '9') {
            box_count_run(entry->d_name);
            if (!has_group(local, entry->d_name)) {
                drop_group(parent, entry->d_name);
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

void local_take_held(struct local *local, const char *state_dir)
{
    struct link_held *held = link_take_held(local->link);

    while (held) {
        if (held->wire.held.command) {
            take_command(local, held);
        } else {
            take_box(local, held, state_dir);
        }
        link_held_free(held);
        held = link_take_held(local->link);
    }
    sweep_groups(local);
}

static struct running *take_kept(struct local *local, uint64_t number,
                                 uint64_t n)
{
    struct running *found = NULL;

    mutex_lock(&local->lock);
    list_each(node, &local->kept)
    {
        struct running *running = container_of(node, struct running, link);

        if (running->box->number == number && running->n == n) {
            found = running;
        }
    }
    if (found) {
        list_remove(&found->link);
    }
    mutex_unlock(&local->lock);
    return found;
}

void local_drop_kept(struct local *local)
{
    struct list *node;

    mutex_lock(&local->lock);
    node = list_pop(&local->kept);
    mutex_unlock(&local->lock);
    while (node) {
        running_free(container_of(node, struct running, link));
        mutex_lock(&local->lock);
        node = list_pop(&local->kept);
        mutex_unlock(&local->lock);
    }
}

/* ---- Slots ---- */

void local_each_kept(struct provider *provider, provider_kept_fn *fn, void *arg)
{
    struct local *local = local_of(provider);
    struct list asked;
    struct list *node;

    /* fn may adopt it, which takes it out of the list that it is in. */
    list_init(&asked);
    mutex_lock(&local->lock);
    while ((node = list_pop(&local->kept))) {
        list_add(&asked, node);
    }
    while ((node = list_pop(&asked))) {
        const struct running *running =
            container_of(node, struct running, link);
        uint64_t number = running->box->number;
        uint64_t n = running->n;

        list_add(&local->kept, node);
        mutex_unlock(&local->lock);
        fn(arg, number, n);
        mutex_lock(&local->lock);
    }
    mutex_unlock(&local->lock);
}

static void drop_started(void *arg, int64_t pid)
{
    (void)arg;
    (void)pid;
}

static void drop_output(void *arg, enum command_stream stream, const void *data,
                        size_t size)
{
    (void)arg;
    (void)stream;
    (void)data;
    (void)size;
}

static void drop_exited(void *arg, const struct command_result *result)
{
    (void)arg;
    (void)result;
}

static void drop_closed(void *arg)
{
    (void)arg;
}

static const struct command_sink drop = {
    .started = drop_started,
    .output = drop_output,
    .exited = drop_exited,
    .closed = drop_closed,
};

static int take_token(struct running *running, const struct cancel *cancel,
                      struct err *err)
{
    if (cancel) {
        running->cancel = fcntl(cancel->fd, F_DUPFD_CLOEXEC, 0);
        if (running->cancel < 0) {
            return err_errno(err, "cannot watch the token");
        }
    }
    return 0;
}

static void set_deadline(struct running *running, int64_t deadline_us)
{
    int64_t left_us = deadline_us - clock_wall_us();

    running->deadline_us = deadline_us;
    running->timeout_at_ms =
        deadline_us ? clock_deadline(left_us > 0 ? left_us / MS_US : 0)
                    : DEADLINE_NONE;
}

int local_adopt(struct provider *provider, const struct adoption *what,
                const struct command_sink *sink, void *arg, struct err *err)
{
    struct local *local = local_of(provider);
    struct running *running = take_kept(local, what->number, what->n);
    int rc;

    if (!running) {
        return err_set(err, ESRCH, "command %" PRIu64 " is gone", what->n);
    }
    rc = sink ? take_token(running, what->cancel, err) : 0;
    if (rc < 0) {
        mutex_lock(&local->lock);
        list_add(&local->kept, &running->link);
        mutex_unlock(&local->lock);
        return rc;
    }
    running->sink = sink ? sink : &drop;
    running->arg = arg;
    running->recorded = !sink || what->over;
    set_deadline(running, what->deadline_us);
    if (!sink) {
        struct err ignored = ERR_INIT;

        (void)running_kill(running, &ignored);
    }
    running_follow(running);
    return 0;
}

struct leave {
    struct local *local;
    uint64_t number;
    uint64_t n;
};

static struct running *find_running(struct local *local, uint64_t number,
                                    uint64_t n) REQUIRES(local->lock)
{
    list_each(node, &local->commands)
    {
        struct running *running = container_of(node, struct running, link);

        if (running->box->number == number && running->n == n) {
            return running;
        }
    }
    return NULL;
}

/* In the loop's thread. One that is about to end does so first. */
static void leave_one(void *arg)
{
    struct leave *leave = arg;
    struct local *local = leave->local;
    struct running *running;

    mutex_lock(&local->lock);
    running = find_running(local, leave->number, leave->n);
    mutex_unlock(&local->lock);
    if (running && running->phase == RUNNING_FREELY && !running->told) {
        running_close(running, true);
    }
    free(leave);
}

int local_leave(struct provider *provider, uint64_t number, uint64_t n,
                struct err *err)
{
    struct local *local = local_of(provider);
    struct leave *what = malloc(sizeof(*what));
    const struct running *running;
    bool runs;

    mutex_lock(&local->lock);
    running = find_running(local, number, n);
    runs = running && !atomic_load(&running->over);
    mutex_unlock(&local->lock);
    if (!what || !runs) {
        free(what);
        return err_set(err, ESRCH, "command %" PRIu64 " does not run", n);
    }
    *what = (struct leave){.local = local, .number = number, .n = n};
    loop_post(local->loop, leave_one, what);
    return 0;
}

void local_settled(struct provider *provider, uint64_t number, uint64_t n)
{
    struct local *local = local_of(provider);
    struct box *box = local_find_box(local, number);
    struct running *open;

    mutex_lock(&local->lock);
    open = find_running(local, number, n);
    if (open) {
        open->recorded = true;
    }
    mutex_unlock(&local->lock);
    if (box && !open) {
        running_unhold(box, n);
    }
    box_unref(box);
}

bool local_has_processes(struct provider *provider, uint64_t number)
{
    struct box *box = local_find_box(local_of(provider), number);
    bool alive = box && box_alive(box);

    box_unref(box);
    return alive;
}
