/* The socket between a relay and the daemon of a state directory. */
#ifndef SESSIONFS_SERVE_LINK_H
#define SESSIONFS_SERVE_LINK_H

#include "core/err.h"

#include <stdbool.h>
#include <sys/types.h>

/*
 * A byte that no line has. The daemon sends it first, so that a relay knows
 * that it is served and may send; and last, when it has ended the connection
 * in good order.
 */
#define SERVE_MARK '\0'

/**
 * Listens in a state directory, in place of a dead daemon's socket.
 *
 * @param state absolute; locked by us
 * @param out   the socket, not blocking, on success
 * @param err   filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int serve_link_listen(const char *state, int *out, struct err *err);

/** @param state whose socket nobody shall find any more */
void serve_link_remove(const char *state);

/**
 * Connects to the daemon of a state directory.
 *
 * @param state absolute
 * @param out   the socket, on success
 * @param err   filled on failure
 * @return 0; -ENOENT or -ECONNREFUSED when there is none; or another negative
 *         errno
 */
MUST_USE int serve_link_connect(const char *state, int *out, struct err *err);

/**
 * Says who is at the other end, and whether that is ourselves or root.
 *
 * @param fd  a connected socket
 * @param uid of the other end, written
 * @param pid of the other end, written
 * @return whether it is to be trusted
 */
bool serve_link_trusted(int fd, uid_t *uid, pid_t *pid);

#endif
