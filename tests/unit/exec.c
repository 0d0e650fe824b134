/* Commands: order, ends, cancelling, output, watches, many at once. */
#include "tests/unit/core_fixture.h"

#include "core/buf.h"
#include "core/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Compares a view of a command with a text. */
static void assert_view(struct exec *exec, enum exec_view view,
                        const char *text)
{
    char out[256];
    struct err err = ERR_INIT;
    ssize_t n = exec_read(exec, view, 0, out, sizeof(out) - 1, &err);

    assert_true(n >= 0);
    out[n] = '\0';
    assert_string_equal(out, text);
    assert_int_equal(exec_size(exec, view), strlen(text));
}

struct ending {
    const char *words;
    enum exec_status status;
    int exit_code; /* -1: none. */
    int errno_code;
};

static void a_command_ends_as_the_engine_says(void **state)
{
    static const struct ending endings[] = {
        {"o:x", EXEC_EXITED, 0, 0},
        {"exit:7", EXEC_EXITED, 7, 0},
        {"kill:9", EXEC_KILLED, 137, 0},
        {"limit:memory kill:9", EXEC_KILLED, 137, EDQUOT},
        {"exit:1 limit:pids", EXEC_EXITED, 1, EDQUOT},
        {"lost", EXEC_LOST, -1, ESTALE},
    };
    struct session *session = fixture_create(*state, "a");

    for (size_t i = 0; i < ARRAY_SIZE(endings); i++) {
        const struct ending *ending = &endings[i];
        struct exec_info info;

        fixture_exec(session, ending->words, &info);
        assert_int_equal(info.n, i + 1);
        assert_int_equal(info.status, ending->status);
        assert_int_equal(info.has_exit_code, ending->exit_code >= 0);
        if (info.has_exit_code) {
            assert_int_equal(info.exit_code, ending->exit_code);
        }
        assert_int_equal(info.err.code, ending->errno_code);
        assert_true(info.submitted_us <= info.started_us);
        assert_true(info.started_us <= info.ended_us);
    }
    assert_int_equal(engine_calls(ENGINE_CREATE), 1);
    session_unref(session);
}

static void output_is_split_and_in_order(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct exec *exec = fixture_submit(session, "o:12 e:ab o:34 o:5 e:c");
    struct exec_info info;

    fixture_wait_exec(exec, &info);
    assert_view(exec, EXEC_OUTPUT, "12ab345c");
    assert_view(exec, EXEC_STDOUT, "12345");
    assert_view(exec, EXEC_STDERR, "abc");
    exec_unref(exec);
    session_unref(session);
}

static void bad_scripts_are_refused_and_take_no_number(void **state)
{
    static const struct {
        const char *script;
        size_t size;
        int code;
    } cases[] = {
        {"", 0, EINVAL},
        {" \n\t ", 4, EINVAL},
        {"a\0b", 3, EINVAL},
    };
    struct session *session = fixture_create(*state, "a");
    char *large = malloc(EXEC_SCRIPT_MAX + 1);
    struct exec *exec = NULL;
    struct exec_info info;
    struct err err = ERR_INIT;

    assert_non_null(large);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(exec_submit(session, cases[i].script, cases[i].size,
                                     &me, &exec, &err),
                         -cases[i].code);
    }
    memset(large, 'x', EXEC_SCRIPT_MAX + 1);
    assert_int_equal(
        exec_submit(session, large, EXEC_SCRIPT_MAX + 1, &me, &exec, &err),
        -EFBIG);
    assert_int_equal(
        exec_submit(session, large, EXEC_SCRIPT_MAX, &me, &exec, &err), 0);
    fixture_wait_exec(exec, &info);
    assert_int_equal(info.n, 1);
    exec_unref(exec);
    free(large);
    session_unref(session);
}

static void a_command_is_kept_as_it_was_written(void **state)
{
    static const char script[] = "echo \"it's\" \\ $x\n\nexit:1\377\n";
    struct session *session = fixture_create(*state, "a");
    struct exec *exec = fixture_submit(session, script);
    struct buf text = BUF_INIT(1024);
    struct err err = ERR_INIT;

    assert_int_equal(exec_command(exec, &text, &err), 0);
    assert_string_equal(buf_str(&text), script);
    buf_done(&text);
    exec_unref(exec);
    session_unref(session);
}

