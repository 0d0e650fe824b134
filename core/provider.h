/*
 * The contract between core and an engine that runs sandboxes.
 *
 * A provider is a const table of slots. A NULL slot means "cannot": core
 * answers -EOPNOTSUPP or composes it from others. Only core/provider.c calls
 * slots, and core/workspace_remote those for files: calls are counted, and
 * serialised for PROVIDER_SERIAL. Adding a provider: one file and one word in
 * providers/CMakeLists.txt.
 *
 * Unless a slot says otherwise it may block, runs in a thread of its own, and
 * ends when limits->deadline_ms passes (-ETIMEDOUT) or limits->cancel fires
 * (-ECANCELED). It fills *err exactly when it fails. Replies of an engine are
 * input, not truth: a provider checks them before it hands them on.
 *
 * Two calls for the same sandbox may run at once where one of them is status,
 * signal, exec, run or a file operation; create, resume, pause, destroy,
 * checkpoint and the calls of snapshots but for `open` and `list` never
 * overlap each other for one sandbox.
 */
#ifndef SESSIONFS_PROVIDER_H
#define SESSIONFS_PROVIDER_H

#include "core/cancel.h"
#include "core/config_key.h"
#include "core/err.h"
#include "core/loop.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

struct buf;
struct provider_files;     /* core/provider_files.h */
struct provider_snapshots; /* core/provider_snapshots.h */

/* The most bytes of provider_state and of metadata, each. */
enum {
    PROVIDER_STATE_MAX = 64 * 1024
};

enum provider_flags {
    PROVIDER_SERIAL = 1 << 0,            /* One call at a time. */
    PROVIDER_FILES_WHEN_PAUSED = 1 << 1, /* Files need no running sandbox. */
    PROVIDER_SPLIT_STDERR = 1 << 2,      /* stdout and stderr come apart. */
    PROVIDER_STDIN = 1 << 3,             /* Commands can be given input. */
    PROVIDER_BACKGROUND = 1 << 4,        /* Left-behind processes live on. */
    PROVIDER_MEMORY_KEPT = 1 << 5,       /* pause keeps processes. */
    PROVIDER_BASE = 1 << 6, /* A workspace starts from the directory that the
                               key `base` names. */
};

/* What an engine says of a sandbox. */
enum provider_state {
    PROVIDER_RUNNING,
    PROVIDER_PAUSED, /* Also: stopped, but its files are there. */
    PROVIDER_LOST,   /* The engine no longer has it. */
};

/* What a provider gets when it is opened; valid until it is closed. */
struct provider_env {
    const char *state_dir; /* Absolute, 0700, exists. */
    struct loop *loop;     /* For fds and timers of running commands. */
    uid_t uid;             /* The mounting user, */
    gid_t gid;             /* who owns the sandbox's default user's files. */
    bool durable_power;    /* What is reported as done survives a power cut,
                            * not only our own end. */
    bool leave;            /* When it is closed, sandboxes live on. */
    unsigned leave_s;      /* For how long, then and at our death. */
};

/* Which sandbox a call is about; borrowed for the call. */
struct sandbox {
    uint64_t number;    /* Of the session; never used twice. */
    const char *id;     /* The session's present name; for display only. */
    const char *dir;    /* A directory of its own: STATE/sessions/NUMBER. */
    const char *config; /* provider_config as a JSON object. */
    struct instance *instance;
};

/*
 * What the engine calls the sandbox. Strings are owned by the object, which
 * instance_done() empties; NULL is "none". create fills it; resume, pause and
 * checkpoint may change it (a new external_id is a replacement).
 */
struct instance {
    char *external_id;
    char *display_name;
    char *workspace_path; /* As the sandbox sees it. */
    char *provider_state; /* JSON; no secrets; PROVIDER_STATE_MAX. */
    char *metadata;       /* JSON; no secrets; PROVIDER_STATE_MAX. */
};

/** @param instance its strings are freed and set to NULL */
void instance_done(struct instance *instance);

/**
 * Copies an instance deeply.
 *
 * @param out  written on success
 * @param from borrowed
 * @return 0 or -ENOMEM
 */
MUST_USE int instance_copy(struct instance *out, const struct instance *from);

