/* Directories of this machine that a sandbox's config names. */
#ifndef SESSIONFS_LOCAL_HOSTDIR_H
#define SESSIONFS_LOCAL_HOSTDIR_H

#include "core/provider.h"

/**
 * Opens the directory that a key of the config names. Its path had no links
 * when it was set; none is followed now.
 *
 * @param sandbox whose config
 * @param key     of it; its value is an absolute path
 * @param out     O_PATH, on success; -1 where the key is not there
 * @param err     filled on failure: the key, the path and the reason
 * @return 0, -ENOENT, -ENOTDIR, -ELOOP, or another negative errno
 */
MUST_USE int hostdir_open(const struct sandbox *sandbox, const char *key,
                          int *out, struct err *err);

/**
 * Tells whether the config names a directory.
 *
 * @param sandbox whose config
 * @param key     of it
 * @param err     filled on failure
 * @return 1, 0, or a negative errno
 */
MUST_USE int hostdir_named(const struct sandbox *sandbox, const char *key,
                           struct err *err);

#endif
