/*
 * What the implementations of core/workspace.h share: objects they embed and
 * the table of functions behind ws_*(). Private to core/workspace*.c.
 *
 * core/workspace.c checks names and flags before it calls a slot, so slots see
 * good ones only. Slots fill err exactly on failure.
 */
#ifndef SESSIONFS_WORKSPACE_IMPL_H
#define SESSIONFS_WORKSPACE_IMPL_H

#include "core/mutex.h"
#include "core/workspace.h"

#include <stdatomic.h>

struct workspace {
    const struct workspace_ops *ops;
    atomic_uint refs;
    bool fixed;
    atomic_uint shared_writers; /* Open files: see ws_shared_written(). */
    struct mutex lock;    /* For the references of nodes and their table. */
    struct ws_node *root; /* Lives as long as the tree, referenced or not. */
};

struct ws_node {
    struct workspace *tree;
    uint64_t ino;  /* As the mount shows it; never changes. */
    unsigned refs; /* By tree->lock. While not 0, one of the tree's is ours. */
    atomic_bool shared; /* See ws_node_shared(). */
};

/* A file or directory holds a reference of its node. */
struct ws_file {
    struct ws_node *node;
};

struct ws_dir {
    struct ws_node *node;
};

/* Where a new name goes and who makes it. */
struct ws_place {
    struct ws_node *dir;
    const char *name;
    mode_t mode; /* With the type for mknod. */
    const struct ws_ctx *ctx;
};

/* The two ends of a rename. */
struct ws_move {
    struct ws_node *from;
    const char *name;
    struct ws_node *to;
    const char *new_name;
    unsigned flags;
    const struct ws_ctx *ctx;
};

struct workspace_ops {
    bool blocks;

    void (*changed)(struct workspace *); /* NULL: it keeps nothing. */
    /* NULL, like the next four and flush: it stages nothing. */
    bool (*unsent)(struct workspace *, struct ws_file *);
    int (*sync)(struct workspace *, const struct limits *, struct err *);
    void (*end)(struct workspace *, const struct limits *,
                const struct ws_told *);
    void (*keep)(struct ws_file *, const struct ws_told *);
    int (*send_kept)(struct workspace *, const struct limits *,
                     const struct ws_told *, struct err *);
    void (*contested)(struct workspace *, bool); /* NULL: all the same. */
    void (*free)(struct workspace *);
    /* Takes an unreferenced node out of the table; tree->lock is held. */
    void (*node_unhash)(struct ws_node *);
    void (*node_free)(struct ws_node *);

    int (*lookup)(struct ws_node *dir, const char *name, const struct ws_ctx *,
                  struct ws_node **, struct stat *, struct err *);
    int (*getattr)(struct ws_node *, struct ws_file *, const struct ws_ctx *,
                   struct stat *, struct err *);
    int (*setattr)(struct ws_node *, struct ws_file *, unsigned mask,
                   const struct stat *want, const struct ws_ctx *,
                   struct stat *, struct err *);
    int (*readlink)(struct ws_node *, const struct ws_ctx *, char *out,
                    size_t size, struct err *);
    int (*mkdir)(const struct ws_place *, struct ws_node **, struct stat *,
                 struct err *);
    int (*mknod)(const struct ws_place *, struct ws_node **, struct stat *,
                 struct err *);
    int (*symlink)(const struct ws_place *, const char *target,
                   struct ws_node **, struct stat *, struct err *);
    int (*link)(struct ws_node *, const struct ws_place *, struct stat *,
                struct err *);
    int (*remove)(struct ws_node *dir, const char *name, bool is_dir,
                  const struct ws_ctx *, struct err *);
    struct ws_node *(*large)(struct ws_node *dir, const char *name);
    bool (*leave)(struct ws_node *);
    int (*rename)(const struct ws_move *, struct err *);

    int (*open)(struct ws_node *, int flags, const struct ws_ctx *,
                struct ws_file **, struct err *);
    int (*create)(const struct ws_place *, int flags, struct ws_node **,
                  struct ws_file **, struct stat *, struct err *);
    ssize_t (*read)(struct ws_file *, void *out, size_t size, off_t offset,
                    const struct ws_ctx *, struct err *);
    ssize_t (*write)(struct ws_file *, const void *data, size_t size,
                     off_t offset, const struct ws_ctx *, struct err *);
    int (*flush)(struct ws_file *, const struct ws_ctx *, struct err *);
    int (*fsync)(struct ws_file *, bool data_only, const struct ws_ctx *,
                 struct err *);
    int (*fallocate)(struct ws_file *, int mode, off_t offset, off_t size,
                     const struct ws_ctx *, struct err *);
    off_t (*lseek)(struct ws_file *, off_t offset, int whence,
                   const struct ws_ctx *, struct err *);
    ssize_t (*copy_range)(struct ws_file *in, off_t in_offset,
                          struct ws_file *out, off_t out_offset, size_t size,
                          const struct ws_ctx *, struct err *);
    int (*file_fd)(struct ws_file *);
    /* NULL: as open for reading, and not at all. */
    int (*open_later)(struct ws_node *, const struct ws_ctx *,
                      struct ws_file **, struct err *);
    enum ws_pass (*pass)(struct ws_file *, int *fd);
    void (*close)(struct ws_file *);
    /* NULL: a change moves nothing else. */
    void (*lift)(struct ws_node *, ws_lifted_fn *, void *arg);
    /* NULL: nothing is written but through us. */
    int (*writers)(struct workspace *, ws_writer_fn *, void *arg);
    bool (*writing)(struct workspace *);
    /* NULL, both: it cannot be moved. The fd is taken on success. */
    bool (*busy)(struct workspace *);
    int (*move)(struct workspace *, int root, struct err *);

