/*
 * What registry, session and exec share. A session is a queue of jobs and the
 * record of a sandbox; only a session's current job changes that record.
 */
#ifndef SESSIONFS_SESSION_PRIV_H
#define SESSIONFS_SESSION_PRIV_H

#include "core/buf.h"
#include "core/config.h"
#include "core/list.h"
#include "core/mutex.h"
#include "core/session.h"
#include "core/store.h"

#include <stdatomic.h>

enum {
    SESSION_FRESH_MS = 1000, /* How long an answer of the engine holds. */
    SESSION_LOOK_MS = 3000,  /* After that it is unreachable for who looks. */
};

/* Kinds of calls of the engine, by how long they may take. */
enum session_wait {
    SESSION_WAIT_CALL,
    SESSION_WAIT_CREATE,
    SESSION_WAIT_LOOK, /* Of nobody who needs the sandbox. */
};

enum job_kind {
    JOB_ENSURE,
    JOB_PAUSE,
    JOB_DESTROY,
    JOB_EXEC,
    JOB_CHECKPOINT,
    JOB_DROP,
    JOB_RESTORE,
    JOB_FORK,
};

/* A piece of a session's queue; holds the session while it lives. */
struct job {
    struct list link; /* Empty while it is in no list. */
    enum job_kind kind;
    struct session *session;
    struct caller caller;
    bool replace;      /* JOB_ENSURE */
    bool joins;        /* JOB_ENSURE: waits for another's, starts nothing. */
    bool idle;         /* JOB_PAUSE: of a sandbox that nobody uses. */
    bool retry;        /* JOB_DESTROY: of a deletion that was not confirmed. */
    bool internal;     /* Asked by core itself: not refused at the end. */
    const char *cause; /* JOB_PAUSE: for `events`; NULL: somebody asked. */
    uint64_t key;      /* A checkpoint's; 0: JOB_FORK of the present. */
    char name[SESSION_ID_SIZE]; /* JOB_CHECKPOINT; "": of what was written. */
    done_fn *done; /* NULL: nobody asks. JOB_EXEC lives inside its exec. */
    void *arg;
};

/* What the engine last said. */
struct observation {
    bool known;
    int rc; /* Of the call; state counts when it is 0. */
    enum provider_state state;
    unsigned silences; /* In a row: it did not answer. */
    int64_t at_ms;     /* clock_ms(), */
    int64_t at_us;     /* clock_wall_us() */
};

/* An answer that took long to make, of a command with much output. */
struct exec_kept {
    uint64_t n; /* 0: there is none. */
    enum shape_mode mode;
    uint64_t size; /* Of the output at that time. */
    struct buf text;
};

struct checkpoint;

struct session {
    struct registry *registry;
    struct list link; /* Of a bucket: by registry->lock, */
    atomic_uint refs; /* like these; but those over one need no lock. */
    bool reap_posted;
    uint64_t number;
    int64_t created_us;
    char *dir; /* STATE/sessions/NUMBER */
    struct workers *life;
    struct workers *status;
    struct workers *files;

    struct mutex lock; /* Of all GUARDED members below. */
    char id[SESSION_ID_SIZE] GUARDED;
    bool gone GUARDED;
    /* These change while no job runs, so a job reads them without the lock. */
    struct config config GUARDED;
    struct provider *provider GUARDED; /* NULL: not open, or not yet. */
    uint64_t config_version GUARDED;   /* Moves with them. */
    /* Why the stored one cannot be read: `config` stands in for it. */
    struct err *unreadable GUARDED;

    struct list queue GUARDED; /* Of struct job. */
    struct job *current GUARDED;
    struct list joined GUARDED;    /* Ensures that share the current. */
    bool ensuring GUARDED;         /* The current job ensures now, */
    bool ensuring_replace GUARDED; /* and may replace. */
    bool command_runs GUARDED;
    bool initing GUARDED;        /* Init commands run. */
    unsigned background GUARDED; /* Commands that run beside the queue. */
    struct list execs GUARDED;   /* Of struct exec, while they live. */
    unsigned unsaved GUARDED;    /* Of them: whose end is not recorded. */
    struct exec_kept kept GUARDED;
    bool retired GUARDED; /* Old commands were removed once. */
    int refused GUARDED;  /* Why the newest command was not taken; 0: it was. */

    bool has_record GUARDED;
    struct store_state record GUARDED;
    uint64_t generation GUARDED;
    enum session_status doing GUARDED; /* SESSION_ABSENT: nothing. */
    uint64_t epoch GUARDED;            /* Moves with record and doing. */
    struct observation seen GUARDED;
    bool observing GUARDED;
    enum session_status shown GUARDED;

