/* The provider `local`: its slots. See local.h. */
#include "providers/local/local.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/json.h"
#include "providers/local/hostdir.h"
#include "providers/local/layers.h"
#include "providers/local/link.h"
#include "providers/local/quota.h"
#include "providers/local/snapshots.h"
#include "providers/local/volume.h"
#include "providers/local/watch.h"
#include "providers/local/written.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    OPEN_MS = 10000, /* For the keeper to be ready. */
    END_MS = 10000,  /* For all sandboxes to end. */
};

static provider_open_fn local_open;
static provider_close_fn local_close;
static provider_life_fn local_create;
static provider_life_fn local_resume;
static provider_life_fn local_pause;
static provider_life_fn local_destroy;
static provider_status_fn local_status;
static provider_exec_fn local_exec;
static provider_signal_fn local_signal;
static provider_limits_fn local_limits;
static provider_room_fn local_room;
static provider_quiet_fn local_quiet;
static watch_stop_fn stop_for_room;
static watch_turn_fn stop_forkers;

const struct provider_ops provider_local = {
    .name = "local",
    .summary = "sandboxes on this machine, in namespaces of their own",
    .flags = PROVIDER_FILES_WHEN_PAUSED | PROVIDER_SPLIT_STDERR |
             PROVIDER_STDIN | PROVIDER_BACKGROUND | PROVIDER_MEMORY_KEPT |
             PROVIDER_BASE,
    .keys = local_keys,
    .open = local_open,
    .close = local_close,
    .create = local_create,
    .resume = local_resume,
    .pause = local_pause,
    .destroy = local_destroy,
    .status = local_status,
    .exec = local_exec,
    .signal = local_signal,
    .each_kept = local_each_kept,
    .adopt = local_adopt,
    .leave = local_leave,
    .settled = local_settled,
    .has_processes = local_has_processes,
    .limits = local_limits,
    .room = local_room,
    .quiet = local_quiet,
    .root = local_root,
    .changes = local_changes,
    .snapshots = &local_snapshot_slots,
};

static struct local *local_of(struct provider *provider)
{
    return container_of(provider, struct local, base);
}

/* ---- The registry of boxes ---- */

static struct box *find_locked(struct local *local, uint64_t number)
    REQUIRES(local->lock)
{
    list_each(node, &local->boxes)
    {
        struct box *box = container_of(node, struct box, link);

        if (box->number == number) {
            return box;
        }
    }
    return NULL;
}

struct box *local_find_box(struct local *local, uint64_t number)
{
    struct box *box;

    mutex_lock(&local->lock);
    box = find_locked(local, number);
    if (box) {
        (void)box_ref(box);
    }
    mutex_unlock(&local->lock);
    return box;
}

void local_add_box(struct local *local, struct box *box)
{
    mutex_lock(&local->lock);
    list_add(&local->boxes, &box->link);
    mutex_unlock(&local->lock);
}

/* Ends a box and takes it out of the registry. */
static int drop_box(struct local *local, struct box *box,
                    const struct limits *limits, struct err *err)
{
    int rc = box_end(box, limits, err);

    if (rc < 0) {
        return rc;
    }
    box_unhold(box);
    mutex_lock(&local->lock);
    list_remove(&box->link);
    mutex_unlock(&local->lock);
    box_unref(box);
    return 0;
}

/* ---- Slots ---- */

static void close_files(struct local *local)
{
    snapshots_close(local->snapshots);
    volumes_free(local->volumes);
    written_close(local->written);
    layers_close(local->layers);
}

static uint64_t complete_layer(void *arg)
{
    return layers_complete(arg);
}

/* Workspaces and their checkpoints. */
static int open_files(struct local *local, const struct provider_env *env,
                      struct err *err)
{
    struct snapshots_parts parts = {.state_dir = env->state_dir,
                                    .durable = env->durable_power};
    int rc = layers_open(env->state_dir, &local->layers, err);

    if (rc == 0) {
        rc = volumes_new(local->link, local->layers, env->durable_power,
                         &local->volumes);
        rc = rc < 0 ? err_no_memory(err) : 0;
    }
    if (rc == 0) {
        rc = written_open(layers_dir(local->layers), complete_layer,
                          local->layers, &local->written, err);
    }
    if (rc == 0) {
        parts.layers = local->layers;
        parts.written = local->written;
        parts.volumes = local->volumes;
        rc = snapshots_open(&parts, &local->snapshots, err);
    }
    return rc;
}

