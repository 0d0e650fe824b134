/* What failed, and what room there is. See registry.h. */
#include "core/buf.h"
#include "core/clock.h"
#include "core/registry_priv.h"
#include "core/session_priv.h"

#include <errno.h>

enum {
    LIST_BATCH = 256,
    LINE_SIZE = 4096,
};

void registry_fail(struct registry *registry, const char *op, const char *name,
                   const struct caller *caller, const struct err *err)
{
    struct buf line = BUF_INIT(LINE_SIZE);
    struct err ignored = ERR_INIT;

    /* The failure is answered to its caller and logged in any case. */
    if (session_failure_line(&line, clock_wall_us(), op, 0, name, caller->pid,
                             err) == 0) {
        (void)!store_failure_add(registry->store, 0, line.data, line.size,
                                 &ignored);
    }
    buf_done(&line);
}

static int tell_pending(struct registry *registry, uint64_t number,
                        struct buf *out, struct err *err)
{
    struct store_session row;
    struct store_state state;
    int rc = store_session_get(registry->store, number, &row, err);

    if (rc == 0) {
        rc = store_state_load(registry->store, number, &state, err);
        store_session_done(&row);
    }
    if (rc == -ENOENT) { /* It has been deleted meanwhile. */
        err_clear(err);
        return 0;
    }
    if (rc < 0) {
        return rc;
    }
    if (state.err.code) {
        rc = session_failure_line(out, state.updated_us, "delete", 0, row.id, 0,
                                  &state.err);
    }
    store_state_done(&state);
    return rc < 0 ? err_set(err, -rc, "cannot list the failures") : 0;
}

/* Deletions that are not confirmed. Their sessions are not loaded for it. */
static int tell_all_pending(struct registry *registry, struct buf *out,
                            struct err *err)
{
    uint64_t numbers[LIST_BATCH];
    uint64_t after = 0;
    ssize_t count = LIST_BATCH;
    int rc = 0;

    while (count == LIST_BATCH && rc == 0) {
        count = store_state_list(registry->store, SESSION_DELETING, after,
                                 numbers, LIST_BATCH, err);
        for (ssize_t i = 0; i < count && rc == 0; i++) {
            rc = tell_pending(registry, numbers[i], out, err);
            after = numbers[i];
        }
    }
    return count < 0 ? (int)count : rc;
}

int registry_errors(struct registry *registry, struct buf *out, struct err *err)
{
    int rc = store_failures(registry->store, 0, out, err);

    return rc < 0 ? rc : tell_all_pending(registry, out, err);
}

int registry_statfs(struct registry *registry, struct statvfs *out,
                    struct err *err)
{
    return statvfs(registry->state_dir, out) < 0
               ? err_errno(err, "statvfs of the state directory")
               : 0;
}

bool registry_at_rest(struct registry *registry)
{
    static const enum session_status busy[] = {
        SESSION_STARTING, SESSION_RUNNING, SESSION_DELETING};
    struct err ignored = ERR_INIT;
    bool rest;

    mutex_lock(&registry->lock);
    rest = registry->jobs == 0;
    mutex_unlock(&registry->lock);
    for (size_t i = 0; i < ARRAY_SIZE(busy) && rest; i++) {
        uint64_t number;

        rest = store_state_list(registry->store, busy[i], 0, &number, 1,
                                &ignored) == 0;
    }
    return rest;
}
