/* Commands: what goes in and what comes out, to the byte. */
#include "core/clock.h"
#include "tests/cmocka.h"
#include "tests/contract/bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A bench with one sandbox that all tests of the group use. */
static void need_shell(struct bench_room *room)
{
    if (!bench_has_shell(&room->bench, &room->box)) {
        skip();
    }
}

static const char *pick(struct bench_room *room, const char *shell,
                        const char *plain)
{
    return bench_pick(&room->bench, &room->box, shell, plain);
}

static int sh(void **state, const char *script, const char *expect)
{
    struct bench_room *room = *state;

    return bench_sh(&room->bench, &room->box, script, expect);
}

static void output_and_exit_codes_arrive(void **state)
{
    static const struct {
        const char *script;
        const char *out;
        int code;
    } cases[] = {
        {"echo hello", "hello\n", 0},
        {"true", "", 0},
        {"false", "", 1},
        {"exit 0", "", 0},
        {"exit 7", "", 7},
        {"echo a\nexit 255", "a\n", 255},
        {"echo a\necho b\n", "a\nb\n", 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(sh(state, cases[i].script, cases[i].out),
                         cases[i].code);
    }
}

static void shell_syntax_arrives_as_written(void **state)
{
    static const struct {
        const char *script;
        const char *out;
        int code;
    } cases[] = {
        {"cat <<'END'\n$x `y` \\z \"q\"\nEND\n", "$x `y` \\z \"q\"\n", 0},
        {"printf '%s|' 'a b' \"c\\\"d\" 'e'\\''f'", "a b|c\"d|e'f|", 0},
        {"exit 126", "", 126},
        {"nonexistent-program 2>/dev/null", "", 127},
        {"kill -TERM $$", "", 128 + 15},
        {"kill -KILL $$", "", 128 + 9},
        {"for i in 1 2 3; do printf $i; done", "123", 0},
        {"echo to stderr >&2", "", 0},
        {"# only a comment", "", 0},
        {"cat", "", 0},
        {"pwd", NULL, 0},
        {"umask", "0022\n", 0},
    };
    struct bench_room *room = *state;

    need_shell(room);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(sh(state, cases[i].script, cases[i].out),
                         cases[i].code);
    }
}

static void a_command_starts_in_the_workspace(void **state)
{
    struct bench_room *room = *state;
    char expect[256];

    need_shell(room);
    (void)snprintf(expect, sizeof(expect), "%s\n",
                   room->box.instance.workspace_path);
    assert_int_equal(sh(state, "pwd", expect), 0);
}

static void every_byte_value_comes_back(void **state)
{
    struct bench_room *room = *state;
    struct bench_run run;
    const struct buf *out = &run.out[COMMAND_STDOUT];

    need_shell(room);
    (void)bench_script(&room->bench, &room->box,
                       "i=0; while [ $i -lt 256 ]; do "
                       "printf \"\\\\$(printf %03o $i)\"; i=$((i + 1)); done",
                       &run);
    bench_closed(&run);
    assert_int_equal(out->size, 256);
    for (size_t i = 0; i < 256; i++) {
        assert_int_equal((unsigned char)out->data[i], i);
    }
    bench_run_done(&run);
}

static void stdout_and_stderr_come_apart(void **state)
{
    struct bench_room *room = *state;
    struct bench_run run;

    if (!(bench_ops()->flags & PROVIDER_SPLIT_STDERR)) {
        skip();
    }
    (void)bench_script(
        &room->bench, &room->box,
        pick(room, "echo one; echo two >&2", "echo one\nerr two"), &run);
    bench_closed(&run);
    assert_string_equal(bench_text(&run, COMMAND_STDOUT), "one\n");
    assert_string_equal(bench_text(&run, COMMAND_STDERR), "two\n");
    bench_run_done(&run);
}

