/* Commands whose program is one of fakes/zoo.py. See zoo.c. */
#include "core/clock.h"
#include "tests/cmocka.h"
#include "tests/contract/zoo.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A failure is one of the start, or of the command, which is lost then. */
static void a_command_survives(struct bench_room *room,
                               const struct zoo_row *row)
{
    static const char text[] = "echo well";
    const struct command command = {
        .n = bench_next(), .shell = text, .shell_size = strlen(text)};
    struct limits limits = zoo_within(room, ZOO_LONG_MS);
    struct err err = ERR_INIT;
    struct bench_run run;
    int rc;

    bench_run_init(&run);
    limits.cancel = &run.cancel;
    zoo_arm(row);
    rc = provider_exec(room->bench.provider, &room->box.sandbox, &command,
                       &limits, &bench_sink, &run, &err);
    if (rc == 0) {
        bench_closed(&run);
        err = run.result.why;
        rc = -err.code;
    }
    zoo_check(row, rc, &err);
    if (rc == 0) {
        assert_int_equal(run.result.end, COMMAND_EXITED);
        assert_string_equal(bench_text(&run, COMMAND_STDOUT), row->says);
    } else if (run.exited) {
        assert_int_equal(run.result.end, COMMAND_LOST);
    }
    bench_run_done(&run);
    zoo_disarm(row);
    zoo_works(room);
}

static void commands_survive(void **state)
{
    for (size_t i = 0; i < zoo_command_count; i++) {
        a_command_survives(*state, &zoo_command[i]);
    }
}

static void exit_codes_are_those_of_the_answer(void **state)
{
    struct bench_room *room = *state;

    zoo_arm(&(struct zoo_row){.beast = "two_exit_codes", .method = "exec"});
    assert_int_equal(bench_sh(&room->bench, &room->box, "exit 1", ""), 4);
    zoo_arm(
        &(struct zoo_row){.beast = "the_code_in_the_event", .method = "exec"});
    assert_int_equal(bench_sh(&room->bench, &room->box, "exit 1", ""), 4);
}

static void codes_below_zero_are_signals(void **state)
{
    struct bench_room *room = *state;

    zoo_arm(&(struct zoo_row){.beast = "code_minus_64", .method = "exec"});
    assert_int_equal(bench_sh(&room->bench, &room->box, "exit 1", ""),
                     128 + 64);
}

/* How often the program was asked for a method. */
static unsigned asked(const char *method)
{
    char path[300];
    char line[64];
    unsigned n = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/log", getenv("FAKE_ROOT"));
    file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        n += strcmp(line, method) == 0;
    }
    assert_int_equal(fclose(file), 0);
    return n;
}

/* Each of a process of its own would be a program more to start just then. */
static void commands_that_end_together_are_ended_by_few_calls(void **state)
{
    struct bench_room *room = *state;
    struct bench_run runs[8];
    unsigned before;

    for (size_t i = 0; i < ARRAY_SIZE(runs); i++) {
        (void)bench_script(&room->bench, &room->box, "echo go; sleep 4321",
                           &runs[i]);
        bench_says(&runs[i], "go\n");
    }
    before = asked("spawn");
    for (size_t i = 0; i < ARRAY_SIZE(runs); i++) {
        cancel_fire(&runs[i].cancel);
    }
    for (size_t i = 0; i < ARRAY_SIZE(runs); i++) {
        bench_closed(&runs[i]);
        assert_int_equal(runs[i].result.end, COMMAND_CANCELED);
        assert_int_equal(runs[i].result.why.code, 0);
        bench_run_done(&runs[i]);
    }
    assert_in_range(asked("spawn") - before, 1, ARRAY_SIZE(runs) / 2);
}

