/* Finding a session's directory for `sessionfs run`. */
#ifndef SESSIONFS_RUN_SESSION_H
#define SESSIONFS_RUN_SESSION_H

#include "core/err.h"

/**
 * Opens a session's directory.
 *
 * @param name  its path, or its id
 * @param mount where an id is looked up; NULL: a name that is no path is tried
 *              as a path first, then in $SESSIONFS_MOUNT, then in the only
 *              mount of this user
 * @param out   an O_PATH descriptor, on success
 * @param err   filled on failure
 * @return 0, -ENOENT, -ENOTUNIQ for more than one mount, or another errno
 */
MUST_USE int run_session_open(const char *name, const char *mount, int *out,
                              struct err *err);

#endif
