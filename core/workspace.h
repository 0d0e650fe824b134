/*
 * The files of one sandbox as fs sees them: an inode-like tree of nodes.
 *
 * Two implementations stand behind it: over a directory of this machine
 * (workspace_direct.c) and over a provider's file calls (workspace_remote.c).
 * Every function is plain and synchronous. Where ws_blocks() says so it may
 * wait for an engine: the caller then runs it in a thread of the session and
 * never in a FUSE worker; limits bound the wait. Others ignore limits.
 *
 * A node stands for a file: hard links share it, a rename keeps it. It lives
 * while somebody holds a reference. All functions are thread-safe.
 *
 * Ids in attributes are those that the mount shows (mount.md, "Ids"). Names
 * are bytes; "." and "..", '/' inside and over 255 bytes are refused.
 *
 * The process's umask must be 0: a new file gets the mode that is asked for,
 * from which the kernel has taken its caller's umask.
 */
#ifndef SESSIONFS_WORKSPACE_H
#define SESSIONFS_WORKSPACE_H

#include "core/provider_files.h"

#include <sys/types.h>

struct workspace; /* One tree. */
struct ws_node;   /* One file of it. */
struct ws_file;   /* One open file. */
struct ws_dir;    /* One open directory. */

/* Who asks, and within what limits. */
struct ws_ctx {
    uid_t uid; /* Of the calling process; owner of what it creates, */
    gid_t gid; /* as the mount shows ids. */
    struct limits limits;
    unsigned long state; /* Of the tree, which is another once anything but the
                          * mount has changed it; 0: it may be doing so now. */
};

/* How the mount shows trees. */
struct ws_view {
    uid_t uid;      /* Who is shown for the sandbox's default user, */
    gid_t gid;      /* and for its group. */
    bool raw_links; /* A link's target is given as stored, also one that leads
                     * out of the workspace. */
    bool fixed;     /* Nothing in it ever changes, as in a checkpoint. */

    /* Of trees of other machines; 0: as core has it. */
    uint64_t cache_bytes; /* Content of one tree that is kept on this disk. */
    uint64_t stage_bytes; /* What is written there and not sent yet. */
};

/**
 * Makes the tree of a provider's directory.
 *
 * @param root  taken on success: its fd is closed with the tree
 * @param number of the session, for inode numbers; in its upper half another
 *               one that tells trees of one session apart
 * @param view  borrowed for the call
 * @param out   the tree with one reference, on success
 * @param err   filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int ws_new_direct(const struct provider_root *root, uint64_t number,
                           const struct ws_view *view, struct workspace **out,
                           struct err *err);

/**
 * Makes the tree of a provider's file calls.
 *
 * @param provider borrowed; outlives the tree
 * @param sandbox  borrowed for the call; copied
 * @param view     borrowed for the call
 * @param out      the tree with one reference, on success
 * @param err      filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int ws_new_remote(struct provider *provider,
                           const struct sandbox *sandbox,
                           const struct ws_view *view, struct workspace **out,
                           struct err *err);

/** @param ws one more reference @return ws */
struct workspace *ws_ref(struct workspace *ws);
/** @param ws one reference less; nodes and files hold one each; NULL is fine */
void ws_unref(struct workspace *ws);

/** @param ws a tree @return whether its functions may wait for an engine */
bool ws_blocks(const struct workspace *ws);

/** @param ws a tree whose files may have changed: what it keeps of them is
 *  asked for again */
void ws_changed(struct workspace *ws);

/** @param ws a tree @return whether something in it is open, or it cannot be
 *  moved, or not soon */
bool ws_busy(struct workspace *ws);
/**
 * Makes it the tree of another directory, which shows the same. Its nodes stay,
 * those that are not found there are -ESTALE. Nothing in it is open, and nobody
 * else calls a function of it.
 *
 * @param ws   a tree that is not busy
 * @param root taken on success
 * @param err  filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int ws_move(struct workspace *ws, int root, struct err *err);

/** @param ws a tree @return whether nothing in it ever changes: what would is
 *  -EROFS */
bool ws_fixed(const struct workspace *ws);
/** @param ws a tree @return whether somebody has another reference */
bool ws_used(const struct workspace *ws);

