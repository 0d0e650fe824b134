/* What a session did to its workspace, as text. See session.h. */
#include "core/quote.h"
#include "core/session_priv.h"

#include <errno.h>

static int add_line(void *arg, char kind, const char *path)
{
    struct buf *out = arg;
    int rc = buf_printf(out, "%c\t", kind);

    if (rc == 0) {
        rc = quote_path(out, path);
    }
    return rc < 0 ? rc : buf_add(out, "\n", 1);
}

int session_changes(struct session *session, const struct provider_span *span,
                    struct buf *out, struct err *err)
{
    struct limits limits = session_limits(session, SESSION_WAIT_CALL);
    struct session_call call;
    int rc = session_call_init(session, &call, err);

    if (rc < 0) {
        return rc;
    }
    rc = provider_changes(call.provider, &call.sandbox, span, &limits, add_line,
                          out, err);
    session_call_done(&call);
    if (rc == -EFBIG) {
        return err_set(err, EFBIG, "what changed takes over %zu bytes to tell",
                       out->cap);
    }
    err->notable = rc < 0; /* Not that of a file that is not for it. */
    if (rc == 0 && !span->from && !span->to) {
        mutex_lock(&session->lock);
        session->changes_size = out->size;
        mutex_unlock(&session->lock);
    }
    return rc;
}

uint64_t session_changes_size(struct session *session)
{
    uint64_t size;

    mutex_lock(&session->lock);
    size = session->changes_size;
    mutex_unlock(&session->lock);
    return size;
}
