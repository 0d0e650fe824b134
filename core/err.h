/*
 * An error: a number for the kernel and words for people.
 *
 * A function that can fail returns 0 or a negative errno and takes a
 * `struct err *` last, which it fills exactly when it fails. The object lives
 * with the caller, needs no memory and nothing to free. Never NULL.
 */
#ifndef SESSIONFS_ERR_H
#define SESSIONFS_ERR_H

#include "core/compiler.h"

#include <stdbool.h>

enum {
    ERR_MSG_SIZE = 512
};

struct err {
    int code;               /* Positive errno value; 0: nothing failed. */
    char msg[ERR_MSG_SIZE]; /* "outer context: inner cause", UTF-8. */
    bool quotes;            /* msg has a command or its output: never log it. */
    bool notable;           /* To be told, though code is an everyday answer. */
};

#define ERR_INIT                                                               \
    {                                                                          \
        0, "", false, false                                                    \
    }

/**
 * Fills an error.
 *
 * @param err  written
 * @param code a positive errno value
 * @param fmt  printf format of the words, without a final newline
 * @return -code, so that a caller can `return err_set(…)`
 */
int err_set(struct err *err, int code, const char *fmt, ...) PRINTF(3, 4);

/** @param err filled: there is no memory @return -ENOMEM */
int err_no_memory(struct err *err);

/**
 * Like err_set() with the code and text of errno appended.
 *
 * @param err written
 * @param fmt printf format of the context
 * @return -errno as it was at the call
 */
int err_errno(struct err *err, const char *fmt, ...) PRINTF(2, 3);

/**
 * Puts context before the words of a failed inner call: "context: inner".
 *
 * @param err filled by the inner call
 * @param rc  what the inner call returned, negative
 * @param fmt printf format of the context
 * @return rc
 */
int err_wrap(struct err *err, int rc, const char *fmt, ...) PRINTF(3, 4);

/**
 * Makes an error empty again.
 *
 * @param err written
 */
void err_clear(struct err *err);

#endif
