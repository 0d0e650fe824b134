/* The records of sandboxes, and figures. See store.h. */
#include "core/store_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void store_state_done(struct store_state *state)
{
    instance_done(&state->instance);
    free(state->provider);
    free(state->last_init_error);
    *state = (struct store_state){.status = SESSION_ABSENT};
}

static enum session_status parse_status(const char *text)
{
    for (int i = SESSION_ABSENT; i <= SESSION_UNREACHABLE; i++) {
        if (text &&
            strcmp(text, session_status_name((enum session_status)i)) == 0) {
            return (enum session_status)i;
        }
    }
    return SESSION_ERROR;
}

static int read_state(sqlite3_stmt *stmt, struct store_state *out,
                      struct err *err)
{
    const void *status = sqlite3_column_text(stmt, 0);
    const void *msg = sqlite3_column_text(stmt, 11);
    int rc = 0;
    struct store_state state = {
        .status = parse_status(status),
        .instance =
            {
                .external_id = store_text(stmt, 1, &rc),
                .display_name = store_text(stmt, 2, &rc),
                .workspace_path = store_text(stmt, 3, &rc),
                .provider_state = store_text(stmt, 4, &rc),
                .metadata = store_text(stmt, 5, &rc),
            },
        .created_us = sqlite3_column_int64(stmt, 6),
        .updated_us = sqlite3_column_int64(stmt, 7),
        .init_completed_us = sqlite3_column_int64(stmt, 8),
        .last_init_error = store_text(stmt, 9, &rc),
        .err = {.code = sqlite3_column_int(stmt, 10)},
        .generation = (uint64_t)sqlite3_column_int64(stmt, 12),
        .provider = store_text(stmt, 13, &rc),
        .head = (uint64_t)sqlite3_column_int64(stmt, 14),
    };

    if (rc < 0) {
        store_state_done(&state);
        return err_no_memory(err);
    }
    (void)snprintf(state.err.msg, sizeof(state.err.msg), "%s",
                   msg ? (const char *)msg : "");
    *out = state;
    return 0;
}

static int load_locked(struct store *store, uint64_t number,
                       struct store_state *out, struct err *err)
    REQUIRES(store->lock)
{
    sqlite3_stmt *stmt = NULL;
    int rc = store_query(
        store, &stmt, err,
        "SELECT status, external_id, display_name, workspace_path,"
        " provider_state, metadata, states.created_us, updated_us,"
        " init_completed_us, last_init_error, err_code, err_msg, generation,"
        " provider, head"
        " FROM states JOIN sessions ON number = session WHERE session = ?",
        "i", (int64_t)number);

    if (rc < 0) {
        return rc;
    }
    rc = store_step(store, stmt, err);
    if (rc > 0) {
        rc = read_state(stmt, out, err);
    } else if (rc == 0) {
        rc = err_set(err, ENOENT, "there is no sandbox");
    }
    store_finish(store, stmt);
    return rc;
}

int store_state_load(struct store *store, uint64_t number,
                     struct store_state *out, struct err *err)
{
    int rc;

    mutex_lock(&store->lock);
    rc = load_locked(store, number, out, err);
    mutex_unlock(&store->lock);
    return rc;
}

/* Moves the generation on, if it is the one that the writer knows. */
static int compare_and_set(struct store *store, uint64_t number,
                           uint64_t expected, uint64_t next, struct err *err)
    REQUIRES(store->lock)
{
    int rc =
        store_run(store, err,
                  "UPDATE sessions SET generation = ?"
                  " WHERE number = ? AND generation = ?",
                  "iii", (int64_t)next, (int64_t)number, (int64_t)expected);

    if (rc == 0 && sqlite3_changes(store->db) == 0) {
        return err_set(err, ESTALE,
                       "generation %llu of the sandbox is not the newest",
                       (unsigned long long)expected);
    }
    return rc;
}

