/*
 * Times of files, where they are no finer than the kernel's ticks, as before
 * Linux 6.13 on any filesystem: two changes within one tick look like one.
 * Any thread.
 */
#ifndef SESSIONFS_LOCAL_TICK_H
#define SESSIONFS_LOCAL_TICK_H

#include <stdbool.h>

/** @param dir on the filesystem that is meant @return whether a change may
 *  leave the times that the one before it gave, though those were looked at */
bool tick_is_coarse(int dir);

/** Waits until what changes from now on gets later times than what has changed
 *  before: for a tick at most, some milliseconds. */
void tick_pass(void);

#endif
