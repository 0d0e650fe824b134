/*
 * The start of a command's process, by a sandbox's process 1 or by a reaper.
 * The caller has one thread.
 */
#ifndef SESSIONFS_LOCAL_SPAWN_H
#define SESSIONFS_LOCAL_SPAWN_H

#include "providers/local/keeper.h"

#include <stddef.h>

/* A request as it lies in memory, and what is made of it. */
struct spawn_request {
    void *map;
    size_t map_size;
    const struct wire_request *head;
    char *cwd;
    char **argv; /* The request's words, or the shell and the script. */
    char **env;
    const char *script;
};

/**
 * Maps a request.
 *
 * @param fd  a memfd as wire.h describes it
 * @param out written; spawn_free_request() frees it, also after a failure
 * @param err filled on failure
 * @return 0, -EPROTO, or another negative errno
 */
MUST_USE int spawn_read_request(int fd, struct spawn_request *out,
                                struct err *err);

/** @param request what it has is freed */
void spawn_free_request(struct spawn_request *request);

/**
 * Makes what is forked next end before all else where memory ends, or this
 * process not.
 *
 * @param plan    process 1's
 * @param command whether a command's process is forked next
 */
void spawn_set_oom(const struct init_plan *plan, bool command);

/**
 * Starts a process and returns once it runs its program, or has failed to.
 *
 * @param plan    process 1's
 * @param request what it runs
 * @param fds     by enum wire_exec_fd; stay the caller's
 * @param out     its pid, on success
 * @param err     filled on failure
 * @return 0, -EAGAIN when it does not come to run, or what its start met
 */
MUST_USE int spawn_command(const struct init_plan *plan,
                           const struct spawn_request *request, const int *fds,
                           pid_t *out, struct err *err);

#endif
