/* An engine that changes, hangs or is silent, another writer of the record,
 * and writers of `status` that do not wait. */
#include "tests/e2e/tools.h"

#include "core/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum {
    READ_MS = 100,
    SLACK_MS = 1500 /* A busy machine may take longer to run us. */
};

/* Reads `status` as it must be read: at once. */
static const char *quick_status(void)
{
    int64_t begin = clock_ms();
    const char *text = text_of(in("status"));

    assert_true(clock_ms() - begin < READ_MS + SLACK_MS);
    return text;
}

static bool shows(const char *want)
{
    return strcmp(quick_status(), want) == 0;
}

static void what_happens_behind_our_back_is_shown(void **state)
{
    (void)state;
    mnt_running();
    mnt_fault(mnt.id, "lost", ""); /* Without a checkpoint to come back from. */
    eventually(shows("lost\n"));
    assert_int_equal(put(in("exec"), "echo x").open, ESTALE);
    assert_int_equal(put(in("workspace/f"), "x").open, ESTALE);
    expect_text(in("status"), "lost\n");
    put_ok(in("status"), "running");
    put_ok(in("workspace/f"), "x");
    expect_shell("grep -c '\"sandbox.lost\"' events", "1\n");
    mnt_fault(mnt.id, "paused", "");
    eventually(shows("paused\n"));
    put_ok(in("exec"), "echo woken");
    expect_text(in("exec"), "woken\n");
}

static void an_engine_that_hangs_is_unreachable_and_blocks_no_look(void **state)
{
    int64_t begin;

    (void)state;
    mnt_running();
    mnt_fault(mnt.id, "status", "stuck");
    begin = clock_ms();
    (void)usleep(1100 * 1000); /* What was known is old then. */
    eventually(shows("unreachable\n"));
    assert_true(clock_ms() - begin < 6000);
    expect_shell("cat status.json | grep -o unreachable", "unreachable\n");
    mnt_fault(mnt.id, "status", NULL);
    put_ok(in("status"), "running");
    expect_text(in("status"), "running\n");
}

static void a_silent_engine_is_not_hammered(void **state)
{
    uint64_t before;

    (void)state;
    mnt_running();
    mnt_fault(mnt.id, "status", "errno ENOTCONN");
    before = mnt_counter("operation=\"status\"");
    expect_shell("end=$((SECONDS + 6)); "
                 "while [ $SECONDS -lt $end ]; do cat status; sleep 0.05; done "
                 "| sort -u",
                 "running\nunreachable\n");
    /* Both counters count it; six would be one a second. */
    assert_in_range(mnt_counter("operation=\"status\"") - before, 2, 6);
    mnt_fault(mnt.id, "status", NULL);
}

static void an_engine_that_refuses_is_an_error(void **state)
{
    (void)state;
    mnt_running();
    mnt_fault(mnt.id, "status", "errno EACCES");
    eventually(shows("error\n"));
    mnt_fault(mnt.id, "status", NULL);
}

static void another_writer_of_the_record_is_not_overwritten(void **state)
{
    (void)state;
    mnt_running();
    expect_shell(
        "python3 - <<'END'\n"
        "import os, sqlite3\n"
        "db = sqlite3.connect(os.environ['STATE'] + '/state.db', timeout=10)\n"
        "number = db.execute('SELECT number FROM sessions WHERE id = ?',\n"
        "    (os.path.basename(os.environ['S']),)).fetchone()[0]\n"
        "db.execute('UPDATE sessions SET generation = 41 WHERE number = ?',\n"
        "    (number,))\n"
        "db.execute('UPDATE states SET display_name = ? WHERE session = ?',\n"
        "    ('theirs', number))\n"
        "db.commit()\n"
        "END\n",
        "");
    assert_int_equal(put(in("status"), "paused").write, ESTALE);
    expect_shell("grep -o 'theirs' status.json; "
                 "grep -oE '\"generation\": *41' status.json | tr -d ' '",
                 "theirs\n\"generation\":41\n");
    put_ok(in("status"), "paused");
    put_ok(in("exec"), "echo hi");
    expect_text(in("exec"), "hi\n");
}

