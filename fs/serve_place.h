/* Where the files are that requests are about: see serve_files.c. */
#ifndef SESSIONFS_SERVE_PLACE_H
#define SESSIONFS_SERVE_PLACE_H

#include "fs/serve_priv.h"

#include <sys/stat.h>

/* A request about a path. */
struct asked {
    struct target target;
    char *path;  /* Absolute. */
    char *below; /* The same from the workspace on, without `.` and empty
                  * parts; NULL: outside, or not to be told by its names. */
    char *given; /* As in the request: for errors. */
};

/* A file below the workspace, and the way to it. */
struct place {
    struct workspace *ws;
    struct ws_node *dir;  /* Where its name is; NULL: it is the workspace. */
    struct ws_node *node; /* NULL: there is none of that name. */
    const char *name;     /* Borrowed of `below`. */
    struct stat attr;     /* Of the node. */
};

/* Not for the caller: a command has to do it. */
#define BY_COMMAND (-EXDEV)

/* Reads `session` and `path` of a request. asked_done() frees it. */
MUST_USE int asked_get(struct conn *conn, const struct js *params,
                       struct asked *out, struct err *err);
void asked_done(struct asked *asked);

/* Goes to a path, and makes directories that are missing on the way if `make`
 * says so; BY_COMMAND where it is not to be reached by names alone. Ends with
 * place_leave(), on success alone. */
MUST_USE int place_enter(struct conn *conn, struct asked *asked,
                         enum session_need need, bool make, struct place *out,
                         struct err *err);
void place_leave(struct asked *asked, struct place *place);

/* What was found becomes a directory that the place goes into. */
MUST_USE int place_descend(struct conn *conn, bool make, struct place *place,
                           struct err *err);

#endif
