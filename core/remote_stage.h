/*
 * Changes of a file that the engine does not have yet: a private, unlinked
 * file of this machine for each file that was written, from the first write
 * until it is sent. Private to core/workspace_remote*.c and core/remote_*.c.
 *
 * Whoever works with one enters it: nobody else is in it then, also while the
 * engine is waited for. What it looks like is told without entering.
 */
#ifndef SESSIONFS_REMOTE_STAGE_H
#define SESSIONFS_REMOTE_STAGE_H

#include "core/workspace_remote.h"

enum {
    /* Of one file. Behind them no file system that stages can be on has
     * anything; so the map of chunks stays small. */
    REMOTE_CHUNKS_MOST = 1 << 26
};

struct remote_stage {
    struct list link;         /* r->staged. By the tree's lock, */
    struct remote_node *node; /* like these. Referenced. */
    const char *path;         /* Of one that has no node but the root, because
                               * it was kept: remote_kept.c. NULL: its node's. */
    bool busy;                /* Somebody has entered. */
    bool sending;             /* A copy of it is on its way: only who reads it
                               * or adds to its end may enter. */
    bool orphan;              /* Its name is gone: it is sent nowhere. */
    bool fresh;               /* The engine has no such file. */
    bool told;                /* All who wrote it know that it was not sent. */
    struct stat attr;         /* As the engine would tell them. */
    uint64_t bytes;           /* On this machine's disk. */

    /* Of who has entered. */
    int fd;
    struct stat was; /* What it was made of; mode 0: there was none. */
    bool any;        /* It replaces whatever is there by now. */
    bool whole;      /* Nothing of what was is left: all is in fd. */
    bool appended;   /* All that was written was written at the end. */
    bool grown;      /* So also while a copy was on its way. */
    off_t tried;     /* A call that sent so much of it had no answer. */
    off_t base;      /* How much of what was shows, where it is not whole. */
    unsigned mask;   /* Attributes that were set. */
    bool *dirty;     /* Chunks that are in fd. */
    uint64_t n_dirty;
    bool changed; /* Something is to be sent: attributes, */
    bool written; /* or content, too. */
};

/* How a stage is entered. */
enum remote_enter {
    REMOTE_FIND = 0,        /* Where there is one. */
    REMOTE_MAKE = 1 << 0,   /* Made of what the engine has, where is none. */
    REMOTE_BESIDE = 1 << 1, /* To read or to append: also while a copy of it
                             * is on its way. */
};

/**
 * Enters a file's stage; waits for who is in it.
 *
 * @param node   a file
 * @param how    of enum remote_enter
 * @param limits deadline and token
 * @param out    the stage; NULL where there is none and none is made
 * @param err    filled on failure
 * @return 0, -ENOENT, -ESTALE, or another negative errno
 */
MUST_USE int remote_stage_enter(struct remote_node *node, unsigned how,
                                const struct limits *limits,
                                struct remote_stage **out, struct err *err);

/**
 * Leaves a stage.
 *
 * @param stage entered
 * @param end   it is over: all is sent, or is to be forgotten; freed then
 */
void remote_stage_leave(struct remote_stage *stage, bool end);

/**
 * Makes the stage of a file that the engine does not have, and enters it.
 *
 * @param node of remote_node_make()
 * @param mode its permissions
 * @param any  it replaces what somebody else may have made meanwhile
 * @param out  the stage, on success
 * @param err  filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int remote_stage_fresh(struct remote_node *node, mode_t mode, bool any,
                                struct remote_stage **out, struct err *err);

/**
 * Tells how a file looks that is not sent yet.
 *
 * @param node a file
 * @param out  written where it has a stage
 * @return whether it has
 */
bool remote_stage_attr(struct remote_node *node, struct stat *out);

/* Of an entered stage; limits and err as everywhere. */

MUST_USE ssize_t remote_stage_read(struct remote_stage *stage, void *out,
                                   size_t size, uint64_t offset,
                                   const struct limits *limits,
                                   struct err *err);
/* append: at the end, wherever that is. */
MUST_USE int remote_stage_write(struct remote_stage *stage, const void *data,
                                size_t size, uint64_t offset, bool append,
                                const struct limits *limits, struct err *err);
MUST_USE int remote_stage_resize(struct remote_stage *stage, off_t size,
                                 const struct limits *limits, struct err *err);
/* Sets attributes but for the size. */
void remote_stage_set(struct remote_stage *stage, unsigned mask,
                      const struct stat *want);
/* Brings all that the engine has of it here. */
MUST_USE int remote_stage_fill(struct remote_stage *stage,
                               const struct limits *limits, struct err *err);
/* It is made of what the engine has now, and nothing else. */
void remote_stage_rebase(struct remote_stage *stage, const struct stat *now);
/* Where the engine has it, or is to have it. */
MUST_USE int remote_stage_path(const struct remote_stage *stage,
                               struct remote_path *out, struct err *err);
/* Lets others read it and append to it, until remote_stage_unshare(); nobody
 * else enters, and what there was stays as it is. */
void remote_stage_share(struct remote_stage *stage);
/* It is entered again, as before. */
void remote_stage_unshare(struct remote_stage *stage);
/* The engine has what it holds, but for what was added since it was shared. */
void remote_stage_sent(struct remote_stage *stage, const struct stat *now);

/* ---- Sending: remote_send.c ---- */

/**
 * Sends what is not sent of a file, and waits until the engine has it.
 *
 * @param node   a file
 * @param limits deadline and token
 * @param err    filled on failure
 * @return 0; -ESTALE: it was changed on both sides, and err says where this
 *         side's version is; or what the engine said: all stays staged then
 */
MUST_USE int remote_send(struct remote_node *node, const struct limits *limits,
                         struct err *err);
/** The same, and not a moment longer: for the end. */
MUST_USE int remote_send_within(struct remote_node *node,
                                const struct limits *limits, struct err *err);
/** The same of a name, where it is staged. */
MUST_USE int remote_send_name(struct remote_node *dir, const char *name,
                              const struct limits *limits, struct err *err);
/** The same of a stage that was entered. */
MUST_USE int remote_send_entered(struct remote_stage *stage,
                                 const struct limits *limits, struct err *err);
/** @param stage to be sent @param limits of who waits @return them with a
 * second more for each MiB */
struct limits remote_send_limits(const struct remote_stage *stage,
                                 const struct limits *limits);

/* ---- Keeping: remote_kept.c ---- */

/**
 * Keeps what an entered stage holds on this machine's disk, until
 * remote_send_kept() has sent it. It is not changed any more.
 *
 * @param stage with something to be sent
 * @param err   filled on failure
 * @return 0 or a negative errno: nothing is kept then
 */
MUST_USE int remote_stage_keep(struct remote_stage *stage, struct err *err);

#endif
