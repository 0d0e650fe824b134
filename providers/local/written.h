/*
 * Which layers were on the disk when the machine went down.
 *
 * What nobody has waited for is in the kernel's memory for a while, and a power
 * cut takes it: a file then has its name and its size on the disk, or a part of
 * that, and not its content. A link in the store says up to which layer all was
 * written, and at which start of the machine. It is moved on some time after a
 * layer was made, and what is later is trusted only while the machine runs, or
 * where the daemon came to its end before the machine did. Thread-safe.
 */
#ifndef SESSIONFS_LOCAL_WRITTEN_H
#define SESSIONFS_LOCAL_WRITTEN_H

#include "core/err.h"

#include <stdbool.h>
#include <stdint.h>

struct written;

/** @param arg of written_open() @return a layer up to which all are complete */
typedef uint64_t written_done_fn(void *arg);

/**
 * Looks at what is noted.
 *
 * @param dir  of the store, borrowed
 * @param done asked by a thread of ours
 * @param arg  given to it
 * @param out  on success
 * @param err  filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int written_open(int dir, written_done_fn *done, void *arg,
                          struct written **out, struct err *err);
/** @param written freed; all was as it should be; NULL is fine */
void written_close(struct written *written);

/** @param written what is noted @param layer that was found at the start
 *  @return whether it may have lost what is in it */
bool written_lost(const struct written *written, uint64_t layer);

/**
 * From now on what there is is trusted: what was lost is gone.
 *
 * @param written what is noted
 * @param synced  whether no layer is made known before it is on the disk
 * @param err     filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int written_begin(struct written *written, bool synced,
                           struct err *err);

/** @param written where not all are synced: a layer was made: it is to be on
 * the disk before long */
void written_later(struct written *written);

/** @param ms how long that is, in place of what is usual; for tests */
void written_wait(int ms);

#endif