/* Nothing that we could do ends them but the end of their processes. */
static void commands_that_hang_are_given_up(void **state)
{
    static const char *const beasts[] = {"hangs", "hangs_in_the_middle",
                                         "ignores_term"};
    static const char text[] = "echo well";
    struct bench_room *room = *state;
    struct bench_run runs[ARRAY_SIZE(beasts)];
    int64_t begin;

    for (size_t i = 0; i < ARRAY_SIZE(beasts); i++) {
        const struct command command = {.n = bench_next(),
                                        .shell = text,
                                        .shell_size = strlen(text),
                                        .timeout_ms = i ? 0 : 2500};

        zoo_arm(&(struct zoo_row){.beast = beasts[i], .method = "exec"});
        bench_run_init(&runs[i]);
        bench_start(&room->bench, &room->box, &command, &runs[i]);
        assert_false(zoo_is_armed());
    }
    begin = clock_ms();
    cancel_fire(&runs[1].cancel);
    cancel_fire(&runs[2].cancel);
    for (size_t i = 0; i < ARRAY_SIZE(beasts); i++) {
        bench_closed(&runs[i]);
        assert_int_equal(runs[i].result.end,
                         i ? COMMAND_CANCELED : COMMAND_TIMEOUT);
        assert_non_null(strstr(runs[i].result.why.msg, "may still run"));
        bench_run_done(&runs[i]);
    }
    assert_true(clock_ms() - begin < 2500 + 2000 + ZOO_SLACK_MS);
    zoo_works(room);
}

/* Whether the command was ended in time, with the beast met on the way. */
static bool cancel_with(struct bench_room *room, const char *beast)
{
    struct bench_run run;
    bool ended;

    (void)bench_script(&room->bench, &room->box, "echo go; sleep 4321", &run);
    bench_says(&run, "go\n");
    zoo_arm(&(struct zoo_row){.beast = beast, .method = "spawn"});
    cancel_fire(&run.cancel);
    bench_closed(&run);
    assert_int_equal(run.result.end, COMMAND_CANCELED);
    ended = run.result.why.code == 0;
    assert_true(ended || run.result.why.code == ETIMEDOUT);
    bench_run_done(&run);
    return ended && !zoo_is_armed();
}

/* A program without spawn, or whose spawn fails, ends commands all the same. */
static void a_command_ends_without_spawn(void **state)
{
    static const char *const beasts[] = {"no_such_method", "dies", "words"};
    struct bench_room *room = *state;

    for (size_t i = 0; i < ARRAY_SIZE(beasts); i++) {
        int tries = 1;

        /* Again where a busy machine was too late to ask or to answer. */
        while (!cancel_with(room, beasts[i])) {
            assert_true(tries++ < 5);
        }
    }
}

/* Where exec has to do for spawn, that is at it long after the command's end.
 */
static void the_next_command_does_not_wait_for_the_one_before(void **state)
{
    struct bench_room *room = *state;
    int64_t least_ms = INT64_MAX;

    for (int i = 0; i < 5 && least_ms > 1000; i++) {
        int64_t begin_ms;

        (void)cancel_with(room, "no_such_method");
        begin_ms = clock_ms();
        if (cancel_with(room, "no_such_method") &&
            clock_ms() - begin_ms < least_ms) {
            least_ms = clock_ms() - begin_ms;
        }
    }
    assert_in_range(least_ms, 0, 1000);
}

/* A long command keeps nothing waiting. */
static void files_are_used_beside_a_command(void **state)
{
    struct bench_room *room = *state;
    struct bench_run run;
    int64_t begin, took;

    (void)bench_script(&room->bench, &room->box, "echo go; sleep 60", &run);
    bench_says(&run, "go\n");
    begin = clock_ms();
    for (int i = 0; i < 4; i++) {
        zoo_works(room);
    }
    took = clock_ms() - begin;
    cancel_fire(&run.cancel);
    bench_closed(&run);
    bench_run_done(&run);
    assert_true(took < 20000);
}

int zoo_commands(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_survive),
        cmocka_unit_test(exit_codes_are_those_of_the_answer),
        cmocka_unit_test(codes_below_zero_are_signals),
        cmocka_unit_test(commands_that_end_together_are_ended_by_few_calls),
        cmocka_unit_test(commands_that_hang_are_given_up),
        cmocka_unit_test(a_command_ends_without_spawn),
        cmocka_unit_test(the_next_command_does_not_wait_for_the_one_before),
        cmocka_unit_test(files_are_used_beside_a_command),
    };

    return cmocka_run_group_tests_name("zoo commands", tests, bench_open_room,
                                       bench_close_room);
}
