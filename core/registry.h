/*
 * All sessions of one mount: id -> session. Thousands may exist; one is loaded
 * when it is first used and dropped from memory when nobody holds it and
 * nothing of it runs.
 *
 * No function here waits for an engine, so the kernel's directory locks are
 * never held for one.
 */
#ifndef SESSIONFS_REGISTRY_H
#define SESSIONFS_REGISTRY_H

#include "core/loop.h"
#include "core/provider.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct buf;
struct registry;
struct session;

enum {
    SESSION_ID_MAX = 64,
    SESSION_ID_SIZE = SESSION_ID_MAX + 1,
};

/* Who asks: recorded in `events` and `error`. */
struct caller {
    uid_t uid;
    pid_t pid;
};

/*
 * What core tells fs. Called with no lock held, from any thread; must not
 * wait. All may be NULL.
 */
struct registry_hooks {
    void *arg;
    /* Files of this session's workspace changed behind the kernel. */
    void (*changed)(void *arg, struct session *session);
    /* Its status text, its events or the output of a command changed. */
    void (*news)(void *arg, struct session *session);
    /* At the end: a sandbox that could not be paused, or is not confirmed as
     * deleted, in time; with the session's id and its recorded status. */
    void (*left)(void *arg, const char *id, const char *status);
    /* The files of its tree, none of which is open, are others now that show
     * the same. */
    void (*moved)(void *arg, struct session *session);
};

/* What becomes of sandboxes at the end. */
enum registry_end {
    REGISTRY_PAUSE,  /* What runs is paused. */
    REGISTRY_KEEP,   /* All stay as they are, as far as their engines can. */
    REGISTRY_DELETE, /* All are destroyed; the sessions stay. */
};

struct registry_config {
    const char *state_dir; /* Made when missing, 0700. Absolute. */
    const char *provider;  /* Of new sessions: a name in the table. */
    const char *profiles;  /* A directory of NAME.json; NULL: none. */
    const char *base;      /* `base` may name what is below; NULL: none. */
    const char *mount;     /* Where this is mounted; NULL: nowhere. */
    bool trust_config;     /* Whoever writes configs is the operator. */
    uid_t uid;             /* Whose files the sandboxes' are shown as: the */
    gid_t gid;             /* mounting user's, and this group's. */
    bool raw_links;        /* As in struct ws_view, */
    uint64_t cache_bytes;  /* like these. */
    uint64_t stage_bytes;
    enum registry_end on_unmount;
    unsigned leave_s;   /* How long sandboxes live without us, seconds. */
    int64_t wait_ms;    /* For a holder of the state that is unmounting. */
    bool durable_power; /* As in struct provider_env; what core records too. */
    unsigned events_keep; /* Of each session, lines; 0: all. */
    unsigned execs_keep;  /* Of each session, commands; 0: all. */
    struct loop *loop;    /* Borrowed; outlives the registry. */
    struct registry_hooks hooks;
};

/**
 * Opens the state directory and its store (locking both), and the providers
 * that are needed; settles what an earlier daemon left: commands that ran are
 * recorded as lost, half-done deletions go on. Profiles are read once, here.
 *
 * @param config borrowed for the call, but loop and hooks
 * @param table  ends with NULL; static
 * @param out    the registry, on success
 * @param err    filled on failure
 * @return 0, -EBUSY when another daemon holds the state (its pid is named; one
 *         that is unmounting is waited for),
 *         -ENODEV for an unknown provider, or what the store or provider said
 */
MUST_USE int registry_open(const struct registry_config *config,
                           const struct provider_ops *const *table,
                           struct registry **out, struct err *err);

/**
 * Says whether registry_open() could read the profiles. Opens nothing else.
 *
 * @param config  as for that
 * @param table   ends with NULL; static
 * @param lacking gets a line for each of them that names what is not there: by
 *                that one no session could be made now
 * @param err     filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int registry_check_profiles(const struct registry_config *config,
                                     const struct provider_ops *const *table,
                                     struct buf *lacking, struct err *err);

/**
 * Says to others who want the state what is mounted as long as it is in use.
 *
 * @param registry the registry
 * @param major    of the mounted device
 * @param minor    of it
 */
