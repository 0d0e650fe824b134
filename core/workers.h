/*
 * Threads made on demand for work that may block: provider calls and remote
 * file operations of one session. An idle thread ends by itself, so a session
 * at rest has none; work beyond `most` threads queues in arrival order.
 */
#ifndef SESSIONFS_WORKERS_H
#define SESSIONFS_WORKERS_H

#include "core/compiler.h"

struct workers;

/** Runs in a worker thread. @param arg what the caller gave */
typedef void work_fn(void *arg);

/**
 * @param most the most threads at once, at least 1
 * @return an object without threads, or NULL without memory
 */
struct workers *workers_new(unsigned most);

/**
 * Waits until all queued work has run, then frees. The caller has made sure
 * that the work ends, by its cancel token.
 *
 * @param workers the object or NULL; not from one of its own threads
 */
void workers_free(struct workers *workers);

/**
 * Queues work. Any thread.
 *
 * @param workers the object
 * @param fn      called once
 * @param arg     given to it
 * @return 0, -ENOMEM, or -EAGAIN when there is no thread and none can be made
 */
MUST_USE int workers_run(struct workers *workers, work_fn *fn, void *arg);

#endif
