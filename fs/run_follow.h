/* Following a command by its files, for `sessionfs run`. */
#ifndef SESSIONFS_RUN_FOLLOW_H
#define SESSIONFS_RUN_FOLLOW_H

#include "core/err.h"

#include <stdbool.h>

/* How it went. */
struct run_followed {
    int taken;   /* The first signal that came to us; 0: none. */
    int signal;  /* The last that the command was sent; 0: none. */
    bool unread; /* An output was closed by its reader. */
};

/**
 * Copies a command's output as it comes until the command has ended. Signals
 * go to the command, a second one as KILL. An output that cannot be written
 * any more ends it: TERM, and KILL after two seconds.
 *
 * @param dir     its directory, execs/N
 * @param signals a signalfd of what goes to the command
 * @param quiet   copy nothing, wait only
 * @param out     written on success
 * @param err     filled on failure; the command may run on, unless an output
 *                failed
 * @return 0 or a negative errno
 */
MUST_USE int run_follow(int dir, int signals, bool quiet,
                        struct run_followed *out, struct err *err);

#endif
