/* Events and failures. See store.h. */
#include "core/buf.h"
#include "core/clock.h"
#include "core/json.h"
#include "core/store_priv.h"

#include <errno.h>
#include <string.h>

enum {
    EVENT_MAX = SESSION_EVENT_MAX,
    DETAIL_MAX = EVENT_MAX / 2,
    TRIM_PART = 8, /* Of what is kept: that much goes at a time. */
};

/* Where the next event goes: its number, and its offset in the file. */
struct place {
    int64_t seq;
    int64_t offset;
};

static int find_end(struct store *store, uint64_t number, struct place *out,
                    struct err *err) REQUIRES(store->lock)
{
    sqlite3_stmt *stmt = NULL;
    int rc = store_query(store, &stmt, err,
                         "SELECT seq + 1, offset + length(line) FROM events"
                         " WHERE session = ? ORDER BY seq DESC LIMIT 1",
                         "i", (int64_t)number);

    if (rc < 0) {
        return rc;
    }
    rc = store_step(store, stmt, err);
    if (rc >= 0) {
        out->seq = rc ? sqlite3_column_int64(stmt, 0) : 1;
        out->offset = rc ? sqlite3_column_int64(stmt, 1) : 0;
    }
    store_finish(store, stmt);
    return rc < 0 ? rc : 0;
}

/* One that is too long is left out: what happened counts more. */
static int add_detail(struct buf *out, const struct js *detail)
{
    struct buf text = BUF_INIT(DETAIL_MAX);
    bool fits = js_write(detail, &text) == 0;
    int rc = buf_printf(out, ",\"detail\":%s}\n", fits ? buf_str(&text) : "{}");

    buf_done(&text);
    return rc;
}

static int write_line(const struct store_event *event, int64_t seq,
                      struct buf *out)
{
    char time[CLOCK_TEXT_SIZE];
    int rc;

    clock_format(clock_wall_us(), time);
    rc = buf_printf(out, "{\"time\":\"%s\",\"seq\":%lld,\"event\":\"%s\"", time,
                    (long long)seq, event->name);
    if (rc == 0 && event->exec) {
        rc = buf_printf(out, ",\"exec\":%llu", (unsigned long long)event->exec);
    }
    if (rc == 0 && event->caller) {
        rc = buf_printf(out, ",\"uid\":%u,\"pid\":%d", event->caller->uid,
                        (int)event->caller->pid);
    } else if (rc == 0) {
        rc = buf_printf(out, ",\"uid\":null,\"pid\":null");
    }
    return rc < 0 ? rc : add_detail(out, event->detail);
}

/* Removes the oldest when there are many too many. */
static int trim(struct store *store, uint64_t number, int64_t seq,
                struct err *err) REQUIRES(store->lock)
{
    int64_t keep = store->events_keep;

    if (!keep || seq <= keep || seq % (keep / TRIM_PART + 1) != 0) {
        return 0;
    }
    return store_run(store, err,
                     "DELETE FROM events WHERE session = ? AND seq <= ?", "ii",
                     (int64_t)number, seq - keep);
}

int store_event_locked(struct store *store, uint64_t number,
                       const struct store_event *event, struct err *err)
{
    struct buf line = BUF_INIT(EVENT_MAX);
    struct place place;
    int rc;

    if (!event) {
        return 0;
    }
    rc = find_end(store, number, &place, err);
    if (rc < 0) {
        return rc;
    }
    rc = write_line(event, place.seq, &line);
    if (rc < 0) {
        rc = err_set(err, -rc, "cannot write an event");
    } else {
        rc = store_run(store, err,
                       "INSERT INTO events(session, seq, offset, line)"
                       " VALUES (?, ?, ?, ?)",
                       "iiib", (int64_t)number, place.seq, place.offset,
                       line.data, line.size);
    }
    if (rc == 0) {
        rc = trim(store, number, place.seq, err);
    }
    buf_done(&line);
    return rc;
}

int store_event_add(struct store *store, uint64_t number,
                    const struct store_event *event, struct err *err)
{
    int rc = store_enter(store, err);

    if (rc == 0) {
        rc = store_event_locked(store, number, event, err);
    }
    return store_leave(store, rc, err);
}

static int caller_locked(struct store *store, uint64_t number,
                         const struct store_event *event, struct caller *out,
                         struct err *err) REQUIRES(store->lock)
{
    sqlite3_stmt *stmt = NULL;
    int rc =
        store_query(store, &stmt, err,
                    "SELECT json_extract(text, '$.uid'),"
                    " json_extract(text, '$.pid') FROM"
                    " (SELECT seq, CAST(line AS TEXT) AS text FROM events"
                    "  WHERE session = ?)"
                    " WHERE json_extract(text, '$.exec') = ?"
                    " AND json_extract(text, '$.event') = ?"
                    " AND json_extract(text, '$.uid') IS NOT NULL"
                    " ORDER BY seq DESC LIMIT 1",
                    "iit", (int64_t)number, (int64_t)event->exec, event->name);

    if (rc < 0) {
        return rc;
    }
    rc = store_step(store, stmt, err);
    if (rc > 0) {
        out->uid = (uid_t)sqlite3_column_int64(stmt, 0);
        out->pid = (pid_t)sqlite3_column_int64(stmt, 1);
    }
    store_finish(store, stmt);
    return rc == 0  ? err_set(err, ENOENT, "no event tells who asked")
           : rc < 0 ? rc
                    : 0;
}

int store_event_caller(struct store *store, uint64_t number,
                       const struct store_event *event, struct caller *out,
                       struct err *err)
{
    int rc;

