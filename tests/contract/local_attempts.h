/*
 * Things that a program in a sandbox must not be able to do. Each is tried
 * outside too: an attempt that fails there proves nothing inside.
 */
#ifndef SESSIONFS_TESTS_LOCAL_ATTEMPTS_H
#define SESSIONFS_TESTS_LOCAL_ATTEMPTS_H

#include <errno.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

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

/* Each ends with a row without name. */
extern const struct attempt attempts_reach[];
extern const struct attempt attempts_kernel[];

/* Both, and NULL. */
extern const struct attempt *const attempt_tables[];

/* What became of a call that gives an fd. */
static inline int of_fd(long fd)
{
    if (fd < 0) {
        return -1;
    }
    (void)close((int)fd);
    return 0;
}

#define CALLS(name, ...)                                                       \
    static int name(const struct attempt_ctx *ctx)                             \
    {                                                                          \
        (void)ctx;                                                             \
        return syscall(__VA_ARGS__) < 0 ? -1 : 0;                              \
    }
#define CALLS_FD(name, ...)                                                    \
    static int name(const struct attempt_ctx *ctx)                             \
    {                                                                          \
        (void)ctx;                                                             \
        return of_fd(syscall(__VA_ARGS__));                                    \
    }

/*
 * With arguments that cannot work: what is asked is only whether the right to
 * it is there.
 */
#define MAY_CALL(name, ...)                                                    \
    static int name(const struct attempt_ctx *ctx)                             \
    {                                                                          \
        (void)ctx;                                                             \
        return syscall(__VA_ARGS__) < 0 && (errno == EPERM || errno == ENOSYS) \
                   ? -1                                                        \
                   : 0;                                                        \
    }

#endif
