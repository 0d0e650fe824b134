/* Rings and their threads, one set for each CPU. See kernel_uring.h. */
#include "fs/kernel_uring_priv.h"

#include "core/cleanup.h"
#include "core/cpus.h"
#include "core/log.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    RING_SIZE = 64,
    FEW_CPUS = 4,
    THREADS_FEW = 4, /* A CPU's, where there are few of them, */
    THREADS_MANY = 2,
};

/* ---- Threads ---- */

/* Says that the ring is there, or is not, and waits for the beginning. */
static bool may_begin(struct kernel_uring *uring, int rc)
{
    mutex_lock(&uring->lock);
    uring->ready++;
    uring->rc = uring->rc < 0 ? uring->rc : rc;
    cond_broadcast(&uring->change);
    while (!uring->begun) {
        (void)cond_wait(&uring->change, &uring->lock, INT64_MAX);
    }
    mutex_unlock(&uring->lock);
    return !atomic_load(&uring->ended);
}

static void *thread_main(void *arg)
{
    struct uring_thread *thread = arg;
    int rc;

    if (thread->cpu >= 0) {
        cpus_bind(thread->cpu); /* Elsewhere it is slower, and no more. */
    }
    rc = kernel_ring_open(&thread->ring, RING_SIZE);
    if (may_begin(thread->uring, rc)) {
        rc = kernel_uring_serve(thread);
        if (rc < 0) {
            log_error("a queue of requests ends: %s", strerror(-rc));
            /* The loop waits for the device, which only a signal ends. */
            (void)kill(getpid(), SIGTERM);
        }
    }
    kernel_ring_close(&thread->ring);
    return NULL;
}

static void end_thread(struct uring_thread *thread)
{
    if (thread->runs) {
        kernel_uring_wake(thread);
        (void)pthread_join(thread->thread, NULL);
    }
    kernel_uring_free_entries(thread);
    if (thread->wake >= 0) {
        (void)close(thread->wake);
    }
    mutex_done(&thread->lock);
}

static int start_thread(struct uring_thread *thread)
{
    sigset_t all, old;
    int rc;

    thread->wake = eventfd(0, EFD_CLOEXEC);
    if (thread->wake < 0) {
        return -errno;
    }
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &old);
    rc = pthread_create(&thread->thread, NULL, thread_main, thread);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    thread->runs = rc == 0;
    return -rc;
}

static int add_thread(struct kernel_uring *uring, int cpu)
{
    struct uring_thread *thread = &uring->threads[uring->n_threads];

    uring->n_threads++;
    thread->uring = uring;
    thread->cpu = cpu;
    thread->wake = -1;
    thread->ring.fd = -1;
    mutex_init(&thread->lock);
    list_init(&thread->entries);
    list_init(&thread->answered);
    return start_thread(thread);
}

/* ---- CPUs ---- */

/* Reads a list as "0-3,8". */
static int read_cpus(const char *path, cpu_set_t *out)
{
    FILE *stream = fopen(path, "re");
    AUTO_FREE char *line = NULL;
    size_t size = 0;
    ssize_t n = stream ? getline(&line, &size, stream) : -1;
    char *at = line;

    if (stream) {
        (void)fclose(stream);
    }
    CPU_ZERO(out);
    while (n > 0 && *at >= '0' && *at <= '9') {
        unsigned long first = strtoul(at, &at, 10);
        unsigned long last = *at == '-' ? strtoul(at + 1, &at, 10) : first;

        for (unsigned long i = first; i <= last && i < CPU_SETSIZE; i++) {
            CPU_SET(i, out);
        }
        at += *at == ',';
    }
    return CPU_COUNT(out) ? 0 : -EPROTO;
}

static int make_threads(struct kernel_uring *uring)
{
    unsigned on = (unsigned)CPU_COUNT(&uring->on);
    unsigned each = on <= FEW_CPUS ? THREADS_FEW : THREADS_MANY;
    int rc = 0;

    uring->threads = calloc((size_t)on * each + 1, sizeof(*uring->threads));
    if (!uring->threads) {
        return -ENOMEM;
    }
    for (unsigned i = 0; i < uring->queues && rc == 0; i++) {
        for (unsigned k = 0; CPU_ISSET(i, &uring->on) && k < each && rc == 0;
             k++) {
            rc = add_thread(uring, (int)i);
        }
    }
    if (rc == 0 && on < uring->queues) {
        rc = add_thread(uring, -1);
    }
    return rc;
}

static int await_rings(struct kernel_uring *uring)
{
    int rc;

    mutex_lock(&uring->lock);
    while (uring->ready < uring->n_threads) {
        (void)cond_wait(&uring->change, &uring->lock, INT64_MAX);
    }
    rc = uring->rc;
    mutex_unlock(&uring->lock);
    return rc;
}

int kernel_uring_new(struct fuse_session *fuse, int fd, size_t payload,
                     struct kernel_rest *rest, struct kernel_uring **out,
                     struct err *err)
{
    struct kernel_uring *uring = calloc(1, sizeof(*uring));
    cpu_set_t possible;
    int rc;

    if (!uring) {
        return err_no_memory(err);
    }
    mutex_init(&uring->lock);
    cond_init(&uring->change);
    uring->fuse = fuse;
    uring->fd = fd;
    uring->payload = payload;
    uring->rest = rest;
    rc = read_cpus("/sys/devices/system/cpu/possible", &possible);
    if (rc == 0) {
        rc = read_cpus("/sys/devices/system/cpu/online", &uring->on);
    }
    uring->queues = (unsigned)CPU_COUNT(&possible);
    if (rc == 0) {
        rc = make_threads(uring);
    }
    if (rc == 0) {
        rc = await_rings(uring);
    }
    if (rc < 0) {
        kernel_uring_free(uring);
        return err_set(err, -rc, "no io_uring: %s", strerror(-rc));
    }
    *out = uring;
    return 0;
}

static void let_begin(struct kernel_uring *uring)
{
    mutex_lock(&uring->lock);
    uring->begun = true;
    cond_broadcast(&uring->change);
    mutex_unlock(&uring->lock);
}

void kernel_uring_start(struct kernel_uring *uring)
{
    let_begin(uring);
}

void kernel_uring_free(struct kernel_uring *uring)
{
    if (!uring) {
        return;
    }
    atomic_store(&uring->ended, true);
    let_begin(uring);
    for (unsigned i = 0; i < uring->n_threads; i++) {
        end_thread(&uring->threads[i]);
    }
    free(uring->threads);
    cond_done(&uring->change);
    mutex_done(&uring->lock);
    free(uring);
}
