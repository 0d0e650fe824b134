/*
 * Controllers of cgroups: what holds a sandbox's memory, processes and
 * processor time. On a machine that has bound them to version 1 a sandbox
 * has a group of its own in each of their hierarchies, beside the one of
 * version 2 that it is frozen and killed by. For the keeper.
 */
#ifndef SESSIONFS_LOCAL_CONTROL_H
#define SESSIONFS_LOCAL_CONTROL_H

#include "core/err.h"
#include "providers/local/group.h"
#include "providers/local/wire.h"

#include <stdbool.h>
#include <sys/types.h>

struct control {
    const struct group *group; /* Of version 2; those of 1 have its name. */
    struct {
        enum wire_means means;
        int self;   /* Version 1: the group that we are in, */
        int parent; /* and the keeper's in it; -1: none. */
    } of[WIRE_CONTROLS];
};

/* What a sandbox's controllers are: groups of version 1, else -1. */
struct control_groups {
    int of[WIRE_CONTROLS];
};

/**
 * Finds the controllers that this machine lets us use, and makes the keeper's
 * groups of version 1.
 *
 * @param group  the keeper's; borrowed until control_close()
 * @param daemon whom it serves
 * @param out    written
 * @param why    why some are missing; empty where all are there
 */
void control_open(const struct group *group, pid_t daemon, struct control *out,
                  struct err *why);

/**
 * Lets go of the controllers of version 2, and so of what they enforce: no
 * process can be started in a group that gives them to others, and so not the
 * next daemon where it is to be in that of the last.
 *
 * @param control as opened, or all zero
 */
void control_rest(const struct control *control);

/**
 * Takes them again. Limits of sandboxes have to be set anew.
 *
 * @param control as opened: what cannot be had again is none any more
 * @param daemon  that the keeper serves now
 * @param why     filled where one cannot
 */
void control_resume(struct control *control, pid_t daemon, struct err *why);

/** Removes the groups of version 1. @param control no process is in them
 *  @return whether all are gone */
bool control_close(struct control *control);

/** @param control as opened @return whether a sandbox's first process has to
 *  be made by one that is in its groups already: to move one takes long */
bool control_needs_cradle(const struct control *control);

/**
 * Makes a sandbox's groups of version 1.
 *
 * @param control as opened
 * @param name    never used before
 * @param out     written on success; control_groups_done() closes them
 * @param err     filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int control_make(const struct control *control, const char *name,
                          struct control_groups *out, struct err *err);

/** @param groups closed; they stay */
void control_groups_done(struct control_groups *groups);

/**
 * Moves the calling process into groups; its children are born there. Takes
 * some ten milliseconds.
 *
 * @param groups as made
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int control_enter(const struct control_groups *groups,
                           struct err *err);

/**
 * Sets a sandbox's limits.
 *
 * @param control as opened
 * @param groups  those of version 1
 * @param group   that of version 2
 * @param quota   the limits
 * @param err     filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int control_limit(const struct control *control,
                           const struct control_groups *groups, int group,
                           const struct wire_quota *quota, struct err *err);

#endif