void registry_mounted(struct registry *registry, unsigned major,
                      unsigned minor);

/**
 * Says to others who want the state that it is about to be free, as
 * registry_close() does.
 *
 * @param registry the registry, still in use
 */
void registry_ending(struct registry *registry);

/**
 * Sends what was written to files that are open still, and logs what cannot be
 * sent. Before those files are closed.
 *
 * @param registry the registry; NULL is fine
 * @param end_ms   how long all of it may take
 */
void registry_send(struct registry *registry, int64_t end_ms);

/**
 * Ends the registry: cancels commands, pauses or deletes sandboxes as
 * on_unmount says (bounded by end_ms), closes providers and the store. What is
 * not confirmed as deleted by then, the next start deletes. A call of an engine
 * that does not end, though it was cancelled, is not waited for long.
 *
 * @param registry freed, unless a call does not end; nobody uses its sessions
 *                 any more; NULL is fine
 * @param end_ms   how long all pauses or deletions together may take
 * @return false when a call does not end: it still uses the registry and the
 *         loop, so the process should end without freeing them
 */
bool registry_close(struct registry *registry, int64_t end_ms);

/** @param id bytes @return whether it is a valid session id */
bool session_id_valid(const char *id);

/**
 * Makes a session by the profile `default`: a record, and no sandbox unless
 * the profile says so.
 *
 * @param registry the registry
 * @param id       its name
 * @param caller   who asks
 * @param out      the session with a reference, on success; may be NULL
 * @param err      filled on failure
 * @return 0, -EINVAL for a bad id, -EEXIST, -ENOSPC, -EIO
 */
MUST_USE int registry_create(struct registry *registry, const char *id,
                             const struct caller *caller, struct session **out,
                             struct err *err);

/**
 * Makes a session as one write to `new` says: `PROFILE [ID]`, or a config in
 * JSON, which may have an `id`. Where the config says so, the sandbox starts in
 * the background.
 *
 * @param registry the registry
 * @param text     borrowed; blanks at its ends mean nothing
 * @param size     its bytes
 * @param caller   who asks
 * @param id       the session's id, on success
 * @param err      filled on failure
 * @return 0, -EINVAL, -EPERM for what the operator alone may say, -ENOENT for
 *         an unknown profile, -ENODEV for an unknown provider, -EEXIST, -EFBIG,
 *         -ENOSPC, -EIO
 */
MUST_USE int registry_new(struct registry *registry, const char *text,
                          size_t size, const struct caller *caller,
                          char id[SESSION_ID_SIZE], struct err *err);

/**
 * Checks a directory that the operator wants a workspace to start from.
 *
 * @param registry the registry
 * @param path     absolute
 * @param err      filled on failure
 * @return 0, -EINVAL for one in the mount or that overlaps the state
 *         directory, or what the file system said
 */
MUST_USE int registry_check_place(const struct registry *registry,
                                  const char *path, struct err *err);

/* A session that the operator wants; borrowed. */
struct registry_order {
    const char *profile; /* Its name. */
    const char *id;      /* The session's. */
    const char *base;    /* An absolute directory of this machine that its
                            workspace starts from, unless the profile names
                            one; NULL: none. */
    const struct caller *caller;
};

/**
 * Makes a session by a profile, for the operator.
 *
 * @param registry the registry
 * @param order    what it is to be
 * @param lacks    on success, whether the engine can start from no directory,
 *                 so that base means nothing to it
 * @param out      the session with a reference, on success
 * @param err      filled on failure
 * @return 0, -EINVAL, -ENOENT for an unknown profile, -ENODEV for an unknown
 *         provider, -EEXIST, -ENOSPC, -EIO, or what the file system said of
 *         base
 */
MUST_USE int registry_new_by(struct registry *registry,
                             const struct registry_order *order, bool *lacks,
                             struct session **out, struct err *err);

