/*
 * The daemon dies at each step of a command's and a sandbox's life; the next
 * start finds a state that says what happened, and nothing is left behind.
 */
#include "tests/unit/core_fixture.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What is done in the process that dies. */
static void live(struct fixture *fixture)
{
    struct session *session = fixture_create(fixture, "a");
    struct exec_info info;

    fixture_exec(session, "o:out exit:3", &info);
    assert_int_equal(fixture_pause(session), 0);
    assert_int_equal(fixture_ensure(session, false), 0);
    assert_int_equal(fixture_destroy(session), 0);
    session_unref(session);
}

struct crash {
    const char *point;
    /* After the next start has settled: */
    int exec; /* enum exec_status of the first command; -1: there is none. */
    enum session_status status; /* While the engine says that it runs. */
    unsigned destroyed;         /* Calls of destroy by the next start. */
};

static const struct crash crashes[] = {
    {"exec-queued", EXEC_LOST, SESSION_ABSENT, 0},
    {"create-intent", EXEC_LOST, SESSION_ABSENT, 1},
    {"create-done", EXEC_LOST, SESSION_ABSENT, 1},
    {"create-recorded", EXEC_LOST, SESSION_RUNNING, 0},
    {"exec-begun", EXEC_LOST, SESSION_RUNNING, 0},
    {"exec-started", EXEC_LOST, SESSION_RUNNING, 0},
    {"exec-ended", EXEC_LOST, SESSION_RUNNING, 0},
    {"exec-recorded", EXEC_EXITED, SESSION_RUNNING, 0},
    {"pause-done", EXEC_EXITED, SESSION_RUNNING, 0},
    {"resume-done", EXEC_EXITED, SESSION_RUNNING, 0},
    {"destroy-intent", EXEC_EXITED, SESSION_ABSENT, 1},
    {"destroy-done", EXEC_EXITED, SESSION_ABSENT, 1},
};

static void assert_command(struct session *session, int status)
{
    struct exec *exec = NULL;
    struct exec_info info;
    struct err err = ERR_INIT;
    char out[8];

    assert_int_equal(session_exec_find(session, 1, &exec, &err), 0);
    exec_info(exec, &info);
    assert_int_equal(info.status, status);
    assert_true(exec_ended(exec));
    assert_true(info.ended_us > 0);
    if (status == EXEC_EXITED) {
        assert_int_equal(info.exit_code, 3);
        assert_int_equal(exec_read(exec, EXEC_STDOUT, 0, out, 8, &err), 3);
        assert_memory_equal(out, "out", 3);
    } else {
        assert_false(info.has_exit_code);
        assert_int_equal(info.err.code, ESTALE);
    }
    exec_unref(exec);
}

/* Each line of events has the next number, and is a whole line. */
static void assert_events(struct session *session)
{
    char *events = fixture_events(session);
    unsigned seq = 0;
    char *rest = NULL;

    for (char *line = strtok_r(events, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest)) {
        char want[32];

        (void)snprintf(want, sizeof(want), "\"seq\":%u,", ++seq);
        assert_non_null(strstr(line, want));
        assert_int_equal(line[strlen(line) - 1], '}');
    }
    assert_true(seq > 1);
    free(events);
}

static void settle(struct fixture *fixture, const struct crash *crash)
{
    struct session *session = fixture_next_start(fixture);
    struct exec_info info;
    struct err err = ERR_INIT;

    fixture_until(session_status(session) == crash->status);
    assert_int_equal(engine_calls(ENGINE_DESTROY), crash->destroyed);
    assert_command(session, crash->exec);
    assert_events(session);
    /* It is as usable as ever, and no number comes twice. */
    fixture_exec(session, "exit:1", &info);
    assert_int_equal(info.n, 2);
    assert_int_equal(info.status, EXEC_EXITED);
    assert_int_equal(fixture_destroy(session), 0);
    assert_int_equal(registry_remove(fixture->registry, "a", &err), 0);
    session_unref(session);
    fixture_close(fixture);
    loop_free(fixture->loop);
    fixture->loop = NULL;
}

static void a_crash_at_any_step_leaves_nothing_half_done(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(crashes); i++) {
        struct fixture *fixture = fixture_new();

        print_message("  dies at %s\n", crashes[i].point);
        fixture_die_at(fixture, crashes[i].point, live);
        settle(fixture, &crashes[i]);
        fixture_free(fixture);
    }
}

static void remove_and_die(struct fixture *fixture)
{
    struct err err = ERR_INIT;
    struct session *session;

    assert_int_equal(loop_new(&fixture->loop, &err), 0);
    fixture_open(fixture, "local");
    session = fixture_create(fixture, "a");
    assert_int_equal(fixture_ensure(session, false), 0);
    assert_int_equal(fixture_destroy(session), 0);
    (void)setenv("SESSIONFS_CRASH", "session-removed", 1);
    (void)!registry_remove(fixture->registry, "a", &err);
    _exit(0);
}

static void a_crash_at_a_removal_leaves_no_files(void **state)
{
    struct fixture *fixture = fixture_new();
    struct err err = ERR_INIT;
    pid_t child = fork();
    char path[128];
    int status = 0;

    (void)state;
    if (child == 0) {
        remove_and_die(fixture);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    (void)snprintf(path, sizeof(path), "%s/sessions/1", fixture->dir);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(loop_new(&fixture->loop, &err), 0);
    fixture_open(fixture, "local");
    assert_int_equal(registry_count(fixture->registry), 0);
    fixture_until(access(path, F_OK) < 0);
    fixture_close(fixture);
    loop_free(fixture->loop);
    fixture_free(fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crash_at_any_step_leaves_nothing_half_done),
        cmocka_unit_test(a_crash_at_a_removal_leaves_no_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
