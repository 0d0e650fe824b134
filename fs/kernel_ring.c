/* An io_uring, by its system calls. See kernel_ring.h. */
#include "fs/kernel_ring.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    ENTRY_SIZE = 128, /* IORING_SETUP_SQE128 */
};

#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif

static void *at(const struct kernel_ring *ring, unsigned offset)
{
    return (char *)ring->queues + offset;
}

static void *map(int fd, size_t size, off_t what)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_POPULATE, fd, what);

    return memory == MAP_FAILED ? NULL : memory;
}

/* Kernels that have this transport map both queues at once. */
static int map_all(struct kernel_ring *ring, const struct io_uring_params *p)
{
    size_t sq = p->sq_off.array + p->sq_entries * sizeof(unsigned);
    size_t cq = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
    unsigned *array;

    ring->queues_size = sq > cq ? sq : cq;
    ring->entries_size = (size_t)p->sq_entries * ENTRY_SIZE;
    ring->queues = map(ring->fd, ring->queues_size, IORING_OFF_SQ_RING);
    ring->entries = map(ring->fd, ring->entries_size, IORING_OFF_SQES);
    if (!ring->queues || !ring->entries) {
        return -ENOMEM;
    }
    ring->sq_head = at(ring, p->sq_off.head);
    ring->sq_tail = at(ring, p->sq_off.tail);
    ring->cq_head = at(ring, p->cq_off.head);
    ring->cq_tail = at(ring, p->cq_off.tail);
    ring->sq_mask = p->sq_entries - 1;
    ring->cq_mask = p->cq_entries - 1;
    ring->done = at(ring, p->cq_off.cqes);
    array = at(ring, p->sq_off.array);
    for (unsigned i = 0; i < p->sq_entries; i++) {
        array[i] = i;
    }
    return 0;
}

int kernel_ring_open(struct kernel_ring *ring, unsigned size)
{
    struct io_uring_params params = {.flags = IORING_SETUP_SQE128 |
                                              IORING_SETUP_SINGLE_ISSUER |
                                              IORING_SETUP_DEFER_TASKRUN};
    int rc;

    memset(ring, 0, sizeof(*ring));
    ring->fd = (int)syscall(SYS_io_uring_setup, size, &params);
    if (ring->fd < 0) {
        return -errno;
    }
    rc = params.features & IORING_FEAT_SINGLE_MMAP ? map_all(ring, &params)
                                                   : -EOPNOTSUPP;
    if (rc < 0) {
        kernel_ring_close(ring);
    }
    return rc;
}

void kernel_ring_close(struct kernel_ring *ring)
{
    if (ring->queues) {
        (void)munmap(ring->queues, ring->queues_size);
    }
    if (ring->entries) {
        (void)munmap(ring->entries, ring->entries_size);
    }
    if (ring->fd >= 0) {
        (void)close(ring->fd);
    }
    memset(ring, 0, sizeof(*ring));
    ring->fd = -1;
}

struct io_uring_sqe *kernel_ring_add(struct kernel_ring *ring)
{
    unsigned head = __atomic_load_n(ring->sq_head, __ATOMIC_ACQUIRE);
    char *entry;

    if (ring->tail - head > ring->sq_mask) {
        (void)!kernel_ring_enter(ring, false);
        head = __atomic_load_n(ring->sq_head, __ATOMIC_ACQUIRE);
    }
    if (ring->tail - head > ring->sq_mask) {
        return NULL;
    }
    entry = (char *)ring->entries +
            (size_t)(ring->tail & ring->sq_mask) * ENTRY_SIZE;
    memset(entry, 0, ENTRY_SIZE);
    ring->tail++;
    ring->waiting++;
    return (void *)entry;
}

int kernel_ring_enter(struct kernel_ring *ring, bool wait)
{
    long n;

    __atomic_store_n(ring->sq_tail, ring->tail, __ATOMIC_RELEASE);
    n = syscall(SYS_io_uring_enter, ring->fd, ring->waiting, wait ? 1 : 0,
                IORING_ENTER_GETEVENTS, NULL, 0);
    if (n < 0) {
        return errno == EINTR ? 0 : -errno;
    }
    ring->waiting -= (unsigned)n;
    return 0;
}

bool kernel_ring_next(struct kernel_ring *ring, uint64_t *data, int *res)
{
    unsigned head = *ring->cq_head;
    const struct io_uring_cqe *cqe = &ring->done[head & ring->cq_mask];

    if (head == __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE)) {
        return false;
    }
    *data = cqe->user_data;
    *res = cqe->res;
    __atomic_store_n(ring->cq_head, head + 1, __ATOMIC_RELEASE);
    return true;
}
