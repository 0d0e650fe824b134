/* What others do to a sandbox or its record, and engines that do not answer. */
#include "tests/unit/core_fixture.h"

#include "core/clock.h"
#include "core/registry_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Another writer of the record ---- */

/* Writes a session's record as somebody else would. */
static void write_as_other(struct fixture *fixture, struct session *session,
                           enum session_status status, uint64_t generation)
{
    struct store *store = fixture->registry->store;
    uint64_t number = session_number(session);
    struct store_session row;
    struct store_state state = {
        .status = status,
        .provider = strdup("local"),
        .instance = {.external_id = strdup("theirs")},
        .generation = generation,
        .init_completed_us = 1,
    };
    struct err err = ERR_INIT;

    assert_int_equal(store_session_get(store, number, &row, &err), 0);
    assert_int_equal(
        store_state_save(store, number, row.generation, &state, NULL, &err), 0);
    store_session_done(&row);
    store_state_done(&state);
}

static void an_old_writer_is_refused_and_takes_the_new_record(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = fixture_create(fixture, "a");

    assert_int_equal(fixture_ensure(session, false), 0);
    write_as_other(fixture, session, SESSION_RUNNING, 7);
    assert_int_equal(fixture_pause(session), -ESTALE);
    assert_true(fixture_json_has(session, "\"generation\":7"));
    assert_true(fixture_json_has(session, "\"external_id\":\"theirs\""));
    fixture_until(session_status(session) == SESSION_PAUSED);
    /* It goes on with what is true now. */
    assert_int_equal(fixture_ensure(session, false), 0);
    assert_true(fixture_json_has(session, "\"external_id\":\"theirs\""));
    assert_int_equal(fixture_pause(session), 0);
    assert_int_equal(fixture_destroy(session), 0);
    assert_int_equal(session_status(session), SESSION_ABSENT);
    session_unref(session);
}

static void what_was_made_meanwhile_for_nobody_is_destroyed(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = fixture_create(fixture, "a");
    struct result result;

    engine_hold(ENGINE_CREATE, true);
    result_init(&result);
    session_ensure(session, false, &me, result_fill, &result);
    fixture_until(engine_calls(ENGINE_CREATE) == 1);
    write_as_other(fixture, session, SESSION_RUNNING, 9);
    engine_hold(ENGINE_CREATE, false);
    assert_int_equal(result_wait(&result), -ESTALE);
    /* Ours once; theirs not. */
    assert_int_equal(engine_calls(ENGINE_DESTROY), 1);
    assert_true(fixture_json_has(session, "\"session_status\":\"running\""));
    assert_true(fixture_json_has(session, "\"external_id\":\"theirs\""));
    session_unref(session);
}

/* ---- Replacements ---- */

static void enter(void *arg, int rc, struct workspace *ws,
                  const struct err *err)
{
    struct workspace **out = arg;

    assert_int_equal(rc, 0);
    assert_int_equal(err->code, 0);
    *out = ws;
}

static struct workspace *tree_of(struct session *session)
{
    struct workspace *tree = NULL;

    session_files_enter(session, SESSION_LOOK, &me, enter, &tree);
    assert_non_null(tree);
    session_files_leave(session);
    return tree;
}

static int act_exec(struct session *session)
{
    struct exec_info info;

    fixture_exec(session, "o:x", &info);
    assert_int_equal(info.status, EXEC_EXITED);
    return 0;
}

static int act_resume(struct session *session)
{
    int rc = fixture_pause(session);

    return rc < 0 ? rc : fixture_ensure(session, false);
}

static void another_external_id_is_a_replacement_whoever_tells_it(void **state)
{
    static const struct {
        enum engine_slot slot;
        int (*act)(struct session *session);
        const char *event;
    } rows[] = {
        {ENGINE_PAUSE, fixture_pause, "sandbox.paused"},
        {ENGINE_RESUME, act_resume, "sandbox.resumed"},
        {ENGINE_CHECKPOINT, act_exec, "sandbox.replaced"},
    };
    struct fixture *fixture = *state;

    fixture_close(fixture);
    fixture_open(fixture, "remote");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char id[8] = {'r', (char)('0' + i), '\0'};
        struct session *session = fixture_create(fixture, id);
        struct workspace *before;
        struct workspace *after;

        engine_reset();
        assert_int_equal(fixture_ensure(session, false), 0);
        before = tree_of(session);
        engine_replace_at(rows[i].slot);
        assert_int_equal(rows[i].act(session), 0);
        assert_true(fixture_json_has(session, "\"generation\":2"));
        assert_int_equal(fixture_events_with(session, "\"replaced\":true"), 1);
        assert_int_equal(fixture_events_with(session, rows[i].event), 1);
        after = tree_of(session);
        assert_ptr_not_equal(before, after);
        ws_unref(before);
        ws_unref(after);
        session_unref(session);
    }
}