/**
 * Finds a session by its id.
 *
 * @param registry the registry
 * @param id       any bytes
 * @param out      the session with a reference, on success
 * @param err      filled on failure
 * @return 0 or -ENOENT
 */
MUST_USE int registry_find(struct registry *registry, const char *id,
                           struct session **out, struct err *err);

/**
 * Loads a session by its number.
 *
 * @param registry the registry
 * @param number   any
 * @param out      the session with a reference, on success
 * @param err      filled on failure
 * @return 0, -ENOENT, or another negative errno
 */
MUST_USE int registry_load(struct registry *registry, uint64_t number,
                           struct session **out, struct err *err);

/**
 * Removes a session that has no sandbox, with its records and output.
 *
 * @param registry the registry
 * @param id       its name
 * @param err      filled on failure
 * @return 0, -ENOENT, -ENOTEMPTY while there is a sandbox, -EBUSY while
 *         something of it runs
 */
MUST_USE int registry_remove(struct registry *registry, const char *id,
                             struct err *err);

/**
 * Gives a session another id. Its number, files and history stay.
 *
 * @param registry the registry
 * @param id       its present name
 * @param new_id   the other
 * @param caller   who asks
 * @param err      filled on failure
 * @return 0, -ENOENT, -EINVAL for a bad id, -ENOTEMPTY when it is taken
 */
MUST_USE int registry_rename(struct registry *registry, const char *id,
                             const char *new_id, const struct caller *caller,
                             struct err *err);

/**
 * Tells every session's number and id, in the order of numbers.
 *
 * @param registry the registry
 * @param after    only numbers above this one; 0: all
 * @param fn       called without locks; false ends the walk
 * @param arg      given to fn
 * @param err      filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int registry_each(struct registry *registry, uint64_t after,
                           bool (*fn)(void *arg, uint64_t number,
                                      const char *id),
                           void *arg, struct err *err);

/**
 * @param registry the registry
 * @return whether no sandbox runs, or is being made or deleted
 */
bool registry_at_rest(struct registry *registry);

/** @param registry the registry @return how many sessions there are */
uint64_t registry_count(struct registry *registry);

/**
 * Adds a line to the top-level `error` file.
 *
 * @param registry the registry
 * @param op       what failed
 * @param name     what it was about; any bytes, quoted in the line
 * @param caller   who asked
 * @param err      why
 */
void registry_fail(struct registry *registry, const char *op, const char *name,
                   const struct caller *caller, const struct err *err);

/**
 * The text of the top-level `error` file.
 *
 * @param registry the registry
 * @param out      appended to
 * @param err      filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int registry_errors(struct registry *registry, struct buf *out,
                             struct err *err);

/**
 * Counters of core and providers in the text format of Prometheus.
 *
 * @param registry the registry
 * @param out      appended to
 * @param err      filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int registry_stats(struct registry *registry, struct buf *out,
                            struct err *err);

/* What a mount tells of, by numbers from 1 in the order of names. */
enum registry_list {
    REGISTRY_PROFILES,  /* Their configs, as JSON. */
    REGISTRY_PROVIDERS, /* What they can, in words. */
};

/**
 * @param registry the registry
 * @param list     of what
 * @param number   from 1
 * @return its name, borrowed; NULL: there are not so many
 */
const char *registry_name(const struct registry *registry,
                          enum registry_list list, uint64_t number);

/**
 * Tells of one.
 *
 * @param registry the registry
 * @param list     of what
 * @param number   as for registry_name()
 * @param out      appended to
 * @param err      filled on failure
 * @return 0, -ENOENT or another negative errno
 */
MUST_USE int registry_about(struct registry *registry, enum registry_list list,
                            uint64_t number, struct buf *out, struct err *err);

/**
 * Room on the file system that holds the state, for `df` on the mount's root.
 *
 * @param registry the registry
 * @param out      written
 * @param err      filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int registry_statfs(struct registry *registry, struct statvfs *out,
                             struct err *err);

#endif
