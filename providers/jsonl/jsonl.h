/*
 * The provider `jsonl`: any engine that has a program which speaks sandbox.v1,
 * JSON lines over its stdin and stdout (`PROGRAM serve`).
 *
 * A process of the program does one thing at a time, and any of them serves
 * any session, so they are kept in a pool: a running command has one to
 * itself, a short call takes one that is idle or a new one. One that does not
 * answer in time, or says what makes no sense, is ended; whoever called it is
 * told, and the next call has another.
 *
 * Private to providers/jsonl/.
 */
#ifndef SESSIONFS_PROVIDERS_JSONL_H
#define SESSIONFS_PROVIDERS_JSONL_H

#include "core/mutex.h"
#include "core/provider.h"
#include "core/workers.h"
#include "providers/jsonl/peer.h"

struct pool;

enum {
    MARK_SIZE = 64 /* Bytes of a command's mark. */
};

struct jsonl {
    struct provider base; /* First. */
    struct loop *loop;
    struct pool *pool;
    struct workers *aside; /* For calls that the loop's thread wants. */
    struct cancel closing; /* Ends those. */
    struct mutex lock;
    struct list leases GUARDED;   /* By lock, like all below. */
    struct list commands GUARDED; /* Until they are closed. */
    unsigned leaving GUARDED;     /* Those that are being freed. */
    unsigned endings GUARDED;     /* What is to be done to some. */
    struct cond closed; /* Less of those, obeyed is set, or a lease is clean. */
    bool obeyed GUARDED;
};

/* A sandbox that we have to do with; by references. */
struct lease {
    struct list link; /* jsonl->leases, by its lock, like the next three. */
    unsigned refs GUARDED;
    struct list endings GUARDED; /* Of commands: what is to be done, */
    bool ending GUARDED;         /* and whether a thread is at it. */
    struct list lost GUARDED;    /* Marks that an earlier daemon has left, */
    bool cleaning GUARDED;       /* and whether somebody ends their commands. */
    uint64_t number;
    char *dir; /* Of the session. */
    struct program program;
    char *session;   /* JSON, to be given back as it came. */
    char *id;        /* Of it. */
    char *workspace; /* As the sandbox sees it. */
    /* A call failed in a way that a session nobody knows would explain. */
    atomic_bool doubtful;
};

/** @param provider a jsonl @return its object */
struct jsonl *jsonl_of(struct provider *provider);

/* ---- Configs: keys.c ---- */

extern const struct config_key jsonl_keys[];

/**
 * Reads a provider_config.
 *
 * @param config JSON
 * @param out    filled on success; program_done() frees it
 * @param err    filled on failure
 * @return 0, -EINVAL or -ENOMEM
 */
MUST_USE int program_read(const char *config, struct program *out,
                          struct err *err);
/** @param program emptied */
void program_done(struct program *program);
/** @param out gets argv and env alone, which tell programs apart
 *  @param from borrowed @return 0 or -ENOMEM */
MUST_USE int program_copy(struct program *out, const struct program *from);
/** @param a a program @param b a program @return whether a process of one may
 *  do the work of the other */
bool program_same(const struct program *a, const struct program *b);

/* ---- The pool: pool.c ---- */

/** @param out the pool, on success @return 0 or -ENOMEM */
MUST_USE int pool_new(struct pool **out);
/** @param pool all its processes are idle; they are ended. NULL is fine */
void pool_free(struct pool *pool);

/**
 * Takes a process of a program, a new one where none is idle.
 *
 * @param pool    the pool
 * @param program borrowed for the call
 * @param limits  deadline and token, for a place when there are too many
 * @param out     the process, on success
 * @param err     filled on failure
 * @return 0, -ETIMEDOUT, -ECANCELED, -ENOTCONN, or another negative errno
 */
MUST_USE int pool_take(struct pool *pool, const struct program *program,
                       const struct limits *limits, struct peer **out,
                       struct err *err);

/** Gives it back; a broken one is ended. May wait a moment. @param pool the
 *  pool @param program as it was taken @param peer without a request */
void pool_give(struct pool *pool, const struct program *program,
               struct peer *peer);

/* ---- Messages: wire.c ---- */

/* What a call was answered. */
struct answer {
    struct js *result;     /* Owned; NULL: it failed. */
    struct buf streams[2]; /* What its events held. */
    char code[48];         /* Of the failure, */
    bool retryable;
    char words[384]; /* what to say of it: its code and message. */
};

/** @param out made empty @param most bytes of each stream */
void answer_init(struct answer *out, size_t most);
/** @param answer emptied */
void answer_done(struct answer *answer);

