/* An engine that does not answer holds up nobody else. */
#include "tests/e2e/tools.h"

#include "core/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    STUCK = 64,
    FORGOTTEN_MS = 2100, /* What caches hold of a workspace is old then. */
    ROUNDS = 31,
    BOUND = 3,         /* What is promised, */
    SLACK = 3,         /* times what a busy machine may add. */
    FLOOR_NS = 100000, /* Less than this is noise. */
};

/* ---- What another session is asked meanwhile ---- */

static int do_ls(void)
{
    DIR *dir = opendir(at("sessions/well/workspace"));
    struct dirent *entry;
    int n = 0;

    while (dir && (entry = readdir(dir)) != NULL) {
        struct stat st;

        n += fstatat(dirfd(dir), entry->d_name, &st, 0) == 0;
    }
    return dir ? closedir(dir) + (n < 3) : -1;
}

static int do_cat(void)
{
    char text[64];
    int fd = open(at("sessions/well/status"), O_RDONLY);
    int ok = fd >= 0 && read(fd, text, sizeof(text)) > 0;

    (void)close(fd);
    return ok ? 0 : -1;
}

static int do_read(void)
{
    static char text[65536];
    int fd = open(at("sessions/well/workspace/f"), O_RDONLY);
    int ok = fd >= 0 && read(fd, text, sizeof(text)) == sizeof(text);

    (void)close(fd);
    return ok ? 0 : -1;
}

static int do_touch(void)
{
    int fd = open(at("sessions/well/workspace/t"),
                  O_WRONLY | O_CREAT | O_NOCTTY | O_NONBLOCK, 0644);
    int ok = fd >= 0 && futimens(fd, NULL) == 0;

    (void)close(fd);
    return ok ? 0 : -1;
}

static int do_df(void)
{
    struct statvfs fs;

    return statvfs(at("sessions/well/workspace"), &fs);
}

static int do_mkdir(void)
{
    static unsigned n;
    const char *path = at("sessions/m%u", n++);

    return mkdir(path, 0700) == 0 ? rmdir(path) : -1;
}

static int do_exec(void)
{
    struct wrote done = put(at("sessions/well/exec"), "true");

    return done.open + done.write + done.close;
}

static const struct {
    const char *name;
    int (*fn)(void);
} asked[] = {
    {"ls", do_ls}, {"cat", do_cat},     {"read", do_read}, {"touch", do_touch},
    {"df", do_df}, {"mkdir", do_mkdir}, {"exec", do_exec},
};

static int64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* The median of many rounds, in nanoseconds. */
static int64_t measure(size_t row)
{
    int64_t took[ROUNDS];
    size_t i;

    for (i = 0; i < ROUNDS; i++) {
        int64_t start = now_ns();

        if (asked[row].fn() != 0) {
            fail_msg("%s: %s", asked[row].name, strerror(errno));
        }
        took[i] = now_ns() - start;
    }
    qsort(took, ROUNDS, sizeof(took[0]), by_size);
    return took[ROUNDS / 2];
}

/* ---- Requests that are stuck ---- */

static int stuck_read(void)
{
    char text[64];
    int fd = open(in("workspace/f"), O_RDONLY);

    return fd >= 0 && read(fd, text, sizeof(text)) > 0 ? 0 : errno;
}

static int stuck_stat(void)
{
    struct stat st;

    return stat(in("workspace/none/%d", (int)getpid()), &st) == 0 ? 0 : errno;
}

static int stuck_exec(void)
{
    struct wrote done = put(in("exec"), "true");

    return done.open + done.write + done.close;
}

static int stuck_status(void)
{
    struct wrote done = put(in("status"), "running");

    return done.open + done.write + done.close;
}

static int (*const stuck_kinds[])(void) = {
    stuck_read, stuck_stat, stuck_exec,
    stuck_status, /* sandbox.v1 has nothing to ask. */
};

static int stuck_child(void *arg)
{
    child_ready();
    return (*(int (*const *)(void))arg)();
}

static struct child stuck[STUCK];

static void stuck_start(void)
{
    const struct timespec nap = {FORGOTTEN_MS / 1000,
                                 FORGOTTEN_MS % 1000 * 1000000L};
    const size_t kinds = ARRAY_SIZE(stuck_kinds) - mnt_scripts();
    size_t i;

    (void)nanosleep(&nap, NULL);
    for (i = 0; i < STUCK; i++) {
        stuck[i] = child_start(stuck_child,
                               (void *)(uintptr_t)&stuck_kinds[i % kinds]);
    }
    for (i = 0; i < STUCK; i++) {
        child_await(&stuck[i]);
    }
    for (i = 0; i < STUCK; i++) {
        process_asleep(stuck[i].pid);
    }
}

/* None of them was answered. */
static void stuck_still(void)
{
    size_t i;

    for (i = 0; i < STUCK; i++) {
        if (waitpid(stuck[i].pid, NULL, WNOHANG) != 0) {
            fail_msg("request %zu was not stuck", i);
        }
    }
}

