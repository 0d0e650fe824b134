/*
 * What survives the daemon: sessions, their sandboxes' records, commands,
 * events and failures, in STATE/state.db. The only module that knows SQLite.
 *
 * One connection behind one mutex, so no call meets a locked database. All
 * functions are thread-safe and wait for the disk only. What a function
 * changes, it changes in one transaction, together with its event.
 */
#ifndef SESSIONFS_STORE_H
#define SESSIONFS_STORE_H

#include "core/exec.h"
#include "core/session.h"

struct buf;
struct js;
struct store;

/* A row of `sessions`. */
struct store_session {
    uint64_t number;
    uint64_t generation; /* Of the sandbox; counts over all of them. */
    int64_t created_us;
    char id[SESSION_ID_SIZE];
    char *config; /* JSON; store_session_done() frees it. */
};

/* What is recorded of a sandbox. */
struct store_state {
    enum session_status status; /* STARTING, RUNNING, PAUSED or DELETING. */
    char *provider;             /* Whose sandbox it is. */
    struct instance instance;
    uint64_t generation;
    int64_t created_us;
    int64_t updated_us;
    int64_t init_completed_us; /* 0: not yet. */
    char *last_init_error;     /* NULL: none. */
    struct err err;            /* Why a deletion is not confirmed. */
    uint64_t head;             /* The checkpoint that its files are since; 0:
                                * what it started from. */
};

/* A line of `events` to be. */
struct store_event {
    const char *name;            /* Of this program's own making. */
    uint64_t exec;               /* 0: about no command. */
    const struct caller *caller; /* NULL: nobody asked. */
    const struct js *detail;     /* An object; NULL: an empty one. */
};

/**
 * Opens a state directory: makes it, locks it, migrates it.
 *
 * @param dir     absolute; made 0700 when it is missing
 * @param wait_ms how long a holder that is unmounting is waited for
 * @param out     the store, on success
 * @param err     filled on failure
 * @return 0, -EBUSY naming the pid of its holder, -EPERM for a directory that
 *         others may use, -EIO
 */
MUST_USE int store_open(const char *dir, int64_t wait_ms, struct store **out,
                        struct err *err);

/** From now on what has been recorded survives a power cut. @param store just
 *  opened @param err filled on failure @return 0 or -EIO */
MUST_USE int store_survive_power(struct store *store, struct err *err);

/** @param store the store @return whether the one before it was not closed:
 *  what it knew and had not recorded is lost */
bool store_cut_off(const struct store *store);

/** @param store of a mount @param major of its device @param minor of it */
void store_mounted(struct store *store, unsigned major, unsigned minor);

/** @param store one that is about to be closed: others may wait for it */
void store_closing(struct store *store);

/** Gives a full disk back what was kept for this, so that a deletion can be
 *  recorded. @param store the store */
void store_spend_reserve(struct store *store);
/** Keeps room again, where there is some. @param store the store */
void store_keep_reserve(struct store *store);

/** @param store closed and freed; NULL is fine */
void store_close(struct store *store);

/* ---- Sessions ---- */

/** @param row its strings are freed */
void store_session_done(struct store_session *row);

/**
 * Adds a session.
 *
 * @param store  the store
 * @param id     a valid id
 * @param config JSON
 * @param caller who asks
 * @param number its number, on success
 * @param err    filled on failure
 * @return 0, -EEXIST, -ENOSPC, -EIO
 */
MUST_USE int store_session_add(struct store *store, const char *id,
                               const char *config, const struct caller *caller,
                               uint64_t *number, struct err *err);

/**
 * Finds a session by its id.
 *
 * @param store the store
 * @param id    any bytes
 * @param out   filled on success
 * @param err   filled on failure
 * @return 0, -ENOENT, -EIO
 */
MUST_USE int store_session_find(struct store *store, const char *id,
                                struct store_session *out, struct err *err);

/**
 * Finds a session by its number.
 *
 * @param store  the store
 * @param number its number
 * @param out    filled on success
 * @param err    filled on failure
 * @return 0, -ENOENT, -EIO
 */
MUST_USE int store_session_get(struct store *store, uint64_t number,
                               struct store_session *out, struct err *err);

/**
 * Removes a session and all that is recorded of it.
 *
 * @param store  the store
 * @param number its number
 * @param err    filled on failure
 * @return 0, -ENOTEMPTY while there is a state record, -EIO
 */
MUST_USE int store_session_remove(struct store *store, uint64_t number,
                                  struct err *err);

/**
 * Gives a session another id.
 *
 * @param store  the store
 * @param number its number
 * @param id     the new id, valid
 * @param event  recorded with it
 * @param err    filled on failure
 * @return 0, -ENOTEMPTY when the id is taken, -EIO
 */
MUST_USE int store_session_rename(struct store *store, uint64_t number,
                                  const char *id,
                                  const struct store_event *event,
                                  struct err *err);

