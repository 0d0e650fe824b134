/* How commands are ended: timeouts, tokens, signals, hostile trees. */
#include "core/clock.h"
#include "tests/cmocka.h"
#include "tests/contract/bench.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

enum {
    TIMEOUT_MS = 1000, /* In which a busy machine has started them. */
    GRACE_MS = 2000,   /* A tree is dead by then; */
    SLACK = 3,         /* times what a busy machine may add. */
    SLACK_MS = 3000,   /* For what scripts do beside other tests. */
};

static bool has_shell(struct bench_room *room)
{
    return bench_has_shell(&room->bench, &room->box);
}

/* Nothing that a script called `sleep 4321` is there any more. Other processes
 * may end while they are looked at, so that cat's complaints count nothing. */
static void no_sleeper_is_left(struct bench_room *room)
{
    int64_t deadline = clock_deadline(bench_is_apart() ? 0 : SLACK_MS);
    int code = has_shell(room) ? 0 : 1;

    while (code == 0) {
        code = bench_sh(&room->bench, &room->box,
                        "cat /proc/[0-9]*/cmdline 2>/dev/null | "
                        "grep -az '^4321$'",
                        NULL);
        if (clock_ms() >= deadline) {
            break;
        }
    }
    assert_int_equal(code, 1);
}

static void start(struct bench_room *room, const char *script,
                  int64_t timeout_ms, struct bench_run *run)
{
    struct command command = {.n = bench_next(),
                              .shell = script,
                              .shell_size = strlen(script),
                              .timeout_ms = timeout_ms};

    bench_run_init(run);
    bench_start(&room->bench, &room->box, &command, run);
}

/* Trees that do not want to end; each says `ready` first. */
static const char *const trees[] = {
    "echo ready; sleep 4321",
    "trap '' TERM HUP INT; echo ready; sleep 4321; sleep 4321",
    "echo ready; sleep 4321 & sleep 4321 & wait",
    ("setsid sh -c 'trap \"\" TERM; echo ready; sleep 4321; sleep 4321' & "
     "wait; sleep 4321"),
    "(setsid sh -c 'sleep 4321 & sleep 4321' &) ; echo ready; sleep 4321",
    "echo ready; kill -STOP $$; sleep 4321",
    "sleep 4321 & kill -STOP $!; echo ready; wait",
    "trap '' TERM; echo ready; while :; do sleep 4321 & sleep 0.001; done",
    "echo ready; yes 4321",
};

/* One that ends at nothing but our asking. */
static const char *endless(struct bench_room *room)
{
    return has_shell(room) ? trees[0] : "echo ready\nhang";
}

/* An engine without a shell has but one. */
static size_t tree_count(struct bench_room *room)
{
    return has_shell(room) ? ARRAY_SIZE(trees) : 1;
}

static const char *tree(struct bench_room *room, size_t i)
{
    return has_shell(room) ? trees[i] : endless(room);
}

/* A command and the moments between which its time began. */
struct timed {
    struct bench_run run;
    int64_t from_ms;
    int64_t to_ms;
};

static void start_timed(struct bench_room *room, const char *script,
                        struct timed *out)
{
    out->from_ms = clock_ms();
    start(room, script, TIMEOUT_MS, &out->run);
    out->to_ms = clock_ms();
}

static void is_ended_in_time(struct timed *timed)
{
    struct bench_run *run = &timed->run;

    (void)bench_exited(run);
    assert_in_range(run->exited_ms, 0,
                    timed->to_ms + TIMEOUT_MS + SLACK * GRACE_MS);
    bench_closed(run);
    assert_non_null(strstr(bench_text(run, COMMAND_STDOUT), "ready\n"));
    bench_run_done(run);
}

static void is_timed_out(struct timed *timed)
{
    struct bench_run *run = &timed->run;

    assert_int_equal(bench_exited(run).end, COMMAND_TIMEOUT);
    assert_true(run->exited_ms >= timed->from_ms + TIMEOUT_MS - 20);
    is_ended_in_time(timed);
}

