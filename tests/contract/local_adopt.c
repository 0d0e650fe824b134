/* Sandboxes and commands that a provider that was closed has left. */
#include "core/cleanup.h"
#include "core/clock.h"
#include "tests/cmocka.h"
#include "tests/contract/bench.h"
#include "tests/contract/local.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    KEPT_MAX = 8,
    SOON_MS = 10000
};

struct kept {
    size_t count;
    uint64_t numbers[KEPT_MAX];
    uint64_t commands[KEPT_MAX];
};

static void note_kept(void *arg, uint64_t number, uint64_t n)
{
    struct kept *kept = arg;

    assert_true(kept->count < KEPT_MAX);
    kept->numbers[kept->count] = number;
    kept->commands[kept->count++] = n;
}

/* The provider is another; the sandboxes are the same. */
static void leave_and_reopen(struct bench *bench, struct kept *kept)
{
    bench->env.leave = true;
    bench_reopen(bench);
    bench->env.leave = false;
    memset(kept, 0, sizeof(*kept));
    provider_each_kept(bench->provider, note_kept, kept);
}

static int adopt(struct bench *bench, const struct bench_box *box, uint64_t n,
                 struct bench_run *run, int64_t deadline_us)
{
    const struct adoption what = {.number = box->sandbox.number,
                                  .n = n,
                                  .deadline_us = deadline_us,
                                  .cancel = run ? &run->cancel : NULL};
    struct err err = ERR_INIT;

    return provider_adopt(bench->provider, &what, run ? &bench_sink : NULL, run,
                          &err);
}

/* One that goes on when there is a file. */
static const char waiting[] = "echo before; "
                              "until [ -e go ]; do sleep 0.02; done; "
                              "echo after; exit 5";

static void a_command_that_was_left_can_be_adopted(void **state)
{
    struct bench *bench = *state;
    struct bench_run before;
    struct bench_run run;
    struct bench_box box;
    struct kept kept;
    uint64_t n;

    bench_create(bench, &box);
    n = bench_script(bench, &box, waiting, &before);
    bench_says(&before, "before");
    leave_and_reopen(bench, &kept);
    bench_closed(&before);
    bench_run_done(&before);
    assert_int_equal(kept.count, 1);
    assert_int_equal(kept.numbers[0], box.sandbox.number);
    assert_int_equal(kept.commands[0], n);
    assert_int_equal(bench_status(bench, &box), PROVIDER_RUNNING);
    assert_true(provider_has_processes(bench->provider, box.sandbox.number));
    bench_run_init(&run);
    assert_int_equal(adopt(bench, &box, n, &run, 0), 0);
    assert_int_equal(adopt(bench, &box, n, &run, 0), -ESRCH);
    assert_int_equal(bench_sh(bench, &box, "touch go", ""), 0);
    assert_int_equal(bench_exited(&run).code, 5);
    bench_closed(&run);
    assert_string_equal(bench_text(&run, COMMAND_STDOUT), "after\n");
    bench_run_done(&run);
    /* Its end is told again until it is recorded. */
    leave_and_reopen(bench, &kept);
    assert_true(kept.count >= 1);
    provider_settled(bench->provider, box.sandbox.number, n);
    bench_destroy(bench, &box);
    leave_and_reopen(bench, &kept);
    assert_int_equal(kept.count, 0);
}

static void an_adopted_one_meets_its_time_and_its_token(void **state)
{
    struct bench *bench = *state;
    struct bench_run before[2];
    struct bench_run run[2];
    struct bench_box box;
    struct kept kept;
    uint64_t n[2];

    bench_create(bench, &box);
    for (int i = 0; i < 2; i++) {
        n[i] = bench_script(bench, &box, waiting, &before[i]);
        bench_says(&before[i], "before");
    }
    leave_and_reopen(bench, &kept);
    for (int i = 0; i < 2; i++) {
        bench_closed(&before[i]);
        bench_run_done(&before[i]);
        bench_run_init(&run[i]);
        assert_int_equal(adopt(bench, &box, n[i], &run[i], i ? 0 : 1), 0);
    }
    cancel_fire(&run[1].cancel);
    assert_int_equal(bench_exited(&run[0]).end, COMMAND_TIMEOUT);
    assert_int_equal(bench_exited(&run[1]).end, COMMAND_CANCELED);
    for (int i = 0; i < 2; i++) {
        bench_closed(&run[i]);
        bench_run_done(&run[i]);
    }
    bench_destroy(bench, &box);
}

static void one_that_nobody_wants_is_killed(void **state)
{
    struct bench *bench = *state;
    struct bench_run before;
    struct bench_box box;
    struct kept kept;
    uint64_t n;

    bench_create(bench, &box);
    n = bench_script(bench, &box, "echo $$ >pid; echo ready; sleep 4323",
                     &before);
    bench_says(&before, "ready");
    leave_and_reopen(bench, &kept);
    bench_closed(&before);
    bench_run_done(&before);
    assert_int_equal(adopt(bench, &box, n, NULL, 0), 0);
    assert_int_equal(
        bench_sh(bench, &box,
                 "for i in $(seq 500); do kill -0 $(cat pid) 2>/dev/null || "
                 "exit 3; sleep 0.02; done",
                 ""),
        3);
    bench_destroy(bench, &box);
}

