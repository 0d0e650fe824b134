/* The processes of all programs. See jsonl.h. */
#include "core/clock.h"
#include "core/mutex.h"
#include "providers/jsonl/jsonl.h"

#include <errno.h>
#include <stdlib.h>

enum {
    MOST = 256,      /* Processes at one time. */
    MOST_IDLE = 8,   /* Of them, those that do nothing. */
    IDLE_MS = 60000, /* How long one may do so. */
    STOP_MS = 2000,  /* For a process to end by itself. */
    CLOSE_MS = 1000, /* The same when all are to end. */
    TURN_MS = 50,    /* How often a waiter looks at its token. */
};

/* A process that does nothing, and whose it is. */
struct idle {
    struct list link;
    struct program program; /* What tells programs apart, a copy. */
    struct peer *peer;
};

struct pool {
    struct mutex lock;
    struct cond change;
    struct list idle GUARDED; /* by lock; the oldest first */
    unsigned n_idle GUARDED;
    unsigned n GUARDED; /* All processes. */
};

int pool_new(struct pool **out)
{
    struct pool *pool = calloc(1, sizeof(*pool));

    if (!pool) {
        return -ENOMEM;
    }
    mutex_init(&pool->lock);
    cond_init(&pool->change);
    list_init(&pool->idle);
    *out = pool;
    return 0;
}

static struct peer *free_idle(struct idle *idle)
{
    struct peer *peer = idle->peer;

    program_done(&idle->program);
    free(idle);
    return peer;
}

static struct peer *take_out(struct pool *pool, struct idle *idle)
    REQUIRES(pool->lock)
{
    list_remove(&idle->link);
    pool->n_idle--;
    return free_idle(idle);
}

/* One that has been idle too long, or is one too many; NULL: none. */
static struct peer *take_spare(struct pool *pool) REQUIRES(pool->lock)
{
    struct idle *oldest = container_of(pool->idle.next, struct idle, link);

    if (list_empty(&pool->idle) ||
        (pool->n_idle <= MOST_IDLE && pool->n < MOST &&
         clock_ms() - oldest->peer->idle_ms < IDLE_MS)) {
        return NULL;
    }
    return take_out(pool, oldest);
}

static void forget(struct pool *pool)
{
    mutex_lock(&pool->lock);
    pool->n--;
    cond_broadcast(&pool->change);
    mutex_unlock(&pool->lock);
}

static void end_spare(struct pool *pool)
{
    struct peer *spare;

    do {
        mutex_lock(&pool->lock);
        spare = take_spare(pool);
        mutex_unlock(&pool->lock);
        if (spare) {
            peer_stop(spare, STOP_MS);
            forget(pool);
        }
    } while (spare);
}

void pool_free(struct pool *pool)
{
    if (!pool) {
        return;
    }
    while (!list_empty(&pool->idle)) {
        struct idle *idle = container_of(pool->idle.next, struct idle, link);

        list_remove(&idle->link);
        peer_stop(free_idle(idle), CLOSE_MS);
    }
    cond_done(&pool->change);
    mutex_done(&pool->lock);
    free(pool);
}

/* The one that was used last: it is the likeliest to live. */
static struct peer *take_idle(struct pool *pool, const struct program *program)
{
    struct peer *peer = NULL;

    mutex_lock(&pool->lock);
    for (struct list *node = pool->idle.prev; node != &pool->idle && !peer;
         node = node->prev) {
        struct idle *idle = container_of(node, struct idle, link);

        if (program_same(&idle->program, program)) {
            peer = take_out(pool, idle);
            break;
        }
    }
    mutex_unlock(&pool->lock);
    return peer;
}

static int take_place(struct pool *pool, const struct limits *limits,
                      struct err *err)
{
    static const char late[] = "too many processes are busy";
    int rc = limits_check(limits, late, err);

    mutex_lock(&pool->lock);
    while (pool->n >= MOST && rc == 0) {
        (void)cond_wait(&pool->change, &pool->lock, clock_deadline(TURN_MS));
        rc = limits_check(limits, late, err);
    }
    if (rc == 0) {
        pool->n++;
    }
    mutex_unlock(&pool->lock);
    return rc;
}

int pool_take(struct pool *pool, const struct program *program,
              const struct limits *limits, struct peer **out, struct err *err)
{
    struct peer *peer = take_idle(pool, program);
    int rc;

    while (peer && !peer_fit(peer)) {
        peer_kill(peer);
        forget(pool);
        peer = take_idle(pool, program);
    }
    if (peer) {
        *out = peer;
        return 0;
    }
    end_spare(pool);
    rc = take_place(pool, limits, err);
    if (rc == 0) {
        rc = peer_start(program, out, err);
        if (rc < 0) {
            forget(pool);
        }
    }
    return rc;
}

static int keep(struct pool *pool, const struct program *program,
                struct peer *peer)
{
    struct idle *idle = calloc(1, sizeof(*idle));

    if (!idle || program_copy(&idle->program, program) < 0) {
        free(idle);
        return -ENOMEM;
    }
    idle->peer = peer;
    peer->idle_ms = clock_ms();
    mutex_lock(&pool->lock);
    list_add(&pool->idle, &idle->link);
    pool->n_idle++;
    cond_broadcast(&pool->change);
    mutex_unlock(&pool->lock);
    return 0;
}

void pool_give(struct pool *pool, const struct program *program,
               struct peer *peer)
{
    if (peer->broken || keep(pool, program, peer) < 0) {
        peer_kill(peer);
        forget(pool);
    }
    end_spare(pool);
}