/* What it works with; all of it or nothing. */
static int open_parts(struct local *local, const struct provider_env *env,
                      struct err *err)
{
    struct cancel never = CANCEL_NEVER;
    struct limits limits = {.deadline_ms = clock_deadline(OPEN_MS),
                            .cancel = &never};
    const struct watch_calls calls = {.open = volume_open_written,
                                      .stop = stop_for_room,
                                      .turn = stop_forkers,
                                      .arg = local};
    int rc =
        link_open(env->state_dir, env->leave_s, &limits, &local->link, err);

    if (rc < 0) {
        return rc;
    }
    rc = open_files(local, env, err);
    if (rc == 0) {
        rc = watch_new(env->state_dir, &calls, &local->watch, err);
    }
    if (rc == 0 && pipe2(local->look, O_CLOEXEC | O_NONBLOCK) < 0) {
        rc = err_errno(err, "pipe2");
        watch_free(local->watch);
    }
    if (rc < 0) {
        close_files(local);
        /* A start that fails changes nothing. */
        link_end(local->link, true);
        link_free(local->link);
    }
    return rc;
}

static int local_open(const struct provider_env *env, struct provider **out,
                      struct err *err)
{
    struct local *local = calloc(1, sizeof(*local));
    int rc;

    if (!local) {
        return err_no_memory(err);
    }
    local->loop = env->loop;
    local->env = env;
    mutex_init(&local->lock);
    cond_init(&local->quiet);
    list_init(&local->boxes);
    list_init(&local->commands);
    list_init(&local->kept);
    /* Last: the watch's thread works with all of it. */
    rc = open_parts(local, env, err);
    if (rc < 0) {
        cond_done(&local->quiet);
        mutex_done(&local->lock);
        free(local);
        return rc;
    }
    local_take_held(local, env->state_dir);
    *out = &local->base;
    return 0;
}

/* Whether there is something that is to live on. */
static bool leaves(struct local *local) REQUIRES(local->lock)
{
    bool lives = false;

    list_each(node, &local->boxes)
    {
        lives |= box_alive(container_of(node, struct box, link));
    }
    return lives && local->env->leave;
}

/* Where there are no cgroups the keeper does not know its sandboxes. */
static void end_boxes(struct local *local) REQUIRES(local->lock)
{
    struct cancel never = CANCEL_NEVER;
    struct limits limits = {.deadline_ms = clock_deadline(END_MS),
                            .cancel = &never};
    struct err ignored = ERR_INIT;

    list_each(node, &local->boxes)
    {
        struct box *box = container_of(node, struct box, link);

        if (box->cgroup < 0) {
            (void)box_end(box, &limits, &ignored);
        }
    }
}

static void local_close(struct provider *provider)
{
    struct local *local = local_of(provider);
    struct list *node;
    bool leave;

    watch_free(local->watch);
    mutex_lock(&local->lock);
    leave = leaves(local);
    if (!leave) {
        end_boxes(local);
    }
    mutex_unlock(&local->lock);
    if (leave) {
        /* What is settled is let go at the keeper, which must hear it. */
        command_close_all(local, true);
        link_end(local->link, true);
    } else {
        /* The keeper ends all sandboxes, and that ends all commands. */
        link_end(local->link, false);
        command_close_all(local, false);
    }
    local_drop_kept(local);
    cleanup_fd(&local->look[0]);
    cleanup_fd(&local->look[1]);
    mutex_lock(&local->lock);
    node = list_pop(&local->boxes);
    while (node) {
        box_unref(container_of(node, struct box, link));
        node = list_pop(&local->boxes);
    }
    mutex_unlock(&local->lock);
    close_files(local);
    link_free(local->link);
    cond_done(&local->quiet);
    mutex_done(&local->lock);
    free(local);
}