static void commands_run_one_after_another(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct exec *execs[5];
    struct exec_info infos[5];

    for (int i = 0; i < 5; i++) {
        execs[i] = fixture_submit(session, i ? "o:x" : "gate");
    }
    fixture_until(engine_calls(ENGINE_EXEC) == 1);
    (void)usleep(20 * 1000);
    assert_int_equal(engine_calls(ENGINE_EXEC), 1);
    engine_open_gate();
    for (int i = 0; i < 5; i++) {
        fixture_wait_exec(execs[i], &infos[i]);
        assert_int_equal(infos[i].n, i + 1);
        assert_true(i == 0 || infos[i - 1].ended_us <= infos[i].started_us);
        exec_unref(execs[i]);
    }
    session_unref(session);
}

static void life_waits_for_no_command_but_is_refused(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct exec *first = fixture_submit(session, "gate");
    struct exec *second = fixture_submit(session, "o:x");
    struct exec_info info;

    assert_int_equal(fixture_pause(session), -EBUSY);
    assert_int_equal(fixture_destroy(session), -EBUSY);
    /* Whoever opens `exec` while a command runs does not wait for its end. */
    fixture_until(engine_calls(ENGINE_EXEC) == 1);
    assert_int_equal(fixture_ensure(session, false), 0);
    exec_info(first, &info);
    assert_int_equal(info.status, EXEC_RUNNING);
    engine_open_gate();
    fixture_wait_exec(second, &info);
    assert_int_equal(fixture_pause(session), 0);
    exec_unref(first);
    exec_unref(second);
    session_unref(session);
}

/* Also just before it has begun. */
static void whoever_ensures_waits_for_no_command(void **state)
{
    struct session *session = fixture_create(*state, "a");

    for (int i = 0; i < 20; i++) {
        struct exec *exec = fixture_submit(session, "hang");
        struct exec_info info;

        assert_int_equal(fixture_ensure(session, false), 0);
        exec_cancel(exec);
        fixture_wait_exec(exec, &info);
        exec_unref(exec);
    }
    session_unref(session);
}

static void a_session_can_be_paused_once_its_command_has_ended(void **state)
{
    struct session *session = fixture_create(*state, "a");

    for (int i = 0; i < 50; i++) {
        struct exec_info info;

        fixture_exec(session, "o:x", &info);
        assert_int_equal(fixture_pause(session), 0);
    }
    session_unref(session);
}

static void a_cancelled_command_in_the_queue_never_runs(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct exec *first = fixture_submit(session, "gate");
    struct exec *second = fixture_submit(session, "o:x");
    struct exec_info info;

    fixture_until(engine_calls(ENGINE_EXEC) == 1);
    exec_cancel(second);
    fixture_wait_exec(second, &info);
    assert_int_equal(info.status, EXEC_KILLED);
    assert_int_equal(info.started_us, 0);
    assert_false(info.has_exit_code);
    assert_false(exec_ended(first));
    engine_open_gate();
    fixture_wait_exec(first, &info);
    assert_int_equal(info.status, EXEC_EXITED);
    assert_int_equal(engine_calls(ENGINE_EXEC), 1);
    exec_cancel(second);
    exec_unref(first);
    exec_unref(second);
    session_unref(session);
}

static void a_cancelled_running_command_ends(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct exec *exec = fixture_submit(session, "o:so e:far hang");
    struct exec_info info;

    fixture_until(exec_size(exec, EXEC_OUTPUT) == 5);
    exec_cancel(exec);
    fixture_wait_exec(exec, &info);
    assert_int_equal(info.status, EXEC_KILLED);
    assert_int_equal(info.exit_code, 143);
    assert_view(exec, EXEC_OUTPUT, "sofar");
    exec_unref(exec);
    session_unref(session);
}

