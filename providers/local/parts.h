/*
 * Big files of layers that are kept in parts.
 *
 * Where most of a big file is what a layer below has under the same path, its
 * layer has a sparse file with the blocks that differ, marked by an attribute
 * that no workload can set, and a record in STORE/ID.parts of the file that
 * has the rest: a layer below, which stays as long as this one does. So layers
 * never change, and a crash leaves nothing half made that anything refers to.
 *
 * What shows such a file by itself shows holes: it is read by parts_read().
 * No workspace is mounted over one; see whole.h. Only where we are root: others
 * have no such attributes, and keep whole files.
 */
#ifndef SESSIONFS_LOCAL_PARTS_H
#define SESSIONFS_LOCAL_PARTS_H

#include "core/cancel.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The mark: LAYER.OFFSET of the record. */
#define PARTS_MARK "trusted.sessionfs.parts"

/* A file that is open to be read, whole or in parts. */
struct parts;

/* Where one is written. Borrowed. */
struct parts_place {
    int store;              /* The directory of all layers. */
    uint64_t layer;         /* The one that is written, and */
    const uint64_t *others; /* as each function says, from the top one down, */
    size_t count;           /* so many. */
    const struct limits *limits;
    uint64_t *bytes; /* The room that records take is added. */
};

/** @return the least size of a file that may be kept in parts */
uint64_t parts_least(void);
/** For tests. @param bytes are the least from now on */
void parts_from(uint64_t bytes);

/** @param fd of a regular file, O_PATH will do @return whether it lies there in
 *  parts only */
bool parts_is(int fd);

/** @param store of the layers @param layer one @return whether it has any */
bool parts_any(int store, uint64_t layer);

/** @param store of the layers @param layer one that is gone: so are its records
 */
void parts_remove(int store, uint64_t layer);

/** Told of a path. @return 0 to go on */
typedef int parts_path_fn(void *arg, const char *path);

/**
 * Tells the paths of those that a layer has.
 *
 * @param store of the layers
 * @param layer one
 * @param fn    called for each; what it returns but 0 ends it
 * @param arg   given to fn
 * @return 0, what fn said, or a negative errno
 */
MUST_USE int parts_each(int store, uint64_t layer, parts_path_fn *fn,
                        void *arg);

/**
 * Opens a file of a layer, or what an overlay shows of one.
 *
 * @param store of the layers
 * @param fd    of the regular file, O_PATH will do; borrowed
 * @param out   on success
 * @return 0 or a negative errno
 */
MUST_USE int parts_open(int store, int fd, struct parts **out);

/** @param parts closed; NULL is fine */
void parts_close(struct parts *parts);

/**
 * Reads as much as there is. By any thread.
 *
 * @param parts  an open one
 * @param out    the bytes
 * @param size   how many at most
 * @param offset from here
 * @return how many, or a negative errno
 */
ssize_t parts_read(const struct parts *parts, void *out, size_t size,
                   uint64_t offset);

/**
 * Writes all of a file.
 *
 * @param parts  of what
 * @param to     empty
 * @param limits deadline and token
 * @return 0 or a negative errno
 */
MUST_USE int parts_copy(const struct parts *parts, int to,
                        const struct limits *limits);

/**
 * Writes what differs from the file of that path in the layers below.
 *
 * @param place `others` are the layers below
 * @param path  of the file
 * @param from  it
 * @param to    empty, in the layer
 * @return 0; 1 when it is to be copied whole, over what there is; or a negative
 *         errno
 */
MUST_USE int parts_put(const struct parts_place *place, const char *path,
                       int from, int to);

/**
 * Writes a file of several layers into one that takes their place.
 *
 * @param place  `others` are the several layers
 * @param path   of the file
 * @param parts  it, as the topmost of them has it
 * @param to     empty, in the layer
 * @return 0 or a negative errno
 */
MUST_USE int parts_join(const struct parts_place *place, const char *path,
                        const struct parts *parts, int to);

#endif
