/* A child that borrows its parent's memory. See borrow.h. */
#include "providers/local/borrow.h"

#include "core/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>

#ifdef __has_feature
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif

/* A sanitizer takes what the child leaves on the stack for the parent's. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||           \
    HAS_FEATURE(address_sanitizer) || HAS_FEATURE(thread_sanitizer)
#define BORROWS 0
#elif defined(__x86_64__) || defined(__aarch64__)
#define BORROWS 1
#else
#define BORROWS 0
#endif

/*
 * Part of its caller, since the child goes on upon the parent's stack: a return
 * from here would be lost to the parent.
 */
__attribute__((always_inline)) static inline long
clone_here(struct clone_args *args)
{
#if BORROWS && defined(__x86_64__)
    long rc = SYS_clone3;

    __asm__ volatile("syscall"
                     : "+a"(rc)
                     : "D"(args), "S"(sizeof(*args))
                     : "rcx", "r11", "memory");
    return rc;
#elif BORROWS
    register long number __asm__("x8") = SYS_clone3;
    register long rc __asm__("x0") = (long)args;
    register long size __asm__("x1") = sizeof(*args);

    __asm__ volatile("svc 0" : "+r"(rc) : "r"(number), "r"(size) : "memory");
    return rc;
#else
    long rc = syscall(SYS_clone3, args, sizeof(*args));

    return rc < 0 ? -errno : rc;
#endif
}

/* By itself: the child runs below this frame, in which is nothing else. */
__attribute__((noinline)) static long
clone_and_call(struct clone_args *args, borrow_fn *child, void *arg)
{
    long rc = clone_here(args);

    if (rc == 0) {
        child(arg);
    }
    return rc;
}

bool borrow_is_safe(void)
{
    AUTO_FD int fd = open("/proc/sys/fs/suid_dumpable", O_RDONLY | O_CLOEXEC);
    char mode;

    return read(fd, &mode, 1) == 1 && mode != '1';
}

pid_t borrow_clone(struct clone_args *args, borrow_fn *child, void *arg)
{
    long rc;

    if (BORROWS) {
        args->flags |= (__u64)CLONE_VM | CLONE_VFORK;
    }
    rc = clone_and_call(args, child, arg);
    if (rc < 0) {
        errno = (int)-rc;
        return -1;
    }
    return (pid_t)rc;
}
