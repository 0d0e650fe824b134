/*
 * What the compilers know beyond C: attributes, and the annotations of clang's
 * thread-safety analysis (empty elsewhere).
 */
#ifndef SESSIONFS_COMPILER_H
#define SESSIONFS_COMPILER_H

#include <stddef.h>

#define MUST_USE        __attribute__((warn_unused_result))
#define PRINTF(fmt, va) __attribute__((format(printf, fmt, va)))
#define NORETURN        __attribute__((noreturn))
#define UNUSED          __attribute__((unused))

#if defined(__clang__)
#define TSA(x) __attribute__((x))
#else
#define TSA(x)
#endif

#define CAPABILITY(name) TSA(capability(name))
#define GUARDED_BY(lock) TSA(guarded_by(lock)) /* For file-scope data. */
#define REQUIRES(...)    TSA(requires_capability(__VA_ARGS__))
#define EXCLUDES(...)    TSA(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...)     TSA(acquire_capability(__VA_ARGS__))
#define RELEASE(...)     TSA(release_capability(__VA_ARGS__))
#define NO_TSA           TSA(no_thread_safety_analysis)

/* Marks a guarded member; C cannot name its lock, so a comment does. */
#define GUARDED

/* The object that holds a member, given a pointer to the member. */
#define container_of(ptr, type, member)                                        \
    ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#endif
