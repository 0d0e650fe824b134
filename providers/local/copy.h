/*
 * Copies of files with all that belongs to them: content, holes, owner, mode,
 * times, attributes. The kernel's notes of an overlay are left out. What is
 * copied is a workload's: nothing follows a link, and no device or FIFO is
 * opened.
 */
#ifndef SESSIONFS_LOCAL_COPY_H
#define SESSIONFS_LOCAL_COPY_H

#include "core/compiler.h"
#include "core/err.h"

#include <stdint.h>

/* Writes the content of a regular file. @return 0 or a negative errno */
typedef int copy_content_fn(void *arg, int from, int to);

/* How the content of regular files is written. */
struct copy_how {
    copy_content_fn *content;
    void *arg;
};

/**
 * Copies what is no directory.
 *
 * @param src   a directory
 * @param name  in it, and in dst
 * @param dst   a directory that has no such name
 * @param how   borrowed; NULL: by copy_content()
 * @param bytes the room that it takes is added
 * @param err   filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int copy_file(int src, const char *name, int dst,
                       const struct copy_how *how, uint64_t *bytes,
                       struct err *err);

/** Has a file share all that another one has. @param from the other @param to
 *  the one, empty @return 0, or a negative errno where that cannot be */
MUST_USE int copy_clone(int from, int to);

/** Copies content. @param from a regular file @param to an empty one @return 0
 *  or a negative errno */
MUST_USE int copy_content(int from, int to);

/**
 * Gives a directory what belongs to another one but its content.
 *
 * @param src the other, open for reading
 * @param dst the one
 * @param err filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int copy_dir_attr(int src, int dst, struct err *err);

/**
 * Opens a name for reading. One that is shut to its owner, who we are, is
 * opened all the same.
 *
 * @param dir   a directory
 * @param name  in it
 * @param flags O_DIRECTORY or 0
 * @return an fd or a negative errno
 */
MUST_USE int copy_open(int dir, const char *name, int flags);

/** @param fd of a directory: of the one of that name in it, on success
 *  @param name in it @return 0 or a negative errno */
MUST_USE int copy_step_in(int *fd, const char *name);

/** @param fd of a directory: of the one that it is in, on success @return 0
 *  or a negative errno */
MUST_USE int copy_step_out(int *fd);

#endif
