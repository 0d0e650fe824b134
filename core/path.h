/*
 * Paths of this machine: which lies in which, where one leads, and a step that
 * follows no link.
 */
#ifndef SESSIONFS_PATH_H
#define SESSIONFS_PATH_H

#include "core/err.h"

#include <stdbool.h>

/**
 * Opens what lies below a directory, following no link and leaving neither
 * the directory nor its mount.
 *
 * @param dir_fd a directory; O_PATH will do
 * @param path   relative, shorter than PATH_MAX
 * @param flags  of open(2); O_NOFOLLOW and O_CLOEXEC are added
 * @return an fd or a negative errno
 */
MUST_USE int path_step(int dir_fd, const char *path, int flags);

/**
 * Compares names alone.
 *
 * @param path absolute, without links, `.` and `..`
 * @param dir  the same
 * @return whether path is dir, or lies in it
 */
bool path_begins_with(const char *path, const char *dir);

/**
 * Compares also what is there: a bind mount shows the same directory under
 * another name.
 *
 * @param path absolute, without links, `.` and `..`; may not be there
 * @param dir  the same
 * @return whether path is dir, or lies in it
 */
bool path_lies_in(const char *path, const char *dir);

/**
 * Follows all links. What is not there may be: the rest is taken as it is.
 * Nothing in one directory is touched: it may be a mount that the caller
 * itself serves, and who would wait for itself.
 *
 * @param path  absolute
 * @param avoid absolute, without links, or NULL
 * @param out   the caller's to free, on success: without links, `.` and `..`
 * @param err   filled on failure
 * @return 0, -EINVAL for one that leads into `avoid`, -ELOOP, -ENAMETOOLONG,
 *         or what the file system said
 */
MUST_USE int path_resolve(const char *path, const char *avoid, char **out,
                          struct err *err);

/**
 * Finds a directory below another one, whatever links say.
 *
 * @param dir  absolute, without links
 * @param name relative, or the whole path
 * @param out  absolute and without links, the caller's to free, on success
 * @param err  filled on failure
 * @return 0, -EPERM for what is not below, or what the file system said
 */
MUST_USE int path_beneath(const char *dir, const char *name, char **out,
                          struct err *err);

/** @param fd of a directory @return whether it is on one of the file systems
 *  that hold no files of anybody, because the kernel makes up what is there */
bool path_is_kernels(int fd);

#endif
