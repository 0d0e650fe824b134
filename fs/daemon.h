/*
 * Going into the background. The program forks before it starts threads; the
 * first process waits until the second says that the mount is ready, and its
 * exit status tells. Until then both share standard error, so messages of a
 * failing start reach the terminal.
 */
#ifndef SESSIONFS_DAEMON_H
#define SESSIONFS_DAEMON_H

#include "core/err.h"

#include <stdbool.h>

struct options;

struct daemon {
    int report_fd; /* Of the second process: says that it is ready; or -1. */
};

/**
 * Forks where asked for. In the first process it does not return, but exits
 * with 0 once the second is ready, and with 1 if that ends before.
 *
 * @param daemon     written
 * @param foreground do not fork
 * @param err        filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int daemon_start(struct daemon *daemon, bool foreground,
                          struct err *err);

/**
 * Lets the first process end with success; where there is one, standard input
 * and output leave the terminal, and standard error where it is not the log.
 * The log goes to its place: until here it is standard error. Tells systemd,
 * where that started us.
 *
 * @param daemon  as started
 * @param options where the log goes; ready_fd gets a byte and is closed
 */
void daemon_ready(struct daemon *daemon, const struct options *options);

/** Tells systemd that the end has begun. */
void daemon_ending(void);

#endif
