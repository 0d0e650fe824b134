/* Init commands over an engine of variables: when they run, and how they end.
 */
#include "tests/unit/core_fixture.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define INIT(commands_)                                                        \
    "{\"provider\":\"local\",\"init\":{\"commands\":[" commands_ "]}}"

static void assert_output(struct session *session, uint64_t n, const char *want)
{
    struct exec *exec = NULL;
    struct err err = ERR_INIT;
    char out[64] = "";

    assert_int_equal(session_exec_find(session, n, &exec, &err), 0);
    assert_true(exec_ended(exec));
    assert_true(exec_read(exec, EXEC_OUTPUT, 0, out, sizeof(out) - 1, &err) >=
                0);
    assert_string_equal(out, want);
    exec_unref(exec);
}

static void init_commands_run_once_in_order_and_are_kept(void **state)
{
    struct session *session = fixture_create_with(
        *state, "a", INIT("\"o:one\",\"o:two\",\"e:three\""));

    assert_int_equal(fixture_ensure(session, false), 0);
    assert_output(session, 1, "one");
    assert_output(session, 2, "two");
    assert_output(session, 3, "three");
    assert_false(fixture_json_has(session, "\"init_completed_at\":null"));
    assert_true(fixture_json_has(session, "\"last_init_error\":null"));
    assert_int_equal(fixture_events_with(session, "\"init.started\""), 1);
    assert_int_equal(fixture_events_with(session, "\"init.completed\""), 1);
    assert_int_equal(fixture_events_with(session, "\"exec.ended\""), 3);
    assert_int_equal(fixture_events_with(session, "\"uid\":1000,\"pid\":4242"),
                     fixture_events_with(session, "\"seq\""));
    /* Neither a resume nor a replacement with the same history is new. */
    assert_int_equal(fixture_pause(session), 0);
    engine_replace_at(ENGINE_RESUME);
    assert_int_equal(fixture_ensure(session, false), 0);
    assert_int_equal(engine_calls(ENGINE_EXEC), 3);
    /* An empty one is. */
    engine_set_state(PROVIDER_LOST);
    assert_int_equal(fixture_ensure(session, true), 0);
    assert_int_equal(engine_calls(ENGINE_EXEC), 6);
    session_unref(session);
}

static void nobody_is_told_that_it_runs_before_they_have_run(void **state)
{
    struct fixture *fixture = *state;
    struct session *session =
        fixture_create_with(fixture, "a", INIT("\"o:one\",\"o:two\""));

    assert_int_equal(fixture_ensure(session, false), 0);
    assert_int_equal(atomic_load(&fixture->ran), 1);
    assert_int_equal(session_status(session), SESSION_RUNNING);
    assert_int_equal(fixture_pause(session), 0);
    assert_int_equal(fixture_ensure(session, false), 0);
    assert_int_equal(atomic_load(&fixture->ran), 2);
    session_unref(session);
}

static void the_newest_command_is_never_one_of_the_config(void **state)
{
    struct session *session =
        fixture_create_with(*state, "a", INIT("\"o:init\""));
    struct exec *exec = NULL;
    struct err err = ERR_INIT;
    struct exec_info info;

    assert_int_equal(fixture_ensure(session, false), 0);
    assert_int_equal(session_exec_last(session, &exec, &err), -ENOENT);
    assert_int_equal(fixture_destroy(session), 0);
    /* It has its number before the init commands have theirs. */
    fixture_exec(session, "o:mine", &info);
    assert_int_equal(info.n, 2);
    assert_output(session, 3, "init");
    assert_int_equal(session_exec_last(session, &exec, &err), 0);
    assert_int_equal(exec_number(exec), 2);
    assert_output(session, 2, "mine");
    exec_unref(exec);
    session_unref(session);
}

static void no_init_commands_are_complete_at_once(void **state)
{
    struct session *session = fixture_create_with(*state, "a", INIT(""));

    assert_int_equal(fixture_ensure(session, false), 0);
    assert_false(fixture_json_has(session, "\"init_completed_at\":null"));
    assert_int_equal(fixture_events_with(session, "\"init."), 0);
    session_unref(session);
}

static void ensure_says(struct session *session, int code, const char *words)
{
    struct result result;

    result_init(&result);
    session_ensure(session, false, &me, result_fill, &result);
    assert_int_equal(result_wait(&result), -code);
    assert_string_equal(result.err.msg, words);
}

