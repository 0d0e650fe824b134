/* Commands beside the queue, and what a request may ask for. */
#include "tests/unit/core_fixture.h"

#include "core/buf.h"
#include "core/exec_request.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Queues words of the engine in the background, and waits for their start. */
static struct exec *start(struct session *session, const char *words)
{
    char json[256];
    struct exec *exec = NULL;
    struct err err = ERR_INIT;

    (void)snprintf(json, sizeof(json),
                   "{\"command\": \"%s\", \"background\": true}", words);
    assert_int_equal(
        exec_submit_json(session, json, strlen(json), &me, &exec, &err), 0);
    fixture_until(exec_answered(exec));
    return exec;
}

static void the_queue_goes_on_beside_it(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct exec *exec = start(session, "o:x gate exit:4");
    struct exec_info info;

    exec_info(exec, &info);
    assert_int_equal(info.status, EXEC_RUNNING);
    assert_true(info.background);
    fixture_exec(session, "o:y", &info);
    assert_int_equal(info.n, 2);
    assert_int_equal(info.status, EXEC_EXITED);
    assert_false(exec_ended(exec));
    engine_open_gate();
    fixture_wait_exec(exec, &info);
    assert_int_equal(info.exit_code, 4);
    exec_unref(exec);
    session_unref(session);
}

static void nothing_stops_the_sandbox_under_it(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = fixture_create(fixture, "a");
    struct exec *exec = start(session, "gate");
    struct exec_info info;
    struct err err = ERR_INIT;

    assert_int_equal(fixture_pause(session), -EBUSY);
    assert_int_equal(fixture_destroy(session), -EBUSY);
    assert_true(registry_remove(fixture->registry, "a", &err) < 0);
    assert_int_equal(fixture_ensure(session, false), 0);
    engine_open_gate();
    fixture_wait_exec(exec, &info);
    /* Who hears of its end may do all of that at once. */
    assert_int_equal(fixture_pause(session), 0);
    assert_int_equal(fixture_destroy(session), 0);
    exec_unref(exec);
    session_unref(session);
    assert_int_equal(registry_remove(fixture->registry, "a", &err), 0);
}

static void one_that_cannot_start_leaves_the_queue_free(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct exec *exec;
    struct exec_info info;

    engine_fail(ENGINE_EXEC, ENOSPC);
    exec = start(session, "o:x");
    exec_info(exec, &info);
    assert_int_equal(info.status, EXEC_FAILED);
    assert_int_equal(info.err.code, ENOSPC);
    engine_fail(ENGINE_EXEC, 0);
    exec_unref(exec);
    fixture_exec(session, "exit:1", &info);
    assert_int_equal(info.status, EXEC_EXITED);
    assert_int_equal(fixture_pause(session), 0);
    session_unref(session);
}

static void the_end_of_the_mount_ends_it_and_then_pauses(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = fixture_create(fixture, "a");
    struct exec *exec = start(session, "hang");
    struct exec_info info;
    struct err err = ERR_INIT;

    exec_unref(exec);
    session_unref(session);
    fixture_close(fixture);
    assert_int_equal(engine_calls(ENGINE_PAUSE), 1);
    fixture_open(fixture, "local");
    session = fixture_find(fixture, "a");
    assert_int_equal(session_exec_find(session, 1, &exec, &err), 0);
    exec_info(exec, &info);
    assert_int_equal(info.status, EXEC_KILLED);
    assert_true(info.background);
    exec_unref(exec);
    session_unref(session);
}

static void many_at_once_all_end(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct exec *execs[16];
    struct exec_info info;

    for (size_t i = 0; i < ARRAY_SIZE(execs); i++) {
        execs[i] = start(session, i % 2 ? "gate exit:1" : "hang");
    }
    assert_int_equal(fixture_pause(session), -EBUSY);
    engine_open_gate();
    for (size_t i = 0; i < ARRAY_SIZE(execs); i++) {
        if (i % 2 == 0) {
            exec_cancel(execs[i]);
        }
        fixture_wait_exec(execs[i], &info);
        assert_int_equal(info.status, i % 2 ? EXEC_EXITED : EXEC_KILLED);
        exec_unref(execs[i]);
    }
    assert_int_equal(fixture_pause(session), 0);
    session_unref(session);
}

