/*
 * Statements of the database. See store_priv.h.
 *
 * To parse one costs more than most take to run, so those that were used stay
 * prepared.
 */
#include "core/store_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* The errno of a failed SQLite call. */
static int code_of(int sqlite_rc)
{
    switch (sqlite_rc & 0xff) {
    case SQLITE_FULL:
        return ENOSPC;
    case SQLITE_NOMEM:
        return ENOMEM;
    case SQLITE_CONSTRAINT:
        return EEXIST;
    case SQLITE_READONLY:
        return EROFS;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return EBUSY;
    default:
        return EIO;
    }
}

int store_fail(struct store *store, struct err *err)
{
    return err_set(err, code_of(sqlite3_extended_errcode(store->db)),
                   "database: %s", sqlite3_errmsg(store->db));
}

/* Gives one that is prepared already, or prepares it. */
static int take(struct store *store, const char *sql, sqlite3_stmt **out)
    REQUIRES(store->lock)
{
    struct store_stmt *free_place = NULL;
    int rc;

    for (size_t i = 0; i < ARRAY_SIZE(store->stmts); i++) {
        struct store_stmt *kept = &store->stmts[i];

        if (!kept->stmt) {
            free_place = kept;
        } else if (!kept->used && strcmp(sqlite3_sql(kept->stmt), sql) == 0) {
            kept->used = true;
            *out = kept->stmt;
            return SQLITE_OK;
        }
    }
    rc = sqlite3_prepare_v3(store->db, sql, -1, SQLITE_PREPARE_PERSISTENT, out,
                            NULL);
    if (rc == SQLITE_OK && free_place) {
        *free_place = (struct store_stmt){.stmt = *out, .used = true};
    }
    return rc;
}

void store_finish(struct store *store, sqlite3_stmt *stmt)
{
    for (size_t i = 0; i < ARRAY_SIZE(store->stmts); i++) {
        if (stmt && store->stmts[i].stmt == stmt) {
            (void)sqlite3_reset(stmt);
            (void)sqlite3_clear_bindings(stmt);
            store->stmts[i].used = false;
            return;
        }
    }
    (void)sqlite3_finalize(stmt);
}

void store_forget(struct store *store)
{
    for (size_t i = 0; i < ARRAY_SIZE(store->stmts); i++) {
        (void)sqlite3_finalize(store->stmts[i].stmt);
        store->stmts[i].stmt = NULL;
    }
}

static int bind_one(sqlite3_stmt *stmt, int i, char kind, va_list *va)
{
    const void *data;

    switch (kind) {
    case 'i':
        return sqlite3_bind_int64(stmt, i, va_arg(*va, int64_t));
    case 't':
        return sqlite3_bind_text(stmt, i, va_arg(*va, const char *), -1,
                                 SQLITE_STATIC);
    case 'b':
        data = va_arg(*va, const void *);
        return sqlite3_bind_blob64(stmt, i, data, va_arg(*va, size_t),
                                   SQLITE_STATIC);
    default:
        abort();
    }
}

static int prepare(struct store *store, sqlite3_stmt **out, struct err *err,
                   const char *sql, const char *kinds, va_list *va)
    REQUIRES(store->lock)
{
    sqlite3_stmt *stmt = NULL;
    int rc = take(store, sql, &stmt);

    for (int i = 0; rc == SQLITE_OK && kinds[i]; i++) {
        rc = bind_one(stmt, i + 1, kinds[i], va);
    }
    if (rc != SQLITE_OK) {
        rc = store_fail(store, err);
        store_finish(store, stmt);
        return rc;
    }
    *out = stmt;
    return 0;
}

int store_query(struct store *store, sqlite3_stmt **out, struct err *err,
                const char *sql, const char *kinds, ...)
{
    va_list va;
    int rc;

    va_start(va, kinds);
    rc = prepare(store, out, err, sql, kinds, &va);
    va_end(va);
    return rc;
}

int store_run(struct store *store, struct err *err, const char *sql,
              const char *kinds, ...)
{
    sqlite3_stmt *stmt = NULL;
    va_list va;
    int rc;

    va_start(va, kinds);
    rc = prepare(store, &stmt, err, sql, kinds, &va);
    va_end(va);
    if (rc == 0) {
        rc = store_step(store, stmt, err);
        store_finish(store, stmt);
    }
    return rc < 0 ? rc : 0;
}

int store_step(struct store *store, sqlite3_stmt *stmt, struct err *err)
{
    int rc = sqlite3_step(stmt);

    if (rc == SQLITE_ROW) {
        return 1;
    }
    return rc == SQLITE_DONE ? 0 : store_fail(store, err);
}

int store_begin(struct store *store, struct err *err)
{
    return store_run(store, err, "BEGIN IMMEDIATE", "");
}

int store_end(struct store *store, int rc, struct err *err)
{
    if (rc == 0) {
        rc = store_run(store, err, "COMMIT", "");
    }
    if (rc < 0) {
        /* Fails where the error has rolled back already. */
        (void)sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    }
    return rc;
}

int store_enter(struct store *store, struct err *err)
{
    mutex_lock(&store->lock);
    return store_begin(store, err);
}

int store_leave(struct store *store, int rc, struct err *err)
{
    rc = store_end(store, rc, err);
    mutex_unlock(&store->lock);
    return rc;
}

ssize_t store_numbers(struct store *store, sqlite3_stmt *stmt, uint64_t *out,
                      size_t most, struct err *err)
{
    size_t count = 0;
    int rc = 1;

    while (count < most && rc > 0) {
        rc = store_step(store, stmt, err);
        if (rc > 0) {
            out[count++] = (uint64_t)sqlite3_column_int64(stmt, 0);
        }
    }
    store_finish(store, stmt);
    return rc < 0 ? rc : (ssize_t)count;
}

char *store_text(sqlite3_stmt *stmt, int column, int *rc)
{
    const void *text = sqlite3_column_text(stmt, column);
    char *copy;

    if (!text) {
        return NULL;
    }
    copy = strdup(text);
    if (!copy) {
        *rc = -ENOMEM;
    }
    return copy;
}
