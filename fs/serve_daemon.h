/* The daemon of `sessionfs serve`, where none has mounted the state. */
#ifndef SESSIONFS_SERVE_DAEMON_H
#define SESSIONFS_SERVE_DAEMON_H

#include "core/err.h"

struct options;
struct provider_ops;

/**
 * Serves relays until it is told to end; in the background also until it has
 * nothing left to do. Forks there: the first process exits as soon as the
 * second serves, or with a failure.
 *
 * @param options   as parsed
 * @param providers the table, which ends with NULL
 * @param err       filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int serve_daemon(const struct options *options,
                          const struct provider_ops *const *providers,
                          struct err *err);

#endif
