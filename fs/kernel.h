/*
 * What depends on the kernel under the mount: what is negotiated with it, how
 * long it may keep names and attributes, and how it learns of changes.
 */
#ifndef SESSIONFS_KERNEL_H
#define SESSIONFS_KERNEL_H

#include "fs/fs.h"

enum {
    /* From this minor version of protocol 7 on, Linux 6.16, changes can be
     * told by an epoch. */
    KERNEL_EPOCH_MINOR = 44
};

/** @return what is not negotiated yet, or NULL without memory */
struct kernel *kernel_new(void);
/** @param kernel freed; NULL is fine */
void kernel_free(struct kernel *kernel);

/**
 * Negotiates, in the INIT request.
 *
 * @param kernel written
 * @param conn   changed
 */
void kernel_init(struct kernel *kernel, struct fuse_conn_info *conn);

/**
 * @param kernel the kernel, after INIT
 * @param out    gets the protocol's version, as "7.45"
 * @param size   of out
 */
void kernel_version(const struct kernel *kernel, char *out, size_t size);

/**
 * @param kernel the kernel, after INIT
 * @return how long it may keep names and attributes below workspace/, seconds
 */
double kernel_timeout_s(const struct kernel *kernel);

/**
 * Tells the kernel that files of a session changed behind it: names and
 * attributes that it kept are asked for again. Takes no lock of the kernel
 * that a request may hold; called with none of ours.
 *
 * @param fs      the mount
 * @param session whose files
 */
void kernel_changed(struct fs *fs, const struct session *session);

/**
 * Begins a notification: the connection is not closed during it.
 *
 * @param kernel the kernel
 * @return whether there is a connection; kernel_tell_end() follows then
 */
MUST_USE bool kernel_tell_begin(struct kernel *kernel);
/** @param kernel as given to kernel_tell_begin() */
void kernel_tell_end(struct kernel *kernel);

/**
 * Lets no further notification begin and waits for those that have. Before
 * the session's fd is closed.
 *
 * @param kernel the kernel
 */
void kernel_end(struct kernel *kernel);

#endif