static void a_script_may_be_long(void **state)
{
    struct bench_room *room = *state;
    struct bench_run run;
    struct command command = {.n = bench_next()};
    size_t size = 1024 * 1024;
    char *script = malloc(size + 1);

    assert_non_null(script);
    memset(script, 'x', size);
    memcpy(script, "echo ", 5);
    memcpy(script + size - 1, "\n", 2);
    command.shell = script;
    command.shell_size = size;
    bench_run_init(&run);
    bench_start(&room->bench, &room->box, &command, &run);
    bench_closed(&run);
    assert_int_equal(run.result.code, 0);
    assert_int_equal(run.bytes[COMMAND_STDOUT], size - 5);
    bench_run_done(&run);
    free(script);
}

static void much_output_arrives_whole_before_the_end(void **state)
{
    struct bench_room *room = *state;
    size_t size = getenv("CONTRACT_QUICK") ? 1000000 : 50000000;
    struct bench_run run;
    char script[64];

    (void)snprintf(script, sizeof(script), "%s %zu%s",
                   pick(room, "head -c", "spam"), size,
                   pick(room, " /dev/zero", ""));
    (void)bench_script(&room->bench, &room->box, script, &run);
    (void)bench_exited(&run);
    assert_int_equal(run.bytes[COMMAND_STDOUT], size);
    bench_closed(&run);
    assert_int_equal(run.result.code, 0);
    bench_run_done(&run);
}

static void an_argument_vector_arrives_as_it_is(void **state)
{
    const char *const argv[] = {"printf", "<%s>", "a b",      "",
                                "c\nd",   "$x",   "\xff\xfe", NULL};
    struct command command = {.n = bench_next(), .argv = argv};
    struct bench_room *room = *state;
    struct bench_run run;

    need_shell(room);
    bench_run_init(&run);
    bench_start(&room->bench, &room->box, &command, &run);
    bench_closed(&run);
    assert_string_equal(bench_text(&run, COMMAND_STDOUT),
                        "<a b><><c\nd><$x><\xff\xfe>");
    bench_run_done(&run);
}

static void environment_and_directory_are_as_asked(void **state)
{
    const char *const env[] = {"NEW=a b=c", "HOME=/tmp", NULL};
    const char script[] = "echo \"$NEW|$HOME|$PATH\" | cut -d: -f1; pwd";
    struct command command = {.n = bench_next(),
                              .shell = script,
                              .shell_size = strlen(script),
                              .env = env,
                              .cwd = "/tmp"};
    struct bench_room *room = *state;
    struct bench_run run;
    const char *text;

    need_shell(room);
    bench_run_init(&run);
    bench_start(&room->bench, &room->box, &command, &run);
    bench_closed(&run);
    text = bench_text(&run, COMMAND_STDOUT);
    assert_int_equal(strncmp(text, "a b=c|/tmp|/", 12), 0);
    assert_non_null(strstr(text, "\n/tmp\n"));
    bench_run_done(&run);
}

static void a_program_is_looked_for_in_the_path_that_it_gets(void **state)
{
    const char *const env[] = {"PATH=/tmp/programs:/usr/bin:/bin", NULL};
    const char *const argv[] = {"here", NULL};
    struct command command = {.n = bench_next(), .argv = argv, .env = env};
    struct bench_room *room = *state;
    struct bench_run run;

    if (!bench_is_apart()) { /* It would write to our own /tmp. */
        skip();
    }
    need_shell(room);
    assert_int_equal(sh(state,
                        "mkdir /tmp/programs && cd /tmp/programs &&"
                        " printf '#!/bin/sh\necho found\n' > here &&"
                        " chmod 755 here",
                        ""),
                     0);
    bench_run_init(&run);
    bench_start(&room->bench, &room->box, &command, &run);
    bench_closed(&run);
    assert_string_equal(bench_text(&run, COMMAND_STDOUT), "found\n");
    bench_run_done(&run);
}

static void nothing_of_our_environment_is_seen(void **state)
{
    struct bench_room *room = *state;

    need_shell(room);
    assert_int_equal(setenv("SESSIONFS_TEST_SECRET", "secret", 1), 0);
    bench_reopen(&room->bench);
    assert_int_equal(provider_resume(room->bench.provider, &room->box.sandbox,
                                     bench_limits(&room->bench),
                                     &(struct err)ERR_INIT),
                     0);
    assert_int_equal(sh(state, "env | grep -c SECRET", "0\n"), 1);
    assert_int_equal(unsetenv("SESSIONFS_TEST_SECRET"), 0);
}

