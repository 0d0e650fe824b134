/*
 * The keeper's own control group of version 2: what it is locked by while its
 * keeper lives, and cleared of when that has died. For the keeper.
 */
#ifndef SESSIONFS_LOCAL_GROUP_H
#define SESSIONFS_LOCAL_GROUP_H

#include "core/err.h"

#include <stdbool.h>

struct group {
    int self;      /* The one that the daemon was started in. */
    int own;       /* Ours below it, locked while we live; -1: there is none. */
    char name[64]; /* Of ours. */
};

/**
 * Makes the group, and ends what keepers that died have left beside it.
 *
 * @param out its fds are -1; group_close() ends it on success
 * @param err filled on failure: why there is none
 * @return 0 or a negative errno
 */
MUST_USE int group_open(struct group *out, struct err *err);

/** Kills every process in the group and removes it. @param group as opened
 *  @return whether it is gone */
bool group_close(struct group *group);

#endif
