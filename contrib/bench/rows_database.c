/* SQLite, a row a transaction. See bench.h. */
#include "contrib/bench/bench.h"

#include <errno.h>
#include <sqlite3.h>

static int remove_db(const struct scale *scale)
{
    (void)scale;
    return shell("rm -f db db-wal db-shm db-journal");
}

static int insert_all(sqlite3 *db, const struct scale *scale)
{
    int rc = sqlite3_exec(db, "CREATE TABLE t (a INTEGER PRIMARY KEY, b)", NULL,
                          NULL, NULL);

    for (unsigned i = 0; i < scale->transactions && rc == SQLITE_OK; i++) {
        rc = sqlite3_exec(db, "INSERT INTO t(b) VALUES (randomblob(100))", NULL,
                          NULL, NULL);
    }
    return rc;
}

static int run(const char *mode, const struct scale *scale)
{
    sqlite3 *db = NULL;
    int rc = sqlite3_open("db", &db);

    if (rc == SQLITE_OK) {
        rc = sqlite3_exec(db, mode, NULL, NULL, NULL);
    }
    if (rc == SQLITE_OK) {
        rc = insert_all(db, scale);
    }
    return sqlite3_close(db) != SQLITE_OK || rc != SQLITE_OK ? -EIO : 0;
}

static int rollback(const struct scale *scale)
{
    return run("PRAGMA journal_mode = DELETE", scale);
}

static int wal(const struct scale *scale)
{
    return run("PRAGMA journal_mode = WAL", scale);
}

const struct row rows_database[] = {
    {"sqlite", "a row a transaction", KIND_DATABASE, remove_db, rollback, NULL},
    {"sqlite WAL", "a row a transaction", KIND_DATABASE, remove_db, wal, NULL},
    {NULL, NULL, KIND_DATABASE, NULL, NULL, NULL},
};
