/* A running command of `jsonl`; see command.c. Fields that no comment gives to
 * the lock belong to the loop's thread, once the command is posted there. */
#ifndef SESSIONFS_PROVIDERS_JSONL_COMMAND_H
#define SESSIONFS_PROVIDERS_JSONL_COMMAND_H

#include "providers/jsonl/jsonl.h"

/* What is done to a command's processes. */
enum ending {
    ENDING_TERM,   /* TERM, and KILL to what is left a second later. */
    ENDING_KILL,   /* KILL at once. */
    ENDING_SIGNAL, /* One signal. */
    ENDING_LOST,   /* KILL, for one that was told as lost. */
};

struct running {
    struct list link; /* jsonl->commands, by its lock, like the next two. */
    bool begun;
    bool over; /* It has exited, for all we know. */
    uint64_t number;
    uint64_t n;
    char mark[MARK_SIZE]; /* In the environment of all its processes. */
    atomic_int sent;      /* The last signal that it was sent. */

    struct jsonl *jsonl;
    struct lease *lease;
    struct peer *peer;
    struct message first; /* What came while the slot waited. */
    int64_t timeout_ms;
    struct cancel *cancel;
    const struct command_sink *sink;
    void *arg;
    bool marked;         /* Its mark is kept: it may run. */
    bool started;        /* The sink knows. */
    bool ending;         /* We want it to end, */
    enum command_end as; /* as this. */
    bool has_code;
    int64_t code;         /* Of `exited`. */
    uint64_t streamed[2]; /* Bytes of events, */
    size_t skip;          /* and what of a result they have told. */
    char *script;         /* A directory of ours in the sandbox, or NULL. */
    struct loop_source *out;
    struct loop_source *err;
    struct loop_source *end; /* Of its process. */
    struct loop_source *token;
    struct loop_timer *timeout;
    struct loop_timer *patience; /* For an end that we asked for. */
};

/**
 * Does something to all processes of a command, soon: in a thread and a
 * process of their own. Any thread.
 *
 * @param running the command; not needed after the call
 * @param how     what to do
 * @param signal  for ENDING_SIGNAL
 * @return 0, -ENOMEM or -EAGAIN
 */
MUST_USE int ending_begin(const struct running *running, enum ending how,
                          int signal);

/**
 * Sends the request of a command: start.c.
 *
 * @param running its lease, mark and sink are set; gets its process
 * @param command borrowed
 * @param limits  deadline and token
 * @param err     filled on failure
 * @return 0: it runs, for all we know; or a negative errno
 */
MUST_USE int start_command(struct running *running,
                           const struct command *command,
                           const struct limits *limits, struct err *err);

/** Removes a directory in the sandbox, soon. @param running whose `script`
 *  it is; taken */
void ending_tidy(struct running *running);

#endif
