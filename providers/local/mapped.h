/*
 * Files that a sandbox's processes have mapped and share: what is stored in
 * such memory need not change a file's times, and what may only be read at one
 * moment may be written at the next.
 */
#ifndef SESSIONFS_LOCAL_MAPPED_H
#define SESSIONFS_LOCAL_MAPPED_H

#include "core/err.h"
#include "providers/local/box.h"

#include <stddef.h>
#include <stdint.h>

struct scan_node;

struct mapped {
    char **paths;   /* Relative to the workspace, NULL-terminated, or NULL. Some
                     * may be of no file. */
    uint64_t *inos; /* Of those whose name is gone: they may have others. */
    size_t path_count;
    size_t path_room;
    size_t ino_count;
    size_t ino_room;
};

/**
 * Finds them.
 *
 * @param box whose processes stand still
 * @param out written on success; mapped_done() ends it
 * @param err filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int mapped_find(const struct box *box, struct mapped *out,
                         struct err *err);

/**
 * Looks for other names of those whose name is gone, and notes that they may
 * change without a change of their times.
 *
 * @param mapped    as found
 * @param workspace a directory
 * @param upper     what the session writes, a directory, and
 * @param top       what has been seen there
 */
void mapped_mark(const struct mapped *mapped, int workspace, int upper,
                 struct scan_node *top);

/** @param mapped as found, or all zero: has nothing then */
void mapped_done(struct mapped *mapped);

#endif
