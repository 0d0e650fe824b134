/* Sessions that nobody sees yet. See store_checkpoints.h. */
#include "core/clock.h"
#include "core/store_checkpoints.h"
#include "core/store_priv.h"

#include <errno.h>

int store_fork_begin(struct store *store, const char *id, const char *config,
                     uint64_t *number, struct err *err)
{
    int rc;

    mutex_lock(&store->lock);
    rc = store_run(store, err,
                   "INSERT INTO sessions(id, config, created_us, hidden)"
                   " VALUES (?, ?, ?, 1)",
                   "tti", id, config, clock_wall_us());
    if (rc == 0) {
        *number = (uint64_t)sqlite3_last_insert_rowid(store->db);
    } else if (rc == -EEXIST) {
        rc = err_set(err, EEXIST, "there is a session '%s' already", id);
    }
    mutex_unlock(&store->lock);
    return rc;
}

static int show_locked(struct store *store, uint64_t number,
                       const struct store_event *event, struct err *err)
    REQUIRES(store->lock)
{
    int rc = store_run(store, err,
                       "UPDATE sessions SET hidden = 0, created_us = ?"
                       " WHERE number = ?",
                       "ii", clock_wall_us(), (int64_t)number);

    return rc < 0 ? rc : store_event_locked(store, number, event, err);
}

int store_fork_end(struct store *store, uint64_t number,
                   const struct store_event *event, struct err *err)
{
    int rc = store_enter(store, err);

    if (rc == 0) {
        rc = show_locked(store, number, event, err);
    }
    return store_leave(store, rc, err);
}

/* No id begins with a dot. */
int store_fork_abandon(struct store *store, uint64_t number, struct err *err)
{
    int rc;

    mutex_lock(&store->lock);
    rc = store_run(store, err,
                   "UPDATE sessions SET id = '.' || number"
                   " WHERE number = ? AND hidden",
                   "i", (int64_t)number);
    mutex_unlock(&store->lock);
    return rc;
}

int store_fork_next(struct store *store, uint64_t after, uint64_t *number,
                    struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    ssize_t n;

    mutex_lock(&store->lock);
    n = store_query(store, &stmt, err,
                    "SELECT number FROM sessions"
                    " WHERE hidden AND number > ? ORDER BY number LIMIT 1",
                    "i", (int64_t)after);
    if (n == 0) {
        n = store_numbers(store, stmt, number, 1, err);
    }
    mutex_unlock(&store->lock);
    return (int)n;
}
