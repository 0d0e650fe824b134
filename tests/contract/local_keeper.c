/* The keeper between two daemons: whom it serves, for how long, and with what
 * it lacks. */
#include "core/cleanup.h"
#include "core/clock.h"
#include "tests/cmocka.h"
#include "tests/contract/bench.h"
#include "tests/contract/local.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    NOBODY = 65534,
    BOXES = 4,
    FEW_FILES = 84, /* For some of what BOXES need held, not for all. */
    MANY = 120,     /* Commands that fill a keeper's socket. */
    SHORT_S = 1,
    SOON_MS = 4000
};

static void leave(struct bench *bench)
{
    bench->env.leave = true;
    provider_close(bench->provider);
    bench->env.leave = false;
}

static bool has_processes(struct bench *bench, const struct bench_box *box)
{
    return provider_has_processes(bench->provider, box->sandbox.number);
}

/* Our child of that name that lives. */
static pid_t find_keeper(void)
{
    static const char find[] =
        "for p in $(cat /proc/%d/task/*/children); do "
        "grep -qx sessionfs-keepe /proc/$p/comm && "
        "! grep -q 'State:.Z' /proc/$p/status && echo $p; done";
    char script[sizeof(find) + 16];
    char line[32] = "";
    FILE *out;

    (void)snprintf(script, sizeof(script), find, (int)getpid());
    out = popen(script, "r");
    assert_non_null(out);
    while (fgets(line, sizeof(line), out)) {
    }
    (void)pclose(out);
    return (pid_t)strtol(line, NULL, 10);
}

static void when_its_time_is_over_all_ends(void **state)
{
    struct bench bench;
    struct bench_box box;

    (void)state;
    bench_open(&bench);
    bench.env.leave_s = SHORT_S;
    bench_reopen(&bench); /* The time is that of the last daemon. */
    bench_create(&bench, &box);
    assert_int_equal(bench_sh(&bench, &box, "echo kept >file", ""), 0);
    leave(&bench);
    bench_open_again(&bench); /* In time. */
    assert_true(has_processes(&bench, &box));
    leave(&bench);
    assert_int_equal(usleep(SHORT_S * 1000000 + 1200000), 0);
    bench_open_again(&bench);
    assert_false(has_processes(&bench, &box));
    assert_int_equal(bench_status(&bench, &box), PROVIDER_PAUSED);
    bench_destroy(&bench, &box);
    bench_close(&bench);
}

/* Tells by its exit status how a stranger fares who gets to the socket. */
NORETURN static void be_stranger(int dir)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    char byte;

    (void)snprintf(to.sun_path, sizeof(to.sun_path),
                   "/proc/self/fd/%d/keeper.sock", dir);
    if (setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
        setresuid(NOBODY, NOBODY, NOBODY) < 0 ||
        connect(sock, (const struct sockaddr *)&to, sizeof(to)) < 0) {
        _exit(1);
    }
    _exit(recv(sock, &byte, 1, 0) > 0 ? 2 : 0);
}

