/*
 * Inside of the tree over a directory fd. Private to core/workspace_direct*.c
 * and their tests.
 *
 * Every step below the root is taken by one openat2() that follows no link and
 * leaves neither the root nor its mount, or by an *at call on the O_PATH fd of
 * a directory and one name. Data is reached through /proc/self/fd of an O_PATH
 * fd that is known to be a regular file; nothing else is ever opened.
 *
 * Locks: the tree's, then that of the fd cache, which is a leaf.
 */
#ifndef SESSIONFS_WORKSPACE_DIRECT_H
#define SESSIONFS_WORKSPACE_DIRECT_H

#include "core/list.h"
#include "core/provider_snapshots.h"
#include "core/workspace_impl.h"
#include "core/ws_inos.h"

#include <fcntl.h>

/* What tells one file from another, while it exists. */
struct direct_key {
    dev_t dev;
    ino_t ino;
};

struct direct_node {
    struct ws_node base;
    struct direct_key key;
    mode_t type;
    atomic_bool lifted; /* It is where changes are made: see ws_lift(). */

    /* By the tree's lock. */
    struct direct_node *next;
    bool hashed;
    struct direct_key parent; /* Where it was last seen, */
    char *name;               /* under this name; NULL: the root. */
    uint64_t parent_serial;   /* The parent's, as keys are used again. */
    uint64_t serial;          /* Of this node; no other of the tree has it. */
    bool placed;              /* It was seen. */
    bool wandered;            /* See direct_node_link_depth(). */

    /* By the lock of the fd cache. */
    struct list lru; /* Linked while there is an fd and no user. */
    int fd;          /* O_PATH, or -1. */
    unsigned users;
    struct file_handle *handle; /* Made at eviction; then it stays. */
    bool left;                  /* See direct_fd_leave(). */
};

/* One directory's names. See workspace_direct_absent.c. */
struct direct_absent {
    atomic_ulong made;    /* Makings of names, begun and ended. */
    struct mutex lock;    /* A leaf; by it all below. */
    uint64_t serial;      /* Of the directory, */
    unsigned long state;  /* as it was in this state of the tree, */
    unsigned long when;   /* after so many makings. */
    unsigned misses, due; /* Names that were not there; until it is listed. */
    bool listed;
    uint64_t *names; /* Hashes, in their order. */
    size_t count;
};

struct direct {
    struct workspace base;
    int dir_fd;   /* The root, readable: for handles and statfs. */
    bool handles; /* Files can be opened by handle here. */
    uint64_t number;
    struct ws_ids ids;
    bool raw_links;
    uid_t host_uid; /* Of the sandbox's id 0. */
    gid_t host_gid;
    char *path; /* Of the workspace in the sandbox, or NULL. */
    const struct provider_parts *parts; /* As in struct provider_root. */
    void *parts_arg;
    struct direct_node root;

    /* Of files that have moved with the tree: they keep their numbers. */
    struct mutex inos_lock; /* The last one. */
    struct ws_inos *inos;   /* By that. */

    /* By base.lock. */
    struct direct_node **buckets;
    size_t n_buckets; /* A power of two. */
    size_t n_nodes;
    uint64_t serials;     /* Given to nodes so far. */
    struct list writers;  /* Of struct direct_file: open for writing. */
    struct mutex meeting; /* One at a time of files with more names; before
                           * base.lock. */

    atomic_uint opens; /* Files and directories. */
    struct direct_absent absent;
};

struct direct_file {
    struct ws_file base; /* First. */
    int flags;           /* Of open(2). */
    bool shared;         /* Counts among the tree's shared writers. */
    int path_fd;         /* The node's, which stays while it has a user. */
    atomic_int fd;       /* -1: opened when it is used, for reading. */
    void *parts;         /* One that is not whole, by which it is read. */
    struct list writing; /* In the tree's writers; by its lock. */
};

/** @param ws a direct tree @return its object */
struct direct *direct_of(struct workspace *ws);
/** @param node of a direct tree @return its object */
struct direct_node *direct_node_of(struct ws_node *node);
/** @param node a node @return its tree */
struct direct *direct_tree(const struct direct_node *node);

/* ---- Attributes: workspace_direct.c, workspace_direct_attr.c ---- */

/** @param d the tree @param attr of a backing file @return its shown number */
uint64_t direct_ino(struct direct *d, const struct stat *attr);
/** @param d the tree @param attr of a backing file @param shown its number from
 *  now on */
void direct_ino_keep(struct direct *d, const struct stat *attr, uint64_t shown);

