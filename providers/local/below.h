/* Files below a directory that a hostile program may have filled. */
#ifndef SESSIONFS_LOCAL_BELOW_H
#define SESSIONFS_LOCAL_BELOW_H

#include "core/compiler.h"

/**
 * Opens what a path of any length leads to, following no link and leaving
 * neither the directory nor its mount.
 *
 * @param top   a directory
 * @param path  relative to it; "" is top itself
 * @param flags of open(2)
 * @return an fd or a negative errno
 */
MUST_USE int below_open(int top, const char *path, int flags);

#endif