    unsigned retries GUARDED;    /* In a row, */
    unsigned retry_what GUARDED; /* of enum session_retry. */
    bool retry_waits GUARDED;
    struct loop_timer *retry_timer; /* By the loop's thread, like its link. */
    struct list retry_link;

    atomic_llong
        active_ms;         /* clock_ms() of the last use, for the idle pause. */
    struct list idle_link; /* registry->idlers: by the loop's thread. */

    /* See session_quiet.c. */
    atomic_ullong stirs;
    atomic_uint stirring;
    atomic_llong quiet_look_ms;

    struct cond files_left;
    unsigned files_inside GUARDED;
    bool files_closed GUARDED;
    struct list files_waiting GUARDED;
    struct workspace *tree GUARDED;
    bool unsent GUARDED;      /* Something that was not sent is kept, */
    bool unsent_told GUARDED; /* and that it cannot be sent now was told. */
    uint64_t changes_size GUARDED; /* Of the last text of changes. */

    /* Checkpoints; the first four by the life thread. */
    bool settled;         /* Store and provider agree. */
    bool hidden;          /* One that was dropped is yet to go. */
    uint64_t next_key;    /* Once settled. */
    uint64_t checkpoints; /* About so many without a name. */
    bool dirty GUARDED;   /* Written through the mount since the last one, */
    bool doubted GUARDED; /* or perhaps before this daemon began; */
    int64_t wrote_ms GUARDED;  /* clock_ms() of the last write. */
    struct list wrote_link;    /* registry->writers: by the loop's thread. */
    struct list views GUARDED; /* Their trees that are open. */
};

/* ---- session.c ---- */

/* Makes the object of a row; the registry holds it. Takes nothing. */
MUST_USE int session_new(struct registry *registry,
                         const struct store_session *row, struct session **out,
                         struct err *err);
/* A new one: whether something was perhaps written of which nobody knows. */
void session_doubted(struct session *session, bool doubted)
    EXCLUDES(session->lock);
/* Waits for its threads. */
void session_free(struct session *session);
/* Runs work in one of the session's threads; the registry knows of it, so that
 * no engine is closed under it. 0, -EAGAIN or -ENOMEM. */
MUST_USE int session_run(struct session *session, struct workers *workers,
                         work_fn *fn, void *arg);
/* 0 where the session's provider is open, or is opened by this; else why not,
 * also where the sandbox is another one's. For a job. */
MUST_USE int session_need_provider(struct session *session, struct err *err)
    EXCLUDES(session->lock);
/* The same of what is known: one that was not tried yet may be there. */
MUST_USE int session_need_provider_locked(struct session *session,
                                          struct err *err)
    REQUIRES(session->lock);
/* Whether something may begin in the session: -ENOENT where it was removed,
 * -EIO where its config cannot be read. */
MUST_USE int session_usable_locked(struct session *session, struct err *err)
    REQUIRES(session->lock);
/* What the session's provider can, also before it is open; NULL: it is not
 * registered. */
const struct provider_ops *session_ops(struct session *session)
    EXCLUDES(session->lock);
/* Calls hooks.news, and hooks.changed. */
void session_news(struct session *session) EXCLUDES(session->lock);
void session_changed(struct session *session) EXCLUDES(session->lock);
/* A command is about to run, until session_stir_end(): session_quiet.c. Both
 * tell hooks.changed. */
void session_stir_begin(struct session *session) EXCLUDES(session->lock);
void session_stir_end(struct session *session) EXCLUDES(session->lock);
/* Calls hooks.news when the status text has changed. */
void session_note(struct session *session) EXCLUDES(session->lock);
/* Adds an event, about a command unless exec_n is 0, with a detail made by the
 * caller, which is taken. */
struct js;
void session_event(struct session *session, const char *name, uint64_t exec_n,
                   const struct caller *caller, struct js *detail);

/* ---- session_queue.c ---- */

/* Queues a job that is filled but for its links, or says why not. */
MUST_USE int session_enqueue_locked(struct session *session, struct job *job,
                                    struct err *err) REQUIRES(session->lock);
/* Queues a copy of a job that is filled but for its link and session. */
void session_submit(struct session *session, const struct job *model)
    EXCLUDES(session->lock);
/* Starts the next job where none runs. */
void session_pump(struct session *session) EXCLUDES(session->lock);
/* Takes a job out that has not begun; false when it has. */
bool session_unqueue(struct session *session, struct job *job)
    EXCLUDES(session->lock);
