/* The records of commands. See store.h. */
#include "core/buf.h"
#include "core/clock.h"
#include "core/json.h"
#include "core/store_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Takes the session's next number: one is never used twice. */
static int take_number(struct store *store, uint64_t number, uint64_t *n,
                       struct err *err) REQUIRES(store->lock)
{
    sqlite3_stmt *stmt = NULL;
    ssize_t found;
    int rc = store_query(store, &stmt, err,
                         "UPDATE sessions SET next_exec = next_exec + 1"
                         " WHERE number = ? RETURNING next_exec - 1",
                         "i", (int64_t)number);

    if (rc < 0) {
        return rc;
    }
    found = store_numbers(store, stmt, n, 1, err);
    if (found < 0) {
        return (int)found;
    }
    return found ? 0 : err_set(err, ENOENT, "no such session");
}

static int add_locked(struct store *store, uint64_t number,
                      const struct store_exec *exec,
                      const struct caller *caller, struct exec_info *info,
                      struct err *err) REQUIRES(store->lock)
{
    struct store_event event = {.name = "exec.queued", .caller = caller};
    int rc = take_number(store, number, &info->n, err);

    if (rc < 0) {
        return rc;
    }
    rc = store_run(store, err,
                   "INSERT INTO execs(session, n, status, submitted_us,"
                   " started_us, ended_us, err_code, command, request, mode,"
                   " background, init)"
                   " VALUES (?, ?, ?, ?, 0, 0, 0, ?, ?, ?, ?, ?)",
                   "iitibbtii", (int64_t)number, (int64_t)info->n,
                   exec_status_name(info->status), info->submitted_us,
                   exec->script, exec->size, exec->request, exec->request_size,
                   shape_mode_name(exec->mode), (int64_t)exec->background,
                   (int64_t)exec->init);
    event.exec = info->n;
    return rc < 0 || exec->init
               ? rc
               : store_event_locked(store, number, &event, err);
}

int store_exec_add(struct store *store, uint64_t number,
                   const struct store_exec *exec, const struct caller *caller,
                   struct exec_info *out, struct err *err)
{
    struct exec_info info = {.status = EXEC_QUEUED,
                             .submitted_us = clock_wall_us(),
                             .mode = exec->mode,
                             .background = exec->background};
    int rc = store_enter(store, err);

    if (rc == 0) {
        rc = add_locked(store, number, exec, caller, &info, err);
    }
    rc = store_leave(store, rc, err);
    if (rc == 0) {
        *out = info;
    }
    return rc;
}

int store_exec_locked(struct store *store, uint64_t number,
                      const struct exec_info *info,
                      const struct store_event *event, struct err *err)
{
    /* A NULL stays where there is no exit code. */
    int rc = store_run(
        store, err,
        "UPDATE execs SET status = ?,"
        " exit_code = CASE WHEN ? THEN ? END,"
        " started_us = ?, ended_us = ?,"
        " err_code = ?, err_msg = ?,"
        " checkpoint = ?, before = ?, changed = ?"
        " WHERE session = ? AND n = ?",
        "tiiiiitiiiii", exec_status_name(info->status),
        (int64_t)info->has_exit_code, (int64_t)info->exit_code,
        info->started_us, info->ended_us, (int64_t)info->err.code,
        info->err.msg, (int64_t)info->checkpoint, (int64_t)info->before,
        (int64_t)info->changed, (int64_t)number, (int64_t)info->n);

    if (rc == 0 && sqlite3_changes(store->db) == 0) {
        return err_set(err, ENOENT, "no such command");
    }
    return rc < 0 ? rc : store_event_locked(store, number, event, err);
}

int store_exec_save(struct store *store, uint64_t number,
                    const struct exec_info *info,
                    const struct store_event *event, struct err *err)
{
    int rc = store_enter(store, err);

    if (rc == 0) {
        rc = store_exec_locked(store, number, info, event, err);
    }
    return store_leave(store, rc, err);
}

int store_exec_cancel(struct store *store, uint64_t number, uint64_t n,
                      struct err *err)
{
    int rc;

    mutex_lock(&store->lock);
    rc = store_run(store, err,
                   "UPDATE execs SET cancelled = 1 WHERE session = ? AND n = ?"
                   " AND status IN ('queued', 'running')",
                   "ii", (int64_t)number, (int64_t)n);
    mutex_unlock(&store->lock);
    return rc;
}

static enum exec_status parse_status(const char *text)
{
    for (int i = EXEC_QUEUED; i < EXEC_FAILED; i++) {
        if (text && strcmp(text, exec_status_name((enum exec_status)i)) == 0) {
            return (enum exec_status)i;
        }
    }
    return EXEC_FAILED;
}

