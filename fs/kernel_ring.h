/*
 * An io_uring of one thread, with entries of 128 bytes: as much of it as a
 * transport of requests needs. All functions are for the thread that opened it.
 */
#ifndef SESSIONFS_KERNEL_RING_H
#define SESSIONFS_KERNEL_RING_H

#include "core/compiler.h"

#include <linux/io_uring.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kernel_ring {
    int fd; /* -1: closed. */
    void *queues;
    size_t queues_size;
    void *entries;
    size_t entries_size;
    unsigned *sq_head, *sq_tail, *cq_head, *cq_tail;
    unsigned sq_mask, cq_mask;
    unsigned tail;    /* Of the submissions, */
    unsigned waiting; /* so many of which the kernel has not seen. */
    struct io_uring_cqe *done;
};

/**
 * Opens a ring.
 *
 * @param ring written
 * @param size submissions that it holds, a power of two
 * @return 0 or a negative errno
 */
MUST_USE int kernel_ring_open(struct kernel_ring *ring, unsigned size);
/** @param ring closed; what is under way in it is cancelled */
void kernel_ring_close(struct kernel_ring *ring);

/**
 * @param ring a ring
 * @return a submission to fill, all zero, NULL when it cannot be had
 */
struct io_uring_sqe *kernel_ring_add(struct kernel_ring *ring);

/**
 * Submits what was added.
 *
 * @param ring a ring
 * @param wait until something is done
 * @return 0 or a negative errno
 */
MUST_USE int kernel_ring_enter(struct kernel_ring *ring, bool wait);

/**
 * Takes what is done.
 *
 * @param ring a ring
 * @param data the submission's user_data
 * @param res  its result
 * @return whether there was something
 */
bool kernel_ring_next(struct kernel_ring *ring, uint64_t *data, int *res);

#endif
