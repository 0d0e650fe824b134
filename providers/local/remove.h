/* Removes a directory tree that a hostile program may have made. */
#ifndef SESSIONFS_LOCAL_REMOVE_H
#define SESSIONFS_LOCAL_REMOVE_H

#include "core/cancel.h"

/**
 * Removes a directory with everything in it. Follows no link, whatever the
 * depth, and holds two fds at most. What a deadline leaves is removed by the
 * next call.
 *
 * @param parent the directory that holds it
 * @param name   of the directory; none of that name is success
 * @param limits deadline and token
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int remove_tree(int parent, const char *name,
                         const struct limits *limits, struct err *err);

#endif
