/*
 * The daemon dies at each of its named crash points, in the middle of what a
 * user does. Whatever was reported before is there after the next start, what
 * the records say is true, and nothing is left behind.
 */
#include "tests/e2e/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum step {
    STEP_RUN,   /* Makes the sandbox run. */
    STEP_WRITE, /* A file, with fsync. */
    STEP_EXEC,  /* A command that leaves a process behind. */
    STEP_PAUSE,
    STEP_RESUME,
    STEP_DELETE,
    STEP_RMDIR,
    STEPS,
};

enum after {
    AFTER_NOTHING, /* The session is gone. */
    AFTER_ABSENT,  /* It has no sandbox. */
    AFTER_SANDBOX, /* It has one; where it died with the daemon: `lost`. */
};

static const struct crash {
    const char *point;
    enum step step; /* In which it dies. */
    enum after after;
    const char *exec; /* The command's status then, or NULL: none; */
    bool adopted;     /* where it is adopted, it has exited. */
} crashes[] = {
    {"create-intent", STEP_RUN, AFTER_ABSENT, NULL, false},
    {"create-done", STEP_RUN, AFTER_ABSENT, NULL, false},
    {"create-recorded", STEP_RUN, AFTER_SANDBOX, NULL, false},
    {"exec-queued", STEP_EXEC, AFTER_SANDBOX, "lost\n", false},
    {"exec-begun", STEP_EXEC, AFTER_SANDBOX, "lost\n", false},
    {"exec-started", STEP_EXEC, AFTER_SANDBOX, "lost\n", true},
    {"exec-ended", STEP_EXEC, AFTER_SANDBOX, "lost\n", true},
    {"exec-recorded", STEP_EXEC, AFTER_SANDBOX, "exited\n", false},
    {"pause-done", STEP_PAUSE, AFTER_SANDBOX, "exited\n", false},
    {"resume-done", STEP_RESUME, AFTER_SANDBOX, "exited\n", false},
    {"destroy-intent", STEP_DELETE, AFTER_ABSENT, "exited\n", false},
    {"destroy-done", STEP_DELETE, AFTER_ABSENT, "exited\n", false},
    {"session-removed", STEP_RMDIR, AFTER_NOTHING, NULL, false},
};

/* What the command's process that stays is called; nobody else's is. */
static const char *marker(void)
{
    static char text[64];

    (void)snprintf(text, sizeof(text), "sleep 39.%d%u", (int)getpid(),
                   mnt.tests);
    return text;
}

static const char *script_text(void)
{
    static char text[128];

    (void)snprintf(text, sizeof(text),
                   mnt_local() ? "%s & echo out\nexit 3\n"
                               : "# %s\necho out\nexit 3\n",
                   marker());
    return text;
}

/* Whether the engine has that step: `jsonl` never pauses. */
static bool can(enum step step)
{
    return !mnt_scripts() || (step != STEP_PAUSE && step != STEP_RESUME);
}

static int first(struct wrote done)
{
    return done.open ? done.open : done.write ? done.write : done.close;
}

