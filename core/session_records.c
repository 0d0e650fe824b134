/* A session's `error` and `events`. See session.h. */
#include "core/buf.h"
#include "core/clock.h"
#include "core/quote.h"
#include "core/registry_priv.h"
#include "core/session_priv.h"

#include <errno.h>
#include <string.h>

enum {
    LINE_MAX_SIZE = 4096
};

static int add_name(struct buf *out, uint64_t exec_n, const char *name)
{
    if (exec_n) {
        return buf_printf(out, " %llu", (unsigned long long)exec_n);
    }
    if (!name) {
        return buf_add(out, " -", 2);
    }
    if (buf_add(out, " ", 1) < 0) {
        return -ENOMEM;
    }
    return quote_c(out, name);
}

static int add_errno(struct buf *out, pid_t pid, int code)
{
    const char *name = strerrorname_np(code);

    return name ? buf_printf(out, " %d %s ", (int)pid, name)
                : buf_printf(out, " %d %d ", (int)pid, code);
}

int session_failure_line(struct buf *out, int64_t wall_us, const char *op,
                         uint64_t exec_n, const char *name, pid_t pid,
                         const struct err *err)
{
    char time[CLOCK_TEXT_SIZE];
    int rc;

    clock_format(wall_us, time);
    rc = buf_printf(out, "%s %s", time, op);
    if (rc == 0) {
        rc = add_name(out, exec_n, name);
    }
    if (rc == 0) {
        rc = add_errno(out, pid, err->code);
    }
    if (rc == 0) {
        rc = quote_words(out, err->msg);
    }
    return rc < 0 ? rc : buf_add(out, "\n", 1);
}

void session_fail(struct session *session, const char *op, uint64_t exec_n,
                  const char *name, const struct caller *caller,
                  const struct err *err)
{
    struct buf line = BUF_INIT(LINE_MAX_SIZE);
    struct err ignored = ERR_INIT;

    /* The failure is answered to its caller and logged in any case. */
    if (session_failure_line(&line, clock_wall_us(), op, exec_n, name,
                             caller->pid, err) == 0) {
        (void)!store_failure_add(session->registry->store, session->number,
                                 line.data, line.size, &ignored);
    }
    buf_done(&line);
}

/* It is a state and no operation that failed: so it is not stored, and shows
 * until the config is mended. */
static int add_unreadable(struct session *session, struct buf *out)
{
    int rc = 0;

    mutex_lock(&session->lock);
    if (session->unreadable) {
        rc = session_failure_line(out, session->registry->opened_us, "config",
                                  0, NULL, 0, session->unreadable);
    }
    mutex_unlock(&session->lock);
    return rc;
}

int session_errors(struct session *session, struct buf *out, struct err *err)
{
    int rc =
        store_failures(session->registry->store, session->number, out, err);

    return rc == 0 && add_unreadable(session, out) < 0 ? err_no_memory(err)
                                                       : rc;
}

ssize_t session_events_read(struct session *session, uint64_t *offset,
                            void *out, size_t size, struct err *err)
{
    return store_events_read(session->registry->store, session->number, offset,
                             out, size, err);
}

uint64_t session_events_begin(struct session *session)
{
    return store_events_begin(session->registry->store, session->number);
}

uint64_t session_events_end(struct session *session)
{
    return store_events_end(session->registry->store, session->number);
}