/**
 * Turns the attributes of a backing file into those that the mount shows.
 *
 * @param d    the tree
 * @param attr changed in place
 */
void direct_show(struct direct *d, struct stat *attr);

/** Has the room of a file that lies in parts look as that of a whole one, or
 *  programs would take what lies elsewhere for holes. @param d the tree
 *  @param fd of the file @param attr of it, changed in place */
void direct_show_room(const struct direct *d, int fd, struct stat *attr);

/**
 * What set-id bits a write by somebody takes away, as the kernel does it.
 *
 * @param fd  open for writing
 * @param ctx who writes
 * @param err filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int direct_drop_setid(int fd, const struct ws_ctx *ctx,
                               struct err *err);

/**
 * Changes a file's length.
 *
 * @param fd   open for writing
 * @param size the new length
 * @param ctx  who asks
 * @param err  filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int direct_truncate(int fd, off_t size, const struct ws_ctx *ctx,
                             struct err *err);

/**
 * Changes mode bits through an O_PATH fd.
 *
 * @param fd   O_PATH of anything but a link
 * @param mode permission bits
 * @param err  filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int direct_chmod(int fd, mode_t mode, struct err *err);

/** The way to an open or O_PATH fd's file that follows nothing else. */
struct direct_proc_path {
    char text[32];
};

/** @param fd any fd @return its path in /proc */
struct direct_proc_path direct_proc(int fd);

/* ---- O_PATH fds: workspace_direct_fds.c ---- */

/**
 * Takes a node's O_PATH fd, opening it again where it was evicted. It stays
 * open until direct_fd_put().
 *
 * @param node a node
 * @param err  filled on failure
 * @return the fd, borrowed, or -ESTALE when the file is no longer found
 */
MUST_USE int direct_fd_get(struct direct_node *node, struct err *err);

/** @param node whose fd was got or given */
void direct_fd_put(struct direct_node *node);

/**
 * Hands a node a fresh fd, as if got afterwards.
 *
 * @param node a node
 * @param fd   O_PATH of its file; taken
 * @return the node's fd, borrowed until direct_fd_put()
 */
int direct_fd_give(struct direct_node *node, int fd);

/** @param node as direct_fd_get(), but never opens: -1 without an fd */
int direct_fd_try(struct direct_node *node);

/** @param node about to be freed: closes its fd and frees its handle */
void direct_fd_drop(struct direct_node *node);

/**
 * Whether an O_PATH fd is the node's file, when key and type are the same: a
 * number may have been used again since the node's fd was evicted.
 *
 * @param node a node
 * @param fd   O_PATH
 * @return whether it is
 */
bool direct_fd_same(struct direct_node *node, int fd);

/**
 * Whether two files are one, when their keys are the same: names of a lower
 * layer of an overlay are parted when one of them is changed.
 *
 * @param a O_PATH of one
 * @param b O_PATH of the other
 * @return whether they are; true where that cannot be told
 */
bool direct_fd_one(int a, int b);

/** Closes the fd of a node for good, where nobody uses it. @param node whose
 *  file has no name left @return whether it was closed */
bool direct_fd_leave(struct direct_node *node);

/** Gives a node an fd in place of the one it has, and of its handle. Nobody
 *  uses it. @param node a node @param fd taken; -1: none */
void direct_fd_move(struct direct_node *node, int fd);

/** @param dir_fd a readable directory @return whether handles work there */
bool direct_fd_handles(int dir_fd);

/** @param limit how many fds all trees together keep without a user */
void direct_fd_limit(unsigned limit);
/** @return how many O_PATH fds all trees hold now */
unsigned direct_fd_count(void);

/* ---- Names that are not there: workspace_direct_absent.c ---- */

/** @param absent initialised */
void direct_absent_init(struct direct_absent *absent);
/** @param absent ended */
void direct_absent_done(struct direct_absent *absent);

/** Notes that a name is about to be made, and again that it was. @param d the
 *  tree */
void direct_absent_make(struct direct *d);

/**
 * @param dir  a directory
 * @param name in it
 * @param ctx  who asks
 * @return whether it is known that there is no such name
 */
bool direct_absent_knows(struct direct_node *dir, const char *name,
                         const struct ws_ctx *ctx);

/**
 * Notes that a name is not there.
 *
 * @param dir    where
 * @param dir_fd O_PATH of it
 * @param ctx    who has asked
 */
void direct_absent_missed(struct direct_node *dir, int dir_fd,
                          const struct ws_ctx *ctx);