static int write_file(void)
{
    int fd = open(in("workspace/kept"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    int rc = 0;

    if (fd < 0) {
        return errno;
    }
    if (write(fd, "kept\n", 5) != 5 || fsync(fd) != 0) {
        rc = errno;
    }
    (void)close(fd);
    return rc;
}

/* Does one step; 0 or a positive errno. */
static int take(enum step step)
{
    switch (step) {
    case STEP_RUN:
    case STEP_RESUME:
        return first(put(in("status"), "running"));
    case STEP_WRITE:
        return write_file();
    case STEP_EXEC:
        return first(put(in("exec"), script_text()));
    case STEP_PAUSE:
        return first(put(in("status"), "paused"));
    case STEP_DELETE:
        return first(put(in("status"), "absent"));
    case STEP_RMDIR:
        return rmdir(mnt.session) == 0 ? 0 : errno;
    case STEPS:
        break;
    }
    return EINVAL;
}

/* A daemon of ours that will die at a point, and the steps up to there. */
static void die_at(const struct crash *crash)
{
    int status = 0;
    int rc;

    mnt_stop();
    expect_ok(setenv("SESSIONFS_CRASH", crash->point, 1));
    mnt_start();
    expect_ok(unsetenv("SESSIONFS_CRASH"));
    for (enum step step = STEP_RUN; step < crash->step; step++) {
        rc = can(step) ? take(step) : 0;
        if (rc != 0) {
            fail_msg("step %d: %s", (int)step, strerror(rc));
        }
    }
    /* Nobody is told that this one succeeded. */
    assert_int_not_equal(take(crash->step), 0);
    assert_int_equal(waitpid(mnt.pid, &status, 0), mnt.pid);
    mnt.pid = 0;
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
}

/* That of mem dies with the daemon, any other lives on as it was. */
static const char *status_after(const struct crash *crash)
{
    if (crash->after != AFTER_SANDBOX) {
        return "absent\n";
    }
    if (!mnt_sh()) {
        return "lost\n";
    }
    return crash->step == STEP_PAUSE ? "paused\n" : "running\n";
}

static void check_sandbox(const struct crash *crash)
{
    eventually_text(in("status"), status_after(crash));
    if (crash->after != AFTER_SANDBOX) {
        expect_errno(access(in("workspace/kept"), F_OK), ENOENT);
        return;
    }
    if (mnt_sh() && crash->step > STEP_WRITE) {
        expect_text(in("workspace/kept"), "kept\n");
    }
}

static void check_command(const struct crash *crash)
{
    const char *status =
        crash->adopted && mnt_local() ? "exited\n" : crash->exec;

    if (!crash->exec) {
        expect_shell("ls execs", "");
        return;
    }
    eventually_text(in("execs/1/status"), status);
    expect_text(in("execs/1/command"), script_text());
    if (strcmp(status, "exited\n") == 0) {
        expect_text(in("execs/1/exit_code"), "3\n");
        expect_text(in("execs/1/output"), "out\n");
        expect_text(in("execs/1/wait"), "3\n");
    } else {
        expect_text(in("execs/1/exit_code"), "");
        expect_text(in("execs/1/wait"), "");
        assert_true(strlen(text_of(in("execs/1/error"))) > 1);
    }
}

/* Each line of events is whole and has the next number. */
static const char events[] =
    "python3 -c 'import json\n"
    "lines = open(\"events\").read().splitlines()\n"
    "assert [json.loads(l)[\"seq\"] for l in lines] == "
    "list(range(1, len(lines) + 1)), lines\n'";

/* Whether the engine has nothing, not even what was made and not recorded. */
static bool engine_is_empty(void)
{
    return !mnt_scripts() ||
           system("! ls -d \"$FAKE_ROOT\"/sessionfs-* >/dev/null 2>&1") == 0;
}

static void end_session(void)
{
    if (can(STEP_PAUSE)) {
        put_ok(in("status"), "paused");
    }
    put_ok(in("status"), "absent");
    expect_ok(rmdir(mnt.session));
    eventually(!process_exists(marker()));
    assert_true(engine_is_empty());
}

/* It is as usable as ever, and no number comes twice. */
static void check_usable(const struct crash *crash)
{
    put_ok(in("status"), "running");
    put_ok(in("exec"), "echo again");
    expect_text(in("exec"), "again\n");
    expect_shell("readlink execs/last", crash->exec ? "2\n" : "1\n");
    expect_shell(events, "");
    end_session();
}

static void check_gone(void)
{
    char script[2 * MNT_PATH_SIZE];
    struct buf out = BUF_INIT(TOOLS_TEXT_MAX);
    char id[64];

    (void)snprintf(id, sizeof(id), "%s", mnt.id);
    expect_errno(access(mnt.session, F_OK), ENOENT);
    (void)e2e_setup(NULL);
    (void)snprintf(script, sizeof(script),
                   "for i in $(seq 500); do "
                   "[ -z \"$(ls %s/sessions)\" ] && break; sleep 0.01; done; "
                   "ls %s/sessions",
                   mnt.state, mnt.state);
    assert_int_equal(shell(script, TOOLS_SHELL_MS, &out), 0);
    assert_string_equal(buf_str(&out), "");
    buf_done(&out);
    mnt_session(id);
    expect_text(at("sessions/%s/status", id), "absent\n");
    expect_ok(rmdir(at("sessions/%s", id)));
    expect_ok(rmdir(mnt.session));
}

static void check(const struct crash *crash)
{
    expect_sound_database();
    mnt_start();
    expect_nothing_left();
    if (crash->after == AFTER_NOTHING) {
        eventually(!process_exists(marker()));
        check_gone();
        return;
    }
    check_sandbox(crash);
    check_command(crash);
    check_usable(crash);
}

static void a_death_at_any_point_loses_nothing_that_was_reported(void **state)
{
    (void)state;
    expect_ok(rmdir(mnt.session));
    for (size_t i = 0; i < ARRAY_SIZE(crashes); i++) {
        if (!can(crashes[i].step)) {
            continue;
        }
        print_message("  dies at %s\n", crashes[i].point);
        (void)e2e_setup(NULL);
        die_at(&crashes[i]);
        check(&crashes[i]);
    }
    expect_sound_database();
}

static const struct CMUnitTest tests[] = {
    e2e_test(a_death_at_any_point_loses_nothing_that_was_reported),
};

E2E_MAIN(tests)
