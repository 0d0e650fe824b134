/*
 * What `local` costs beside what the kernel itself takes for as much. The
 * figures are printed; only four times a bound is a failure.
 */
#include "core/clock.h"
#include "tests/cmocka.h"
#include "tests/contract/bench.h"

#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SKIPPED = 77,
    TIMES = 40,
    SLACK = 4, /* What the machine's other work may cost. */
    FREEZE_US = 2000,
    THAW_US = 50000,
};

static const double create_bound = 3;
static const double exec_bound = 1.5;

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static int64_t median(int64_t us[TIMES])
{
    qsort(us, TIMES, sizeof(us[0]), compare);
    return us[TIMES / 2];
}

/* What is measured, beside what it is measured by, taken in turns. */
static void compare_costs(const char *name, void (*run)(void *arg),
                          const char *with, void (*plain)(void *arg), void *arg,
                          double bound)
{
    int64_t ours[TIMES];
    int64_t theirs[TIMES];
    const size_t tenth = TIMES / 10;
    double ratio;
    double best;

    for (int i = 0; i < TIMES; i++) {
        int64_t begin = clock_wall_us();

        run(arg);
        ours[i] = clock_wall_us() - begin;
        begin = clock_wall_us();
        plain(arg);
        theirs[i] = clock_wall_us() - begin;
    }
    ratio = (double)median(ours) / (double)median(theirs);
    best = (double)ours[tenth] / (double)theirs[tenth];
    print_message("  %s: %lld us, %s: %lld us, ratio %.2f (of the best tenth "
                  "%.2f), bound %.1f\n",
                  name, (long long)median(ours), with,
                  (long long)median(theirs), ratio, best, bound);
    assert_true(ratio < bound * SLACK);
}

/* ---- Making a sandbox ---- */

struct made {
    struct bench bench;
    struct bench_box boxes[TIMES];
    int count;
};

static void make_one(void *arg)
{
    struct made *made = arg;

    bench_create(&made->bench, &made->boxes[made->count++]);
}

static void clone_one(void *arg)
{
    struct clone_args how = {
        .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |
                 CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP,
        .exit_signal = SIGCHLD};
    pid_t pid = (pid_t)syscall(SYS_clone3, &how, sizeof(how));

    (void)arg;
    if (pid == 0) {
        _exit(0);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void a_sandbox_costs_some_namespaces(void **state)
{
    struct made *made = calloc(1, sizeof(*made));

    (void)state;
    assert_non_null(made);
    bench_open(&made->bench);
    compare_costs("create", make_one, "clone3", clone_one, made, create_bound);
    for (int i = 0; i < made->count; i++) {
        bench_destroy(&made->bench, &made->boxes[i]);
    }
    bench_close(&made->bench);
    free(made);
}

/* ---- Running a command ---- */

static char *const plain[] = {(char[]){"/bin/true"}, NULL};

static void exec_one(void *arg)
{
    struct bench_room *room = arg;
    static const char *const argv[] = {"/bin/true", NULL};
    const struct command command = {.n = bench_next(), .argv = argv};
    struct bench_run run;

    bench_run_init(&run);
    bench_start(&room->bench, &room->box, &command, &run);
    assert_int_equal(bench_exited(&run).code, 0);
    bench_closed(&run);
    bench_run_done(&run);
    provider_settled(room->bench.provider, room->box.sandbox.number, command.n);
}

static void spawn_one(void *arg)
{
    pid_t pid;

    (void)arg;
    assert_int_equal(posix_spawn(&pid, plain[0], NULL, NULL, plain, NULL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void a_command_costs_a_process(void **state)
{
    compare_costs("exec true", exec_one, "posix_spawn", spawn_one, *state,
                  exec_bound);
}

/* ---- Pausing ---- */

static void a_hundred_processes_are_paused_at_once(void **state)
{
    struct bench_room *room = *state;
    struct bench *bench = &room->bench;
    struct err err = ERR_INIT;
    int64_t us[TIMES];

    assert_int_equal(bench_sh(bench, &room->box,
                              "for i in $(seq 100); do sleep 1000 & done "
                              ">/dev/null 2>&1",
                              ""),
                     0);
    assert_int_equal(bench_sh(bench, &room->box, "pgrep -c sleep", "100\n"), 0);
    for (int i = 0; i < TIMES; i++) {
        int64_t begin;

        /* What was just thawed has not run yet, and is frozen still. */
        assert_int_equal(usleep(THAW_US), 0);
        begin = clock_wall_us();
        bench->limits.deadline_ms = clock_deadline(10000);
        assert_int_equal(provider_pause(bench->provider, &room->box.sandbox,
                                        &bench->limits, &err),
                         0);
        us[i] = clock_wall_us() - begin;
        assert_int_equal(provider_resume(bench->provider, &room->box.sandbox,
                                         &bench->limits, &err),
                         0);
    }
    print_message("  freeze of 100 processes: %lld us, bound %d\n",
                  (long long)median(us), FREEZE_US);
    assert_true(median(us) < (int64_t)FREEZE_US * SLACK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sandbox_costs_some_namespaces),
        cmocka_unit_test_setup_teardown(a_command_costs_a_process,
                                        bench_open_room, bench_close_room),
        cmocka_unit_test_setup_teardown(a_hundred_processes_are_paused_at_once,
                                        bench_open_room, bench_close_room),
    };

    if (geteuid() != 0) {
        (void)fprintf(stderr, "measured as root only\n");
        return SKIPPED;
    }
    (void)umask(077);
    bench_use("local");
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
