/*
 * The daemon dies while init commands run; the next start says so, and they
 * are run again from the first, unless all had been recorded as done.
 */
#include "tests/unit/core_fixture.h"

#include <stdio.h>

static const char config[] = "{\"provider\":\"local\",\"init\":{\"commands\":"
                             "[\"o:one\",\"o:two\"]}}";

static void live(struct fixture *fixture)
{
    (void)fixture_ensure(fixture_create_with(fixture, "a", config), false);
}

struct crash {
    const char *point;
    int first;      /* enum exec_status of command 1; -1: there is none. */
    bool told;      /* status.json says that init was interrupted. */
    unsigned again; /* Commands that the next ensure runs. */
};

static const struct crash crashes[] = {
    {"create-recorded", -1, false, 2},
    {"init-started", -1, true, 2},
    {"exec-begun", EXEC_LOST, true, 2},
    {"exec-started", EXEC_LOST, true, 2},
    {"exec-ended", EXEC_LOST, true, 2},
    {"exec-recorded", EXEC_EXITED, true, 2},
    {"init-command", EXEC_EXITED, true, 2},
    {"init-completed", EXEC_EXITED, false, 0},
};

static void assert_first(struct session *session, int status)
{
    struct exec *exec = NULL;
    struct err err = ERR_INIT;
    struct exec_info info;

    if (status < 0) {
        assert_true(session_exec_find(session, 1, &exec, &err) < 0);
        return;
    }
    assert_int_equal(session_exec_find(session, 1, &exec, &err), 0);
    exec_info(exec, &info);
    assert_int_equal(info.status, status);
    exec_unref(exec);
}

static void go_on(struct fixture *fixture, const struct crash *crash)
{
    struct session *session = fixture_next_start(fixture);

    assert_first(session, crash->first);
    assert_int_equal(fixture_json_has(session, "Init was interrupted before"),
                     crash->told);
    assert_int_equal(fixture_ensure(session, false), 0);
    assert_int_equal(engine_calls(ENGINE_EXEC), crash->again);
    assert_int_equal(engine_calls(ENGINE_CREATE), 0);
    assert_true(fixture_json_has(session, "\"last_init_error\":null"));
    assert_false(fixture_json_has(session, "\"init_completed_at\":null"));
    assert_int_equal(fixture_events_with(session, "\"init.completed\""), 1);
    session_unref(session);
    fixture_close(fixture);
    loop_free(fixture->loop);
    fixture->loop = NULL;
}

static void a_crash_at_any_step_of_init_is_told_and_mended(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(crashes); i++) {
        struct fixture *fixture = fixture_new();

        print_message("  dies at %s\n", crashes[i].point);
        fixture_die_at(fixture, crashes[i].point, live);
        go_on(fixture, &crashes[i]);
        fixture_free(fixture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crash_at_any_step_of_init_is_told_and_mended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
