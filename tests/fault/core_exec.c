/* Commands that cannot be run, or whose output or record cannot be kept. */
#include "tests/unit/core_fixture.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* No file may grow beyond a size, as on a full disk. */
static void limit_files(rlim_t size)
{
    struct rlimit limit;

    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = size ? size : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_command_that_cannot_run_keeps_its_number(void **state)
{
    static const enum engine_slot slots[] = {ENGINE_CREATE, ENGINE_EXEC};
    struct session *session = fixture_create(*state, "a");
    struct exec *last = NULL;
    struct exec_info info;
    struct err err = ERR_INIT;

    for (size_t i = 0; i < ARRAY_SIZE(slots); i++) {
        engine_fail(slots[i], EDQUOT);
        fixture_exec(session, "o:x", &info);
        assert_int_equal(info.n, i + 1);
        assert_int_equal(info.status, EXEC_FAILED);
        assert_int_equal(info.err.code, EDQUOT);
        assert_non_null(strstr(info.err.msg, "on purpose"));
        engine_fail(slots[i], 0);
    }
    assert_int_equal(session_exec_last(session, &last, &err), 0);
    assert_int_equal(exec_number(last), 2);
    exec_info(last, &info);
    assert_int_equal(info.status, EXEC_FAILED);
    exec_unref(last);
    session_unref(session);
}

static void
a_failing_checkpoint_fails_the_command_but_keeps_its_end(void **state)
{
    struct fixture *fixture = *state;
    struct session *session;
    struct exec_info info;

    fixture_close(fixture);
    fixture_open(fixture, "remote");
    session = fixture_create(fixture, "a");
    fixture_exec(session, "exit:3", &info);
    assert_int_equal(info.status, EXEC_EXITED);
    assert_int_equal(engine_calls(ENGINE_CHECKPOINT), 1);
    engine_fail(ENGINE_CHECKPOINT, ENOSPC);
    fixture_exec(session, "exit:3", &info);
    assert_int_equal(info.status, EXEC_FAILED);
    assert_int_equal(info.err.code, ENOSPC);
    assert_true(info.has_exit_code);
    assert_int_equal(info.exit_code, 3);
    session_unref(session);
}

static void output_that_cannot_be_kept_is_told(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = fixture_create(fixture, "a");
    struct exec_info info;
    char path[160];

    fixture_exec(session, "o:x", &info);
    /* A directory where the next command's log should be. */
    (void)snprintf(path, sizeof(path), "%s/sessions/%llu/execs/2.log",
                   fixture->dir, (unsigned long long)session_number(session));
    assert_int_equal(mkdir(path, 0700), 0);
    fixture_exec(session, "exit:4", &info);
    assert_int_equal(info.n, 2);
    assert_int_equal(info.status, EXEC_FAILED);
    assert_int_equal(info.err.code, EISDIR);
    session_unref(session);
}

static void output_that_is_cut_off_is_told_and_the_exit_code_kept(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct exec *exec = NULL;
    struct exec_info info;
    struct err err = ERR_INIT;

    assert_int_equal(fixture_ensure(session, false), 0);
    limit_files(1024 * 1024);
    fixture_exec(session, "fill:2000000 exit:4", &info);
    limit_files(0);
    assert_int_equal(info.status, EXEC_FAILED);
    assert_int_equal(info.err.code, EFBIG);
    assert_non_null(strstr(info.err.msg, "cut off"));
    assert_true(info.has_exit_code);
    assert_int_equal(info.exit_code, 4);
    assert_int_equal(session_exec_last(session, &exec, &err), 0);
    assert_int_equal(exec_size(exec, EXEC_STDOUT), 1024 * 1024);
    exec_unref(exec);
    session_unref(session);
}

/* A command whose end comes while the disk is full. */
static void end_unrecorded(struct session *session)
{
    struct exec *exec;
    struct exec_info info;

    assert_int_equal(fixture_ensure(session, false), 0);
    exec = fixture_submit(session, "o:x gate exit:3");
    fixture_until(exec_size(exec, EXEC_OUTPUT) == 1);
    limit_files(4096);
    engine_open_gate();
    fixture_wait_exec(exec, &info);
    exec_unref(exec);
}

static void expect_unrecorded(struct session *session)
{
    struct exec *exec = NULL;
    struct exec_info info;
    struct err err = ERR_INIT;

    assert_int_equal(session_exec_last(session, &exec, &err), 0);
    exec_info(exec, &info);
    exec_unref(exec);
    assert_int_equal(info.status, EXEC_FAILED);
    assert_non_null(strstr(info.err.msg, "cannot record the command's end"));
    assert_true(info.has_exit_code);
    assert_int_equal(info.exit_code, 3);
}

/* Recorded when it is looked at, with another's end, or at the mount's end. */
static void an_end_that_cannot_be_recorded_is_recorded_later(void **state)
{
    struct fixture *fixture = *state;
    static const char *const ids[] = {"a", "b", "c"};

    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        struct session *session = fixture_create(fixture, ids[i]);
        struct exec_info info;

        engine_reset();
        end_unrecorded(session);
        if (i == 0) {
            expect_unrecorded(session);
        }
        limit_files(0);
        if (i == 1) {
            fixture_exec(session, "exit:0", &info);
            assert_int_equal(info.status, EXEC_EXITED);
        } else {
            expect_unrecorded(session);
        }
        session_unref(session);
        fixture_close(fixture);
        fixture_open(fixture, "local");
        session = fixture_find(fixture, ids[i]);
        if (i != 1) {
            expect_unrecorded(session);
        }
        session_unref(session);
    }
}

static void a_full_disk_refuses_commands_and_harms_none(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = fixture_create(fixture, "a");
    struct exec *exec = NULL;
    struct exec_info info;
    struct err err = ERR_INIT;
    int rc;

    fixture_exec(session, "o:x", &info);
    limit_files(4096);
    rc = exec_submit(session, "o:y", 3, &me, &exec, &err);
    assert_true(rc < 0);
    assert_non_null(strstr(err.msg, "cannot record the command"));
    err_clear(&err);
    assert_int_equal(session_exec_refused(session, &err), rc);
    assert_true(registry_create(fixture->registry, "b", &me, NULL, &err) < 0);
    limit_files(0);
    fixture_exec(session, "o:z", &info);
    assert_int_equal(info.status, EXEC_EXITED);
    assert_int_equal(info.n, 2);
    assert_int_equal(session_exec_refused(session, &err), 0);
    assert_int_equal(registry_count(fixture->registry), 1);
    session_unref(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_command_that_cannot_run_keeps_its_number),
        FIXTURE_TEST(a_failing_checkpoint_fails_the_command_but_keeps_its_end),
        FIXTURE_TEST(output_that_cannot_be_kept_is_told),
        FIXTURE_TEST(output_that_is_cut_off_is_told_and_the_exit_code_kept),
        FIXTURE_TEST(an_end_that_cannot_be_recorded_is_recorded_later),
        FIXTURE_TEST(a_full_disk_refuses_commands_and_harms_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
