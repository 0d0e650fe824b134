/* The log. See log.h. */
#include "core/log.h"

#include "core/quote.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <syslog.h>
#include <unistd.h>

#ifdef SESSIONFS_SYSTEMD
#include <systemd/sd-journal.h>
#endif

enum {
    LINE_SIZE = 4096, /* Words and a name, each byte escaped, have room. */
    FIELD_SIZE = 128,
    FIELDS = 8,
};

/* Set again when the daemon leaves its terminal, beside threads that log. */
static atomic_int to;
static atomic_int most_talkative = LOG_LEVEL_INFO;

static const int priorities[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};

bool log_has_journal(void)
{
#ifdef SESSIONFS_SYSTEMD
    return access("/run/systemd/journal/socket", W_OK) == 0;
#else
    return false;
#endif
}

void log_setup(enum log_target target, enum log_level most)
{
    if (target == LOG_TO_SYSLOG) {
        openlog("sessionfs", LOG_PID, LOG_DAEMON);
    }
    atomic_store(&to, (int)target);
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

/* Fields of the journal, "NAME=value" each, besides the line itself. */
struct fields {
    char text[FIELDS][FIELD_SIZE];
    size_t count;
};

PRINTF(2, 3) static void add_field(struct fields *fields, const char *fmt, ...)
{
    va_list va;

    va_start(va, fmt);
    (void)vsnprintf(fields->text[fields->count++], sizeof(fields->text[0]), fmt,
                    va);
    va_end(va);
}

/* Whether the journal took it. */
static bool send_fields(const char *line, const struct fields *fields)
{
#ifdef SESSIONFS_SYSTEMD
    char message[LINE_SIZE + sizeof("MESSAGE=")];
    struct iovec parts[FIELDS + 1];

    (void)snprintf(message, sizeof(message), "MESSAGE=%s", line);
    parts[0].iov_base = message;
    parts[0].iov_len = strlen(message);
    for (size_t i = 0; i < fields->count; i++) {
        parts[i + 1].iov_base = (void *)(uintptr_t)fields->text[i];
        parts[i + 1].iov_len = strlen(fields->text[i]);
    }
    return sd_journal_sendv(parts, (int)fields->count + 1) >= 0;
#else
    (void)line;
    (void)fields;
    return false;
#endif
}

static bool to_journal(enum log_level level, const char *line,
                       const struct log_failure *failure)
{
    struct fields fields;

    fields.count = 0;
    add_field(&fields, "PRIORITY=%d", priorities[level]);
    add_field(&fields, "SYSLOG_IDENTIFIER=sessionfs");
    if (failure) {
        add_field(&fields, "SESSIONFS_OP=%s", failure->op);
        add_field(&fields, "ERRNO=%d", failure->err->code);
        add_field(&fields, "SESSIONFS_UID=%u", (unsigned)failure->uid);
    }
    if (failure && failure->session) {
        add_field(&fields, "SESSIONFS_SESSION=%s", failure->session);
    }
    if (failure && failure->exec_n) {
        add_field(&fields, "SESSIONFS_EXEC=%llu",
                  (unsigned long long)failure->exec_n);
    }
    return send_fields(line, &fields);
}

static bool is_kept(enum log_level level)
{
    return (int)level <= atomic_load(&most_talkative);
}

/* What the journal does not take goes to syslog. */
static void put_line(enum log_level level, char *line,
                     const struct log_failure *failure)
{
    static const char *const word[] = {"error", "warning", "info", "debug"};
    int target = atomic_load(&to);

    mask_controls(line);
    if (target == LOG_TO_STDERR) {
        (void)fprintf(stderr, "sessionfs: %s: %s\n", word[level], line);
    } else if (target == LOG_TO_SYSLOG || !to_journal(level, line, failure)) {
        syslog(priorities[level], "%s", line);
    }
}

void log_line(enum log_level level, const char *fmt, ...)
{
    char line[LINE_SIZE];
    va_list va;

    if (!is_kept(level)) {
        return;
    }
    va_start(va, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, va);
    va_end(va);
    put_line(level, line, NULL);
}

/* Quoted, so that a name cannot forge a further part. */
void log_failure(enum log_level level, const struct log_failure *failure)
{
    const char *code = strerrorname_np(failure->err->code);
    struct buf line = BUF_INIT(LINE_SIZE - 1);
    char text[LINE_SIZE];

    if (!is_kept(level)) {
        return;
    }
    /* A line that would be too long is cut. */
    (void)!(buf_printf(
                &line, "op=%s session=%s exec=%llu uid=%u pid=%d err=%s name=",
                failure->op, failure->session ? failure->session : "-",
                (unsigned long long)failure->exec_n, (unsigned)failure->uid,
                (int)failure->pid, code ? code : "?") < 0 ||
            quote_c(&line, failure->name ? failure->name : "") < 0 ||
            buf_add(&line, " msg=", 5) < 0 ||
            quote_c(&line, failure->err->quotes ? "told in error alone"
                                                : failure->err->msg) < 0);
    (void)snprintf(text, sizeof(text), "%s", buf_str(&line));
    buf_done(&line);
    put_line(level, text, failure);
}
