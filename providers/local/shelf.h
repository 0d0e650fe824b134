/*
 * What the keeper holds for the next daemon: fds of the sandboxes and commands
 * that one had, with what it said of them. For the keeper.
 */
#ifndef SESSIONFS_LOCAL_SHELF_H
#define SESSIONFS_LOCAL_SHELF_H

#include "core/list.h"
#include "providers/local/wire.h"

#include <stdbool.h>

struct shelf {
    struct list items;
};

/** @param shelf will be empty */
void shelf_init(struct shelf *shelf);

/** @param shelf will be empty */
void shelf_done(struct shelf *shelf);

/**
 * Keeps a box or a command, in place of what was kept of it; without memory
 * it is not kept.
 *
 * @param shelf where
 * @param wire  WIRE_HOLD; copied
 * @param fds   that came with it; taken: all are -1 then
 */
void shelf_hold(struct shelf *shelf, const struct wire *wire,
                int fds[WIRE_FD_MAX]);

/** @param shelf where @param held of a box: is so from now */
void shelf_note(struct shelf *shelf, const struct wire_held *held);

/** @param shelf where @param held a command, or a box with its commands; is
 *  not kept any more */
void shelf_drop(struct shelf *shelf, const struct wire_held *held);

/** @param shelf where @return whether a box in it lives */
bool shelf_lives(const struct shelf *shelf);

/** @param arg of shelf_each_box() @param quota of the box @param fds of it, by
 *  enum wire_box_fd; any may be -1 */
typedef void shelf_box_fn(const void *arg, const struct wire_quota *quota,
                          const int fds[WIRE_FD_MAX]);

/** @param shelf where @param fn called with each box @param arg given to fn */
void shelf_each_box(const struct shelf *shelf, shelf_box_fn *fn,
                    const void *arg);

/**
 * Tells all that is held.
 *
 * @param shelf where
 * @param sock  to the daemon
 * @param err   filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int shelf_tell(const struct shelf *shelf, int sock, struct err *err);

/** In a clone of the keeper: closes what is held, which is not for it. */
void shelf_leave(void);

#endif