    int (*opendir)(struct ws_node *, const struct ws_ctx *, struct ws_dir **,
                   struct err *);
    int (*readdir)(struct ws_dir *, off_t offset, ws_entry_fn *, void *arg,
                   const struct ws_ctx *, struct err *);
    int (*fsyncdir)(struct ws_dir *, bool data_only, const struct ws_ctx *,
                    struct err *);
    void (*closedir)(struct ws_dir *);

    int (*statfs)(struct workspace *, const struct ws_ctx *, struct statvfs *,
                  struct err *);

    /* Names begin with "user.". All four NULL: there are no xattrs. */
    ssize_t (*getxattr)(struct ws_node *, const char *name, void *out,
                        size_t size, struct err *);
    ssize_t (*listxattr)(struct ws_node *, char *out, size_t size,
                         struct err *);
    int (*setxattr)(struct ws_node *, const char *name, const void *value,
                    size_t size, int flags, struct err *);
    int (*removexattr)(struct ws_node *, const char *name, struct err *);
};

/**
 * Fills a tree's base; it has one reference.
 *
 * @param ws   written
 * @param ops  static
 * @param root a node that the implementation owns; its tree is set, and it
 *             starts without references
 */
void ws_init(struct workspace *ws, const struct workspace_ops *ops,
             struct ws_node *root);

/** @param ws a tree that ws_init() filled; not freed */
void ws_done(struct workspace *ws);

/**
 * Fills a node's base; it has one reference, and holds one of its tree.
 *
 * @param node written
 * @param ws   its tree
 * @param ino  as the mount shows it
 */
void ws_node_init(struct ws_node *node, struct workspace *ws, uint64_t ino);

/** @param node one more reference; its tree's lock is held @return node */
struct ws_node *ws_node_ref_locked(struct ws_node *node);

/**
 * Decides what a link's reader may see (mount.md, "Links").
 *
 * @param target what is stored; rewritten in place where it is absolute and
 *               lies in the workspace
 * @param size   room of target
 * @param depth  directories between the root and the link
 * @param ups    how many of them a reader may leave: depth, or fewer where the
 *               kernel may hold the link to be elsewhere
 * @param path   of the workspace as the sandbox sees it, or NULL
 * @return 0, -EACCES when it leads outside, -ENAMETOOLONG
 */
MUST_USE int ws_link_check(char *target, size_t size, unsigned depth,
                           unsigned ups, const char *path);

/* How ids of the sandbox are shown (mount.md, "Ids"). */
struct ws_ids {
    uint32_t count; /* Ids 0 … count - 1 exist; */
    uint32_t user;  /* the default user, */
    uint32_t group; /* and group, */
    uid_t uid;      /* are shown as this user */
    gid_t gid;      /* and this group. */
};

enum {
    WS_ID_NOBODY = 65534
};

/** @param ids the map @param id of the sandbox @return what the mount shows */
uid_t ws_uid_shown(const struct ws_ids *ids, uint32_t id);
/** @param ids the map @param id of the sandbox @return what the mount shows */
gid_t ws_gid_shown(const struct ws_ids *ids, uint32_t id);

/**
 * Maps an id that the mount shows back.
 *
 * @param ids the map
 * @param uid as the mount shows it
 * @param out the sandbox's, on success
 * @param err filled on failure
 * @return 0 or -EPERM
 */
MUST_USE int ws_uid_inside(const struct ws_ids *ids, uid_t uid, uint32_t *out,
                           struct err *err);
/**
 * Maps a group id that the mount shows back.
 *
 * @param ids the map
 * @param gid as the mount shows it
 * @param out the sandbox's, on success
 * @param err filled on failure
 * @return 0 or -EPERM
 */
MUST_USE int ws_gid_inside(const struct ws_ids *ids, gid_t gid, uint32_t *out,
                           struct err *err);

/**
 * The inode number that the mount shows.
 *
 * @param number of the session; with a checkpoint's above it, for the trees
 *               of those
 * @param ino    in the backing tree
 * @return never 0, and never one of the mount's own files
 */
uint64_t ws_ino_shown(uint64_t number, uint64_t ino);

#endif
