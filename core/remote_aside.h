/*
 * Files that were written and that the engine will not take: put aside on this
 * machine, where commands need not wait for them. They show in the top
 * directory of the workspace, as NAME.unsent-TIME, to be read, moved to where
 * the engine takes them, or removed; the engine has none of them. They lie
 * under these names in the session's directory, for the next daemon, too.
 */
#ifndef SESSIONFS_REMOTE_ASIDE_H
#define SESSIONFS_REMOTE_ASIDE_H

#include "core/remote_kept.h"

/** @param r finds what an earlier tree has put aside */
void remote_aside_init(struct remote *r);
/** @param r closes what it has open for that */
void remote_aside_done(struct remote *r);

/**
 * Puts aside what was kept.
 *
 * @param r      the tree
 * @param kept   cannot be sent; what is missing of it is fetched where it can
 *               be
 * @param limits deadline and token
 * @param err    why it cannot be sent; says on success where it is, too
 * @return 0 or a negative errno: it is where it was, then
 */
MUST_USE int remote_aside_put(struct remote *r, struct remote_kept *kept,
                              const struct limits *limits, struct err *err);

/** The same of one that cannot be read as such: its bytes, and its note.
 *  @param r the tree @param dir of remote_kept_open() @param n its number
 *  @param err as in remote_aside_put() @return 0 or a negative errno */
MUST_USE int remote_aside_put_raw(struct remote *r, int dir, uint64_t n,
                                  struct err *err);

/**
 * Finds one.
 *
 * @param dir  a directory
 * @param name in it
 * @param out  the node with a reference, where there is one
 * @param attr as the mount shows it
 * @return whether there is
 */
bool remote_aside_find(struct remote_node *dir, const char *name,
                       struct ws_node **out, struct stat *attr);
/** @param node a node @return whether its file is one */
bool remote_is_aside(struct remote_node *node);

/* Of a node that is one, as struct workspace_ops. */

MUST_USE int remote_aside_attr(struct remote_node *node, struct stat *out,
                               struct err *err);
MUST_USE int remote_aside_open(struct remote_node *node, int flags, int *fd,
                               struct err *err);
MUST_USE int remote_aside_remove(struct remote_node *node, struct err *err);
/* The engine has it under its new name, or it stays. */
MUST_USE int remote_aside_move(const struct ws_move *move,
                               struct remote_node *node, struct err *err);

/** @param r the tree @param fn told of each, with its type @param arg given to
 *  fn @return 0 or what fn said */
MUST_USE int remote_aside_list(struct remote *r, provider_entry_fn *fn,
                               void *arg);

#endif
