/* Letting who is answered run at once. See kernel_rest.h. */
#include "fs/kernel_rest.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/log.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    LINE = 128,
    TICK_MS = 2,
    OFTEN = 16,       /* Requests until the watch is woken. */
    TICKS_QUIET = 10, /* Without any, until nobody is put last any more, */
    TICKS_MOST = 20,  /* and until it sleeps again. */
};

static _Thread_local struct rest_thread *self;

void kernel_rest_init(struct kernel_rest *rest)
{
    memset(rest, 0, sizeof(*rest));
    rest->load_fd = -1;
    mutex_init(&rest->lock);
    cond_init(&rest->change);
}

static int set_policy(pid_t tid, int policy)
{
    const struct sched_param none = {0};

    return sched_setscheduler(tid, policy, &none) < 0 ? -errno : 0;
}

/* In a thread of its own, since there may be no way back. */
static void *try_policy(void *arg)
{
    int *rc = arg;

    *rc = set_policy(0, SCHED_IDLE);
    *rc = *rc < 0 ? *rc : set_policy(0, SCHED_OTHER);
    return NULL;
}

static bool may_sink(void)
{
    pthread_t thread;
    int rc = -EPERM;

    if (sched_getscheduler(0) == SCHED_OTHER &&
        pthread_create(&thread, NULL, try_policy, &rc) == 0) {
        (void)pthread_join(thread, NULL);
    }
    return rc == 0;
}

unsigned kernel_rest_running(const char *load)
{
    unsigned running;

    return sscanf(load, "%*s %*s %*s %u/", &running) == 1 ? running : 0;
}

/* The watch itself runs, too. */
static bool is_quiet(const struct kernel_rest *rest)
{
    char line[LINE];
    ssize_t n = pread(rest->load_fd, line, sizeof(line) - 1, 0);
    unsigned running;

    line[n > 0 ? n : 0] = '\0';
    running = kernel_rest_running(line);
    return running && running <= rest->cpus + 1;
}

/* Gives those their priority back that have waited since the last tick. */
static void raise_waiting(struct kernel_rest *rest)
{
    unsigned n = atomic_load(&rest->n_threads);

    for (unsigned i = 0; i < n && i < REST_THREADS; i++) {
        struct rest_thread *thread = &rest->threads[i];
        unsigned turns = atomic_load(&thread->turns);

        if (turns % 2 && turns == thread->seen &&
            atomic_compare_exchange_strong(&thread->turns, &turns, turns + 1)) {
            (void)set_policy(atomic_load(&thread->tid), SCHED_OTHER);
        }
        thread->seen = turns;
    }
}

/* Watches while there are requests; and then until nobody is last, who may have
 * become so just now. */
static void watch_locked(struct kernel_rest *rest) REQUIRES(rest->lock)
{
    unsigned before = atomic_load(&rest->requests);
    unsigned ticks = 0;

    while (!rest->ended && ticks < TICKS_MOST) {
        unsigned now = atomic_load(&rest->requests);

        ticks = now == before ? ticks + 1 : 0;
        before = now;
        atomic_store(&rest->quiet, ticks < TICKS_QUIET && is_quiet(rest));
        raise_waiting(rest);
        (void)cond_wait(&rest->change, &rest->lock, clock_deadline(TICK_MS));
    }
    atomic_store(&rest->quiet, false);
    atomic_store(&rest->awake, false);
}

static void *watch_main(void *arg)
{
    struct kernel_rest *rest = arg;

    mutex_lock(&rest->lock);
    while (!rest->ended) {
        if (atomic_load(&rest->awake)) {
            watch_locked(rest);
        } else {
            (void)cond_wait(&rest->change, &rest->lock, DEADLINE_NONE);
        }
    }
    mutex_unlock(&rest->lock);
    return NULL;
}

bool kernel_rest_begin(struct kernel_rest *rest)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    sigset_t all, old;

    rest->load_fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    if (cpus < 2 || rest->load_fd < 0 || !may_sink()) {
        return false;
    }
    rest->cpus = (unsigned)cpus;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &old);
    rest->watched = pthread_create(&rest->watch, NULL, watch_main, rest) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rest->watched;
}

void kernel_rest_done(struct kernel_rest *rest)
{
    mutex_lock(&rest->lock);
    rest->ended = true;
    cond_broadcast(&rest->change);
    mutex_unlock(&rest->lock);
    if (rest->watched) {
        (void)pthread_join(rest->watch, NULL);
    }
    cleanup_fd(&rest->load_fd);
    cond_done(&rest->change);
    mutex_done(&rest->lock);
}

void kernel_rest_note(struct kernel_rest *rest)
{
    unsigned n = atomic_fetch_add(&rest->requests, 1);

    if (rest->watched && n % OFTEN == OFTEN - 1 && !atomic_load(&rest->awake)) {
        mutex_lock(&rest->lock);
        atomic_store(&rest->awake, true);
        cond_broadcast(&rest->change);
        mutex_unlock(&rest->lock);
    }
}

static struct rest_thread *find_self(struct kernel_rest *rest)
{
    unsigned i;

    if (!self && atomic_load(&rest->n_threads) < REST_THREADS) {
        i = atomic_fetch_add(&rest->n_threads, 1);
        if (i < REST_THREADS) {
            self = &rest->threads[i];
            atomic_store(&self->tid, gettid());
        }
    }
    return self;
}

/* Unless the watch was first. */
static void end_turn(struct rest_thread *thread)
{
    unsigned mine = thread->mine;

    (void)atomic_compare_exchange_strong(&thread->turns, &mine, mine + 1);
}

bool kernel_rest_sink(struct kernel_rest *rest)
{
    struct rest_thread *thread;

    if (!atomic_load(&rest->quiet)) {
        return false;
    }
    thread = find_self(rest);
    if (!thread) {
        return false;
    }
    /* From here on it is watched. */
    thread->mine = atomic_fetch_add(&thread->turns, 1) + 1;
    if (set_policy(0, SCHED_IDLE) < 0) {
        end_turn(thread);
        return false;
    }
    if (atomic_load(&thread->turns) != thread->mine) {
        /* The watch was first, and does not look again. */
        (void)set_policy(0, SCHED_OTHER);
        return false;
    }
    return true;
}

void kernel_rest_rise(void)
{
    int rc = set_policy(0, SCHED_OTHER);

    end_turn(self);
    if (rc < 0) {
        log_error("a thread stays behind all others: %s", strerror(-rc));
    }
}
