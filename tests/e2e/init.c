/* Init commands, seen through the mount. */
#include "tests/e2e/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

/* Commands of the config, whatever the provider's commands are. */
static void init_with(const char *commands)
{
    char fields[1024];

    (void)snprintf(fields, sizeof(fields), "\"init\": {\"commands\": [%s]}",
                   commands);
    configure(fields);
}

static const char *hangs(void)
{
    return mnt_sh() ? "\"echo begun; sleep 29.3\"" : "\"echo begun\\nhang\"";
}

static const char *fails(void)
{
    return mnt_sh() ? "\"echo bad >&2; exit 7\"" : "\"err bad\\nexit 7\"";
}

/* `jsonl` has no pause. */
static void pause_where_there_is_one(void)
{
    if (!mnt_scripts()) {
        put_ok(in("status"), "paused");
    }
}

static void they_run_once_in_order_before_the_first_command(void **state)
{
    (void)state;
    init_with("\"echo one\", \"echo two\"");
    put_ok(in("exec"), "echo mine");
    expect_shell("cat execs/1/output execs/2/output execs/3/output exec; "
                 "cat execs/2/command; echo; readlink execs/last; "
                 "grep -o '\"event\":\"init[.a-z]*' events",
                 "one\ntwo\nmine\nmine\necho two\n3\n"
                 "\"event\":\"init.started\n\"event\":\"init.completed\n");
    pause_where_there_is_one();
    put_ok(in("exec"), "echo more");
    expect_shell("ls execs | tr '\\n' ' '; cat exec; "
                 "grep -c '\"init_completed_at\": *\"' status.json || "
                 "grep -c '\"init_completed_at\":\"' status.json",
                 "1 2 3 4 last more\n1\n");
    put_ok(in("status"), "absent");
    put_ok(in("status"), "running");
    expect_text(in("execs/5/output"), "one\n");
    expect_text(in("execs/6/output"), "two\n");
    /* None of them is anybody's newest command. */
    expect_text(in("exec"), "more\n");
}

static void a_failing_one_is_an_error_that_says_what_it_said(void **state)
{
    char commands[256];
    struct wrote done;

    (void)state;
    (void)snprintf(commands, sizeof(commands),
                   "\"echo one\", %s, \"echo three\"", fails());
    init_with(commands);
    done = put(in("exec"), "echo mine");
    assert_int_equal(done.open, EIO);
    expect_text(in("status"), "running\n");
    expect_text(in("execs/2/exit_code"), "7\n");
    expect_text(in("execs/2/stderr"), "bad\n");
    expect_shell("grep -o 'Session sandbox init failed.*' error; "
                 "grep -o 'Init command failed with exit code 7' status.json; "
                 "ls execs | tr '\\n' ' '; echo x > workspace/f; "
                 "cat workspace/f",
                 mnt_sh() ? "Session sandbox init failed for command "
                            "'echo bad >&2; exit 7': bad\n"
                            "Init command failed with exit code 7\n"
                            "1 2 x\n"
                          : "Session sandbox init failed for command "
                            "'err bad?exit 7': bad\n"
                            "Init command failed with exit code 7\n"
                            "1 2 x\n");
    done = put(in("status"), "running");
    assert_int_equal(done.write, EIO);
    expect_text(in("execs/3/output"), "one\n");
    /* It may be mended while it has not succeeded. */
    init_with("\"echo mended\"");
    put_ok(in("exec"), "echo mine");
    expect_shell("cat execs/5/output execs/6/output; "
                 "grep -c 'last_init_error[\": ]*null' status.json",
                 "mended\nmine\n1\n");
}

static int start_it(void *arg)
{
    struct wrote done;

    (void)arg;
    child_ready();
    done = put(in("exec"), "echo mine");
    return done.open | done.write | done.close;
}

/* Begins a command whose init hangs. */
static struct child hang(void)
{
    struct child child;

    init_with(hangs());
    child = child_start(start_it, NULL);
    child_await(&child);
    eventually(access(in("execs/1"), F_OK) == 0);
    eventually_text(in("execs/1/output"), "begun\n");
    return child;
}

static void a_hanging_one_is_ended_by_a_signal(void **state)
{
    struct child child;

    (void)state;
    child = hang();
    expect_text(in("execs/1/status"), "running\n");
    expect_text(in("status"), "starting\n");
    assert_int_equal(put(in("status"), "paused").write, EBUSY);
    assert_int_equal(put(in("status"), "absent").write, EBUSY);
    expect_shell(
        "grep -c 'EBUSY command 1 runs; echo KILL > execs/1/signal ends it' "
        "error",
        "2\n");
    put_ok(in("execs/1/signal"), "KILL");
    assert_int_equal(child_end(&child, TOOLS_SOON_MS), EIO);
    expect_text(in("execs/1/status"), "killed\n");
    eventually(!process_exists("sleep 29.3"));
    expect_text(in("status"), "running\n");
    pause_where_there_is_one();
}

static void the_end_of_the_mount_ends_a_hanging_one(void **state)
{
    struct child child;

    (void)state;
    child = hang();
    assert_int_equal(kill(mnt.pid, SIGTERM), 0);
    mnt_stopped();
    assert_int_not_equal(child_end(&child, TOOLS_SOON_MS), 0);
    mnt_start();
    expect_text(in("execs/1/status"), "killed\n");
    expect_shell("grep -c init.failed events", "1\n");
    eventually(!process_exists("sleep 29.3"));
}

static void a_daemon_that_dies_meanwhile_leaves_it_to_be_run_again(void **state)
{
    struct child child;

    (void)state;
    child = hang();
    assert_int_equal(kill(mnt.pid, SIGKILL), 0);
    assert_int_not_equal(child_end(&child, TOOLS_SOON_MS), 0);
    assert_int_equal(waitpid(mnt.pid, NULL, 0), mnt.pid);
    (void)umount2(mnt.path, MNT_DETACH);
    mnt_start();
    expect_text(in("execs/1/status"), "lost\n");
    expect_shell("grep -o 'Init was interrupted' status.json",
                 "Init was interrupted\n");
    init_with("\"echo well\"");
    put_ok(in("status"), "running"); /* With mem, an empty one. */
    expect_text(in("execs/2/output"), "well\n");
    put_ok(in("exec"), "echo mine");
    expect_text(in("exec"), "mine\n");
    if (mnt_scripts()) {
        /* Its sandbox is as it was, but what ran in it has been ended. */
        eventually(!process_exists("sleep 29.3"));
    }
}

static const struct CMUnitTest tests[] = {
    e2e_test(they_run_once_in_order_before_the_first_command),
    e2e_test(a_failing_one_is_an_error_that_says_what_it_said),
    e2e_test(a_hanging_one_is_ended_by_a_signal),
    e2e_test(the_end_of_the_mount_ends_a_hanging_one),
    e2e_test(a_daemon_that_dies_meanwhile_leaves_it_to_be_run_again),
};

E2E_MAIN(tests)
