/*
 * Requests for control files: everything in the mount but what lies in
 * workspace/. control.c has names, attributes and directories, control_io.c
 * what is done with open files.
 */
#ifndef SESSIONFS_CONTROL_H
#define SESSIONFS_CONTROL_H

#include "fs/reply.h"

extern const struct fs_part control_part;

/** @param inode of this part @return which file it is, borrowed */
struct node control_node(const struct inode *inode);

/**
 * What a request is about, for the log.
 *
 * @param op     "mkdir"; static
 * @param inode  of this part; borrowed, as name
 * @param name   in that directory; NULL: the inode's own
 * @param always recorded whatever the errno is: it asks for a change
 */
struct reply_about control_about(const char *op, const struct inode *inode,
                                 const char *name, bool always);

void control_open(fuse_req_t req, struct inode *inode,
                  struct fuse_file_info *fi);
void control_read(fuse_req_t req, struct inode *inode, size_t size, off_t off,
                  struct fuse_file_info *fi);
void control_write(fuse_req_t req, struct inode *inode, const char *data,
                   size_t size, off_t off, struct fuse_file_info *fi);
void control_flush(fuse_req_t req, struct inode *inode,
                   struct fuse_file_info *fi);
void control_release(fuse_req_t req, struct inode *inode,
                     struct fuse_file_info *fi);
void control_poll(fuse_req_t req, struct inode *inode,
                  struct fuse_file_info *fi, struct fuse_pollhandle *handle);

#endif
