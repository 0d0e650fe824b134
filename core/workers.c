/* Threads on demand. See workers.h. */
#include "core/workers.h"

#include "core/clock.h"
#include "core/cpus.h"
#include "core/list.h"
#include "core/mutex.h"

#include <errno.h>
#include <stdlib.h>

enum {
    /* Short: thousands of sessions may each have had something to do. */
    IDLE_MS = 100
};

struct work {
    struct list link;
    work_fn *fn;
    void *arg;
};

struct workers {
    struct mutex lock;
    struct cond change;
    struct list queue GUARDED; /* by lock */
    unsigned most;
    unsigned threads GUARDED; /* by lock */
    unsigned idle GUARDED;    /* by lock */
    unsigned queued GUARDED;  /* by lock */
    bool closing GUARDED;     /* by lock */
};

struct workers *workers_new(unsigned most)
{
    struct workers *workers = calloc(1, sizeof(*workers));

    if (workers) {
        mutex_init(&workers->lock);
        cond_init(&workers->change);
        list_init(&workers->queue);
        workers->most = most;
    }
    return workers;
}

void workers_free(struct workers *workers)
{
    if (!workers) {
        return;
    }
    mutex_lock(&workers->lock);
    workers->closing = true;
    cond_broadcast(&workers->change);
    while (workers->threads) {
        (void)cond_wait(&workers->change, &workers->lock, DEADLINE_NONE);
    }
    mutex_unlock(&workers->lock);
    cond_done(&workers->change);
    mutex_done(&workers->lock);
    free(workers);
}

/* Waits for work; NULL when the thread should end. */
static struct work *next_work(struct workers *workers) REQUIRES(workers->lock)
{
    int64_t deadline = clock_deadline(IDLE_MS);
    int rc = 0;

    while (list_empty(&workers->queue) && !workers->closing && rc == 0) {
        workers->idle++;
        rc = cond_wait(&workers->change, &workers->lock, deadline);
        workers->idle--;
    }
    if (list_empty(&workers->queue)) {
        return NULL;
    }
    workers->queued--;
    return container_of(list_pop(&workers->queue), struct work, link);
}

static void *worker_main(void *arg)
{
    struct workers *workers = arg;
    struct work *work;

    cpus_free();
    mutex_lock(&workers->lock);
    work = next_work(workers);
    while (work) {
        mutex_unlock(&workers->lock);
        work->fn(work->arg);
        free(work);
        mutex_lock(&workers->lock);
        work = next_work(workers);
    }
    workers->threads--;
    cond_broadcast(&workers->change);
    mutex_unlock(&workers->lock);
    return NULL;
}

/* Starts a thread where the queue has more work than there are idle ones. */
static int start_thread(struct workers *workers) REQUIRES(workers->lock)
{
    pthread_attr_t attr;
    pthread_t thread;
    int rc;

    if (pthread_attr_init(&attr) != 0) {
        return -ENOMEM;
    }
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    rc = pthread_create(&thread, &attr, worker_main, workers);
    (void)pthread_attr_destroy(&attr);
    if (rc == 0) {
        workers->threads++;
    }
    return -rc;
}

static int run_locked(struct workers *workers, struct work *work)
    REQUIRES(workers->lock)
{
    int rc = 0;

    list_add(&workers->queue, &work->link);
    workers->queued++;
    if (workers->queued > workers->idle && workers->threads < workers->most) {
        rc = start_thread(workers);
    }
    if (rc < 0 && !workers->threads) {
        list_remove(&work->link);
        workers->queued--;
        return -EAGAIN;
    }
    cond_broadcast(&workers->change);
    return 0;
}

int workers_run(struct workers *workers, work_fn *fn, void *arg)
{
    struct work *work = calloc(1, sizeof(*work));
    int rc;

    if (!work) {
        return -ENOMEM;
    }
    work->fn = fn;
    work->arg = arg;
    mutex_lock(&workers->lock);
    rc = run_locked(workers, work);
    mutex_unlock(&workers->lock);
    if (rc < 0) {
        free(work);
    }
    return rc;
}
