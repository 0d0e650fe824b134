/* What the store's own files share: statements with bound parameters. */
#ifndef SESSIONFS_STORE_PRIV_H
#define SESSIONFS_STORE_PRIV_H

#include "core/mutex.h"
#include "core/store.h"

#include <sqlite3.h>

enum {
    STORE_STMTS = 64
};

/* A statement that stays prepared. */
struct store_stmt {
    sqlite3_stmt *stmt;
    bool used; /* By somebody who has not given it back. */
};

struct store {
    struct mutex lock; /* Of all GUARDED members below. */
    sqlite3 *db GUARDED;
    struct store_stmt stmts[STORE_STMTS] GUARDED;
    unsigned events_keep; /* 0: all. */
    int reserve;          /* A file that keeps room for deletions; -1: none. */
    bool cut_off;         /* The one before did not come to its end. */
    int lock_fd; /* Holds the lock of the directory while it is open. */
};

/* What the last failed call of SQLite said, as an error. */
MUST_USE int store_fail(struct store *store, struct err *err)
    REQUIRES(store->lock);

/*
 * Prepares a statement and binds its parameters, which `kinds` names in order:
 * `i` an int64_t, `t` a text or NULL, `b` a blob and its size_t. Texts and
 * blobs are borrowed until the statement ends, which store_finish() tells.
 */
MUST_USE int store_query(struct store *store, sqlite3_stmt **out,
                         struct err *err, const char *sql, const char *kinds,
                         ...) REQUIRES(store->lock);

/* The same, run to its end; it gives no rows. */
MUST_USE int store_run(struct store *store, struct err *err, const char *sql,
                       const char *kinds, ...) REQUIRES(store->lock);

/* Gives a statement back; NULL is fine. */
void store_finish(struct store *store, sqlite3_stmt *stmt)
    REQUIRES(store->lock);

/* Frees those that stay prepared, before the database is closed. */
void store_forget(struct store *store) REQUIRES(store->lock);

/* Steps: 1 for a row, 0 at the end, or a negative errno. */
MUST_USE int store_step(struct store *store, sqlite3_stmt *stmt,
                        struct err *err) REQUIRES(store->lock);

/* Begins a transaction, which store_end() commits when rc is 0 and rolls back
 * else. It returns rc, or what the commit said. */
MUST_USE int store_begin(struct store *store, struct err *err)
    REQUIRES(store->lock);
MUST_USE int store_end(struct store *store, int rc, struct err *err)
    REQUIRES(store->lock);

/* The same with the lock, for a function that is one transaction: it does its
 * work where store_enter() returns 0, and returns what store_leave() does. */
MUST_USE int store_enter(struct store *store, struct err *err)
    ACQUIRE(store->lock);
MUST_USE int store_leave(struct store *store, int rc, struct err *err)
    RELEASE(store->lock);

/* Adds an event inside of a transaction; NULL adds none. */
MUST_USE int store_event_locked(struct store *store, uint64_t number,
                                const struct store_event *event,
                                struct err *err) REQUIRES(store->lock);

/* Writes what is known of a command, inside of a transaction. */
MUST_USE int store_exec_locked(struct store *store, uint64_t number,
                               const struct exec_info *info,
                               const struct store_event *event, struct err *err)
    REQUIRES(store->lock);

/* Fills `out` with the first column of the rows; ends the statement. */
MUST_USE ssize_t store_numbers(struct store *store, sqlite3_stmt *stmt,
                               uint64_t *out, size_t most, struct err *err)
    REQUIRES(store->lock);

/* The text of a column, the caller's to free; NULL for NULL, and for a lack of
 * memory, which *rc then says. */
char *store_text(sqlite3_stmt *stmt, int column, int *rc);

#endif