static void on_signal(int number)
{
    (void)number;
}

static int child_write_running_interrupted(void *arg)
{
    const struct sigaction action = {.sa_handler = on_signal};

    (void)sigaction(SIGINT, &action, NULL);
    return child_write_running(arg);
}

static void an_interrupted_write_is_eintr_and_the_work_goes_on(void **state)
{
    struct child child;

    (void)state;
    mnt_fault(mnt.id, "create", "stuck");
    child = child_start(child_write_running_interrupted, NULL);
    child_await(&child);
    eventually(shows("starting\n"));
    process_asleep(child.pid);
    assert_int_equal(kill(child.pid, SIGINT), 0);
    assert_int_equal(child_end(&child, 1000), EINTR);
    expect_text(in("status"), "starting\n");
    mnt_fault(mnt.id, "create", NULL);
    eventually(shows("running\n"));
}

static void two_writes_at_once_make_one_sandbox(void **state)
{
    struct child children[4];
    size_t i;

    (void)state;
    mnt_fault(mnt.id, "create", "delay 300");
    for (i = 0; i < ARRAY_SIZE(children); i++) {
        children[i] = child_start(child_write_running, NULL);
    }
    for (i = 0; i < ARRAY_SIZE(children); i++) {
        assert_int_equal(child_end(&children[i], TOOLS_SOON_MS), 0);
    }
    expect_shell("grep -c sandbox.created events", "1\n");
    mnt_fault(mnt.id, "create", NULL);
}

static void absent_while_it_starts_ends_absent(void **state)
{
    struct child child;

    (void)state;
    mnt_fault(mnt.id, "create", "delay 1500");
    child = child_start(child_write_running, NULL);
    child_await(&child);
    eventually(shows("starting\n"));
    put_ok(in("status"), "absent");
    expect_text(in("status"), "absent\n");
    assert_int_equal(child_end(&child, TOOLS_SOON_MS), 0);
    mnt_fault(mnt.id, "create", NULL);
}

static void a_deletion_is_tried_again_over_restarts(void **state)
{
    (void)state;
    mnt_running();
    mnt_fault(mnt.id, "destroy", "errno ENOTCONN");
    assert_int_equal(put(in("status"), "absent").write, ENOTCONN);
    expect_text(in("status"), "deleting\n");
    expect_shell("grep -c \"delete .$(basename $S).*ENOTCONN\" $M/error; "
                 "grep deletions_pending $M/stats | tail -n 1; "
                 "rmdir $S 2>&1 | grep -o 'not empty'",
                 "1\nsessionfs_deletions_pending 1\nnot empty\n");
    mnt_kill();
    mnt_start();
    expect_text(in("status"), "deleting\n");
    mnt_fault(mnt.id, "destroy", NULL);
    eventually(shows("absent\n"));
    expect_shell("grep deletions_pending $M/stats | tail -n 1",
                 "sessionfs_deletions_pending 0\n");
}

static const struct CMUnitTest tests[] = {
    e2e_test(what_happens_behind_our_back_is_shown),
    e2e_test(an_engine_that_hangs_is_unreachable_and_blocks_no_look),
    e2e_test(a_silent_engine_is_not_hammered),
    e2e_test(an_engine_that_refuses_is_an_error),
    e2e_test(another_writer_of_the_record_is_not_overwritten),
    e2e_test(an_interrupted_write_is_eintr_and_the_work_goes_on),
    e2e_test(two_writes_at_once_make_one_sandbox),
    e2e_test(absent_while_it_starts_ends_absent),
    e2e_test(a_deletion_is_tried_again_over_restarts),
};

E2E_MAIN(tests)
