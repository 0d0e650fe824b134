/*
 * The tree of control files as tables: a row a file. Knows no FUSE.
 *
 * A directory lists rows of its own, and may have children that are made at
 * run time (sessions by id, commands by number), all of one row.
 */
#ifndef SESSIONFS_NODE_H
#define SESSIONFS_NODE_H

#include "core/done.h"
#include "core/registry.h"

#include <sys/stat.h>

struct buf;
struct exec;
struct file_ops;
struct node_row;
struct session;

enum {
    NODE_TEXT_MAX = 16 * 1024 * 1024, /* The most bytes of a shown file. */
    NODE_STORE_MAX = 4096,            /* The most bytes of a stored one. */
    NODE_NAME_MAX = 255,
};

/* The mount that a tree belongs to. */
struct node_mount {
    struct registry *registry;
    int64_t started_us; /* clock_wall_us() */
    /* Makes the text of `stats`. */
    int (*stats)(void *arg, struct buf *out, struct err *err);
    void *stats_arg;
};

/* Which file: a value; whoever keeps one keeps references of its own. */
struct node {
    const struct node_row *row;
    struct session *session; /* NULL above sessions/ID. */
    uint64_t exec_n;         /* Of execs/N and below; without a session a
                              * file's number in its directory; of a row that
                              * is NODE_KEYED a checkpoint's; else 0. */
    uint64_t begin;          /* Of a file that loses its oldest: where it began
                              * when it was looked up; each is another file. */
};

/* What a row's functions work on; borrowed for the call. */
struct node_ctx {
    const struct node_mount *mount;
    struct session *session;
    struct exec *exec; /* Set for execs/N and below. */
    uint64_t begin;    /* As in struct node. */
    uint64_t number;   /* The node's exec_n. */
    struct caller caller;
};

/**
 * Makes a file's whole text.
 *
 * @param ctx whose
 * @param out empty; appended to
 * @param err filled on failure
 * @return 0 or a negative errno
 */
typedef int node_show_fn(const struct node_ctx *ctx, struct buf *out,
                         struct err *err);

/**
 * Obeys what one write(2) said.
 *
 * @param ctx  whose
 * @param text trailing blanks and newlines are stripped; borrowed
 * @param done called once, perhaps at once
 * @param arg  given to done
 */
typedef void node_store_fn(const struct node_ctx *ctx, const char *text,
                           done_fn *done, void *arg);

/**
 * Called for each entry of a directory.
 *
 * @param arg  the caller's
 * @param name borrowed
 * @param attr only st_ino and the type in st_mode
 * @param next the offset behind this entry
 * @return false when it did not fit
 */
typedef bool node_entry_fn(void *arg, const char *name, const struct stat *attr,
                           uint64_t next);

/* Children that come and go. All but find and list may be NULL: EPERM. */
struct node_children {
    const struct node_row *row; /* Of each. */
    bool numbered;              /* Their numbers are no sessions'. */
    /* Fills session (with a reference) or exec_n of out. */
    int (*find)(const struct node_ctx *ctx, const char *name, struct node *out,
                struct err *err);
    /* Ascending numbers above `after`, until fn says false. */
    int (*list)(const struct node_ctx *ctx, uint64_t after,
                bool (*fn)(void *arg, uint64_t number, const char *name),
                void *arg, struct err *err);
    int (*make)(const struct node_ctx *ctx, const char *name, struct node *out,
                struct err *err);
    /* The same where it takes time: done is called once, perhaps at once, and
     * find finds it then. */
    void (*start)(const struct node_ctx *ctx, const char *name, done_fn *done,
                  void *arg);
    int (*remove)(const struct node_ctx *ctx, const char *name,
                  struct err *err);
    int (*rename)(const struct node_ctx *ctx, const char *name,
                  const char *new_name, struct err *err);
};

enum node_flags {
    NODE_UNLISTED = 1 << 0,  /* Found by name only. */
    NODE_OPTIONAL = 1 << 1,  /* There only while show succeeds. */
    NODE_NEWS = 1 << 2,      /* poll tells that the text has changed. */
    NODE_WORKSPACE = 1 << 3, /* The top of another part of the tree. */
    NODE_KEYED = 1 << 4,     /* Its number is a checkpoint's. */
    NODE_STEADY = 1 << 5,    /* While it is there nothing of it changes. */
};

struct node_row {
    const char *name;
    unsigned char id;           /* In the inode number; no other row has it. */
    unsigned flags;             /* enum node_flags */
    mode_t mode;                /* Type and permissions. */
    node_show_fn *show;         /* A file's text, or a link's target. */
    node_store_fn *store;       /* NULL, and no ops->write: read-only. */
    const struct file_ops *ops; /* Where show and store do not do. */
    /* Directories. */
    const struct node_row *up;
    const struct node_row *rows; /* Ends with a row without a name. */
    const struct node_children *children;
};

/** The top of the tree. */
extern const struct node_row node_root;

/** @param node a node @param out gets references of its own: node_drop() */
void node_copy(const struct node *node, struct node *out);
/** @param node its references are given back */
void node_drop(struct node *node);

/** @param node a node @return the number of the command that it is about; 0:
 *  it is about none */
uint64_t node_command(const struct node *node);

/**
 * Fills a context for a call.
 *
 * @param mount  the mount
 * @param caller who asks
 * @param node   about which file
 * @param out    filled on success; node_ctx_done() ends it
 * @param err    filled on failure
 * @return 0, or -ENOENT when its session or command is gone
 */
MUST_USE int node_ctx_init(const struct node_mount *mount,
                           const struct caller *caller, const struct node *node,
                           struct node_ctx *out, struct err *err);
/** @param ctx as filled by node_ctx_init() */
void node_ctx_done(struct node_ctx *ctx);

/** @param node a node @return the inode number that stat shows */
uint64_t node_ino(const struct node *node);

/**
 * Finds a child.
 *
 * @param ctx  of the directory
 * @param dir  the directory
 * @param name any bytes
 * @param out  with references, on success: node_drop()
 * @param err  filled on failure
 * @return 0, -ENOENT, -ENAMETOOLONG
 */
MUST_USE int node_find(const struct node_ctx *ctx, const struct node *dir,
                       const char *name, struct node *out, struct err *err);

/**
 * Lists a directory, "." and ".." first.
 *
 * @param ctx    of the directory
 * @param dir    the directory
 * @param offset 0, or a `next` of an earlier call
 * @param fn     called for each entry
 * @param arg    given to fn
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int node_list(const struct node_ctx *ctx, const struct node *dir,
                       uint64_t offset, node_entry_fn *fn, void *arg,
                       struct err *err);

/**
 * The attributes of a file, but its owner.
 *
 * @param ctx  of the file
 * @param node the file
 * @param out  written on success; st_size is what a read would give now
 * @param err  filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int node_stat(const struct node_ctx *ctx, const struct node *node,
                       struct stat *out, struct err *err);

#endif
