/* What a hostile tree takes on its disk. */
#ifndef SESSIONFS_LOCAL_DISK_H
#define SESSIONFS_LOCAL_DISK_H

#include "core/compiler.h"

#include <stdbool.h>
#include <stdint.h>

/**
 * Sums the blocks of all files and directories of a tree. A file with several
 * names counts once. No link is followed; what changes meanwhile counts or
 * does not.
 *
 * @param top         a directory, readable
 * @param deadline_ms clock_ms() at which to stop
 * @param out         bytes so far, in any case
 * @return whether that is all of it
 */
bool disk_sum(int top, int64_t deadline_ms, int64_t *out);

#endif
