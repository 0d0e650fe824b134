/*
 * The provider `local`: sandboxes on this machine, made by a keeper process.
 *
 * A box is one run of a sandbox (box.h). A command is started by the thread
 * that asks for it (command.c) and followed in the loop's (running.h). The
 * keeper is behind link.h; workspaces are volume.h's, what they hold of the
 * disk is watch.h's, limits are quota.h's.
 */
#ifndef SESSIONFS_LOCAL_LOCAL_H
#define SESSIONFS_LOCAL_LOCAL_H

#include "core/mutex.h"
#include "core/provider.h"
#include "providers/local/box.h"

struct link;
struct layers;
struct snapshots;
struct volumes;
struct written;
struct watch;

struct local {
    struct provider base;
    struct loop *loop;
    struct link *link;
    struct layers *layers;
    struct written *written; /* Of the layers. */
    struct volumes *volumes;
    struct snapshots *snapshots;
    struct watch *watch;
    const struct provider_env *env;
    int look[2]; /* A pipe to look at another with; by the loop's thread. */
    struct mutex lock;
    struct cond quiet;            /* A command's object or a stop has gone. */
    struct list boxes GUARDED;    /* by lock; each holds a reference */
    struct list commands GUARDED; /* by lock; until they are closed */
    struct list kept GUARDED;     /* by lock; commands to be adopted */
    unsigned stops GUARDED;       /* by lock; command_stop_all() begun */
};

/* ---- local.c: the registry of boxes. ---- */

/** @param local the provider @param number of a session @return a reference,
 *  or NULL when the sandbox has not been started by us */
struct box *local_find_box(struct local *local, uint64_t number)
    EXCLUDES(local->lock);
/** @param local the provider @param box a reference, taken */
void local_add_box(struct local *local, struct box *box) EXCLUDES(local->lock);

/* ---- adopt.c: what an earlier daemon has left. ---- */

/** Takes what the keeper holds. @param local the provider, all of it set up
 *  @param state_dir where the sessions are */
void local_take_held(struct local *local, const char *state_dir)
    EXCLUDES(local->lock);
/** @param local what was not adopted is freed, and lives on */
void local_drop_kept(struct local *local) EXCLUDES(local->lock);

extern provider_each_kept_fn local_each_kept;
extern provider_adopt_fn local_adopt;
extern provider_leave_fn local_leave;
extern provider_settled_fn local_settled;
extern provider_has_processes_fn local_has_processes;

/* Slots of files, */
provider_root_fn local_root;
provider_changes_fn local_changes;
/* and those of checkpoints. */
extern const struct provider_snapshots local_snapshot_slots;

/** Ends a sandbox's processes. @param local the provider @param number of the
 *  session @param limits deadline and token @param err filled on failure
 *  @return 0 or a negative errno */
MUST_USE int local_end_run(struct local *local, uint64_t number,
                           const struct limits *limits, struct err *err)
    EXCLUDES(local->lock);

/**
 * Fills a sandbox's instance.
 *
 * @param sandbox it
 * @param plain   why its workspace is a plain directory, or empty
 * @param err     filled on failure
 * @return 0 or -ENOMEM
 */
MUST_USE int local_fill_instance(struct sandbox *sandbox,
                                 const struct err *plain, struct err *err);

/**
 * Looks from now on at what a session writes.
 *
 * @param local   the provider
 * @param sandbox its
 * @param quota   what it may
 * @param err     filled on failure
 * @return 0 or -ENOMEM
 */
MUST_USE int local_watch(struct local *local, const struct sandbox *sandbox,
                         const struct wire_quota *quota, struct err *err);

/** @param local the provider @param sandbox whose files @param out written:
 *  what is true of their owners; no fd */
void local_fill_root(const struct local *local, const struct sandbox *sandbox,
                     struct provider_root *out);

/**
 * Starts a command in a box and returns when it runs.
 *
 * @param local   the provider
 * @param box     a running box
 * @param command borrowed for the call
 * @param limits  deadline of the start, and the command's token
 * @param sink    static
 * @param arg     given to the sink
 * @param err     filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int command_start(struct local *local, struct box *box,
                           const struct command *command,
                           const struct limits *limits,
                           const struct command_sink *sink, void *arg,
                           struct err *err);

/**
 * Signals a running command's processes.
 *
 * @param local  the provider
 * @param number of the session
 * @param n      of the command
 * @param signal to send
 * @param err    filled on failure
 * @return 0, -ESRCH when it does not run, -EAGAIN
 */
MUST_USE int command_signal(struct local *local, uint64_t number, uint64_t n,
                            int signal, struct err *err);

/**
 * Kills all commands of a session, and what ended ones have left. Returns
 * before they are dead.
 *
 * @param local  the provider
 * @param number of the session
 * @param why    which limit they met; copied
 */
void command_stop_all(struct local *local, uint64_t number,
                      const struct err *why) EXCLUDES(local->lock);

/**
 * Waits until every command has been closed. Their processes have ended;
 * those whose output stays open are closed by force in the end.
 *
 * @param local the provider
 * @param leave no: what still runs lives on
 */
void command_close_all(struct local *local, bool leave) EXCLUDES(local->lock);

#endif
