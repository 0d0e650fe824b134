/* Pausing what nobody uses, and what wakes it. */
#include "tests/e2e/tools.h"

#include "core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ONE_SECOND "\"idle_pause_after_seconds\": 1"

enum {
    IDLE_MS = 1000, /* As in ONE_SECOND. */
    NEWS_MS = 100,  /* A change is told within that time; */
    SLACK_MS = 1500 /* a busy machine may take longer to run us. */
};

/* Whoever was held up for as long as makes a pause may see one. */
static void expect_awake(int64_t used)
{
    const char *status = text_of(in("status"));

    if (clock_ms() - used < IDLE_MS) {
        assert_string_equal(status, "running\n");
    }
}

static void what_nobody_uses_is_paused(void **state)
{
    int64_t used;

    (void)state;
    configure(ONE_SECOND);
    used = clock_ms();
    put_ok(in("exec"), "echo hi");
    expect_awake(used);
    eventually_text(in("status"), "paused\n");
    expect_shell("grep sandbox.paused events | grep -o '\"cause\":\"idle\"'; "
                 "cat exec; echo 'echo again' > exec; cat exec; "
                 "grep -c sandbox.resumed events",
                 "\"cause\":\"idle\"\nhi\nagain\n1\n");
    eventually_text(in("status"), "paused\n");
}

#define LOOKS                                                                  \
    "ls -lR .; find .; cat status status.json events error; "                  \
    "stat workspace/f; touch exec; test ! -e workspace/none"

static const struct {
    const char *what;
    bool use;
    bool local_alone;
} acts[] = {
    {LOOKS, false, false},
    /* A new name is no data; with mem, it would need the sandbox to run. */
    {"mkdir workspace/d$i", false, true},
    {"echo $i > workspace/f", true, false},
    {"echo $i > workspace/g; cat workspace/g", true, false},
    {"dd if=/dev/zero of=workspace/f bs=1 count=1 conv=notrunc", true, false},
    {"echo nonsense > status", true, false},
    {"echo ' ' > exec", true, false},
    {"echo running > status", true, false},
};

/* Adds a script that does it for three seconds, with files open, and then
 * tells whether the sandbox was paused. A use that came too late to keep it
 * awake, as others had the processor, tells nothing. */
static void add_act(size_t act, struct buf *script, struct buf *want)
{
    (void)e2e_setup(NULL);
    configure(ONE_SECOND);
    assert_int_equal(
        buf_printf(script,
                   "(cd %s; echo true > exec; t=${EPOCHREALTIME/./}; "
                   "echo x > workspace/f; exec "
                   "3< workspace/f 4< status 5< exec 6>&1 > /dev/null 2>&1; "
                   "for i in $(seq 12); do now=${EPOCHREALTIME/./}; %s; "
                   "[ $((${EPOCHREALTIME/./} - t)) -lt %d000 ] || late=%s; "
                   "t=$now; sleep 0.25; done; [ -z \"$late\" ] || "
                   "echo too slow to tell: act %zu >&7; "
                   "echo %zu ${late:-$(grep -c sandbox.paused events)} >&6) "
                   "7>&2 &\n",
                   mnt.session, acts[act].what, IDLE_MS,
                   acts[act].use ? "0" : "", act, act),
        0);
    assert_int_equal(buf_printf(want, "%zu %d\n", act, !acts[act].use), 0);
}

static void a_use_keeps_awake_and_a_look_does_not(void **state)
{
    struct buf script = BUF_INIT(TOOLS_TEXT_MAX);
    struct buf want = BUF_INIT(TOOLS_TEXT_MAX);
    size_t i;

    (void)state;
    assert_int_equal(buf_printf(&script, "{\n"), 0);
    for (i = 0; i < ARRAY_SIZE(acts); i++) {
        if (mnt_local() || !acts[i].local_alone) {
            add_act(i, &script, &want);
        }
    }
    assert_int_equal(buf_printf(&script, "wait; } | sort -n"), 0);
    expect_shell(buf_str(&script), buf_str(&want));
    buf_done(&script);
    buf_done(&want);
}

#define ENDED_AND_PAUSED "exec.ended\nsandbox.paused\n"

/* Each pause came after a command's end, and there was no other. */
static void expect_pause_after(const char *output, const char *all)
{
    eventually_text(in("status"), "paused\n");
    expect_text(in("exec"), output);
    expect_shell("grep -oE 'exec.ended|sandbox.paused' events", all);
}

static void nothing_is_paused_under_a_command(void **state)
{
    (void)state;
    configure(ONE_SECOND);
    put_ok(in("exec"), mnt_local() ? "sleep 2.5" : "sleep 2500");
    expect_pause_after("", ENDED_AND_PAUSED);
    put_ok(in("exec.json"),
           mnt_local()
               ? "{\"command\": \"sleep 2.5; echo bg\", \"background\": true}"
               : "{\"command\": \"sleep 2500\\necho bg\", "
                 "\"background\": true}");
    expect_text(in("execs/2/wait"), "0\n");
    expect_pause_after("bg\n", ENDED_AND_PAUSED ENDED_AND_PAUSED);
}

static void no_pause_where_the_config_says_so(void **state)
{
    (void)state;
    configure(ONE_SECOND ", \"idle_pause_enabled\": false");
    put_ok(in("exec"), "true");
    (void)usleep(2000 * 1000);
    expect_text(in("status"), "running\n");
}

/* And nobody is told so again and again. */
static void what_cannot_be_paused_stays_as_it_is(void **state)
{
    (void)state;
    configure(ONE_SECOND);
    put_ok(in("exec"), "true");
    (void)usleep(2500 * 1000);
    expect_text(in("status"), "running\n");
    expect_shell("grep -c sandbox.paus events; cat error", "0\n");
    assert_int_equal(put(in("status"), "paused").write, EOPNOTSUPP);
    put_ok(in("exec"), "true");
}

