/*
 * The daemon's side of the keeper: a process that makes sandboxes, started at
 * need and again when it has died. With it die all sandboxes it made.
 * Thread-safe.
 */
#ifndef SESSIONFS_LOCAL_LINK_H
#define SESSIONFS_LOCAL_LINK_H

#include "core/cancel.h"
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
    int cgroup; /* All its processes are in there and below; -1: nowhere. */
    int groups[WIRE_CONTROLS]; /* Of version 1, to be removed; or -1. */
    char groups_name[32];
};

/**
 * Starts a keeper.
 *
 * @param limits until it is ready
 * @param out    on success
 * @param err    filled on failure: what this machine lacks, in words
 * @return 0 or a negative errno
 */
MUST_USE int link_open(const struct limits *limits, struct link **out,
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
 * Ends the keeper with all its sandboxes, and waits for that.
 *
 * @param link freed; NULL is fine
 */
void link_close(struct link *link);

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
    int upper;
    int work;
    int lower;
    bool map_lower; /* Its owners become the sandbox's. */
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

#endif
