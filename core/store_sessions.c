/* Sessions and the records of their sandboxes. See store.h. */
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/store_priv.h"

#include <stdio.h>

void store_session_done(struct store_session *row)
{
    free(row->config);
    row->config = NULL;
}

static int add_locked(struct store *store, const char *id, const char *config,
                      const struct caller *caller, uint64_t *number,
                      struct err *err) REQUIRES(store->lock)
{
    struct store_event event = {.name = "session.created", .caller = caller};
    int rc = store_run(store, err,
                       "INSERT INTO sessions(id, config, created_us)"
                       " VALUES (?, ?, ?)",
                       "tti", id, config, clock_wall_us());

    if (rc == -EEXIST) {
        return err_set(err, EEXIST, "there is a session '%s' already", id);
    }
    if (rc < 0) {
        return rc;
    }
    *number = (uint64_t)sqlite3_last_insert_rowid(store->db);
    return store_event_locked(store, *number, &event, err);
}

int store_session_add(struct store *store, const char *id, const char *config,
                      const struct caller *caller, uint64_t *number,
                      struct err *err)
{
    uint64_t made = 0;
    int rc = store_enter(store, err);

    if (rc == 0) {
        rc = add_locked(store, id, config, caller, &made, err);
    }
    rc = store_leave(store, rc, err);
    if (rc == 0) {
        *number = made;
    }
    return rc;
}

#define SESSION_COLUMNS "number, generation, created_us, id, config"

static int read_session(sqlite3_stmt *stmt, struct store_session *out,
                        struct err *err)
{
    const void *id = sqlite3_column_text(stmt, 3);
    struct store_session row = {
        .number = (uint64_t)sqlite3_column_int64(stmt, 0),
        .generation = (uint64_t)sqlite3_column_int64(stmt, 1),
        .created_us = sqlite3_column_int64(stmt, 2),
    };
    int rc = 0;

    (void)snprintf(row.id, sizeof(row.id), "%s", id ? (const char *)id : "");
    row.config = store_text(stmt, 4, &rc);
    if (rc < 0) {
        return err_no_memory(err);
    }
    *out = row;
    return 0;
}

/* Reads the one row of a statement, which is taken. */
static int one_session(struct store *store, sqlite3_stmt *stmt,
                       struct store_session *out, struct err *err)
    REQUIRES(store->lock)
{
    int rc = store_step(store, stmt, err);

    if (rc > 0) {
        rc = read_session(stmt, out, err);
    } else if (rc == 0) {
        rc = err_set(err, ENOENT, "no such session");
    }
    store_finish(store, stmt);
    return rc;
}

int store_session_find(struct store *store, const char *id,
                       struct store_session *out, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    int rc;

    mutex_lock(&store->lock);
    rc = store_query(store, &stmt, err,
                     "SELECT " SESSION_COLUMNS " FROM sessions"
                     " WHERE id = ? AND NOT hidden",
                     "t", id);
    if (rc == 0) {
        rc = one_session(store, stmt, out, err);
    }
    mutex_unlock(&store->lock);
    return rc;
}

int store_session_get(struct store *store, uint64_t number,
                      struct store_session *out, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    int rc;

    mutex_lock(&store->lock);
    rc =
        store_query(store, &stmt, err,
                    "SELECT " SESSION_COLUMNS " FROM sessions WHERE number = ?",
                    "i", (int64_t)number);
    if (rc == 0) {
        rc = one_session(store, stmt, out, err);
    }
    mutex_unlock(&store->lock);
    return rc;
}

static int remove_locked(struct store *store, uint64_t number, struct err *err)
    REQUIRES(store->lock)
{
    int rc = store_run(store, err,
                       "DELETE FROM sessions WHERE number = ?1 AND NOT EXISTS"
                       " (SELECT 1 FROM states WHERE session = ?1)",
                       "i", (int64_t)number);

    if (rc == 0 && sqlite3_changes(store->db) == 0) {
        return err_set(err, ENOTEMPTY, "the session has a sandbox");
    }
    return rc < 0
               ? rc
               : store_run(store, err, "DELETE FROM failures WHERE session = ?",
                           "i", (int64_t)number);
}

