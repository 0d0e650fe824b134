/* Checkpoints: their names, and what may be asked for. See checkpoint.h. */
#include "core/checkpoint.h"

#include "core/checkpoint_priv.h"
#include "core/registry_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *checkpoint_cause_name(enum checkpoint_cause cause)
{
    static const char *const names[] = {
        [CHECKPOINT_EXEC] = "exec",   [CHECKPOINT_WRITE] = "write",
        [CHECKPOINT_NAMED] = "named", [CHECKPOINT_RESTORE] = "restore",
        [CHECKPOINT_FORK] = "fork",
    };

    return names[cause];
}

void checkpoint_label(const struct checkpoint *checkpoint,
                      char out[CHECKPOINT_LABEL_SIZE])
{
    if (checkpoint->name[0]) {
        memcpy(out, checkpoint->name, sizeof(checkpoint->name));
    } else {
        (void)snprintf(out, CHECKPOINT_LABEL_SIZE, "%llu",
                       (unsigned long long)checkpoint->key);
    }
}

static int check_name(const char *name, struct err *err)
{
    if (!session_id_valid(name) || strstr(name, "..") ||
        strcmp(name, "last") == 0 ||
        strspn(name, "0123456789") == strlen(name)) {
        return err_set(err, EINVAL,
                       "a checkpoint's name is up to %d of A-Z a-z 0-9 . _ - "
                       "and begins with a letter or digit; not all digits, not "
                       "'last', no two dots in a row",
                       SESSION_ID_MAX);
    }
    return 0;
}

int checkpoint_find(struct session *session, const char *name,
                    struct checkpoint *out, struct err *err)
{
    struct store *store = session->registry->store;
    int rc =
        strcmp(name, "last") == 0
            ? store_checkpoint_get(store, session->number, 0, out, err)
            : store_checkpoint_find(store, session->number, name, out, err);

    return rc == -ENOENT
               ? err_set(err, ENOENT, "no such checkpoint: '%.64s'", name)
               : rc;
}

int checkpoint_each(struct session *session, uint64_t after,
                    bool (*fn)(void *arg, const struct checkpoint *c),
                    void *arg, struct err *err)
{
    struct checkpoint c;
    int rc = 1;

    while (rc > 0) {
        rc = store_checkpoint_from(session->registry->store, session->number,
                                   after + 1, &c, err);
        if (rc > 0) {
            after = c.key;
            rc = fn(arg, &c) ? 1 : 0;
        }
    }
    return rc;
}

/* ---- Asking ---- */

static void refuse(done_fn *done, void *arg, const struct err *err)
{
    done(arg, -err->code, err);
}

void checkpoint_take(struct session *session, const char *name,
                     const struct caller *caller, done_fn *done, void *arg)
{
    struct job job = {
        .kind = JOB_CHECKPOINT, .caller = *caller, .done = done, .arg = arg};
    struct checkpoint known;
    struct err err = ERR_INIT;
    struct err none = ERR_INIT;
    int rc = check_name(name, &err);

    if (rc == 0 && checkpoint_find(session, name, &known, &none) == 0) {
        rc = err_set(&err, EEXIST, "there is a checkpoint '%s' already", name);
    }
    if (rc < 0) {
        refuse(done, arg, &err);
        return;
    }
    (void)snprintf(job.name, sizeof(job.name), "%s", name);
    session_submit(session, &job);
}

/* Asks for work on one that is there, by its number: it has that for ever. */
static void submit_known(struct session *session, enum job_kind kind,
                         const char *name, const struct caller *caller,
                         done_fn *done, void *arg)
{
    struct job job = {
        .kind = kind, .caller = *caller, .done = done, .arg = arg};
    struct checkpoint known;
    struct err err = ERR_INIT;

    if (checkpoint_find(session, name, &known, &err) < 0) {
        err.notable = true; /* Not that of the file that was written. */
        refuse(done, arg, &err);
        return;
    }
    job.key = known.key;
    session_submit(session, &job);
}

void checkpoint_drop(struct session *session, const char *name,
                     const struct caller *caller, done_fn *done, void *arg)
{
    submit_known(session, JOB_DROP, name, caller, done, arg);
}

void checkpoint_restore(struct session *session, const char *name,
                        const struct caller *caller, done_fn *done, void *arg)
{
    submit_known(session, JOB_RESTORE, name, caller, done, arg);
}
