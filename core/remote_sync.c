/* All that is staged sent at once, side by side. */
#include "core/remote_stage.h"

#include <errno.h>
#include <stdlib.h>

enum {
    THREADS_MOST = 8
};

/* What several threads send together. */
struct batch {
    struct remote_node **nodes; /* Referenced. */
    size_t n;
    atomic_size_t next;
    const struct limits *limits;
    struct mutex lock;
    struct err err GUARDED; /* by lock: the first failure. */
};

static void *send_next(void *arg)
{
    struct batch *batch = arg;
    size_t i = atomic_fetch_add(&batch->next, 1);

    while (i < batch->n) {
        struct err err = ERR_INIT;

        if (remote_send(batch->nodes[i], batch->limits, &err) < 0) {
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

int remote_sync(struct workspace *ws, const struct limits *limits,
                struct err *err)
{
    struct remote *r = remote_of(ws);
    struct batch batch = {.limits = limits, .err = ERR_INIT};
    ssize_t n = collect(r, &batch.nodes);
    struct err failed;

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
    for (size_t i = 0; i < batch.n; i++) {
        ws_node_unref(&batch.nodes[i]->base);
    }
    free(batch.nodes);
    if (failed.code) {
        *err = failed;
        return err_wrap(err, -failed.code, "a file could not be sent");
    }
    return 0;
}