static void it_serves_nobody_else(void **state)
{
    struct bench *bench = *state;
    struct bench_box box;
    int status = -1;
    pid_t pid;
    int dir;

    bench_create(bench, &box);
    leave(bench);
    dir = open(bench->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(dir >= 0);
    /* Nobody else comes to it but by its user's own doing. */
    assert_int_equal(chmod(bench->dir, 0711), 0);
    assert_int_equal(fchmodat(dir, "keeper.sock", 0666, 0), 0);
    pid = fork();
    if (pid == 0) {
        be_stranger(dir);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(chmod(bench->dir, 0700), 0);
    (void)close(dir);
    bench_open_again(bench);
    assert_true(has_processes(bench, &box));
    assert_int_equal(bench_sh(bench, &box, "echo still here", "still here\n"),
                     0);
    bench_destroy(bench, &box);
}

/* Those that it has no room for end with the daemon, and nothing else is wrong
 * with them. */
static void one_with_a_full_table_keeps_what_it_can(void **state)
{
    const struct rlimit few = {FEW_FILES, FEW_FILES};
    struct err err = ERR_INIT;
    struct bench bench;
    struct bench_box boxes[BOXES];
    int kept = 0;

    (void)state;
    bench_open(&bench);
    assert_int_equal(prlimit(find_keeper(), RLIMIT_NOFILE, &few, NULL), 0);
    for (int i = 0; i < BOXES; i++) {
        bench_create(&bench, &boxes[i]);
    }
    leave(&bench);
    bench_open_again(&bench);
    for (int i = 0; i < BOXES; i++) {
        bool lives = has_processes(&bench, &boxes[i]);

        kept += lives;
        assert_int_equal(bench_status(&bench, &boxes[i]),
                         lives ? PROVIDER_RUNNING : PROVIDER_PAUSED);
        assert_int_equal(provider_resume(bench.provider, &boxes[i].sandbox,
                                         bench_limits(&bench), &err),
                         0);
        assert_int_equal(bench_sh(&bench, &boxes[i], "echo on", "on\n"), 0);
        bench_destroy(&bench, &boxes[i]);
    }
    assert_in_range(kept, 1, BOXES - 1);
    bench_close(&bench);
}

/* Commands do not need it; they only are not held. */
static void one_that_is_stopped_holds_up_nobody(void **state)
{
    struct bench bench;
    struct bench_box box;
    int64_t longest = 0;
    pid_t keeper;

    (void)state;
    bench_open(&bench);
    bench_create(&bench, &box);
    keeper = find_keeper();
    assert_int_equal(kill(keeper, SIGSTOP), 0);
    for (int i = 0; i < MANY && longest < SOON_MS; i++) {
        int64_t begin = clock_ms();

        assert_int_equal(bench_sh(&bench, &box, "echo x", "x\n"), 0);
        longest = clock_ms() - begin > longest ? clock_ms() - begin : longest;
    }
    assert_int_equal(kill(keeper, SIGCONT), 0);
    assert_true(longest < SOON_MS);
    leave(&bench);
    bench_open_again(&bench);
    assert_true(has_processes(&bench, &box));
    bench_destroy(&bench, &box);
    bench_close(&bench);
}

static void count_kept(void *arg, uint64_t number, uint64_t n)
{
    size_t *count = arg;

    (void)number;
    (void)n;
    (*count)++;
}

/* That a command is recorded, where it had no room for that. */
static void one_that_was_stopped_is_told_later(void **state)
{
    struct bench bench;
    struct bench_box box;
    uint64_t n[MANY];
    size_t kept = 0;
    pid_t keeper;

    (void)state;
    bench_open(&bench);
    bench_create(&bench, &box);
    keeper = find_keeper();
    for (int i = 0; i < MANY; i++) {
        struct bench_run run;

        n[i] = bench_script(&bench, &box, "echo x", &run);
        bench_closed(&run);
        bench_run_done(&run);
    }
    assert_int_equal(kill(keeper, SIGSTOP), 0);
    for (int i = 0; i < MANY; i++) {
        provider_settled(bench.provider, box.sandbox.number, n[i]);
    }
    assert_int_equal(kill(keeper, SIGCONT), 0);
    leave(&bench);
    bench_open_again(&bench);
    provider_each_kept(bench.provider, count_kept, &kept);
    assert_int_equal(kept, 0);
    assert_true(has_processes(&bench, &box));
    bench_destroy(&bench, &box);
    bench_close(&bench);
}

int suite_local_keeper(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(when_its_time_is_over_all_ends),
        cmocka_unit_test(it_serves_nobody_else),
        cmocka_unit_test(one_with_a_full_table_keeps_what_it_can),
        cmocka_unit_test(one_that_is_stopped_holds_up_nobody),
        cmocka_unit_test(one_that_was_stopped_is_told_later),
    };

    return cmocka_run_group_tests(tests, bench_group_setup,
                                  bench_group_teardown);
}