/** @param ws a tree @param contested whether others make files in it now, so
 *  that who wants to be the first has to ask the engine */
void ws_contested(struct workspace *ws, bool contested);

/** @param ws a tree @return whether something was written that the engine does
 *  not have */
bool ws_unsent(struct workspace *ws);
/** @param file of a tree @return the same of one file, unless its writer was
 *  told that it could not be sent */
bool ws_unsent_file(struct ws_file *file);

/**
 * Sends all that was written, and waits until the engine has it.
 *
 * @param ws     a tree
 * @param limits deadline and token
 * @param err    filled on failure
 * @return 0, or why one of the files could not be sent: it stays staged
 */
MUST_USE int ws_sync(struct workspace *ws, const struct limits *limits,
                     struct err *err);

/* What became of something that was written. */
enum ws_fate {
    WS_SENT,
    WS_BESIDE, /* The engine's version differs: both are there now. */
    WS_KEPT,   /* It lies on this machine's disk until it can be sent. */
    WS_ASIDE,  /* It is not sent any more, and shows in the top directory. */
    WS_LOST,
};

/** @param arg the caller's @param fate of a file @param path of it @param err
 *  why it was not sent, or where this side's version is; borrowed */
typedef void ws_told_fn(void *arg, enum ws_fate fate, const char *path,
                        const struct err *err);

/* Who is told. */
struct ws_told {
    ws_told_fn *fn;
    void *arg;
};

/**
 * Sends what was written, as far as that can be until a moment, and keeps the
 * rest: for the end, when nobody writes any more.
 *
 * @param ws     a tree
 * @param limits deadline and token
 * @param told   of each file that could not be sent
 */
void ws_end(struct workspace *ws, const struct limits *limits,
            const struct ws_told *told);

/**
 * Keeps what was written to a file and could not be sent. Nothing is done
 * while somebody else has it open, who sends it later.
 *
 * @param file about to be closed
 * @param told of it
 */
void ws_keep(struct ws_file *file, const struct ws_told *told);

/**
 * Sends what was kept, also by earlier trees of the sandbox.
 *
 * @param ws     a tree
 * @param limits deadline and token of each
 * @param told   of each
 * @param err    filled on failure
 * @return 0 where nothing is kept any more, or why not
 */
MUST_USE int ws_send_kept(struct workspace *ws, const struct limits *limits,
                          const struct ws_told *told, struct err *err);

/** @param ws a tree @return its top directory, one more reference */
struct ws_node *ws_root(struct workspace *ws);

/** @param node one more reference @return node */
struct ws_node *ws_node_ref(struct ws_node *node);
/** @param node one reference less; NULL is fine */
void ws_node_unref(struct ws_node *node);
/** @param node a node @return its tree, borrowed */
struct workspace *ws_node_tree(struct ws_node *node);
/** @param node a node @return the inode number that the mount shows */
uint64_t ws_node_ino(const struct ws_node *node);

/**
 * Whether another node may be of the same file, so that none tells what is
 * changed by another: it has or had more names than one in a tree that changes.
 * An overlay makes two files of such names at times, which it shows as one or
 * as two.
 *
 * @param node a node
 * @return whether nothing that is told of it may be kept
 */
bool ws_node_shared(const struct ws_node *node);
/** @param ws a tree @return whether such a file is open for writing: then its
 *  only name may be one that does not know of it */
bool ws_shared_written(const struct workspace *ws);

/** @param arg as given @param node whose attributes are others now */
typedef void ws_lifted_fn(void *arg, struct ws_node *node);

/**
 * Notes that a file was changed, or was to be, and tells of whom that moves
 * attributes though nobody changed them: an overlay copies a file up before it
 * changes the first time, and all directories above it. Each node is told of
 * once, and then only those right above what is copied.
 *
 * @param node the file
 * @param fn   called with no lock held
 * @param arg  for fn
 */
void ws_lift(struct ws_node *node, ws_lifted_fn *fn, void *arg);

/* Each returns 0 or a negative errno and fills err exactly on failure; `out`
 * nodes come with a reference, attributes with shown ids and st_ino. */

MUST_USE int ws_lookup(struct ws_node *dir, const char *name,
                       const struct ws_ctx *ctx, struct ws_node **out,
                       struct stat *attr, struct err *err);
