/* Requests over io_uring. See kernel_uring.h. */
#include "fs/kernel_uring.h"

#include "core/cleanup.h"
#include "core/list.h"
#include "core/log.h"
#include "core/mutex.h"
#include "fs/kernel_ring.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    PAGE = 4096, /* Room before a payload for what comes before it. */
    RING_SIZE = 64,
    FEW_CPUS = 4,
    THREADS_FEW = 4, /* A CPU's, where there are few of them, */
    THREADS_MANY = 2,
};

/* Marks numbers of requests that are addresses of entries. */
static const uint64_t mark = (uint64_t)1 << 63;

struct entry {
    struct list link;      /* Of its thread's. */
    struct list done_link; /* In its thread's answered, by its lock. */
    struct uring_thread *owner;
    uint16_t queue;
    bool answered; /* By its thread, while that handles it. */
    uint64_t commit;
    atomic_ullong unique; /* Of the request that it holds; 0: none. */
    struct wire_uring_head *head;
    char *payload;
    struct iovec iov[2];
};

struct uring_thread {
    struct kernel_uring *uring;
    pthread_t thread;
    bool runs;
    int cpu;                 /* -1: of all queues whose CPU is off. */
    struct kernel_ring ring; /* The thread's own. */
    struct entry *current;
    uint64_t ticks; /* Read from wake. */
    int wake;
    struct mutex lock;
    struct list entries GUARDED;  /* by lock */
    struct list answered GUARDED; /* by lock: by other threads. */
};

struct kernel_uring {
    struct fuse_session *fuse;
    int fd;
    size_t payload;
    unsigned queues;
    cpu_set_t on;
    struct uring_thread *threads;
    unsigned n_threads;
    atomic_ullong requests;

    struct mutex lock;
    struct cond change;
    unsigned ready GUARDED; /* by lock: threads that have a ring, */
    int rc GUARDED;         /* by lock: or why one has none. */
    bool begun GUARDED;     /* by lock */
    atomic_bool ended;
};

static _Thread_local struct uring_thread *self;

/* ---- Entries ---- */

static void free_entry(struct entry *entry, size_t payload)
{
    if (entry && entry->head) {
        (void)munmap(entry->head, 2 * (size_t)PAGE + payload);
    }
    free(entry);
}

/* Its memory is touched as far as it is used. */
static struct entry *new_entry(struct uring_thread *thread, uint16_t queue)
{
    size_t payload = thread->uring->payload;
    struct entry *entry = calloc(1, sizeof(*entry));
    char *memory =
        mmap(NULL, 2 * (size_t)PAGE + payload, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (!entry || memory == MAP_FAILED) {
        free(entry);
        return NULL;
    }
    list_init(&entry->link);
    list_init(&entry->done_link);
    entry->owner = thread;
    entry->queue = queue;
    entry->head = (void *)memory;
    entry->payload = memory + 2 * (size_t)PAGE;
    entry->iov[0] = (struct iovec){entry->head, sizeof(*entry->head)};
    entry->iov[1] = (struct iovec){entry->payload, payload};
    mutex_lock(&thread->lock);
    list_add(&thread->entries, &entry->link);
    mutex_unlock(&thread->lock);
    return entry;
}

/* Gives an entry to the kernel, with the answer that is in it, if any. */
static int submit(struct entry *entry, uint32_t what)
{
    struct uring_thread *thread = entry->owner;
    struct io_uring_sqe *sqe = kernel_ring_add(&thread->ring);
    struct wire_uring_command command = {.queue = entry->queue};

    if (!sqe) {
        return -EBUSY;
    }
    sqe->opcode = IORING_OP_URING_CMD;
    sqe->fd = thread->uring->fd;
    sqe->off = what; /* cmd_op */
    sqe->user_data = (uint64_t)(uintptr_t)entry;
    if (what == WIRE_URING_REGISTER) {
        sqe->addr = (uint64_t)(uintptr_t)entry->iov;
        sqe->len = 2;
    } else {
        command.commit = entry->commit;
    }
    memcpy((char *)sqe + WIRE_URING_COMMAND_AT, &command, sizeof(command));
    return 0;
}

static int add_entry(struct uring_thread *thread, uint16_t queue)
{
    struct entry *entry = new_entry(thread, queue);

    return entry ? submit(entry, WIRE_URING_REGISTER) : -ENOMEM;
}

static int await_wake(struct uring_thread *thread)
{
    struct io_uring_sqe *sqe = kernel_ring_add(&thread->ring);

    if (!sqe) {
        return -EBUSY;
    }
    sqe->opcode = IORING_OP_READ;
    sqe->fd = thread->wake;
    sqe->addr = (uint64_t)(uintptr_t)&thread->ticks;
    sqe->len = sizeof(thread->ticks);
    return 0;
}

static void wake(struct uring_thread *thread)
{
    const uint64_t one = 1;

    (void)!write(thread->wake, &one, sizeof(one));
}

/* ---- Requests ---- */

/* Puts what comes before a payload right in front of it, as libfuse reads it
 * from the device. */
static struct fuse_buf lay_out(const struct entry *entry)
{
    struct wire_in in;
    size_t middle;
    char *start;

