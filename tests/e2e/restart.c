/* The daemon's death and what the next one finds. */
#include "tests/e2e/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

static void what_was_done_is_there_after_a_kill(void **state)
{
    (void)state;
    expect_shell("printf \"echo out\\n${ERR}exit 3\" > exec\n"
                 "echo 'echo two' > exec; echo bad > status 2>/dev/null\n"
                 "cp events $T/before; mkdir ../r1 ../r2; mv ../r2 "
                 "../r3; rmdir ../r1",
                 "");
    mnt_kill();
    mnt_start();
    expect_sound_database();
    expect_shell("cat execs/1/stdout execs/1/stderr execs/1/exit_code "
                 "execs/2/output execs/2/command; readlink execs/last; "
                 "ls -d ../r? ",
                 "out\nerr\n3\ntwo\necho two\n2\n../r3\n");
    expect_shell("head -n $(grep -c ^ $T/before) events | cmp - $T/before; "
                 "grep -c EINVAL error",
                 "1\n");
    if (!mnt_sh()) {
        put_ok(in("status"), "running"); /* Its sandbox was in the daemon. */
    }
    put_ok(in("exec"), "true");
    expect_text(in("execs/3/exit_code"), "0\n");
}

static void a_workspace_survives_a_kill(void **state)
{
    (void)state;
    expect_shell("mkdir workspace/d; echo kept > workspace/d/f; "
                 "echo 'echo by-command > g' > exec",
                 "");
    mnt_kill();
    mnt_start();
    expect_shell("cat workspace/d/f workspace/g; echo 'cat d/f' > exec; "
                 "cat exec; echo 'echo more >> g' > exec; cat workspace/g",
                 "kept\nby-command\nkept\nby-command\nmore\n");
}

static void a_command_under_a_kill_is_lost(void **state)
{
    char script[64];
    struct child child;

    (void)state;
    (void)snprintf(script, sizeof(script), "echo begun\nhang\n");
    child = child_start(child_write_exec, script);
    child_await(&child);
    eventually(access(in("execs/1"), F_OK) == 0);
    eventually_text(in("execs/1/output"), "begun\n");
    assert_int_equal(kill(mnt.pid, SIGKILL), 0);
    assert_int_not_equal(child_end(&child, TOOLS_SOON_MS), 0);
    assert_int_equal(waitpid(mnt.pid, NULL, 0), mnt.pid);
    (void)mnt_unmount(MNT_DETACH);
    mnt_start();
    expect_text(in("execs/1/status"), "lost\n");
    expect_text(in("execs/1/output"), "begun\n");
    expect_text(in("execs/1/exit_code"), "");
    expect_text(in("execs/1/wait"), "");
    expect_text(in("execs/1/command"), script);
}

/* What a command and a process that it left are called; nobody else is. */
static const char *marker(void)
{
    static char text[64];

    (void)snprintf(text, sizeof(text), "sleep 41.%d%u", (int)getpid(),
                   mnt.tests);
    return text;
}

static void marker_begin(void)
{
    char text[256];

    (void)snprintf(text, sizeof(text),
                   "{\"command\": \"echo begun; setsid -f %s >/dev/null 2>&1\\n"
                   "%s\", \"background\": true}",
                   marker(), marker());
    put_ok(in("workspace/f"), "kept\n");
    put_ok(in("exec.json"), text);
    eventually_text(in("execs/1/output"), "begun\n");
}

static void marker_over(const char *status)
{
    eventually(!process_exists(marker()));
    expect_text(in("execs/1/status"), status);
    expect_text(in("workspace/f"), "kept\n");
    put_ok(in("exec"), "echo again");
    expect_text(in("exec"), "again\n");
}

/* They live with the engine, which knows nothing of us. */
static void what_a_dead_daemon_left_running_is_ended(void **state)
{
    (void)state;
    marker_begin();
    assert_int_equal(kill(mnt.pid, SIGKILL), 0);
    assert_int_equal(waitpid(mnt.pid, NULL, 0), mnt.pid);
    (void)mnt_unmount(MNT_DETACH);
    assert_true(process_exists(marker()));
    mnt_start();
    marker_over("lost\n");
}

static void what_ran_at_an_unmount_is_ended(void **state)
{
    (void)state;
    marker_begin();
    mnt_stop();
    assert_false(process_exists(marker()));
    mnt_start();
    marker_over("killed\n");
}