static void a_failing_one_is_told_and_begun_again_from_the_first(void **state)
{
    struct session *session = fixture_create_with(
        *state, "a", INIT("\"o:one\",\"o:x e:bad exit:3\""));
    struct exec_info info;

    ensure_says(session, EIO,
                "Session sandbox init failed for command 'o:x e:bad exit:3': "
                "bad");
    assert_int_equal(session_status(session), SESSION_RUNNING);
    assert_true(fixture_json_has(session,
                                 "\"last_init_error\":\"Init command failed "
                                 "with exit code 3: o:x e:bad exit:3\""));
    assert_int_equal(fixture_events_with(session, "\"init.failed\",\"exec\":2"),
                     1);
    /* A command needs the init too, and is not run without. */
    fixture_exec(session, "o:mine", &info);
    assert_int_equal(info.status, EXEC_FAILED);
    assert_int_equal(info.err.code, EIO);
    assert_int_equal(engine_calls(ENGINE_EXEC), 4);
    assert_int_equal(engine_calls(ENGINE_CREATE), 1);
    assert_output(session, 4, "one");
    session_unref(session);
}

static void each_end_but_a_good_one_is_a_failure(void **state)
{
    static const struct {
        const char *config;
        const char *error;
        const char *words;
    } rows[] = {
        {INIT("\"o:said exit:1\""),
         "Init command failed with exit code 1: o:said exit:1",
         "Session sandbox init failed for command 'o:said exit:1': said"},
        {INIT("\"kill:9\""), "Init command failed with exit code 137: kill:9",
         "Session sandbox init failed for command 'kill:9': exit code 137, "
         "without output"},
        {INIT("\"lost\""),
         "Init command failed: lost: the engine cannot say how the command "
         "ended",
         "Session sandbox init failed for command 'lost': the engine cannot "
         "say how the command ended"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char id[8] = {'f', (char)('0' + i), '\0'};
        struct session *session =
            fixture_create_with(*state, id, rows[i].config);

        ensure_says(session, EIO, rows[i].words);
        assert_true(fixture_json_has(session, rows[i].error));
        assert_int_equal(fixture_destroy(session), 0);
        session_unref(session);
    }
}

/* Begins an ensure whose init command hangs. */
static void hang(struct session *session, struct result *result)
{
    result_init(result);
    session_ensure(session, false, &me, result_fill, result);
    fixture_until(engine_calls(ENGINE_EXEC) == 1);
}

static void cancel(struct session *session, uint64_t n)
{
    struct exec *exec = NULL;
    struct err err = ERR_INIT;

    assert_int_equal(session_exec_find(session, n, &exec, &err), 0);
    exec_cancel(exec);
    exec_unref(exec);
}

static void a_hanging_one_keeps_off_a_pause_until_it_is_ended(void **state)
{
    struct session *session =
        fixture_create_with(*state, "a", INIT("\"hang\",\"o:two\""));
    struct result first;
    struct result second;

    hang(session, &first);
    assert_int_equal(session_status(session), SESSION_STARTING);
    assert_true(fixture_json_has(session, "\"observed\":\"starting\""));
    assert_true(fixture_json_has(session, "\"last_init_error\":null"));
    assert_int_equal(fixture_pause(session), -EBUSY);
    assert_int_equal(fixture_destroy(session), -EBUSY);
    /* Who needs the sandbox too waits for the same commands. */
    result_init(&second);
    session_ensure(session, false, &me, result_fill, &second);
    (void)usleep(20 * 1000);
    assert_false(result_done(&second));
    cancel(session, 1);
    assert_int_equal(result_wait(&first), -EIO);
    assert_int_equal(result_wait(&second), -EIO);
    assert_int_equal(engine_calls(ENGINE_EXEC), 1);
    assert_true(fixture_json_has(session, "failed with exit code 143: hang"));
    assert_int_equal(session_status(session), SESSION_RUNNING);
    assert_int_equal(fixture_pause(session), 0);
    session_unref(session);
}

static void a_stop_that_was_accepted_before_wins(void **state)
{
    struct session *session =
        fixture_create_with(*state, "a", INIT("\"hang\""));
    struct result started;
    struct result deleted;

    engine_hold(ENGINE_CREATE, true);
    result_init(&started);
    session_ensure(session, false, &me, result_fill, &started);
    fixture_until(session_status(session) == SESSION_STARTING);
    result_init(&deleted);
    session_destroy(session, &me, result_fill, &deleted);
    engine_hold(ENGINE_CREATE, false);
    assert_int_equal(result_wait(&started), -EBUSY);
    assert_int_equal(result_wait(&deleted), 0);
    assert_int_equal(session_status(session), SESSION_ABSENT);
    assert_int_equal(engine_calls(ENGINE_EXEC), 0);
    session_unref(session);
}

static void the_end_of_the_registry_ends_a_hanging_one(void **state)
{
    struct fixture *fixture = *state;
    struct session *session =
        fixture_create_with(fixture, "a", INIT("\"hang\""));
    struct result result;

    hang(session, &result);
    session_unref(session);
    fixture_close(fixture);
    assert_int_equal(result_wait(&result), -EIO);
    assert_int_equal(engine_calls(ENGINE_PAUSE), 1);
    fixture_open(fixture, "local");
    session = fixture_find(fixture, "a");
    assert_int_equal(session_status(session), SESSION_PAUSED);
    assert_true(fixture_json_has(session, "failed with exit code 143: hang"));
    session_unref(session);
}

static void inside(void *arg, int rc, struct workspace *ws,
                   const struct err *err)
{
    assert_non_null(ws);
    ws_unref(ws);
    result_fill(arg, rc, err);
}

static void files_wait_for_init_commands_and_a_peek_does_not(void **state)
{
    struct session *session =
        fixture_create_with(*state, "a", INIT("\"gate\""));
    struct result started;
    struct result peeked;
    struct result entered[3];

    hang(session, &started);
    result_init(&peeked);
    session_files_enter(session, SESSION_PEEK, &me, inside, &peeked);
    assert_true(result_done(&peeked));
    session_files_leave(session);
    for (size_t i = 0; i < ARRAY_SIZE(entered); i++) {
        result_init(&entered[i]);
        session_files_enter(session, SESSION_LOOK + (enum session_need)i, &me,
                            inside, &entered[i]);
        assert_false(result_done(&entered[i]));
    }
    engine_open_gate();
    assert_int_equal(result_wait(&started), 0);
    for (size_t i = 0; i < ARRAY_SIZE(entered); i++) {
        assert_int_equal(result_wait(&entered[i]), 0);
        session_files_leave(session);
    }
    assert_int_equal(engine_calls(ENGINE_EXEC), 1);
    session_unref(session);
}

static void a_checkpoint_is_taken_after_each(void **state)
{
    struct fixture *fixture = *state;
    struct session *session;

    fixture_close(fixture);
    fixture_open(fixture, "remote");
    session =
        fixture_create_with(fixture, "a",
                            "{\"provider\":\"remote\",\"init\":{\"commands\":"
                            "[\"o:one\",\"exit:1\"]}}");
    ensure_says(session, EIO,
                "Session sandbox init failed for command 'exit:1': exit code "
                "1, without output");
    assert_int_equal(engine_calls(ENGINE_CHECKPOINT), 2);
    engine_fail(ENGINE_CHECKPOINT, ENOSPC);
    ensure_says(session, EIO,
                "Session sandbox init failed for command 'o:one': one");
    assert_int_equal(engine_calls(ENGINE_CHECKPOINT), 3);
    session_unref(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(init_commands_run_once_in_order_and_are_kept),
        FIXTURE_TEST(nobody_is_told_that_it_runs_before_they_have_run),
        FIXTURE_TEST(the_newest_command_is_never_one_of_the_config),
        FIXTURE_TEST(no_init_commands_are_complete_at_once),
        FIXTURE_TEST(a_failing_one_is_told_and_begun_again_from_the_first),
        FIXTURE_TEST(each_end_but_a_good_one_is_a_failure),
        FIXTURE_TEST(a_hanging_one_keeps_off_a_pause_until_it_is_ended),
        FIXTURE_TEST(a_stop_that_was_accepted_before_wins),
        FIXTURE_TEST(the_end_of_the_registry_ends_a_hanging_one),
        FIXTURE_TEST(files_wait_for_init_commands_and_a_peek_does_not),
        FIXTURE_TEST(a_checkpoint_is_taken_after_each),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