/* file may be NULL; it reaches an unlinked file. */
MUST_USE int ws_getattr(struct ws_node *node, struct ws_file *file,
                        const struct ws_ctx *ctx, struct stat *attr,
                        struct err *err);
/* `mask` of enum provider_attr; UTIME_NOW in tv_nsec is now. */
MUST_USE int ws_setattr(struct ws_node *node, struct ws_file *file,
                        unsigned mask, const struct stat *want,
                        const struct ws_ctx *ctx, struct stat *attr,
                        struct err *err);
/* out: at most size - 1 bytes and a NUL, as stored. */
MUST_USE int ws_readlink(struct ws_node *node, const struct ws_ctx *ctx,
                         char *out, size_t size, struct err *err);
MUST_USE int ws_mkdir(struct ws_node *dir, const char *name, mode_t mode,
                      const struct ws_ctx *ctx, struct ws_node **out,
                      struct stat *attr, struct err *err);
/* FIFOs, sockets and regular files; devices are -EPERM. */
MUST_USE int ws_mknod(struct ws_node *dir, const char *name, mode_t mode,
                      const struct ws_ctx *ctx, struct ws_node **out,
                      struct stat *attr, struct err *err);
MUST_USE int ws_symlink(struct ws_node *dir, const char *name,
                        const char *target, const struct ws_ctx *ctx,
                        struct ws_node **out, struct stat *attr,
                        struct err *err);
MUST_USE int ws_link(struct ws_node *node, struct ws_node *dir,
                     const char *name, const struct ws_ctx *ctx,
                     struct stat *attr, struct err *err);
MUST_USE int ws_unlink(struct ws_node *dir, const char *name,
                       const struct ws_ctx *ctx, struct err *err);

/**
 * Finds a file whose data takes time to be given back when its name goes.
 *
 * @param dir  a directory
 * @param name in it
 * @return the file with a reference, if it is such a one and has no other
 *         name; or NULL
 */
struct ws_node *ws_large(struct ws_node *dir, const char *name);

/**
 * Lets go of a file whose last name was removed: unless it is open, its data
 * is given back now, and who still has it by O_PATH finds it stale.
 *
 * @param node as ws_large() found it
 * @return whether it was let go
 */
bool ws_leave(struct ws_node *node);

MUST_USE int ws_rmdir(struct ws_node *dir, const char *name,
                      const struct ws_ctx *ctx, struct err *err);
/* flags: RENAME_NOREPLACE, RENAME_EXCHANGE or 0; others -EINVAL. Both
 * directories are of one tree. */
MUST_USE int ws_rename(struct ws_node *from, const char *name,
                       struct ws_node *to, const char *new_name, unsigned flags,
                       const struct ws_ctx *ctx, struct err *err);

/* flags of open(2), O_CREAT left out. */
MUST_USE int ws_open(struct ws_node *node, int flags, const struct ws_ctx *ctx,
                     struct ws_file **out, struct err *err);
/* Makes and opens; honours O_EXCL. */
MUST_USE int ws_create(struct ws_node *dir, const char *name, mode_t mode,
                       int flags, const struct ws_ctx *ctx,
                       struct ws_node **node, struct ws_file **file,
                       struct stat *attr, struct err *err);
/* Bytes read, 0 at the end, or a negative errno. */
MUST_USE ssize_t ws_read(struct ws_file *file, void *out, size_t size,
                         off_t offset, const struct ws_ctx *ctx,
                         struct err *err);
/* Bytes written (all, unless the disk is full) or a negative errno. */
MUST_USE ssize_t ws_write(struct ws_file *file, const void *data, size_t size,
                          off_t offset, const struct ws_ctx *ctx,
                          struct err *err);
/* Tells a failure of staged writes: at close, and at fsync. */
MUST_USE int ws_flush(struct ws_file *file, const struct ws_ctx *ctx,
                      struct err *err);
MUST_USE int ws_fsync(struct ws_file *file, bool data_only,
                      const struct ws_ctx *ctx, struct err *err);
/* mode of fallocate(2). */
MUST_USE int ws_fallocate(struct ws_file *file, int mode, off_t offset,
                          off_t size, const struct ws_ctx *ctx,
                          struct err *err);