static void read_info(sqlite3_stmt *stmt, struct exec_info *out)
{
    const void *status = sqlite3_column_text(stmt, 1);
    const void *msg = sqlite3_column_text(stmt, 7);
    const void *mode = sqlite3_column_text(stmt, 8);

    *out = (struct exec_info){
        .n = (uint64_t)sqlite3_column_int64(stmt, 0),
        .status = parse_status(status),
        .exit_code = sqlite3_column_int(stmt, 2),
        .has_exit_code = sqlite3_column_type(stmt, 2) != SQLITE_NULL,
        .submitted_us = sqlite3_column_int64(stmt, 3),
        .started_us = sqlite3_column_int64(stmt, 4),
        .ended_us = sqlite3_column_int64(stmt, 5),
        /* Perhaps those of an init command. */
        .err = {.code = sqlite3_column_int(stmt, 6), .quotes = true},
        .mode = SHAPE_AUTO,
        .background = sqlite3_column_int(stmt, 9) != 0,
        .init = sqlite3_column_int(stmt, 10) != 0,
        .checkpoint = (uint64_t)sqlite3_column_int64(stmt, 11),
        .before = (uint64_t)sqlite3_column_int64(stmt, 12),
        .changed = (uint64_t)sqlite3_column_int64(stmt, 13),
        .cancelled = sqlite3_column_int(stmt, 14) != 0,
    };
    (void)shape_mode_find(mode ? mode : "", &out->mode);
    (void)snprintf(out->err.msg, sizeof(out->err.msg), "%s",
                   msg ? (const char *)msg : "");
}

#define EXEC_COLUMNS                                                           \
    "n, status, exit_code, submitted_us, started_us, ended_us,"                \
    " err_code, err_msg, mode, background, init, checkpoint, before, changed," \
    " cancelled"

static int load_locked(struct store *store, uint64_t number, uint64_t n,
                       struct exec_info *out, struct err *err)
    REQUIRES(store->lock)
{
    sqlite3_stmt *stmt = NULL;
    int rc =
        n ? store_query(store, &stmt, err,
                        "SELECT " EXEC_COLUMNS
                        " FROM execs WHERE session = ? AND n = ?",
                        "ii", (int64_t)number, (int64_t)n)
          : store_query(store, &stmt, err,
                        "SELECT " EXEC_COLUMNS " FROM execs WHERE session = ?"
                        " AND init = 0 ORDER BY n DESC LIMIT 1",
                        "i", (int64_t)number);

    if (rc < 0) {
        return rc;
    }
    rc = store_step(store, stmt, err);
    if (rc > 0) {
        read_info(stmt, out);
        rc = 0;
    } else if (rc == 0) {
        rc = err_set(err, ENOENT, "no such command");
    }
    store_finish(store, stmt);
    return rc;
}

int store_exec_load(struct store *store, uint64_t number, uint64_t n,
                    struct exec_info *out, struct err *err)
{
    int rc;

    mutex_lock(&store->lock);
    rc = load_locked(store, number, n, out, err);
    mutex_unlock(&store->lock);
    return rc;
}

/* Appends the one column of the one row that a query gives. */
static int blob_locked(struct store *store, const char *sql, uint64_t number,
                       uint64_t n, struct buf *out, struct err *err)
    REQUIRES(store->lock)
{
    sqlite3_stmt *stmt = NULL;
    int rc =
        store_query(store, &stmt, err, sql, "ii", (int64_t)number, (int64_t)n);

    if (rc < 0) {
        return rc;
    }
    rc = store_step(store, stmt, err);
    if (rc == 0) {
        rc = err_set(err, ENOENT, "no such command");
    } else if (rc > 0) {
        const void *data = sqlite3_column_blob(stmt, 0);

        rc = buf_add(out, data, (size_t)sqlite3_column_bytes(stmt, 0));
        rc = rc < 0 ? err_set(err, -rc, "cannot read the command") : 0;
    }
    store_finish(store, stmt);
    return rc;
}

int store_exec_text(struct store *store, uint64_t number, uint64_t n,
                    struct buf *out, struct err *err)
{
    int rc;

    mutex_lock(&store->lock);
    rc = blob_locked(store,
                     "SELECT command FROM execs WHERE session = ? AND n = ?",
                     number, n, out, err);
    mutex_unlock(&store->lock);
    return rc;
}

int store_exec_request(struct store *store, uint64_t number, uint64_t n,
                       struct buf *out, struct err *err)
{
    int rc;

