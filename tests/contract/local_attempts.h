/*
 * Things that a program in a sandbox must not be able to do. Each is tried
 * outside too, as root and as a normal user: an attempt that fails there has
 * no power, and proves nothing inside. Outside as root they are alone in their
 * mount and uts namespaces, so that none does harm.
 */
#ifndef SESSIONFS_TESTS_LOCAL_ATTEMPTS_H
#define SESSIONFS_TESTS_LOCAL_ATTEMPTS_H

#include <errno.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Set in the environment outside; nobody inside may find it. */
#define ATTEMPT_SECRET "SESSIONFS_TEST_SECRET"

struct attempt;

/* What an attempt may need to know of the world outside. */
struct attempt_ctx {
    int pid;              /* Of a process outside. */
    int port;             /* Of a TCP listener outside, on 127.0.0.1. */
    int key;              /* Of System V objects outside. */
    const char *abstract; /* Name of an abstract socket outside. */
    const char *file;     /* Path of a file outside, and with .sock of a
                             socket. */
    const struct attempt *row;
};

enum attempt_control {
    CONTROL_ALLOWED, /* Root outside can do it, or the test is wrong. */
    CONTROL_MAY,     /* Some machines do not let even root. */
};

/* 0 when it was allowed, else -1 with errno. */
typedef int attempt_fn(const struct attempt_ctx *ctx);

struct attempt {
    const char *name;
    enum attempt_control control;
    attempt_fn *try;
    const char *text; /* What is tried, for functions that serve many rows. */
    long number;
};

/* Each ends with a row without name. */
extern const struct attempt attempts_reach[];
extern const struct attempt attempts_kernel[];
extern const struct attempt attempts_files[];
extern const struct attempt attempts_processes[];
extern const struct attempt attempts_sockets[];

/* All of them, and NULL. */
extern const struct attempt *const attempt_tables[];

/* What a sandbox lets programs do, though it looks alike. */
extern const struct attempt attempts_by_design[];

/* Enough to hold any result. */
enum {
    ATTEMPT_RESULT = 24
};

/**
 * Tries one, in a process of its own.
 *
 * @param attempt to try
 * @param ctx     borrowed; its row is set for the attempt
 * @param enter   called in that process before, or NULL
 * @param out     "allowed", the name of an errno, or "killed"
 * @return whether it was allowed
 */
int attempt_try(const struct attempt *attempt, const struct attempt_ctx *ctx,
                void (*enter)(void), char out[ATTEMPT_RESULT]);

/* What became of a call that gives an fd. */
static inline int of_fd(long fd)
{
    if (fd < 0) {
        return -1;
    }
    (void)close((int)fd);
    return 0;
}

/* Closes an fd and leaves errno as it is. */
static inline int after_close(int fd, int rc)
{
    int saved = errno;

    (void)close(fd);
    errno = saved;
    return rc;
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

/* Functions for many rows: text is a path, number the flags of open(2). */
attempt_fn attempt_open, attempt_read, attempt_list;

#endif
