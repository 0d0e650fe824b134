/* Errors with words. See err.h. */
#include "core/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *err, int code, const char *fmt, ...)
{
    va_list va;

    err->code = code;
    err->quotes = false;
    err->notable = false;
    va_start(va, fmt);
    (void)vsnprintf(err->msg, sizeof(err->msg), fmt, va);
    va_end(va);
    return -code;
}

int err_no_memory(struct err *err)
{
    return err_set(err, ENOMEM, "out of memory");
}

static void append(struct err *err, size_t at, const char *text)
{
    if (at < sizeof(err->msg)) {
        (void)snprintf(err->msg + at, sizeof(err->msg) - at, ": %s", text);
    }
}

int err_errno(struct err *err, const char *fmt, ...)
{
    int code = errno;
    char text[64];
    va_list va;
    int n;

    va_start(va, fmt);
    n = vsnprintf(err->msg, sizeof(err->msg), fmt, va);
    va_end(va);
    err->code = code;
    err->quotes = false;
    err->notable = false;
    if (n >= 0) {
        append(err, (size_t)n, strerror_r(code, text, sizeof(text)));
    }
    return -code;
}

int err_wrap(struct err *err, int rc, const char *fmt, ...)
{
    char inner[ERR_MSG_SIZE];
    va_list va;
    int n;

    memcpy(inner, err->msg, sizeof(inner));
    va_start(va, fmt);
    n = vsnprintf(err->msg, sizeof(err->msg), fmt, va);
    va_end(va);
    if (n >= 0) {
        append(err, (size_t)n, inner);
    }
    return rc;
}

void err_clear(struct err *err)
{
    err->code = 0;
    err->msg[0] = '\0';
    err->quotes = false;
    err->notable = false;
}
