/*
 * What signals do to the mount: SIGTERM, SIGINT and SIGHUP ask for its end.
 * For the main thread of the program, which serves the kernel.
 */
#ifndef SESSIONFS_SIGNALS_H
#define SESSIONFS_SIGNALS_H

#include "core/err.h"

struct fuse_session;

/**
 * From here on such a signal ends fuse_session_loop_mt(), also one that comes
 * before it was called. SIGPIPE is ignored.
 *
 * @param fuse borrowed until signals_hold()
 * @param err  filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int signals_begin(struct fuse_session *fuse, struct err *err);

/**
 * The end has begun: who asks for it twice, or no longer reads what is logged,
 * does not cut it off. SIGINT and SIGQUIT do, for who cannot wait.
 */
void signals_hold(void);

#endif
