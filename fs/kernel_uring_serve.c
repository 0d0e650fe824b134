/* Requests and answers in the entries of rings. See kernel_uring.h. */
#include "fs/kernel_uring_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    PAGE = 4096, /* Room before a payload for what comes before it. */
    WANDERS = 64 /* Requests for which one counts as wandering. */
};

/* Marks numbers of requests that are addresses of entries. */
static const uint64_t mark = (uint64_t)1 << 63;

static _Thread_local struct uring_thread *self;

/* ---- Entries ---- */

static void free_entry(struct entry *entry, size_t payload)
{
    if (entry && entry->head) {
        (void)munmap(entry->head, 2 * (size_t)PAGE + payload);
    }
    free(entry);
}

void kernel_uring_free_entries(struct uring_thread *thread)
{
    list_each_safe(node, &thread->entries)
    {
        free_entry(container_of(node, struct entry, link),
                   thread->uring->payload);
    }
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

void kernel_uring_wake(struct uring_thread *thread)
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

/* Counts a request. Tells whether one who sends them has come from another CPU
 * lately: who stays needs no help, and that costs something. */
static bool has_wandered(struct uring_thread *thread, const struct wire_in *in)
{
    struct kernel_uring *uring = thread->uring;
    const uint64_t now = (uint64_t)in->pid << 32 | (uint32_t)thread->cpu;
    uint64_t before = atomic_exchange(&uring->last, now);
    uint64_t n = atomic_fetch_add(&uring->requests, 1);

    if (before != now && before >> 32 == in->pid) {
        atomic_store(&uring->wandered, n);
    }
    return n - atomic_load(&uring->wandered) < WANDERS;
}

/* Handles a request. One that is not answered yet keeps the entry, and another
 * takes its place. */
static int serve(struct uring_thread *thread, struct entry *entry)
{
    struct kernel_uring *uring = thread->uring;
    struct fuse_buf buf;
    struct wire_in in;
    bool wanders;

    memcpy(&in, entry->head->in_out, sizeof(in));
    if (!is_sound(uring, entry, &in)) {
        return -EPROTO;
    }
    wanders = has_wandered(thread, &in);
    kernel_rest_note(uring->rest);
    entry->commit = entry->head->state.commit;
    entry->answered = false;
    atomic_store(&entry->unique, in.unique);
    buf = lay_out(entry);
    thread->current = entry;
    fuse_session_process_buf(uring->fuse, &buf);
    thread->current = NULL;
    thread->awaited |= entry->answered && wanders && !wire_is_release(&in);
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

/* Gives the answers to the kernel, and waits for what comes. */
static int enter(struct uring_thread *thread)
{
    struct kernel_rest *rest = thread->uring->rest;
    bool last = thread->awaited && kernel_rest_sink(rest);
    int rc = kernel_ring_enter(&thread->ring, true);

    if (last) {
        kernel_rest_rise();
    }
    thread->awaited = false;
    return rc;
}

static int run(struct uring_thread *thread)
{
    struct kernel_uring *uring = thread->uring;
    uint64_t data;
    int rc = 0;
    int res;

    while (rc == 0 && !atomic_load(&uring->ended)) {
        rc = enter(thread);
        while (rc == 0 && !atomic_load(&uring->ended) &&
               kernel_ring_next(&thread->ring, &data, &res)) {
            rc = handle(thread, data, res);
        }
    }
    return rc;
}

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

int kernel_uring_serve(struct uring_thread *thread)
{
    int rc;

    self = thread;
    rc = register_queues(thread);
    return rc < 0 ? rc : run(thread);
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
    kernel_uring_wake(thread);
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
