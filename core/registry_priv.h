/* The registry as sessions see it. */
#ifndef SESSIONFS_REGISTRY_PRIV_H
#define SESSIONFS_REGISTRY_PRIV_H

#include "core/alarms.h"
#include "core/buf.h"
#include "core/cancel.h"
#include "core/config_check.h"
#include "core/list.h"
#include "core/mutex.h"
#include "core/registry.h"
#include "core/store.h"
#include "core/workspace.h"

#include <stdatomic.h>

enum {
    REGISTRY_BUCKETS = 1024
};

/* A named config of the operator's. */
struct profile {
    char *name;
    struct config config;
    char *text; /* Of the config. */
};

/* A provider of the table. */
struct registry_provider {
    struct list link;
    const struct provider_ops *ops;
    /* By registry->providers_lock: */
    struct provider *provider; /* NULL: it could not be opened, */
    struct err err;            /* for this reason, or was not yet. */
    bool opening;
};

struct registry {
    struct loop *loop;
    struct registry_hooks hooks;
    struct provider_env env;
    struct ws_view view;
    atomic_ulong commands; /* So many were taken. */
    int64_t wait_ms;
    unsigned events_keep;
    unsigned execs_keep;
    char *state_dir;
    char *provider;           /* Of new sessions. */
    struct profile *profiles; /* By name; fixed once open, like these. */
    size_t profile_count;
    struct config_places places;
    bool trust_config;
    enum registry_end on_unmount;
    struct store *store;
    const struct provider_ops *const *table;
    struct list providers; /* Of struct registry_provider; fixed once open. */
    struct mutex providers_lock; /* A leaf. */
    struct cond opened;          /* A provider is open, or cannot be. */
    struct cancel cancel;        /* Fired at the end. */
    struct workers *trash;       /* Deletes what removed sessions leave. */
    int64_t opened_us;           /* clock_wall_us() */

    /* By the loop's thread: */
    struct list retries;   /* Sessions with a timer. */
    struct alarms idlers;  /* Sessions whose sandbox runs, */
    struct alarms writers; /* and those that were written to. */

    struct mutex lock; /* Of all GUARDED members below. */
    struct cond calm;  /* jobs, works or sinks has changed. */
    struct list buckets[REGISTRY_BUCKETS] GUARDED;
    unsigned loaded GUARDED; /* Sessions in the buckets. */
    struct buf met GUARDED;  /* A bit for each that was ever loaded. */
    unsigned jobs GUARDED;   /* Queued or running. */
    unsigned works GUARDED;  /* Pieces of work that threads of sessions do. */
    unsigned sinks GUARDED;  /* Commands whose sink is not closed. */
    bool closing GUARDED;    /* No new jobs. */
    bool dead GUARDED;       /* Sessions are freed by the closer. */
    bool engines_closed GUARDED;
};

/* ---- registry.c ---- */

/* Counts a job; false when the registry is closing and it is not internal. */
bool registry_job_begin(struct registry *registry, bool internal);
void registry_job_end(struct registry *registry);
void registry_work_begin(struct registry *registry);
void registry_work_end(struct registry *registry);
void registry_sink_begin(struct registry *registry);
void registry_sink_end(struct registry *registry);
/* Whether the registry is being closed. */
bool registry_closing(struct registry *registry);
/* Whether providers may not be called any more. */
bool registry_engines_closed(struct registry *registry);
/* -EINVAL, with words, for what no session can be named. */
MUST_USE int registry_check_id(const char *id, struct err *err);
/* Whether a session is loaded for the first time; true also without memory. */
bool registry_first_met(struct registry *registry, uint64_t number)
    REQUIRES(registry->lock);

/* Looks whether what a checked config names is there. */
MUST_USE int registry_look(const struct registry *registry,
                           const struct config *config, struct err *err);
/* Makes a session with a config, and starts it where that says so. What the
 * config names has to be there. */
