/*
 * A cancel token, and the limits that every wait on an engine takes.
 *
 * Whoever wants the work to end fires the token, from any thread, once or
 * often. Whoever works looks at it, or polls its fd, which is readable from
 * then on for ever.
 */
#ifndef SESSIONFS_CANCEL_H
#define SESSIONFS_CANCEL_H

#include "core/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct cancel {
    atomic_bool fired;
    int fd; /* An eventfd, owned; -1: nobody fires it. */
};

/* A token that nobody fires; it needs no end. */
#define CANCEL_NEVER                                                           \
    {                                                                          \
        .fired = false, .fd = -1                                               \
    }

/* Limits of one provider call. */
struct limits {
    int64_t deadline_ms;   /* A clock_ms() value or DEADLINE_NONE. */
    struct cancel *cancel; /* Borrowed; never NULL. */
};

/**
 * Makes a token that has not fired.
 *
 * @param cancel written
 * @param err    filled on failure
 * @return 0, -EMFILE and the like
 */
MUST_USE int cancel_init(struct cancel *cancel, struct err *err);

/**
 * Ends a token; nobody may use it any more.
 *
 * @param cancel a token that was initialised
 */
void cancel_done(struct cancel *cancel);

/**
 * Asks for the end of the work. Any thread.
 *
 * @param cancel the token
 */
void cancel_fire(struct cancel *cancel);

/**
 * @param cancel the token
 * @return whether it has fired
 */
bool cancel_fired(const struct cancel *cancel);

/**
 * Waits until fd has events, the token fires, or the deadline passes.
 *
 * @param limits the token and the deadline
 * @param fd     polled too, or -1 for a plain pause
 * @param events of poll(2)
 * @param err    filled on failure
 * @return 0 when fd is ready, -ETIMEDOUT, or -ECANCELED
 */
MUST_USE int limits_wait(const struct limits *limits, int fd, short events,
                         struct err *err);

/**
 * Looks whether to go on with work that is done step by step. Does not wait.
 *
 * @param limits the token and the deadline
 * @param late   says what took too long
 * @param err    filled on failure
 * @return 0, -ETIMEDOUT, or -ECANCELED
 */
MUST_USE int limits_check(const struct limits *limits, const char *late,
                          struct err *err);

#endif