    mutex_lock(&store->lock);
    rc = blob_locked(store,
                     "SELECT request FROM execs WHERE session = ? AND n = ?",
                     number, n, out, err);
    mutex_unlock(&store->lock);
    return rc;
}

static int drop_locked(struct store *store, uint64_t number, const uint64_t *n,
                       size_t count, struct err *err) REQUIRES(store->lock)
{
    int rc = 0;

    for (size_t i = 0; i < count && rc == 0; i++) {
        /* Its changes stay while there is a checkpoint to show them. */
        rc = store_run(store, err,
                       "DELETE FROM changes WHERE session = ?1 AND to_key ="
                       " (SELECT checkpoint FROM execs"
                       "  WHERE session = ?1 AND n = ?2)"
                       " AND NOT EXISTS (SELECT 1 FROM checkpoints"
                       "  WHERE session = ?1 AND key = to_key)",
                       "ii", (int64_t)number, (int64_t)n[i]);
        if (rc == 0) {
            rc = store_run(store, err,
                           "DELETE FROM execs WHERE session = ? AND n = ?",
                           "ii", (int64_t)number, (int64_t)n[i]);
        }
    }
    return rc;
}

int store_exec_drop(struct store *store, uint64_t number, const uint64_t *n,
                    size_t count, struct err *err)
{
    int rc = store_enter(store, err);

    if (rc == 0) {
        rc = drop_locked(store, number, n, count, err);
    }
    return store_leave(store, rc, err);
}

ssize_t store_exec_list(struct store *store, uint64_t number, uint64_t after,
                        uint64_t *out, size_t most, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    ssize_t count;

    mutex_lock(&store->lock);
    count = store_query(store, &stmt, err,
                        "SELECT n FROM execs"
                        " WHERE session = ? AND n > ? ORDER BY n",
                        "ii", (int64_t)number, (int64_t)after);
    if (count == 0) {
        count = store_numbers(store, stmt, out, most, err);
    }
    mutex_unlock(&store->lock);
    return count;
}

/* The next command behind one that is still open. 1, 0 where there is none, or
 * a negative errno. */
static int find_open(struct store *store, struct exec_key *key, struct err *err)
    REQUIRES(store->lock)
{
    sqlite3_stmt *stmt = NULL;
    int rc = store_query(store, &stmt, err,
                         "SELECT session, n FROM execs"
                         " WHERE status IN ('queued', 'running')"
                         " AND (session, n) > (?, ?)"
                         " ORDER BY session, n LIMIT 1",
                         "ii", (int64_t)key->number, (int64_t)key->n);

    if (rc < 0) {
        return rc;
    }
    rc = store_step(store, stmt, err);
    if (rc > 0) {
        key->number = (uint64_t)sqlite3_column_int64(stmt, 0);
        key->n = (uint64_t)sqlite3_column_int64(stmt, 1);
    }
    store_finish(store, stmt);
    return rc;
}

static int lose_one(struct store *store, uint64_t number, uint64_t n,
                    struct err *err) REQUIRES(store->lock)
{
    struct store_event event = {.name = "exec.ended", .exec = n};
    struct exec_info info;
    struct js *detail;
    int rc = load_locked(store, number, n, &info, err);

    if (rc < 0) {
        return rc;
    }
    info.status = EXEC_LOST;
    info.ended_us = clock_wall_us();
    (void)err_set(&info.err, ESTALE, "the daemon ended before the command did");
    detail = js_object();
    js_set_text(detail, "status", exec_status_name(info.status));
    event.detail = detail;
    rc = store_exec_locked(store, number, &info, &event, err);
    js_free(detail);
    return rc;
}

static bool is_among(const struct exec_key *key, const struct exec_key *list,
                     size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i].number == key->number && list[i].n == key->n) {
            return true;
        }
    }
    return false;
}

static int lose_all_locked(struct store *store, const struct exec_key *but,
                           size_t count, struct err *err) REQUIRES(store->lock)
{
    struct exec_key key = {0, 0};
    int rc = find_open(store, &key, err);

    while (rc > 0) {
        rc = is_among(&key, but, count)
                 ? 0
                 : lose_one(store, key.number, key.n, err);
        if (rc == 0) {
            rc = find_open(store, &key, err);
        }
    }
    return rc;
}

int store_exec_lose_all(struct store *store, const struct exec_key *but,
                        size_t count, struct err *err)
{
    int rc = store_enter(store, err);

    if (rc == 0) {
        rc = lose_all_locked(store, but, count, err);
    }
    return store_leave(store, rc, err);
}