/** @param error of a message @param out its members about failure are set */
void wire_failure(const struct js *error, struct answer *out);
/** @param answer a failed one @param err filled @return the negative errno
 *  that its code stands for; -ENOENT where words say that something is not
 *  there, which may be the session */
int wire_fail(const struct answer *answer, struct err *err);
/** @param js an object @param key of a base64 text @param out appended to; no
 *  such member is no bytes @param err filled on failure @return 0, -EPROTO for
 *  what is none, -EFBIG, -ENOMEM */
MUST_USE int wire_bytes(const struct js *js, const char *key, struct buf *out,
                        struct err *err);
/** @param js an object @param key of a text @return it, borrowed; NULL where
 *  there is none, or one with bytes that are no UTF-8 or a NUL */
const char *wire_text(const struct js *js, const char *key);
/** @param js an object @param key of a number @param out set where there is
 *  one @return whether there is */
bool wire_int(const struct js *js, const char *key, int64_t *out);
/** @param js a value or NULL @param key of it @return whether it is true */
bool wire_true(const struct js *js, const char *key);
/** @param js gets `key`: base64 @param data borrowed @param size bytes
 *  @return 0, -EFBIG or -ENOMEM */
MUST_USE int wire_set_bytes(struct js *js, const char *key, const void *data,
                            size_t size);
/** @param text bytes @return whether they are UTF-8 */
bool wire_is_text(const char *text);

/* ---- Calls to their end: quick.c ---- */

/* One request. Borrowed, but for params. */
struct quick {
    const struct program *program;
    const char *session; /* NULL: none. */
    const char *method;
    struct js *params; /* Taken. */
    bool asked;        /* Set once a process may have got it. */
};

/**
 * Calls a method on a process that does nothing else meanwhile, more than once
 * where the program says that this may help.
 *
 * @param jsonl  the provider
 * @param quick  the request
 * @param limits deadline and token
 * @param out    the answer, also a failed one; initialised
 * @param err    filled on failure
 * @return 0 when there is an answer, or a negative errno
 */
MUST_USE int quick_ask(struct jsonl *jsonl, struct quick *quick,
                       const struct limits *limits, struct answer *out,
                       struct err *err);
/** As quick_ask(), where an answer that tells of a failure is one. */
MUST_USE int quick_call(struct jsonl *jsonl, struct quick *quick,
                        const struct limits *limits, struct answer *out,
                        struct err *err);

/* One script in a sandbox. */
struct quick_script {
    const struct program *program;
    const char *session;
    const char *cwd; /* NULL: the session's. */
    const struct provider_script *script;
};

/**
 * Runs a script in a sandbox to its end. Its arguments may be any bytes.
 *
 * @param jsonl  the provider
 * @param ask    borrowed
 * @param limits deadline and token
 * @param out    its stdout, appended
 * @param code   its exit code, on success; negative: a signal
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int quick_run(struct jsonl *jsonl, const struct quick_script *ask,
                       const struct limits *limits, struct buf *out, int *code,
                       struct err *err);

provider_run_fn jsonl_run;
provider_read_file_fn jsonl_read_file;
provider_write_file_fn jsonl_write_file;

/* Makes params whose argv is `/bin/sh -c TEXT sh ARGS`; NULL without memory.
 * Arguments that are no UTF-8 arrive all the same. */
struct js *wire_script(const char *text, const char *const *args);
/* Makes params whose argv is this, the same. */
struct js *wire_argv(const char *const *argv);

/* ---- What is known of a sandbox: note.c ---- */

/* A file in the session's directory, 0600: who may close a session may use
 * it, and what it says is the engine's business alone. */
struct note {
    char *group;   /* What the sandbox was opened in; NULL: never. */
    char *session; /* JSON; NULL: it was not seen to open. */
};

/** @param sandbox which @param out filled on success; empty: there is no note
 *  @param err filled on failure @return 0 or a negative errno */
MUST_USE int note_read(const struct sandbox *sandbox, struct note *out,
                       struct err *err);
/** @param sandbox which @param note what to keep, over a power cut too
 *  @param err filled on failure @return 0 or a negative errno */
MUST_USE int note_write(const struct sandbox *sandbox, const struct note *note,
                        struct err *err);
/** @param sandbox its note is removed */
void note_remove(const struct sandbox *sandbox);
/** @param note emptied */
void note_done(struct note *note);

/* ---- Sandboxes: life.c and lease.c ---- */