static void
a_signal_needs_a_running_command_and_an_engine_that_can(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct exec *exec = start(session, "gate");
    struct exec_info info;
    struct err err = ERR_INIT;

    assert_int_equal(exec_signal(exec, SIGTERM, &me, &err), -EOPNOTSUPP);
    engine_open_gate();
    fixture_wait_exec(exec, &info);
    assert_int_equal(exec_signal(exec, SIGTERM, &me, &err), -ESRCH);
    exec_unref(exec);
    session_unref(session);
}

/* The answer to words of the engine; the caller frees it. */
static char *answer_to(struct session *session, const char *words, bool begun)
{
    struct buf text = BUF_INIT(1024 * 1024);
    struct exec *exec = fixture_submit(session, words);
    struct exec_info info;
    struct err err = ERR_INIT;

    fixture_wait_exec(exec, &info);
    assert_int_equal(exec_answer(exec, info.mode, begun, &text, &err), 0);
    exec_unref(exec);
    return text.data;
}

static void an_answer_tells_the_end(void **state)
{
    static const struct {
        const char *words;
        const char *begin; /* Up to the times. */
    } cases[] = {
        {"o:hi e:no",
         "{\"id\":1,\"status\":\"exited\",\"exit_code\":0,\"stdout\":\"hi\","
         "\"stderr\":\"no\",\"encoding\":\"text\",\"success\":true,"
         "\"truncated\":false,\"total_lines\":1,\"timed_out\":false,"
         "\"started_at\":\""},
        {"kill:11",
         "{\"id\":2,\"status\":\"killed\",\"exit_code\":139,\"stdout\":\"\","
         "\"stderr\":\"\",\"encoding\":\"text\",\"success\":false,"
         "\"truncated\":false,\"total_lines\":0,\"hint\":\"Segmentation fault "
         "(SIGSEGV).\",\"timed_out\":false,\"signal\":\"SEGV\","
         "\"started_at\":\""},
        {"lost",
         "{\"id\":3,\"status\":\"lost\",\"exit_code\":null,\"stdout\":\"\","
         "\"stderr\":\"\",\"encoding\":\"text\",\"success\":false,"
         "\"truncated\":false,\"total_lines\":0,\"timed_out\":false,"
         "\"started_at\":\""},
    };
    struct session *session = fixture_create(*state, "a");

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char *text = answer_to(session, cases[i].words, false);

        if (strncmp(text, cases[i].begin, strlen(cases[i].begin)) != 0) {
            fail_msg("%s: %s", cases[i].words, text);
        }
        assert_int_equal(text[strlen(text) - 1], '\n');
        free(text);
    }
    session_unref(session);
}

/* Answers about much output are kept; another's is never given. */
static void a_long_answer_is_always_the_right_one(void **state)
{
    struct session *session = fixture_create(*state, "a");

    for (unsigned i = 1; i < 4; i++) {
        char words[64];
        char want[64];
        char *text;

        (void)snprintf(words, sizeof(words), "o:%u fill:1500000", i);
        (void)snprintf(want, sizeof(want), "{\"id\":%u,", i);
        text = answer_to(session, words, false);
        assert_memory_equal(text, want, strlen(want));
        (void)snprintf(want, sizeof(want), "\"stdout\":\"%u", i);
        assert_non_null(strstr(text, want));
        free(text);
    }
    session_unref(session);
}

