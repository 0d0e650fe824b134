/* The records of checkpoints. See store_checkpoints.h. */
#include "core/store_checkpoints.h"

#include "core/buf.h"
#include "core/store_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Adding ---- */

static int add_locked(struct store *store, uint64_t number,
                      const struct checkpoint *c, struct err *err)
    REQUIRES(store->lock)
{
    int rc = store_run(
        store, err,
        "INSERT INTO checkpoints(session, key, before, name, cause, time_us,"
        " changed, bytes, exec) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        "iiittiiii", (int64_t)number, (int64_t)c->key, (int64_t)c->before,
        c->name[0] ? c->name : NULL, checkpoint_cause_name(c->cause),
        c->time_us, (int64_t)c->changed, (int64_t)c->bytes, (int64_t)c->exec);

    if (rc == -EEXIST) {
        return err_set(err, EEXIST, "there is a checkpoint '%s' already",
                       c->name);
    }
    if (rc == 0) {
        rc = store_run(store, err,
                       "UPDATE sessions SET next_checkpoint = ?"
                       " WHERE number = ?",
                       "ii", (int64_t)c->key + 1, (int64_t)number);
    }
    return rc < 0 ? rc
                  : store_run(store, err,
                              "UPDATE states SET head = ? WHERE session = ?",
                              "ii", (int64_t)c->key, (int64_t)number);
}

int store_checkpoint_add(struct store *store, uint64_t number,
                         const struct checkpoint *checkpoint,
                         const struct store_event *event, struct err *err)
{
    int rc = store_enter(store, err);

    if (rc == 0) {
        rc = add_locked(store, number, checkpoint, err);
        if (rc == 0) {
            rc = store_event_locked(store, number, event, err);
        }
    }
    return store_leave(store, rc, err);
}

int store_checkpoint_exec(struct store *store, uint64_t number,
                          const struct exec_info *info,
                          const struct checkpoint *checkpoint,
                          const struct store_event *event, struct err *err)
{
    int rc = store_enter(store, err);

    if (rc == 0) {
        rc = store_exec_locked(store, number, info, event, err);
        if (rc == 0 && checkpoint) {
            rc = add_locked(store, number, checkpoint, err);
        }
    }
    return store_leave(store, rc, err);
}

/* ---- Finding ---- */

static enum checkpoint_cause parse_cause(const char *text)
{
    int cause = CHECKPOINT_EXEC;

    while (cause < CHECKPOINT_FORK &&
           strcmp(text, checkpoint_cause_name((enum checkpoint_cause)cause)) !=
               0) {
        cause++;
    }
    return (enum checkpoint_cause)cause;
}

#define COLUMNS "key, before, exec, time_us, changed, bytes, cause, name, gone"

/* Reads the one row of a statement, which is taken; 1, or 0 for none. */
static int one(struct store *store, sqlite3_stmt *stmt, struct checkpoint *out,
               struct err *err) REQUIRES(store->lock)
{
    int rc = store_step(store, stmt, err);

    if (rc > 0) {
        const void *cause = sqlite3_column_text(stmt, 6);
        const void *name = sqlite3_column_text(stmt, 7);

        *out = (struct checkpoint){
            .key = (uint64_t)sqlite3_column_int64(stmt, 0),
            .before = (uint64_t)sqlite3_column_int64(stmt, 1),
            .exec = (uint64_t)sqlite3_column_int64(stmt, 2),
            .time_us = sqlite3_column_int64(stmt, 3),
            .changed = (uint64_t)sqlite3_column_int64(stmt, 4),
            .bytes = (uint64_t)sqlite3_column_int64(stmt, 5),
            .cause = parse_cause(cause ? cause : ""),
            .gone = sqlite3_column_int(stmt, 8) != 0,
        };
        (void)snprintf(out->name, sizeof(out->name), "%s",
                       name ? (const char *)name : "");
    }
    store_finish(store, stmt);
    return rc;
}

static int found(int rc, struct err *err)
{
    return rc == 0 ? err_set(err, ENOENT, "no such checkpoint")
                   : (rc < 0 ? rc : 0);
}

/* The number that a name of digits says, as we write it; 0: none. */
static uint64_t parse_key(const char *name)
{
    char again[24];
    uint64_t key = strtoull(name, NULL, 10);

    (void)snprintf(again, sizeof(again), "%llu", (unsigned long long)key);
    return strcmp(again, name) == 0 && key <= INT64_MAX ? key : 0;
}

static int find_locked(struct store *store, uint64_t number, const char *name,
                       struct checkpoint *out, struct err *err)
    REQUIRES(store->lock)
{
    sqlite3_stmt *stmt = NULL;
    uint64_t key = parse_key(name);
    int rc = key ? store_query(store, &stmt, err,
                               "SELECT " COLUMNS " FROM checkpoints"
                               " WHERE session = ? AND key = ? AND name IS NULL"
                               " AND NOT gone",
                               "ii", (int64_t)number, (int64_t)key)
                 : store_query(store, &stmt, err,
                               "SELECT " COLUMNS " FROM checkpoints"
                               " WHERE session = ? AND name = ?",
                               "it", (int64_t)number, name);

    return rc < 0 ? rc : one(store, stmt, out, err);
}

