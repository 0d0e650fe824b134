/* Waiting for a command, as long as its client is there. */
#ifndef SESSIONFS_SERVE_EXEC_H
#define SESSIONFS_SERVE_EXEC_H

#include "core/exec.h"
#include "fs/serve_priv.h"

/**
 * Writes a request for exec_submit_json().
 *
 * @param js  taken; texts as js_bytes_give() makes them
 * @param out appended to
 * @param err filled on failure
 * @return 0, -EFBIG or -ENOMEM
 */
MUST_USE int serve_exec_text(struct js *js, struct buf *out, struct err *err);

/**
 * Waits until a command in the background has been started.
 *
 * @param conn whose client waits
 * @param exec the command
 * @param info of it, on success
 * @param err  filled on failure
 * @return 0, what kept it from starting, or -ECANCELED when nobody waits any
 *         more
 */
MUST_USE int serve_exec_start(struct conn *conn, struct exec *exec,
                              struct exec_info *info, struct err *err);

/**
 * Waits until there is output behind an offset, or the command has ended.
 *
 * @param conn   whose client waits
 * @param exec   the command
 * @param offset in all its output
 * @param err    filled on failure
 * @return 0, or -ECANCELED when nobody waits any more
 */
MUST_USE int serve_exec_more(struct conn *conn, struct exec *exec,
                             uint64_t offset, struct err *err);

/**
 * Waits for the command's end.
 *
 * @param conn whose client waits
 * @param exec the command
 * @param err  filled on failure
 * @return 0, or -ECANCELED when nobody waits any more
 */
MUST_USE int serve_exec_end(struct conn *conn, struct exec *exec,
                            struct err *err);

/** @param info of a command without an exit code @param err filled
 *  @return the negative errno that tells why */
int serve_exec_failure(const struct exec_info *info, struct err *err);

#endif