static void a_timeout_ends_every_tree_in_time(void **state)
{
    struct bench_room *room = *state;
    struct timed timed[ARRAY_SIZE(trees)];

    for (size_t i = 0; i < tree_count(room); i++) {
        start_timed(room, tree(room, i), &timed[i]);
    }
    for (size_t i = 0; i < tree_count(room); i++) {
        is_timed_out(&timed[i]);
    }
    no_sleeper_is_left(room);
}

static void a_fork_bomb_is_ended_in_time(void **state)
{
    struct bench_room *room = *state;
    enum command_end end;
    struct timed timed;

    if (!has_shell(room) || !bench_is_apart()) {
        skip();
    }
    start_timed(room, "echo ready; exec perl -e 'while (1) { fork }'", &timed);
    /* By its time, or before that as what forks on and on. */
    end = bench_exited(&timed.run).end;
    assert_true(end == COMMAND_TIMEOUT || end == COMMAND_KILLED);
    is_ended_in_time(&timed);
    assert_int_equal(bench_sh(&room->bench, &room->box,
                              "grep -las '^perl' /proc/[0-9]*/cmdline | grep .",
                              ""),
                     1); /* grep(1) fails otherwise where some just end. */
}

static void a_fired_token_ends_every_tree_in_time(void **state)
{
    struct bench_room *room = *state;
    struct bench_run runs[ARRAY_SIZE(trees)];
    int64_t begin;

    for (size_t i = 0; i < tree_count(room); i++) {
        start(room, tree(room, i), 0, &runs[i]);
        bench_says(&runs[i], "ready\n");
    }
    begin = clock_ms();
    for (size_t i = 0; i < tree_count(room); i++) {
        cancel_fire(&runs[i].cancel);
    }
    for (size_t i = 0; i < tree_count(room); i++) {
        assert_int_equal(bench_exited(&runs[i]).end, COMMAND_CANCELED);
        assert_in_range(runs[i].exited_ms - begin, 0, SLACK * GRACE_MS);
        bench_closed(&runs[i]);
        bench_run_done(&runs[i]);
    }
    no_sleeper_is_left(room);
}

static void a_command_that_heeds_term_may_tidy_up(void **state)
{
    struct bench_room *room = *state;
    struct bench_run run;

    if (!has_shell(room)) {
        skip();
    }
    start(room,
          "trap 'sleep 0.3; echo tidied; exit 3' TERM; echo ready; "
          "while :; do sleep 0.05; done",
          TIMEOUT_MS, &run);
    bench_closed(&run);
    assert_int_equal(run.result.end, COMMAND_TIMEOUT);
    assert_string_equal(bench_text(&run, COMMAND_STDOUT), "ready\ntidied\n");
    bench_run_done(&run);
}

static void a_quick_command_does_not_meet_its_timeout(void **state)
{
    struct bench_room *room = *state;
    struct bench_run run;

    start(room, "exit 4", 5000, &run);
    bench_closed(&run);
    assert_int_equal(run.result.end, COMMAND_EXITED);
    assert_int_equal(run.result.code, 4);
    bench_run_done(&run);
}

static void an_end_of_one_command_spares_the_others(void **state)
{
    struct bench_room *room = *state;
    struct bench_run other;
    struct bench_run run;

    if (bench_ops()->flags & PROVIDER_SERIAL) {
        skip();
    }
    start(room, has_shell(room) ? "sleep 2; exit 9" : "sleep 2000\nexit 9", 0,
          &other);
    start(room, endless(room), TIMEOUT_MS, &run);
    assert_int_equal(bench_exited(&run).end, COMMAND_TIMEOUT);
    bench_closed(&run);
    bench_closed(&other);
    assert_int_equal(other.result.end, COMMAND_EXITED);
    assert_int_equal(other.result.code, 9);
    bench_run_done(&run);
    bench_run_done(&other);
}