int store_checkpoint_find(struct store *store, uint64_t number,
                          const char *name, struct checkpoint *out,
                          struct err *err)
{
    int rc;

    mutex_lock(&store->lock);
    rc = find_locked(store, number, name, out, err);
    mutex_unlock(&store->lock);
    return found(rc, err);
}

/* The first row of a query with two parameters. */
static int first(struct store *store, uint64_t number, const char *sql,
                 uint64_t key, struct checkpoint *out, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    int rc;

    mutex_lock(&store->lock);
    rc = store_query(store, &stmt, err, sql, "ii", (int64_t)number,
                     (int64_t)key);
    if (rc == 0) {
        rc = one(store, stmt, out, err);
    }
    mutex_unlock(&store->lock);
    return rc;
}

int store_checkpoint_from(struct store *store, uint64_t number, uint64_t key,
                          struct checkpoint *out, struct err *err)
{
    return first(store, number,
                 "SELECT " COLUMNS " FROM checkpoints"
                 " WHERE session = ? AND key >= ? AND NOT gone"
                 " ORDER BY key LIMIT 1",
                 key, out, err);
}

int store_checkpoint_any(struct store *store, uint64_t number, uint64_t key,
                         struct checkpoint *out, struct err *err)
{
    return first(store, number,
                 "SELECT " COLUMNS " FROM checkpoints"
                 " WHERE session = ? AND key >= ? ORDER BY key LIMIT 1",
                 key, out, err);
}

int store_checkpoint_row(struct store *store, uint64_t number, uint64_t key,
                         struct checkpoint *out, struct err *err)
{
    return first(store, number,
                 "SELECT " COLUMNS " FROM checkpoints"
                 " WHERE session = ? AND key = ?",
                 key, out, err);
}

int store_checkpoint_get(struct store *store, uint64_t number, uint64_t key,
                         struct checkpoint *out, struct err *err)
{
    return found(first(store, number,
                       key ? "SELECT " COLUMNS " FROM checkpoints"
                             " WHERE session = ? AND key = ? AND NOT gone"
                           : "SELECT " COLUMNS " FROM checkpoints"
                             " WHERE session = ? AND key > ? AND NOT gone"
                             " ORDER BY key DESC LIMIT 1",
                       key, out, err),
                 err);
}

int store_checkpoint_after(struct store *store, uint64_t number,
                           uint64_t before, uint64_t key,
                           struct checkpoint *out, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    int rc;

    mutex_lock(&store->lock);
    rc = store_query(store, &stmt, err,
                     "SELECT " COLUMNS " FROM checkpoints"
                     " WHERE session = ? AND key >= ? AND before = ?"
                     " ORDER BY key LIMIT 1",
                     "iii", (int64_t)number, (int64_t)key, (int64_t)before);
    if (rc == 0) {
        rc = one(store, stmt, out, err);
    }
    mutex_unlock(&store->lock);
    return rc;
}

/* ---- Dropping and counting ---- */

static int drop_locked(struct store *store, uint64_t number,
                       const struct checkpoint *c, struct err *err)
    REQUIRES(store->lock)
{
    int rc = store_run(store, err,
                       "DELETE FROM checkpoints WHERE session = ? AND key = ?",
                       "ii", (int64_t)number, (int64_t)c->key);

    /* Its changes stay while there is a command to show them. */
    return rc < 0 ? rc
                  : store_run(store, err,
                              "DELETE FROM changes WHERE session = ?1"
                              " AND to_key = ?2 AND NOT EXISTS"
                              " (SELECT 1 FROM execs"
                              "  WHERE session = ?1 AND n = ?3)",
                              "iii", (int64_t)number, (int64_t)c->key,
                              (int64_t)c->exec);
}

int store_checkpoint_drop(struct store *store, uint64_t number,
                          const struct checkpoint *checkpoint,
                          const struct store_event *event, struct err *err)
{
    int rc = store_enter(store, err);

    if (rc == 0) {
        rc = drop_locked(store, number, checkpoint, err);
        if (rc == 0) {
            rc = store_event_locked(store, number, event, err);
        }
    }
    return store_leave(store, rc, err);
}

static int hide_locked(struct store *store, uint64_t number, uint64_t key,
                       const struct store_event *event, struct err *err)
    REQUIRES(store->lock)
{
    int rc = store_run(store, err,
                       "UPDATE checkpoints SET gone = 1, name = NULL"
                       " WHERE session = ? AND key = ?",
                       "ii", (int64_t)number, (int64_t)key);

    return rc < 0 ? rc : store_event_locked(store, number, event, err);
}

int store_checkpoint_hide(struct store *store, uint64_t number, uint64_t key,
                          const struct store_event *event, struct err *err)
{
    int rc = store_enter(store, err);

    if (rc == 0) {
        rc = hide_locked(store, number, key, event, err);
    }
    return store_leave(store, rc, err);
}

