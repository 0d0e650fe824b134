/*
 * Requests for control files: everything in the mount but what lies in
 * workspace/. control.c has names, attributes and directories, control_io.c
 * what is done with open files.
 */
#ifndef SESSIONFS_CONTROL_H
#define SESSIONFS_CONTROL_H

#include "fs/inode.h"

extern const struct fs_part control_part;

/** @param inode of this part @return which file it is, borrowed */
struct node control_node(const struct inode *inode);

/**
 * The attributes of a control file.
 *
 * @param req   who asks
 * @param inode the file
 * @param out   written on success
 * @param err   filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int control_stat(fuse_req_t req, const struct inode *inode,
                          struct stat *out, struct err *err);

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
