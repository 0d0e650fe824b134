/* Sandboxes where this machine gives no control groups: what holds is held by
 * process 1 and by reapers. Run by tests/without_groups.sh. */
#include "core/clock.h"
#include "core/json.h"
#include "tests/cmocka.h"
#include "tests/contract/bench.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SOON_MS = 10000,
    LOOK_MS = 20,
    ENDS_MS = 2000, /* What a limit may take. */
};

#define CONFIG                                                                 \
    "{\"pids\": 40, \"file_size_bytes\": 4194304, \"open_files\": 64}"

/* A process of this name, and of our number behind it, soon is or is not. */
static void comes_to_be(const char *name, bool is)
{
    int64_t deadline = clock_deadline(SOON_MS);
    char script[128];

    (void)snprintf(script, sizeof(script), "pgrep -f '[%c]%s.%d' >/dev/null",
                   name[0], name + 1, (int)getpid());
    while ((system(script) == 0) != is) {
        assert_true(clock_ms() < deadline);
        (void)poll(NULL, 0, LOOK_MS);
    }
}

static void it_is_told_which_limits_hold(void **state)
{
    static const char *const none[] = {"memory_bytes", "cpu_percent"};
    struct bench_room *room = *state;
    struct buf text = BUF_INIT(65536);
    struct err err = ERR_INIT;
    struct js *all = NULL;

    assert_int_equal(
        provider_limits(room->bench.provider, &room->box.sandbox, &text, &err),
        0);
    assert_int_equal(js_parse(buf_str(&text), text.size, &all, &err), 0);
    for (size_t i = 0; i < ARRAY_SIZE(none); i++) {
        struct js *one = js_get(all, none[i]);

        assert_null(js_text(one, "by"));
        assert_non_null(strstr(js_text(one, "why"), "no cgroup of our own"));
        js_free(one);
    }
    js_free(all);
    buf_done(&text);
}

static void each_process_is_held(void **state)
{
    struct bench_room *room = *state;

    assert_int_equal(
        bench_sh(&room->bench, &room->box,
                 "head -c 8000000 /dev/zero >big 2>/dev/null; stat -c %s big; "
                 "ulimit -n 65 2>/dev/null || echo held",
                 "4194304\nheld\n"),
        0);
}

static void forks_end_at_their_number(void **state)
{
    struct bench_room *room = *state;
    struct bench_run run;
    int64_t begin = clock_ms();

    (void)bench_script(&room->bench, &room->box,
                       "perl -e 'for (1..400) { $p = fork; last if !defined $p;"
                       " if (!$p) { close STDOUT; close STDERR; sleep 4321; "
                       "exit } push @all, $p } print scalar @all; "
                       "kill KILL => @all'",
                       &run);
    assert_int_equal(bench_exited(&run).end, COMMAND_EXITED);
    assert_in_range(atoi(bench_text(&run, COMMAND_STDOUT)), 1, 40);
    assert_true(clock_ms() - begin < ENDS_MS * 3);
    cancel_fire(&run.cancel);
    bench_closed(&run);
    bench_run_done(&run);
}

static void a_timeout_ends_who_left_the_session(void **state)
{
    struct command command = {.n = bench_next(), .timeout_ms = 1000};
    char script[256];
    struct bench_room *room = *state;
    struct bench_run run;
    int64_t begin = clock_ms();

    (void)snprintf(script, sizeof(script),
                   "n=4329.%d; (setsid sh -c \"trap '' TERM; echo ready; "
                   "sleep $n; sleep $n\" &); sleep $n",
                   (int)getpid());
    command.shell = script;
    command.shell_size = strlen(script);
    bench_run_init(&run);
    bench_start(&room->bench, &room->box, &command, &run);
    assert_int_equal(bench_exited(&run).end, COMMAND_TIMEOUT);
    assert_true(clock_ms() - begin < 1000 + ENDS_MS * 3);
    bench_closed(&run);
    assert_string_equal(bench_text(&run, COMMAND_STDOUT), "ready\n");
    bench_run_done(&run);
    comes_to_be("sleep 4329", false);
}

static void who_is_paused_computes_nothing(void **state)
{
    struct bench_room *room = *state;
    struct limits limits = {.deadline_ms = clock_deadline(SOON_MS),
                            .cancel = &room->bench.never};
    struct err err = ERR_INIT;

    bench_compute(&room->bench, &room->box);
    bench_computes();
    assert_int_equal(
        provider_pause(room->bench.provider, &room->box.sandbox, &limits, &err),
        0);
    assert_true(bench_is_idle());
    assert_int_equal(provider_resume(room->bench.provider, &room->box.sandbox,
                                     &limits, &err),
                     0);
    bench_computes();
    assert_int_equal(bench_sh(&room->bench, &room->box, "echo on", "on\n"), 0);
}

static void the_end_of_a_sandbox_leaves_nothing(void **state)
{
    struct bench_room *room = *state;
    struct bench_box box;
    char script[64];

    bench_create(&room->bench, &box);
    (void)snprintf(script, sizeof(script),
                   "setsid sleep 4328.%d >/dev/null 2>&1 &", (int)getpid());
    assert_int_equal(bench_sh(&room->bench, &box, script, ""), 0);
    comes_to_be("sleep 4328", true);
    bench_destroy(&room->bench, &box);
    comes_to_be("sleep 4328", false);
}

/* ---- The machine ---- */

static void sees(struct bench *bench, const char *script, const char *expect)
{
    struct bench_box box;

    bench_create(bench, &box);
    assert_int_equal(bench_sh(bench, &box, script, expect), 0);
    bench_destroy(bench, &box);
}

/* What is common to all sandboxes is put together once; but not for ever. */
static void each_sandbox_sees_the_machine_as_it_is_then(void **state)
{
    struct bench_room *room = *state;

    assert_int_equal(system("echo new >/etc/new && chmod 644 /etc/new && mv "
                            "/etc/new /etc/timezone"),
                     0);
    sees(&room->bench, "cat /etc/timezone", "new\n");
    assert_int_equal(system("mount -t tmpfs -o mode=755 none /usr/local/lib && "
                            "umask 022 && echo seen >/usr/local/lib/seen"),
                     0);
    sees(&room->bench, "cat /usr/local/lib/seen", "seen\n");
    assert_int_equal(system("umount /usr/local/lib"), 0);
    sees(&room->bench, "cat /usr/local/lib/seen 2>/dev/null || echo gone",
         "gone\n");
}

/* In a mount namespace of its own, with a copy of /etc that can be changed. */
static int enter_own_mounts(void)
{
    return bench_own_mounts() < 0 ||
           system("mount --make-rprivate / && mount -t tmpfs none /mnt && "
                  "cp -a /etc /mnt/etc && mount --bind /mnt/etc /etc") != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_told_which_limits_hold),
        cmocka_unit_test(each_process_is_held),
        cmocka_unit_test(forks_end_at_their_number),
        cmocka_unit_test(a_timeout_ends_who_left_the_session),
        cmocka_unit_test(who_is_paused_computes_nothing),
        cmocka_unit_test(the_end_of_a_sandbox_leaves_nothing),
        cmocka_unit_test(each_sandbox_sees_the_machine_as_it_is_then),
    };

    if (enter_own_mounts() != 0) {
        (void)fprintf(stderr, "cannot change a copy of this machine\n");
        return 1;
    }
    (void)umask(077);
    bench_use("local");
    bench_configure(CONFIG);
    return cmocka_run_group_tests(tests, bench_open_room, bench_close_room) ? 1
                                                                            : 0;
}
