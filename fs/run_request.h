/* What `sessionfs run` writes to `exec.json`. */
#ifndef SESSIONFS_RUN_REQUEST_H
#define SESSIONFS_RUN_REQUEST_H

#include "core/buf.h"
#include "fs/run_args.h"

/**
 * Makes the request. Standard input is read to its end, unless it is a
 * terminal or closed.
 *
 * @param args what is asked for
 * @param out  appended to
 * @param err  filled on failure
 * @return 0, -EFBIG, -EILSEQ for arguments that are no UTF-8, -ENOMEM, or
 *         what reading the input failed with
 */
MUST_USE int run_request_make(const struct run_args *args, struct buf *out,
                              struct err *err);

#endif
