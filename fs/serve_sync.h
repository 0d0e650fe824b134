/* A workspace that starts from a directory of this machine, where the engine
 * cannot start from one itself. */
#ifndef SESSIONFS_SERVE_SYNC_H
#define SESSIONFS_SERVE_SYNC_H

#include "fs/serve_priv.h"

/**
 * Copies a directory into the workspace: files, directories and links, with
 * their modes. What is of another kind is left out.
 *
 * @param conn    whose request it is
 * @param session whose sandbox runs
 * @param path    absolute
 * @param err     filled on failure: what could not be copied, and why
 * @return 0 or a negative errno
 */
MUST_USE int serve_sync(struct conn *conn, struct session *session,
                        const char *path, struct err *err);

#endif