static int save_locked(struct store *store, uint64_t number, uint64_t expected,
                       const struct store_state *state,
                       const struct store_event *event, struct err *err)
    REQUIRES(store->lock)
{
    const struct instance *instance = &state->instance;
    int rc = compare_and_set(store, number, expected, state->generation, err);

    if (rc < 0) {
        return rc;
    }
    rc = store_run(
        store, err,
        "INSERT OR REPLACE INTO states(session, status,"
        " external_id, display_name, workspace_path,"
        " provider_state, metadata, created_us, updated_us,"
        " init_completed_us, last_init_error, err_code, err_msg, provider, "
        "head)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        "ittttttiiititti", (int64_t)number, session_status_name(state->status),
        instance->external_id, instance->display_name, instance->workspace_path,
        instance->provider_state, instance->metadata, state->created_us,
        state->updated_us, state->init_completed_us, state->last_init_error,
        (int64_t)state->err.code, state->err.msg, state->provider,
        (int64_t)state->head);
    return rc < 0 ? rc : store_event_locked(store, number, event, err);
}

int store_state_save(struct store *store, uint64_t number, uint64_t expected,
                     const struct store_state *state,
                     const struct store_event *event, struct err *err)
{
    int rc = store_enter(store, err);

    if (rc == 0) {
        rc = save_locked(store, number, expected, state, event, err);
    }
    return store_leave(store, rc, err);
}

static int remove_locked(struct store *store, uint64_t number,
                         uint64_t expected, const struct store_event *event,
                         struct err *err) REQUIRES(store->lock)
{
    int rc = compare_and_set(store, number, expected, expected, err);

    if (rc == 0) {
        rc = store_run(store, err, "DELETE FROM states WHERE session = ?", "i",
                       (int64_t)number);
    }
    if (rc == 0) {
        rc = store_run(store, err, "DELETE FROM checkpoints WHERE session = ?",
                       "i", (int64_t)number);
    }
    return rc < 0 ? rc : store_event_locked(store, number, event, err);
}

int store_state_remove(struct store *store, uint64_t number, uint64_t expected,
                       const struct store_event *event, struct err *err)
{
    int rc = store_enter(store, err);

    if (rc == 0) {
        rc = remove_locked(store, number, expected, event, err);
    }
    return store_leave(store, rc, err);
}

ssize_t store_state_list(struct store *store, enum session_status status,
                         uint64_t after, uint64_t *out, size_t most,
                         struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    ssize_t n;

    mutex_lock(&store->lock);
    n = store_query(store, &stmt, err,
                    "SELECT session FROM states"
                    " WHERE status = ? AND session > ? ORDER BY session",
                    "ti", session_status_name(status), (int64_t)after);
    if (n == 0) {
        n = store_numbers(store, stmt, out, most, err);
    }
    mutex_unlock(&store->lock);
    return n;
}

/* Calls fn with each row of a query: a text and a number. */
static int
each_figure(struct store *store, const char *sql,
            void (*fn)(struct store_counts *out, const char *text, uint64_t n),
            struct store_counts *out, struct err *err) REQUIRES(store->lock)
{
    sqlite3_stmt *stmt = NULL;
    int rc = store_query(store, &stmt, err, sql, "");

    if (rc < 0) {
        return rc;
    }
    rc = store_step(store, stmt, err);
    while (rc > 0) {
        const void *text = sqlite3_column_text(stmt, 0);

        fn(out, text ? text : "", (uint64_t)sqlite3_column_int64(stmt, 1));
        rc = store_step(store, stmt, err);
    }
    store_finish(store, stmt);
    return rc;
}

static void take_status(struct store_counts *out, const char *text, uint64_t n)
{
    out->by_status[parse_status(text)] += n;
}

static void take_command(struct store_counts *out, const char *text, uint64_t n)
{
    if (strcmp(text, "queued") == 0) {
        out->queued = n;
    } else {
        out->running = n;
    }
}

static int count_all(struct store *store, struct store_counts *out,
                     struct err *err) REQUIRES(store->lock)
{
    int rc = each_figure(store,
                         "SELECT status, count(*) FROM states GROUP BY status",
                         take_status, out, err);

    return rc < 0 ? rc
                  : each_figure(store,
                                "SELECT status, count(*) FROM execs"
                                " WHERE status IN ('queued', 'running')"
                                " GROUP BY status",
                                take_command, out, err);
}

int store_count(struct store *store, struct store_counts *out, struct err *err)
{
    struct store_counts counts = {.sessions = store_session_count(store)};
    int rc;

    mutex_lock(&store->lock);
    rc = count_all(store, &counts, err);
    mutex_unlock(&store->lock);
    if (rc == 0) {
        *out = counts;
    }
    return rc;
}
