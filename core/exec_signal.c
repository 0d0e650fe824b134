/* Signals for running commands. See exec.h. */
#include "core/exec_priv.h"
#include "core/json.h"
#include "core/registry_priv.h"

#include <errno.h>

enum {
    DETAIL_MAX = 256
};

static int call_signal(struct session *session, uint64_t n, int signal,
                       struct err *err)
{
    struct session_call call;
    int rc = session_call_init(session, &call, err);

    if (rc == 0) {
        rc = provider_signal(session->provider, &call.sandbox, n, signal, err);
        session_call_done(&call);
    }
    return rc;
}

/* Who sent what. It was sent, whether that can be written or not. */
static void tell_signal(struct exec *exec, int signal,
                        const struct caller *caller)
{
    const struct session *session = exec->job.session;
    struct store_event event = {
        .name = "exec.signal", .exec = exec->n, .caller = caller};
    struct buf text = BUF_INIT(DETAIL_MAX);
    struct js *detail = js_object();
    struct err err = ERR_INIT;

    js_set_int(detail, "signal", signal);
    if (js_write(detail, &text) == 0) {
        event.detail = buf_str(&text);
    }
    (void)!store_event_add(session->registry->store, session->number, &event,
                           &err);
    js_free(detail);
    buf_done(&text);
}

int exec_signal(struct exec *exec, int signal, const struct caller *caller,
                struct err *err)
{
    bool runs;
    int rc;

    mutex_lock(&exec->lock);
    runs = exec->info.status == EXEC_RUNNING && !exec->ended;
    mutex_unlock(&exec->lock);
    if (!runs) {
        return err_set(err, ESRCH, "command %llu does not run",
                       (unsigned long long)exec->n);
    }
    rc = call_signal(exec->job.session, exec->n, signal, err);
    if (rc == 0) {
        tell_signal(exec, signal, caller);
    }
    return rc;
}