static void input_arrives_to_the_byte(void **state)
{
    static const char input[] = "one\0two\xff\n";
    struct command command = {.n = bench_next(),
                              .shell = "cat",
                              .shell_size = 3,
                              .input = input,
                              .input_size = sizeof(input)};
    struct bench_room *room = *state;
    struct bench_run run;

    if (!(bench_ops()->flags & PROVIDER_STDIN)) {
        skip();
    }
    bench_run_init(&run);
    bench_start(&room->bench, &room->box, &command, &run);
    bench_closed(&run);
    assert_int_equal(run.out[0].size, sizeof(input));
    assert_memory_equal(run.out[0].data, input, sizeof(input));
    bench_run_done(&run);
}

/* What an engine without directories has: files as a whole. */
static void whole_files_go_both_ways(void **state)
{
    static const char bytes[] = "one\0two\xff\n";
    struct bench_room *room = *state;
    struct bench *bench = &room->bench;
    struct err err = ERR_INIT;
    char back[sizeof(bytes) + 1];
    mode_t mask = umask(0); /* As the daemon has it. */
    int to, from;

    if (!bench_ops()->read_file) {
        (void)umask(mask);
        skip();
    }
    bench_reopen(bench); /* Its programs are started anew, */
    to = memfd_create("to", MFD_CLOEXEC);
    from = memfd_create("from", MFD_CLOEXEC);
    assert_int_equal(write(to, bytes, sizeof(bytes)), sizeof(bytes));
    assert_int_equal(lseek(to, 0, SEEK_SET), 0);
    assert_int_equal(provider_write_file(bench->provider, &room->box.sandbox,
                                         "wh\xc3\xb6le", to,
                                         bench_limits(bench), &err),
                     0);
    (void)umask(mask); /* and by now they are. */
    assert_int_equal(sh(state, "stat -c %a wh*", "644\n"), 0);
    assert_int_equal(sh(state, "cat wh* | wc -c | tr -d ' '", "10\n"), 0);
    assert_int_equal(provider_read_file(bench->provider, &room->box.sandbox,
                                        "wh\xc3\xb6le", from,
                                        bench_limits(bench), &err),
                     0);
    assert_int_equal(pread(from, back, sizeof(back), 0), sizeof(bytes));
    assert_memory_equal(back, bytes, sizeof(bytes));
    assert_true(provider_read_file(bench->provider, &room->box.sandbox, "none",
                                   from, bench_limits(bench), &err) < 0);
    (void)close(to);
    (void)close(from);
}

static void what_cannot_start_fails_with_words(void **state)
{
    static const char *const missing[] = {"no-such-program", NULL};
    static const char *const dir[] = {"/", NULL};
    static const char *const fine[] = {"true", NULL};
    static const char *const none[] = {NULL};
    static const struct {
        const char *const *argv;
        const char *cwd;
        int rc;
    } cases[] = {
        {missing, NULL, -ENOENT},
        {dir, NULL, -EACCES},
        {fine, "/no/such/directory", -ENOENT},
        {none, NULL, -EINVAL},
    };
    struct bench_room *room = *state;

    need_shell(room);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct command command = {
            .n = bench_next(), .argv = cases[i].argv, .cwd = cases[i].cwd};
        struct err err = ERR_INIT;
        struct bench_run run;

        bench_run_init(&run);
        assert_int_equal(provider_exec(room->bench.provider, &room->box.sandbox,
                                       &command, bench_limits(&room->bench),
                                       &bench_sink, &run, &err),
                         cases[i].rc);
        assert_true(strlen(err.msg) > 0);
        assert_int_equal(run.started, 0);
        bench_run_done(&run);
    }
}

