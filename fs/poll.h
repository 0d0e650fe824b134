/* Those who poll control files, and the news that wakes them. Thread-safe. */
#ifndef SESSIONFS_POLL_H
#define SESSIONFS_POLL_H

#include "fs/fs.h"

struct file;
struct pollers;

/** @return an object without pollers, or NULL without memory */
struct pollers *pollers_new(void);
/** @param pollers freed with what it holds; NULL is fine */
void pollers_free(struct pollers *pollers);

/**
 * Keeps a poll until there is news.
 *
 * @param pollers the object
 * @param file    what is polled
 * @param handle  taken; one that was kept for the file is freed
 */
void pollers_add(struct pollers *pollers, struct file *file,
                 struct fuse_pollhandle *handle);

/** @param pollers the object @param file about to be closed */
void pollers_forget(struct pollers *pollers, const struct file *file);

/**
 * Makes the kernel ask again for all polled files of a session. Called with
 * no lock held.
 *
 * @param fs      the mount
 * @param session which has news
 */
void pollers_wake(struct fs *fs, const struct session *session);

#endif
