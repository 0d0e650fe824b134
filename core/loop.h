/*
 * One epoll loop in one thread: fds of running commands, timers, wake-ups.
 *
 * Sources and timers belong to the loop's thread: they are made, changed and
 * freed only there, that is, in their own callbacks or in a function that
 * loop_post() brought there. So a callback never meets a freed source.
 * Callbacks must not wait.
 */
#ifndef SESSIONFS_LOOP_H
#define SESSIONFS_LOOP_H

#include "core/err.h"

#include <stdint.h>

struct loop;
struct loop_source;
struct loop_timer;

/** Runs in the loop's thread. @param arg what the maker gave */
typedef void loop_fn(void *arg);

/**
 * Runs in the loop's thread when the fd is ready.
 *
 * @param arg    what the maker gave
 * @param events of epoll(7)
 */
typedef void loop_fd_fn(void *arg, uint32_t events);

/**
 * Starts a loop and its thread.
 *
 * @param out the loop, on success
 * @param err filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int loop_new(struct loop **out, struct err *err);

/**
 * Runs what was posted, stops the thread, frees the loop.
 *
 * @param loop a loop without sources and armed timers, or NULL
 */
void loop_free(struct loop *loop);

/**
 * Runs a function in the loop's thread, after those posted before it.
 * Any thread. Cannot fail: without memory the program aborts.
 *
 * @param loop the loop
 * @param fn   called once
 * @param arg  given to it
 */
void loop_post(struct loop *loop, loop_fn *fn, void *arg);

/**
 * Watches an fd.
 *
 * @param loop   the loop; the caller is in its thread
 * @param fd     borrowed; open until the source is freed
 * @param events of epoll(7), level-triggered
 * @param fn     called when it is ready
 * @param arg    given to fn
 * @param out    the source, on success
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int loop_source_new(struct loop *loop, int fd, uint32_t events,
                             loop_fd_fn *fn, void *arg,
                             struct loop_source **out, struct err *err);

/** @param source no longer watched; NULL is fine; in the loop's thread */
void loop_source_free(struct loop_source *source);

/**
 * Makes a timer that is not armed.
 *
 * @param loop the loop; any thread
 * @param fn   called once for each time it is armed
 * @param arg  given to fn
 * @return the timer, or NULL without memory
 */
struct loop_timer *loop_timer_new(struct loop *loop, loop_fn *fn, void *arg);

/**
 * Arms a timer, or moves it when it is armed. In the loop's thread.
 *
 * @param timer       the timer
 * @param deadline_ms clock_ms() value at which it fires; DEADLINE_NONE disarms
 */
void loop_timer_set(struct loop_timer *timer, int64_t deadline_ms);

/** @param timer disarmed and freed; NULL is fine; in the loop's thread */
void loop_timer_free(struct loop_timer *timer);

#endif
