/* A command as its session sees it. */
#ifndef SESSIONFS_EXEC_PRIV_H
#define SESSIONFS_EXEC_PRIV_H

#include "core/exec.h"
#include "core/exec_log.h"
#include "core/session_priv.h"

#include <stdatomic.h>

/* Whoever waits for an init command in the life thread. */
struct init_wait {
    struct mutex lock;
    struct cond come;
    bool exited GUARDED;
};

struct exec {
    atomic_uint refs;
    struct job job;   /* Its session is the exec's, with a reference. */
    struct list link; /* session->execs, by its lock, like these. */
    bool due;         /* Is to be removed when nobody holds it. */
    bool unsaved;     /* Its end is not recorded; holds a reference. */
    bool background;  /* The queue does not wait for it. */
    bool unasked;     /* Adopted; nobody knows any more who asked for it. */
    bool discard;     /* Its output is not kept; known from its start on. */
    uint64_t n;
    struct exec_log *log;
    struct err log_err;           /* By the sink's thread until exited, */
    struct command_result result; /* like this; then by the life thread. */
    bool exited;                  /* By the sink's thread. */
    struct init_wait *init;       /* NULL: a command of the queue. */

    struct mutex lock; /* Of all GUARDED members below. */
    struct exec_info info GUARDED;
    bool started GUARDED; /* The engine runs it, or has run it. */
    bool ended GUARDED;
    bool cancelled GUARDED;
    bool has_token GUARDED;
    struct cancel token; /* While has_token. */
    struct list watches GUARDED;
};

/* ---- exec.c ---- */

/* Makes an object that is no command yet, with one reference. */
MUST_USE int exec_new(struct session *session, struct exec **out,
                      struct err *err);
/* Frees one that became none. */
void exec_discard(struct exec *exec);
/* Makes it the one of a record, which takes a reference to the session.
 * `ended`: it is over. */
void exec_become(struct session *session, struct exec *exec,
                 const struct exec_info *info, bool ended)
    REQUIRES(session->lock);
/* Whether there is an object of a command: nothing of it may be removed until
 * that goes. */
bool exec_retire_held(struct session *session, uint64_t n)
    REQUIRES(session->lock);
/* Wakes the watches that are due. */
void exec_wake(struct exec *exec);

/* ---- exec_submit.c ---- */

/* Records an init command, which never queues; with two references, the job's
 * and the caller's. Like a job, it is counted. */
MUST_USE int exec_add_init(struct session *session, const char *script,
                           const struct caller *caller, struct exec **out,
                           struct err *err);

/* ---- exec_run.c: in the life thread only ---- */

/* Where a command's life goes; `arg` is the command. */
extern const struct command_sink exec_sink;
/* How long it may run, by its request and config; 0: for ever. */
MUST_USE int exec_timeout(struct exec *exec, int64_t *out, struct err *err);

/* Runs a command that is its session's current job. It ends later with
 * session_job_over(). */
void exec_run(struct exec *exec);
/* Runs an init command to its recorded end, a checkpoint included. Gives up the
 * job's reference. */
void exec_run_init(struct exec *exec);

/* ---- exec_end.c ---- */

/* Ends a command whose process is gone; in the life thread. Gives up the job's
 * reference. `current`: it is its session's current job, or was before it went
 * on beside the queue; the queue goes on. */
void exec_conclude(struct exec *exec, bool current);
/* The same for one that never ran, or that the queue cannot run; any thread.
 * `status` is EXEC_KILLED or EXEC_FAILED. */
void exec_end_unrun(struct exec *exec, enum exec_status status,
                    const struct err *err, bool current);
/* Records the ends that could not be recorded when they came. `last`: there
 * will be no other try, so what cannot be recorded is given up. */
void exec_save_late(struct session *session, bool last) EXCLUDES(session->lock);

/* ---- exec_retire.c ---- */

/* Removes what is over of commands that are not among the newest, in the
 * background, after command n has ended. */
void exec_retire(struct session *session, uint64_t n);
/* Removes what an earlier daemon left, or kept by another option: some at once,
 * many in the background. */
void exec_retire_left(struct session *session) EXCLUDES(session->lock);
/* Removes what exec_retire() left since it was held, up to command n. */
void exec_retire_due(struct session *session, uint64_t n)
    EXCLUDES(session->lock);

#endif
