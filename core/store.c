/* The database: opening, migrating, statements. See store.h. */
#include "core/store.h"

#include "core/cleanup.h"
#include "core/store_dir.h"
#include "core/store_priv.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum {
    BUSY_MS = 10000,
    RESERVE_SIZE = 4 * 1024 * 1024
};

/* Entry k brings a database from user_version k to k + 1. */
static const char *const migrations[] = {
    "CREATE TABLE sessions ("
    " number INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE,"
    " config TEXT NOT NULL,"
    " created_us INTEGER NOT NULL,"
    " generation INTEGER NOT NULL DEFAULT 0,"
    " next_exec INTEGER NOT NULL DEFAULT 1);"
    "CREATE TABLE states ("
    " session INTEGER PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,"
    " status TEXT NOT NULL,"
    " external_id TEXT, display_name TEXT, workspace_path TEXT,"
    " provider_state TEXT, metadata TEXT,"
    " created_us INTEGER NOT NULL, updated_us INTEGER NOT NULL,"
    " init_completed_us INTEGER NOT NULL, last_init_error TEXT,"
    " err_code INTEGER NOT NULL, err_msg TEXT);"
    "CREATE INDEX states_by_status ON states(status, session);"
    "CREATE TABLE execs ("
    " session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,"
    " n INTEGER NOT NULL,"
    " status TEXT NOT NULL,"
    " exit_code INTEGER,"
    " submitted_us INTEGER NOT NULL, started_us INTEGER NOT NULL,"
    " ended_us INTEGER NOT NULL,"
    " err_code INTEGER NOT NULL, err_msg TEXT,"
    " command BLOB NOT NULL,"
    " UNIQUE (session, n));"
    "CREATE INDEX execs_open ON execs(status)"
    " WHERE status IN ('queued', 'running');"
    "CREATE TABLE events ("
    " session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,"
    " seq INTEGER NOT NULL,"
    " offset INTEGER NOT NULL,"
    " line BLOB NOT NULL,"
    " PRIMARY KEY (session, seq)) WITHOUT ROWID;"
    "CREATE UNIQUE INDEX events_by_offset ON events(session, offset);"
    "CREATE TABLE failures ("
    " n INTEGER PRIMARY KEY AUTOINCREMENT,"
    " session INTEGER NOT NULL,"
    " line BLOB NOT NULL);"
    "CREATE INDEX failures_by_session ON failures(session, n);",

    "ALTER TABLE execs ADD COLUMN request BLOB;"
    "ALTER TABLE execs ADD COLUMN mode TEXT NOT NULL DEFAULT 'auto';"
    "ALTER TABLE execs ADD COLUMN background INTEGER NOT NULL DEFAULT 0;",

    "ALTER TABLE states ADD COLUMN provider TEXT;"
    "UPDATE states SET provider = (SELECT json_extract(config, '$.provider')"
    " FROM sessions WHERE number = session);",

    "ALTER TABLE execs ADD COLUMN init INTEGER NOT NULL DEFAULT 0;",

    "ALTER TABLE sessions ADD COLUMN next_checkpoint INTEGER NOT NULL"
    " DEFAULT 1;"
    "ALTER TABLE sessions ADD COLUMN hidden INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE states ADD COLUMN head INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE execs ADD COLUMN checkpoint INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE execs ADD COLUMN before INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE execs ADD COLUMN changed INTEGER NOT NULL DEFAULT 0;"
    "CREATE TABLE checkpoints ("
    " session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,"
    " key INTEGER NOT NULL, before INTEGER NOT NULL,"
    " name TEXT, cause TEXT NOT NULL, time_us INTEGER NOT NULL,"
    " changed INTEGER NOT NULL, bytes INTEGER NOT NULL,"
    " exec INTEGER NOT NULL, gone INTEGER NOT NULL DEFAULT 0,"
    " PRIMARY KEY (session, key)) WITHOUT ROWID;"
    "CREATE UNIQUE INDEX checkpoints_by_name ON checkpoints(session, name)"
    " WHERE name IS NOT NULL;"
    "CREATE TABLE changes ("
    " session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,"
    " from_key INTEGER NOT NULL, to_key INTEGER NOT NULL,"
    " text BLOB NOT NULL,"
    " PRIMARY KEY (session, to_key, from_key)) WITHOUT ROWID;",

    "ALTER TABLE execs ADD COLUMN cancelled INTEGER NOT NULL DEFAULT 0;",
};

static int run_text(struct store *store, const char *sql, struct err *err)
    REQUIRES(store->lock)
{
    return sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK
               ? 0
               : store_fail(store, err);
}

static int user_version(struct store *store, int64_t *out, struct err *err)
    REQUIRES(store->lock)
{
    sqlite3_stmt *stmt = NULL;
    int rc = store_query(store, &stmt, err, "PRAGMA user_version", "");

    if (rc < 0) {
        return rc;
    }
    rc = store_step(store, stmt, err);
    if (rc > 0) {
        *out = sqlite3_column_int64(stmt, 0);
        rc = 0;
    }
    store_finish(store, stmt);
    return rc;
}