static void a_paused_one_stays_paused(void **state)
{
    struct bench *bench = *state;
    struct err err = ERR_INIT;
    struct bench_box box;
    struct kept kept;

    bench_create(bench, &box);
    assert_int_equal(
        bench_sh(bench, &box, "sleep 4324 >/dev/null 2>&1 & echo $! >pid", ""),
        0);
    bench->limits.deadline_ms = clock_deadline(SOON_MS);
    assert_int_equal(
        provider_pause(bench->provider, &box.sandbox, &bench->limits, &err), 0);
    leave_and_reopen(bench, &kept);
    assert_int_equal(bench_status(bench, &box), PROVIDER_PAUSED);
    assert_true(provider_has_processes(bench->provider, box.sandbox.number));
    bench->limits.deadline_ms = clock_deadline(SOON_MS);
    assert_int_equal(
        provider_resume(bench->provider, &box.sandbox, &bench->limits, &err),
        0);
    assert_int_equal(bench_sh(bench, &box, "kill -0 $(cat pid)", ""), 0);
    bench_destroy(bench, &box);
}

/* Its keeper's daemon may have ended it for its time and died. */
static void one_that_was_killed_after_its_time_met_it(void **state)
{
    struct bench *bench = *state;
    struct bench_run before;
    struct bench_run run;
    struct bench_box box;
    struct kept kept;

    bench_create(bench, &box);
    for (int late = 0; late < 2; late++) {
        uint64_t n = bench_script(
            bench, &box, "echo before; sleep 0.3; kill -9 $$", &before);
        int64_t deadline_us;
        struct command_result result;

        bench_says(&before, "before");
        deadline_us = clock_wall_us();
        leave_and_reopen(bench, &kept);
        bench_closed(&before);
        bench_run_done(&before);
        assert_int_equal(usleep(1200 * 1000), 0);
        bench_run_init(&run);
        assert_int_equal(
            adopt(bench, &box, n, &run, late ? clock_wall_us() : deadline_us),
            0);
        result = bench_exited(&run);
        assert_int_equal(result.end, late ? COMMAND_KILLED : COMMAND_TIMEOUT);
        assert_true(result.ended_us > deadline_us);
        assert_true(result.ended_us < clock_wall_us() - 100 * 1000);
        bench_closed(&run);
        bench_run_done(&run);
        provider_settled(bench->provider, box.sandbox.number, n);
    }
    bench_destroy(bench, &box);
}

static void one_can_be_left_by_itself(void **state)
{
    struct bench *bench = *state;
    struct err err = ERR_INIT;
    struct bench_run runs[2];
    struct bench_run run;
    struct bench_box box;
    struct kept kept;
    uint64_t n[2];

    bench_create(bench, &box);
    for (int i = 0; i < 2; i++) {
        n[i] = bench_script(bench, &box, waiting, &runs[i]);
        bench_says(&runs[i], "before");
    }
    assert_int_equal(
        provider_leave(bench->provider, box.sandbox.number, n[0], &err), 0);
    assert_int_equal(bench_exited(&runs[0]).end, COMMAND_LEFT);
    bench_closed(&runs[0]);
    assert_int_equal(
        provider_leave(bench->provider, box.sandbox.number, n[0], &err),
        -ESRCH);
    assert_int_equal(bench_sh(bench, &box, "touch go", ""), 0);
    assert_int_equal(bench_exited(&runs[1]).code, 5);
    bench_closed(&runs[1]);
    provider_settled(bench->provider, box.sandbox.number, n[1]);
    leave_and_reopen(bench, &kept);
    bench_run_init(&run);
    assert_int_equal(adopt(bench, &box, n[1], &run, 0), -ESRCH);
    assert_int_equal(adopt(bench, &box, n[0], &run, 0), 0);
    assert_int_equal(bench_exited(&run).code, 5);
    bench_closed(&run);
    bench_run_done(&run);
    bench_run_done(&runs[0]);
    bench_run_done(&runs[1]);
    provider_settled(bench->provider, box.sandbox.number, n[0]);
    bench_destroy(bench, &box);
}

/* Listens as a keeper does, and says what none says. */
NORETURN static void be_strange(const char *dir, int ready)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int peer;

    (void)snprintf(to.sun_path, sizeof(to.sun_path), "%.80s/keeper.sock", dir);
    (void)unlink(to.sun_path);
    if (bind(sock, (const struct sockaddr *)&to, sizeof(to)) < 0 ||
        listen(sock, 1) < 0 || write(ready, "", 1) != 1) {
        _exit(1);
    }
    peer = accept(sock, NULL, NULL);
    (void)!send(peer, "strange", 7, MSG_NOSIGNAL);
    for (;;) {
        (void)pause();
    }
}

static void a_keeper_that_is_not_understood_is_ended(void **state)
{
    struct bench bench;
    struct bench_box box;
    int status = 0;
    int pair[2];
    char byte;
    pid_t pid;

    (void)state;
    bench_open(&bench);
    provider_close(bench.provider);
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
        be_strange(bench.dir, pair[1]);
    }
    (void)close(pair[1]);
    assert_int_equal(read(pair[0], &byte, 1), 1);
    (void)close(pair[0]);
    bench_open_again(&bench);
    assert_int_equal(waitpid(pid, &status, WNOHANG), pid);
    assert_true(WIFSIGNALED(status));
    bench_create(&bench, &box);
    assert_int_equal(bench_sh(&bench, &box, "echo x", "x\n"), 0);
    bench_destroy(&bench, &box);
    bench_close(&bench);
}

int suite_local_adopt(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_command_that_was_left_can_be_adopted),
        cmocka_unit_test(an_adopted_one_meets_its_time_and_its_token),
        cmocka_unit_test(one_that_nobody_wants_is_killed),
        cmocka_unit_test(a_paused_one_stays_paused),
        cmocka_unit_test(one_that_was_killed_after_its_time_met_it),
        cmocka_unit_test(one_can_be_left_by_itself),
        cmocka_unit_test(a_keeper_that_is_not_understood_is_ended),
    };

    return cmocka_run_group_tests(tests, bench_group_setup,
                                  bench_group_teardown);
}
