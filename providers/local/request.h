/* A command as init reads it: `struct wire_request` in a memfd. */
#ifndef SESSIONFS_LOCAL_REQUEST_H
#define SESSIONFS_LOCAL_REQUEST_H

#include "core/provider.h"

/**
 * Writes a command down, with the environment that it gets.
 *
 * @param command borrowed
 * @param out     an fd, on success
 * @param err     filled on failure
 * @return 0, -EINVAL for a command without a program, -E2BIG, or another
 *         negative errno
 */
MUST_USE int request_write(const struct command *command, int *out,
                           struct err *err);

/**
 * Makes a sealed file of a command's input, to be its stdin.
 *
 * @param command borrowed
 * @param out     an fd at its start, or -1 where there is no input
 * @param err     filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int request_input(const struct command *command, int *out,
                           struct err *err);

#endif
