/* The keeper's link, as its files share it. See link.h. */
#ifndef SESSIONFS_LOCAL_LINK_PRIV_H
#define SESSIONFS_LOCAL_LINK_PRIV_H

#include "core/list.h"
#include "core/mutex.h"
#include "providers/local/link.h"

#include <stdatomic.h>
#include <sys/types.h>

struct link {
    struct mutex lock;
    struct cond turn;
    bool busy GUARDED; /* by lock: whoever set it owns the rest */
    uint64_t requests;
    pid_t pid; /* Of a keeper that is our child, or 0. */
    int pidfd;
    int sock;  /* -1: there is no keeper. Changed under hold_lock. */
    int state; /* The state's directory, or -1. */
    unsigned wait_s;
    int cgroup;    /* -1: it has none. */
    int user_ns;   /* Namespaces that keepers have made, or -1. All have the */
    int mounts_ns; /* same, as mounts are bound to them. */
    struct wire_host host; /* Of the first; the others say the same. */
    char why[ERR_MSG_SIZE];
    struct mutex hold_lock;     /* Of the sending of what is held. */
    struct list late GUARDED;   /* By it, of struct late: not sent yet. */
    struct list held;           /* Of struct link_held: not yet taken. */
    atomic_uint_fast64_t boxes; /* Names the next. */
};

/* ---- link.c ---- */

/* Ends a keeper; within patience_ms it may first end its sandboxes. */
void link_end_keeper(struct link *link, int64_t patience_ms);
/* As wire_send(); waits for a keeper that takes no more. */
MUST_USE int link_send(int sock, const struct wire *wire, const int *fds,
                       size_t count, const struct limits *limits,
                       struct err *err);
/* Waits for a message. -EPIPE: the keeper is dead. */
MUST_USE int link_await(int sock, const struct limits *limits, struct wire *out,
                        int fds[WIRE_FD_MAX], struct err *err);
/* Takes what a keeper says first, and tells it how long to wait. */
MUST_USE int link_greet(struct link *link, const struct limits *limits,
                        struct wire *ready, struct err *err);

/* ---- link_hold.c ---- */

/* Sends what the keeper had no room for, where it takes it within a moment. */
void link_flush(struct link *link);
/* Makes another socket, or none, the one to the keeper. */
void link_set_sock(struct link *link, int sock);
/* A new socket for a keeper to listen at; -1: there cannot be one. */
int link_bind(const struct link *link);
/* No keeper listens any more. */
void link_unbind(const struct link *link);
/* Takes over the keeper of an earlier daemon, with what it holds. False where
 * there is none; one that cannot be taken over is ended. */
bool link_take_over(struct link *link, const struct limits *limits,
                    struct wire *ready);
/* Closes what was held and nobody has taken. */
void link_drop_taken(struct link *link);

#endif
