/* What /proc tells of a thread that made a request. Knows no FUSE. */
#ifndef SESSIONFS_TASK_H
#define SESSIONFS_TASK_H

#include <stdbool.h>
#include <sys/types.h>

/* How a thread stands that closes a file. */
struct task {
    bool exiting; /* It is on its way out: the close is the kernel's. */
    bool killed;  /* By a signal. False where that cannot be known. */
    int cpu;      /* Where it last ran; -1: that is not known. */
};

/**
 * Looks at a thread. One that cannot be seen counts as living.
 *
 * @param tid its id
 * @param out written; `cpu` is known only of one that exits
 */
void task_look(pid_t tid, struct task *out);

/**
 * Says where a thread last ran. Waits while it closes files in execve, so must
 * not be called by who has to answer that.
 *
 * @param tid its id
 * @return a CPU; -1: that is not known
 */
int task_cpu(pid_t tid);

/**
 * Parses /proc/TID/stat.
 *
 * @param stat the text
 * @param out  written on success
 * @return whether the text made sense
 */
bool task_parse_stat(const char *stat, struct task *out);

/**
 * Says whether a thread that waits must be let go: a signal that ends programs
 * is pending and not blocked.
 *
 * @param tid its id
 * @return true also where the thread cannot be seen
 */
bool task_interrupted(pid_t tid);

/**
 * The same from the text of /proc/TID/status.
 *
 * @param status the text
 * @return true also where the text makes no sense
 */
bool task_parse_interrupted(const char *status);

/**
 * Says whether the kernel shows us the exit code of a user's threads. If not,
 * one that exits may have been killed.
 *
 * @param uid the user
 */
bool task_readable(uid_t uid);

#endif