static void
a_command_cancelled_while_its_sandbox_starts_never_runs(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct exec *exec;
    struct exec_info info;

    engine_hold(ENGINE_CREATE, true);
    exec = fixture_submit(session, "o:x");
    fixture_until(engine_calls(ENGINE_CREATE) == 1);
    exec_cancel(exec);
    engine_hold(ENGINE_CREATE, false);
    fixture_wait_exec(exec, &info);
    assert_int_equal(info.status, EXEC_KILLED);
    assert_int_equal(engine_calls(ENGINE_EXEC), 0);
    exec_unref(exec);
    session_unref(session);
}

static void a_distant_engine_is_asked_once_a_second_at_most(void **state)
{
    static const struct {
        const char *words;
        unsigned asked; /* Calls of status by then. */
    } cases[] = {
        {"o:x", 0}, {"o:x", 0}, {"lost", 0}, {"o:x", 1}, {"o:x", 1},
    };
    struct fixture *fixture = *state;
    struct session *session;
    struct exec_info info;
    int64_t begin = clock_ms();
    unsigned asked = 0;

    fixture_close(fixture);
    fixture_open(fixture, "remote");
    session = fixture_create(fixture, "a");
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        fixture_exec(session, cases[i].words, &info);
        asked = engine_calls(ENGINE_STATUS);
        /* More where others had the processor for as long as that. */
        assert_true(asked == cases[i].asked ||
                    (asked > cases[i].asked && clock_ms() - begin >= 1000));
    }
    (void)usleep(1100 * 1000);
    fixture_exec(session, "o:x", &info);
    assert_int_equal(engine_calls(ENGINE_STATUS), asked + 1);
    session_unref(session);
}

static void output_after_the_end_still_arrives(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct exec *exec = fixture_submit(session, "o:a late:b");
    struct exec *again = NULL;
    struct exec_info info;
    struct err err = ERR_INIT;

    fixture_wait_exec(exec, &info);
    assert_int_equal(info.status, EXEC_EXITED);
    fixture_until(exec_size(exec, EXEC_OUTPUT) == 2);
    exec_unref(exec);
    assert_int_equal(session_exec_find(session, 1, &again, &err), 0);
    assert_view(again, EXEC_OUTPUT, "ab");
    exec_unref(again);
    session_unref(session);
}

/* ---- Watches ---- */

struct counted {
    struct exec_watch watch;
    atomic_uint woken;
};

static void count_wake(struct exec_watch *watch)
{
    atomic_fetch_add(&((struct counted *)(void *)watch)->woken, 1);
}

static void watches_wake_once_for_what_they_wait(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct exec *exec = fixture_submit(session, "o:ab gate e:c");
    struct counted out = {.watch = {.wake = count_wake}};
    struct counted error = {.watch = {.wake = count_wake}};
    struct counted end = {.watch = {.wake = count_wake}};
    struct counted gone = {.watch = {.wake = count_wake}};
    struct exec_info info;

    assert_true(exec_watch_end(exec, &end.watch));
    assert_true(exec_watch_end(exec, &gone.watch));
    assert_true(exec_unwatch(exec, &gone.watch));
    assert_false(exec_unwatch(exec, &gone.watch));
    fixture_until(exec_size(exec, EXEC_STDOUT) == 2);
    assert_false(exec_watch_output(exec, &out.watch, EXEC_STDOUT, 1));
    assert_true(exec_watch_output(exec, &out.watch, EXEC_STDOUT, 2));
    assert_true(exec_watch_output(exec, &error.watch, EXEC_STDERR, 0));
    engine_open_gate();
    fixture_wait_exec(exec, &info);
    fixture_until(atomic_load(&out.woken) == 1);
    fixture_until(atomic_load(&error.woken) == 1);
    fixture_until(atomic_load(&end.woken) == 1);
    assert_int_equal(atomic_load(&gone.woken), 0);
    assert_false(exec_unwatch(exec, &out.watch));
    assert_false(exec_watch_output(exec, &out.watch, EXEC_STDOUT, 2));
    assert_false(exec_watch_end(exec, &end.watch));
    exec_unref(exec);
    session_unref(session);
}

static void the_kernel_hears_of_changes_before_the_waiter(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = fixture_create(fixture, "a");
    struct exec_info info;
    unsigned before;

    assert_int_equal(fixture_ensure(session, false), 0);
    before = atomic_load(&fixture->changed);
    fixture_exec(session, "o:x", &info);
    /* When it begins, and when it has ended. */
    assert_int_equal(atomic_load(&fixture->changed), before + 2);
    session_unref(session);
}

