/*
 * The daemon dies under sandboxes of `local`, and the next one takes them up
 * with all that runs in them.
 */
#include "tests/e2e/tools.h"

#include "core/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ROUNDS = 10,
    KILL_MS = 250, /* A round's daemon lives at most so long. */
};

/* Runs a script as a command whose writer dies with the daemon. */
static struct child begin(const char *script)
{
    struct child child =
        child_start(child_write_exec, (void *)(uintptr_t)script);

    child_await(&child);
    return child;
}

/* The session's command n has said something, */
static void await_output(int n)
{
    eventually(access(in("execs/%d/output", n), F_OK) == 0);
    eventually(text_of(in("execs/%d/output", n))[0] != '\0');
}

/* or so. */
static void await_begun(int n)
{
    await_output(n);
    eventually_text(in("execs/%d/output", n), "begun\n");
}

static void die(struct child *child)
{
    assert_int_equal(kill(mnt.pid, SIGKILL), 0);
    if (child) {
        (void)child_end(child, TOOLS_SOON_MS);
    }
    assert_int_equal(waitpid(mnt.pid, NULL, 0), mnt.pid);
    mnt.pid = 0;
    (void)mnt_unmount(MNT_DETACH);
}

static void nap(int ms)
{
    (void)usleep((useconds_t)ms * 1000);
}

/* Numbered lines are all there, once each and in order. */
static void expect_lines(const char *file, int count)
{
    char script[256];

    (void)snprintf(script, sizeof(script), "seq %d | cmp - %s && echo same",
                   count, file);
    expect_shell(script, "same\n");
}

static void a_command_goes_on_under_the_next_daemon(void **state)
{
    struct child child;

    (void)state;
    child = begin("i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo $i; "
                  "[ $((i % 20)) -ne 0 ] || sleep 0.01; done; exit 7\n");
    await_output(1);
    nap(200);
    die(&child);
    nap(200);
    mnt_start();
    expect_text(in("status"), "running\n");
    expect_text(in("execs/1/wait"), "7\n");
    expect_lines("execs/1/stdout", 2000);
    expect_text(in("execs/1/exit_code"), "7\n");
    expect_text(in("execs/1/status"), "exited\n");
    expect_shell("grep -c exec.ended events; grep -c lost events; true",
                 "1\n0\n");
    /* Asked for by whom it was. */
    expect_shell("grep -E 'exec.(started|ended)' events | "
                 "sed -E 's/.*(\"uid\":[0-9]+,\"pid\":[1-9][0-9]*),.*/\\1/' |"
                 " uniq | grep -c uid",
                 "1\n");
}

static void one_that_ended_meanwhile_is_known(void **state)
{
    struct child child;

    (void)state;
    child = begin("echo begun; sleep 0.4; echo over; echo err >&2; exit 5\n");
    await_begun(1);
    die(&child);
    nap(800);
    mnt_start();
    eventually_text(in("execs/1/status"), "exited\n");
    expect_text(in("execs/1/exit_code"), "5\n");
    expect_text(in("execs/1/stdout"), "begun\nover\n");
    expect_text(in("execs/1/stderr"), "err\n");
}

static void more_than_a_pipe_holds_is_not_lost(void **state)
{
    struct child child;

    (void)state;
    child = begin("echo begun; sleep 0.3; seq 200000; seq 100 >&2\n");
    await_output(1);
    die(&child);
    nap(400);
    mnt_start();
    expect_text(in("execs/1/wait"), "0\n");
    expect_shell("tail -n +2 execs/1/stdout | cmp - <(seq 200000)", "");
    expect_lines("execs/1/stderr", 100);
}

static void what_was_left_behind_lives_on(void **state)
{
    char pid[32];

    (void)state;
    expect_shell("echo '(while :; do echo tick; sleep 0.05; done) & "
                 "echo $! > pid' > exec; cat workspace/pid > $T/pid",
                 "");
    (void)snprintf(pid, sizeof(pid), "%s", text_of(in("workspace/pid")));
    die(NULL);
    nap(300);
    mnt_start();
    expect_text(in("status"), "running\n");
    expect_text(in("workspace/pid"), pid);
    expect_shell("echo 'kill -0 $(cat pid) && echo alive' > exec; cat exec",
                 "alive\n");
    expect_shell("a=$(wc -l < execs/1/output); "
                 "until [ $(wc -l < execs/1/output) -gt $a ]; do sleep 0.05; "
                 "done; grep -c processes_lost events; true",
                 "0\n");
    expect_shell("echo 'kill $(cat pid); while kill -0 $(cat pid); do "
                 "sleep 0.05; done 2>/dev/null; echo dead' > exec; cat exec",
                 "dead\n");
}

