/*
 * Inside of the tree over a provider's file calls. Private to
 * core/workspace_remote*.c.
 *
 * Names, attributes and listings are kept for a second (remote_cache.h), and
 * no longer than until a command ends. A node is a path: a rename through us
 * moves it with all below it. What the engine renames by itself is gone under
 * the old path and found under the new one. A file that is removed or replaced
 * while it is open can no longer be reached: -ESTALE. All files are shown as
 * the mounting user's, since no call tells the default user.
 */
#ifndef SESSIONFS_WORKSPACE_REMOTE_H
#define SESSIONFS_WORKSPACE_REMOTE_H

#include "core/list.h"
#include "core/remote_cache.h"
#include "core/workspace_impl.h"

enum {
    REMOTE_PATH_SIZE = 4096
};

struct remote_node {
    struct ws_node base;
    mode_t type;

    /* By the tree's lock. */
    struct remote_node *next;
    struct remote_node *parent; /* Referenced; NULL: the root. */
    char *name;
    bool gone; /* Removed or replaced: not in the table. */
};

/* Who was asked for last, to see a walk. */
struct remote_walk {
    char path[REMOTE_PATH_SIZE]; /* The last directory that was told. */
    int64_t at_ms;
    char wide[REMOTE_PATH_SIZE]; /* A tree that is too large to be told. */
    int64_t wide_until_ms;
};

struct remote {
    struct workspace base;
    struct provider *provider;
    const struct provider_files *files;
    struct sandbox sandbox; /* All in it is owned. */
    struct instance instance;
    struct ws_view view;
    struct remote_node root;
    struct remote_cache *cache;

    /* By base.lock. */
    struct list loads; /* Of directories that are being told. */
    struct remote_walk walk;
    unsigned calls; /* Of the engine, under way. */
    struct remote_node **buckets;
    size_t n_buckets; /* A power of two. */
    size_t n_nodes;
    bool appending;   /* Somebody finds the end of a file and writes there. */
    struct cond turn; /* Something that somebody may wait for has ended. */
};

struct remote_file {
    struct ws_file base; /* First. */
    int flags;
};

/** @param ws a remote tree @return its object */
struct remote *remote_of(struct workspace *ws);
/** @param node of a remote tree @return its object */
struct remote_node *remote_node_of(struct ws_node *node);
/** @param node a node @return its tree */
struct remote *remote_tree(const struct remote_node *node);

/** A path as the provider takes it. */
struct remote_path {
    char text[REMOTE_PATH_SIZE];
};

/* ---- Calls, names and attributes: remote_walk.c ---- */

/**
 * Waits for r->turn, for a short while at most.
 *
 * @param r      its lock is held
 * @param limits deadline and token
 * @param err    filled on failure
 * @return 0: look again; -ETIMEDOUT, -ECANCELED
 */
MUST_USE int remote_wait(struct remote *r, const struct limits *limits,
                         struct err *err) REQUIRES(r->base.lock);

/**
 * Begins a call of the engine, when few enough are under way.
 *
 * @param r      the tree
 * @param limits deadline and token
 * @param err    filled on failure
 * @return 0, and remote_end() follows; -ETIMEDOUT, -ECANCELED
 */
MUST_USE int remote_begin(struct remote *r, const struct limits *limits,
                          struct err *err);
/** @param r the tree @param rc what the slot said @param err filled where the
 *  slot forgot to @return rc */
MUST_USE ssize_t remote_end(struct remote *r, ssize_t rc, struct err *err);

/**
 * The engine's attributes of a file, as known or asked for.
 *
 * @param r      the tree
 * @param path   of the file
 * @param limits deadline and token
 * @param out    written on success
 * @param err    filled on failure
 * @return 0, -ENOENT, or what the engine said
 */
MUST_USE int remote_attr(struct remote *r, const char *path,
                         const struct limits *limits, struct stat *out,
                         struct err *err);

/**
 * The engine's entries of a directory, as known or asked for.
 *
 * @param r      the tree
 * @param dir    path of the directory
 * @param limits deadline and token
 * @param fn     called for each; calls nothing of the tree
 * @param arg    given to fn
 * @param err    filled on failure
 * @return 0, what fn said, or what the engine said
 */