/* What status.json tells of the workspace; NULL without memory. */
static char *write_metadata(const struct err *plain)
{
    struct js *js = js_object();
    struct buf text = BUF_INIT(PROVIDER_STATE_MAX);
    int rc;

    js_set_text(js, "workspace", plain->code ? "plain" : "overlay");
    if (plain->code) {
        js_set_text(js, "workspace_why", plain->msg);
    }
    rc = js_write(js, &text);
    js_free(js);
    if (rc < 0) {
        buf_done(&text);
        return NULL;
    }
    return text.data;
}

int local_fill_instance(struct sandbox *sandbox, const struct err *plain,
                        struct err *err)
{
    struct instance made = {0};
    char name[32];

    (void)snprintf(name, sizeof(name), "local-%" PRIu64, sandbox->number);
    made.external_id = strdup(name);
    made.display_name = strdup(name);
    made.workspace_path = strdup(WIRE_WORKSPACE);
    made.metadata = write_metadata(plain);
    if (!made.external_id || !made.display_name || !made.workspace_path ||
        !made.metadata) {
        instance_done(&made);
        return err_no_memory(err);
    }
    instance_done(sandbox->instance);
    *sandbox->instance = made;
    return 0;
}

/* From now on it is looked at what the session writes. */
int local_watch(struct local *local, const struct sandbox *sandbox,
                const struct wire_quota *quota, struct err *err)
{
    int rc = watch_add(local->watch, sandbox->number, sandbox->dir,
                       quota->disk_bytes);

    return rc < 0 ? err_no_memory(err) : 0;
}

static void stop_for_room(void *arg, uint64_t number, const struct err *why)
{
    command_stop_all(arg, number, why);
}

/* A sandbox whose processes fork on and on where they may not; 0: none. */
static uint64_t find_forker(struct local *local, struct err *why)
{
    uint64_t number = 0;

    mutex_lock(&local->lock);
    list_each(node, &local->boxes)
    {
        struct box *box = container_of(node, struct box, link);

        if (!atomic_load(&box->frozen) && box_forks_on(box, why)) {
            number = box->number;
        }
    }
    mutex_unlock(&local->lock);
    return number;
}

/* Of several the others are found in the next turn. */
static void stop_forkers(void *arg)
{
    struct err why = ERR_INIT;
    uint64_t number = find_forker(arg, &why);

    if (number) {
        command_stop_all(arg, number, &why);
    }
}

/* A new run; the old one, if any, is dead. */
static int run_anew(struct local *local, const struct sandbox *sandbox,
                    int workspace, const struct limits *limits, struct err *err)
{
    struct link_plan plan = {.workspace = workspace,
                             .ids = volume_ids(local->volumes, sandbox)};
    AUTO_FD int rootfs = -1;
    struct box *box = NULL;
    int rc = quota_read(sandbox->config, &plan.quota, err);

    if (rc == 0) {
        rc = hostdir_open(sandbox, "rootfs", &rootfs, err);
        plan.rootfs = rootfs;
    }
    if (rc == 0) {
        rc = local_watch(local, sandbox, &plan.quota, err);
    }
    if (rc == 0) {
        rc = box_start(local->link, sandbox->number, &plan, limits, &box, err);
    }
    if (rc == 0) {
        AUTO_FD int mount = volume_mount(local->volumes, sandbox->number);

        box_hold(box, mount);
        local_add_box(local, box);
    }
    return rc;
}

/* Makes the sandbox run on a workspace, whatever became of its last run. */
static int run(struct local *local, const struct sandbox *sandbox,
               int workspace, const struct limits *limits, struct err *err)
{
    struct box *box = local_find_box(local, sandbox->number);
    int rc = 0;

    if (box && box_alive(box)) {
        rc = box_freeze(box, false, limits, err);
    } else {
        rc = box ? drop_box(local, box, limits, err) : 0;
        if (rc == 0) {
            rc = run_anew(local, sandbox, workspace, limits, err);
        }
    }
    box_unref(box);
    if (rc == 0) {
        watch_runs(local->watch, sandbox->number, true);
    }
    return rc;
}

static int local_create(struct provider *provider, struct sandbox *sandbox,
                        const struct limits *limits, struct err *err)
{
    struct err plain = ERR_INIT;
    AUTO_FD int workspace =
        volume_make(local_of(provider)->volumes, sandbox, limits, &plain, err);
    int rc;

    if (workspace < 0) {
        return workspace;
    }
    rc = run(local_of(provider), sandbox, workspace, limits, err);
    return rc == 0 ? local_fill_instance(sandbox, &plain, err) : rc;
}

