/*
 * What a workload has shut to its owner, who we are where we are not root: a
 * look at what a session writes opens it, and shuts it again. Each is noted in
 * the session's directory before it is opened, so that a start after a crash
 * shuts it.
 */
#ifndef SESSIONFS_LOCAL_SHUT_H
#define SESSIONFS_LOCAL_SHUT_H

#include "core/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct scan_node;

struct shut_one {
    char *path;
    mode_t mode; /* That it had. */
};

/* Shut ones that are open. */
struct shut {
    int dir;   /* Of the session; borrowed, as */
    int upper; /* the directory that it writes. */
    int note;  /* Of what is open; -1: nothing is. */
    bool used; /* Something was open. */
    struct shut_one *all;
    size_t count;
    size_t room;
};

/** @param shut nothing is open @param dir of the session @param upper that it
 *  writes; both borrowed until shut_end() */
void shut_init(struct shut *shut, int dir, int upper);

/**
 * Opens a file or directory to its owner, where it is shut and its owner is not
 * root.
 *
 * @param shut what is open
 * @param node of `upper`, as seen before
 * @return 0 or a negative errno
 */
MUST_USE int shut_open(struct shut *shut, struct scan_node *node);

/**
 * Shuts all again.
 *
 * @param shut  nothing is open afterwards
 * @param top   of `upper`: nodes get the times of change that they have then;
 *              NULL: there is none
 * @param layer where they have been copied as they were while open: are shut
 *              too; -1: nowhere
 * @param err   filled on failure
 * @return 0 or a negative errno: they are shut then at the next start
 */
MUST_USE int shut_end(struct shut *shut, struct scan_node *top, int layer,
                      struct err *err);

/** Shuts what a crash has left open. @param dir of the session @param upper
 *  that it writes @param err filled on failure @return 0 or a negative errno */
MUST_USE int shut_undo(int dir, int upper, struct err *err);

#endif
