/* The idle pause, over an engine of variables: when it comes, and what puts it
 * off. */
#include "tests/unit/core_fixture.h"

#include "core/clock.h"

#include <errno.h>
#include <unistd.h>

enum {
    AFTER_MS = 1000, /* As in the configs here. */
    LATE_MS = 4000,  /* How late a pause may come on a busy machine, */
    EARLY_MS = 300,  /* and how late the time of a use may be taken. */
    TRIES = 3,       /* Until a busy machine lets us tell. */
};

static const char one_second[] =
    "{\"provider\":\"local\",\"idle_pause_after_seconds\":1}";

static struct session *start(struct fixture *fixture, const char *id,
                             const char *config)
{
    struct session *session = fixture_create_with(fixture, id, config);

    assert_int_equal(fixture_ensure(session, false), 0);
    return session;
}

/* Demands that a pause, the so many-th, comes in its time after `from`, and not
 * before. */
static void expect_pauses(struct session *session, int64_t from, unsigned many)
{
    int64_t passed;

    fixture_until(engine_calls(ENGINE_PAUSE) == many);
    passed = clock_ms() - from;
    assert_in_range(passed, AFTER_MS - EARLY_MS, AFTER_MS + LATE_MS);
    fixture_until(session_status(session) == SESSION_PAUSED);
}

static void expect_pause(struct session *session, int64_t from)
{
    expect_pauses(session, from, 1);
}

static void
who_is_not_used_is_paused_once_and_the_engine_not_asked(void **state)
{
    int64_t from = clock_ms();
    struct session *session = start(*state, "a", one_second);

    assert_int_equal(fixture_events_with(session, "\"cause\""), 0);
    expect_pause(session, from);
    assert_int_equal(engine_calls(ENGINE_STATUS), 0);
    assert_int_equal(
        fixture_events_with(session, "\"sandbox.paused\",\"uid\":null"), 1);
    assert_int_equal(fixture_events_with(session, "\"cause\":\"idle\""), 1);
    (void)usleep(1500 * 1000);
    assert_int_equal(engine_calls(ENGINE_PAUSE), 1);
    /* And again after the next use. */
    assert_int_equal(fixture_ensure(session, false), 0);
    fixture_until(engine_calls(ENGINE_PAUSE) == 2);
    session_unref(session);
}

static void who_holds_it_or_not_it_is_paused(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = start(fixture, "a", one_second);

    session_unref(session);
    fixture_until(engine_calls(ENGINE_PAUSE) == 1);
    session = fixture_find(fixture, "a");
    fixture_until(session_status(session) == SESSION_PAUSED);
    session_unref(session);
}

/* Returns when the last use was; 0: one came too late, as others had the
 * processor, which tells nothing. */
static int64_t use_for_a_while(struct session *session, int64_t last)
{
    bool late = false;

    for (int i = 0; i < 8; i++) {
        int64_t now;

        (void)usleep(200 * 1000);
        now = clock_ms();
        session_touch(session);
        late = late || clock_ms() - last >= AFTER_MS - EARLY_MS;
        last = now;
    }
    return late ? 0 : last;
}

static void a_use_puts_it_off(void **state)
{
    int64_t last = clock_ms();
    struct session *session = start(*state, "a", one_second);
    unsigned paused = 0;

    last = use_for_a_while(session, last);
    for (int tries = 1; last == 0 && tries < TRIES; tries++) {
        int64_t begin;

        fixture_until(session_status(session) == SESSION_PAUSED);
        begin = clock_ms();
        assert_int_equal(fixture_ensure(session, false), 0);
        paused = engine_calls(ENGINE_PAUSE);
        last = use_for_a_while(session, begin);
    }
    if (last == 0) {
        session_unref(session);
        skip();
    }
    assert_int_equal(engine_calls(ENGINE_PAUSE), paused);
    expect_pauses(session, last, paused + 1);
    session_unref(session);
}

static void inside(void *arg, int rc, struct workspace *ws,
                   const struct err *err)
{
    ws_unref(ws);
    result_fill(arg, rc, err);
}

static void enter(struct session *session, enum session_need need)
{
    struct result result;

    result_init(&result);
    session_files_enter(session, need, &me, inside, &result);
    assert_int_equal(result_wait(&result), 0);
}

static void looking_puts_nothing_off(void **state)
{
    int64_t from = clock_ms();
    struct session *session = start(*state, "a", one_second);

    while (engine_calls(ENGINE_PAUSE) == 0 && clock_ms() < from + 3000) {
        (void)session_status(session);
        (void)fixture_json_has(session, "x");
        (void)fixture_events_with(session, "x");
        enter(session, SESSION_LOOK);
        session_files_leave(session);
        (void)usleep(20 * 1000);
    }
    expect_pause(session, from);
    session_unref(session);
}