/* Ends the daemon in one of two ways, and starts the next. */
static void restart(bool by_kill)
{
    mnt.options = ",on_unmount=keep";
    mnt_stop();
    mnt_start();
    mnt_running();
    if (by_kill) {
        mnt_kill();
    } else {
        mnt_stop();
    }
    mnt.options = NULL;
    mnt_start();
}

/* What ran in the daemon does not run any more; what ran under it does. */
static void what_was_left_running_is_told_as_it_is(void **state)
{
    int by_kill;

    for (by_kill = 0; by_kill < 2; by_kill++) {
        (void)e2e_setup(state);
        restart(by_kill);
        if (mnt_sh()) {
            expect_text(in("status"), "running\n");
            expect_shell("grep -c sandbox.processes_lost events; true", "0\n");
            put_ok(in("exec"), "true");
        } else {
            eventually_text(in("status"), "lost\n");
            assert_int_equal(put(in("exec"), "true").open, ESTALE);
            put_ok(in("status"), "running");
        }
        expect_text(in("status"), "running\n");
    }
}

static void deleting_at_the_end_leaves_sessions_without_sandboxes(void **state)
{
    (void)state;
    mnt.options = ",on_unmount=delete";
    mnt_stop();
    mnt_start();
    put_ok(in("workspace/f"), "x\n");
    put_ok(in("exec"), "echo kept");
    mnt.options = NULL;
    mnt_stop();
    mnt_start();
    expect_text(in("status"), "absent\n");
    expect_shell("ls workspace; cat execs/1/output; "
                 "grep -c sandbox.deleted events",
                 "kept\n1\n");
    put_ok(in("exec"), "true");
    expect_shell("ls workspace", "");
}

static void files_wake_what_needs_it_unless_told_not_to(void **state)
{
    (void)state;
    put_ok(in("workspace/f"), "x\n");
    put_ok(in("status"), "paused");
    expect_shell("ls workspace; stat -c %s workspace/f; cat status",
                 "f\n2\npaused\n");
    expect_text(in("workspace/f"), "x\n");
    expect_text(in("status"), "running\n");

    (void)e2e_setup(state);
    configure("\"wake\": \"exec\"");
    put_ok(in("workspace/f"), "x\n");
    put_ok(in("status"), "paused");
    expect_shell("ls workspace; stat -c %s workspace/f", "f\n2\n");
    expect_errno(open(in("workspace/f"), O_RDONLY), EHOSTDOWN);
    expect_errno(open(in("workspace/f"), O_WRONLY), EHOSTDOWN);
    expect_errno(open(in("workspace/g"), O_WRONLY | O_CREAT, 0600), EHOSTDOWN);
    expect_shell("grep -r x workspace 2>&1 | grep -o 'Host is down'; "
                 "cat status; grep -c EHOSTDOWN error",
                 "Host is down\npaused\n4\n");
    put_ok(in("exec"), "true");
    expect_text(in("workspace/f"), "x\n");
}

static void files_of_a_paused_one_are_read_without_waking_it(void **state)
{
    (void)state;
    put_ok(in("workspace/f"), "x\n");
    put_ok(in("status"), "paused");
    expect_text(in("workspace/f"), "x\n");
    put_ok(in("workspace/f"), "y\n");
    expect_text(in("status"), "paused\n");
}

static int pause_it(void *arg)
{
    struct wrote done;

    (void)arg;
    child_ready();
    done = put(in("status"), "paused");
    return done.open | done.write | done.close;
}

static void a_change_of_status_is_told_at_once(void **state)
{
    struct pollfd file = {.events = POLLPRI};
    struct child child;
    char text[32] = "";
    int64_t begin, told;

    (void)state;
    mnt_running();
    file.fd = open(in("status"), O_RDONLY | O_CLOEXEC);
    assert_true(pread(file.fd, text, sizeof(text) - 1, 0) > 0);
    assert_string_equal(text, "running\n");
    assert_int_equal(poll(&file, 1, 0), 0);
    if (!mnt_local()) {
        mnt_fault(mnt.id, "pause", "delay 300");
    }
    child = child_start(pause_it, NULL);
    child_await(&child);
    do { /* `pausing` is told, too. */
        begin = clock_ms();
        assert_int_equal(poll(&file, 1, TOOLS_SOON_MS), 1);
        told = clock_ms();
        (void)memset(text, 0, sizeof(text));
        assert_true(pread(file.fd, text, sizeof(text) - 1, 0) > 0);
        assert_true(told - begin < 300 + NEWS_MS + SLACK_MS);
    } while (strcmp(text, "paused\n") != 0);
    assert_int_equal(child_end(&child, TOOLS_SOON_MS), 0);
    assert_true(clock_ms() - told < NEWS_MS + SLACK_MS);
    (void)close(file.fd);
}

static const struct CMUnitTest tests[] = {
    e2e_test_of("pauses", what_nobody_uses_is_paused),
    e2e_test_of("pauses", a_use_keeps_awake_and_a_look_does_not),
    e2e_test_of("pauses", nothing_is_paused_under_a_command),
    e2e_test_of("jsonl", what_cannot_be_paused_stays_as_it_is),
    e2e_test(no_pause_where_the_config_says_so),
    e2e_test(what_was_left_running_is_told_as_it_is),
    e2e_test(deleting_at_the_end_leaves_sessions_without_sandboxes),
    e2e_test_of("mem", files_wake_what_needs_it_unless_told_not_to),
    e2e_test_of("local", files_of_a_paused_one_are_read_without_waking_it),
    e2e_test_of("pauses", a_change_of_status_is_told_at_once),
};

E2E_MAIN(tests)
