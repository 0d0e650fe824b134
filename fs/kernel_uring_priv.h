/* Inside of fs/kernel_uring*.c: rings, their threads and their entries. */
#ifndef SESSIONFS_KERNEL_URING_PRIV_H
#define SESSIONFS_KERNEL_URING_PRIV_H

#include "fs/kernel_uring.h"

#include "core/list.h"
#include "core/mutex.h"
#include "fs/kernel_ring.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

/* A place for one request: the kernel's, or ours while it holds one. */
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
    bool awaited;   /* Who waits for an answer may wander off. */
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
    struct kernel_rest *rest;
    unsigned queues;
    cpu_set_t on;
    struct uring_thread *threads;
    unsigned n_threads;
    atomic_ullong requests;
    atomic_ullong last;     /* Who has sent the last one, and where. */
    atomic_ullong wandered; /* After how many one came from another CPU. */

    struct mutex lock;
    struct cond change;
    unsigned ready GUARDED; /* by lock: threads that have a ring, */
    int rc GUARDED;         /* by lock: or why one has none. */
    bool begun GUARDED;     /* by lock */
    atomic_bool ended;
};

/**
 * Registers entries for a thread's queues, and handles requests until the
 * connection or the rings end.
 *
 * @param thread the one that calls; its ring is open
 * @return 0 or a negative errno
 */
MUST_USE int kernel_uring_serve(struct uring_thread *thread);

/** @param thread waits no longer for its ring, but looks what is to be done */
void kernel_uring_wake(struct uring_thread *thread);

/** @param thread has ended; its entries are freed */
void kernel_uring_free_entries(struct uring_thread *thread);

#endif
