/*
 * Files of ours that are half made at the engine: new content lies beside a
 * file, under a name of ours, until it takes the file's place. The name is
 * noted on this machine's disk before; what a daemon that was killed has left
 * there is removed by the next.
 */
#ifndef SESSIONFS_REMOTE_HALVES_H
#define SESSIONFS_REMOTE_HALVES_H

#include "core/workspace_remote.h"

struct remote_half {
    char name[32]; /* In the file's directory. */
    bool noted;
};

/** @param r the tree @param path of the file that is put @param out its name of
 *  ours, which is noted where this machine's disk takes it */
void remote_half_begin(struct remote *r, const char *path,
                       struct remote_half *out);
/** @param r the tree @param half of remote_half_begin() @param rc whether the
 *  file was put: only where the engine's answer is certain nothing is left */
void remote_half_end(struct remote *r, const struct remote_half *half, int rc);

/** Does the next, once a tree, as soon as somebody has the time.
 *  @param r a new tree */
void remote_halves_start(struct remote *r);
/** Removes what daemons that are gone have left, unless it was done; what
 *  the engine does not remove now, the next daemon tries. @param r the tree
 *  @param limits deadline and token */
void remote_halves_clean(struct remote *r, const struct limits *limits);

#endif
