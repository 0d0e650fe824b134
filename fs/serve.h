/*
 * `sessionfs serve`: sandboxes by the protocol sandbox.v1, JSON lines over
 * standard input and output.
 *
 * The program that a client starts is a relay. Behind it stands the daemon
 * that holds the state directory: one that has mounted it, or else one that
 * the first relay starts, which ends when it has nothing left to do. So a
 * session that one process opened is known to all others, and outlives each.
 */
#ifndef SESSIONFS_SERVE_H
#define SESSIONFS_SERVE_H

#include "core/err.h"

#include <stdint.h>

struct options;
struct provider_ops;
struct registry;
struct server;

/**
 * The whole program.
 *
 * @param options   as parsed; with `foreground` it is the daemon itself
 * @param providers the table, which ends with NULL
 * @param err       filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int serve_main(const struct options *options,
                        const struct provider_ops *const *providers,
                        struct err *err);

/**
 * Serves relays, in threads of its own.
 *
 * @param registry borrowed until server_close()
 * @param state    its directory, which is locked by us: the socket lies there
 * @param out      the server, on success
 * @param err      filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int server_open(struct registry *registry, const char *state,
                         struct server **out, struct err *err);

/** @param server a server @return since when it has no connection,
 *  clock_ms(); DEADLINE_NONE: it has one */
int64_t server_idle_since(struct server *server);

/**
 * Takes no more relays and lets those that there are go; what they wait for
 * goes on.
 *
 * @param server freed; NULL is fine
 */
void server_close(struct server *server);

#endif
