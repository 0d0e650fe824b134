/* The continuation of work that may end later, on another thread. */
#ifndef SESSIONFS_DONE_H
#define SESSIONFS_DONE_H

#include "core/err.h"

/**
 * Called exactly once when the work has ended, with no lock held, from any
 * thread; also from inside the call that started it.
 *
 * @param arg what the starter gave
 * @param rc  0 or a negative errno
 * @param err the words, borrowed for the call; empty when rc is 0
 */
typedef void done_fn(void *arg, int rc, const struct err *err);

#endif