provider_life_fn jsonl_create;
provider_life_fn jsonl_resume;
provider_life_fn jsonl_destroy;
provider_status_fn jsonl_status;

/**
 * Finds what is known of a sandbox, from its note where this is its first use.
 *
 * @param jsonl   the provider
 * @param sandbox which
 * @param out     a reference, on success
 * @param err     filled on failure
 * @return 0, -ESTALE: there is none, or another negative errno
 */
MUST_USE int lease_get(struct jsonl *jsonl, const struct sandbox *sandbox,
                       struct lease **out, struct err *err);
/**
 * The same, to have something done in it: what commands of an earlier daemon
 * have left behind in it is ended first.
 *
 * @param jsonl   the provider
 * @param sandbox which
 * @param limits  deadline and token
 * @param out     a reference, on success
 * @param err     filled on failure
 * @return 0, -ESTALE, or another negative errno
 */
MUST_USE int lease_use(struct jsonl *jsonl, const struct sandbox *sandbox,
                       const struct limits *limits, struct lease **out,
                       struct err *err);
/** @param jsonl the provider @param lease a reference @return it */
struct lease *lease_ref(struct jsonl *jsonl, struct lease *lease);
/** @param jsonl the provider @param lease a reference that ends; NULL is fine
 */
void lease_unref(struct jsonl *jsonl, struct lease *lease);

/** @param jsonl the provider @param number of the session; all it had is
 *  forgotten */
void lease_drop_all(struct jsonl *jsonl, uint64_t number);

/**
 * Runs a command that does nothing: whoever runs it has the session. Asked
 * only where another call has just been made, so that it wakes nothing.
 *
 * @param jsonl  the provider
 * @param lease    whose
 * @param limits deadline and token
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int lease_probe(struct jsonl *jsonl, const struct lease *lease,
                         const struct limits *limits, struct err *err);
/** @param rc of a call that failed @return whether the engine may have lost
 *  the session */
bool lease_may_be_lost(int rc);
/** @param rc of lease_probe() @return whether the engine has lost it */
bool lease_is_lost(int rc);

/**
 * Looks what a failed call means: whether the engine still has the session.
 *
 * @param jsonl  the provider
 * @param lease    whose
 * @param rc     what the call said, negative
 * @param limits deadline and token
 * @param err    filled by the call
 * @return rc, or -ESTALE: it has not; -EIO where rc was only a hint
 */
MUST_USE int lease_failed(struct jsonl *jsonl, struct lease *lease, int rc,
                          const struct limits *limits, struct err *err);

/* ---- Marks of commands that may run: marks.c ---- */

/*
 * A daemon that dies leaves its commands running. So the mark of each lies in
 * the session's directory, in a file of that name, until it has surely ended.
 */

/** @param lease whose @param mark of a command that is about to be started
 *  @param err filled on failure @return 0 or a negative errno */
MUST_USE int mark_keep(const struct lease *lease, const char *mark,
                       struct err *err);
/** @param lease whose @param mark of a command that does not run any more */
void mark_drop(const struct lease *lease, const char *mark);
/** @param lease new: gets what there is @param err filled on failure
 *  @return 0 or a negative errno */
MUST_USE int marks_find(struct lease *lease, struct err *err);
/** @param lease what it has found is freed */
void marks_done(struct lease *lease);
provider_left_fn jsonl_left;
/** @param sandbox whose marks are of no use any more */
void marks_remove(const struct sandbox *sandbox);
/**
 * Ends the commands of an earlier daemon that may still run.
 *
 * @param jsonl  the provider
 * @param lease  whose
 * @param limits deadline and token
 * @param err    filled on failure
 * @return 0: there are none; or a negative errno
 */
MUST_USE int lease_clean(struct jsonl *jsonl, struct lease *lease,
                         const struct limits *limits, struct err *err);
/** As lease_clean(), of those with these marks, each behind -e: ending.c. */
MUST_USE int ending_now(struct jsonl *jsonl, const struct lease *lease,
                        const char *marks, const struct limits *limits,
                        struct err *err);

/* ---- Commands: command.c ---- */

provider_exec_fn jsonl_exec;
provider_signal_fn jsonl_signal;

/** Ends all commands of a session, soon. @param jsonl the provider
 *  @param number of the session; 0: of all, as lost, and at once */
void command_end_all(struct jsonl *jsonl, uint64_t number);
/** Ends all, and waits for that, and for what was begun to end them, but not
 *  long. @param jsonl no other call is made any more; closing is fired */
void command_settle(struct jsonl *jsonl);

#endif
