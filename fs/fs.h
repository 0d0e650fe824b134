/*
 * The FUSE front of one mount, and how its requests are shared out.
 *
 * fs.c receives every request, finds the inode, and hands the request to the
 * part that the inode belongs to: the control files (control.c) or the files
 * below workspace/ (workspace.c). A part's function answers the request
 * exactly once, by one of reply.h's or libfuse's functions, at once or after
 * it parked it (park.h). None may wait for an engine or a command.
 */
#ifndef SESSIONFS_FS_H
#define SESSIONFS_FS_H

#define FUSE_USE_VERSION 312

#include "core/registry.h"
#include "fs/node.h"

#include <fuse3/fuse_lowlevel.h>
#include <stdatomic.h>

struct held_set;
struct inode;
struct inode_table;
struct kernel;
struct parks;
struct pollers;

enum {
    FS_ERRNOS = 134 /* One more than the highest. */
};

struct fs {
    struct node_mount mount; /* The registry in it is closed last. */
    struct loop *loop;
    struct fuse_session *fuse;
    struct inode_table *inodes;
    struct held_set *held;
    struct parks *parks;
    struct pollers *pollers;
    struct kernel *kernel;
    struct server *server; /* NULL: nobody is served but the mount's users. */
    int64_t end_ms;        /* How long the end may take. */
    uid_t uid;             /* The mounting user, */
    gid_t gid;             /* and the group: the owners of the control files. */
    atomic_ulong failures[FS_ERRNOS]; /* Answers by their errno. */
    bool shared;                      /* The group may use them. */
};

/*
 * One part of the tree. The functions are those of fuse_lowlevel_ops with the
 * inode in place of its number; it is borrowed while the request is not
 * answered, since the kernel holds it. A NULL slot is answered -EPERM where
 * the request would change names, else -EOPNOTSUPP. Two inodes given to
 * rename, link or copy_file_range belong to the same part.
 */
struct fs_part {
    void (*lookup)(fuse_req_t req, struct inode *dir, const char *name);
    void (*getattr)(fuse_req_t req, struct inode *inode,
                    struct fuse_file_info *fi);
    void (*setattr)(fuse_req_t req, struct inode *inode, struct stat *attr,
                    int to_set, struct fuse_file_info *fi);
    void (*readlink)(fuse_req_t req, struct inode *inode);
    void (*mknod)(fuse_req_t req, struct inode *dir, const char *name,
                  mode_t mode, dev_t rdev);
    void (*mkdir)(fuse_req_t req, struct inode *dir, const char *name,
                  mode_t mode);
    void (*unlink)(fuse_req_t req, struct inode *dir, const char *name);
    void (*rmdir)(fuse_req_t req, struct inode *dir, const char *name);
    void (*symlink)(fuse_req_t req, const char *target, struct inode *dir,
                    const char *name);
    void (*rename)(fuse_req_t req, struct inode *dir, const char *name,
                   struct inode *new_dir, const char *new_name, unsigned flags);
    void (*link)(fuse_req_t req, struct inode *inode, struct inode *dir,
                 const char *name);
    void (*open)(fuse_req_t req, struct inode *inode,
                 struct fuse_file_info *fi);
    void (*create)(fuse_req_t req, struct inode *dir, const char *name,
                   mode_t mode, struct fuse_file_info *fi);
    void (*read)(fuse_req_t req, struct inode *inode, size_t size, off_t off,
                 struct fuse_file_info *fi);
    void (*write)(fuse_req_t req, struct inode *inode, const char *data,
                  size_t size, off_t off, struct fuse_file_info *fi);
    void (*flush)(fuse_req_t req, struct inode *inode,
                  struct fuse_file_info *fi);
    void (*release)(fuse_req_t req, struct inode *inode,
                    struct fuse_file_info *fi);
    void (*fsync)(fuse_req_t req, struct inode *inode, int data_only,
                  struct fuse_file_info *fi);
    void (*opendir)(fuse_req_t req, struct inode *inode,
                    struct fuse_file_info *fi);
    /* plus: with entries, as readdirplus. */
    void (*readdir)(fuse_req_t req, struct inode *inode, size_t size, off_t off,
                    struct fuse_file_info *fi, bool plus);
    void (*releasedir)(fuse_req_t req, struct inode *inode,
                       struct fuse_file_info *fi);
    void (*fsyncdir)(fuse_req_t req, struct inode *inode, int data_only,
                     struct fuse_file_info *fi);
    void (*statfs)(fuse_req_t req, struct inode *inode);
    void (*setxattr)(fuse_req_t req, struct inode *inode, const char *name,
                     const char *value, size_t size, int flags);
    void (*getxattr)(fuse_req_t req, struct inode *inode, const char *name,
                     size_t size);
    void (*listxattr)(fuse_req_t req, struct inode *inode, size_t size);
    void (*removexattr)(fuse_req_t req, struct inode *inode, const char *name);
    void (*fallocate)(fuse_req_t req, struct inode *inode, int mode, off_t off,
                      off_t size, struct fuse_file_info *fi);
    void (*lseek)(fuse_req_t req, struct inode *inode, off_t off, int whence,
                  struct fuse_file_info *fi);
    void (*copy_file_range)(fuse_req_t req, struct inode *in, off_t in_off,
                            struct fuse_file_info *in_fi, struct inode *out,
                            off_t out_off, struct fuse_file_info *out_fi,
                            size_t size, int flags);
    /* handle: NULL, or taken (fuse_pollhandle_destroy). */
    void (*poll)(fuse_req_t req, struct inode *inode, struct fuse_file_info *fi,
                 struct fuse_pollhandle *handle);
};

/** All requests, for fuse_session_new() with a struct fs as user data. */
extern const struct fuse_lowlevel_ops fs_ops;

/** @param req a request @return the mount that it came to */
struct fs *fs_of(fuse_req_t req);

/** @param req a request @return who asks, as core wants it */
struct caller fs_caller(fuse_req_t req);

#endif
