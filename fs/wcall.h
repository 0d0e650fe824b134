/*
 * One request below workspace/: the one place that decides where it runs.
 *
 * It enters the session's workspace first. Where that is possible at once and
 * the tree does not block, the request runs and is answered in the FUSE worker
 * that received it. Else it is parked, and runs in a thread of the session.
 * It is answered once; what it made and nobody took is given back.
 */
#ifndef SESSIONFS_WCALL_H
#define SESSIONFS_WCALL_H

#include "core/session.h"
#include "fs/held.h"
#include "fs/inode.h"
#include "fs/park.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/statvfs.h>

enum {
    WCALL_MOST_MS = 60 * 1000 /* For an engine's answers to one request. */
};

/* An open file or directory, as fi->fh; shared with requests that run. */
struct wopen {
    struct held held; /* While the kernel has it. */
    atomic_uint refs;
    struct ws_file *file;
    struct ws_dir *dir; /* NULL in both: a directory without a sandbox. */
    const struct workspace *tree; /* Of either, which holds it; or NULL. */
    bool passed;                  /* The kernel reaches the data by itself. */
};

struct wcall;

/* A kind of request; static. */
struct wcall_kind {
    const char *name;
    enum session_need need;
    bool data;  /* Reads or writes file data, which is a use of the sandbox. */
    bool probe; /* As in struct reply_about. */
    bool looks; /* That a name is not there is an answer. */
    bool stats; /* Tells of the inode itself: a listing of a session, which
                   stats workspace/, waits for no start. */
    int late; /* Answers it after PARK_LOCKED_MS, since the kernel holds a lock:
                 EINPROGRESS where the work goes on, else ETIMEDOUT. 0: no lock
                 is held, and it may wait. */
    /** Does it, with call->ws and call->node set. @return 0 or -errno */
    int (*run)(struct wcall *call, struct err *err);
    /** The same where there is no sandbox; NULL: -ENOENT. */
    int (*empty)(struct wcall *call, struct err *err);
    /** Answers after success; NULL: with nothing but success. */
    void (*reply)(struct wcall *call, fuse_req_t req);
};

struct wcall {
    const struct wcall_kind *kind;
    struct fs *fs;
    fuse_req_t req;
    struct inode *inode;
    struct inode *other; /* The second one of rename, link and copies. */
    struct session *session;
    struct caller caller;
    struct ws_ctx ctx;

    /* What is asked; as in fuse_lowlevel_ops. */
    char *name;       /* In its room, or owned; like text. */
    char *text;       /* The new name, or a link's target. */
    const void *data; /* Of the request; owned once it is parked. */
    size_t size;
    off_t offset;     /* After lseek: where it is now. */
    off_t offset_out; /* In the second file of a copy. */
    int flags; /* Also fsync's data_only, lseek's whence, readdir's plus. */
    mode_t mode;
    unsigned mask;
    struct stat want;
    struct fuse_file_info fi;
    struct wopen *open, *open_out; /* Referenced. */

    /* While it runs. */
    unsigned long changes; /* kernel_changes() at its beginning. */
    struct workspace *ws;
    struct ws_node *node, *other_node; /* Of the inodes. */

    /* What it makes: taken by the reply, else given back. */
    struct ws_node *made;
    struct wopen *opened;
    struct stat attr;
    struct statvfs room;
    bool no_room; /* For what is written to the file that it opens. */
    char *out;
    size_t out_size;
    struct inode **listed; /* Lookups in a listing, to be taken. */
    size_t n_listed;
    fuse_ino_t told; /* Of whom attributes were told, */
    size_t n_told;   /* and of so many of `listed`, which may be gone. */

    /* wcall.c's own. */
    pthread_t thread; /* That runs wcall_start(), */
    bool *done;       /* which learns here that it is all over. */
    uint64_t key;     /* Of the checkpoint. */
    bool aside;       /* About a checkpoint: the session was not entered. */
    bool waiting;     /* The call is parked, */
    bool refused;     /* or was answered already, for want of memory. */
    atomic_uint met;  /* How many of park and callback are there. */
    atomic_uint refs;
    struct park *park;
    struct cancel cancel;
    int rc; /* Of entering. */
    struct err err;

    /* Last, since they are not cleared: most names fit. */
    char name_room[NAME_MAX + 1];
    char text_room[NAME_MAX + 1];
};

/** @return memory for a call, all zero but its rooms; NULL: there is none.
 *  Each thread keeps one at hand */
struct wcall *wcall_memory(void);
/** @param call given back */
void wcall_forget(struct wcall *call);

/**
 * Makes a call.
 *
 * @param req   answered with -ENOMEM when NULL is returned
 * @param kind  static
 * @param inode what it is about
 * @return the call, to be filled and started
 */
struct wcall *wcall_new(fuse_req_t req, const struct wcall_kind *kind,
                        struct inode *inode);

/**
 * Copies a name into a call.
 *
 * @param call the call; wcall_start() answers -ENOMEM where there is no memory
 * @param name borrowed
 */