/* The current job has ended; the queue goes on. */
void session_job_over(struct session *session) EXCLUDES(session->lock);
/* One more command runs beside the queue, until session_background_over(). */
void session_background_begin(struct session *session) EXCLUDES(session->lock);
void session_background_over(struct session *session) EXCLUDES(session->lock);
/* Init commands are about to run: -EBUSY when the sandbox is to be stopped,
 * which was accepted before. */
MUST_USE int session_init_begin(struct session *session, struct err *err)
    EXCLUDES(session->lock);
void session_init_over(struct session *session) EXCLUDES(session->lock);
/* Ensures for a command, in the life thread. */
MUST_USE int session_ensure_for_exec(struct session *session, struct err *err)
    EXCLUDES(session->lock);
/* Whether the sandbox is being made, up to the end of its init commands, or
 * will be by what waits in the queue. */
bool session_begins_locked(struct session *session) REQUIRES(session->lock);
/* As session_ensure(), but starts nothing: shares the start that is under way.
 * -EALREADY where none is. */
void session_await_start(struct session *session, const struct caller *caller,
                         done_fn *done, void *arg) EXCLUDES(session->lock);
/* Whether nothing of it runs or waits: no job, no command, no file operation.
 */
bool session_idle_locked(struct session *session) REQUIRES(session->lock);

/* ---- session_config.c ---- */

/* Reads the config of a new session, whose record is there. */
MUST_USE int session_config_load(struct session *session, const char *text,
                                 struct err *err) REQUIRES(session->lock);
/* Makes the sandbox run, in the background. What goes wrong is recorded. */
void session_auto_start(struct session *session, const struct caller *caller)
    EXCLUDES(session->lock);

/* ---- session_life.c: in the life thread only ---- */

/* Also while the queue goes on once providers are closed: not 0 then. */
MUST_USE int session_need_engine(struct session *session, struct err *err);
/* The recorded status; false where there is no sandbox. */
bool session_record_status(struct session *session, enum session_status *out);
/* The event of a call that failed. */
void session_life_failed(struct session *session, const char *operation,
                         const struct caller *caller, const struct err *why);
/* What happened to the instance, for `events`. */
struct life_event {
    const char *name;  /* NULL: nothing to tell, unless it was replaced. */
    const char *cause; /* NULL: none. */
    const struct checkpoint *checkpoint; /* NULL: about none. */
    bool processes_lost;
    bool replaced; /* session_life_put()'s own: the instance is another one. */
    const struct caller *caller;
};
/* session_record_put(), which every change of the instance goes through: with
 * another external id it is another one. */
MUST_USE int session_life_put(struct session *session,
                              struct store_state *state,
                              const struct life_event *event, struct err *err);

/* A call that leaves the sandbox in another status. */
struct life_change {
    provider_life_fn *call;
    enum session_wait wait;
    const char *point; /* Of a chosen crash: called, and not yet recorded. */
    enum session_status status;
};
/* Calls the engine and records what it did. */
MUST_USE int session_life_change(struct session *session,
                                 const struct life_change *change,
                                 const struct life_event *event,
                                 struct err *err);
MUST_USE int session_life_ensure(struct session *session, bool replace,
                                 const struct caller *caller, struct err *err);
MUST_USE int session_life_destroy(struct session *session,
                                  const struct caller *caller, struct err *err);
/* Makes the session's own directory, where there is none. */
MUST_USE int session_make_dir(struct session *session, struct err *err);

/* ---- session_init.c ---- */

/* Whether there are init commands that have not all succeeded. */
bool session_init_due_locked(const struct session *session)
    REQUIRES(session->lock);
/* Runs the config's init commands where that is due, from the first; in the
 * life thread only. */
MUST_USE int session_life_init(struct session *session,
                               const struct caller *caller, struct err *err);

/* ---- session_pause.c: in the life thread only ---- */

MUST_USE int session_life_pause(struct session *session,
                                const struct caller *caller, const char *cause,
                                struct err *err);
/* The same, unless the sandbox was used meanwhile. */
MUST_USE int session_life_pause_idle(struct session *session, struct err *err);
/* At the start, before any job: what an earlier daemon left running is watched
 * again, or is recorded as what became of it. */
void session_life_take_up(struct session *session);

/* ---- session_state.c ---- */

/* What a call of the provider is about. Not to be copied: it points to itself.
 */
struct session_call {
    struct store_state state; /* A copy of the record. */
    char id[SESSION_ID_SIZE];
    char *config;              /* A copy of the provider_config. */
    struct provider *provider; /* NULL: it is not open. */
    struct sandbox sandbox;
};
/* Prepares one about the sandbox as it is recorded; -ENOENT without one. */
MUST_USE int session_call_init(struct session *session,
                               struct session_call *out, struct err *err);
