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
#include "core/remote_data.h"
#include "core/workspace_impl.h"
#include "core/ws_inos.h"

enum {
    REMOTE_PATH_SIZE = 4096
};

struct remote_stage;

struct remote_node {
    struct ws_node base;
    mode_t type;

    /* By the tree's lock. */
    uint64_t theirs; /* The engine's number; 0: not known, or none. */
    struct remote_stage *stage; /* What is not sent yet; NULL: all is. */
    unsigned opens;             /* Handles. */
    unsigned moving;            /* Renames of the directory, under way. */
    struct remote_node *next;
    struct remote_node *parent; /* Referenced; NULL: the root. */
    char *name;
    bool gone;  /* Removed or replaced: not in the table. */
    bool aside; /* Not sent, on this side alone: remote_aside.h. */
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
    struct remote_data *data;
    struct workers *ahead;   /* Fetch what is not asked for yet; freed first. */
    struct workers *listers; /* Have directories told; freed first, too. */
    struct cancel end;       /* Of what they do. */
    atomic_int aside; /* The directory of what was put aside; -1: none. */

    /* By base.lock. */
    struct list loads;   /* Of directories that are being told. */
    struct list fetches; /* Of chunks that are being fetched. */
    struct list staged;  /* Of struct remote_stage, all that are attached. */
    uint64_t staged_bytes;
    bool contested;       /* Others make files, too. */
    struct ws_inos *inos; /* Of files that were made here: those of the
                           * engine came later. */
    bool has_inos;        /* The engine tells numbers. */
    struct remote_walk walk;
    unsigned calls;           /* Of the engine, under way. */
    atomic_bool halves_clean; /* Or somebody has tried: remote_halves.h. */
    bool sends_kept;          /* Somebody sends what is kept. */
    unsigned kept_rounds;     /* How often that failed, one after another. */
    uint64_t kept_tried;      /* The last one that was refused. */
    struct remote_node **buckets;
    size_t n_buckets; /* A power of two. */
    size_t n_nodes;
    bool appending; /* Somebody finds the end of a file and writes there. */
    char small_dir[REMOTE_PATH_SIZE]; /* Where a small file was missing last, */
    int64_t small_ms;                 /* and when; */
    unsigned small_n; /* how many were fetched with it then; 0: it alone. */
    char small_mark[REMOTE_PATH_SIZE]; /* Is to be read before more follows. */
    struct cond turn; /* Something that somebody may wait for has ended. */
};