static void a_new_daemon_clears_its_own_dead_mount(void **state)
{
    (void)state;
    assert_int_equal(kill(mnt.pid, SIGKILL), 0);
    assert_int_equal(waitpid(mnt.pid, NULL, 0), mnt.pid);
    /* A moment earlier, what is asked may be cut off. */
    eventually(access(mnt.session, F_OK) < 0 && errno == ENOTCONN);
    mnt_start();
    expect_text(in("status"), "absent\n");
    expect_errno(umount2(at("sessions"), 0), geteuid() == 0 ? EINVAL : EPERM);
}

static void a_second_daemon_is_refused_with_the_pid(void **state)
{
    char words[4096];
    char pid[32];

    (void)state;
    (void)snprintf(pid, sizeof(pid), "%d", (int)mnt.pid);
    assert_int_not_equal(mnt_second(words, sizeof(words)), 0);
    if (!strstr(words, pid)) {
        fail_msg("no pid %s in: %s", pid, words);
    }
    expect_text(in("status"), "absent\n");
}

static void umount_and_mount_again_ten_times(void **state)
{
    char text[16];
    int i;

    (void)state;
    expect_shell("echo x > workspace/f", "");
    for (i = 1; i <= 10; i++) {
        mnt_stop();
        mnt_start();
        if (mnt_sh()) {
            expect_text(in("workspace/f"), "x\n");
        }
        (void)snprintf(text, sizeof(text), "echo %d", i);
        if (!mnt_sh()) {
            put_ok(in("status"), "running");
        }
        put_ok(in("exec"), text);
        (void)snprintf(text, sizeof(text), "%d\n", i);
        expect_text(in("exec"), text);
    }
    expect_sound_database();
    expect_shell("ls execs | wc -l", "11\n");
}

static void the_state_is_private(void **state)
{
    char script[2 * MNT_PATH_SIZE];

    (void)state;
    put_ok(in("exec"), "echo secret");
    (void)snprintf(script, sizeof(script),
                   "stat -c %%a %s; find %s -maxdepth 1 -name 'state.db*' "
                   "-printf '%%m\\n' | sort -u; "
                   "find %s/sessions -maxdepth 1 -perm /077",
                   mnt.state, mnt.state, mnt.state);
    expect_shell(script, "700\n600\n");
}

/* What is at fault is one session's, and no other's. */
static void one_whose_config_is_garbage_can_be_removed(void **state)
{
    char script[2 * MNT_PATH_SIZE];

    (void)state;
    put_ok(in("exec"), "echo x > f");
    mnt_kill();
    (void)snprintf(script, sizeof(script),
                   "python3 -c 'import sqlite3, sys\n"
                   "db = sqlite3.connect(\"%s/state.db\")\n"
                   "db.execute(\"update sessions set config = ? "
                   "where id = ?\", (b\"\\x7f\\x80\\xff\", sys.argv[1]))\n"
                   "db.commit()' %s",
                   mnt.state, mnt.id);
    assert_int_equal(system(script), 0);
    mnt_start();
    expect_text(in("status"), "error\n");
    expect_shell("grep -c 'config - 0 EIO .*cannot be read' error; ls -ld . "
                 "workspace >/dev/null && ls -l | grep -c config.json; "
                 "od -An -tx1 config.json",
                 "1\n1\n 7f 80 ff\n");
    assert_int_equal(put(in("exec"), "true").open, EIO);
    assert_int_equal(put(in("status"), "running").write, EIO);
    assert_int_equal(rmdir(mnt.session), -1);
    assert_int_equal(errno, ENOTEMPTY);
    if (mnt_scripts()) { /* What program has it is said in the config alone. */
        assert_int_equal(put(in("status"), "absent").write, EINVAL);
        return;
    }
    put_ok(in("status"), "absent");
    assert_int_equal(rmdir(mnt.session), 0);
    assert_int_equal(access(mnt.session, F_OK), -1);
}

static const struct CMUnitTest tests[] = {
    e2e_test(what_was_done_is_there_after_a_kill),
    e2e_test_of("sh", a_workspace_survives_a_kill),
    e2e_test_of("mem", a_command_under_a_kill_is_lost),
    e2e_test_of("jsonl", what_a_dead_daemon_left_running_is_ended),
    e2e_test_of("jsonl", what_ran_at_an_unmount_is_ended),
    e2e_test(a_new_daemon_clears_its_own_dead_mount),
    e2e_test(a_second_daemon_is_refused_with_the_pid),
    e2e_test(umount_and_mount_again_ten_times),
    e2e_test(the_state_is_private),
    e2e_test(one_whose_config_is_garbage_can_be_removed),
};

E2E_MAIN(tests)