/* ---- Finding ---- */

static bool add_number(void *arg, uint64_t n)
{
    uint64_t *sum = arg;

    *sum += n;
    return true;
}

static void ended_commands_are_read_back(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = fixture_create(fixture, "a");
    struct exec *exec = NULL;
    struct exec_info info;
    struct err err = ERR_INIT;
    uint64_t sum = 0;

    assert_int_equal(session_exec_last(session, &exec, &err), -ENOENT);
    for (int i = 0; i < 3; i++) {
        fixture_exec(session, "o:out e:err exit:2", &info);
    }
    session_unref(session);
    fixture_close(fixture);
    fixture_open(fixture, "local");
    session = fixture_find(fixture, "a");
    err_clear(&err);
    assert_int_equal(session_exec_find(session, 2, &exec, &err), 0);
    assert_true(exec_ended(exec));
    exec_info(exec, &info);
    assert_int_equal(info.status, EXEC_EXITED);
    assert_int_equal(info.exit_code, 2);
    assert_view(exec, EXEC_OUTPUT, "outerr");
    assert_view(exec, EXEC_STDERR, "err");
    exec_unref(exec);
    assert_int_equal(session_exec_find(session, 4, &exec, &err), -ENOENT);
    assert_int_equal(session_exec_find(session, 0, &exec, &err), -ENOENT);
    assert_int_equal(session_exec_each(session, 0, add_number, &sum, &err), 0);
    assert_int_equal(sum, 6);
    assert_int_equal(session_exec_each(session, 2, add_number, &sum, &err), 0);
    assert_int_equal(sum, 9);
    session_unref(session);
}

/* ---- Many ---- */

enum {
    STORM_THREADS = 50,
    STORM_EACH = 4
};

struct storm {
    struct fixture *fixture;
    unsigned number;
};

static void *storm_main(void *arg)
{
    const struct storm *storm = arg;
    char id[16];
    struct session *session;
    struct exec_info info;

    (void)snprintf(id, sizeof(id), "s%u", storm->number % 5);
    session = fixture_find(storm->fixture, id);
    for (int i = 0; i < STORM_EACH; i++) {
        fixture_exec(session, "o:x e:y exit:1", &info);
        if (info.status != EXEC_EXITED || info.exit_code != 1) {
            session_unref(session);
            return info.err.msg[0] ? strdup(info.err.msg) : strdup("?");
        }
    }
    session_unref(session);
    return NULL;
}

static void fifty_threads_meet_no_locked_database(void **state)
{
    struct fixture *fixture = *state;
    pthread_t threads[STORM_THREADS];
    struct storm storms[STORM_THREADS];
    struct err err = ERR_INIT;

    for (unsigned i = 0; i < 5; i++) {
        char id[16];

        (void)snprintf(id, sizeof(id), "s%u", i);
        assert_int_equal(
            registry_create(fixture->registry, id, &me, NULL, &err), 0);
    }
    for (unsigned i = 0; i < STORM_THREADS; i++) {
        storms[i] = (struct storm){.fixture = fixture, .number = i};
        assert_int_equal(
            pthread_create(&threads[i], NULL, storm_main, &storms[i]), 0);
    }
    for (unsigned i = 0; i < STORM_THREADS; i++) {
        void *words = NULL;

        assert_int_equal(pthread_join(threads[i], &words), 0);
        if (words) {
            fail_msg("%s", (char *)words);
        }
    }
    assert_int_equal(engine_calls(ENGINE_EXEC), STORM_THREADS * STORM_EACH);
    assert_int_equal(engine_calls(ENGINE_CREATE), 5);
}

