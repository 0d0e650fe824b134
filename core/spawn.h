/* Starting programs of ours beside the daemon. */
#ifndef SESSIONFS_SPAWN_H
#define SESSIONFS_SPAWN_H

#include "core/compiler.h"

#include <spawn.h>
#include <sys/types.h>

/**
 * Starts a program in a session of its own, so that the terminal's Ctrl-C is
 * not for it, with all signals as they are by default, and, where the system
 * lets us, with umask 022.
 *
 * @param path    looked for in PATH where it has no slash
 * @param actions what becomes of its descriptors; borrowed
 * @param argv    ends with NULL
 * @param env     ends with NULL
 * @param out     its pid, on success
 * @return 0 or a negative errno
 */
MUST_USE int spawn_program(const char *path,
                           const posix_spawn_file_actions_t *actions,
                           char *const argv[], char *const env[], pid_t *out);

#endif
