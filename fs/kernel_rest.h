/*
 * Letting who is answered run at once, and where it was.
 *
 * While a thread answers on the CPU of who waits for that, the scheduler finds
 * the CPU busy. It wakes that one on another, where one is idle, which takes
 * longer than most requests; its next request comes from there, and so on. So,
 * while there is a CPU for each thread that runs, the least of all priorities
 * is taken for an answer: by that the CPU counts as idle. It is given back when
 * the thread comes to run again, or by a watch that finds it waiting for that.
 * Private to fs/kernel*.c.
 */
#ifndef SESSIONFS_KERNEL_REST_H
#define SESSIONFS_KERNEL_REST_H

#include "core/mutex.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum {
    REST_THREADS = 256 /* Further ones stay as they are. */
};

/* A thread that answers. */
struct rest_thread {
    atomic_int tid;
    atomic_uint turns; /* Odd while it has the least priority, */
    unsigned mine;     /* as it has set them itself, */
    unsigned seen;     /* and as the watch has last seen them. */
};

struct kernel_rest {
    pthread_t watch;
    bool watched; /* It runs. */
    int load_fd;  /* Tells how many threads run. */
    unsigned cpus;
    atomic_bool quiet; /* There is a CPU for each of them. */
    atomic_uint requests;
    atomic_uint n_threads;
    struct rest_thread threads[REST_THREADS];

    struct mutex lock;
    struct cond change;
    atomic_bool awake;  /* Written by lock. */
    bool ended GUARDED; /* by lock */
};

/** @param rest written; does nothing before kernel_rest_begin() */
void kernel_rest_init(struct kernel_rest *rest);
/** @param rest begun or not */
void kernel_rest_done(struct kernel_rest *rest);

/**
 * Begins to watch, where there are several CPUs and threads may take the least
 * priority and give it back.
 *
 * @param rest initialised
 * @return whether it does
 */
bool kernel_rest_begin(struct kernel_rest *rest);

/** @param rest notes that a request was taken */
void kernel_rest_note(struct kernel_rest *rest);

/**
 * Puts the calling thread last. It belongs to this one alone.
 *
 * @param rest the state
 * @return whether it is; kernel_rest_rise() must follow then
 */
bool kernel_rest_sink(struct kernel_rest *rest);
/** Gives the calling thread its priority back. */
void kernel_rest_rise(void);

/** @param load text of /proc/loadavg @return threads that run; 0: it does not
 *  say */
unsigned kernel_rest_running(const char *load);

#endif