MUST_USE int registry_add(struct registry *registry, const char *id,
                          const struct config *config,
                          const struct caller *caller, struct session **out,
                          struct err *err);

/* Calls a function with each session whose record has a status. */
MUST_USE int registry_each_with(struct registry *registry,
                                enum session_status status,
                                void (*fn)(struct session *session),
                                struct err *err);

/* ---- registry_providers.c ---- */

/* Of that name in the table, or NULL. */
const struct provider_ops *registry_ops(const struct registry *registry,
                                        const char *name);
/* Fills err for a name that is not in the table; returns its code, negative. */
int registry_not_registered(const char *name, struct err *err);
/* The provider of that name where it is open, else NULL. */
struct provider *registry_provider(struct registry *registry, const char *name);
/* Why it cannot be opened: fills err and returns its code, negative; 0 where
 * it is open or was not tried yet. */
int registry_no_provider(struct registry *registry, const char *name,
                         struct err *err);
/* Opens a provider where it is not open; may block. It is tried once. */
MUST_USE int registry_open_provider(struct registry *registry, const char *name,
                                    struct provider **out, struct err *err)
    EXCLUDES(registry->providers_lock);
/* Opens what recorded sessions use. One that cannot be had leaves its sessions
 * in the status `error`, with the reason at their first use. */
MUST_USE int registry_open_used(struct registry *registry, struct err *err);
/* Makes the entries, and ends them; both while nobody else uses them. */
MUST_USE int registry_add_providers(struct registry *registry, struct err *err);
void registry_close_providers(struct registry *registry);

/* Calls a function with each provider that is open; while nobody opens one. */
void registry_each_open(struct registry *registry,
                        void (*fn)(void *arg, struct provider *provider),
                        void *arg);

/* ---- exec_adopt.c ---- */

/* At the start: goes on with the commands that providers have kept, and records
 * what else an earlier daemon has left open as lost. */
MUST_USE int registry_adopt(struct registry *registry, struct err *err);

/* ---- registry_profiles.c ---- */

/* Reads the profiles of a directory, or NULL; there is a `default` then. */
MUST_USE int registry_read_profiles(struct registry *registry, const char *dir,
                                    struct err *err);
/* Frees them. */
void registry_drop_profiles(struct registry *registry);
/* Looks whether what they name is there; a line for each that lacks it. */
MUST_USE int registry_look_all(const struct registry *registry,
                               struct buf *lacking, struct err *err);
/* NULL: there is none of that name. */
const struct profile *registry_profile(const struct registry *registry,
                                       const char *name);

/* ---- registry_config.c ---- */

/* Copies the directories that configs are compared with, and whether everybody
 * is trusted. */
MUST_USE int registry_set_places(struct registry *registry,
                                 const struct registry_config *config,
                                 struct err *err);
/* Frees the directories. */
void registry_drop_places(struct registry *registry);
/* Checks a config and makes it the effective one. `before`: the one that its
 * writer, who is not the operator, has found; NULL: the operator has said it.
 */
MUST_USE int registry_check(const struct registry *registry,
                            struct config *config, const struct config *before,
                            struct err *err);
/* Reads a config that whoever uses the mount wrote. `none`: it says nothing,
 * and is that of the default profile. */
MUST_USE int registry_read_config(const struct registry *registry,
                                  const struct js *js, bool none,
                                  const struct config *before,
                                  struct config *out, struct err *err);

/* ---- registry_trash.c ---- */

/* Takes a removed session's directory away at once; its files go in the
 * background. */
void registry_trash(struct registry *registry, uint64_t number);
/* The same of any directory of a session; false where it is still there. */
bool registry_trash_path(struct registry *registry, const char *path);
/* Does in the background what an earlier daemon left of that. */
void registry_sweep(struct registry *registry);

/* ---- session_unsent.c ---- */

/* Finds in the background what an earlier daemon has kept, and sends it. */
void registry_find_unsent(struct registry *registry);

#endif