/* ---- Nodes: workspace_direct_nodes.c ---- */

/** @param d its table is made @return 0 or -ENOMEM */
MUST_USE int direct_nodes_init(struct direct *d);
/** @param d its table is freed; no node is left but the root */
void direct_nodes_done(struct direct *d);

/**
 * Finds or makes the node of a file that was just met under a name.
 *
 * @param dir  where it was met
 * @param name under which
 * @param fd   O_PATH of it; taken, also on failure
 * @param attr of it, as on the host
 * @param out  the node with a reference, on success
 * @param err  filled on failure
 * @return 0 or -ENOMEM
 */
MUST_USE int direct_node_meet(struct direct_node *dir, const char *name, int fd,
                              const struct stat *attr, struct ws_node **out,
                              struct err *err);

/**
 * Finds what is about to be moved by us.
 *
 * @param dir    a directory
 * @param dir_fd O_PATH of it
 * @param name   in it
 * @return what was last seen there and is there, with a reference; or NULL
 */
struct ws_node *direct_node_at(struct direct_node *dir, int dir_fd,
                               const char *name);

/**
 * Notes that a name was moved by us.
 *
 * @param move  what was done
 * @param node  what direct_node_at() has found under the old name, borrowed; or
 *              NULL
 * @param to_fd O_PATH of the directory where it is now
 */
void direct_node_moved(const struct ws_move *move, struct ws_node *node,
                       int to_fd);

/**
 * Notes that a file has one more name.
 *
 * @param node the file
 * @param dir  where the name is
 * @param name the name
 */
void direct_node_linked(struct direct_node *node, struct direct_node *dir,
                        const char *name);

/**
 * How far a link may lead up.
 *
 * The kernel follows it from where it holds the link to be. It moves no
 * directory behind its user's back, since one that the sandbox has moved is
 * another node to it where it is met again. So that is what parents here say,
 * but for what has wandered: a link with one more name, or what the sandbox
 * exchanged for another in the moment in which we moved that name. No link
 * leads out of what has wandered, until it is met again.
 *
 * What remains lies with the user of the mount: while one process has read a
 * link and not yet gone up by it, another may move the link's directory to one
 * that is less deep, by the mount. The kernel then goes up from there, as it
 * does on any file system, and so perhaps out of the workspace. The sandbox can
 * neither cause nor see that. Whatever else we do by a name, after another was
 * put there, we do to what is there: in that directory, which is one of the
 * workspace, and never to what a link leads to.
 *
 * @param node  a link
 * @param depth directories between the root and the link, on success
 * @param ups   how many of them it may leave, on success
 * @return 0, or -ESTALE when its place is not known
 */
MUST_USE int direct_node_link_depth(struct direct_node *node, unsigned *depth,
                                    unsigned *ups);

/**
 * Opens a node's file by its last known place.
 *
 * @param node a node
 * @return an O_PATH fd that may be another file, or a negative errno
 */
MUST_USE int direct_node_open_place(struct direct_node *node);

/**
 * The path of a node, as far as it is known.
 *
 * @param d    the tree, whose lock is held
 * @param node of it
 * @param out  the path, the caller's to free, on success
 * @return 0, -ESTALE when its place is not known, -ENOMEM
 */
MUST_USE int direct_node_path_locked(const struct direct *d,
                                     const struct direct_node *node,
                                     char **out);

/**
 * Takes note of a file's attributes: see ws_node_shared().
 *
 * @param node the file
 * @param attr of it, as on the host
 */
void direct_node_saw(struct direct_node *node, const struct stat *attr);

/** @param d the tree, whose lock is held @param node of it @return the
 *  directory where it was seen last, or NULL */
struct direct_node *direct_node_parent_locked(const struct direct *d,
                                              const struct direct_node *node);
/** @param d the tree, whose lock is held @param node found from now by its key
 */
void direct_node_hash_locked(struct direct *d, struct direct_node *node);
/** @param d the tree, whose lock is held @param node not found any more */
void direct_node_unhash_locked(struct direct *d, struct direct_node *node);

/* ---- Slots ---- */

bool direct_busy(struct workspace *ws);
int direct_move(struct workspace *ws, int root, struct err *err);

void direct_node_unhash(struct ws_node *node);
void direct_node_free(struct ws_node *node);

int direct_getattr(struct ws_node *node, struct ws_file *file,
                   const struct ws_ctx *ctx, struct stat *attr,
                   struct err *err);
int direct_setattr(struct ws_node *node, struct ws_file *file, unsigned mask,
                   const struct stat *want, const struct ws_ctx *ctx,
                   struct stat *attr, struct err *err);
