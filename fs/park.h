/*
 * A request that waits: answered exactly once, by whoever comes first of the
 * work's end, the deadline, an interrupt, and the end of the mount.
 *
 * park_new() gives one reference, which belongs to the work. The work ends by
 * park_take() and a reply, or by park_end(), and park_unref(). After starting
 * it the handler calls park_wait() as the last thing. So:
 *
 *     park = park_new(req, &kind, arg);     NULL: it was answered -ENOMEM
 *     start the work, which may end at once, in this thread or another;
 *         at its end:  req = park_take(park); if (req) { reply } park_unref()
 *     park_wait(park);
 *
 * The interrupt rule: FUSE_INTERRUPT comes for any signal and only once. From
 * then on, each 100 ms, the waiting thread's pending and unblocked signals are
 * looked at; KILL, HUP, INT, QUIT or TERM among them end the wait with EINTR.
 * Where the thread cannot be seen, the INTERRUPT itself does.
 *
 * All functions may be called from any thread and take no lock of the caller.
 */
#ifndef SESSIONFS_PARK_H
#define SESSIONFS_PARK_H

#include "fs/reply.h"

struct park;
struct parks;

/* The most time that a request may take during which the kernel holds a lock
 * of the file or directory; -EINPROGRESS answers it then. */
enum {
    PARK_LOCKED_MS = 10 * 1000,
    PARKS_MOST = 1000, /* Of one session; further ones are refused: EAGAIN. */
};

/* How a kind of request waits. Static. */
struct park_kind {
    int64_t most_ms; /* From park_new(); 0: no limit. */
    int late;        /* Answers it then: an errno value, or 0: success. */
    /**
     * The request is about to be answered by the deadline (code is `late`), an
     * interrupt (EINTR), the end of the mount (ENOTCONN), or because too many
     * wait (EAGAIN). The work may be stopped or go on, and ends its reference
     * as always. May be NULL.
     *
     * @param arg  as given to park_new()
     * @param code a positive errno value, or 0
     */
    void (*dropped)(void *arg, int code);
    /**
     * The last reference is gone. May be NULL.
     *
     * @param arg as given to park_new()
     */
    void (*free)(void *arg);
};

/** @param loop borrowed; outlives it @return an object, NULL without memory */
struct parks *parks_new(struct loop *loop);

/**
 * Answers all that wait with ENOTCONN, and all that are parked later at once;
 * when it returns, no reply is being written any more.
 *
 * @param parks the object; the caller is not in the loop's thread
 */
void parks_close(struct parks *parks);

/** @param parks the object @return how many requests wait */
size_t parks_count(struct parks *parks);

/** @param parks closed, all its parks unreferenced; NULL is fine */
void parks_free(struct parks *parks);

/**
 * Parks a request.
 *
 * @param req   the request; the park answers it from now on
 * @param about for the log; strings and session are copied or referenced
 * @param kind  how it waits
 * @param arg   the park's from now on: given to the kind's functions
 * @return a reference, or NULL: the request has been answered with -ENOMEM and
 *         arg freed
 */
struct park *park_new(fuse_req_t req, const struct reply_about *about,
                      const struct park_kind *kind, void *arg);

/**
 * Lets the request wait, where it is not answered yet. Called once, by the
 * handler that parked it, after the work was started; the park may be gone
 * afterwards unless the caller has a reference.
 *
 * @param park the park
 */
void park_wait(struct park *park);

/**
 * Claims the right to answer.
 *
 * @param park the park
 * @return the request, which the caller must answer at once; NULL: it has been
 *         answered, and the work's result is nobody's
 */
fuse_req_t park_take(struct park *park);

/**
 * Answers with an errno or success, where it is not answered, and gives the
 * work's reference back: a done_fn for requests whose reply has no data.
 *
 * @param park the park, as void so that it fits done_fn
 * @param rc   0 or a negative errno
 * @param err  its words
 */
void park_end(void *park, int rc, const struct err *err);

/** @param park a park @return what it is about, borrowed */
const struct reply_about *park_about(const struct park *park);

/** @param park one more reference @return park */
struct park *park_ref(struct park *park);
/** @param park one reference less; NULL is fine */
void park_unref(struct park *park);

#endif
