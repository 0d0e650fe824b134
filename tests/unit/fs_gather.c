/* Gathered scripts, and what /proc says of their writers. */
#include "tests/cmocka.h"

#include "core/compiler.h"
#include "fs/gather.h"
#include "fs/task.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MAX = 16
};

static const struct gather_kind scripts = {"script", "bad", MAX};

static void add(struct gather *gather, uint64_t owner, const char *text)
{
    struct err err = ERR_INIT;

    assert_int_equal(gather_add(gather, owner, text, strlen(text), &err), 0);
}

static int take(struct gather *gather, uint64_t owner, struct buf *out)
{
    struct err err = ERR_INIT;

    return gather_take(gather, owner, out, &err);
}

static void texts_of_two_writers_never_mix(void **state)
{
    struct buf one = BUF_INIT(MAX);
    struct buf two = BUF_INIT(MAX);
    struct gather gather;

    (void)state;
    gather_init(&gather, &scripts);
    add(&gather, 1, "ls");
    add(&gather, 2, "pwd");
    add(&gather, 1, " -l");
    assert_int_equal(take(&gather, 1, &one), 1);
    assert_int_equal(take(&gather, 2, &two), 1);
    assert_string_equal(buf_str(&one), "ls -l");
    assert_string_equal(buf_str(&two), "pwd");
    buf_done(&one);
    buf_done(&two);
    gather_done(&gather);
}

static void a_text_is_taken_once(void **state)
{
    struct buf text = BUF_INIT(MAX);
    struct gather gather;

    (void)state;
    gather_init(&gather, &scripts);
    assert_int_equal(take(&gather, 1, &text), 0);
    add(&gather, 1, "ls");
    assert_int_equal(take(&gather, 2, &text), 0);
    assert_int_equal(take(&gather, 1, &text), 1);
    buf_done(&text);
    assert_int_equal(take(&gather, 1, &text), 0);
    add(&gather, 1, "id");
    assert_int_equal(take(&gather, 1, &text), 1);
    assert_string_equal(buf_str(&text), "id");
    buf_done(&text);
    gather_done(&gather);
}

static void blanks_are_nothing_to_run(void **state)
{
    static const char *const blank[] = {"", " ", "\n", " \t\r\n\v\f "};
    struct buf text = BUF_INIT(MAX);
    struct gather gather;

    (void)state;
    gather_init(&gather, &scripts);
    for (size_t i = 0; i < ARRAY_SIZE(blank); i++) {
        add(&gather, 1, blank[i]);
        assert_int_equal(take(&gather, 1, &text), 0);
    }
    add(&gather, 1, " : \n");
    assert_int_equal(take(&gather, 1, &text), 1);
    buf_done(&text);
    gather_done(&gather);
}

static void what_cannot_be_a_script_poisons_the_handle(void **state)
{
    static const struct {
        const char *data;
        size_t size;
        int code;
    } cases[] = {
        {"a\0b", 3, EINVAL},
        {"\0", 1, EINVAL},
        {"0123456789abcdefg", 17, EFBIG},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct buf text = BUF_INIT(MAX);
        struct err err = ERR_INIT;
        struct gather gather;

        gather_init(&gather, &scripts);
        add(&gather, 1, "rm x");
        add(&gather, 2, "rm y");
        assert_int_equal(
            gather_add(&gather, 1, cases[i].data, cases[i].size, &err),
            -cases[i].code);
        assert_int_equal(err.code, cases[i].code);
        err_clear(&err);
        assert_int_equal(gather_add(&gather, 2, "ls", 2, &err), -cases[i].code);
        err_clear(&err);
        for (uint64_t owner = 1; owner <= 3; owner++) {
            assert_int_equal(gather_take(&gather, owner, &text, &err),
                             -cases[i].code);
            err_clear(&err);
        }
        gather_done(&gather);
    }
}

static void a_script_may_have_exactly_the_most_bytes(void **state)
{
    struct buf text = BUF_INIT(MAX);
    struct gather gather;

    (void)state;
    gather_init(&gather, &scripts);
    add(&gather, 1, "0123456789");
    add(&gather, 1, "abcdef");
    assert_int_equal(take(&gather, 1, &text), 1);
    assert_int_equal(text.size, MAX);
    buf_done(&text);
    gather_done(&gather);
}