int direct_readlink(struct ws_node *node, const struct ws_ctx *ctx, char *out,
                    size_t size, struct err *err);
ssize_t direct_getxattr(struct ws_node *node, const char *name, void *out,
                        size_t size, struct err *err);
ssize_t direct_listxattr(struct ws_node *node, char *out, size_t size,
                         struct err *err);
int direct_setxattr(struct ws_node *node, const char *name, const void *value,
                    size_t size, int flags, struct err *err);
int direct_removexattr(struct ws_node *node, const char *name, struct err *err);

int direct_lookup(struct ws_node *dir, const char *name,
                  const struct ws_ctx *ctx, struct ws_node **out,
                  struct stat *attr, struct err *err);
int direct_mkdir(const struct ws_place *place, struct ws_node **out,
                 struct stat *attr, struct err *err);
int direct_mknod(const struct ws_place *place, struct ws_node **out,
                 struct stat *attr, struct err *err);
int direct_symlink(const struct ws_place *place, const char *target,
                   struct ws_node **out, struct stat *attr, struct err *err);
int direct_create(const struct ws_place *place, int flags,
                  struct ws_node **node, struct ws_file **file,
                  struct stat *attr, struct err *err);
int direct_link(struct ws_node *node, const struct ws_place *place,
                struct stat *attr, struct err *err);
int direct_remove(struct ws_node *dir, const char *name, bool is_dir,
                  const struct ws_ctx *ctx, struct err *err);
struct ws_node *direct_large(struct ws_node *dir, const char *name);
bool direct_leave(struct ws_node *node);
int direct_rename(const struct ws_move *move, struct err *err);

int direct_open(struct ws_node *node, int flags, const struct ws_ctx *ctx,
                struct ws_file **out, struct err *err);
ssize_t direct_read(struct ws_file *file, void *out, size_t size, off_t offset,
                    const struct ws_ctx *ctx, struct err *err);
ssize_t direct_write(struct ws_file *file, const void *data, size_t size,
                     off_t offset, const struct ws_ctx *ctx, struct err *err);
int direct_fsync(struct ws_file *file, bool data_only, const struct ws_ctx *ctx,
                 struct err *err);
int direct_fallocate(struct ws_file *file, int mode, off_t offset, off_t size,
                     const struct ws_ctx *ctx, struct err *err);
off_t direct_lseek(struct ws_file *file, off_t offset, int whence,
                   const struct ws_ctx *ctx, struct err *err);
ssize_t direct_copy_range(struct ws_file *in, off_t in_offset,
                          struct ws_file *out, off_t out_offset, size_t size,
                          const struct ws_ctx *ctx, struct err *err);
int direct_open_later(struct ws_node *node, const struct ws_ctx *ctx,
                      struct ws_file **out, struct err *err);
int direct_file_fd(struct ws_file *file);
enum ws_pass direct_pass(struct ws_file *file, int *fd);
void direct_close(struct ws_file *file);
void direct_lift(struct ws_node *node, ws_lifted_fn *fn, void *arg);
int direct_writers(struct workspace *ws, ws_writer_fn *fn, void *arg);
bool direct_writing(struct workspace *ws);

/**
 * Makes the object of an open file.
 *
 * @param node its node; a reference is taken on success
 * @param fd   taken on success; -1: opened when it is used, for reading
 * @param flags of open(2)
 * @param out  the file, on success
 * @param err  filled on failure
 * @return 0 or -ENOMEM
 */
MUST_USE int direct_file_new(struct ws_node *node, int fd, int flags,
                             struct ws_file **out, struct err *err);
/** @param file of a direct tree @return its object */
struct direct_file *direct_file_of(struct ws_file *file);
/** @param file an open file @param err filled on failure
 *  @return its fd, borrowed, or a negative errno */
MUST_USE int direct_file_data(struct ws_file *file, struct err *err);
/** @param flags of open(2) @return those that the backing file is opened with
 */
int direct_open_flags(int flags);

int direct_opendir(struct ws_node *node, const struct ws_ctx *ctx,
                   struct ws_dir **out, struct err *err);
int direct_readdir(struct ws_dir *dir, off_t offset, ws_entry_fn *fn, void *arg,
                   const struct ws_ctx *ctx, struct err *err);
int direct_fsyncdir(struct ws_dir *dir, bool data_only,
                    const struct ws_ctx *ctx, struct err *err);
void direct_closedir(struct ws_dir *dir);

#endif
