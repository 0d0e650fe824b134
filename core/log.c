/* The log. See log.h. */
#include "core/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <syslog.h>

/* Set again when the daemon leaves its terminal, beside threads that log. */
static atomic_bool to_syslog;
static atomic_int most_talkative = LOG_LEVEL_INFO;

void log_setup(bool use_syslog, enum log_level most)
{
    if (use_syslog) {
        openlog("sessionfs", LOG_PID, LOG_DAEMON);
    }
    atomic_store(&to_syslog, use_syslog);
    atomic_store(&most_talkative, (int)most);
}

static void mask_controls(char *s)
{
    for (; *s; s++) {
        if ((unsigned char)*s < ' ' || *s == '\177') {
            *s = '?';
        }
    }
}

void log_line(enum log_level level, const char *fmt, ...)
{
    static const int priority[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};
    static const char *const word[] = {"error", "warning", "info", "debug"};
    char line[1024];
    va_list va;

    if ((int)level > atomic_load(&most_talkative)) {
        return;
    }
    va_start(va, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, va);
    va_end(va);
    mask_controls(line);
    if (atomic_load(&to_syslog)) {
        syslog(priority[level], "%s", line);
    } else {
        (void)fprintf(stderr, "sessionfs: %s: %s\n", word[level], line);
    }
}