    memcpy(&in, entry->head->in_out, sizeof(in));
    middle = in.len - sizeof(in) - entry->head->state.payload_size;
    start = entry->payload - middle - sizeof(in);
    in.unique = mark | (uint64_t)(uintptr_t)entry;
    memcpy(start, &in, sizeof(in));
    memcpy(start + sizeof(in), entry->head->op, middle);
    return (struct fuse_buf){.size = in.len, .mem = start};
}

static bool is_sound(const struct kernel_uring *uring,
                     const struct entry *entry, const struct wire_in *in)
{
    uint32_t size = entry->head->state.payload_size;

    return size <= uring->payload && in->len >= sizeof(*in) + size &&
           in->len - sizeof(*in) - size <= sizeof(entry->head->op);
}

/* Handles a request. One that is not answered yet keeps the entry, and another
 * takes its place. */
static int serve(struct uring_thread *thread, struct entry *entry)
{
    struct kernel_uring *uring = thread->uring;
    struct fuse_buf buf;
    struct wire_in in;

    memcpy(&in, entry->head->in_out, sizeof(in));
    if (!is_sound(uring, entry, &in)) {
        return -EPROTO;
    }
    (void)atomic_fetch_add_explicit(&uring->requests, 1, memory_order_relaxed);
    entry->commit = entry->head->state.commit;
    entry->answered = false;
    atomic_store(&entry->unique, in.unique);
    buf = lay_out(entry);
    thread->current = entry;
    fuse_session_process_buf(uring->fuse, &buf);
    thread->current = NULL;
    return entry->answered ? submit(entry, WIRE_URING_COMMIT)
                           : add_entry(thread, entry->queue);
}

/* Commits what other threads have answered. */
static int commit_answered(struct uring_thread *thread)
{
    struct list *node;
    int rc = await_wake(thread);

    do {
        mutex_lock(&thread->lock);
        node = list_pop(&thread->answered);
        mutex_unlock(&thread->lock);
        if (node && rc == 0) {
            rc = submit(container_of(node, struct entry, done_link),
                        WIRE_URING_COMMIT);
        }
    } while (node);
    return rc;
}

static int handle(struct uring_thread *thread, uint64_t data, int res)
{
    struct entry *entry = (struct entry *)(uintptr_t)data;

    if (!entry) {
        return commit_answered(thread);
    }
    if (res == 0) {
        return serve(thread, entry);
    }
    if (res == -EAGAIN || res == -EINTR) {
        return submit(entry, WIRE_URING_REGISTER);
    }
    /* The connection ends: -ENOTCONN. The thread does when it is told. */
    return res == -ENOTCONN || res == -ECANCELED ? 0 : res;
}

static int run(struct uring_thread *thread)
{
    struct kernel_uring *uring = thread->uring;
    uint64_t data;
    int rc = 0;
    int res;

    while (rc == 0 && !atomic_load(&uring->ended)) {
        rc = kernel_ring_enter(&thread->ring, true);
        while (rc == 0 && !atomic_load(&uring->ended) &&
               kernel_ring_next(&thread->ring, &data, &res)) {
            rc = handle(thread, data, res);
        }
    }
    return rc;
}

/* ---- Threads ---- */

static int register_queues(struct uring_thread *thread)
{
    const struct kernel_uring *uring = thread->uring;
    int rc = await_wake(thread);

    if (thread->cpu >= 0) {
        return rc < 0 ? rc : add_entry(thread, (uint16_t)thread->cpu);
    }
    for (unsigned i = 0; i < uring->queues && rc == 0; i++) {
        if (!CPU_ISSET(i, &uring->on)) {
            rc = add_entry(thread, (uint16_t)i);
        }
    }
    return rc;
}

static void bind_to(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    if (cpu >= 0) {
        CPU_SET((unsigned)cpu, &set);
        /* Where we may not run there it is slower, and no more. */
        (void)sched_setaffinity(0, sizeof(set), &set);
    }
}

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