/* One command. Borrowed for the call: a provider copies what it keeps. */
struct command {
    uint64_t n;        /* Its number in the session. */
    const char *shell; /* A script for /bin/sh, given as a file; or NULL, */
    size_t shell_size; /* then argv is used. No NUL inside. */
    const char *const *argv; /* NULL-terminated. */
    const char *cwd;         /* NULL: the workspace. */
    const char *const *env;  /* NULL-terminated "K=V", added; or NULL. */
    const void *input;       /* stdin; NULL: empty. */
    size_t input_size;
    int64_t timeout_ms; /* From its start; 0: none. The provider ends it. */
};

enum command_end {
    COMMAND_EXITED,   /* code is the exit code. */
    COMMAND_KILLED,   /* signal is the signal. */
    COMMAND_TIMEOUT,  /* Ended by us at timeout_ms. */
    COMMAND_LOST,     /* The engine cannot say how it ended. */
    COMMAND_CANCELED, /* Ended by us because its token fired. */
    COMMAND_LEFT,     /* It runs on, for the next daemon. */
};

struct command_result {
    enum command_end end;
    int code;
    int signal;
    int64_t ended_us; /* By the wall clock; 0: just now. */
    struct err why;   /* Which limit it met, in words; code 0: none. */
};

enum command_stream {
    COMMAND_STDOUT,
    COMMAND_STDERR,
};

/*
 * Where a command's life goes. Called one at a time, in order, from one
 * thread, with no lock held: started once, then output as bytes arrive,
 * exited once, perhaps more output from processes left behind, closed once at
 * the very end. All are set but perhaps `take`. After an exec slot has returned
 * 0, exited and closed are certain to come.
 */
struct command_sink {
    /** @param arg the sink's @param pid in the engine's terms, 0: unknown */
    void (*started)(void *arg, int64_t pid);
    /** @param arg the sink's @param stream which @param data borrowed
     *  @param size bytes, at least 1 */
    void (*output)(void *arg, enum command_stream stream, const void *data,
                   size_t size);
    /** @param arg the sink's @param result borrowed */
    void (*exited)(void *arg, const struct command_result *result);
    /** @param arg the sink's; not used any more */
    void (*closed)(void *arg);
    /**
     * NULL, or takes output out of a pipe itself, so that no byte is lost or
     * doubled however we die.
     *
     * @param arg    the sink's
     * @param stream which
     * @param pipe   its reading end, not blocking; something is in it
     * @param most   bytes
     * @return how many were taken; -EINVAL: read it and call output
     */
    ssize_t (*take)(void *arg, enum command_stream stream, int pipe,
                    size_t most);
};

/* A directory that holds the workspace on this machine, and its owners. */
struct provider_root {
    int fd;           /* O_PATH | O_DIRECTORY; the taker closes it. */
    uid_t base;       /* Host id of the sandbox's user 0, */
    gid_t gid_base;   /* and of its group 0; */
    uint32_t count;   /* this many ids are mapped from there; */
    uint32_t user;    /* the sandbox's default user, */
    uint32_t group;   /* and its group, as the sandbox counts. */
    const char *path; /* The workspace as the sandbox sees it; borrowed for
                       * the call that takes the root; NULL: not known. */
    /* Of provider_snapshots.h, static; NULL: all files are whole. */
    const struct provider_parts *parts;
    void *parts_arg; /* Lives as long as the provider. */
};

/* An instance of a provider; a provider's own object embeds it first. */
struct provider;

/**
 * Connects to the engine, or starts what it needs. Called once, at start,
 * before requests come. May start threads.
 *
 * @param env borrowed until close
 * @param out the provider's object, its base not yet filled
 * @param err filled on failure: what this machine lacks, in words
 * @return 0 or a negative errno
 */
typedef int provider_open_fn(const struct provider_env *env,
                             struct provider **out, struct err *err);

/**
 * Ends the connection. Sandboxes stay where the engine keeps them. No call is
 * in progress; commands that still run get exited (COMMAND_LOST) and closed.
 *
 * @param provider freed
 */
typedef void provider_close_fn(struct provider *provider);

/**
 * One call about a sandbox's life: create, resume, pause, destroy,
 * checkpoint.
 *
 * create makes a sandbox that runs and fills sandbox->instance. resume makes
 * it run again, on the same workspace, also when it runs already; -ESTALE when
 * the engine no longer has it. pause stops its processes (idempotent).
 * destroy removes it with its files; success when it is not there.
 *
 * @param provider an open provider
 * @param sandbox  which; its instance is changed on success only
 * @param limits   deadline and token
 * @param err      filled on failure
 * @return 0, -ETIMEDOUT, -ECANCELED, -ENOTCONN when the engine does not
 *         answer, -EACCES, -EDQUOT, -ENOSPC, or another negative errno
 */
