/*
 * The log: one line an event, to stderr, to syslog or to the journal.
 * Thread-safe. Core and providers return errors and log at debug level at
 * most; the place that answers a request logs its failure once. Secrets never
 * reach it.
 */
#ifndef SESSIONFS_LOG_H
#define SESSIONFS_LOG_H

#include "core/compiler.h"
#include "core/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum log_level {
    LOG_LEVEL_ERROR,
    LOG_LEVEL_WARNING,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG,
};

enum log_target {
    LOG_TO_STDERR,
    LOG_TO_SYSLOG,
    LOG_TO_JOURNAL, /* Only where log_has_journal(). */
};

/* A failed operation, which the journal also gets as fields. Borrowed. */
struct log_failure {
    const char *op;
    const char *session; /* Its id; NULL: about none. */
    uint64_t exec_n;     /* 0: about none. */
    const char *name;    /* Of a file, any bytes; NULL: about none. */
    uid_t uid;           /* Who asked. */
    pid_t pid;
    const struct err *err;
};

/** @return whether this machine has a journal, and this program can use it */
bool log_has_journal(void);

/**
 * Says where lines go. Any thread.
 *
 * @param target where
 * @param most   the most talkative level that is kept
 */
void log_setup(enum log_target target, enum log_level most);

/**
 * Writes one line. Control characters come out as `?`, so that a hostile name
 * cannot forge a second line.
 *
 * @param level how serious it is
 * @param fmt   printf format, without a final newline
 */
void log_line(enum log_level level, const char *fmt, ...) PRINTF(2, 3);

/**
 * Writes a line about a failed operation.
 *
 * @param level   how serious it is
 * @param failure borrowed
 */
void log_failure(enum log_level level, const struct log_failure *failure);

#define log_error(...)   log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_debug(...)   log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
