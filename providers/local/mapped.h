/*
 * Files that a sandbox's processes have mapped and share: what is stored in
 * such memory need not change a file's times, and what may only be read at one
 * moment may be written at the next.
 */
#ifndef SESSIONFS_LOCAL_MAPPED_H
#define SESSIONFS_LOCAL_MAPPED_H

#include "core/err.h"
#include "providers/local/box.h"

/**
 * Finds them.
 *
 * @param box       whose processes stand still
 * @param workspace a directory: only what is in its file system counts
 * @param out       paths relative to the workspace, NULL-terminated, on
 *                  success; mapped_free() frees them. Some may be of no file.
 * @param err       filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int mapped_find(const struct box *box, int workspace, char ***out,
                         struct err *err);

/** @param paths freed; NULL is fine */
void mapped_free(char **paths);

#endif
