/* All that is staged sent at once, side by side. */
#include "core/remote_halves.h"
#include "core/remote_stage.h"

#include "core/clock.h"

#include <errno.h>
#include <stdlib.h>

enum {
    THREADS_MOST = 8,
    ENTER_MS = 2000, /* For who is in a file at the end, and is being ended. */
};

/* What several threads send together. */
struct batch {
    struct remote_node **nodes; /* Referenced. */
    size_t n;
    atomic_size_t next;
    const struct limits *limits;
    bool strict; /* Not a moment longer. */
    struct mutex lock;
    struct err err GUARDED; /* by lock: the first failure. */
};

static void *send_next(void *arg)
{
    struct batch *batch = arg;
    size_t i = atomic_fetch_add(&batch->next, 1);

    while (i < batch->n) {
        struct remote_node *node = batch->nodes[i];
        struct err err = ERR_INIT;
        int rc = batch->strict ? remote_send_within(node, batch->limits, &err)
                               : remote_send(node, batch->limits, &err);

        if (rc < 0) {
            mutex_lock(&batch->lock);
            if (!batch->err.code) {
                batch->err = err;
            }
            mutex_unlock(&batch->lock);
        }
        i = atomic_fetch_add(&batch->next, 1);
    }
    return NULL;
}

/* Where no thread can be made one sends all. */
static void send_all(struct batch *batch, size_t side_by_side)
{
    pthread_t threads[THREADS_MOST];
    size_t n = 0;

    side_by_side = side_by_side < batch->n ? side_by_side : batch->n;
    while (n + 1 < side_by_side && n < THREADS_MOST &&
           pthread_create(&threads[n], NULL, send_next, batch) == 0) {
        n++;
    }
    (void)send_next(batch);
    while (n) {
        (void)pthread_join(threads[--n], NULL);
    }
}

/* References all that is staged; how many, or -ENOMEM. */
static ssize_t collect(struct remote *r, struct remote_node ***out)
{
    struct remote_node **nodes;
    size_t n = 0;

    mutex_lock(&r->base.lock);
    list_each(link, &r->staged)
    {
        n++;
    }
    nodes = calloc(n + 1, sizeof(*nodes));
    n = 0;
    list_each(link, &r->staged)
    {
        const struct remote_stage *stage =
            container_of(link, struct remote_stage, link);

        if (nodes && !stage->orphan) {
            (void)ws_node_ref_locked(&stage->node->base);
            nodes[n] = stage->node;
            n++;
        }
    }
    mutex_unlock(&r->base.lock);
    *out = nodes;
    return nodes ? (ssize_t)n : -ENOMEM;
}

bool remote_unsent(struct workspace *ws, struct ws_file *file)
{
    struct remote *r = remote_of(ws);
    bool unsent = false;

    mutex_lock(&r->base.lock);
    list_each(link, &r->staged)
    {
        const struct remote_stage *stage =
            container_of(link, struct remote_stage, link);

        unsent =
            unsent || (!stage->orphan && !(file && stage->told) &&
                       (!file || stage->node == remote_node_of(file->node)));
    }
    mutex_unlock(&r->base.lock);
    return unsent;
}

static void free_nodes(struct remote_node **nodes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ws_node_unref(&nodes[i]->base);
    }
    free(nodes);
}

static int sync(struct remote *r, const struct limits *limits, bool strict,
                struct err *err)
{
    struct batch batch = {.limits = limits, .strict = strict, .err = ERR_INIT};
    ssize_t n = collect(r, &batch.nodes);
    struct err failed;

    remote_halves_clean(r, limits);
    if (n <= 0) {
        free(batch.nodes);
        return n < 0 ? err_no_memory(err) : 0;
    }
    batch.n = (size_t)n;
    atomic_init(&batch.next, 0);
    mutex_init(&batch.lock);
    send_all(&batch, r->files->at_once);
    mutex_lock(&batch.lock);
    failed = batch.err;
    mutex_unlock(&batch.lock);
    mutex_done(&batch.lock);
    free_nodes(batch.nodes, batch.n);
    if (failed.code) {
        *err = failed;
        return err_wrap(err, -failed.code, "a file could not be sent");
    }
    return 0;
}

int remote_sync(struct workspace *ws, const struct limits *limits,
                struct err *err)
{
    return sync(remote_of(ws), limits, false, err);
}

/* ---- What cannot be sent ---- */

/* Keeps what a file holds that is not sent, and ends its stage: it is over. */
static void keep(struct remote_node *node, const struct err *why,
                 const struct ws_told *told)
{
    static struct cancel never = CANCEL_NEVER;
    const struct limits limits = {.deadline_ms = clock_deadline(ENTER_MS),
                                  .cancel = &never};
    struct remote_stage *stage = NULL;
    struct remote_path path = {"?"};
    struct err err = ERR_INIT;
    int rc = remote_stage_enter(node, REMOTE_FIND, &limits, &stage, &err);

    if (rc == 0 && (!stage || stage->orphan || !stage->changed)) {
        if (stage) {
            remote_stage_leave(stage, false);
        }
        return;
    }
    if (rc == 0) {
        rc = remote_stage_path(stage, &path, &err);
    }
    if (rc == 0) {
        rc = remote_stage_keep(stage, &err);
    }
    if (stage) {
        remote_stage_leave(stage, rc == 0);
    }
    told->fn(told->arg, rc < 0 ? WS_LOST : WS_KEPT, path.text,
             rc < 0 ? &err : why);
}

void remote_end_all(struct workspace *ws, const struct limits *limits,
                    const struct ws_told *told)
{
    struct remote *r = remote_of(ws);
    struct remote_node **nodes = NULL;
    struct err why = ERR_INIT;
    ssize_t n;

    if (sync(r, limits, true, &why) == 0) {
        return;
    }
    n = collect(r, &nodes);
    if (n < 0) {
        err_clear(&why);
        (void)err_no_memory(&why);
        told->fn(told->arg, WS_LOST, "?", &why);
    }
    for (ssize_t i = 0; i < n; i++) {
        keep(nodes[i], &why, told);
    }
    free_nodes(nodes, n < 0 ? 0 : (size_t)n);
}

void remote_keep(struct ws_file *file, const struct ws_told *told)
{
    struct remote_node *node = remote_node_of(file->node);
    struct remote *r = remote_tree(node);
    const struct err why = ERR_INIT;
    bool last;

    mutex_lock(&r->base.lock);
    last = node->opens == 1;
    mutex_unlock(&r->base.lock);
    if (last) {
        keep(node, &why, told);
    }
}