/* ---- Silent engines ---- */

static void a_status_that_hangs_is_unreachable_soon(void **state)
{
    struct session *session = fixture_create_with(
        *state, "a", "{\"provider\":\"local\",\"call_timeout_ms\":1000}");
    int64_t begin;

    assert_int_equal(fixture_ensure(session, false), 0);
    engine_hold(ENGINE_STATUS, true);
    (void)usleep(1100 * 1000);
    begin = clock_ms();
    /* At once: whoever waited for the engine would hear that it is silent. */
    assert_int_equal(session_status(session), SESSION_RUNNING);
    assert_true(clock_ms() - begin < 900);
    fixture_until(session_status(session) == SESSION_UNREACHABLE);
    assert_true(clock_ms() - begin < 6000);
    engine_hold(ENGINE_STATUS, false);
    assert_int_equal(fixture_ensure(session, false), 0);
    assert_int_equal(session_status(session), SESSION_RUNNING);
    session_unref(session);
}

static void a_silent_engine_is_asked_ever_more_seldom(void **state)
{
    struct session *session = fixture_create(*state, "a");
    int64_t end;

    assert_int_equal(fixture_ensure(session, false), 0);
    engine_fail(ENGINE_STATUS, ENOTCONN);
    end = clock_ms() + 5500;
    while (clock_ms() < end) {
        (void)session_status(session);
        (void)usleep(10 * 1000);
    }
    assert_int_equal(session_status(session), SESSION_UNREACHABLE);
    /* After one second, and two more; the next time is after four more. */
    assert_in_range(engine_calls(ENGINE_STATUS), 1, 2);
    /* Who needs it asks at once, and then all is as before. */
    engine_fail(ENGINE_STATUS, 0);
    assert_int_equal(fixture_ensure(session, false), 0);
    assert_int_equal(session_status(session), SESSION_RUNNING);
    session_unref(session);
}

static void calls_end_at_the_deadlines_of_the_config(void **state)
{
    struct session *session = fixture_create_with(*state, "a",
                                                  "{\"provider\":\"local\","
                                                  "\"create_timeout_ms\":200,"
                                                  "\"call_timeout_ms\":300}");
    int64_t begin = clock_ms();

    engine_hold(ENGINE_CREATE, true);
    assert_int_equal(fixture_ensure(session, false), -ETIMEDOUT);
    engine_hold(ENGINE_CREATE, false);
    assert_int_equal(session_status(session), SESSION_ABSENT);
    assert_int_equal(fixture_ensure(session, false), 0);
    engine_hold(ENGINE_PAUSE, true);
    assert_int_equal(fixture_pause(session), -ETIMEDOUT);
    engine_hold(ENGINE_PAUSE, false);
    assert_int_equal(session_status(session), SESSION_RUNNING);
    assert_true(clock_ms() - begin < 5000);
    session_unref(session);
}

static void
a_command_without_a_timeout_takes_the_one_of_the_config(void **state)
{
    struct session *session = fixture_create_with(
        *state, "a", "{\"provider\":\"local\",\"exec_timeout_ms\":100}");
    struct exec_info info;

    fixture_exec(session, "hang", &info);
    assert_int_equal(info.status, EXEC_TIMEOUT);
    assert_int_equal(info.exit_code, 124);
    session_unref(session);
}

/* ---- Lost ---- */

static void
a_lost_one_runs_nothing_until_somebody_asks_for_an_empty_one(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct exec_info info;

    assert_int_equal(fixture_ensure(session, false), 0);
    engine_set_state(PROVIDER_LOST);
    fixture_exec(session, "o:x", &info);
    assert_int_equal(info.status, EXEC_FAILED);
    assert_int_equal(info.err.code, ESTALE);
    assert_int_equal(engine_calls(ENGINE_CREATE), 1);
    assert_int_equal(fixture_ensure(session, true), 0);
    fixture_exec(session, "o:x", &info);
    assert_int_equal(info.status, EXEC_EXITED);
    session_unref(session);
}

/* ---- Paused, and files that need it to run ---- */

