/* The state directory: its mode, and the lock that names its holder. */
#ifndef SESSIONFS_STORE_DIR_H
#define SESSIONFS_STORE_DIR_H

#include "core/err.h"

#include <stdbool.h>
#include <stdint.h>

/**
 * Makes a state directory where it is missing.
 *
 * @param dir absolute
 * @param out open on it, on success
 * @param err filled on failure
 * @return 0, -EPERM for one that is not ours, or another negative errno
 */
MUST_USE int store_dir_make(const char *dir, int *out, struct err *err);

/**
 * Makes a state directory and takes its lock.
 *
 * @param dir     absolute
 * @param wait_ms how long a holder that is unmounting is waited for
 * @param lock_fd holds the lock until it is closed, on success
 * @param cut_off whether the holder before did not come to say
 *                store_dir_closed(), on success
 * @param err     filled on failure
 * @return 0, -EBUSY, -EPERM, or another negative errno
 */
MUST_USE int store_dir_lock(const char *dir, int64_t wait_ms, int *lock_fd,
                            bool *cut_off, struct err *err);

/**
 * Says whether store_dir_lock() would succeed now. Makes and changes nothing.
 *
 * @param dir absolute
 * @param err filled on failure
 * @return 0, -EBUSY when somebody has it, -EPERM, or another negative errno
 */
MUST_USE int store_dir_check(const char *dir, struct err *err);

/**
 * Says what is mounted as long as the lock is held: who waits for the lock then
 * sees without the holder's word that it is about to end.
 *
 * @param lock_fd of the lock
 * @param major   of the mounted device
 * @param minor   of it
 */
void store_dir_mounted(int lock_fd, unsigned major, unsigned minor);

/** @param lock_fd of a lock whose holder is about to end */
void store_dir_closing(int lock_fd);

/** @param lock_fd of a lock whose holder has left nothing undone; -1: none */
void store_dir_closed(int lock_fd);

#endif