/**
 * Gives a session another config.
 *
 * @param store  the store
 * @param number of the session
 * @param config JSON
 * @param event  recorded with it
 * @param err    filled on failure
 * @return 0, -ENOSPC, -EIO
 */
MUST_USE int store_session_configure(struct store *store, uint64_t number,
                                     const char *config,
                                     const struct store_event *event,
                                     struct err *err);

/**
 * Reads the first sessions above a number, ascending.
 *
 * @param store the store
 * @param after only numbers above it
 * @param out   filled, without configs
 * @param most  rows of out
 * @param err   filled on failure
 * @return how many, or a negative errno
 */
MUST_USE ssize_t store_session_list(struct store *store, uint64_t after,
                                    struct store_session *out, size_t most,
                                    struct err *err);

/* Figures for `stats`. */
struct store_counts {
    uint64_t sessions;
    uint64_t by_status[SESSION_UNREACHABLE + 1]; /* As recorded; none is
                                                  * recorded as absent. */
    uint64_t running;                            /* Commands. */
    uint64_t queued;
};

/**
 * Counts what is recorded, without reading it all.
 *
 * @param store the store
 * @param out   written on success
 * @param err   filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int store_count(struct store *store, struct store_counts *out,
                         struct err *err);

/** @param store the store @return how many sessions there are */
uint64_t store_session_count(struct store *store);

/**
 * @param store    the store
 * @param provider a provider's name
 * @param err      filled on failure
 * @return 1 when a session uses it, 0, or a negative errno
 */
MUST_USE int store_provider_used(struct store *store, const char *provider,
                                 struct err *err);

/* ---- Records of sandboxes ---- */

/** @param state its strings are freed; it is empty then */
void store_state_done(struct store_state *state);

/**
 * Reads a session's record.
 *
 * @param store  the store
 * @param number of the session
 * @param out    filled on success; store_state_done() frees it
 * @param err    filled on failure
 * @return 0, -ENOENT when there is no sandbox, -EIO
 */
MUST_USE int store_state_load(struct store *store, uint64_t number,
                              struct store_state *out, struct err *err);

/**
 * Writes a session's record, when nobody else wrote another generation.
 *
 * @param store    the store
 * @param number   of the session
 * @param expected the generation that the writer knows
 * @param state    borrowed; its own generation is what is written
 * @param event    recorded with it; NULL: none
 * @param err      filled on failure
 * @return 0, -ESTALE for an old generation, -EIO
 */
MUST_USE int store_state_save(struct store *store, uint64_t number,
                              uint64_t expected,
                              const struct store_state *state,
                              const struct store_event *event, struct err *err);

/**
 * Removes a session's record: there is no sandbox any more, and no checkpoint
 * of it.
 *
 * @param store    the store
 * @param number   of the session
 * @param expected the generation that the writer knows
 * @param event    recorded with it; NULL: none
 * @param err      filled on failure
 * @return 0, -ESTALE for an old generation, -EIO
 */
MUST_USE int store_state_remove(struct store *store, uint64_t number,
                                uint64_t expected,
                                const struct store_event *event,
                                struct err *err);

/**
 * Reads the first sessions above a number whose record has a status.
 *
 * @param store  the store
 * @param status which
 * @param after  only numbers above it
 * @param out    filled with numbers, ascending
 * @param most   rows of out
 * @param err    filled on failure
 * @return how many, or a negative errno
 */
MUST_USE ssize_t store_state_list(struct store *store,
                                  enum session_status status, uint64_t after,
                                  uint64_t *out, size_t most, struct err *err);

/* ---- Commands ---- */

/* A command to be. Borrowed. */
struct store_exec {
    const char *script; /* Or what stands for it. */
    size_t size;
    const char *request; /* The JSON that asked for it; NULL: the script. */
    size_t request_size;
    enum shape_mode mode;
    bool background;
    bool init; /* Of the config's: it does not queue, and is nobody's newest. */
};

/**
 * Records a command, queued, with the event `exec.queued`; an init command
 * without one.
 *
 * @param store  the store
 * @param number of the session
 * @param exec   the command
 * @param caller who asks
 * @param out    its number and time, on success
 * @param err    filled on failure
 * @return 0, -ENOENT without the session, -ENOSPC, -EIO
 */
MUST_USE int store_exec_add(struct store *store, uint64_t number,
                            const struct store_exec *exec,
                            const struct caller *caller, struct exec_info *out,
                            struct err *err);

/**
 * Writes what is known of a command.
 *
 * @param store  the store
 * @param number of the session
 * @param info   all is written but submitted_us, what was asked for and
 *               cancelled
 * @param event  recorded with it
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int store_exec_save(struct store *store, uint64_t number,
                             const struct exec_info *info,
                             const struct store_event *event, struct err *err);

/**
 * Records that the end of a command was asked for, where it has not ended.
 *
 * @param store  the store
 * @param number of the session
 * @param n      of the command
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int store_exec_cancel(struct store *store, uint64_t number, uint64_t n,
                               struct err *err);

/**
 * Reads a command's record.
 *
 * @param store  the store
 * @param number of the session
 * @param n      of the command; 0: the newest that is no init command
 * @param out    filled on success
 * @param err    filled on failure
 * @return 0, -ENOENT, -EIO
 */
