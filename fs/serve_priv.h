/* The server of sandbox.v1 inside. A connection has one thread, which reads a
 * request, answers it, and reads the next. */
#ifndef SESSIONFS_SERVE_PRIV_H
#define SESSIONFS_SERVE_PRIV_H

#include "core/buf.h"
#include "core/cancel.h"
#include "core/json.h"
#include "core/list.h"
#include "core/mutex.h"
#include "core/registry.h"
#include "core/session.h"
#include "fs/serve.h"

#include <pthread.h>

enum {
    SERVE_FILE_MAX = 64 * 1024 * 1024, /* Bytes of a file, read or written. */
    SERVE_LINE_MAX = 90 * 1024 * 1024, /* It as base64, and some more. */
    SERVE_ODD_MAX = 8 * 1024 * 1024,   /* More for bytes that are no UTF-8. */
    SERVE_ID_MAX = 64 * 1024, /* Of a request's id; others are "unknown". */
    SERVE_CALL_MS = 60000,    /* Of a file operation, at each of its steps. */
};

struct server {
    struct registry *registry;
    char *state;
    int listener;
    pthread_t acceptor;
    struct cancel stop; /* Fired at the end. */

    struct mutex lock; /* Of all GUARDED members below. */
    struct cond left;
    struct list conns GUARDED;
    int64_t idle_since GUARDED;
};

struct conn {
    struct list link; /* server->conns, by its lock. */
    struct server *server;
    int fd;
    struct caller caller;
    struct buf in;    /* What was read, */
    size_t taken;     /* of which this much is done with. */
    bool too_long;    /* The line that it begins with is. */
    bool broken;      /* Nobody reads any more. */
    bool over;        /* The client asked for the end. */
    struct buf id;    /* Of the request, as JSON. */
    const char *code; /* Of its error, as the protocol has it; NULL: that of
                       * every failure. */
};

/* ---- serve_line.c: what goes over a connection ---- */

/**
 * Reads a line.
 *
 * @param conn the connection
 * @param line its bytes without the line's end, borrowed until the next call
 * @param size of it
 * @return 1, 0 at the end, -EFBIG for a line that is too long and was skipped,
 *         -ENOMEM
 */
int serve_read_line(struct conn *conn, const char **line, size_t *size);

/** @param conn where to @param data all of it, unless the connection breaks
 *  @param size bytes */
void serve_write(struct conn *conn, const void *data, size_t size);
/** @param conn where to @param text all of it, as serve_write() */
void serve_write_text(struct conn *conn, const char *text);
/** @param conn where to @param what "result", "error" or "event"
 *  @param value taken; texts as js_bytes_give() makes them */
void serve_say(struct conn *conn, const char *what, struct js *value);
/** @param conn where to @param err what the request failed with */
void serve_say_error(struct conn *conn, const struct err *err);
/** @param conn where to @param what "result" or "event": a message begins, and
 *  the caller writes its value and a `}` and a newline */
void serve_begin(struct conn *conn, const char *what);
/** @param conn where to @param data written as base64 @param size a multiple
 *  of three, but for the last piece of a text */
void serve_write_base64(struct conn *conn, const void *data, size_t size);

/* ---- serve_wait.c: what core does in its own time ---- */

/* Each waits for the end, and returns what core said, or -ECANCELED at the
 * server's end, when what was begun goes on. */
MUST_USE int serve_ensure(struct conn *conn, struct session *session,
                          struct err *err);
MUST_USE int serve_destroy(struct conn *conn, struct session *session,
                           struct err *err);
/* As session_files_enter(); *ws is NULL where there is no sandbox. */
MUST_USE int serve_enter(struct conn *conn, struct session *session,
                         enum session_need need, struct workspace **ws,
                         struct err *err);
/* Fails when nobody is there for whom work is done. */
MUST_USE int serve_look(struct conn *conn, struct err *err);
/* Waits a moment. */
MUST_USE int serve_pause(struct conn *conn, int64_t ms, struct err *err);
/* For one call of a tree, which lasts SERVE_CALL_MS at most. */
struct ws_ctx serve_ctx(struct conn *conn);