    mutex_lock(&store->lock);
    rc = caller_locked(store, number, event, out, err);
    mutex_unlock(&store->lock);
    return rc;
}

/* Copies of a line that begins at `start` what lies behind `offset`. */
static size_t copy_line(sqlite3_stmt *stmt, uint64_t offset, char *out,
                        size_t size)
{
    const char *line = sqlite3_column_blob(stmt, 1);
    uint64_t start = (uint64_t)sqlite3_column_int64(stmt, 0);
    size_t length = (size_t)sqlite3_column_bytes(stmt, 1);
    size_t skip = (size_t)(offset - start);
    size_t n;

    if (!line || skip >= length) {
        return 0;
    }
    n = length - skip < size ? length - skip : size;
    memcpy(out, line + skip, n);
    return n;
}

static int find_begin(struct store *store, uint64_t number, uint64_t *out,
                      struct err *err) REQUIRES(store->lock)
{
    sqlite3_stmt *stmt = NULL;
    int rc = store_query(store, &stmt, err,
                         "SELECT min(offset) FROM events WHERE session = ?",
                         "i", (int64_t)number);

    if (rc < 0) {
        return rc;
    }
    rc = store_step(store, stmt, err);
    if (rc > 0) {
        *out = (uint64_t)sqlite3_column_int64(stmt, 0);
    }
    store_finish(store, stmt);
    return rc < 0 ? rc : 0;
}

static ssize_t read_locked(struct store *store, uint64_t number,
                           uint64_t offset, char *out, size_t size,
                           struct err *err) REQUIRES(store->lock)
{
    sqlite3_stmt *stmt = NULL;
    size_t done = 0;
    int rc = store_query(store, &stmt, err,
                         "SELECT offset, line FROM events WHERE session = ?1"
                         " AND offset >= (SELECT max(offset) FROM events"
                         " WHERE session = ?1 AND offset <= ?2)"
                         " ORDER BY offset",
                         "ii", (int64_t)number, (int64_t)offset);

    if (rc < 0) {
        return rc;
    }
    rc = store_step(store, stmt, err);
    while (rc > 0 && done < size) {
        size_t n = copy_line(stmt, offset + done, out + done, size - done);

        if (!n) {
            break;
        }
        done += n;
        rc = store_step(store, stmt, err);
    }
    store_finish(store, stmt);
    return rc < 0 ? rc : (ssize_t)done;
}

void store_events_keep(struct store *store, unsigned most)
{
    store->events_keep = most;
}

ssize_t store_events_read(struct store *store, uint64_t number,
                          uint64_t *offset, void *out, size_t size,
                          struct err *err)
{
    uint64_t begin = 0;
    ssize_t n;

    if (*offset > INT64_MAX) {
        return 0;
    }
    mutex_lock(&store->lock);
    n = find_begin(store, number, &begin, err);
    if (n == 0) {
        *offset = *offset < begin ? begin : *offset;
        n = read_locked(store, number, *offset, out, size, err);
    }
    mutex_unlock(&store->lock);
    return n;
}

uint64_t store_events_begin(struct store *store, uint64_t number)
{
    struct err err = ERR_INIT;
    uint64_t begin = 0;

    mutex_lock(&store->lock);
    (void)!find_begin(store, number, &begin, &err);
    mutex_unlock(&store->lock);
    return begin;
}

uint64_t store_events_end(struct store *store, uint64_t number)
{
    struct err err = ERR_INIT;
    struct place place = {0, 0};
    int rc;

    mutex_lock(&store->lock);
    rc = find_end(store, number, &place, &err);
    mutex_unlock(&store->lock);
    return rc < 0 ? 0 : (uint64_t)place.offset;
}

static int failure_locked(struct store *store, uint64_t number,
                          const char *line, size_t size, struct err *err)
    REQUIRES(store->lock)
{
    int rc = store_run(store, err,
                       "INSERT INTO failures(session, line) VALUES (?, ?)",
                       "ib", (int64_t)number, line, size);

    if (rc < 0) {
        return rc;
    }
    return store_run(store, err,
                     "DELETE FROM failures WHERE session = ?1 AND n <="
                     " (SELECT n FROM failures WHERE session = ?1"
                     "  ORDER BY n DESC LIMIT 1 OFFSET ?2)",
                     "ii", (int64_t)number, (int64_t)STORE_FAILURES);
}

int store_failure_add(struct store *store, uint64_t number, const char *line,
                      size_t size, struct err *err)
{
    int rc = store_enter(store, err);

    if (rc == 0) {
        rc = failure_locked(store, number, line, size, err);
    }
    return store_leave(store, rc, err);
}

static int failures_locked(struct store *store, uint64_t number,
                           struct buf *out, struct err *err)
    REQUIRES(store->lock)
{
    sqlite3_stmt *stmt = NULL;
    int rc = store_query(store, &stmt, err,
                         "SELECT line FROM failures WHERE session = ?"
                         " ORDER BY n",
                         "i", (int64_t)number);

    if (rc < 0) {
        return rc;
    }
    rc = store_step(store, stmt, err);
    while (rc > 0) {
        const void *line = sqlite3_column_blob(stmt, 0);

        rc = buf_add(out, line, (size_t)sqlite3_column_bytes(stmt, 0));
        rc = rc < 0 ? err_set(err, -rc, "cannot list the failures")
                    : store_step(store, stmt, err);
    }
    store_finish(store, stmt);
    return rc;
}

int store_failures(struct store *store, uint64_t number, struct buf *out,
                   struct err *err)
{
    int rc;

    mutex_lock(&store->lock);
    rc = failures_locked(store, number, out, err);
    mutex_unlock(&store->lock);
    return rc;
}