static int send(struct bench_room *room, uint64_t n, int signal,
                struct err *err)
{
    return provider_signal(room->bench.provider, &room->box.sandbox, n, signal,
                           err);
}

static void a_signal_reaches_a_running_command(void **state)
{
    struct bench_room *room = *state;
    struct err err = ERR_INIT;
    struct bench_run run;
    uint64_t n;

    if (!bench_ops()->signal) {
        skip();
    }
    n = bench_script(&room->bench, &room->box, endless(room), &run);
    bench_says(&run, "ready\n");
    assert_int_equal(send(room, n, SIGKILL, &err), 0);
    bench_closed(&run);
    assert_int_equal(run.result.end, COMMAND_KILLED);
    assert_int_equal(run.result.signal, SIGKILL);
    bench_run_done(&run);
    assert_int_equal(send(room, n, SIGKILL, &err), -ESRCH);
    assert_true(strlen(err.msg) > 0);
    no_sleeper_is_left(room);
}

static void a_signal_can_be_caught(void **state)
{
    struct bench_room *room = *state;
    struct err err = ERR_INIT;
    struct bench_run run;
    uint64_t n;

    if (!bench_ops()->signal || !has_shell(room)) {
        skip();
    }
    n = bench_script(&room->bench, &room->box,
                     "trap 'echo caught; exit 6' USR1; echo ready; "
                     "while :; do sleep 0.05; done",
                     &run);
    bench_says(&run, "ready\n");
    assert_int_equal(send(room, n, SIGUSR1, &err), 0);
    bench_closed(&run);
    assert_int_equal(run.result.code, 6);
    assert_non_null(strstr(bench_text(&run, COMMAND_STDOUT), "caught\n"));
    bench_run_done(&run);
}

static void a_signal_reaches_it_whatever_our_umask_is(void **state)
{
    struct bench_room *room = *state;
    struct bench *bench = &room->bench;
    struct err err = ERR_INIT;
    struct bench_box box;
    struct bench_run run;
    mode_t mask;
    uint64_t n;

    if (!bench_ops()->signal || !has_shell(room)) {
        skip();
    }
    mask = umask(077);
    bench_create(bench, &box);
    n = bench_script(bench, &box, "echo ready; exec sleep 2000", &run);
    (void)umask(mask);
    bench_says(&run, "ready\n");
    assert_int_equal(
        provider_signal(bench->provider, &box.sandbox, n, SIGTERM, &err), 0);
    assert_int_equal(bench_exited(&run).signal, SIGTERM);
    bench_closed(&run);
    bench_run_done(&run);
    bench_destroy(bench, &box);
}

static void the_sandbox_is_as_before_after_all_that(void **state)
{
    struct bench_room *room = *state;

    assert_int_equal(bench_status(&room->bench, &room->box), PROVIDER_RUNNING);
    assert_int_equal(bench_sh(&room->bench, &room->box, "echo well", "well\n"),
                     0);
}

int suite_ends(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_timeout_ends_every_tree_in_time),
        cmocka_unit_test(a_fork_bomb_is_ended_in_time),
        cmocka_unit_test(a_fired_token_ends_every_tree_in_time),
        cmocka_unit_test(a_command_that_heeds_term_may_tidy_up),
        cmocka_unit_test(a_quick_command_does_not_meet_its_timeout),
        cmocka_unit_test(an_end_of_one_command_spares_the_others),
        cmocka_unit_test(a_signal_reaches_a_running_command),
        cmocka_unit_test(a_signal_can_be_caught),
        cmocka_unit_test(a_signal_reaches_it_whatever_our_umask_is),
        cmocka_unit_test(the_sandbox_is_as_before_after_all_that),
    };

    return cmocka_run_group_tests_name("ends", tests, bench_open_room,
                                       bench_close_room);
}
