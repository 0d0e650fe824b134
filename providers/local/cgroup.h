/*
 * Control groups by directory fds: those of version 2 to start processes in, to
 * freeze and to kill, which needs no controller; those of version 1 for
 * controllers that the machine has bound to them (control.h). Groups are only
 * ever made below our own. Any thread; nothing waits.
 */
#ifndef SESSIONFS_LOCAL_CGROUP_H
#define SESSIONFS_LOCAL_CGROUP_H

#include "core/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Names of the groups that keepers make, below the one they run in. */
#define CGROUP_PREFIX "sessionfs-keeper."

/* The daemon's own, below the one it was started in, where it needs one. */
#define CGROUP_ASIDE "sessionfs-daemon"

/**
 * Opens the group that this process is in, or was started in, through a mount
 * of its own, or where that is not allowed through the machine's.
 *
 * @param mount the mount: one of our own ends when this fd is closed; groups
 *              that were opened below it stay usable
 * @param self  the group
 * @param err   filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int cgroup_open_self(int *mount, int *self, struct err *err);

/**
 * Makes a group and opens it.
 *
 * @param parent a group
 * @param name   of the new one
 * @param owner  who may start processes in it besides root
 * @param out    the group, on success
 * @param err    filled on failure
 * @return 0, -EEXIST, or another negative errno
 */
MUST_USE int cgroup_make(int parent, const char *name, uint32_t owner, int *out,
                         struct err *err);

/**
 * Writes a file of a group.
 *
 * @param group a group, of any version
 * @param name  of the file
 * @param text  all of it
 * @param err   filled on failure
 * @return 0 or a negative errno
 */
int cgroup_write(int group, const char *name, const char *text,
                 struct err *err);

/** @param group a group, of any version @param name of a file @param word
 *  that may be in it @return whether it is */
bool cgroup_has_word(int group, const char *name, const char *word);

/** @param group a group, of any version @param name of a file of lines
 *  "KEY NUMBER" @param key of one @return its number; 0 where it is not there
 */
int64_t cgroup_count(int group, const char *name, const char *key);

/**
 * Kills every process in a group and below, frozen ones too. Returns before
 * they are dead.
 *
 * @param group a group
 * @param err   filled on failure
 * @return 0 or a negative errno
 */
int cgroup_kill(int group, struct err *err);

/**
 * Asks for a freeze or a thaw. Returns before it is done.
 *
 * @param group  a group
 * @param freeze or thaw
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
int cgroup_freeze(int group, bool freeze, struct err *err);

/**
 * Reads a line of `cgroup.events`.
 *
 * @param group a group
 * @param key   "populated" or "frozen"
 * @return whether it is 1; false also where it cannot be read, since the
 *         group is gone then
 */
bool cgroup_is(int group, const char *key);

/**
 * Removes a group with those below it, as far as they hold no process.
 *
 * @param parent a group
 * @param name   of the one to remove
 * @return 0, also when there is none; -EBUSY while a process is in it
 */
int cgroup_remove(int parent, const char *name);

/**
 * Tells the groups in a group that are named as keepers name theirs.
 *
 * @param parent a group, of any version
 * @param fn     called with parent, a name and arg; may remove that group
 * @param arg    given to fn
 */
void cgroup_each_keeper(int parent,
                        void (*fn)(int parent, const char *name, int arg),
                        int arg);

#endif
