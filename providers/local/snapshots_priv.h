/* Checkpoints, as the files that implement snapshots.h share them. */
#ifndef SESSIONFS_LOCAL_SNAPSHOTS_PRIV_H
#define SESSIONFS_LOCAL_SNAPSHOTS_PRIV_H

#include "core/list.h"
#include "core/mutex.h"
#include "providers/local/head.h"
#include "providers/local/scan.h"
#include "providers/local/snapshots.h"

/* What a session's directory held when it was looked at last. Only for speed:
 * without it the next checkpoint has all that the session has written. */
struct snapshot_state {
    struct list link;
    uint64_t number; /* Of the session. */
    uint64_t upper;  /* Of its head, then. */
    uint64_t top;    /* The layer that shows it; a reference. */
    struct scan_node *tree;
};

struct snapshots {
    struct layers *layers;
    struct volumes *volumes;
    bool durable;
    struct mutex lock;
    struct list states GUARDED; /* By lock. */
};

/* The state of a session, taken out; NULL: there is none. */
struct snapshot_state *snapshots_take_state(struct snapshots *snapshots,
                                            uint64_t number);
/* Keeps a state, taken. */
void snapshots_keep_state(struct snapshots *snapshots,
                          struct snapshot_state *state);
/* Frees a state with its reference; NULL is fine. */
void snapshots_free_state(struct snapshots *snapshots,
                          struct snapshot_state *state);
/* Has directories that are of no workspace any more removed, later. */
void snapshots_discard(struct snapshots *snapshots, int dir, const char *name);

#endif
