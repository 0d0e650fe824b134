/*
 * Checkpoints where something fails: an engine that refuses, a sandbox that
 * vanishes, a command that runs, a daemon that dies at each named point.
 */
#include "tests/e2e/tools.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Takes times out of checkpoints.log. */
#define LOG "cut -d' ' -f1,3,4 checkpoints.log\n"

/* ---- What goes wrong ---- */

static void a_command_whose_checkpoint_fails_has_failed(void **state)
{
    struct wrote wrote;

    (void)state;
    put_ok(in("exec"), "write f one");
    mnt_fault(mnt.id, "checkpoint", "errno ENOSPC");
    wrote = put(in("exec"), "write f two");
    assert_int_equal(wrote.close, ENOSPC);
    expect_text(in("execs/2/status"), "failed\n");
    expect_text(in("execs/2/exit_code"), "0\n");
    expect_shell("cat execs/2/error; ls checkpoints; cat workspace/f\n"
                 "cat exec 2>&1 | grep -o 'No space.*'\n",
                 "checkpoint: checkpoint was told to fail\n1\ntwo\n"
                 "No space left on device\n");
    mnt_fault(mnt.id, "checkpoint", NULL);
    put_ok(in("exec"), "write g three");
    expect_shell("cat execs/3/changes changes/2\n", "A\tg\nM\tf\n");
}

/* As with a workspace that is a plain directory. */
static void a_sandbox_that_keeps_none_runs_commands_all_the_same(void **state)
{
    (void)state;
    mnt_fault(mnt.id, "checkpoint", "errno EOPNOTSUPP");
    put_ok(in("workspace/g"), "one\n");
    put_ok(in("exec"), "write f one");
    expect_text(in("execs/1/status"), "exited\n");
    expect_errno(mkdir(in("checkpoints/it"), 0755), EOPNOTSUPP);
    assert_int_equal(put(in("fork"), "child").write, EOPNOTSUPP);
    expect_errno(access(at("sessions/child"), F_OK), ENOENT);
    expect_shell("ls checkpoints; cat checkpoints.log execs/1/changes\n", "");
    expect_shell("grep -c checkpoint execs/1/result.json error\n",
                 "execs/1/result.json:0\nerror:2\n");
}

/* EOPNOTSUPP is an everyday answer, but not here. */
static void changes_that_cannot_be_told_say_so(void **state)
{
    (void)state;
    put_ok(in("workspace/g"), "one\n");
    mnt_fault(mnt.id, "changes", "errno EOPNOTSUPP");
    expect_shell("cat changes/base 2>&1 | grep -o 'not supported'\n"
                 "tail -n 1 error | cut -d ' ' -f 2-3,5-\n",
                 "not supported\n"
                 "open \"base\" EOPNOTSUPP changes was told to fail\n");
}

static void what_could_not_be_gathered_is_told_and_tried_again(void **state)
{
    (void)state;
    put_ok(in("exec"), "write f one");
    mnt_fault(mnt.id, "checkpoint", "errno EIO");
    put_ok(in("workspace/g"), "two\n");
    eventually(strstr(text_of(in("error")), "checkpoint"));
    assert_non_null(strstr(text_of(in("events")), "sandbox.failed"));
    mnt_fault(mnt.id, "checkpoint", NULL);
    put_ok(in("exec"), "write h three");
    expect_shell("cat changes/2 execs/2/changes\n" LOG,
                 "A\tg\nA\th\n1 exec:1 1\n2 write 1\n3 exec:2 1\n");
}

/* Each is refused at once while a command runs. */
static void nothing_is_restored_or_named_while_a_command_runs(void **state)
{
    (void)state;
    put_ok(in("exec"), "write f one");
    put_ok(in("exec.json"),
           "{\"command\": \"sleep 5000\", \"background\": true}");
    assert_int_equal(put(in("restore"), "1").write, EBUSY);
    expect_errno(mkdir(in("checkpoints/it"), 0755), EBUSY);
    assert_int_equal(put(in("fork"), "now").write, EBUSY);
    expect_errno(access(at("sessions/now"), F_OK), ENOENT);
    put_ok(in("fork"), "then 1"); /* That is no matter of the command. */
    expect_text(at("sessions/then/workspace/f"), "one\n");
    put_ok(at("sessions/then/status"), "absent");
    expect_ok(rmdir(at("sessions/then")));
}

