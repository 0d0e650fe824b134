/* The text of `stats`. */
#ifndef SESSIONFS_STATS_H
#define SESSIONFS_STATS_H

#include "core/err.h"

struct buf;

/**
 * Counters of the whole daemon in the text format of Prometheus: those of the
 * registry, of the mount and of the process.
 *
 * @param arg the mount, a struct fs
 * @param out appended to
 * @param err filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int stats_write(void *arg, struct buf *out, struct err *err);

#endif
