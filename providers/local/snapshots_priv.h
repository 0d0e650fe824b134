/* Checkpoints, as the files that implement snapshots.h share them. */
#ifndef SESSIONFS_LOCAL_SNAPSHOTS_PRIV_H
#define SESSIONFS_LOCAL_SNAPSHOTS_PRIV_H

#include "core/list.h"
#include "core/mutex.h"
#include "core/workers.h"
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
    uint64_t key;    /* A checkpoint that it is; 0: not known. */
    struct scan_node *tree;
};

struct snapshots {
    struct layers *layers;
    struct volumes *volumes;
    struct written *written;
    bool durable;
    bool coarse;   /* Times of files (tick.h). */
    uint64_t *cut; /* Sessions; see snapshots_was_cut(). */
    size_t cuts;
    struct workers *closers; /* Of mounts; until */
    struct cancel closing;   /* this fires they take their time. */
    struct workers *joiners; /* Of sealed layers: snapshots_join.c. */
    struct mutex lock;
    struct list states GUARDED; /* By lock, */
    struct list joints GUARDED; /* as these: snapshots_join.c. */
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
/* Makes an empty directory to be written, for a head of which `upper` is the
 * last one so far, and notes there which it is. */
MUST_USE int snapshots_make_upper(int dir, struct head *head,
                                  char name[HEAD_NAME_SIZE], struct err *err);
/* Has directories that are of no workspace any more removed, later. */
void snapshots_discard(struct snapshots *snapshots, int dir, const char *name);

/* ---- snapshots_join.c ---- */

/* Begins to join the sealed layers from one down, where they have become many
 * and it was not begun. */
void snapshots_join(struct snapshots *snapshots, const struct sandbox *sandbox,
                    uint64_t top);
/* Whether that goes on: a seal would leave it behind. */
bool snapshots_joins(struct snapshots *snapshots, uint64_t number);
/* What the layer over a session's top one is to lie on: on what was made of it,
 * which is borrowed, or on itself. */
uint64_t snapshots_joined(struct snapshots *snapshots, uint64_t number,
                          uint64_t top);
/* What is made for a session is needed no more, but of this layer, if any. */
void snapshots_join_drop(struct snapshots *snapshots, uint64_t number,
                         uint64_t but);
/* Asks all of it to end. */
void snapshots_join_stop(struct snapshots *snapshots);
/* Frees all, once no thread of it runs. */
void snapshots_join_end(struct snapshots *snapshots);

/* ---- snapshots_seal.c ---- */

/* Nothing is open in the workspace, and no process of the sandbox lives but
 * the first. */
struct snapshots_seal {
    const struct sandbox *sandbox;
    struct box *box; /* That lives; or NULL. */
    const struct limits *limits;
    int dir; /* Of the session. */
    const struct head *head;
    int upper;              /* Of it, */
    struct scan_node *tree; /* and what is in there. */
};

struct snapshots_sealed {
    struct head head; /* As it is now. */
    uint64_t layer;   /* With a reference for the caller. */
    int upper;        /* Of the new head; the caller's to close. */
    bool undone;      /* After a failure: all is as it was. */
};

/* Whether so much was written that copying what is new, and looking at all of
 * it each time, would take long. */
bool snapshots_worth_seal(struct snapshots *snapshots,
                          const struct sandbox *sandbox,
                          const struct head *head, struct scan_node *tree);
/* Makes what was written a layer as it is, with a new mount in the place of the
 * workspace's. */
MUST_USE int snapshots_seal(struct snapshots *snapshots,
                            const struct snapshots_seal *ask,
                            struct snapshots_sealed *out, struct err *err);
/* Takes back one that a crash has cut off. A sandbox that lives may have seen
 * it. */
MUST_USE int snapshots_seal_undo(struct snapshots *snapshots, int dir,
                                 struct head *head, struct err *err);

#endif