typedef int provider_life_fn(struct provider *provider, struct sandbox *sandbox,
                             const struct limits *limits, struct err *err);

/**
 * Asks the engine for a sandbox's state. Starts, wakes and bills nothing.
 *
 * @param provider an open provider
 * @param sandbox  which
 * @param limits   deadline and token
 * @param out      the state, on success
 * @param err      filled on failure
 * @return 0, -ENOTCONN, or another negative errno
 */
typedef int provider_status_fn(struct provider *provider,
                               const struct sandbox *sandbox,
                               const struct limits *limits,
                               enum provider_state *out, struct err *err);

/**
 * Starts a command in a running sandbox and returns; the sink tells the rest.
 * limits->cancel stays valid until sink->exited: when it fires, the command's
 * whole tree gets TERM, then KILL a second later. limits->deadline_ms is for
 * the start only.
 *
 * @param provider an open provider
 * @param sandbox  which
 * @param command  borrowed for the call
 * @param limits   deadline of the start, and the command's token
 * @param sink     static
 * @param arg      given to the sink's functions
 * @param err      filled on failure; no function of the sink is called then
 * @return 0 or a negative errno
 */
typedef int
provider_exec_fn(struct provider *provider, const struct sandbox *sandbox,
                 const struct command *command, const struct limits *limits,
                 const struct command_sink *sink, void *arg, struct err *err);

/** @param arg the caller's @param number of the session @param n of the
 *  command */
typedef void provider_kept_fn(void *arg, uint64_t number, uint64_t n);

/**
 * Tells the commands that were started under an earlier daemon and are still
 * here: they run, or their end or output was not taken by it. Each is to be
 * given to adopt. Asked once, before all else.
 *
 * @param provider an open provider
 * @param fn       called for each
 * @param arg      given to fn
 */
typedef void provider_each_kept_fn(struct provider *provider,
                                   provider_kept_fn *fn, void *arg);

/* A command of an earlier daemon. */
struct adoption {
    uint64_t number; /* Of the session. */
    uint64_t n;
    int64_t deadline_us;         /* By the wall clock; 0: none. */
    const struct cancel *cancel; /* As the token of an exec slot. */
    bool over;                   /* Its end is known: only output is wanted. */
};

/**
 * Takes such a command up, as if it had been started now; its processes know
 * nothing of it.
 *
 * @param provider an open provider
 * @param what     borrowed for the call
 * @param sink     static; NULL: nobody wants it, and its processes are killed
 * @param arg      given to the sink's functions
 * @param err      filled on failure; no function of the sink is called then
 * @return 0, -ESRCH where there is none, or another negative errno
 */
typedef int provider_adopt_fn(struct provider *provider,
                              const struct adoption *what,
                              const struct command_sink *sink, void *arg,
                              struct err *err);

/**
 * Lets a command run on for the next daemon: its sink is told COMMAND_LEFT, and
 * is closed. Does not block.
 *
 * @param provider an open provider
 * @param number   of the session
 * @param n        the command's number
 * @param err      filled on failure
 * @return 0, -ESRCH where it does not run, or -EOPNOTSUPP
 */
typedef int provider_leave_fn(struct provider *provider, uint64_t number,
                              uint64_t n, struct err *err);

/**
 * Takes note that a command's end is recorded: no later daemon need learn of
 * it. Does not block.
 *
 * @param provider an open provider
 * @param number   of the session
 * @param n        the command's number
 */
typedef void provider_settled_fn(struct provider *provider, uint64_t number,
                                 uint64_t n);

/**
 * Tells whether a sandbox has processes, running or paused. Does not block.
 *
 * @param provider an open provider
 * @param number   of the session
 * @return whether it has
 */
typedef bool provider_has_processes_fn(struct provider *provider,
                                       uint64_t number);

/** @param provider an open one @param dir of a sandbox @return whether commands
 *  that are lost may run there: other calls, status too, end them first */
typedef bool provider_left_fn(struct provider *provider, const char *dir);

/**
 * Sends a signal to a running command's processes. Does not block.
 *
 * @param provider an open provider
 * @param sandbox  which
 * @param n        the command's number
 * @param signal   a signal number of this machine
 * @param err      filled on failure
 * @return 0, -ESRCH when it does not run, or another negative errno
 */
typedef int provider_signal_fn(struct provider *provider,
                               const struct sandbox *sandbox, uint64_t n,
                               int signal, struct err *err);

