/*
 * One run of a sandbox: the processes below one init, from its start to its
 * end. A sandbox that runs again after that is another box. Shared by
 * reference; thread-safe where nothing else is said.
 */
#ifndef SESSIONFS_LOCAL_BOX_H
#define SESSIONFS_LOCAL_BOX_H

#include "core/cancel.h"
#include "core/list.h"
#include "core/mutex.h"
#include "providers/local/link.h"

#include <stdatomic.h>

/* The cgroup of a command; it can be removed when no process is left in it. */
struct box_leftover {
    struct list link;
    char name[32];
};

/* The cgroup of the next command, made ahead. */
struct box_group {
    struct box_leftover *name;
    int fd;
};

struct box {
    struct list link;    /* The registry's own. */
    struct link *keeper; /* It is held there, */
    uint64_t name_held;  /* by this name. */
    uint64_t number;     /* Of the session. */
    struct link_ids ids;
    struct wire_quota quota;
    int sock; /* To init, not blocking. */
    int pidfd;
    int space;                   /* Of its mounts; -1: not to be had. */
    int cgroup;                  /* -1: none; init does what a group would. */
    char name[48];               /* Of the cgroup. */
    int groups[WIRE_CONTROLS];   /* Of version 1, or -1, */
    char groups_name[32];        /* all of this name. */
    int64_t met[WIRE_CONTROLS];  /* How often each limit was; loop's thread. */
    int64_t refused;             /* Forks, as last seen by box_forks_on(), */
    unsigned refusals;           /* and how many times in a row more. */
    atomic_bool frozen;          /* As it was last asked for, */
    uint64_t freezes;            /* and how often init was; one thread. */
    atomic_uint_fast64_t serial; /* Names its commands' cgroups. */
    struct mutex lock;           /* A leaf. */
    struct box_group *spare GUARDED; /* by lock; NULL: there is none */
    bool ended GUARDED;              /* by lock; its cgroup is being removed */
    struct list leftovers; /* Those of ended ones; the loop's thread. */
    atomic_uint refs;
};

/**
 * Starts a sandbox and waits until it is ready for commands.
 *
 * @param link      the keeper
 * @param number    of the session
 * @param plan      borrowed; but for the name
 * @param limits    deadline and token
 * @param out       a reference, on success
 * @param err       filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int box_start(struct link *link, uint64_t number,
                       const struct link_plan *plan,
                       const struct limits *limits, struct box **out,
                       struct err *err);

/**
 * Has it held for the next daemon.
 *
 * @param box   a box
 * @param mount of its overlay, borrowed; -1: none
 */
void box_hold(const struct box *box, int mount);

/** Has it held no more, nor its commands. @param box a dead one */
void box_unhold(const struct box *box);

/**
 * Makes the box of an earlier daemon ours.
 *
 * @param link the keeper
 * @param held the box; its fds are taken on success, but for the mount
 * @return a reference, or NULL where something of it is missing
 */
struct box *box_adopt(struct link *link, struct link_held *held);

/** New boxes' groups are named differently from this on. @param name of the
 *  group of a box, of any daemon */
void box_count_run(const char *name);

/**
 * Makes a mount its workspace, in which nothing is open, and has that held.
 *
 * @param box    a box that lives
 * @param mount  borrowed
 * @param limits deadline and token
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int box_move(const struct box *box, int mount,
                      const struct limits *limits, struct err *err);

/** @param box one more reference @return box */
struct box *box_ref(struct box *box);
/** @param box one reference less; NULL is fine */
void box_unref(struct box *box);

/** @param box a box @return whether its init lives */
bool box_alive(const struct box *box);

/**
 * Has all processes stand still for a moment, or go on, and waits for that.
 * It counts as running all the while.
 *
 * @param box    a box that is not frozen
 * @param still  or not any more
 * @param limits deadline and token
 * @param err    filled on failure: they go on
 * @return 0 or a negative errno
 */
MUST_USE int box_still(struct box *box, bool still, const struct limits *limits,
                       struct err *err);

/**
 * Freezes or thaws all processes and waits for that. A freeze that does not
 * come about is taken back.
 *
 * @param box    a box
 * @param freeze or thaw
 * @param limits deadline and token
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int box_freeze(struct box *box, bool freeze,
                        const struct limits *limits, struct err *err);

/**
 * Kills all processes, waits for their end and removes the cgroups.
 *
 * @param box    a box; dead ones too
 * @param limits deadline and token
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
int box_end(struct box *box, const struct limits *limits, struct err *err);

/**
 * Gives a command a cgroup of its own, which none has had before.
 *
 * @param box  one that has cgroups
 * @param name of the group, on success: box_end_command() takes it
 * @param fd   of the group, on success
 * @param err  filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int box_begin_command(struct box *box, struct box_leftover **name,
                               int *fd, struct err *err);

/** Notes that a command has ended, whose cgroup may be removed. In the loop's
 *  thread, as the next. @param box a box @param name taken; NULL: it had none
 */
void box_end_command(struct box *box, struct box_leftover *name);

/** Removes the cgroups of ended commands in which no process is left, and makes
 *  one for the next. @param box a box */
void box_sweep(struct box *box);

/* For box.c. */

/** Finds the cgroups of commands of an earlier daemon, also of those that run:
 *  these cannot be removed. @param box being adopted */
void box_find_commands(struct box *box);
/** @param box has no cgroup made ahead any more */
void box_drop_spare(struct box *box);

/**
 * Finds out whether a limit of memory or processes was met since the last
 * call. In the loop's thread.
 *
 * @param box a box
 * @param why filled when one was
 * @return whether one was
 */
bool box_met_limit(struct box *box, struct err *why);

/**
 * Finds out whether forks have failed since the last call, and since the one
 * before that: whether somebody does not stop trying. One thread.
 *
 * @param box a box
 * @param why filled when it is so
 * @return whether it is so
 */
bool box_forks_on(struct box *box, struct err *why);

/** @param box a box @return whether no process lives in it but its init, as
 *  far as the kernel tells */
bool box_quiet(const struct box *box);

/** Kills what ended commands have left behind. In the loop's thread.
 *  @param box a box */
void box_kill_leftovers(const struct box *box);

/**
 * Sends init a message.
 *
 * @param box   a box
 * @param wire  borrowed
 * @param fds   borrowed
 * @param count how many
 * @param err   filled on failure
 * @return 0, -EAGAIN while init takes none, -EPIPE when it is dead
 */
MUST_USE int box_send(const struct box *box, const struct wire *wire,
                      const int *fds, size_t count, struct err *err);

#endif