/* ---- serve_params.c: what a request says ---- */

/* Fails for a request that says what cannot be. */
int serve_bad_request(struct conn *conn, struct err *err, const char *fmt, ...)
    PRINTF(3, 4);
/* A text's bytes, for the caller to free; NULL where it is missing or null,
 * and `needed` does not forbid that. */
MUST_USE int serve_text(struct conn *conn, const struct js *js, const char *key,
                        bool needed, char **out, struct err *err);
/* What a text in base64 stands for, at most SERVE_FILE_MAX bytes. */
MUST_USE int serve_base64(struct conn *conn, const struct js *js,
                          const char *key, struct buf *out, struct err *err);
/* An object; never NULL on success. js_free() frees it. */
MUST_USE int serve_object(struct conn *conn, const struct js *js,
                          const char *key, struct js **out, struct err *err);
/* A member, or NULL where it is missing or null. js_free() frees it. */
struct js *serve_get(const struct js *js, const char *key);
/* Bytes as a text of an object, and of an array. */
void serve_set(struct js *js, const char *key, const char *bytes);
void serve_add(struct js *js, const char *bytes);

/* ---- serve_target.c: which session a request is about ---- */

struct target {
    struct session *session; /* With a reference. */
    char *workspace;         /* As the sandbox sees it. */
    char *cwd;               /* Absolute. */
};

/* The `session` of a request. target_done() frees it. */
MUST_USE int target_get(struct conn *conn, const struct js *params,
                        struct target *out, struct err *err);
void target_done(struct target *target);
/* Finds the session alone: -ENOENT where it is gone. */
MUST_USE int target_find(struct conn *conn, const struct js *params,
                         struct session **out, struct err *err);
/* An absolute path in the sandbox of one that may be relative to `cwd`. The
 * caller frees it. */
MUST_USE int target_path(const struct target *target, const char *path,
                         char **out, struct err *err);
/* What a client is given of a session; it comes back in each request. */
struct js *target_say(const struct target *target);

/* ---- The methods ---- */

/* Answers, or fails with words for the answer. */
typedef int serve_method_fn(struct conn *conn, const struct js *params,
                            struct err *err);

serve_method_fn serve_open MUST_USE;
serve_method_fn serve_close MUST_USE;
serve_method_fn serve_cleanup_group MUST_USE;
serve_method_fn serve_create_temp_dir MUST_USE;
serve_method_fn serve_create_dir_all MUST_USE;
serve_method_fn serve_write_file MUST_USE;
serve_method_fn serve_read_file MUST_USE;
serve_method_fn serve_remove MUST_USE;
serve_method_fn serve_exec MUST_USE;
serve_method_fn serve_spawn MUST_USE;

/* Answers the connection's requests up to its end. */
void serve_requests(struct conn *conn);

/* ---- serve_inside.c: work that a command in the sandbox does ---- */

struct inside {
    const char *const *argv; /* NULL-terminated. */
    const void *input;       /* NULL: none. */
    size_t input_size;
    struct buf *output; /* Appended to; NULL: not wanted. */
};

/* Runs it to its end; what goes wrong is told in its own words. */
MUST_USE int inside_run(struct conn *conn, const struct target *target,
                        const struct inside *inside, struct err *err);
MUST_USE int inside_read(struct conn *conn, const struct target *target,
                         const char *path, struct buf *out, struct err *err);
MUST_USE int inside_write(struct conn *conn, const struct target *target,
                          const char *path, const struct buf *data,
                          struct err *err);
MUST_USE int inside_make_dir(struct conn *conn, const struct target *target,
                             const char *path, struct err *err);
MUST_USE int inside_remove(struct conn *conn, const struct target *target,
                           const char *path, struct err *err);
/* A new directory in /tmp; the caller frees its path. */
MUST_USE int inside_make_temp(struct conn *conn, const struct target *target,
                              const char *prefix, char **out, struct err *err);

#endif