static void fill_entered(void *arg, int rc, struct workspace *ws,
                         const struct err *err)
{
    ws_unref(ws);
    result_fill(arg, rc, err);
}

static int try_enter(struct session *session, enum session_need need)
{
    struct result result;

    result_init(&result);
    session_files_enter(session, need, &me, fill_entered, &result);
    if (result_wait(&result) == 0) {
        session_files_leave(session);
    }
    return result.rc;
}

static void files_wake_nobody_where_the_config_says_so(void **state)
{
    struct fixture *fixture = *state;
    struct session *session;

    fixture_close(fixture);
    fixture_open(fixture, "remote");
    session = fixture_create_with(
        fixture, "a", "{\"provider\":\"remote\",\"wake\":\"exec\"}");
    assert_int_equal(fixture_ensure(session, false), 0);
    assert_int_equal(try_enter(session, SESSION_WRITE), 0);
    assert_int_equal(fixture_pause(session), 0);
    assert_int_equal(try_enter(session, SESSION_LOOK), 0);
    assert_int_equal(try_enter(session, SESSION_READ), -EHOSTDOWN);
    assert_int_equal(try_enter(session, SESSION_WRITE), -EHOSTDOWN);
    assert_int_equal(engine_calls(ENGINE_RESUME), 0);
    assert_int_equal(act_exec(session), 0);
    assert_int_equal(engine_calls(ENGINE_RESUME), 1);
    assert_int_equal(try_enter(session, SESSION_READ), 0);
    session_unref(session);
}

/* ---- Two at once ---- */

static void absent_while_it_starts_ends_absent(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct result started;
    struct result deleted;

    engine_hold(ENGINE_CREATE, true);
    result_init(&started);
    session_ensure(session, false, &me, result_fill, &started);
    fixture_until(engine_calls(ENGINE_CREATE) == 1);
    result_init(&deleted);
    session_destroy(session, &me, result_fill, &deleted);
    assert_int_equal(session_status(session), SESSION_STARTING);
    engine_hold(ENGINE_CREATE, false);
    assert_int_equal(result_wait(&started), 0);
    assert_int_equal(result_wait(&deleted), 0);
    assert_int_equal(session_status(session), SESSION_ABSENT);
    assert_int_equal(engine_calls(ENGINE_DESTROY), 1);
    session_unref(session);
}

static void the_same_asked_twice_at_once_is_done_once(void **state)
{
    static const struct {
        void (*start)(struct session *, const struct caller *, done_fn *,
                      void *);
        enum engine_slot slot;
        enum session_status after;
    } rows[] = {
        {session_pause, ENGINE_PAUSE, SESSION_PAUSED},
        {session_destroy, ENGINE_DESTROY, SESSION_ABSENT},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char id[8] = {'t', (char)('0' + i), '\0'};
        struct session *session = fixture_create(*state, id);
        struct result results[4];

        engine_reset();
        assert_int_equal(fixture_ensure(session, false), 0);
        engine_hold(rows[i].slot, true);
        for (size_t k = 0; k < ARRAY_SIZE(results); k++) {
            result_init(&results[k]);
            rows[i].start(session, &me, result_fill, &results[k]);
        }
        fixture_until(engine_calls(rows[i].slot) == 1);
        engine_hold(rows[i].slot, false);
        for (size_t k = 0; k < ARRAY_SIZE(results); k++) {
            assert_int_equal(result_wait(&results[k]), 0);
        }
        assert_int_equal(engine_calls(rows[i].slot), 1);
        assert_int_equal(session_status(session), rows[i].after);
        session_unref(session);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(an_old_writer_is_refused_and_takes_the_new_record),
        FIXTURE_TEST(what_was_made_meanwhile_for_nobody_is_destroyed),
        FIXTURE_TEST(another_external_id_is_a_replacement_whoever_tells_it),
        FIXTURE_TEST(a_status_that_hangs_is_unreachable_soon),
        FIXTURE_TEST(a_silent_engine_is_asked_ever_more_seldom),
        FIXTURE_TEST(calls_end_at_the_deadlines_of_the_config),
        FIXTURE_TEST(a_command_without_a_timeout_takes_the_one_of_the_config),
        FIXTURE_TEST(
            a_lost_one_runs_nothing_until_somebody_asks_for_an_empty_one),
        FIXTURE_TEST(files_wake_nobody_where_the_config_says_so),
        FIXTURE_TEST(absent_while_it_starts_ends_absent),
        FIXTURE_TEST(the_same_asked_twice_at_once_is_done_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