/* All at once, as each would take seconds. */
static void never_under_what_uses_it_nor_where_it_is_switched_off(void **state)
{
    static const char background[] =
        "{\"command\":\"gate\",\"background\":true}";
    struct fixture *fixture = *state;
    struct session *entered = start(fixture, "e", one_second);
    struct session *runs = start(fixture, "r", one_second);
    struct session *beside = start(fixture, "b", one_second);
    struct session *off =
        start(fixture, "o",
              "{\"provider\":\"local\",\"idle_pause_enabled\":false,"
              "\"idle_pause_after_seconds\":1}");
    struct exec *execs[2] = {NULL, NULL};
    struct err err = ERR_INIT;

    enter(entered, SESSION_WRITE);
    execs[0] = fixture_submit(runs, "gate exit:1");
    assert_int_equal(exec_submit_json(beside, background,
                                      sizeof(background) - 1, &me, &execs[1],
                                      &err),
                     0);
    /* It is looked at each second. */
    (void)usleep(2200 * 1000);
    assert_int_equal(engine_calls(ENGINE_EXEC), 2);
    assert_int_equal(engine_calls(ENGINE_PAUSE), 0);
    session_files_leave(entered);
    fixture_until(session_status(entered) == SESSION_PAUSED);
    assert_int_equal(engine_calls(ENGINE_PAUSE), 1);
    engine_open_gate();
    for (size_t i = 0; i < ARRAY_SIZE(execs); i++) {
        struct exec_info info;

        fixture_wait_exec(execs[i], &info);
        exec_unref(execs[i]);
    }
    fixture_until(session_status(runs) == SESSION_PAUSED);
    fixture_until(session_status(beside) == SESSION_PAUSED);
    assert_int_equal(session_status(off), SESSION_RUNNING);
    session_unref(entered);
    session_unref(runs);
    session_unref(beside);
    session_unref(off);
}

static void the_time_begins_at_the_end_of_a_command(void **state)
{
    struct session *session = fixture_create_with(*state, "a", one_second);
    struct exec *exec = fixture_submit(session, "gate exit:1");
    struct exec_info info;
    int64_t from;

    fixture_until(engine_calls(ENGINE_EXEC) == 1);
    (void)usleep(500 * 1000);
    from = clock_ms();
    engine_open_gate();
    fixture_wait_exec(exec, &info);
    exec_unref(exec);
    expect_pause(session, from);
    session_unref(session);
}

static void a_pause_that_fails_is_tried_again_later(void **state)
{
    int64_t from = clock_ms();
    struct session *session = start(*state, "a", one_second);

    engine_fail(ENGINE_PAUSE, EIO);
    fixture_until(engine_calls(ENGINE_PAUSE) >= 1);
    fixture_until(fixture_events_with(session, "\"sandbox.failed\"") >= 1);
    fixture_until(engine_calls(ENGINE_PAUSE) >= 2);
    assert_true(clock_ms() - from >= 2 * AFTER_MS - EARLY_MS);
    engine_fail(ENGINE_PAUSE, 0);
    fixture_until(session_status(session) == SESSION_PAUSED);
    session_unref(session);
}

static void a_lost_one_is_left_alone(void **state)
{
    struct session *session = start(*state, "a", one_second);

    engine_set_state(PROVIDER_LOST);
    assert_int_equal(fixture_ensure(session, false), -ESTALE);
    (void)usleep(1500 * 1000);
    assert_int_equal(engine_calls(ENGINE_PAUSE), 0);
    session_unref(session);
}

static void it_survives_a_restart(void **state)
{
    struct fixture *fixture = *state;
    struct session *session;

    fixture_close(fixture);
    fixture->on_unmount = REGISTRY_KEEP;
    fixture_open(fixture, "local");
    session_unref(start(fixture, "a", one_second));
    fixture_close(fixture);
    assert_int_equal(engine_calls(ENGINE_PAUSE), 0);
    fixture_open(fixture, "local");
    /* Nobody looks at it. */
    fixture_until(engine_calls(ENGINE_PAUSE) == 1);
    session = fixture_find(fixture, "a");
    fixture_until(session_status(session) == SESSION_PAUSED);
    assert_int_equal(fixture_events_with(session, "\"cause\":\"idle\""), 1);
    session_unref(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(who_is_not_used_is_paused_once_and_the_engine_not_asked),
        FIXTURE_TEST(who_holds_it_or_not_it_is_paused),
        FIXTURE_TEST(a_use_puts_it_off),
        FIXTURE_TEST(looking_puts_nothing_off),
        FIXTURE_TEST(never_under_what_uses_it_nor_where_it_is_switched_off),
        FIXTURE_TEST(the_time_begins_at_the_end_of_a_command),
        FIXTURE_TEST(a_pause_that_fails_is_tried_again_later),
        FIXTURE_TEST(a_lost_one_is_left_alone),
        FIXTURE_TEST(it_survives_a_restart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
