/*
 * The daemon's side of the keeper: a process that makes sandboxes, started at
 * need and again when it has died. With it die all sandboxes it made. One that
 * an earlier daemon has left is taken over, with the sandboxes and commands
 * that it holds. Thread-safe.
 */
#ifndef SESSIONFS_LOCAL_LINK_H
#define SESSIONFS_LOCAL_LINK_H

#include "core/cancel.h"
#include "core/list.h"
#include "providers/local/wire.h"

#include <stdbool.h>

struct link;

/* A sandbox's ids, as the host counts. */
struct link_ids {
    uint32_t base; /* Its id 0, where it has more than one. */
    uint32_t init; /* Of process 1, whose its groups are. */
    uint32_t user;
    uint32_t group;
};

/* What a sandbox is made of; borrowed. */
struct link_plan {
    const char *name; /* Of its cgroup; never used before. */
    int workspace;
    int rootfs; /* Of the system directories; -1: this machine's own. */
    struct link_ids ids;
    struct wire_quota quota;
};

/* A new sandbox's fds: the caller's. */
struct link_made {
    int sock;   /* To init, not blocking; it says WIRE_READY or _FAILED. */
    int pidfd;  /* Of init. */
    int space;  /* Its mount namespace; -1: it is not to be had. */
    int cgroup; /* All its processes are in there and below; -1: nowhere. */
    int groups[WIRE_CONTROLS]; /* Of version 1, to be removed; or -1. */
    char groups_name[32];
};

/**
 * Takes over the keeper of an earlier daemon, or starts one.
 *
 * @param state_dir whose keeper
 * @param wait_s how long it waits for the next daemon
 * @param limits until it is ready
 * @param out    on success
 * @param err    filled on failure: what this machine lacks, in words
 * @return 0 or a negative errno
 */
MUST_USE int link_open(const char *state_dir, unsigned wait_s,
                       const struct limits *limits, struct link **out,
                       struct err *err);

/**
 * @param link the keeper
 * @return whether sandboxes have but one id, which is our own: we are not root
 */
bool link_one_id(const struct link *link);

/**
 * @param link the keeper
 * @param why  what keeps it from enforcing all limits, or ""; borrowed
 * @return what this machine has
 */
const struct wire_host *link_host(const struct link *link, const char **why);

/**
 * @param link   the keeper
 * @param number of a session
 * @return the ids of its sandbox
 */
struct link_ids link_ids(const struct link *link, uint64_t number);

/**
 * Ends the keeper with all its sandboxes, and waits for that. Nothing can be
 * asked of it then.
 *
 * @param link  the keeper
 * @param leave no: the keeper waits for the next daemon
 */
void link_end(struct link *link, bool leave);

/** @param link ended; freed; NULL is fine */
void link_free(struct link *link);

/* ---- What is held for the next daemon ---- */

/* A box or a command that an earlier daemon has had. */
struct link_held {
    struct list link; /* The link's own. */
    struct wire wire; /* As it was given. */
    int fds[WIRE_FD_MAX];
};

/** @param link the keeper @return the next of them, boxes first, the caller's
 *  to link_held_free(); NULL: there is none */
struct link_held *link_take_held(struct link *link);
/** @param held freed with its fds; NULL is fine */
void link_held_free(struct link_held *held);

/** @param link the keeper @return the group that those of boxes are in,
 *  borrowed; -1: there is none */
int link_cgroup(const struct link *link);

/** @param link the keeper @return a name for a box that no other has */
uint64_t link_name_box(struct link *link);

/**
 * Has a box or a command held, when the daemon should die. Where the keeper
 * does not take it within a moment, it then ends.
 *
 * @param link  the keeper
 * @param wire  borrowed; `held` is filled
 * @param fds   stay the caller's
 * @param count how many
 */
void link_hold(struct link *link, const struct wire *wire, const int *fds,
               size_t count);

/** Has what is held of a box changed; as link_hold(). @param link the keeper
 *  @param held borrowed */
void link_note(struct link *link, const struct wire_held *held);

/** Has a command, or a box with its commands, held no more. Does not wait: what
 *  the keeper has no room for now it is told before anything else. @param link
 *  the keeper @param held borrowed */
void link_drop(struct link *link, const struct wire_held *held);

/**
 * Makes a sandbox; it is not ready yet. Starts a new keeper where the old one
 * has died.
 *
 * @param link   the keeper
 * @param plan   borrowed
 * @param limits deadline and token
 * @param out    written on success
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int link_start(struct link *link, const struct link_plan *plan,
                        const struct limits *limits, struct link_made *out,
                        struct err *err);

/* An overlay's directories; borrowed. */
struct link_overlay {
    int upper; /* -1, and work: nothing can be written. */
    int work;
    int lower;
    int layers;            /* The directory of all layers, */
    const uint64_t *chain; /* and those between, from the top one down: */
    size_t deep;           /* so many. */
    bool map_lower;        /* Its owners become the sandbox's. */
    bool synced;           /* What waits for the disk does. */
    uint32_t id_base;
};

/**
 * Mounts an overlay, attached nowhere.
 *
 * @param link    the keeper; a dead one is replaced
 * @param overlay borrowed
 * @param limits  deadline and token
 * @param out     the mount, on success
 * @param err     filled on failure
 * @return 0, -EINVAL where the directories cannot be layers, or another
 *         negative errno
 */
MUST_USE int link_mount(struct link *link, const struct link_overlay *overlay,
                        const struct limits *limits, int *out, struct err *err);

/**
 * Makes a mount the workspace of a sandbox in whose workspace nothing is open.
 *
 * @param link   the keeper
 * @param space  the sandbox's mount namespace
 * @param mount  as of link_mount()
 * @param limits deadline and token
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int link_move(struct link *link, int space, int mount,
                       const struct limits *limits, struct err *err);

#endif
