/*
 * The layers of checkpoints: directories in STATE/layers that never change, of
 * all sessions. Each lies on another one, its parent; 0 is none: what lies
 * there is the session's base.
 *
 * A layer is kept while something refers to it: another one, a checkpoint, a
 * workspace or a call. What nothing refers to is removed in the background,
 * also what a crash has left: references are not stored but counted at the
 * start. Thread-safe.
 */
#ifndef SESSIONFS_LOCAL_LAYERS_H
#define SESSIONFS_LOCAL_LAYERS_H

#include "core/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct layers;

enum {
    LAYERS_FILLED = 98, /* The tier of one that shows what its parent does, with
                         * all files whole: no one's to join. */
    LAYERS_SEALED = 99  /* And of what a session wrote; from here on they are
                         * joined in the background. */
};

/**
 * Opens the store of a state directory.
 *
 * @param state_dir where
 * @param out       on success; nothing is removed before layers_sweep()
 * @param err       filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int layers_open(const char *state_dir, struct layers **out,
                         struct err *err);

/** @param layers freed; removals go on at the next start; NULL is fine */
void layers_close(struct layers *layers);

/** @param layers the store, of which all references are known: the rest is
 *  removed */
void layers_sweep(struct layers *layers);

/** @param layers the store @return its directory, borrowed */
int layers_dir(const struct layers *layers);

/**
 * Makes an empty layer.
 *
 * @param layers the store
 * @param parent what it lies on
 * @param tier   see squash.h
 * @param out    its id, on success; the caller has a reference
 * @param err    filled on failure
 * @return its directory, readable, or a negative errno
 */
MUST_USE int layers_make(struct layers *layers, uint64_t parent, unsigned tier,
                         uint64_t *out, struct err *err);

/**
 * Finds a layer of the tier LAYERS_FILLED that has been told to be done.
 *
 * @param layers the store
 * @param parent what it lies on
 * @param out    its id; the caller has a reference
 * @return whether there is one
 */
bool layers_filled(struct layers *layers, uint64_t parent, uint64_t *out);

/** @param layers the store @param id of a layer that is written now, as those
 *  below it */
void layers_done(struct layers *layers, uint64_t id);

/** @param layers the store @return an id: all up to it are written as they are
 *  to be */
uint64_t layers_complete(struct layers *layers);

/* Layers of one tier. */
struct layers_tier {
    bool sealed; /* Asked: whether LAYERS_SEALED or more, or less. */
    unsigned tier;
    uint64_t below; /* What they lie on. */
};

/**
 * Tells the layers of one tier from one down, where they are many.
 *
 * @param layers the store
 * @param top    a layer, or 0
 * @param most   so many are told, or none
 * @param tier   which; theirs, where they are told
 * @param out    their ids, from the top one down, to free()
 * @param count  how many are told
 * @param err    filled on failure
 * @return 0 or -ENOMEM
 */
MUST_USE int layers_top(struct layers *layers, uint64_t top, size_t most,
                        struct layers_tier *tier, uint64_t **out, size_t *count,
                        struct err *err);

/**
 * Makes a directory a layer.
 *
 * @param layers the store
 * @param parent what it lies on
 * @param dir    where the directory is
 * @param name   of it; there is none of that name afterwards
 * @param out    its id, on success; the caller has a reference
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int layers_adopt(struct layers *layers, uint64_t parent, int dir,
                          const char *name, uint64_t *out, struct err *err);

/**
 * Names a layer that a directory is to become.
 *
 * @param layers the store
 * @param parent what it will lie on
 * @param out    its id, on success; the caller has a reference
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int layers_name(struct layers *layers, uint64_t parent, uint64_t *out,
                         struct err *err);

/** Makes a directory the layer that was named for it; as layers_adopt().
 *  @param layers the store @param id as named @param dir where the directory is
 *  @param name of it @param err filled on failure @return 0 or a negative errno
 */
MUST_USE int layers_take(struct layers *layers, uint64_t id, int dir,
                         const char *name, struct err *err);

/** The other way round: the layer, to which the caller must have the only
 *  reference, is a directory again, of this name. @param layers the store
 *  @param id no layer any more, on success @param dir where it is to be
 *  @param name of it @param err filled on failure @return 0 or a negative errno
 */
MUST_USE int layers_give_back(struct layers *layers, uint64_t id, int dir,
                              const char *name, struct err *err);

/** @param layers the store @param id one reference more; 0 is fine @return
 *  whether it is there */
bool layers_ref(struct layers *layers, uint64_t id);
/** @param layers the store @param id one reference less; 0 is fine */
void layers_unref(struct layers *layers, uint64_t id);

/**
 * Tells which layers lie below one another.
 *
 * @param layers the store
 * @param top    a layer, or 0
 * @param out    their ids, from the top one down, to free()
 * @param count  how many
 * @param err    filled on failure
 * @return 0, -ESTALE when one is missing, or -ENOMEM
 */
MUST_USE int layers_chain(struct layers *layers, uint64_t top, uint64_t **out,
                          size_t *count, struct err *err);

/**
 * Waits until everything written so far survives a power cut.
 *
 * @param layers the store
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int layers_sync(const struct layers *layers, struct err *err);

#endif
