/*
 * Things that a program in a sandbox must not be able to do. Each is tried
 * outside too: an attempt that fails there proves nothing inside.
 */
#ifndef SESSIONFS_TESTS_LOCAL_ATTEMPTS_H
#define SESSIONFS_TESTS_LOCAL_ATTEMPTS_H

#include <stddef.h>

/* What an attempt may need to know of the world outside. */
struct attempt_ctx {
    int pid;              /* Of a process outside. */
    int port;             /* Of a TCP listener outside, on 127.0.0.1. */
    const char *abstract; /* Name of an abstract socket outside. */
    const char *file;     /* Path of a file outside. */
};

enum attempt_control {
    CONTROL_ALLOWED, /* Root outside can do it, or the test is wrong. */
    CONTROL_MAY,     /* Some machines do not let even root. */
};

struct attempt {
    const char *name;
    enum attempt_control control;
    /* 0 when it was allowed, else -1 with errno. */
    int (*try)(const struct attempt_ctx *ctx);
};

/* Ends with a row without name. */
extern const struct attempt attempts[];

#endif
