/* Checkpoints of workspaces. See snapshots.h. */
#include "providers/local/snapshots_priv.h"

#include "core/array.h"
#include "core/cleanup.h"
#include "providers/local/layers.h"
#include "providers/local/seen.h"
#include "providers/local/shut.h"
#include "providers/local/tick.h"
#include "providers/local/volume.h"
#include "providers/local/volume_priv.h"
#include "providers/local/written.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* ---- States ---- */

struct snapshot_state *snapshots_take_state(struct snapshots *snapshots,
                                            uint64_t number)
{
    struct snapshot_state *found = NULL;

    mutex_lock(&snapshots->lock);
    list_each(node, &snapshots->states)
    {
        struct snapshot_state *state =
            container_of(node, struct snapshot_state, link);

        if (state->number == number) {
            found = state;
        }
    }
    if (found) {
        list_remove(&found->link);
    }
    mutex_unlock(&snapshots->lock);
    return found;
}

void snapshots_keep_state(struct snapshots *snapshots,
                          struct snapshot_state *state)
{
    mutex_lock(&snapshots->lock);
    list_add(&snapshots->states, &state->link);
    mutex_unlock(&snapshots->lock);
}

void snapshots_free_state(struct snapshots *snapshots,
                          struct snapshot_state *state)
{
    if (state) {
        layers_unref(snapshots->layers, state->top);
        scan_free(state->tree);
        free(state);
    }
}

void snapshots_discard(struct snapshots *snapshots, int dir, const char *name)
{
    struct err ignored = ERR_INIT;
    uint64_t id;

    if (layers_adopt(snapshots->layers, 0, dir, name, &id, &ignored) == 0) {
        layers_unref(snapshots->layers, id);
    }
}

/* ---- The start ---- */

struct loading {
    struct snapshots *snapshots;
    int dir; /* Of a session. */
    struct err *err;
};

/* A checkpoint that may not show what was is none. */
static int load_key(void *arg, uint64_t key, uint64_t layer)
{
    const struct loading *loading = arg;
    struct layers *layers = loading->snapshots->layers;

    if (written_lost(loading->snapshots->written, layer)) {
        return head_drop_key(loading->dir, key, loading->err);
    }
    (void)layers_ref(layers, layer);
    return 0;
}

/* A workspace over what may not show what was is lost. */
static int lose_head(struct snapshots *snapshots, int dir, struct head *head,
                     struct err *err)
{
    char upper[HEAD_NAME_SIZE];

    head_upper(head, upper);
    snapshots_discard(snapshots, dir, upper);
    head->top = 0;
    return head_write(dir, head, err);
}