static int local_resume(struct provider *provider, struct sandbox *sandbox,
                        const struct limits *limits, struct err *err)
{
    AUTO_FD int workspace =
        volume_open(local_of(provider)->volumes, sandbox, limits, err);

    if (workspace < 0) {
        return workspace;
    }
    return run(local_of(provider), sandbox, workspace, limits, err);
}

static int local_pause(struct provider *provider, struct sandbox *sandbox,
                       const struct limits *limits, struct err *err)
{
    struct box *box = local_find_box(local_of(provider), sandbox->number);
    int rc;

    if (box && box_alive(box)) {
        rc = box_freeze(box, true, limits, err);
    } else {
        rc = volume_check(sandbox, err);
    }
    box_unref(box);
    if (rc == 0) {
        watch_runs(local_of(provider)->watch, sandbox->number, false);
    }
    return rc;
}

int local_end_run(struct local *local, uint64_t number,
                  const struct limits *limits, struct err *err)
{
    struct box *box = local_find_box(local, number);
    int rc = box ? drop_box(local, box, limits, err) : 0;

    box_unref(box);
    return rc;
}

static int local_destroy(struct provider *provider, struct sandbox *sandbox,
                         const struct limits *limits, struct err *err)
{
    struct local *local = local_of(provider);
    int rc = local_end_run(local, sandbox->number, limits, err);

    if (rc == 0) {
        watch_drop(local->watch, sandbox->number);
        rc = volume_remove(local->volumes, sandbox, limits, err);
    }
    return rc == 0 ? snapshots_forget(local->snapshots, sandbox, err) : rc;
}

static int local_status(struct provider *provider,
                        const struct sandbox *sandbox,
                        const struct limits *limits, enum provider_state *out,
                        struct err *err)
{
    struct box *box = local_find_box(local_of(provider), sandbox->number);
    int rc = volume_check(sandbox, err);

    (void)limits;
    if (rc < 0) {
        box_unref(box);
        if (rc != -ESTALE) {
            return rc;
        }
        err_clear(err);
        *out = PROVIDER_LOST;
        return 0;
    }
    *out = box && box_alive(box) && !atomic_load(&box->frozen)
               ? PROVIDER_RUNNING
               : PROVIDER_PAUSED;
    box_unref(box);
    return 0;
}

static int local_exec(struct provider *provider, const struct sandbox *sandbox,
                      const struct command *command,
                      const struct limits *limits,
                      const struct command_sink *sink, void *arg,
                      struct err *err)
{
    struct local *local = local_of(provider);
    struct box *box = local_find_box(local, sandbox->number);
    int rc;

    if (watch_room(local->watch, 0, err) < 0) {
        rc = -err->code;
    } else if (box && box_alive(box) && !atomic_load(&box->frozen)) {
        watch_runs(local->watch, sandbox->number, true);
        rc = command_start(local, box, command, limits, sink, arg, err);
    } else {
        rc = err_set(err, EHOSTDOWN, "the sandbox does not run");
    }
    box_unref(box);
    return rc;
}

static int local_signal(struct provider *provider,
                        const struct sandbox *sandbox, uint64_t n, int signal,
                        struct err *err)
{
    return command_signal(local_of(provider), sandbox->number, n, signal, err);
}

static int local_limits(struct provider *provider,
                        const struct sandbox *sandbox, struct buf *out,
                        struct err *err)
{
    const struct local *local = local_of(provider);
    struct wire_quota quota;
    const char *why;
    const struct wire_host *host = link_host(local->link, &why);
    int rc = quota_read(sandbox->config, &quota, err);

    return rc < 0 ? rc : quota_tell(&quota, host, why, out, err);
}

static bool local_quiet(struct provider *provider, uint64_t number)
{
    struct box *box = local_find_box(local_of(provider), number);
    bool quiet = !box || box_quiet(box);

    box_unref(box);
    return quiet;
}

static int local_room(struct provider *provider, uint64_t number,
                      struct err *err)
{
    return watch_room(local_of(provider)->watch, number, err);
}