static void a_request_is_read_in_all_its_members(void **state)
{
    static const char json[] =
        "{\"argv\": [\"a\", \"b c\", \"\", \"it's\", \"\\udcff\"], "
        "\"cwd\": \"x\", \"discard_output\": true, "
        "\"env\": {\"A\": \"1 2\", \"_b\": \"\"}, \"stdin\": \"i\\u0000\", "
        "\"timeout_ms\": 7, \"output_mode\": \"full\", \"background\": true}";
    struct exec_request request;
    struct err err = ERR_INIT;

    (void)state;
    assert_int_equal(exec_request_parse(json, strlen(json), &request, &err), 0);
    assert_string_equal(buf_str(&request.text),
                        "a 'b c' '' 'it'\\''s' '\377'\n");
    assert_string_equal(request.argv[3], "it's");
    assert_string_equal(request.argv[4], "\377");
    assert_null(request.argv[5]);
    assert_true(request.discard);
    assert_string_equal(request.cwd, "x");
    assert_string_equal(request.env[0], "A=1 2");
    assert_string_equal(request.env[1], "_b=");
    assert_null(request.env[2]);
    assert_true(request.has_input);
    assert_int_equal(request.input.size, 2);
    assert_memory_equal(request.input.data, "i", 2);
    assert_int_equal(request.timeout_ms, 7);
    assert_int_equal(request.mode, SHAPE_FULL);
    assert_true(request.background);
    exec_request_done(&request);
}

static void output_that_nobody_wants_is_not_kept(void **state)
{
    static const char json[] =
        "{\"command\": \"o:hi\", \"discard_output\": true}";
    struct session *session = fixture_create(*state, "a");
    struct exec *exec = NULL;
    struct exec_info info;
    struct err err = ERR_INIT;

    assert_int_equal(
        exec_submit_json(session, json, strlen(json), &me, &exec, &err), 0);
    fixture_wait_exec(exec, &info);
    assert_int_equal(info.status, EXEC_EXITED);
    assert_int_equal(exec_size(exec, EXEC_OUTPUT), 0);
    exec_unref(exec);
    session_unref(session);
}

/* The text of argv ends with a newline, for which there must be room too. */
static void an_argv_of_a_byte_too_much_is_too_long(void **state)
{
    char *word = malloc(EXEC_SCRIPT_MAX + 1);
    struct buf json = BUF_INIT(EXEC_REQUEST_MAX);
    struct exec_request request;
    struct err err = ERR_INIT;

    (void)state;
    assert_non_null(word);
    memset(word, 'x', EXEC_SCRIPT_MAX);
    word[EXEC_SCRIPT_MAX] = '\0';
    assert_int_equal(buf_printf(&json, "{\"argv\": [\"%s\"]}", word), 0);
    assert_int_equal(exec_request_parse(json.data, json.size, &request, &err),
                     -EFBIG);
    buf_done(&json);
    word[EXEC_SCRIPT_MAX - 1] = '\0';
    err_clear(&err);
    assert_int_equal(buf_printf(&json, "{\"argv\": [\"%s\"]}", word), 0);
    assert_int_equal(exec_request_parse(json.data, json.size, &request, &err),
                     0);
    assert_int_equal(request.text.size, EXEC_SCRIPT_MAX);
    exec_request_done(&request);
    buf_done(&json);
    free(word);
}

int main(void)
{
#define T(name)                                                                \
    cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(the_queue_goes_on_beside_it),
        T(nothing_stops_the_sandbox_under_it),
        T(one_that_cannot_start_leaves_the_queue_free),
        T(the_end_of_the_mount_ends_it_and_then_pauses),
        T(many_at_once_all_end),
        T(a_signal_needs_a_running_command_and_an_engine_that_can),
        T(an_answer_tells_the_end),
        T(a_long_answer_is_always_the_right_one),
        T(output_that_nobody_wants_is_not_kept),
        cmocka_unit_test(a_request_is_read_in_all_its_members),
        cmocka_unit_test(an_argv_of_a_byte_too_much_is_too_long),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
