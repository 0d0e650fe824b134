/* Submitting commands. See exec.h. */
#include "core/buf.h"
#include "core/cleanup.h"
#include "core/crash.h"
#include "core/exec_priv.h"
#include "core/exec_request.h"
#include "core/registry_priv.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int check_script(const char *script, size_t size, struct err *err)
{
    if (size > EXEC_SCRIPT_MAX) {
        return err_set(err, EFBIG, "the command is over 1 MiB long");
    }
    if (memchr(script, '\0', size)) {
        return err_set(err, EINVAL, "the command holds a NUL byte");
    }
    return buf_blank(script, size)
               ? err_set(err, EINVAL, "the command is empty")
               : 0;
}

static int make_dirs(struct session *session, struct err *err)
{
    AUTO_FREE char *dir = NULL;

    if (asprintf(&dir, "%s/execs", session->dir) < 0) {
        dir = NULL;
        return err_no_memory(err);
    }
    if ((mkdir(session->dir, 0700) < 0 && errno != EEXIST) ||
        (mkdir(dir, 0700) < 0 && errno != EEXIST)) {
        return err_errno(err, "make the directory of the output");
    }
    return 0;
}

/* Makes a prepared object a command; with one more reference, the job's. */
static int add_locked(struct session *session, const struct store_exec *row,
                      const struct caller *caller, struct exec *exec,
                      struct err *err) REQUIRES(session->lock)
{
    struct exec_info info;
    int rc = make_dirs(session, err);

    if (rc < 0) {
        return rc;
    }
    rc = store_exec_add(session->registry->store, session->number, row, caller,
                        &info, err);
    if (rc < 0) {
        return err_wrap(err, rc, "cannot record the command");
    }
    /* From here on nothing may fail: there is a record. */
    (void)atomic_fetch_add(&session->registry->commands, 1);
    exec_become(session, exec, &info, false);
    exec->job.caller = *caller;
    (void)exec_ref(exec);
    return 0;
}

/* Records and queues at once, so that numbers are the order of the queue. An
 * init command is not queued. */
static int submit_locked(struct session *session, const struct store_exec *row,
                         const struct caller *caller, struct exec *exec,
                         struct err *err) REQUIRES(session->lock)
{
    int rc = session_usable_locked(session, err);

    if (rc == 0) {
        rc = add_locked(session, row, caller, exec, err);
    }
    if (rc < 0 || row->init) {
        return rc;
    }
    rc = session_enqueue_locked(session, &exec->job, err);
    assert(rc == 0); /* It is usable; nothing else is in its way. */
    return 0;
}

void session_exec_refuse(struct session *session, int code)
{
    mutex_lock(&session->lock);
    session->refused = code;
    mutex_unlock(&session->lock);
}

/* Notes whether a command was taken. */
static int note(struct session *session, int rc)
{
    session_exec_refuse(session, -rc);
    return rc;
}

/* Makes a command, which counts as a job from here on. */
static int add(struct session *session, const struct store_exec *row,
               const struct caller *caller, struct exec **out, struct err *err)
{
    struct exec *exec = NULL;
    int rc = exec_new(session, &exec, err);

    if (rc < 0) {
        return rc;
    }
    if (!registry_job_begin(session->registry, row->init)) {
        exec_discard(exec);
        return err_set(err, ESHUTDOWN, "the filesystem is being unmounted");
    }
    /* Held by the command. Taken first: registry before session. */
    (void)session_ref(session);
    mutex_lock(&session->lock);
    rc = submit_locked(session, row, caller, exec, err);
    mutex_unlock(&session->lock);
    if (rc < 0) {
        exec_discard(exec);
        registry_job_end(session->registry);
        session_unref(session);
        return rc;
    }
    *out = exec;
    return 0;
}

static int submit(struct session *session, const struct store_exec *row,
                  const struct caller *caller, struct exec **out,
                  struct err *err)
{
    int rc = check_script(row->script, row->size, err);

    if (rc == 0) {
        rc = add(session, row, caller, out, err);
    }
    if (rc < 0) {
        return rc;
    }
    crash_point("exec-queued");
    session_news(session);
    session_pump(session);
    return 0;
}

int exec_add_init(struct session *session, const char *script,
                  const struct caller *caller, struct exec **out,
                  struct err *err)
{
    const struct store_exec row = {.script = script,
                                   .size = strlen(script),
                                   .mode = SHAPE_AUTO,
                                   .init = true};

    return row.size > EXEC_SCRIPT_MAX
               ? err_set(err, EFBIG, "the command is over 1 MiB long")
               : add(session, &row, caller, out, err);
}

int exec_submit(struct session *session, const char *script, size_t size,
                const struct caller *caller, struct exec **out, struct err *err)
{
    const struct store_exec row = {
        .script = script, .size = size, .mode = SHAPE_AUTO};

    return note(session, submit(session, &row, caller, out, err));
}

/* What the session's engine cannot do is refused at once. */
static int check_able(struct session *session,
                      const struct exec_request *request, struct err *err)
{
    const struct provider_ops *ops = session_ops(session);

    return request->has_input && ops && !(ops->flags & PROVIDER_STDIN)
               ? err_set(err, EOPNOTSUPP,
                         "the provider gives commands no input")
               : 0;
}

static int read_request(struct session *session, const char *json, size_t size,
                        struct exec_request *out, struct err *err)
{
    struct exec_request request;
    int rc = size > EXEC_REQUEST_MAX
                 ? err_set(err, EFBIG, "a request of over %d bytes",
                           EXEC_REQUEST_MAX)
                 : exec_request_parse(json, size, &request, err);

    if (rc < 0) {
        return rc;
    }
    rc = check_able(session, &request, err);
    if (rc == 0) {
        rc = check_script(buf_str(&request.text), request.text.size, err);
    }
    if (rc < 0) {
        exec_request_done(&request);
        return rc;
    }
    *out = request;
    return 0;
}

int exec_check_json(struct session *session, const char *json, size_t size,
                    struct err *err)
{
    struct exec_request request;
    int rc = read_request(session, json, size, &request, err);

    if (rc < 0) {
        return note(session, rc);
    }
    exec_request_done(&request);
    return 0;
}

int exec_submit_json(struct session *session, const char *json, size_t size,
                     const struct caller *caller, struct exec **out,
                     struct err *err)
{
    struct exec_request request;
    int rc = read_request(session, json, size, &request, err);

    if (rc == 0) {
        const struct store_exec row = {
            .script = buf_str(&request.text),
            .size = request.text.size,
            .request = json,
            .request_size = size,
            .mode = request.mode,
            .background = request.background,
        };

        rc = submit(session, &row, caller, out, err);
        exec_request_done(&request);
    }
    return note(session, rc);
}

int session_exec_refused(struct session *session, struct err *err)
{
    int code;

    mutex_lock(&session->lock);
    code = session->refused;
    mutex_unlock(&session->lock);
    return code ? err_set(err, code, "the newest command was not taken") : 0;
}
