/*
 * What could not be sent to the engine, on this machine's disk until it can be:
 * remote_stage_keep() puts it there, remote_send_kept() sends it, in the order
 * in which it came. By any thread; for each tree one at a time sends.
 */
#ifndef SESSIONFS_REMOTE_KEPT_H
#define SESSIONFS_REMOTE_KEPT_H

#include "core/remote_stage.h"

enum {
    REMOTE_KEPT_NAME = 32
};

/* One that is being sent. */
struct remote_kept {
    struct remote_stage stage;
    uint64_t n; /* Its number. */
    char path[REMOTE_PATH_SIZE];
};

struct remote_numbers {
    uint64_t *of; /* To be freed. */
    size_t n, room;
};

/**
 * Opens the directory of what is kept.
 *
 * @param r    the tree
 * @param make makes it where there is none
 * @param err  filled on failure
 * @return the fd, to be closed, or a negative errno: -ENOENT where nothing is
 *         kept
 */
MUST_USE int remote_kept_open(const struct remote *r, bool make,
                              struct err *err);

/**
 * Lists what is kept, and removes what a crash has left half done.
 *
 * @param dir of remote_kept_open()
 * @param out zeroed; gets the numbers, in order, on failure some
 * @return 0 or a negative errno
 */
MUST_USE int remote_kept_list(int dir, struct remote_numbers *out);

/**
 * Reads one, as a stage that was entered.
 *
 * @param r   the tree
 * @param dir of remote_kept_open()
 * @param n   its number
 * @param out on success, for remote_kept_free()
 * @param err filled on failure
 * @return 0, -EIO where it makes no sense, or another negative errno
 */
MUST_USE int remote_kept_load(struct remote *r, int dir, uint64_t n,
                              struct remote_kept **out, struct err *err);

/** @param n a number @param suffix of one of its files @param out its name */
void remote_kept_name(uint64_t n, const char *suffix,
                      char out[REMOTE_KEPT_NAME]);

/**
 * Gives bytes a name, and waits until the disk has them.
 *
 * @param dir  where
 * @param name there; -EEXIST
 * @param fd   of a file, perhaps without a name; it is shared where it can be
 * @param err  filled on failure
 * @return 0 or a negative errno: a part may be there then
 */
MUST_USE int remote_keep_data(int dir, const char *name, int fd,
                              struct err *err);

/** @param rc why one could not be sent @return whether others could not either,
 *  as the engine does not answer */
bool remote_is_of_all(int rc);

/** @param kept freed; on the disk it stays */
void remote_kept_free(struct remote_kept *kept);

/** Removes one that was sent. @param dir of remote_kept_open() @param n its
 *  number */
void remote_kept_forget(int dir, uint64_t n);

#endif
