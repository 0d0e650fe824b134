/*
 * A command's output on disk: DIR/N.log holds the bytes of both streams in
 * order of arrival, DIR/N.idx a record at each change of stream, written
 * before the bytes that it announces. The first is made with the first byte,
 * the second with the first byte of stderr. One thread appends, any read;
 * nothing of the output is kept in memory.
 */
#ifndef SESSIONFS_EXEC_LOG_H
#define SESSIONFS_EXEC_LOG_H

#include "core/exec.h"

struct exec_log;

/**
 * Makes the object of a log; its files need not exist.
 *
 * @param dir where its files are
 * @param n   the command's number; 0: exec_log_name() tells it
 * @param out the log, on success
 * @param err filled on failure
 * @return 0 or -ENOMEM
 */
MUST_USE int exec_log_new(const char *dir, uint64_t n, struct exec_log **out,
                          struct err *err);

/** @param log of which nothing was asked yet @param n the command's number */
void exec_log_name(struct exec_log *log, uint64_t n);

/** @param log freed, with what it has open; NULL is fine */
void exec_log_free(struct exec_log *log);

/**
 * Begins the output of a new command; what a lost one of that number has left
 * goes.
 *
 * @param log the log
 * @param err filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int exec_log_start(struct exec_log *log, struct err *err);

/**
 * Goes on with the output that an earlier daemon has begun.
 *
 * @param log the log
 * @param err filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int exec_log_continue(struct exec_log *log, struct err *err);

/**
 * Appends output out of a pipe: it is in either of them, and never in both,
 * whenever this process should die.
 *
 * @param log    started
 * @param stream which
 * @param pipe   its reading end, not blocking; something is in it
 * @param most   bytes
 * @return how many were moved, -EAGAIN, or -EINVAL where it must be read, for
 *         one reason or another, and given to exec_log_append()
 */
MUST_USE ssize_t exec_log_take(struct exec_log *log, enum command_stream stream,
                               int pipe, size_t most);

/** @param log one to which nothing will be appended any more */
void exec_log_stop(struct exec_log *log);

/**
 * Makes the output of a command that has ended survive a power cut.
 *
 * @param log to which nothing is appended any more
 * @param err filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int exec_log_sync(const struct exec_log *log, struct err *err);

/**
 * Appends output. After a failure the log takes no more.
 *
 * @param log    started
 * @param stream which
 * @param data   borrowed
 * @param size   bytes
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int exec_log_append(struct exec_log *log, enum command_stream stream,
                             const void *data, size_t size, struct err *err);

/** @param log the log @param view which output @return its length now */
uint64_t exec_log_size(struct exec_log *log, enum exec_view view);

/**
 * Reads output.
 *
 * @param log    the log
 * @param view   which output
 * @param offset in that view
 * @param out    at most size bytes
 * @param size   of out
 * @param err    filled on failure
 * @return bytes, 0 at the present end, or a negative errno
 */
MUST_USE ssize_t exec_log_read(struct exec_log *log, enum exec_view view,
                               uint64_t offset, void *out, size_t size,
                               struct err *err);

#endif
