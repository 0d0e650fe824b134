/*
 * The cradle: where limits are of cgroups of version 1, a process that is in
 * a sandbox's groups before the sandbox begins, and in which its first
 * process is born. To move one takes the kernel some milliseconds, in which
 * nobody's groups can be changed, but those that are moved right after it are
 * moved at once: so several spares are made at a time, and wait for sandboxes.
 * For the keeper.
 */
#ifndef SESSIONFS_LOCAL_CRADLE_H
#define SESSIONFS_LOCAL_CRADLE_H

#include "providers/local/control.h"
#include "providers/local/keeper.h"

/**
 * Serves one request in a cradle's process.
 *
 * @param arg     the maker's
 * @param request borrowed
 * @param fds     that came with it
 * @param groups  the cradle's own, or NULL with `err`
 * @param name    of the groups
 * @param err     why there are no groups
 */
typedef void cradle_serve_fn(const void *arg, const struct wire *request,
                             int *fds, const struct control_groups *groups,
                             const char *name, const struct err *err);

enum {
    CRADLE_SPARES = 8
};

struct cradle {
    const struct control *control;
    cradle_serve_fn *serve;
    const void *arg;
    struct proc_child spares[CRADLE_SPARES];
    unsigned count; /* Of spares. */
    uint64_t made;  /* Names their groups. */
};

/** Makes the spares; where that fails the next request makes one.
 *  @param cradle filled but for the spares, which there are not */
void cradle_prepare(struct cradle *cradle);

/**
 * Hands a request to a spare, and makes more where few are left.
 *
 * @param cradle  as prepared
 * @param request borrowed
 * @param fds     stay the caller's
 * @param count   how many
 * @param err     filled on failure
 * @return 0: it will be answered; or a negative errno
 */
MUST_USE int cradle_hand_over(struct cradle *cradle, const struct wire *request,
                              const int *fds, size_t count, struct err *err);

/** @param cradle its spares end */
void cradle_close(struct cradle *cradle);

#endif
