/*
 * Many sessions at once, each with a process that works and each answering,
 * before and after a crash of the daemon. The figures are printed.
 * usage: e2e_crowd PROVIDER [SESSIONS]
 */
#include "tests/e2e/tools.h"

#include "core/buf.h"
#include "core/clock.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>

enum {
    ANSWER_MS = 60000, /* All of them, on two processors and a busy machine. */
};

/* For all of them: what a machine of this kind has. */
static const int64_t memory_max = INT64_C(24) << 30;

static unsigned sessions = 20;

/* What all processes in sandboxes take: each page once. */
static int64_t taken(void)
{
    static const char script[] =
        "cat $(grep -ls sessionfs- /proc/[0-9]*/cgroup | "
        "sed 's/cgroup$/smaps_rollup/') 2>/dev/null | "
        "awk '/^Pss:/ { n += $2 } END { printf \"%d\", n * 1024 }'";
    struct buf out = BUF_INIT(1024);
    int64_t bytes;

    assert_int_equal(shell(script, ANSWER_MS, &out), 0);
    bytes = strtoll(buf_str(&out), NULL, 10);
    buf_done(&out);
    return bytes;
}

/* Runs a shell for each of them, all at once; $i is the session's number. */
static void for_each(const char *what, const char *expect)
{
    char script[1024];

    (void)snprintf(script, sizeof(script),
                   "for i in $(seq %u); do (cd ../c$i && %s) & done >$T/out "
                   "2>&1; wait; sort $T/out | uniq -c | tr -s ' '",
                   sessions, what);
    expect_shell(script, expect);
}

static void each_answers(const char *when)
{
    int64_t begin = clock_ms();
    char expect[64];

    (void)snprintf(expect, sizeof(expect), " %u yes\n", sessions);
    for_each("echo 'kill -0 $(cat pid) && echo yes' > exec && cat exec",
             expect);
    print_message("  %u sessions answer %s within %" PRId64 " ms\n", sessions,
                  when, clock_ms() - begin);
    assert_true(clock_ms() - begin < ANSWER_MS);
}

static void each_works_and_answers_whatever_becomes_of_the_daemon(void **state)
{
    int64_t begin = clock_ms();
    char expect[64];
    int64_t bytes;

    (void)state;
    for (unsigned i = 1; i <= sessions; i++) {
        char script[64];

        (void)snprintf(script, sizeof(script), "mkdir ../c%u", i);
        expect_shell(script, "");
    }
    for_each("echo '(while :; do date >> log; sleep 1; done) >/dev/null 2>&1 "
             "& echo $! > pid' > exec",
             "");
    print_message("  %u sessions are made within %" PRId64 " ms\n", sessions,
                  clock_ms() - begin);
    each_answers("at once");
    bytes = taken();
    print_message("  they take %" PRId64 " MiB\n", bytes >> 20);
    assert_true(bytes < memory_max);
    assert_int_equal(kill(mnt.pid, SIGKILL), 0);
    assert_int_equal(waitpid(mnt.pid, NULL, 0), mnt.pid);
    mnt.pid = 0;
    (void)mnt_unmount(MNT_DETACH);
    begin = clock_ms();
    mnt_start();
    print_message("  they are adopted within %" PRId64 " ms\n",
                  clock_ms() - begin);
    each_answers("after the crash");
    (void)snprintf(expect, sizeof(expect), " %u absent\n", sessions);
    for_each("echo absent > status && cat status", expect);
}

static const struct CMUnitTest tests[] = {
    e2e_test(each_works_and_answers_whatever_becomes_of_the_daemon),
};

int main(int argc, char **argv)
{
    if (argc > 2) {
        sessions = (unsigned)strtoul(argv[2], NULL, 10);
    }
    return e2e_run(argc > 2 ? 2 : argc, argv, tests, ARRAY_SIZE(tests));
}