struct remote_file {
    struct ws_file base; /* First. */
    int flags;
    int aside;      /* Of a file that was put aside, else -1. */
    uint64_t next;  /* By the tree's lock: the chunk behind the last one that */
    uint64_t ahead; /* was read, and how many more were fetched with it. */
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

/* ---- Renames of directories: remote_moves.c ---- */

/**
 * Begins a rename of a node: of a directory, nobody sends what lies below it
 * meanwhile, since that would go to the old path.
 *
 * @param node   moves, with all below it; NULL or a file is fine
 * @param limits deadline and token
 * @param err    filled on failure
 * @return 0, and remote_move_end() follows; -ETIMEDOUT, -ECANCELED
 */
MUST_USE int remote_move_begin(struct remote_node *node,
                               const struct limits *limits, struct err *err);
/** @param node as given to remote_move_begin() */
void remote_move_end(struct remote_node *node);
/** @param r its lock is held @param node a node @return whether a directory
 *  that it lies in is being renamed */
bool remote_is_moving(const struct remote *r, const struct remote_node *node)
    REQUIRES(r->base.lock);
/**
 * Whether a node has been moved, or is being moved now, which is waited for.
 *
 * @param node   a node
 * @param path   that it had
 * @param limits deadline and token
 * @return whether it has another path by now
 */
bool remote_has_moved(struct remote_node *node, const char *path,
                      const struct limits *limits);

/* ---- Content: remote_read.c ---- */

/* What is read of a file. Borrowed. */
struct remote_range {
    const char *path;
    const struct stat *attr; /* As the engine tells them. */
    uint64_t ahead;          /* Chunks to be fetched besides. */
};

/**
 * Reads content as the engine has it, kept or fetched.
 *
 * @param r      the tree
 * @param range  of which file
 * @param out    written
 * @param size   of out
 * @param offset in the file
 * @param limits deadline and token
 * @param err    filled on failure
 * @return bytes, fewer at the end only, or a negative errno
 */
MUST_USE ssize_t remote_content(struct remote *r,
                                const struct remote_range *range, void *out,
                                size_t size, uint64_t offset,
                                const struct limits *limits, struct err *err);

enum {
    REMOTE_BATCH_MOST = 256
};

/* A run of chunks that is being fetched. */
struct remote_fetch {
    struct list link; /* r->fetches */
    const char *path;
    uint64_t first, n;
};

/* Small files that are fetched at once. */
struct remote_batch {
    struct remote *r;
    size_t n;
    uint64_t bytes; /* Of all, as far as is known. */
    char *paths[REMOTE_BATCH_MOST];
    struct remote_fetch fetches[REMOTE_BATCH_MOST];
};

/**
 * Adds a file to a batch, which whoever reads it waits for from now on.
 *
 * @param batch zeroed at first but for r
 * @param path  taken on success
 * @param attr  its attributes
 * @return whether it was added: it is not here, and nobody fetches it
 */
bool remote_batch_add(struct remote_batch *batch, char *path,
                      const struct stat *attr);

/** @param batch fetched and kept, and freed; whoever reads a file is told what
 *  is wrong with it @param limits deadline and token */
void remote_batch_fetch(struct remote_batch *batch,
                        const struct limits *limits);
/** @param batch freed, and not fetched */
void remote_batch_free(struct remote_batch *batch);

/**
 * Fetches the small files that follow one, where it looks as if they were read
 * next. Waits for nothing.
 *
 * @param r       the tree
 * @param path    of a small file that is about to be read
 * @param missing it is not kept here
 */
void remote_read_ahead(struct remote *r, const char *path, bool missing);

/** The same from the engine alone, kept nowhere. */
MUST_USE ssize_t remote_read_at(struct remote *r, const char *path, void *out,
                                size_t size, uint64_t offset,
                                const struct limits *limits, struct err *err);

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
 * Makes the node of a file that the engine does not have yet.
 *
 * @param dir  its directory
 * @param name its name
 * @param out  the node with a reference, on success
 * @param err  filled on failure
 * @return 0, -EEXIST where there is one that is not sent either, -ENOMEM
 */
MUST_USE int remote_node_make(struct remote_node *dir, const char *name,
                              struct remote_node **out, struct err *err);
/** @param node whose content was sent @param now as the engine has it */
void remote_node_sent(struct remote_node *node, const struct stat *now);
/** @param dir a directory @param name in it @return its node with a reference,
 *  where there is one */
struct remote_node *remote_node_find(struct remote_node *dir, const char *name);

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

/* ---- Names and attributes: workspace_remote.c, workspace_remote_names.c,
 * as struct workspace_ops ---- */

/* Forgets what was known of a file that is about to be, or was, changed, and of
 * its other names, which nobody can tell. */
void remote_forget(struct remote *r, const char *path);
/* Makes a directory, of which no node is made. */
MUST_USE int remote_make_dir(struct remote *r, const char *path,
                             const struct limits *limits, struct err *err);
/* For slots that a provider may lack: -EOPNOTSUPP. */
int remote_cannot(struct err *err);
/* Sets attributes but for the size and owners. */
void remote_apply(struct stat *attr, unsigned mask, const struct stat *want);

int remote_lookup(struct ws_node *dir, const char *name,
                  const struct ws_ctx *ctx, struct ws_node **out,
                  struct stat *attr, struct err *err);
int remote_getattr(struct ws_node *node, struct ws_file *file,
                   const struct ws_ctx *ctx, struct stat *attr,
                   struct err *err);
int remote_mkdir(const struct ws_place *place, struct ws_node **out,
                 struct stat *attr, struct err *err);
int remote_mknod(const struct ws_place *place, struct ws_node **out,
                 struct stat *attr, struct err *err);
int remote_symlink(const struct ws_place *place, const char *target,
                   struct ws_node **out, struct stat *attr, struct err *err);
int remote_link(struct ws_node *node, const struct ws_place *place,
                struct stat *attr, struct err *err);
int remote_remove(struct ws_node *dir, const char *name, bool is_dir,
                  const struct ws_ctx *ctx, struct err *err);
int remote_rename(const struct ws_move *move, struct err *err);
int remote_create(const struct ws_place *place, int flags,
                  struct ws_node **node, struct ws_file **file,
                  struct stat *attr, struct err *err);

/* ---- Whole files by small calls: remote_calls.c ---- */

/* A part of a private file. */
struct remote_piece {
    int fd;
    uint64_t offset, end;
};

/**
 * Writes a part of a file in its place.
 *
 * @param r      the tree
 * @param path   of the file
 * @param piece  what to write; it goes where it lies
 * @param limits deadline and token
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int remote_write_piece(struct remote *r, const char *path,
                                const struct remote_piece *piece,
                                const struct limits *limits, struct err *err);

/** As the slot `put`, which the provider lacks; put->attr has the size. */
MUST_USE int remote_put_by_calls(struct remote *r, const char *path,
                                 const struct provider_put *put,
                                 const struct limits *limits, struct stat *now,
                                 struct err *err);

/* ---- All that is staged: remote_sync.c, as struct workspace_ops ---- */

bool remote_unsent(struct workspace *ws, struct ws_file *file);
int remote_sync(struct workspace *ws, const struct limits *limits,
                struct err *err);
void remote_end_all(struct workspace *ws, const struct limits *limits,
                    const struct ws_told *told);
void remote_keep(struct ws_file *file, const struct ws_told *told);
int remote_send_kept(struct workspace *ws, const struct limits *limits,
                     const struct ws_told *told, struct err *err);

/* ---- Open files and directories: workspace_remote_files.c,
 * workspace_remote_dirs.c ---- */

/** @param node a file @param flags of open @param out the handle, on success
 *  @param err filled on failure @return 0 or -ENOMEM */
MUST_USE int remote_file_new(struct ws_node *node, int flags,
                             struct ws_file **out, struct err *err);
int remote_open(struct ws_node *node, int flags, const struct ws_ctx *ctx,
                struct ws_file **out, struct err *err);
ssize_t remote_read(struct ws_file *file, void *out, size_t size, off_t offset,
                    const struct ws_ctx *ctx, struct err *err);
ssize_t remote_write(struct ws_file *file, const void *data, size_t size,
                     off_t offset, const struct ws_ctx *ctx, struct err *err);
int remote_flush(struct ws_file *file, const struct ws_ctx *ctx,
                 struct err *err);
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