static int migrate_step(struct store *store, size_t from, struct err *err)
    REQUIRES(store->lock)
{
    char pragma[64];
    int rc = store_begin(store, err);

    if (rc < 0) {
        return rc;
    }
    (void)snprintf(pragma, sizeof(pragma), "PRAGMA user_version = %zu",
                   from + 1);
    rc = run_text(store, migrations[from], err);
    if (rc == 0) {
        rc = run_text(store, pragma, err);
    }
    return store_end(store, rc, err);
}

static int migrate(struct store *store, struct err *err) REQUIRES(store->lock)
{
    int64_t version = 0;
    int rc = user_version(store, &version, err);

    if (rc < 0) {
        return rc;
    }
    if (version < 0 || version > (int64_t)ARRAY_SIZE(migrations)) {
        return err_set(err, EPROTONOSUPPORT,
                       "state.db is of version %lld, this program knows up to "
                       "%zu",
                       (long long)version, ARRAY_SIZE(migrations));
    }
    for (size_t i = (size_t)version; i < ARRAY_SIZE(migrations) && rc == 0;
         i++) {
        rc = migrate_step(store, i, err);
    }
    return rc;
}

/* Makes the file before SQLite does: whatever the umask, it is 0600, and
 * SQLite gives -wal and -shm the mode of the file. */
static int make_file(const char *path, struct err *err)
{
    AUTO_FD int fd =
        open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0 || fchmod(fd, 0600) < 0) {
        return err_errno(err, "open '%s'", path);
    }
    return 0;
}

static int open_locked(struct store *store, const char *dir, struct err *err)
    REQUIRES(store->lock)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof(path), "%s/state.db", dir);
    int rc;

    if (n < 0 || (size_t)n >= sizeof(path)) {
        return err_set(err, ENAMETOOLONG, "state directory '%s'", dir);
    }
    rc = make_file(path, err);
    if (rc < 0) {
        return rc;
    }
    if (sqlite3_open_v2(path, &store->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX,
                        NULL) != SQLITE_OK) {
        return store->db ? store_fail(store, err) : err_no_memory(err);
    }
    (void)sqlite3_busy_timeout(store->db, BUSY_MS);
    rc = run_text(store,
                  "PRAGMA journal_mode = WAL;"
                  "PRAGMA synchronous = NORMAL;"
                  "PRAGMA foreign_keys = ON;",
                  err);
    return rc < 0 ? rc : migrate(store, err);
}

/* Without room for it now, or with a file system that has none to give. */
static void keep_reserve(const struct store *store)
{
    if (store->reserve >= 0) {
        (void)fallocate(store->reserve, 0, 0, RESERVE_SIZE);
    }
}

static void open_reserve(struct store *store, const char *dir)
{
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%s/reserve", dir) < PATH_MAX) {
        store->reserve =
            open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    }
    keep_reserve(store);
}

void store_spend_reserve(struct store *store)
{
    struct statvfs st;

    if (store->reserve >= 0 && fstatvfs(store->reserve, &st) == 0 &&
        st.f_bavail * st.f_frsize < RESERVE_SIZE) {
        (void)!ftruncate(store->reserve, 0);
    }
}

void store_keep_reserve(struct store *store)
{
    keep_reserve(store);
}

int store_open(const char *dir, int64_t wait_ms, struct store **out,
               struct err *err)
{
    struct store *store = calloc(1, sizeof(*store));
    int rc;

    if (!store) {
        return err_no_memory(err);
    }
    mutex_init(&store->lock);
    store->lock_fd = -1;
    store->reserve = -1;
    rc = store_dir_lock(dir, wait_ms, &store->lock_fd, &store->cut_off, err);
    if (rc == 0) {
        mutex_lock(&store->lock);
        rc = open_locked(store, dir, err);
        open_reserve(store, dir);
        mutex_unlock(&store->lock);
    }
    if (rc < 0) {
        store_close(store);
        return rc;
    }
    *out = store;
    return 0;
}

int store_survive_power(struct store *store, struct err *err)
{
    int rc;

    mutex_lock(&store->lock);
    rc = run_text(store, "PRAGMA synchronous = FULL;", err);
    mutex_unlock(&store->lock);
    return rc;
}

bool store_cut_off(const struct store *store)
{
    return store->cut_off;
}

void store_mounted(struct store *store, unsigned major, unsigned minor)
{
    store_dir_mounted(store->lock_fd, major, minor);
}

void store_closing(struct store *store)
{
    store_dir_closing(store->lock_fd);
}

void store_close(struct store *store)
{
    if (!store) {
        return;
    }
    mutex_lock(&store->lock);
    store_forget(store);
    (void)sqlite3_close(store->db);
    store->db = NULL;
    mutex_unlock(&store->lock);
    mutex_done(&store->lock);
    cleanup_fd(&store->reserve);
    store_dir_closed(store->lock_fd);
    cleanup_fd(&store->lock_fd);
    free(store);
}