static bool begins_with(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* What a restore that was cut off has left. */
static void clean(struct snapshots *snapshots, int session,
                  const struct head *head)
{
    int fd = openat(session, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry = dir ? readdir(dir) : NULL;
    char upper[HEAD_NAME_SIZE];
    char work[HEAD_NAME_SIZE];

    head_upper(head, upper);
    volume_name_work(head, work);
    while (entry) {
        const char *name = entry->d_name;

        if ((begins_with(name, VOLUME_UPPER) && strcmp(name, upper) != 0) ||
            (begins_with(name, VOLUME_WORK ".") && strcmp(name, work) != 0)) {
            snapshots_discard(snapshots, session, name);
        }
        entry = readdir(dir);
    }
    if (dir) {
        (void)closedir(dir);
    } else {
        cleanup_fd(&fd);
    }
}

static int undo_seal(struct snapshots *snapshots, int dir, const char *name,
                     struct head *head, struct err *err)
{
    void *more = reallocarray(snapshots->cut, snapshots->cuts + 1,
                              sizeof(*snapshots->cut));

    if (!more) {
        return err_no_memory(err);
    }
    snapshots->cut = more;
    snapshots->cut[snapshots->cuts++] = strtoull(name, NULL, 10);
    return snapshots_seal_undo(snapshots, dir, head, err);
}

bool snapshots_was_cut(const struct snapshots *snapshots, uint64_t number)
{
    for (size_t i = 0; i < snapshots->cuts; i++) {
        if (snapshots->cut[i] == number) {
            return true;
        }
    }
    return false;
}

/* Of what a look has opened. */
static int undo_look(int dir, const struct head *head, struct err *err)
{
    char name[HEAD_NAME_SIZE];
    AUTO_FD int upper = -1;

    head_upper(head, name);
    upper = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return shut_undo(dir, upper, err);
}

static int load_session(struct snapshots *snapshots, int sessions,
                        const char *name, struct err *err)
{
    AUTO_FD int dir =
        openat(sessions, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct loading loading = {.snapshots = snapshots, .dir = dir, .err = err};
    struct head head;
    bool cut = false;
    int rc = dir < 0 ? err_errno(err, "a session's directory")
                     : head_read(dir, 0, &head, err);

    if (rc == 0 && head.seal) {
        cut = true;
        rc = undo_seal(snapshots, dir, name, &head, err);
    }
    if (rc == 0) {
        rc = undo_look(dir, &head, err);
    }
    if (rc == 0 && written_lost(snapshots->written, head.top)) {
        cut = true;
        rc = lose_head(snapshots, dir, &head, err);
    }
    if (rc < 0) {
        return rc;
    }
    (void)layers_ref(snapshots->layers, head.top);
    if (head.top || cut) {
        clean(snapshots, dir, &head);
    }
    return head_each_key(dir, load_key, &loading, err);
}

/* Without knowing what all sessions need nothing may be let go. */
static int load(struct snapshots *snapshots, const char *state_dir,
                struct err *err)
{
    AUTO_FD int state = open(state_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = openat(state, "sessions", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    int rc = 0;

    if (!dir) {
        rc = fd < 0 && errno == ENOENT ? 0
                                       : err_errno(err, "the sessions' files");
        cleanup_fd(&fd);
        return rc;
    }
    entry = readdir(dir);
    while (rc == 0 && entry) {
        if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9') {
            rc = load_session(snapshots, dirfd(dir), entry->d_name, err);
        }
        entry = readdir(dir);
    }
    (void)closedir(dir);
    return rc;
}

int snapshots_open(const struct snapshots_parts *parts, struct snapshots **out,
                   struct err *err)
{
    struct snapshots *snapshots = calloc(1, sizeof(*snapshots));
    int rc;

    if (!snapshots) {
        return err_no_memory(err);
    }
    snapshots->layers = parts->layers;
    snapshots->volumes = parts->volumes;
    snapshots->written = parts->written;
    snapshots->durable = parts->durable;
    snapshots->coarse = tick_is_coarse(layers_dir(parts->layers));
    mutex_init(&snapshots->lock);
    list_init(&snapshots->states);
    list_init(&snapshots->joints);
    snapshots->closing.fd = -1;
    rc = cancel_init(&snapshots->closing, err);
    snapshots->closers = rc < 0 ? NULL : workers_new(1);
    snapshots->joiners = rc < 0 ? NULL : workers_new(1);
    if (rc == 0 && (!snapshots->closers || !snapshots->joiners)) {
        rc = err_no_memory(err);
    }
    if (rc < 0) {
        snapshots_close(snapshots);
        return rc;
    }
    rc = load(snapshots, parts->state_dir, err);
    if (rc == 0) {
        rc = written_begin(parts->written, parts->durable, err);
    }
    if (rc < 0) {
        snapshots_close(snapshots);
        return rc;
    }
    layers_sweep(parts->layers);
    *out = snapshots;
    return 0;
}

void snapshots_close(struct snapshots *snapshots)
{
    struct list *node;

    if (!snapshots) {
        return;
    }
    if (snapshots->closers && snapshots->joiners) {
        cancel_fire(&snapshots->closing);
        snapshots_join_stop(snapshots);
    }
    workers_free(snapshots->closers);
    workers_free(snapshots->joiners);
    snapshots_join_end(snapshots);
    cancel_done(&snapshots->closing);
    free(snapshots->cut);
    mutex_lock(&snapshots->lock);
    node = list_pop(&snapshots->states);
    while (node) {
        struct snapshot_state *state =
            container_of(node, struct snapshot_state, link);

        /* What only it refers to stays for the next start. */
        scan_free(state->tree);
        free(state);
        node = list_pop(&snapshots->states);
    }
    mutex_unlock(&snapshots->lock);
    mutex_done(&snapshots->lock);
    free(snapshots);
}

/* ---- Keys ---- */

int snapshots_drop(struct snapshots *snapshots, const struct sandbox *sandbox,
                   uint64_t key, struct err *err)
{
    AUTO_FD int dir = open(sandbox->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    uint64_t layer = 0;
    int rc;

    if (dir < 0) {
        return errno == ENOENT ? 0 : err_errno(err, "the sandbox's directory");
    }
    rc = head_find_key(dir, key, &layer, err);
    if (rc == -ENOENT) {
        err_clear(err);
        return 0;
    }
    if (rc == 0) {
        rc = head_drop_key(dir, key, err);
    }
    if (rc == 0 && snapshots->durable) {
        rc = head_sync(dir, err);
    }
    /* When nothing can lead back to it; else at the next start. */
    if (rc == 0) {
        layers_unref(snapshots->layers, layer);
    }
    return rc;
}

int snapshots_show(struct snapshots *snapshots, const struct sandbox *sandbox,
                   uint64_t key, const struct limits *limits, struct err *err)
{
    AUTO_FD int dir = volume_dir(sandbox, err);
    uint64_t layer = 0;
    int rc = dir < 0 ? dir : head_find_key(dir, key, &layer, err);

    if (rc < 0) {
        return rc;
    }
    return volume_view(snapshots->volumes, sandbox, layer, limits, err);
}

/* ---- The end of a session ---- */

struct forgetting {
    int dir;
    uint64_t *layers; /* That it referred to. */
    size_t count;
    size_t room;
    struct err *err;
};

static int add_layer(struct forgetting *forgetting, uint64_t layer)
{
    void *wide = array_grow(forgetting->layers, forgetting->count,
                            &forgetting->room, sizeof(*forgetting->layers));

    if (!wide) {
        return err_no_memory(forgetting->err);
    }
    forgetting->layers = wide;
    forgetting->layers[forgetting->count++] = layer;
    return 0;
}

static int forget_key(void *arg, uint64_t key, uint64_t layer)
{
    struct forgetting *forgetting = arg;
    int rc = add_layer(forgetting, layer);

    return rc == 0 ? head_drop_key(forgetting->dir, key, forgetting->err) : rc;
}

static int forget_head(struct forgetting *forgetting, uint64_t number)
{
    struct head head;
    int rc = head_read(forgetting->dir, number, &head, forgetting->err);

    if (rc == 0) {
        rc = add_layer(forgetting, head.top);
    }
    if (rc == 0) {
        seen_drop(forgetting->dir);
        rc = head_drop(forgetting->dir, forgetting->err);
    }
    return rc;
}

int snapshots_forget(struct snapshots *snapshots, const struct sandbox *sandbox,
                     struct err *err)
{
    AUTO_FD int dir = open(sandbox->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct forgetting forgetting = {.dir = dir, .err = err};
    int rc;

    snapshots_free_state(snapshots,
                         snapshots_take_state(snapshots, sandbox->number));
    snapshots_join_drop(snapshots, sandbox->number, 0);
    if (dir < 0) {
        return errno == ENOENT ? 0 : err_errno(err, "the sandbox's directory");
    }
    rc = head_each_key(dir, forget_key, &forgetting, err);
    if (rc == 0) {
        rc = forget_head(&forgetting, sandbox->number);
    }
    if (rc == 0 && snapshots->durable) {
        rc = head_sync(dir, err);
    }
    /* As in snapshots_drop(). */
    for (size_t i = 0; rc == 0 && i < forgetting.count; i++) {
        layers_unref(snapshots->layers, forgetting.layers[i]);
    }
    free(forgetting.layers);
    return rc;
}