    self = thread;
    bind_to(thread->cpu);
    rc = kernel_ring_open(&thread->ring, RING_SIZE);
    if (may_begin(thread->uring, rc)) {
        rc = register_queues(thread);
        if (rc == 0) {
            rc = run(thread);
        }
        if (rc < 0) {
            log_error("a queue of requests ends: %s", strerror(-rc));
            fuse_session_exit(thread->uring->fuse);
        }
    }
    kernel_ring_close(&thread->ring);
    return NULL;
}

static void end_thread(struct uring_thread *thread)
{
    size_t payload = thread->uring->payload;

    if (thread->runs) {
        wake(thread);
        (void)pthread_join(thread->thread, NULL);
    }
    list_each_safe(node, &thread->entries)
    {
        free_entry(container_of(node, struct entry, link), payload);
    }
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
                     struct kernel_uring **out, struct err *err)
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

/* ---- Answers ---- */

/* Puts an answer into its entry; what is too long is our mistake. */
static size_t fill(const struct entry *entry, uint64_t unique,
                   const struct iovec *iov, int count)
{
    struct wire_out out;
    size_t used = 0;

    memcpy(&out, iov[0].iov_base, sizeof(out));
    for (int i = 1; i < count; i++) {
        size_t room = entry->owner->uring->payload - used;
        size_t size = iov[i].iov_len < room ? iov[i].iov_len : room;

        if (size) {
            memcpy(entry->payload + used, iov[i].iov_base, size);
        }
        used += size;
    }
    out.unique = unique;
    out.len = (uint32_t)(sizeof(out) + used);
    memcpy(entry->head->in_out, &out, sizeof(out));
    entry->head->state.payload_size = (uint32_t)used;
    return out.len;
}

bool kernel_uring_answer(const struct iovec *iov, int count, ssize_t *size)
{
    struct wire_out out;
    struct uring_thread *thread;
    struct entry *entry;
    uint64_t unique;

    memcpy(&out, iov[0].iov_base, sizeof(out));
    if (!(out.unique & mark)) {
        return false;
    }
    entry = (struct entry *)(uintptr_t)(out.unique & ~mark);
    thread = entry->owner;
    unique = atomic_exchange(&entry->unique, 0);
    *size = (ssize_t)fill(entry, unique, iov, count);
    if (thread == self && thread->current == entry) {
        entry->answered = true;
        return true;
    }
    mutex_lock(&thread->lock);
    list_add(&thread->answered, &entry->done_link);
    mutex_unlock(&thread->lock);
    wake(thread);
    return true;
}

static bool translate(struct uring_thread *thread, uint64_t *unique)
{
    bool found = false;

    mutex_lock(&thread->lock);
    list_each(node, &thread->entries)
    {
        const struct entry *entry = container_of(node, struct entry, link);

        if (atomic_load(&entry->unique) == *unique) {
            *unique = mark | (uint64_t)(uintptr_t)entry;
            found = true;
            break;
        }
    }
    mutex_unlock(&thread->lock);
    return found;
}

void kernel_uring_interrupt(struct kernel_uring *uring, uint64_t *unique)
{
    for (unsigned i = 0; uring && i < uring->n_threads; i++) {
        if (translate(&uring->threads[i], unique)) {
            return;
        }
    }
}

uint64_t kernel_uring_count(const struct kernel_uring *uring)
{
    return uring ? atomic_load(&uring->requests) : 0;
}