static void a_paused_sandbox_stays_so(void **state)
{
    (void)state;
    expect_shell("echo 'sleep 1234.5 & echo $! > pid' > exec; "
                 "echo paused > status; cat status",
                 "paused\n");
    die(NULL);
    mnt_start();
    expect_text(in("status"), "paused\n");
    expect_shell("echo 'kill -0 $(cat pid) && echo alive' > exec; cat exec; "
                 "cat status; grep -c '\"processes\":\"lost\"' events; true",
                 "alive\nrunning\n0\n");
}

static void commands_of_two_sessions_go_on(void **state)
{
    static const char script[] =
        "i=0; while [ $i -lt 150 ]; do i=$((i+1)); echo $i; sleep 0.01; done";
    char words[512];
    struct child child;

    (void)state;
    (void)snprintf(words, sizeof(words),
                   "mkdir ../two; (echo '%s' > ../two/exec) >/dev/null 2>&1 & "
                   "until [ -s ../two/execs/1/output ]; do sleep 0.01; done",
                   script);
    expect_shell(words, "");
    child = begin(script);
    await_output(1);
    die(&child);
    mnt_start();
    expect_text(in("execs/1/wait"), "0\n");
    expect_lines("execs/1/stdout", 150);
    expect_shell("cat ../two/execs/1/wait", "0\n");
    expect_lines("../two/execs/1/stdout", 150);
    expect_shell("cat execs/1/status ../two/execs/1/status",
                 "exited\nexited\n");
}

static void an_adopted_one_can_be_signalled_and_cancelled(void **state)
{
    struct child child;

    (void)state;
    child = begin("trap 'echo usr; exit 9' USR1; echo begun; "
                  "while :; do :; done\n");
    await_begun(1);
    die(&child);
    mnt_start();
    expect_text(in("execs/1/status"), "running\n");
    put_ok(in("execs/1/signal"), "USR1");
    expect_text(in("execs/1/wait"), "9\n");
    expect_text(in("execs/1/output"), "begun\nusr\n");
    expect_text(in("execs/1/exit_code"), "9\n");
}

/* It is told so, and its daemon dies before it has ended. */
static void one_that_was_cancelled_ends_all_the_same(void **state)
{
    struct child child;

    (void)state;
    child = begin("trap '' TERM; echo begun; sleep 1240.5; sleep 1240.6\n");
    await_begun(1);
    process_asleep(child.pid);
    assert_int_equal(kill(child.pid, SIGINT), 0);
    assert_int_equal(child_end(&child, TOOLS_SOON_MS), 128 + SIGINT);
    die(NULL);
    mnt_start();
    eventually_text(in("execs/1/status"), "killed\n");
    eventually(!process_exists("sleep 1240."));
    expect_text(in("execs/1/output"), "begun\n");
    expect_text(in("status"), "running\n");
}

static void the_time_runs_from_the_first_start(void **state)
{
    (void)state;
    expect_shell("echo '{\"command\":\"echo begun; sleep 1235.5\","
                 "\"background\":true,\"timeout_ms\":1500}' > exec.json",
                 "");
    await_begun(1);
    die(NULL);
    mnt_start();
    expect_text(in("execs/1/status"), "running\n");
    expect_text(in("execs/1/wait"), "124\n");
    expect_text(in("execs/1/status"), "timeout\n");
    eventually(!process_exists("sleep 1235.5"));
}

static void a_crash_in_the_midst_of_adoption(void **state)
{
    struct child child;

    (void)state;
    child = begin("i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo $i; "
                  "sleep 0.005; done; exit 3\n");
    await_output(1);
    die(&child);
    for (int i = 0; i < 5; i++) {
        mnt_start();
        die(NULL);
    }
    mnt_start();
    expect_text(in("execs/1/wait"), "3\n");
    expect_lines("execs/1/stdout", 400);
    expect_text(in("execs/1/exit_code"), "3\n");
}

