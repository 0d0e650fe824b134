/*
 * Inside sessionfs-keeper: the process that makes sandboxes.
 *
 * It has one thread, so that it may clone freely, and waits for nothing but
 * the next request. Each sandbox is a clone of it that never executes another
 * program: the sandbox's process 1. Everything here runs either in the keeper
 * or in such a clone, as the functions say.
 */
#ifndef SESSIONFS_LOCAL_KEEPER_H
#define SESSIONFS_LOCAL_KEEPER_H

#include "core/err.h"

#include <linux/filter.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- filter.c: the system calls that commands have. ---- */

/* Two filters that are installed one on the other. */
struct filter {
    struct sock_fprog allow; /* Which calls there are; the rest is ENOSYS. */
    struct sock_fprog deny;  /* Arguments that allowed calls may not have. */
};

/**
 * Compiles the filters. In the keeper, once.
 *
 * @param out filled on success; filter_done() frees it
 * @param err filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int filter_build(struct filter *out, struct err *err);

/** @param filter as built, or all zero; freed */
void filter_done(struct filter *filter);

/**
 * Puts the filters on the calling process, which has no_new_privs. In a
 * command's process.
 *
 * @param filter as built
 * @return 0 or a negative errno
 */
MUST_USE int filter_install(const struct filter *filter);

/* ---- tree.c: what of this machine a sandbox sees. ---- */

struct tree;

/**
 * Copies the mounts that a sandbox gets, unattached: system directories and
 * devices read-only, and its workspace. In the keeper.
 *
 * @param workspace a directory
 * @param out       on success; tree_close() ends it
 * @param err       filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int tree_open(int workspace, struct tree **out, struct err *err);

/** @param tree freed; NULL is fine */
void tree_close(struct tree *tree);

/**
 * Builds the root directory out of them, moves into it and leaves everything
 * else behind. In the sandbox, privileged there, alone in new namespaces.
 *
 * @param tree as opened
 * @param err  filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int tree_enter(const struct tree *tree, struct err *err);

/* ---- idmap.c, overlay.c: a workspace of layers. ---- */

/**
 * Copies the mount of a directory, unattached and read-only, so that its
 * owners are a sandbox's. In the keeper.
 *
 * @param dir  of this machine
 * @param base host id of the sandbox's id 0
 * @param out  the mount, on success
 * @param err  filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int idmap_copy(int dir, uint32_t base, int *out, struct err *err);

/* The layers of an overlay; directories, borrowed. */
struct overlay_plan {
    int upper;        /* What the session writes. */
    int work;         /* Empty; no mount has used it before. */
    int lower;        /* What lies below. */
    bool map_lower;   /* Its owners become the sandbox's (idmap_copy()). */
    uint32_t id_base; /* Host id of the sandbox's id 0. */
};

/**
 * Mounts an overlay that is attached nowhere. In the keeper.
 *
 * @param plan borrowed
 * @param out  the mount, on success; it ends with the last fd in it
 * @param err  filled on failure
 * @return 0, -EINVAL where the directories cannot be layers, or another
 *         negative errno
 */
MUST_USE int overlay_mount(const struct overlay_plan *plan, int *out,
                           struct err *err);

/* ---- sandbox.c: a sandbox's process 1 up to its lock-down. ---- */

/* What a sandbox is made of; borrowed. */
struct sandbox_plan {
    int workspace;    /* A directory of this machine. */
    int cgroup;       /* It is born into this group. */
    uint32_t id_base; /* Host id of its id 0. */
    const struct filter *filter;
};

/* A new sandbox; fds are the caller's. */
struct sandbox_made {
    int sock;  /* To init, which says WIRE_READY or WIRE_FAILED next. */
    int pidfd; /* Of init. */
};

/**
 * Starts a sandbox and returns before it is ready. In the keeper.
 *
 * @param plan borrowed
 * @param out  written on success
 * @param err  filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int sandbox_start(const struct sandbox_plan *plan,
                           struct sandbox_made *out, struct err *err);

/**
 * Finds out whether this machine lets us make sandboxes. In the keeper.
 *
 * @param err filled on failure: what is missing, in words
 * @return 0 or a negative errno
 */
MUST_USE int sandbox_probe(struct err *err);

/* ---- init.c: a sandbox's process 1 in service. ---- */

/**
 * Runs commands and reaps processes until the socket ends; never returns.
 *
 * @param sock   to the daemon
 * @param filter for commands
 */
NORETURN void init_serve(int sock, const struct filter *filter);

#endif
