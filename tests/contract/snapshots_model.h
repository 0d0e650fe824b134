/* A session with checkpoints, each with a copy that somebody else has made. */
#ifndef SESSIONFS_TESTS_SNAPSHOTS_MODEL_H
#define SESSIONFS_TESTS_SNAPSHOTS_MODEL_H

#include "core/provider_snapshots.h"
#include "tests/contract/bench.h"

/* A program for python3: `SEED COUNT STILL` changes the directory that it runs
 * in in COUNT ways, as SEED wills. STILL 1: without hard links. */
extern const char model_changes[];

/* Whether nothing is open in a workspace when a checkpoint is taken, and there
 * are no hard links, so that it may be sealed. */
extern bool model_still;

struct model {
    struct bench *bench;
    struct bench_box box;
    char copies[BENCH_PATH]; /* KEY/ is what checkpoint KEY must be. */
};

/** @param bench an open one @param model a new session, running */
void model_make(struct bench *bench, struct model *model);
/** @param model its session is destroyed */
void model_end(struct model *model);
/** Changes the workspace by a command. @param model it @param seed chooses
 *  @param count how much */
void model_change(struct model *model, unsigned seed, unsigned count);
/** Takes a checkpoint, and copies the workspace. @param model it @param key of
 *  the checkpoint */
void model_take(struct model *model, uint64_t key);
/** Takes a checkpoint. @param model it @param key of it @param writing or NULL
 *  @return what it has cost */
struct snapshot_made model_take_only(struct model *model, uint64_t key,
                                     const char *const *writing);
/** Copies the workspace. @param model it @param key of a checkpoint that it is
 *  like */
void model_copy(struct model *model, uint64_t key);
/** Compares a checkpoint with its copy. @param model it @param key of it */
void model_check(struct model *model, uint64_t key);
/** Compares the workspace with a checkpoint's copy. @param model it @param key
 *  of it */
void model_check_now(struct model *model, uint64_t key);
/** @param model it @param key of a checkpoint @return whether the workspace is
 *  what its copy is */
bool model_is_now(struct model *model, uint64_t key);
/** Compares what is said to differ between two checkpoints with their copies.
 *  @param model it @param from a key @param to a key; 0: what is now, which is
 *  as `same` @param same a key */
void model_check_changes(struct model *model, uint64_t from, uint64_t to,
                         uint64_t same);
/** @param model it @param key that the workspace becomes; running */
void model_restore(struct model *model, uint64_t key);
/** @param model of which @param key a new session is made @param fork it, its
 *  copies are those of model */
void model_fork(struct model *model, uint64_t key, struct model *fork);
/** @param model it @param out a path that leads to its workspace, BENCH_PATH
 *  bytes @return the fd that it leads through, to close() */
int model_root(struct model *model, char *out);

#endif