int store_checkpoint_next(struct store *store, uint64_t number, uint64_t *out,
                          struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    ssize_t n;

    mutex_lock(&store->lock);
    n = store_query(store, &stmt, err,
                    "SELECT next_checkpoint FROM sessions WHERE number = ?",
                    "i", (int64_t)number);
    if (n == 0) {
        n = store_numbers(store, stmt, out, 1, err);
    }
    mutex_unlock(&store->lock);
    if (n == 0) {
        return err_set(err, ENOENT, "no such session");
    }
    return n < 0 ? (int)n : 0;
}

static int sum_locked(struct store *store, uint64_t number, uint64_t but,
                      struct store_checkpoint_sum *out, struct err *err)
    REQUIRES(store->lock)
{
    sqlite3_stmt *stmt = NULL;
    int rc = store_query(store, &stmt, err,
                         "SELECT sum(NOT gone),"
                         " sum(CASE WHEN NOT gone THEN bytes END),"
                         " min(CASE WHEN key <> ?2 AND NOT gone THEN key END),"
                         " min(CASE WHEN key <> ?2 AND NOT gone"
                         "  THEN time_us END),"
                         " min(CASE WHEN key <> ?2 AND gone THEN key END)"
                         " FROM checkpoints"
                         " WHERE session = ?1 AND name IS NULL",
                         "ii", (int64_t)number, (int64_t)but);

    if (rc < 0) {
        return rc;
    }
    rc = store_step(store, stmt, err);
    if (rc > 0) {
        *out = (struct store_checkpoint_sum){
            .count = (uint64_t)sqlite3_column_int64(stmt, 0),
            .bytes = (uint64_t)sqlite3_column_int64(stmt, 1),
            .first = (uint64_t)sqlite3_column_int64(stmt, 2),
            .time_us = sqlite3_column_int64(stmt, 3),
            .gone = (uint64_t)sqlite3_column_int64(stmt, 4),
        };
        rc = 0;
    }
    store_finish(store, stmt);
    return rc;
}

int store_checkpoint_sum(struct store *store, uint64_t number, uint64_t but,
                         struct store_checkpoint_sum *out, struct err *err)
{
    int rc;

    mutex_lock(&store->lock);
    rc = sum_locked(store, number, but, out, err);
    mutex_unlock(&store->lock);
    return rc;
}

/* ---- Texts of changes ---- */

int store_changes_put(struct store *store, uint64_t number, uint64_t from,
                      uint64_t to, const char *text, size_t size,
                      struct err *err)
{
    int rc;

    mutex_lock(&store->lock);
    rc = store_run(store, err,
                   "INSERT OR REPLACE INTO changes(session, from_key, to_key,"
                   " text) VALUES (?, ?, ?, ?)",
                   "iiib", (int64_t)number, (int64_t)from, (int64_t)to,
                   size ? text : "", size);
    mutex_unlock(&store->lock);
    return rc;
}

static int changes_locked(struct store *store, uint64_t number, uint64_t from,
                          uint64_t to, struct buf *out, struct err *err)
    REQUIRES(store->lock)
{
    sqlite3_stmt *stmt = NULL;
    int rc = store_query(store, &stmt, err,
                         "SELECT text FROM changes WHERE session = ?"
                         " AND from_key = ? AND to_key = ?",
                         "iii", (int64_t)number, (int64_t)from, (int64_t)to);

    if (rc < 0) {
        return rc;
    }
    rc = store_step(store, stmt, err);
    if (rc > 0) {
        rc = buf_add(out, sqlite3_column_blob(stmt, 0),
                     (size_t)sqlite3_column_bytes(stmt, 0));
        rc = rc < 0 ? err_set(err, -rc, "cannot read the changes") : 0;
    } else if (rc == 0) {
        rc = err_set(err, ENOENT, "these changes are not kept");
    }
    store_finish(store, stmt);
    return rc;
}

int store_changes_get(struct store *store, uint64_t number, uint64_t from,
                      uint64_t to, struct buf *out, struct err *err)
{
    int rc;

    mutex_lock(&store->lock);
    rc = changes_locked(store, number, from, to, out, err);
    mutex_unlock(&store->lock);
    return rc;
}

bool store_changes_size(struct store *store, uint64_t number, uint64_t from,
                        uint64_t to, uint64_t *out)
{
    sqlite3_stmt *stmt = NULL;
    struct err ignored = ERR_INIT;
    ssize_t rows = 0;

    mutex_lock(&store->lock);
    if (store_query(store, &stmt, &ignored,
                    "SELECT length(text) FROM changes WHERE session = ?"
                    " AND from_key = ? AND to_key = ?",
                    "iii", (int64_t)number, (int64_t)from, (int64_t)to) == 0) {
        rows = store_numbers(store, stmt, out, 1, &ignored);
    }
    mutex_unlock(&store->lock);
    return rows > 0;
}
