/*
 * Requests and answers over io_uring, which spares both sides a good part of
 * the way. Private to fs/kernel*.c.
 *
 * The kernel has a queue for each CPU, and hands a request to an entry of the
 * queue of the CPU that its caller runs on. Entries belong to threads that are
 * bound to that CPU, each with one to wait with: so one that is busy, on a disk
 * say, is not given another request. A request that is parked keeps its entry;
 * its thread makes itself another one.
 */
#ifndef SESSIONFS_KERNEL_URING_H
#define SESSIONFS_KERNEL_URING_H

#include "fs/kernel_rest.h"
#include "fs/kernel_wire.h"

#include "core/err.h"
#include "fs/fs.h"

#include <sys/uio.h>

struct kernel_uring;

/**
 * Makes threads and rings, before the answer to INIT.
 *
 * @param fuse    whose requests
 * @param fd      of the connection
 * @param payload the most bytes of a request or an answer
 * @param rest    lets who is answered go on
 * @param out     on success
 * @param err     filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int kernel_uring_new(struct fuse_session *fuse, int fd, size_t payload,
                              struct kernel_rest *rest,
                              struct kernel_uring **out, struct err *err);

/** @param uring begins, when the kernel has agreed: until all of its queues
 *  have an entry it answers nobody */
void kernel_uring_start(struct kernel_uring *uring);

/**
 * Ends the threads; no answer is written by then.
 *
 * @param uring freed; NULL is fine
 */
void kernel_uring_free(struct kernel_uring *uring);

/**
 * Writes an answer.
 *
 * @param iov   of the answer: head and parts
 * @param count of iov
 * @param size  set to its bytes
 * @return whether it was an answer to a request that came this way
 */
bool kernel_uring_answer(const struct iovec *iov, int count, ssize_t *size);

/**
 * Rewrites the number of the request that an INTERRUPT is about to the one that
 * libfuse knows.
 *
 * @param uring  NULL is fine
 * @param unique changed where the request came this way
 */
void kernel_uring_interrupt(struct kernel_uring *uring, uint64_t *unique);

/** @param uring NULL is fine @return requests that came this way */
uint64_t kernel_uring_count(const struct kernel_uring *uring);

#endif