/**
 * Gives the directory that holds the workspace, where it is on this machine.
 * File operations then go there and never through `struct provider_files`.
 * Does not block.
 *
 * @param provider an open provider
 * @param sandbox  which; it exists
 * @param out      filled on success
 * @param err      filled on failure
 * @return 0 or a negative errno
 */
typedef int provider_root_fn(struct provider *provider,
                             const struct sandbox *sandbox,
                             struct provider_root *out, struct err *err);

/**
 * Tells whether a sandbox's files may grow, before a write through the mount.
 * What frees room is never asked about. Does not block.
 *
 * @param provider an open provider
 * @param number   of the session
 * @param err      filled on failure
 * @return 0, -EDQUOT when the session holds too much, -ENOSPC when the engine
 *         does
 */
typedef int provider_room_fn(struct provider *provider, uint64_t number,
                             struct err *err);

/**
 * Tells whether nothing that lives in a sandbox could change its files: no
 * process of a command that has ended. Frozen ones count as living. Asked while
 * no command runs, often; does not block.
 *
 * @param provider an open provider
 * @param number   of the session
 * @return whether it is sure
 */
typedef bool provider_quiet_fn(struct provider *provider, uint64_t number);

/**
 * Tells how each limit of a sandbox is enforced here, or that it is not.
 * Does not block.
 *
 * @param provider an open provider
 * @param sandbox  which; its instance may be empty: of a sandbox to be
 * @param out      appended to: a JSON object that has for each limit an object
 *                 {"value": number or null, "by": text or null, "why": text},
 *                 where `by` is what enforces it, null: nothing does, and
 *                 then `why` says for what reason
 * @param err      filled on failure
 * @return 0 or a negative errno
 */
typedef int provider_limits_fn(struct provider *provider,
                               const struct sandbox *sandbox, struct buf *out,
                               struct err *err);

/* From which state of a workspace to which. */
struct provider_span {
    uint64_t from; /* A checkpoint's key; 0: the base that it started from. */
    uint64_t to;   /* A checkpoint's key; 0: as it is now. */
};

/** @param arg the caller's @param kind 'A', 'M' or 'D' @param path bytes,
 *  relative to the workspace @return 0, or an error that ends the telling */
typedef int provider_change_fn(void *arg, char kind, const char *path);

/**
 * Tells what differs between two states of a workspace: what was added,
 * modified or deleted. A deleted directory stands for all that was in it, an
 * added one is told with all that is in it; one that became a file, or the
 * other way round, is deleted and then added. Starts and wakes nothing.
 *
 * @param provider an open provider
 * @param sandbox  which; it exists
 * @param span     borrowed
 * @param limits   deadline and token
 * @param fn       called for each change
 * @param arg      given to fn
 * @param err      filled on failure
 * @return 0, what fn said, -ENOENT for a state that is not there, or another
 *         negative errno
 */
typedef int provider_changes_fn(struct provider *provider,
                                const struct sandbox *sandbox,
                                const struct provider_span *span,
                                const struct limits *limits,
                                provider_change_fn *fn, void *arg,
                                struct err *err);

/* A short script of core's own. Borrowed. */
struct provider_script {
    const char *text;        /* For /bin/sh, */
    const char *const *args; /* its $1, $2 …: any bytes; NULL-terminated. */
    const void *input;       /* stdin; NULL: empty. */
    size_t input_size;
    size_t most; /* Bytes of output; more is -EFBIG. */
};

/**
 * Runs a short script in a running sandbox, in the workspace, to its end, on
 * a way of its own: a command that runs long keeps none waiting.
 *
 * @param provider an open provider
 * @param sandbox  which
 * @param script   what to run
 * @param limits   deadline and token
 * @param out      its stdout, appended
 * @param code     its exit code, on success
 * @param err      filled on failure
 * @return 0, also when it failed by its own account, or a negative errno
 */
typedef int provider_run_fn(struct provider *provider,
                            const struct sandbox *sandbox,
                            const struct provider_script *script,
                            const struct limits *limits, struct buf *out,
                            int *code, struct err *err);

/**
 * Reads a whole file of a running sandbox, on a way of its own.
 *
 * @param provider an open provider
 * @param sandbox  which
 * @param path     as in `struct provider_files`
 * @param fd       written to, from its place on
 * @param limits   deadline and token
 * @param err      filled on failure
 * @return 0 or a negative errno; one that is not certain is -EIO
 */
