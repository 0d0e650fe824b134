/* Signals for running commands. See exec.h. */
#include "core/exec_priv.h"
#include "core/json.h"

#include <errno.h>
#include <signal.h>

static int call_signal(struct session *session, uint64_t n, int signal,
                       struct err *err)
{
    struct session_call call;
    int rc = session_call_init(session, &call, err);

    if (rc == 0) {
        rc = provider_signal(call.provider, &call.sandbox, n, signal, err);
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

/* What asks a process to end keeps a queued command from beginning. */
static bool asks_for_end(int signal)
{
    return signal == SIGHUP || signal == SIGINT || signal == SIGQUIT ||
           signal == SIGTERM || signal == SIGKILL;
}

int exec_signal(struct exec *exec, int signal, const struct caller *caller,
                struct err *err)
{
    enum exec_status status;
    bool ended;
    int rc;

    mutex_lock(&exec->lock);
    status = exec->info.status;
    ended = exec->ended;
    mutex_unlock(&exec->lock);
    if (!ended && status == EXEC_QUEUED && asks_for_end(signal)) {
        tell_signal(exec, signal, caller);
        exec_cancel(exec);
        return 0;
    }
    if (ended || status != EXEC_RUNNING) {
        return err_set(err, ESRCH, "command %llu does not run",
                       (unsigned long long)exec->n);
    }
    rc = call_signal(exec->job.session, exec->n, signal, err);
    if (rc == 0) {
        tell_signal(exec, signal, caller);
    }
    return rc;
}