static void commands_run_side_by_side(void **state)
{
    struct bench_room *room = *state;
    struct bench_run runs[16];
    int64_t start = clock_ms();

    if (bench_ops()->flags & PROVIDER_SERIAL) {
        skip();
    }
    for (size_t i = 0; i < ARRAY_SIZE(runs); i++) {
        char script[64];

        (void)snprintf(script, sizeof(script), "sleep %s\necho %zu\nexit %zu",
                       pick(room, "0.5", "500"), i, i);
        (void)bench_script(&room->bench, &room->box, script, &runs[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(runs); i++) {
        char expect[16];

        (void)snprintf(expect, sizeof(expect), "%zu\n", i);
        bench_closed(&runs[i]);
        assert_string_equal(bench_text(&runs[i], COMMAND_STDOUT), expect);
        assert_int_equal(runs[i].result.code, i);
        bench_run_done(&runs[i]);
    }
    assert_true(clock_ms() - start < 6000);
}

static void many_commands_leave_nothing(void **state)
{
    struct bench_room *room = *state;

    if (!bench_is_apart()) {
        skip();
    }
    need_shell(room);
    for (int i = 0; i < 300; i++) {
        assert_int_equal(sh(state, "sleep 0 & true", ""), 0);
    }
    /* This shell and what it runs: no zombie, no process left behind. */
    assert_int_equal(sh(state, "ls -d /proc/[0-9]* | wc -l", NULL), 0);
    assert_int_equal(sh(state,
                        "for i in $(seq 50); do sleep 0.2; "
                        "n=$(ls -d /proc/[0-9]* | wc -l); "
                        "[ $n -ge 8 ] || exit 0; done; exit 1",
                        ""),
                     0);
}

static void left_behind_processes_live_on(void **state)
{
    struct bench_room *room = *state;
    struct bench_run run;

    if (!(bench_ops()->flags & PROVIDER_BACKGROUND)) {
        skip();
    }
    need_shell(room);
    (void)bench_script(&room->bench, &room->box,
                       "(until [ -e go ]; do sleep 0.05; done; echo late; "
                       "echo x > late) & echo early",
                       &run);
    assert_int_equal(bench_exited(&run).code, 0);
    assert_int_equal(run.closed, 0);
    assert_string_equal(bench_text(&run, COMMAND_STDOUT), "early\n");
    assert_int_equal(sh(state, "test -e late", ""), 1);
    assert_int_equal(sh(state, "touch go", ""), 0);
    bench_closed(&run);
    assert_string_equal(bench_text(&run, COMMAND_STDOUT), "early\nlate\n");
    assert_int_equal(sh(state, "test -e late", ""), 0);
    bench_run_done(&run);
}

static void a_script_can_open_its_streams_by_name(void **state)
{
    struct bench_room *room = *state;

    need_shell(room);
    assert_int_equal(sh(state,
                        "echo a > /dev/stdout; echo b >/dev/stderr; "
                        "cat /dev/stdin; echo c | tee /dev/fd/1 >/dev/null",
                        "a\n"),
                     0);
}

int suite_exec(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_and_exit_codes_arrive),
        cmocka_unit_test(shell_syntax_arrives_as_written),
        cmocka_unit_test(a_command_starts_in_the_workspace),
        cmocka_unit_test(every_byte_value_comes_back),
        cmocka_unit_test(stdout_and_stderr_come_apart),
        cmocka_unit_test(a_script_may_be_long),
        cmocka_unit_test(much_output_arrives_whole_before_the_end),
        cmocka_unit_test(an_argument_vector_arrives_as_it_is),
        cmocka_unit_test(environment_and_directory_are_as_asked),
        cmocka_unit_test(a_program_is_looked_for_in_the_path_that_it_gets),
        cmocka_unit_test(nothing_of_our_environment_is_seen),
        cmocka_unit_test(input_arrives_to_the_byte),
        cmocka_unit_test(whole_files_go_both_ways),
        cmocka_unit_test(what_cannot_start_fails_with_words),
        cmocka_unit_test(commands_run_side_by_side),
        cmocka_unit_test(many_commands_leave_nothing),
        cmocka_unit_test(left_behind_processes_live_on),
        cmocka_unit_test(a_script_can_open_its_streams_by_name),
    };

    return cmocka_run_group_tests_name("exec", tests, bench_open_room,
                                       bench_close_room);
}