MUST_USE int store_exec_load(struct store *store, uint64_t number, uint64_t n,
                             struct exec_info *out, struct err *err);

/**
 * Reads a command's text.
 *
 * @param store  the store
 * @param number of the session
 * @param n      of the command
 * @param out    appended to
 * @param err    filled on failure
 * @return 0, -ENOENT, -EIO
 */
MUST_USE int store_exec_text(struct store *store, uint64_t number, uint64_t n,
                             struct buf *out, struct err *err);

/**
 * Reads the JSON that asked for a command.
 *
 * @param store  the store
 * @param number of the session
 * @param n      of the command
 * @param out    appended to; nothing, where it was no JSON
 * @param err    filled on failure
 * @return 0, -ENOENT, -EIO
 */
MUST_USE int store_exec_request(struct store *store, uint64_t number,
                                uint64_t n, struct buf *out, struct err *err);

/**
 * Removes commands.
 *
 * @param store  the store
 * @param number of the session
 * @param n      their numbers
 * @param count  how many
 * @param err    filled on failure
 * @return 0 or a negative errno: none is removed then
 */
MUST_USE int store_exec_drop(struct store *store, uint64_t number,
                             const uint64_t *n, size_t count, struct err *err);

/**
 * Reads the first commands' numbers above one, ascending.
 *
 * @param store  the store
 * @param number of the session
 * @param after  only numbers above it
 * @param out    filled
 * @param most   rows of out
 * @param err    filled on failure
 * @return how many, or a negative errno
 */
MUST_USE ssize_t store_exec_list(struct store *store, uint64_t number,
                                 uint64_t after, uint64_t *out, size_t most,
                                 struct err *err);

/* Names a command. */
struct exec_key {
    uint64_t number; /* Of the session. */
    uint64_t n;
};

/**
 * Records every command that is queued or running as lost, with an event.
 *
 * @param store the store, before anything is submitted
 * @param but   commands that are not: they run indeed
 * @param count how many
 * @param err   filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int store_exec_lose_all(struct store *store,
                                 const struct exec_key *but, size_t count,
                                 struct err *err);

/* ---- Events and failures ---- */

/**
 * Adds a line to a session's events.
 *
 * @param store  the store
 * @param number of the session
 * @param event  borrowed
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int store_event_add(struct store *store, uint64_t number,
                             const struct store_event *event, struct err *err);

/**
 * Tells who asked for a command, as its last event of that name says.
 *
 * @param store  the store
 * @param number of the session
 * @param event  its number and name are looked at
 * @param out    on success
 * @param err    filled on failure
 * @return 0, -ENOENT where no event tells, or another negative errno
 */
MUST_USE int store_event_caller(struct store *store, uint64_t number,
                                const struct store_event *event,
                                struct caller *out, struct err *err);

/**
 * Limits the events of each session. The oldest go, an eighth of `most` at a
 * time; numbers and offsets of the others stay as they are.
 *
 * @param store the store, before it is used
 * @param most  lines that stay at least; 0: all
 */
void store_events_keep(struct store *store, unsigned most);

/**
 * Reads a session's events as a file. Offsets count from the first event that
 * there ever was.
 *
 * @param store  the store
 * @param number of the session
 * @param offset in bytes; becomes that of the first line, where it is below
 * @param out    at most size bytes
 * @param size   of out
 * @param err    filled on failure
 * @return bytes, 0 at the end, or a negative errno
 */
MUST_USE ssize_t store_events_read(struct store *store, uint64_t number,
                                   uint64_t *offset, void *out, size_t size,
                                   struct err *err);

/** @param store the store @param number of a session
 *  @return the offset of its first event that is kept */
uint64_t store_events_begin(struct store *store, uint64_t number);

/** @param store the store @param number of a session
 *  @return the offset of the end of its events */
uint64_t store_events_end(struct store *store, uint64_t number);

/* How many failures are kept of each session. */
enum {
    STORE_FAILURES = 20
};

/**
 * Adds a line to a session's failures; the oldest goes.
 *
 * @param store  the store
 * @param number of the session; 0: the top level
 * @param line   ends with a newline
 * @param size   of line
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int store_failure_add(struct store *store, uint64_t number,
                               const char *line, size_t size, struct err *err);

/**
 * Reads a session's failures, oldest first.
 *
 * @param store  the store
 * @param number of the session; 0: the top level
 * @param out    appended to
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int store_failures(struct store *store, uint64_t number,
                            struct buf *out, struct err *err);

#endif
