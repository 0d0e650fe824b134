/*
 * Checkpoints of workspaces.
 *
 * A checkpoint is a layer over those below it (layers.h). Taking one copies
 * what has changed since the one before out of the directory that the session
 * writes, into a new layer; nothing else of the workspace is looked at.
 * Restoring one, or forking from it, puts a fresh directory to be written over
 * its layer. No directory is ever changed by us while it may be mounted, and
 * everything that is to be found again is noted in one step: what a crash cuts
 * off has not begun, or is done (head.h). Thread-safe, as provider.h says.
 */
#ifndef SESSIONFS_LOCAL_SNAPSHOTS_H
#define SESSIONFS_LOCAL_SNAPSHOTS_H

#include "core/provider_snapshots.h"
#include "providers/local/box.h"

struct layers;
struct snapshots;
struct volumes;
struct written;

/* What they work with; borrowed. */
struct snapshots_parts {
    const char *state_dir;
    struct layers *layers; /* Just opened. */
    struct volumes *volumes;
    struct written *written; /* Of the layers. */
    bool durable;            /* Survives a power cut. */
};

/**
 * Finds the checkpoints of all sessions, and lets go of layers that none of
 * them needs.
 *
 * @param parts copied
 * @param out   on success
 * @param err   filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int snapshots_open(const struct snapshots_parts *parts,
                            struct snapshots **out, struct err *err);
/** @param snapshots all of them @param number of a session @return whether its
 *  sandbox of an earlier daemon must end: it may have another mount than the
 *  workspace's */
bool snapshots_was_cut(const struct snapshots *snapshots, uint64_t number);
/** From how much on what was written becomes a layer as it is, where nothing
 *  holds it. @param entries more than so many, or @param bytes more than these
 */
void snapshots_seal_from(uint64_t entries, uint64_t bytes);
/** @param snapshots freed; NULL is fine */
void snapshots_close(struct snapshots *snapshots);

/**
 * Takes a checkpoint.
 *
 * @param snapshots all of them
 * @param sandbox   whose
 * @param box       its processes, or NULL
 * @param ask       borrowed
 * @param limits    deadline and token
 * @param out       written on success
 * @param err       filled on failure
 * @return 0, -EEXIST, -EOPNOTSUPP where the workspace is a plain directory, or
 *         another negative errno
 */
MUST_USE int snapshots_take(struct snapshots *snapshots,
                            const struct sandbox *sandbox, struct box *box,
                            const struct snapshot_ask *ask,
                            const struct limits *limits,
                            struct snapshot_made *out, struct err *err);

/**
 * Makes a workspace what it was.
 *
 * @param snapshots all of them
 * @param sandbox   which; it has no processes; its files may be gone
 * @param key       of the checkpoint
 * @param limits    deadline and token
 * @param err       filled on failure
 * @return 0, -ENOENT without the key, or another negative errno
 */
MUST_USE int snapshots_restore(struct snapshots *snapshots,
                               const struct sandbox *sandbox, uint64_t key,
                               const struct limits *limits, struct err *err);

/**
 * Makes the workspace of another session.
 *
 * @param snapshots all of them
 * @param from      whose checkpoint
 * @param key       of it
 * @param to        which has no workspace; its files have the ids of `from`
 * @param limits    deadline and token
 * @param err       filled on failure
 * @return 0, -ENOENT without the key, or another negative errno
 */
MUST_USE int snapshots_fork(struct snapshots *snapshots,
                            const struct sandbox *from, uint64_t key,
                            const struct sandbox *to,
                            const struct limits *limits, struct err *err);

/**
 * Forgets a checkpoint.
 *
 * @param snapshots all of them
 * @param sandbox   whose
 * @param key       of it; none is success
 * @param err       filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int snapshots_drop(struct snapshots *snapshots,
                            const struct sandbox *sandbox, uint64_t key,
                            struct err *err);

/**
 * Shows a checkpoint.
 *
 * @param snapshots all of them
 * @param sandbox   whose
 * @param key       of it
 * @param limits    deadline and token
 * @param err       filled on failure
 * @return a readable fd of its tree, or a negative errno
 */
MUST_USE int snapshots_show(struct snapshots *snapshots,
                            const struct sandbox *sandbox, uint64_t key,
                            const struct limits *limits, struct err *err);

/* Who is told of changes. */
struct snapshots_teller {
    provider_change_fn *fn;
    void *arg;
};

/**
 * Tells what differs between two states. Only layers that one of them has and
 * the other has not are looked at.
 *
 * @param snapshots all of them
 * @param sandbox   whose
 * @param what      borrowed
 * @param limits    deadline and token
 * @param teller    borrowed
 * @param err       filled on failure
 * @return 0, -ESTALE when the workspace is gone, -ENOENT for a state that is
 *         not there, or as changes_tell()
 */
MUST_USE int
snapshots_changes(struct snapshots *snapshots, const struct sandbox *sandbox,
                  const struct provider_span *what, const struct limits *limits,
                  const struct snapshots_teller *teller, struct err *err);

/**
 * Forgets all of a session, whose workspace is no more.
 *
 * @param snapshots all of them
 * @param sandbox   which
 * @param err       filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int snapshots_forget(struct snapshots *snapshots,
                              const struct sandbox *sandbox, struct err *err);

#endif
