/*
 * Checkpoints of a sandbox's files: one of the tables of provider.h.
 *
 * A checkpoint is the workspace as it was, complete and never changing. Core
 * names each by a key that it never uses twice in a session, and holds the
 * records that people see; the provider holds the trees. After a crash the
 * two are made to agree: what core knows nothing of is dropped.
 *
 * A call that has returned 0 has done all of it, and `kill -9` undoes nothing;
 * with provider_env.durable_power neither does a power cut. One that is cut
 * off has done nothing, or all: the next call for the same sandbox finds it
 * whole.
 */
#ifndef SESSIONFS_PROVIDER_SNAPSHOTS_H
#define SESSIONFS_PROVIDER_SNAPSHOTS_H

#include "core/provider.h"

/* A checkpoint to be. Borrowed. */
struct snapshot_ask {
    uint64_t key; /* Above all keys that the session has had. */
    /* Paths of files that are open for writing through the mount, so that
     * their times do not tell whether they have changed; NULL-terminated. */
    const char *const *writing;
    /* No command of ours runs or begins, and nothing is open by a root that
     * was taken of the workspace: it may become another directory. When the
     * call fails that may have come about. */
    bool still;
};

/*
 * Files of a tree that do not lie whole where it shows them, and how they are
 * read. By any thread; what is open may be read after the tree is gone.
 */
struct provider_parts {
    /* Whether the file of an O_PATH fd is one. */
    bool (*is)(int fd);
    /* Opens it: 0 or a negative errno. */
    int (*open)(void *arg, int fd, void **out);
    /* As much as there is, up to a size; or a negative errno. */
    ssize_t (*read)(void *file, void *out, size_t size, uint64_t offset);
    void (*close)(void *file);
};

/* What a checkpoint has cost. */
struct snapshot_made {
    uint64_t changed; /* Paths that differ from the checkpoint before. */
    uint64_t bytes;   /* That the store has grown by. */
    bool moved;       /* Roots that were taken before have nothing to do with
                       * the workspace any more: it is to be taken anew. */
};

struct provider_snapshots {
    /* Keeps the workspace as it is now. Processes go on: they stand still for
     * the moment of the look. No file operation of ours is under way. -EEXIST
     * for a key that is there. Also of a paused sandbox. */
    int (*take)(struct provider *, const struct sandbox *,
                const struct snapshot_ask *, const struct limits *,
                struct snapshot_made *out, struct err *);
    /* The workspace becomes what it was: content, modes, owners, times, links,
     * attributes. Ends all processes; the sandbox is paused then, with no
     * memory, also where the engine had lost it. Trees and roots that were
     * taken before stay with the old files, which are in no workspace any
     * more. -ENOENT without the key. */
    int (*restore)(struct provider *, struct sandbox *, uint64_t key,
                   const struct limits *, struct err *);
    /* Makes the paused sandbox `to` of another session, its instance filled,
     * with the files of `from` at a checkpoint. They share what is stored and
     * nothing else: either may be destroyed. */
    int (*fork)(struct provider *, const struct sandbox *from, uint64_t key,
                struct sandbox *to, const struct limits *, struct err *);
    /* Forgets one; success when there is none. What nothing else needs is
     * freed, perhaps later. */
    int (*drop)(struct provider *, const struct sandbox *, uint64_t key,
                const struct limits *, struct err *);
    /* The tree of one, to be read; borrows nothing. NULL where it cannot be
     * shown. -ENOENT without the key. Cheap, whatever its size. */
    int (*open)(struct provider *, const struct sandbox *, uint64_t key,
                const struct limits *, struct provider_root *out, struct err *);
    /* The keys that are there, in any order. */
    int (*list)(struct provider *, const struct sandbox *,
                const struct limits *, int (*fn)(void *arg, uint64_t key),
                void *arg, struct err *);
};

/* ---- Checked calls, as in provider.h; -EOPNOTSUPP without the slot. ---- */

/** @param ask borrowed @param out written on success; see take */
MUST_USE int provider_snapshot_take(struct provider *provider,
                                    const struct sandbox *sandbox,
                                    const struct snapshot_ask *ask,
                                    const struct limits *limits,
                                    struct snapshot_made *out, struct err *err);
/** @param sandbox its instance is changed on success only; see restore */
MUST_USE int provider_snapshot_restore(struct provider *provider,
                                       struct sandbox *sandbox, uint64_t key,
                                       const struct limits *limits,
                                       struct err *err);
/** @param from borrowed @param to its instance is filled; see fork */
MUST_USE int provider_snapshot_fork(struct provider *provider,
                                    const struct sandbox *from, uint64_t key,
                                    struct sandbox *to,
                                    const struct limits *limits,
                                    struct err *err);
/** @param key which; see drop */
MUST_USE int provider_snapshot_drop(struct provider *provider,
                                    const struct sandbox *sandbox, uint64_t key,
                                    const struct limits *limits,
                                    struct err *err);
/** @param out filled on success; the taker closes its fd; see open */
MUST_USE int provider_snapshot_open(struct provider *provider,
                                    const struct sandbox *sandbox, uint64_t key,
                                    const struct limits *limits,
                                    struct provider_root *out, struct err *err);
/** @param fn called for each key @param arg given to fn; see list */
MUST_USE int provider_snapshot_list(struct provider *provider,
                                    const struct sandbox *sandbox,
                                    const struct limits *limits,
                                    int (*fn)(void *arg, uint64_t key),
                                    void *arg, struct err *err);

#endif
