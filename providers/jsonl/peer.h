/*
 * One process of a program that speaks sandbox.v1: a request at a time goes
 * in, its events and its answer come out. One user at a time; a peer that has
 * failed in any way but by an answer is broken, and must be ended.
 *
 * What the program writes to stderr goes to the log.
 */
#ifndef SESSIONFS_PROVIDERS_JSONL_PEER_H
#define SESSIONFS_PROVIDERS_JSONL_PEER_H

#include "core/cancel.h"
#include "core/json.h"
#include "core/list.h"
#include "providers/jsonl/trim.h"
#include "providers/jsonl/words.h"

#include <sys/types.h>

enum {
    PEER_LINE_MAX = 64 * 1024 * 1024, /* Bytes of a line, either way. */
};

/* How a program is started. Strings are owned; see program_read(). */
struct program {
    char *name;      /* What ProfileRef calls it. */
    char **argv;     /* argv[0] is looked for in PATH. */
    char **env;      /* "K=V" of our environment. */
    char *profile;   /* For `open`, like the next two. */
    char *workspace; /* Of this machine; NULL: none. */
    char *cwd;       /* NULL: the program's choice. */
};

struct peer {
    struct list link; /* The pool's. */
    char *name;
    pid_t pid;
    int in, out, err; /* Our ends of its stdin, stdout and stderr. */
    int end;          /* Readable when it has ended, whoever has its stdout;
                       * -1: the kernel cannot tell. */
    bool broken;
    bool out_ended; /* Nothing more comes. */
    bool err_ended;
    bool cut; /* Long strings of an answer may be cut. */
    int64_t idle_ms;
    uint64_t requests;
    struct buf sent; /* The request, */
    size_t sent_n;   /* and what of it has gone. */
    struct buf line; /* What has come of the next line, */
    bool complete;   /* and whether it is whole. */
    struct trim trim;
    char *ahead; /* Bytes that have come behind it; PEER_CHUNK. */
    size_t ahead_at, ahead_end;
    struct words words;
};

/* What a line says. The body is owned. */
enum message_kind {
    MESSAGE_EVENT,
    MESSAGE_ERROR,
    MESSAGE_RESULT,
};

struct message {
    enum message_kind kind;
    struct js *body; /* An object, or what stands in the place of one. */
};

/**
 * Starts the program. Does not wait for it.
 *
 * @param program borrowed for the call
 * @param out     the peer, on success
 * @param err     filled on failure
 * @return 0, -ENOTCONN when it cannot be started, or another negative errno
 */
MUST_USE int peer_start(const struct program *program, struct peer **out,
                        struct err *err);

/** Ends the process at once, and frees. @param peer NULL is fine */
void peer_kill(struct peer *peer);

/** As peer_kill(), after `shutdown` and a short patience. @param peer one
 *  without a request @param patience_ms the longest wait */
void peer_stop(struct peer *peer, int64_t patience_ms);

/** @param peer one without a request @return whether it can take one: it has
 *  not ended and said nothing unasked */
bool peer_fit(struct peer *peer);

/**
 * Prepares the next request; peer_step() sends it.
 *
 * @param peer    one without a request
 * @param method  its name
 * @param session JSON as it is, for the member `session`; NULL: none
 * @param params  borrowed: the other members
 * @param err     filled on failure
 * @return 0, -EFBIG or -ENOMEM
 */
MUST_USE int peer_ask(struct peer *peer, const char *method,
                      const char *session, const struct js *params,
                      struct err *err);

/**
 * Sends and receives what can be at once. In the loop's thread too.
 *
 * @param peer the peer
 * @param err  filled on failure
 * @return 0, or a negative errno: it is broken
 */
MUST_USE int peer_move(struct peer *peer, struct err *err);

/**
 * Waits until something can be sent or received, and does it.
 *
 * @param peer   the peer
 * @param limits deadline and token
 * @param err    filled on failure
 * @return 0, or -ETIMEDOUT, -ECANCELED, another: it is broken
 */
MUST_USE int peer_step(struct peer *peer, const struct limits *limits,
                       struct err *err);

/**
 * Takes the next message about the request, if it has come. What a program
 * says about requests that are over is dropped.
 *
 * @param peer the peer
 * @param out  filled when there is one
 * @param err  filled on failure
 * @return 1, 0: none yet, or a negative errno: it is broken
 */
MUST_USE int peer_take(struct peer *peer, struct message *out, struct err *err);

/** @param message its body is freed */
void message_done(struct message *message);

#endif
