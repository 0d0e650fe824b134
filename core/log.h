/*
 * The log: one line an event, to stderr or to syslog. Thread-safe.
 * Core and providers return errors and log at debug level at most; the place
 * that answers a request logs its failure once. Secrets never reach it.
 */
#ifndef SESSIONFS_LOG_H
#define SESSIONFS_LOG_H

#include "core/compiler.h"

#include <stdbool.h>

enum log_level {
    LOG_LEVEL_ERROR,
    LOG_LEVEL_WARNING,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG,
};

/**
 * Says where lines go. Any thread.
 *
 * @param use_syslog syslog instead of stderr
 * @param most       the most talkative level that is kept
 */
void log_setup(bool use_syslog, enum log_level most);

/**
 * Writes one line. Control characters come out as `?`, so that a hostile name
 * cannot forge a second line.
 *
 * @param level how serious it is
 * @param fmt   printf format, without a final newline
 */
void log_line(enum log_level level, const char *fmt, ...) PRINTF(2, 3);

#define log_error(...)   log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_debug(...)   log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