void wcall_name(struct wcall *call, const char *name);
/** @param call as wcall_name() @param text the second string */
void wcall_text(struct wcall *call, const char *text);

/**
 * Gives a call the handle of an open file.
 *
 * @param call the call
 * @param fi   as FUSE gave it; NULL: none
 */
void wcall_open(struct wcall *call, const struct fuse_file_info *fi);

/** @param call runs, is answered and freed, now or later */
void wcall_start(struct wcall *call);

/** @param tree of what is opened; NULL: none @param file taken, or NULL
 *  @param dir taken, or NULL
 *  @return a handle with one reference, NULL without memory */
struct wopen *wopen_new(const struct workspace *tree, struct ws_file *file,
                        struct ws_dir *dir);
/** @param fi of an open file @return its handle, borrowed */
struct wopen *wopen_of(const struct fuse_file_info *fi);
/** @param handle one more reference @return handle */
struct wopen *wopen_ref(struct wopen *handle);
/** @param handle one reference less; NULL is fine */
void wopen_unref(struct wopen *handle);
/**
 * Gives what a call opened to the kernel, by call->fi, before the reply.
 *
 * @param call  with its handle
 * @param inode counts as open
 */
void wcall_give(struct wcall *call, struct inode *inode);

/**
 * Undoes wcall_give() when the reply failed.
 *
 * @param call  as given
 * @param inode as given
 */
void wcall_take_back(struct wcall *call, struct inode *inode);

/**
 * Answers a release.
 *
 * @param req   answered
 * @param inode counts as closed
 * @param fi    what is released
 */
void wopen_release(fuse_req_t req, struct inode *inode,
                   const struct fuse_file_info *fi);

/** @param call whose session a node is of @param node below workspace/, and
 *  borrowed @return what its inode stands for */
struct inode_key wcall_key(const struct wcall *call, struct ws_node *node);

/**
 * The inode of a node, with one lookup counted.
 *
 * @param call whose session it is of
 * @param node borrowed
 * @return the inode, or NULL without memory
 */
struct inode *wcall_look_up(const struct wcall *call, struct ws_node *node);

/**
 * workspace/ itself shows the number of a control file, which it has before
 * and after it has a sandbox.
 *
 * @param call the call
 * @param attr of its inode; st_ino is changed where that is workspace/
 */
void wcall_show_top(const struct wcall *call, struct stat *attr);

/** @param call whose request @param req answered @param rc a negative errno
 *  @param err its words */
void wcall_fail(const struct wcall *call, fuse_req_t req, int rc,
                const struct err *err);
/** @param call whose request @param req answered: there is no memory */
void wcall_no_memory(struct wcall *call, fuse_req_t req);

/* The rows of workspace_part that lie in files of their own. */
void workspace_open(fuse_req_t req, struct inode *inode,
                    struct fuse_file_info *fi);
void workspace_create(fuse_req_t req, struct inode *dir, const char *name,
                      mode_t mode, struct fuse_file_info *fi);
void workspace_read(fuse_req_t req, struct inode *inode, size_t size, off_t off,
                    struct fuse_file_info *fi);
void workspace_write(fuse_req_t req, struct inode *inode, const char *data,
                     size_t size, off_t off, struct fuse_file_info *fi);
void workspace_flush(fuse_req_t req, struct inode *inode,
                     struct fuse_file_info *fi);
void workspace_release(fuse_req_t req, struct inode *inode,
                       struct fuse_file_info *fi);
void workspace_fsync(fuse_req_t req, struct inode *inode, int data_only,
                     struct fuse_file_info *fi);
void workspace_fallocate(fuse_req_t req, struct inode *inode, int mode,
                         off_t off, off_t size, struct fuse_file_info *fi);
void workspace_lseek(fuse_req_t req, struct inode *inode, off_t off, int whence,
                     struct fuse_file_info *fi);
void workspace_copy(fuse_req_t req, struct inode *in, off_t in_off,
                    struct fuse_file_info *in_fi, struct inode *out,
                    off_t out_off, struct fuse_file_info *out_fi, size_t size,
                    int flags);
void workspace_opendir(fuse_req_t req, struct inode *inode,
                       struct fuse_file_info *fi);
void workspace_readdir(fuse_req_t req, struct inode *inode, size_t size,
                       off_t off, struct fuse_file_info *fi, bool plus);
void workspace_fsyncdir(fuse_req_t req, struct inode *inode, int data_only,
                        struct fuse_file_info *fi);
void workspace_setxattr(fuse_req_t req, struct inode *inode, const char *name,
                        const char *value, size_t size, int flags);
void workspace_getxattr(fuse_req_t req, struct inode *inode, const char *name,
                        size_t size);
void workspace_listxattr(fuse_req_t req, struct inode *inode, size_t size);
void workspace_removexattr(fuse_req_t req, struct inode *inode,
                           const char *name);

#endif