static void a_fork_and_a_drop_of_a_checkpoint_wait_for_no_command(void **state)
{
    (void)state;
    put_ok(in("exec"), "write f one");
    put_ok(in("exec"), "write f two");
    expect_shell("echo 'sleep 3000' > exec &\n"
                 "until grep -qs running execs/3/status; do sleep 0.01; done\n"
                 "F=${PWD##*/}-f; echo $F 1 > fork; cat ../$F/workspace/f\n"
                 "echo 'drop 1' > checkpoints.log; ls checkpoints\n"
                 "cat execs/3/status; wait; cat execs/3/wait execs/3/status\n"
                 "echo absent > ../$F/status; rmdir ../$F\n",
                 "one\n2\nrunning\n0\nexited\n");
}

static void a_restore_that_fails_changes_nothing(void **state)
{
    (void)state;
    put_ok(in("exec"), "write f one");
    put_ok(in("exec"), "write f two");
    mnt_fault(mnt.id, "restore", "errno EIO");
    assert_int_equal(put(in("restore"), "1").write, EIO);
    expect_text(in("workspace/f"), "two\n");
    mnt_fault(mnt.id, "restore", NULL);
    mnt_fault(mnt.id, "checkpoint", "errno ENOSPC");
    assert_int_equal(put(in("restore"), "1").write, ENOSPC);
    expect_text(in("workspace/f"), "two\n");
    mnt_fault(mnt.id, "checkpoint", NULL);
    put_ok(in("restore"), "1");
    expect_text(in("workspace/f"), "one\n");
}

static void a_fork_that_fails_leaves_nothing(void **state)
{
    (void)state;
    put_ok(in("exec"), "write f one");
    mnt_fault(mnt.id, "fork", "errno EIO");
    assert_int_equal(put(in("fork"), "child 1").write, EIO);
    expect_errno(access(at("sessions/child"), F_OK), ENOENT);
    mnt_fault(mnt.id, "fork", NULL);
    put_ok(in("fork"), "child 1");
    expect_text(at("sessions/child/workspace/f"), "one\n");
    put_ok(at("sessions/child/status"), "absent");
    expect_ok(rmdir(at("sessions/child")));
}

/* ---- A sandbox that vanished ---- */

static void a_lost_sandbox_comes_back_from_its_last_checkpoint(void **state)
{
    (void)state;
    put_ok(in("exec"), "write f one");
    put_ok(in("exec"), "write g two");
    mnt_fault(mnt.id, "lost", "");
    eventually_text(in("status"), "lost\n");
    put_ok(in("exec"), "write h three");
    expect_shell("ls workspace; cat execs/3/changes; grep -c revived events\n",
                 "f\ng\nh\nA\th\n1\n");
    mnt_fault(mnt.id, "lost", "");
    eventually_text(in("status"), "lost\n");
    put_ok(in("status"), "running");
    expect_shell("ls workspace; cat status\n", "f\ng\nh\nrunning\n");
    put_ok(in("restore"), "1");
    mnt_fault(mnt.id, "lost", "");
    eventually_text(in("status"), "lost\n");
    put_ok(in("exec"), "write i four");
    expect_shell("ls workspace\n", "f\ni\n");
}

/* ---- Crashes at each point ---- */

enum asked {
    ASK_EXEC,
    ASK_NAMED,
    ASK_DROP,
    ASK_RESTORE,
    ASK_FORK,
};