static void only_signals_that_end_programs_end_a_wait(void **state)
{
    static const struct {
        int sig;
        bool blocked;
        bool shared;
        bool ends;
    } cases[] = {
        {SIGKILL, false, false, true},  {SIGHUP, false, true, true},
        {SIGINT, false, false, true},   {SIGQUIT, false, true, true},
        {SIGTERM, false, true, true},   {SIGINT, true, false, false},
        {SIGTERM, true, true, false},   {SIGCHLD, false, true, false},
        {SIGWINCH, false, true, false}, {SIGALRM, false, false, false},
        {SIGTSTP, false, true, false},  {SIGSTOP, false, true, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        unsigned long long bit = 1ULL << (cases[i].sig - 1);
        char text[256];

        (void)snprintf(text, sizeof(text),
                       "Name:\tx\nSigQ:\t0/15\nSigPnd:\t%016llx\n"
                       "ShdPnd:\t%016llx\nSigBlk:\t%016llx\nSigIgn:\t0\n",
                       cases[i].shared ? 0 : bit, cases[i].shared ? bit : 0,
                       cases[i].blocked ? bit : 0);
        assert_int_equal(task_parse_interrupted(text), cases[i].ends);
    }
    assert_true(task_parse_interrupted("Name:\tx\n"));
    assert_true(task_interrupted(0));
    assert_false(task_interrupted(getpid()));
}

/* A stat line with the flags and the exit code. */
static const char *stat_line(const char *comm, unsigned flags, unsigned code)
{
    static char text[512];

    (void)snprintf(text, sizeof(text),
                   "7 (%s) R 1 1 1 0 -1 %u 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 1 "
                   "1 1 1 1 1 0 0 0 0 0 0 0 17 3 0 0 0 0 0 1 1 1 1 1 1 1 %u\n",
                   comm, flags, code);
    return text;
}

static void a_killed_task_is_told_from_one_that_exits(void **state)
{
    static const struct {
        const char *comm;
        unsigned flags;
        unsigned code;
        struct task is;
    } cases[] = {
        {"sh", 0x400000, 0, {false, false, 3}},
        {"sh", 0x400004, 0, {true, false, 3}},
        {"a b) (c", 0x400004, 9, {true, true, 3}},
        {") ) )", 0x4, 0x80 | 11, {true, true, 3}},
        {"sh", 0x404, 3U << 8, {true, false, 3}},
        {"sh", 0x400, 9, {false, false, 3}},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct task task = {.cpu = -1};

        assert_true(task_parse_stat(
            stat_line(cases[i].comm, cases[i].flags, cases[i].code), &task));
        assert_int_equal(task.exiting, cases[i].is.exiting);
        assert_int_equal(task.killed, cases[i].is.killed);
        assert_int_equal(task.cpu, cases[i].is.cpu);
    }
}

static void a_short_stat_line_makes_no_sense(void **state)
{
    static const char *const lines[] = {"", "7", "7 (x", "7 (x) R 1 1"};
    struct task task = {.cpu = -1};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        assert_false(task_parse_stat(lines[i], &task));
    }
}

static void the_living_and_the_dead_are_looked_at(void **state)
{
    struct task task;
    siginfo_t info;
    pid_t pid;

    (void)state;
    task_look(getpid(), &task);
    assert_false(task.exiting);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)pause();
        _exit(0);
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    task_look(pid, &task);
    assert_true(task.exiting);
    assert_true(task.killed);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    task_look(pid, &task);
    assert_false(task.exiting);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_of_two_writers_never_mix),
        cmocka_unit_test(a_text_is_taken_once),
        cmocka_unit_test(blanks_are_nothing_to_run),
        cmocka_unit_test(what_cannot_be_a_script_poisons_the_handle),
        cmocka_unit_test(a_script_may_have_exactly_the_most_bytes),
        cmocka_unit_test(only_signals_that_end_programs_end_a_wait),
        cmocka_unit_test(a_killed_task_is_told_from_one_that_exits),
        cmocka_unit_test(a_short_stat_line_makes_no_sense),
        cmocka_unit_test(the_living_and_the_dead_are_looked_at),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