typedef int provider_read_file_fn(struct provider *provider,
                                  const struct sandbox *sandbox,
                                  const char *path, int fd,
                                  const struct limits *limits, struct err *err);

/** Replaces a whole file, or makes it; its directory exists. As
 *  provider_read_file_fn, but that fd is read from its place to its end. */
typedef provider_read_file_fn provider_write_file_fn;

struct provider_ops {
    const char *name;
    const char *summary; /* One line for people: in --help. */
    unsigned flags;      /* enum provider_flags */
    /* Of provider_config; ends with a key without a name. NULL: no keys. */
    const struct config_key *keys;

    /* Required. */
    provider_open_fn *open;
    provider_close_fn *close;
    provider_life_fn *create;
    provider_life_fn *resume;
    provider_life_fn *destroy;
    provider_status_fn *status;
    provider_exec_fn *exec;

    /* Optional. */
    provider_life_fn *pause;      /* NULL: nothing is ever paused. */
    provider_life_fn *checkpoint; /* Of an engine that keeps its own, where
                                   * there are no snapshots; NULL: none. */
    provider_signal_fn *signal;
    /* These four are set, or none: commands end with the daemon then. */
    provider_each_kept_fn *each_kept;
    provider_adopt_fn *adopt;
    provider_leave_fn *leave;
    provider_settled_fn *settled;
    /* Set where processes may end with the daemon, and where states are told at
     * once. */
    provider_has_processes_fn *has_processes;
    provider_left_fn *left;     /* NULL: commands end with the daemon. */
    provider_limits_fn *limits; /* NULL: none are known. */
    provider_room_fn *room;     /* NULL: there is always room. */
    provider_quiet_fn *quiet;   /* NULL: nobody knows. */
    provider_changes_fn *changes;
    const struct provider_snapshots *snapshots;
    provider_root_fn *root; /* One of root and files is set. */
    const struct provider_files *files;
    provider_run_fn *run;             /* For core/files_over_exec, */
    provider_read_file_fn *read_file; /* like these. */
    provider_write_file_fn *write_file;
};

struct provider {
    const struct provider_ops *ops;
    struct provider_calls *calls; /* core/provider.c's own. */
};

/* The table that providers/CMakeLists.txt generates; ends with NULL. */
extern const struct provider_ops *const provider_table[];

/* ---- Checked calls: the only way to a slot. ---- */

/**
 * Opens a provider after checking that its table is complete.
 *
 * @param ops static
 * @param env borrowed until provider_close()
 * @param out the provider, on success
 * @param err filled on failure
 * @return 0, -ENOSYS for an incomplete table, or what its open said
 */
MUST_USE int provider_open(const struct provider_ops *ops,
                           const struct provider_env *env,
                           struct provider **out, struct err *err);

/** @param provider closed and freed; NULL is fine */
void provider_close(struct provider *provider);

provider_life_fn provider_create MUST_USE;
provider_life_fn provider_resume MUST_USE;
provider_life_fn provider_pause MUST_USE;
provider_life_fn provider_destroy MUST_USE;
provider_life_fn provider_checkpoint MUST_USE;
provider_status_fn provider_status MUST_USE;
provider_exec_fn provider_exec MUST_USE;
provider_signal_fn provider_signal MUST_USE;
provider_each_kept_fn provider_each_kept;
provider_adopt_fn provider_adopt MUST_USE;
provider_leave_fn provider_leave MUST_USE;
provider_settled_fn provider_settled;
provider_has_processes_fn provider_has_processes; /* false without the slot. */
provider_left_fn provider_left;                   /* false without the slot. */
provider_root_fn provider_root MUST_USE;
provider_run_fn provider_run MUST_USE;
provider_read_file_fn provider_read_file MUST_USE;
provider_write_file_fn provider_write_file MUST_USE;
provider_changes_fn provider_changes MUST_USE;
provider_limits_fn provider_limits MUST_USE; /* `{}` without the slot. */
provider_room_fn provider_room MUST_USE;     /* 0 without the slot. */
provider_quiet_fn provider_quiet MUST_USE;   /* false without the slot. */

/**
 * Tells the calls so far, for `stats`.
 *
 * @param provider an open provider
 * @param fn       called with each operation's name, calls and failures
 * @param arg      given to fn
 */
void provider_stats(const struct provider *provider,
                    void (*fn)(void *arg, const char *op, uint64_t calls,
                               uint64_t failures),
                    void *arg);

#endif