/* What is true afterwards, whichever way it went. */
static const struct crash {
    const char *point;
    enum asked asked;
    const char *listed; /* By the next start, once it has run a command. */
    const char *f;      /* What is in the file. */
} crashes[] = {
    {"checkpoint-taken", ASK_EXEC, "1\n2\n4\n", "two\n"},
    {"exec-ended", ASK_EXEC, "1\n2\n4\n", "two\n"},
    {"checkpoint-recorded", ASK_EXEC, "1\n2\n3\n4\n", "three\n"},
    {"checkpoint-taken", ASK_NAMED, "1\n2\n4\n", "two\n"},
    {"checkpoint-recorded", ASK_NAMED, "1\n2\n4\nit\n", "two\n"},
    {"drop-done", ASK_DROP, "2\n3\n", "two\n"},
    {"restore-kept", ASK_RESTORE, "1\n2\n3\n4\n", "two\n"},
    {"restore-done", ASK_RESTORE, "1\n2\n3\n", "two\n"},
    {"fork-reserved", ASK_FORK, "1\n2\n3\n", "two\n"},
    {"fork-intent", ASK_FORK, "1\n2\n3\n", "two\n"},
    {"fork-made", ASK_FORK, "1\n2\n3\n", "two\n"},
    {"fork-whole", ASK_FORK, "1\n2\n3\n", "two\n"},
};

static void ask(enum asked asked)
{
    switch (asked) {
    case ASK_EXEC:
        (void)put(in("exec"), "write f three");
        return;
    case ASK_NAMED:
        (void)mkdir(in("checkpoints/it"), 0755);
        return;
    case ASK_DROP:
        (void)put(in("checkpoints.log"), "drop 1");
        return;
    case ASK_RESTORE:
        (void)put(in("restore"), "1");
        return;
    case ASK_FORK:
        (void)put(in("fork"), "child 1");
        return;
    }
}

/* The sandbox has died with the daemon; it comes back first, where what is
 * asked for needs it. */
static bool needs_sandbox(const struct crash *crash)
{
    return crash->asked == ASK_NAMED ||
           strcmp(crash->point, "restore-kept") == 0;
}

static void die_at(const struct crash *crash)
{
    mnt_stop();
    expect_ok(setenv("SESSIONFS_CRASH", crash->point, 1));
    mnt_start();
    expect_ok(unsetenv("SESSIONFS_CRASH"));
    if (needs_sandbox(crash)) {
        put_ok(in("status"), "running");
    }
    ask(crash->asked);
    mnt_kill();
    mnt_start();
}

static void crash_once(const struct crash *crash)
{
    char want[128];

    print_message("  %s, %d\n", crash->point, (int)crash->asked);
    (void)e2e_setup(NULL);
    put_ok(in("exec"), "write f one");
    put_ok(in("exec"), "write f two");
    die_at(crash);
    if (crash->asked == ASK_DROP) { /* Nothing is shown that is not there. */
        expect_shell("ls checkpoints\n", "2\n");
    }
    put_ok(in("exec"), "write g more");
    (void)snprintf(want, sizeof(want), "%s%sone\n", crash->listed, crash->f);
    expect_shell("ls checkpoints; cat workspace/f\n"
                 "[ -e checkpoints/1 ] && cat checkpoints/1/f || echo one\n",
                 want);
    expect_errno(access(at("sessions/child"), F_OK), ENOENT);
    put_ok(in("fork"), "child 2"); /* Its name is free. */
    put_ok(at("sessions/child/status"), "absent");
    expect_ok(rmdir(at("sessions/child")));
    put_ok(in("status"), "absent");
    expect_ok(rmdir(mnt.session));
}

static void a_crash_at_each_point_leaves_what_is_true(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(crashes); i++) {
        crash_once(&crashes[i]);
    }
    expect_sound_database();
}

static const struct CMUnitTest tests[] = {
    e2e_test(a_command_whose_checkpoint_fails_has_failed),
    e2e_test(a_sandbox_that_keeps_none_runs_commands_all_the_same),
    e2e_test(what_could_not_be_gathered_is_told_and_tried_again),
    e2e_test(nothing_is_restored_or_named_while_a_command_runs),
    e2e_test(a_fork_and_a_drop_of_a_checkpoint_wait_for_no_command),
    e2e_test(changes_that_cannot_be_told_say_so),
    e2e_test(a_restore_that_fails_changes_nothing),
    e2e_test(a_fork_that_fails_leaves_nothing),
    e2e_test(a_lost_sandbox_comes_back_from_its_last_checkpoint),
    e2e_test(a_crash_at_each_point_leaves_what_is_true),
};

E2E_MAIN(tests)
