/* Files are used beside a long command: nobody waits for it. */
#include "tests/e2e/tools.h"

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
    CALL_MS = 40, /* Of the engine, each. */
    BOUND_MS = 2 * CALL_MS,
    SLACK_MS = 35,       /* Less than a third call. */
    ROUNDS = 8,          /* At most: until nobody has waited in each. */
    FORGOTTEN_MS = 2100, /* Nothing is kept of what was seen before. */
};

/* One step of a round; a system call, or the last of some. 0 or -1. */
static int fd = -1;
static DIR *dir;

static const char *here(int round, const char *name)
{
    return in("workspace/d%d/%s", round, name);
}

static int do_stat(int round)
{
    struct stat attr;

    return stat(here(round, "a"), &attr);
}

static int do_opendir(int round)
{
    dir = opendir(in("workspace/d%d", round));
    return dir ? 0 : -1;
}

static int do_readdir(int round)
{
    (void)round;
    return readdir(dir) ? 0 : -1;
}

static int do_closedir(int round)
{
    (void)round;
    return closedir(dir);
}

static int do_open(int round)
{
    fd = open(here(round, "a"), O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -1 : 0;
}

static int do_read(int round)
{
    char byte;

    (void)round;
    return read(fd, &byte, 1) == 1 ? 0 : -1;
}

static int do_close(int round)
{
    (void)round;
    return close(fd);
}

static int do_create(int round)
{
    fd =
        open(here(round, "new"), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    return fd < 0 ? -1 : 0;
}

static int do_write(int round)
{
    (void)round;
    return write(fd, "text", 4) == 4 ? 0 : -1;
}

static int do_fsync(int round)
{
    (void)round;
    return fsync(fd);
}

static int do_open_more(int round)
{
    fd = open(here(round, "b"), O_WRONLY | O_APPEND | O_CLOEXEC);
    return fd < 0 ? -1 : 0;
}

static int do_open_cut(int round)
{
    fd = open(here(round, "c"), O_WRONLY | O_TRUNC | O_CLOEXEC);
    return fd < 0 ? -1 : 0;
}

static int do_mkdir(int round)
{
    return mkdir(here(round, "dir"), 0755);
}

static int do_rename(int round)
{
    char from[MNT_PATH_SIZE];

    (void)snprintf(from, sizeof(from), "%s", here(round, "new"));
    return rename(from, here(round, "moved"));
}

static int do_chmod(int round)
{
    return chmod(here(round, "c"), 0600);
}

static int do_truncate(int round)
{
    return truncate(here(round, "c"), 2);
}

static int do_unlink(int round)
{
    return unlink(here(round, "a"));
}

static int do_symlink(int round)
{
    return symlink("b", here(round, "link"));
}

static int do_readlink(int round)
{
    char target[8];

    return readlink(here(round, "link"), target, sizeof(target)) == 1 ? 0 : -1;
}

static int do_statfs(int round)
{
    struct statvfs room;

    return statvfs(in("workspace/d%d", round), &room);
}

static const struct step {
    const char *name;
    int (*fn)(int round);
} steps[] = {
    {"stat", do_stat},         {"opendir", do_opendir},
    {"readdir", do_readdir},   {"closedir", do_closedir},
    {"open", do_open},         {"read", do_read},
    {"close", do_close},       {"create", do_create},
    {"write", do_write},       {"fsync", do_fsync},
    {"write more", do_write},  {"close written", do_close},
    {"open >>", do_open_more}, {"append", do_write},
    {"close >>", do_close},    {"open >", do_open_cut},
    {"overwrite", do_write},   {"close >", do_close},
    {"mkdir", do_mkdir},       {"rename", do_rename},
    {"chmod", do_chmod},       {"truncate", do_truncate},
    {"symlink", do_symlink},   {"readlink", do_readlink},
    {"unlink", do_unlink},     {"statfs", do_statfs},
};

static int64_t now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

static int follow(void *arg)
{
    char bytes[4096];
    int from = open(arg, O_RDONLY | O_CLOEXEC);
    ssize_t n = 1;

    child_ready();
    while (from >= 0 && n > 0) {
        n = read(from, bytes, sizeof(bytes));
    }
    return from >= 0 && n == 0 ? 0 : 1;
}

/* Says something all the time, for as long as it takes. */
static char *long_script(void)
{
    static char script[128 * 1024];
    size_t at = 0;

    for (int i = 0; i < 5000; i++) {
        at += (size_t)snprintf(script + at, sizeof(script) - at,
                               "echo %d\nsleep 10\n", i);
    }
    return script;
}

static int64_t take(const struct step *step, int round)
{
    int64_t start = now_us();

    if (step->fn(round) != 0) {
        fail_msg("%s: %s", step->name, strerror(errno));
    }
    return now_us() - start;
}

static bool is_slow(int64_t us)
{
    return us > (BOUND_MS + SLACK_MS) * 1000LL;
}

/* A round, after which a step's time is the least that it has taken; whether
 * one is too long. Another program may have made the machine slow. */
static bool measure(int64_t took[ARRAY_SIZE(steps)], int round)
{
    const struct timespec nap = {FORGOTTEN_MS / 1000,
                                 FORGOTTEN_MS % 1000 * 1000000L};
    bool slow = false;

    (void)nanosleep(&nap, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        int64_t now = take(&steps[i], round);

        took[i] = round == 0 || now < took[i] ? now : took[i];
        slow = slow || is_slow(took[i]);
    }
    return slow;
}

static void tell(const int64_t took[ARRAY_SIZE(steps)])
{
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        print_message("%-13s %6.1f ms%s\n", steps[i].name,
                      (double)took[i] / 1e3, is_slow(took[i]) ? "!" : "");
    }
}

static void no_wait_is_over_two_round_trips(void **state)
{
    int64_t took[ARRAY_SIZE(steps)];
    char path[MNT_PATH_SIZE];
    char delay[16];
    struct child command, reader;
    bool slow = true;

    (void)state;
    mnt_running();
    expect_shell("for i in 0 1 2 3 4 5 6 7; do mkdir workspace/d$i; "
                 "for f in a b c; do in_write d$i/$f $f; done; done",
                 "");
    (void)snprintf(delay, sizeof(delay), "delay %d", CALL_MS);
    mnt_fault(mnt.id, NULL, delay);
    command = child_start(child_write_exec, long_script());
    child_await(&command);
    eventually(access(in("execs/25"), F_OK) == 0);
    eventually_text(in("execs/25/status"), "running\n");
    (void)snprintf(path, sizeof(path), "%s", in("execs/25/output"));
    reader = child_start(follow, path);
    child_await(&reader);
    for (int round = 0; round < ROUNDS && slow; round++) {
        slow = measure(took, round);
    }
    tell(took);
    expect_text(in("execs/25/status"), "running\n");
    assert_int_equal(waitpid(command.pid, NULL, WNOHANG), 0);
    mnt_fault(mnt.id, NULL, NULL);
    (void)kill(command.pid, SIGKILL);
    (void)child_end(&command, TOOLS_SOON_MS);
    (void)kill(reader.pid, SIGKILL);
    (void)child_end(&reader, TOOLS_SOON_MS);
    assert_false(slow);
}

static const struct CMUnitTest tests[] = {
    e2e_test(no_wait_is_over_two_round_trips),
};

E2E_MAIN(tests)