static void ten_rounds_of_kills(void **state)
{
    struct child child;

    (void)state;
    child = begin("i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo $i; "
                  "[ $((i % 10)) -ne 0 ] || { echo $((i / 10)) >&2; "
                  "sleep 0.01; }; done; exit 4\n");
    await_output(1);
    die(&child);
    srand((unsigned)getpid());
    for (int i = 0; i < ROUNDS; i++) {
        mnt_start();
        nap(rand() % KILL_MS);
        die(NULL);
        nap(rand() % 50);
    }
    mnt_start();
    expect_text(in("execs/1/wait"), "4\n");
    expect_lines("execs/1/stdout", 3000);
    expect_lines("execs/1/stderr", 300);
    expect_text(in("execs/1/exit_code"), "4\n");
}

/* Ours by now, as all that a daemon leaves. */
static void kill_keeper(void)
{
    static const char find[] = "for p in $(cat /proc/%d/task/*/children); do "
                               "grep -qx sessionfs-keepe /proc/$p/comm && "
                               "kill -9 $p; done";
    char script[sizeof(find) + 16];

    (void)snprintf(script, sizeof(script), find, (int)getpid());
    (void)!system(script);
}

/* Nobody holds it then. */
static void without_its_keeper_it_is_lost(void **state)
{
    struct child child;

    (void)state;
    child = begin("echo begun; sleep 1237.5\n");
    await_begun(1);
    die(&child);
    kill_keeper();
    mnt_start();
    expect_text(in("status"), "paused\n");
    expect_text(in("execs/1/status"), "lost\n");
    expect_text(in("execs/1/output"), "begun\n");
    expect_text(in("execs/1/wait"), "");
    eventually(!process_exists("sleep 1237.5"));
    expect_shell("grep -c sandbox.processes_lost events; echo 'echo again' > "
                 "exec; cat exec",
                 "1\nagain\n");
}

static void twenty_sessions_go_on(void **state)
{
    (void)state;
    expect_shell("for i in $(seq 20); do mkdir ../many$i; echo '{\"command\":"
                 "\"for i in $(seq 100); do echo $i; sleep 0.02; done; "
                 "exit 6\",\"background\":true}' > ../many$i/exec.json & "
                 "done; wait",
                 "");
    die(NULL);
    mnt_start();
    expect_shell("for i in $(seq 20); do cat ../many$i/execs/1/wait; "
                 "seq 100 | cmp - ../many$i/execs/1/stdout; done | sort | "
                 "uniq -c | tr -s ' '",
                 " 20 6\n");
    expect_shell("for i in $(seq 20); do echo absent > ../many$i/status & "
                 "done; wait",
                 "");
}

static void a_clean_end_that_keeps_leaves_them(void **state)
{
    (void)state;
    mnt_stop();
    mnt.options = ",on_unmount=keep";
    mnt_start();
    expect_shell("echo 'sleep 1236.5 >/dev/null 2>&1 & echo $! > pid' > exec",
                 "");
    expect_ok(mnt_unmount(0));
    (void)waitpid(mnt.pid, NULL, 0);
    mnt.pid = 0;
    eventually(process_exists("sleep 1236.5"));
    mnt.options = NULL;
    mnt_start();
    expect_text(in("status"), "running\n");
    expect_shell("echo 'kill -0 $(cat pid) && echo alive' > exec; cat exec",
                 "alive\n");
    mnt_stop(); /* Which pauses, as that is asked for now, and ends them. */
    eventually(!process_exists("sleep 1236.5"));
    mnt_start();
    expect_text(in("status"), "paused\n");
}

/* As by umount or SIGTERM. */
static void end_keeping(void)
{
    if (mnt_unmount(0) < 0) {
        assert_int_equal(kill(mnt.pid, SIGTERM), 0);
    }
    assert_int_equal(waitpid(mnt.pid, NULL, 0), mnt.pid);
    mnt.pid = 0;
}