/* SEEK_DATA and SEEK_HOLE. */
MUST_USE off_t ws_lseek(struct ws_file *file, off_t offset, int whence,
                        const struct ws_ctx *ctx, struct err *err);
/* Bytes copied. Both files are of one tree. */
MUST_USE ssize_t ws_copy_range(struct ws_file *in, off_t in_offset,
                               struct ws_file *out, off_t out_offset,
                               size_t size, const struct ws_ctx *ctx,
                               struct err *err);
/* Opens a file for reading, its data only when it is read by us: for one that
 * the kernel is to read by itself. */
MUST_USE int ws_open_later(struct ws_node *node, const struct ws_ctx *ctx,
                           struct ws_file **out, struct err *err);
/* The fd behind an open file, for splicing; -EOPNOTSUPP: it has none, or
 * another negative errno where it cannot be opened now. */
int ws_file_fd(struct ws_file *file);

/* How the kernel may reach an open file's data without us. */
enum ws_pass {
    WS_PASS_NOT,  /* Not at all. */
    WS_PASS_MAPS, /* By mappings: what is written changes more than data. */
    WS_PASS_ALL,
};
/**
 * Tells how far the kernel may go by itself.
 *
 * @param file an open file
 * @param fd   an O_PATH fd of the file behind it, borrowed while the file is
 *             open; -1: none
 * @return how far
 */
enum ws_pass ws_file_pass(struct ws_file *file, int *fd);
void ws_close(struct ws_file *file);

/** @param arg the caller's @param path bytes, relative to the workspace
 *  @return 0, or an error that ends the telling */
typedef int ws_writer_fn(void *arg, const char *path);
/**
 * Tells which files are open for writing, each once for every handle: their
 * data may change at any time, and what is stored through a mapping moves no
 * times. One that was removed is told by its last name, one whose place is not
 * known is left out.
 *
 * @param ws  a tree
 * @param fn  called with no lock held
 * @param arg given to fn
 * @return 0, -ENOMEM, or what fn said
 */
MUST_USE int ws_writers(struct workspace *ws, ws_writer_fn *fn, void *arg);
/** @param ws a tree @return whether ws_writers() would tell of any */
bool ws_writing(struct workspace *ws);

MUST_USE int ws_opendir(struct ws_node *node, const struct ws_ctx *ctx,
                        struct ws_dir **out, struct err *err);
/**
 * Called for each entry, "." and ".." included. attr has st_ino and the type
 * in st_mode only.
 *
 * @param arg  the caller's
 * @param name borrowed
 * @param attr borrowed
 * @param next the offset behind this entry
 * @return false when the entry did not fit: it is told again next time
 */
typedef bool ws_entry_fn(void *arg, const char *name, const struct stat *attr,
                         off_t next);
/* From `offset` (0, or a `next`) on. Entries that stay are told once each,
 * whatever is removed or added meanwhile. */
MUST_USE int ws_readdir(struct ws_dir *dir, off_t offset, ws_entry_fn *fn,
                        void *arg, const struct ws_ctx *ctx, struct err *err);
MUST_USE int ws_fsyncdir(struct ws_dir *dir, bool data_only,
                         const struct ws_ctx *ctx, struct err *err);
void ws_closedir(struct ws_dir *dir);

MUST_USE int ws_statfs(struct workspace *ws, const struct ws_ctx *ctx,
                       struct statvfs *out, struct err *err);

/* user.* only; system.* are -EOPNOTSUPP, others -EPERM to write, -ENODATA to
 * read, unlisted.
 * Bytes of the value or list; size 0 asks for the size; -ERANGE. */
MUST_USE ssize_t ws_getxattr(struct ws_node *node, const char *name, void *out,
                             size_t size, struct err *err);
MUST_USE ssize_t ws_listxattr(struct ws_node *node, char *out, size_t size,
                              struct err *err);
/* flags: XATTR_CREATE, XATTR_REPLACE or 0. */
MUST_USE int ws_setxattr(struct ws_node *node, const char *name,
                         const void *value, size_t size, int flags,
                         struct err *err);
MUST_USE int ws_removexattr(struct ws_node *node, const char *name,
                            struct err *err);

#endif