int store_session_remove(struct store *store, uint64_t number, struct err *err)
{
    int rc = store_enter(store, err);

    if (rc == 0) {
        rc = remove_locked(store, number, err);
    }
    return store_leave(store, rc, err);
}

static int rename_locked(struct store *store, uint64_t number, const char *id,
                         const struct store_event *event, struct err *err)
    REQUIRES(store->lock)
{
    int rc =
        store_run(store, err, "UPDATE sessions SET id = ? WHERE number = ?",
                  "ti", id, (int64_t)number);

    if (rc == -EEXIST) {
        return err_set(err, ENOTEMPTY, "there is a session '%s' already", id);
    }
    return rc < 0 ? rc : store_event_locked(store, number, event, err);
}

int store_session_rename(struct store *store, uint64_t number, const char *id,
                         const struct store_event *event, struct err *err)
{
    int rc = store_enter(store, err);

    if (rc == 0) {
        rc = rename_locked(store, number, id, event, err);
    }
    return store_leave(store, rc, err);
}

static int configure_locked(struct store *store, uint64_t number,
                            const char *config, const struct store_event *event,
                            struct err *err) REQUIRES(store->lock)
{
    int rc =
        store_run(store, err, "UPDATE sessions SET config = ? WHERE number = ?",
                  "ti", config, (int64_t)number);

    return rc < 0 ? rc : store_event_locked(store, number, event, err);
}

int store_session_configure(struct store *store, uint64_t number,
                            const char *config, const struct store_event *event,
                            struct err *err)
{
    int rc = store_enter(store, err);

    if (rc == 0) {
        rc = configure_locked(store, number, config, event, err);
    }
    return store_leave(store, rc, err);
}

static ssize_t list_locked(struct store *store, uint64_t after,
                           struct store_session *out, size_t most,
                           struct err *err) REQUIRES(store->lock)
{
    sqlite3_stmt *stmt = NULL;
    size_t count = 0;
    int rc = store_query(store, &stmt, err,
                         "SELECT number, generation, created_us, id, NULL"
                         " FROM sessions WHERE number > ? AND NOT hidden"
                         " ORDER BY number",
                         "i", (int64_t)after);

    if (rc < 0) {
        return rc;
    }
    rc = 1;
    while (count < most && rc > 0) {
        rc = store_step(store, stmt, err);
        if (rc > 0) {
            rc = read_session(stmt, &out[count], err) < 0 ? -ENOMEM : 1;
            count++;
        }
    }
    store_finish(store, stmt);
    return rc < 0 ? rc : (ssize_t)count;
}

ssize_t store_session_list(struct store *store, uint64_t after,
                           struct store_session *out, size_t most,
                           struct err *err)
{
    ssize_t n;

    mutex_lock(&store->lock);
    n = list_locked(store, after, out, most, err);
    mutex_unlock(&store->lock);
    return n;
}

static uint64_t count_locked(struct store *store) REQUIRES(store->lock)
{
    sqlite3_stmt *stmt = NULL;
    struct err err = ERR_INIT;
    uint64_t count = 0;

    if (store_query(store, &stmt, &err,
                    "SELECT count(*) FROM sessions WHERE NOT hidden", "") < 0) {
        return 0;
    }
    if (store_numbers(store, stmt, &count, 1, &err) < 0) {
        return 0;
    }
    return count;
}

uint64_t store_session_count(struct store *store)
{
    uint64_t count;

    mutex_lock(&store->lock);
    count = count_locked(store);
    mutex_unlock(&store->lock);
    return count;
}

/* A config that cannot be read is in the way of its own session only. */
int store_provider_used(struct store *store, const char *provider,
                        struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    int rc;

    mutex_lock(&store->lock);
    rc = store_query(store, &stmt, err,
                     "SELECT 1 FROM sessions WHERE CASE WHEN"
                     " json_valid(config)"
                     " THEN json_extract(config, '$.provider') = ?1 END"
                     " UNION ALL SELECT 1 FROM states WHERE provider = ?1"
                     " LIMIT 1",
                     "t", provider);
    if (rc == 0) {
        rc = store_step(store, stmt, err);
        store_finish(store, stmt);
    }
    mutex_unlock(&store->lock);
    return rc;
}