static void a_clean_end_that_keeps_leaves_commands(void **state)
{
    struct child child;

    (void)state;
    mnt_stop();
    mnt.options = ",on_unmount=keep";
    mnt_start();
    expect_shell("echo '{\"command\":\"echo begun; sleep 0.5; echo over; "
                 "exit 8\",\"background\":true}' > exec.json",
                 "");
    await_begun(1);
    child = begin("echo begun; until [ -e go ]; do sleep 0.02; done; "
                  "echo over; exit 9\n");
    await_begun(2);
    /* One that has not begun is told to end. */
    expect_shell("echo '{\"command\":\"echo never\"}' > exec.json & sleep 0.2",
                 "");
    assert_int_equal(kill(mnt.pid, SIGTERM), 0);
    (void)child_end(&child, TOOLS_SOON_MS);
    end_keeping();
    nap(700);
    mnt_start();
    expect_text(in("execs/1/wait"), "8\n");
    expect_text(in("execs/2/status"), "running\n");
    expect_shell("touch workspace/go", "");
    expect_text(in("execs/2/wait"), "9\n");
    expect_text(in("execs/1/output"), "begun\nover\n");
    expect_text(in("execs/2/output"), "begun\nover\n");
    expect_text(in("execs/3/output"), "");
    expect_shell("grep -c lost events; cat execs/3/status", "0\nkilled\n");
    mnt.options = NULL;
}

/* The time that it took is its own, not the daemon's. */
static void the_end_is_when_it_ended(void **state)
{
    (void)state;
    expect_shell("echo '{\"command\":\"echo begun; sleep 0.3\","
                 "\"background\":true}' > exec.json",
                 "");
    await_begun(1);
    die(NULL);
    nap(1500);
    mnt_start();
    expect_text(in("execs/1/wait"), "0\n");
    expect_shell("ms=$(sed 's/.*\"duration_ms\": *\\([0-9]*\\).*/\\1/' "
                 "execs/1/result.json); [ $ms -ge 250 ] && [ $ms -lt 1200 ] && "
                 "echo $ms ms | sed 's/[0-9]* //'",
                 "ms\n");
}

/* What no daemon has begun, or all begin anew. */
static void init_and_queued_commands_at_a_crash(void **state)
{
    struct child child;
    struct child queued;

    (void)state;
    expect_shell(
        "echo "
        "'{\"id\":\"prepared\",\"provider\":\"local\",\"init\":{\"commands\":"
        "[\"echo x >> ran; [ -e go ] || sleep 1238.5\"]}}' > ../../new; "
        "(: > ../prepared/exec) >/dev/null 2>&1 & sleep 0.1",
        "");
    eventually(process_exists("sleep 1238.5"));
    child = begin("sleep 1239.5\n");
    eventually(process_exists("sleep 1239.5"));
    expect_shell("until grep -q running execs/1/status; do sleep 0.05; done",
                 "");
    queued = begin("echo never\n");
    eventually(access(in("execs/2"), F_OK) == 0);
    die(&child);
    (void)child_end(&queued, TOOLS_SOON_MS);
    mnt_start();
    expect_text(in("execs/1/status"), "running\n");
    expect_text(in("execs/2/status"), "lost\n");
    expect_text(in("execs/2/output"), "");
    eventually(!process_exists("sleep 1238.5"));
    expect_shell(
        "cat ../prepared/execs/1/status; touch ../prepared/workspace/go;"
        " echo running > ../prepared/status && "
        "cat ../prepared/status ../prepared/execs/2/status "
        "../prepared/workspace/ran",
        "lost\nrunning\nexited\nx\nx\n");
    put_ok(in("execs/1/signal"), "KILL");
    expect_text(in("execs/1/wait"), "137\n");
    expect_shell("echo absent > ../prepared/status; rmdir ../prepared", "");
}

static const struct CMUnitTest tests[] = {
    e2e_test(a_command_goes_on_under_the_next_daemon),
    e2e_test(one_that_ended_meanwhile_is_known),
    e2e_test(more_than_a_pipe_holds_is_not_lost),
    e2e_test(what_was_left_behind_lives_on),
    e2e_test(a_paused_sandbox_stays_so),
    e2e_test(commands_of_two_sessions_go_on),
    e2e_test(an_adopted_one_can_be_signalled_and_cancelled),
    e2e_test(one_that_was_cancelled_ends_all_the_same),
    e2e_test(the_time_runs_from_the_first_start),
    e2e_test(a_crash_in_the_midst_of_adoption),
    e2e_test(ten_rounds_of_kills),
    e2e_test(without_its_keeper_it_is_lost),
    e2e_test(twenty_sessions_go_on),
    e2e_test(a_clean_end_that_keeps_leaves_them),
    e2e_test(a_clean_end_that_keeps_leaves_commands),
    e2e_test(the_end_is_when_it_ended),
    e2e_test(init_and_queued_commands_at_a_crash),
};

E2E_MAIN(tests)
