/* Signals for running commands. See exec.h. */
#include "core/exec_priv.h"
#include "core/json.h"

#include <errno.h>

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

static void tell_signal(struct exec *exec, int signal,
                        const struct caller *caller)
{
    struct js *detail = js_object();

    js_set_int(detail, "signal", signal);
    session_event(exec->job.session, "exec.signal", exec->n, caller, detail);
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
