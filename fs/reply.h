/*
 * Answers to requests; the one place that logs a failed operation.
 *
 * A failure is one line in the log and, where it tells its user more than the
 * errno does, one in the `error` file of the session (or of the mount). Errnos
 * that programs meet in ordinary life (a name that is not there, or is there
 * already …) are logged at debug level and recorded only where asked for.
 */
#ifndef SESSIONFS_REPLY_H
#define SESSIONFS_REPLY_H

#include "fs/fs.h"

struct workspace;

/* What a request was about. Borrowed by the functions here. */
struct reply_about {
    const char *op;          /* "mkdir"; static. */
    struct session *session; /* Or NULL. */
    const char *name;        /* A file's name, or NULL; any bytes. */
    uint64_t exec_n;         /* 0: none. */
    bool always;             /* Recorded whatever the errno is. */
    bool recorded;           /* It is in `error` already. */
    bool probe;              /* The kernel asks by itself, before each write:
                                that there is no such thing is not counted. */
};

/**
 * Answers with an error, logs and records it.
 *
 * @param req   answered
 * @param about what it was about
 * @param rc    a negative errno
 * @param err   its words
 */
void reply_err(fuse_req_t req, const struct reply_about *about, int rc,
               const struct err *err);

/**
 * Answers a request whose work goes on without it: logged at debug level, and
 * not recorded, since the work's own end is.
 *
 * @param req   answered
 * @param about what it was about
 * @param code  a positive errno value
 * @param words why
 */
void reply_without(fuse_req_t req, const struct reply_about *about, int code,
                   const char *words);

/**
 * Logs and records a failure that no request is answered with.
 *
 * @param fs     the mount
 * @param about  what it was about
 * @param caller who asked
 * @param err    why
 */
void reply_note(struct fs *fs, const struct reply_about *about,
                const struct caller *caller, const struct err *err);

/** @param req answered with success and no data */
void reply_ok(fuse_req_t req);

/**
 * Answers with a file, as lookup, mkdir, mknod, symlink and link do. Gives the
 * lookup back when the kernel does not take the answer.
 *
 * @param req   answered
 * @param inode with one lookup counted for this answer (inode_look_up)
 * @param attr  its attributes, with the st_ino to show
 */
void reply_entry(fuse_req_t req, struct inode *inode, const struct stat *attr);

/**
 * Answers with a file and an open handle. Gives the lookup back as
 * reply_entry().
 *
 * @param req   answered
 * @param inode with one lookup counted for this answer
 * @param attr  its attributes
 * @param fi    the handle
 * @param backing of kernel_pass_open()
 * @return whether the kernel took it; if not, the caller closes the handle
 */
MUST_USE bool reply_create(fuse_req_t req, struct inode *inode,
                           const struct stat *attr,
                           const struct fuse_file_info *fi, uint32_t backing);

/**
 * Answers a lookup with the fact that the name is not there, which the kernel
 * may keep. Not logged.
 *
 * @param req     answered
 * @param session whose workspace it is
 * @param ws      its tree
 */
void reply_no_entry(fuse_req_t req, struct session *session,
                    const struct workspace *ws);

/**
 * Answers with attributes.
 *
 * @param req   answered
 * @param inode whose
 * @param ws    the tree that they are of; NULL: a control file's
 * @param attr  with the st_ino to show
 */
void reply_attr(fuse_req_t req, struct inode *inode, const struct workspace *ws,
                const struct stat *attr);

/**
 * What an entry tells the kernel: for reply_entry() and for readdirplus.
 *
 * @param fs    the mount
 * @param inode the file
 * @param attr  its attributes
 * @param out   written
 */
void reply_fill_entry(struct fs *fs, struct inode *inode,
                      const struct stat *attr, struct fuse_entry_param *out);

#endif