void session_call_done(struct session_call *call);
/* When a call that begins now must have ended, by the session's config. */
int64_t session_deadline(struct session *session, enum session_wait wait);
/* The limits of such a call. */
struct limits session_limits(struct session *session, enum session_wait wait);
/* A deep copy of the record; -ENOENT without one. */
MUST_USE int session_record_copy(struct session *session,
                                 struct store_state *out, struct err *err);
/* Saves the record with an event. Takes `state` on success. -ESTALE when
 * somebody else has written another generation: that one is loaded then. */
MUST_USE int session_record_put(struct session *session,
                                struct store_state *state,
                                const struct store_event *event,
                                struct err *err);
/* Removes the record with an event. -ESTALE as above. */
MUST_USE int session_record_drop(struct session *session,
                                 const struct store_event *event,
                                 struct err *err);
/* What is being done now shows in the status; SESSION_ABSENT: nothing. */
void session_doing(struct session *session, enum session_status doing);
/* Takes note of what the engine said. */
void session_saw(struct session *session, int rc, enum provider_state state);
/* Something contradicts the last answer: the engine is to be asked. */
void session_doubt(struct session *session) EXCLUDES(session->lock);
/* Asks the engine, or takes its last answer where that is fresh. */
MUST_USE int session_ask(struct session *session, enum provider_state *out,
                         struct err *err);
enum session_status session_status_locked(struct session *session)
    REQUIRES(session->lock);
/* Asks the engine in the background where its answer is old. */
void session_observe(struct session *session) EXCLUDES(session->lock);

/* ---- session_retry.c ---- */

enum session_retry {
    SESSION_RETRY_DESTROY = 1 << 0,
    SESSION_RETRY_SEND = 1 << 1,
};

/* Does that again, later and later; any thread. */
void session_retry(struct session *session, enum session_retry what)
    EXCLUDES(session->lock);
/* No more of it, for any session; in the loop's thread. */
void session_retry_drop_all(struct registry *registry);

/* ---- session_idle.c ---- */

/* Of a new registry, before its first session. */
void session_idle_init(struct registry *registry);
/* The sandbox runs: it is paused when nobody has used it for long enough. Any
 * thread. */
void session_idle_watch(struct session *session) EXCLUDES(session->lock);
/* No more of it, for any session; in the loop's thread. */
void session_idle_drop_all(struct registry *registry);
/* Whether its engine can pause, as far as that is known. */
bool session_can_pause_locked(struct session *session) REQUIRES(session->lock);
/* Whether it is time, and nothing waits behind the current job. */
bool session_idle_due_locked(struct session *session) REQUIRES(session->lock);

/* ---- session_files.c ---- */

/* Keeps file operations out until they are let in again; waits for those
 * inside until the deadline. */
MUST_USE int session_files_close(struct session *session, int64_t deadline_ms,
                                 struct err *err) EXCLUDES(session->lock);
void session_files_open(struct session *session) EXCLUDES(session->lock);
/* The tree with a reference, NULL where there is none; and whether commands
 * run, unless that is NULL. */
struct workspace *session_files_tree(struct session *session, bool *commands)
    EXCLUDES(session->lock);
/* What the tree keeps of files is asked for again. */
void session_files_changed(struct session *session) EXCLUDES(session->lock);
/* The tree with a reference; it is made where there is none. */
MUST_USE int session_files_make_tree(struct session *session,
                                     struct workspace **out, struct err *err)
    EXCLUDES(session->lock);
/* Forgets the tree: the instance is another one. */
void session_files_drop(struct session *session) EXCLUDES(session->lock);

/* ---- session_unsent.c ---- */

/* Whether something is kept in a session's directory. */
bool session_unsent_look(const char *dir);
/* Sends what was written through the mount and is not with the engine yet. */
MUST_USE int session_files_send(struct session *session, struct err *err)
    EXCLUDES(session->lock);
/* The same at the end; what cannot be sent is kept. */
void session_files_end(struct session *session, int64_t deadline_ms)
    EXCLUDES(session->lock);
/* Whether there is such a thing. */
bool session_files_unsent(struct session *session) EXCLUDES(session->lock);
/* Sends what is kept, in the background. */
void session_unsent_send(struct session *session) EXCLUDES(session->lock);
/* Forgets what is kept: the sandbox is to go. */
void session_unsent_drop(struct session *session) EXCLUDES(session->lock);

/* ---- session_records.c ---- */

/* Writes a line of an `error` file. */
MUST_USE int session_failure_line(struct buf *out, int64_t wall_us,
                                  const char *op, uint64_t exec_n,
                                  const char *name, pid_t pid,
                                  const struct err *err);

#endif