/* The longest time that one of them took to die. */
static int64_t stuck_kill(int signal_number)
{
    int64_t start = clock_ms();
    size_t i;

    for (i = 0; i < STUCK; i++) {
        (void)kill(stuck[i].pid, signal_number);
    }
    for (i = 0; i < STUCK; i++) {
        (void)child_end(&stuck[i], TOOLS_SOON_MS);
    }
    return clock_ms() - start;
}

static void session_well_make(void)
{
    expect_shell("cd $M/sessions; mkdir well; echo running > well/status; "
                 "head -c 65536 /dev/zero > well/workspace/f; "
                 "touch well/workspace/g",
                 "");
    put_ok(in("workspace/f"), "x");
}

/* Fails when an operation took too long beside stuck requests. Another
 * program may have made the machine slow, so it is measured without them both
 * before and after. */
static void compare(const int64_t *before, const int64_t *with,
                    const int64_t *after)
{
    bool slow = false;
    size_t i;

    for (i = 0; i < ARRAY_SIZE(asked); i++) {
        int64_t base = before[i] > after[i] ? before[i] : after[i];

        base = base > FLOOR_NS ? base : FLOOR_NS;
        print_message("%-6s %7.3f and %7.3f ms, with %d stuck %7.3f ms: %.2f\n",
                      asked[i].name, (double)before[i] / 1e6,
                      (double)after[i] / 1e6, STUCK, (double)with[i] / 1e6,
                      (double)with[i] / (double)base);
        slow = slow || with[i] > base * BOUND * SLACK;
    }
    assert_false(slow);
}

static void sixty_four_stuck_requests_slow_nobody_else(void **state)
{
    int64_t took[3][ARRAY_SIZE(asked)];
    int64_t killed;
    size_t i;

    (void)state;
    session_well_make();
    for (i = 0; i < ARRAY_SIZE(asked); i++) {
        took[0][i] = measure(i);
    }
    mnt_fault(mnt.id, NULL, "stuck");
    stuck_start();
    for (i = 0; i < ARRAY_SIZE(asked); i++) {
        took[1][i] = measure(i);
    }
    expect_shell("ls > $T/out; cat status > $T/out", "");
    stuck_still();
    killed = stuck_kill(SIGKILL);
    print_message("%d ended %d ms after SIGKILL\n", STUCK, (int)killed);
    assert_true(killed < 2000);
    mnt_fault(mnt.id, NULL, NULL);
    put_ok(in("exec"), "true");
    for (i = 0; i < ARRAY_SIZE(asked); i++) {
        took[2][i] = measure(i);
    }
    compare(took[0], took[1], took[2]);
}

static void ctrl_c_ends_each_stuck_request(void **state)
{
    int64_t took;

    (void)state;
    mnt_running();
    put_ok(in("workspace/f"), "x");
    mnt_fault(mnt.id, NULL, "stuck");
    stuck_start();
    took = stuck_kill(SIGINT);
    print_message("%d ended %d ms after SIGINT\n", STUCK, (int)took);
    assert_true(took < 2000);
    mnt_fault(mnt.id, NULL, NULL);
}

static void released_requests_go_on(void **state)
{
    int ended = 0;
    size_t i;

    (void)state;
    mnt_running();
    expect_shell("in_write f x", "");
    mnt_fault(mnt.id, "get", "stuck");
    for (i = 0; i < STUCK; i++) {
        stuck[i] = child_start(stuck_child, (void *)(uintptr_t)&stuck_kinds[0]);
        child_await(&stuck[i]);
    }
    process_asleep(stuck[0].pid);
    mnt_fault(mnt.id, "get", NULL);
    for (i = 0; i < STUCK; i++) {
        ended += child_end(&stuck[i], TOOLS_SOON_MS) == 0;
    }
    assert_int_equal(ended, STUCK);
}

static void a_stuck_create_stops_no_mkdir_and_no_rmdir(void **state)
{
    struct child child;
    int64_t start;

    (void)state;
    mnt_fault(mnt.id, "create", "stuck");
    child = child_start(child_write_running, NULL);
    child_await(&child);
    eventually_text(in("status"), "starting\n");
    start = clock_ms();
    mnt_session("other");
    expect_ok(rename(at("sessions/other"), at("sessions/another")));
    expect_ok(rmdir(at("sessions/another")));
    assert_int_equal(rmdir(mnt.session), -1);
    assert_true(errno == EBUSY || errno == ENOTEMPTY);
    assert_true(clock_ms() - start < 1000);
    expect_ok(kill(child.pid, SIGINT));
    assert_int_equal(child_end(&child, 1000), 128 + SIGINT);
    expect_text(in("status"), "starting\n");
    mnt_fault(mnt.id, "create", NULL);
    eventually_text(in("status"), "running\n");
}

static const struct CMUnitTest tests[] = {
    e2e_test(sixty_four_stuck_requests_slow_nobody_else),
    e2e_test(ctrl_c_ends_each_stuck_request),
    e2e_test(released_requests_go_on),
    e2e_test(a_stuck_create_stops_no_mkdir_and_no_rmdir),
};

E2E_MAIN(tests)
