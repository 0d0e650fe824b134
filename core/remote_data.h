/*
 * Bytes of a sandbox's files, by path and chunk, in one private file of this
 * machine that never grows beyond its bound: what came first goes first.
 * Thread-safe; calls nobody.
 *
 * A chunk is found again only for a file whose size, times and number are as
 * they were. Where an engine tells times in whole seconds, two contents may
 * look alike: such a chunk holds for a short while only.
 */
#ifndef SESSIONFS_REMOTE_DATA_H
#define SESSIONFS_REMOTE_DATA_H

#include "core/err.h"

#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

enum {
    REMOTE_CHUNK = 256 * 1024
};

struct remote_data;

/**
 * @param dir     where the private file lies; copied
 * @param most    bytes of it
 * @param keep_ms how long a chunk holds whose times are whole seconds
 * @return an empty store, or NULL without memory
 */
struct remote_data *remote_data_new(const char *dir, uint64_t most,
                                    int64_t keep_ms);
/** @param data freed; NULL is fine */
void remote_data_free(struct remote_data *data);

/** @param data all that it holds is given up, with its place on the disk */
void remote_data_clear(struct remote_data *data);

/**
 * Reads from a chunk.
 *
 * @param data  the store
 * @param path  of the file
 * @param attr  the file's, as the engine tells them
 * @param chunk which
 * @param at    offset in the chunk
 * @param out   written
 * @param size  of out
 * @return bytes, 0 at the end of the chunk, or -ENOENT: it is not here
 */
ssize_t remote_data_read(struct remote_data *data, const char *path,
                         const struct stat *attr, uint64_t chunk, size_t at,
                         void *out, size_t size);

/**
 * Keeps a chunk, where there is room.
 *
 * @param data  the store
 * @param path  of the file
 * @param attr  the file's, as they were with these bytes
 * @param chunk which
 * @param bytes its content
 * @param size  of it, REMOTE_CHUNK at most
 */
void remote_data_keep(struct remote_data *data, const char *path,
                      const struct stat *attr, uint64_t chunk,
                      const void *bytes, size_t size);

/**
 * Opens a file that has no name.
 *
 * @param dir where it lies
 * @param err filled on failure
 * @return an fd or a negative errno
 */
MUST_USE int remote_private_file(const char *dir, struct err *err);

/**
 * Opens a directory of ours in that of a session.
 *
 * @param dir  the session's
 * @param name below it
 * @param make whether it is made where there is none
 * @param err  filled on failure
 * @return an fd or a negative errno
 */
MUST_USE int remote_private_dir(const char *dir, const char *name, bool make,
                                struct err *err);

#endif
