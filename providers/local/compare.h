/* Two files compared, either of which may be hostile and may change. */
#ifndef SESSIONFS_LOCAL_COMPARE_H
#define SESSIONFS_LOCAL_COMPARE_H

#include "core/cancel.h"

#include <stdbool.h>
#include <sys/stat.h>

/* A file that was found. */
struct compare_file {
    int fd; /* O_PATH; -1: there is none. */
    struct stat attr;
};

/**
 * Finds a file.
 *
 * @param top  a directory, or -1: it has nothing
 * @param path relative to it
 * @param out  on success, also where there is none; its fd is the caller's
 * @param err  filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int compare_find(int top, const char *path, struct compare_file *out,
                          struct err *err);

/**
 * Compares two files that are no directories: type, permissions, content or
 * target. Owners and times do not count.
 *
 * @param store  of the layers that files may lie in in parts
 * @param a      one
 * @param b      the other
 * @param limits deadline and token
 * @param out    whether they are the same, on success
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int compare_same(int store, const struct compare_file *a,
                          const struct compare_file *b,
                          const struct limits *limits, bool *out,
                          struct err *err);

#endif