MUST_USE int remote_list(struct remote *r, const char *dir,
                         const struct limits *limits, provider_entry_fn *fn,
                         void *arg, struct err *err);

/* ---- Nodes: workspace_remote_nodes.c ---- */

/** @param r its table is made @return 0 or -ENOMEM */
MUST_USE int remote_nodes_init(struct remote *r);
/** @param r its table is freed */
void remote_nodes_done(struct remote *r);

/**
 * The path of a node, or of a name below it.
 *
 * @param node a node
 * @param name below it, or NULL
 * @param out  written on success
 * @param err  filled on failure
 * @return 0, -ESTALE when it is gone, -ENAMETOOLONG
 */
MUST_USE int remote_path(struct remote_node *node, const char *name,
                         struct remote_path *out, struct err *err);

/**
 * Finds or makes the node of a file that the engine has told of.
 *
 * @param dir  its directory
 * @param name its name
 * @param attr as the engine told it; changed to what the mount shows
 * @param out  the node with a reference, on success
 * @param err  filled on failure
 * @return 0, -EIO for attributes that make no sense, -ENOMEM
 */
MUST_USE int remote_node_meet(struct remote_node *dir, const char *name,
                              struct stat *attr, struct ws_node **out,
                              struct err *err);

/**
 * Turns the attributes that an engine told into what the mount shows.
 *
 * @param node whose
 * @param attr changed in place
 * @param err  filled on failure
 * @return 0, -EIO for attributes that make no sense
 */
MUST_USE int remote_show(const struct remote_node *node, struct stat *attr,
                         struct err *err);

/**
 * The inode number that is shown for a name.
 *
 * @param dir  its directory
 * @param name its name
 * @param ino  what the engine told, 0: nothing
 */
uint64_t remote_ino(struct remote_node *dir, const char *name, uint64_t ino);

/** @param dir a directory @param name that was removed in it */
void remote_node_removed(struct remote_node *dir, const char *name);

/** @param move that was done */
void remote_node_moved(const struct ws_move *move);

/** @param node a node @return the directories between the root and it */
unsigned remote_depth(struct remote_node *node);

/**
 * Gives a node the newest of its names. Whoever links a file and removes the
 * first name has it under the second; the first is found again by lookup.
 *
 * @param node that was linked
 * @param dir  where
 * @param name the new name
 */
void remote_node_linked(struct remote_node *node, struct remote_node *dir,
                        const char *name);

void remote_node_unhash(struct ws_node *node);
void remote_node_free(struct ws_node *node);

/* ---- Open files and directories: workspace_remote_files.c ---- */

int remote_open(struct ws_node *node, int flags, const struct ws_ctx *ctx,
                struct ws_file **out, struct err *err);
ssize_t remote_read(struct ws_file *file, void *out, size_t size, off_t offset,
                    const struct ws_ctx *ctx, struct err *err);
ssize_t remote_write(struct ws_file *file, const void *data, size_t size,
                     off_t offset, const struct ws_ctx *ctx, struct err *err);
int remote_fsync(struct ws_file *file, bool data_only, const struct ws_ctx *ctx,
                 struct err *err);
int remote_fallocate(struct ws_file *file, int mode, off_t offset, off_t size,
                     const struct ws_ctx *ctx, struct err *err);
off_t remote_lseek(struct ws_file *file, off_t offset, int whence,
                   const struct ws_ctx *ctx, struct err *err);
ssize_t remote_copy_range(struct ws_file *in, off_t in_offset,
                          struct ws_file *out, off_t out_offset, size_t size,
                          const struct ws_ctx *ctx, struct err *err);
int remote_file_fd(struct ws_file *file);
void remote_close(struct ws_file *file);
int remote_opendir(struct ws_node *node, const struct ws_ctx *ctx,
                   struct ws_dir **out, struct err *err);
int remote_readdir(struct ws_dir *dir, off_t offset, ws_entry_fn *fn, void *arg,
                   const struct ws_ctx *ctx, struct err *err);
int remote_fsyncdir(struct ws_dir *dir, bool data_only,
                    const struct ws_ctx *ctx, struct err *err);
void remote_closedir(struct ws_dir *dir);

#endif