static void closing_ends_commands_and_pauses_what_runs(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = fixture_create(fixture, "a");
    struct exec *running = fixture_submit(session, "o:x hang");
    struct exec *queued = fixture_submit(session, "o:y");
    struct exec_info info;
    struct err err = ERR_INIT;

    fixture_until(exec_size(running, EXEC_OUTPUT) == 1);
    exec_unref(running);
    exec_unref(queued);
    session_unref(session);
    fixture_close(fixture);
    assert_int_equal(engine_calls(ENGINE_PAUSE), 1);
    assert_int_equal(engine_calls(ENGINE_EXEC), 1);
    fixture_open(fixture, "local");
    session = fixture_find(fixture, "a");
    assert_int_equal(session_status(session), SESSION_PAUSED);
    for (uint64_t n = 1; n <= 2; n++) {
        struct exec *exec = NULL;

        assert_int_equal(session_exec_find(session, n, &exec, &err), 0);
        exec_info(exec, &info);
        assert_int_equal(info.status, EXEC_KILLED);
        exec_unref(exec);
    }
    session_unref(session);
}

static bool is_there(struct session *session, uint64_t n)
{
    struct exec *exec = NULL;
    struct err err = ERR_INIT;
    int rc = session_exec_find(session, n, &exec, &err);

    assert_true(rc == 0 || rc == -ENOENT);
    exec_unref(exec);
    return rc == 0;
}

/* Gone are the commands before the newest, but for those that somebody holds:
 * until nobody does. */
static void a_command_stays_while_it_is_read(void **state)
{
    struct fixture *fixture = *state;
    struct session *session;
    struct exec *held = NULL;
    struct exec_info info;
    struct err err = ERR_INIT;

    fixture_close(fixture);
    fixture->execs_keep = 3;
    fixture_open(fixture, "local");
    session = fixture_create(fixture, "a");
    fixture_exec(session, "o:first", &info);
    assert_int_equal(session_exec_find(session, 1, &held, &err), 0);
    for (int i = 2; i <= 10; i++) {
        fixture_exec(session, "o:x", &info);
    }
    fixture_until(!is_there(session, 7));
    assert_view(held, EXEC_OUTPUT, "first");
    assert_true(is_there(session, 1));
    exec_unref(held);
    fixture_until(!is_there(session, 1));
    assert_true(is_there(session, 8));
    session_unref(session);
}

static bool add_up(void *arg, uint64_t n)
{
    *(uint64_t *)arg = *(uint64_t *)arg * 10 + n;
    return true;
}

static void what_is_too_much_at_a_start_is_not_listed(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = fixture_create(fixture, "a");
    uint64_t listed = 0;
    struct exec_info info;
    struct err err = ERR_INIT;

    for (int i = 1; i <= 7; i++) {
        fixture_exec(session, "o:x", &info);
    }
    session_unref(session);
    fixture_close(fixture);
    fixture->execs_keep = 3;
    fixture_open(fixture, "local");
    session = fixture_find(fixture, "a");
    assert_int_equal(session_exec_each(session, 0, add_up, &listed, &err), 0);
    assert_int_equal(listed, 567);
    session_unref(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_command_ends_as_the_engine_says),
        FIXTURE_TEST(output_is_split_and_in_order),
        FIXTURE_TEST(bad_scripts_are_refused_and_take_no_number),
        FIXTURE_TEST(a_command_is_kept_as_it_was_written),
        FIXTURE_TEST(commands_run_one_after_another),
        FIXTURE_TEST(life_waits_for_no_command_but_is_refused),
        FIXTURE_TEST(whoever_ensures_waits_for_no_command),
        FIXTURE_TEST(a_session_can_be_paused_once_its_command_has_ended),
        FIXTURE_TEST(a_cancelled_command_in_the_queue_never_runs),
        FIXTURE_TEST(a_cancelled_running_command_ends),
        FIXTURE_TEST(a_command_cancelled_while_its_sandbox_starts_never_runs),
        FIXTURE_TEST(a_distant_engine_is_asked_once_a_second_at_most),
        FIXTURE_TEST(output_after_the_end_still_arrives),
        FIXTURE_TEST(watches_wake_once_for_what_they_wait),
        FIXTURE_TEST(the_kernel_hears_of_changes_before_the_waiter),
        FIXTURE_TEST(ended_commands_are_read_back),
        FIXTURE_TEST(a_command_stays_while_it_is_read),
        FIXTURE_TEST(what_is_too_much_at_a_start_is_not_listed),
        FIXTURE_TEST(fifty_threads_meet_no_locked_database),
        FIXTURE_TEST(closing_ends_commands_and_pauses_what_runs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
