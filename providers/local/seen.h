/*
 * What was seen at the last checkpoint, in a file of the session's directory,
 * for the next daemon. It is only for speed, and true while the machine runs:
 * what is not there, or damaged, or from before a start of the machine, is
 * taken as never seen.
 */
#ifndef SESSIONFS_LOCAL_SEEN_H
#define SESSIONFS_LOCAL_SEEN_H

#include "providers/local/snapshots_priv.h"

/** Writes it, or leaves none. @param dir of the session @param state of it */
void seen_write(int dir, const struct snapshot_state *state);

/** @param dir of a session of which nothing is to be known any more */
void seen_drop(int dir);

/** @param dir of the session @return the state, to snapshots_free_state(), but
 *  that it has no reference to its layer; or NULL */
struct snapshot_state *seen_read(int dir);

#endif
