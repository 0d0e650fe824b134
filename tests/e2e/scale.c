/*
 * Thousands of sessions, a million lookups, many open files: what they cost.
 * The figures are printed; only three times a bound is a failure.
 * usage: e2e_scale PROVIDER [SESSIONS LOOKUPS]
 */
#include "tests/e2e/tools.h"

#include "core/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SLACK = 3, /* What the machine's other work may cost. */
    LOOK_MS = 100,
    START_MS = 1000,
    SESSION_BYTES = 4096,
    FLAT_BYTES = 1024 * 1024,
    OPEN_FILES = 1500,
    FILES_A_SANDBOX = 16, /* Of the daemon, while one runs. */
    THREADS = 21,         /* At rest: most of them FUSE's. */
    FORGET_EVERY = 10000,
};

static unsigned sessions = 1000;
static unsigned lookups = 100000;
/* That were made and not removed or renamed yet: s0 … */
static unsigned made;

struct usage {
    int64_t bytes; /* Resident. */
    unsigned threads;
    unsigned files;
};

static unsigned count_entries(const char *path)
{
    DIR *dir = opendir(path);
    unsigned count = 0;

    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        count += entry->d_name[0] != '.';
    }
    assert_int_equal(closedir(dir), 0);
    return count;
}

static unsigned count_of(const char *what)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)mnt.pid, what);
    return count_entries(path);
}

static struct usage usage_now(const char *when)
{
    struct usage usage;
    char path[64];
    const char *at;

    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)mnt.pid);
    at = strstr(text_of(path), "VmRSS:");
    assert_non_null(at);
    usage.bytes = strtol(at + 6, NULL, 10) * 1024;
    usage.threads = count_of("task");
    usage.files = count_of("fd");
    print_message("  %s: %" PRId64 " KiB, %u threads, %u open files\n", when,
                  usage.bytes / 1024, usage.threads, usage.files);
    return usage;
}

static void expect_below(const char *what, int64_t value, int64_t bound)
{
    print_message("  %s: %" PRId64 ", at most %" PRId64 "\n", what, value,
                  bound);
    if (value > SLACK * bound) {
        fail_msg("%s: %" PRId64 " is far over %" PRId64, what, value, bound);
    }
}

/* A sanitizer keeps what was freed: its figures say nothing. */
static void expect_room(const char *what, int64_t value, int64_t bound)
{
#ifndef __SANITIZE_ADDRESS__
    expect_below(what, value, bound);
#else
    print_message("  %s: %" PRId64 ", not judged\n", what, value);
    (void)bound;
#endif
}

static int64_t lower(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The best of three: the machine may be busy with something else. */
static void expect_quick(const char *what, void (*fn)(void), int64_t bound)
{
    int64_t took = INT64_MAX;
    char text[128];

    for (int i = 0; i < 3; i++) {
        int64_t since = clock_ms();

        fn();
        took = lower(took, clock_ms() - since);
    }
    (void)snprintf(text, sizeof(text), "%s, ms", what);
    expect_below(text, took, bound);
}

static uint64_t loaded(void)
{
    return mnt_counter("sessions_loaded ");
}

/* Makes the kernel forget what it looked up, where we may. */
static bool forget_all(void)
{
    return put("/proc/sys/vm/drop_caches", "2").write == 0;
}

static void starting_and_ending_load_no_session(void **state)
{
    int64_t since = clock_ms();
    int64_t ending = INT64_MAX;
    int64_t starting = INT64_MAX;

    (void)state;
    for (; made < sessions; made++) {
        expect_ok(mkdir(at("sessions/s%u", made), 0700));
    }
    print_message("  %" PRId64 " sessions made a second\n",
                  (int64_t)sessions * 1000 / (clock_ms() - since + 1));
    /* The best of three: the disk may be busy with something else. */
    for (int i = 0; i < 3; i++) {
        since = clock_ms();
        mnt_stop();
        ending = lower(ending, clock_ms() - since);
        since = clock_ms();
        mnt_start();
        starting = lower(starting, clock_ms() - since);
        assert_int_equal(loaded(), 0);
    }
    expect_below("unmounting, ms", ending, START_MS);
    expect_below("starting, ms", starting, START_MS);
}

static void list_all(void)
{
    assert_int_equal(count_entries(at("sessions")), made + mnt.tests);
}

static void read_stats_and_error(void)
{
    assert_non_null(strstr(text_of(at("stats")), "sessionfs_sessions "));
    expect_text(at("error"), "");
}

static void names_are_listed_at_once_and_load_no_session(void **state)
{
    (void)state;
    expect_quick("listing sessions/", list_all, LOOK_MS);
    assert_true(loaded() <= 1); /* This test's own. */
    expect_quick("reading stats and error", read_stats_and_error, LOOK_MS);
}

static void looking_at_all_costs_little_and_no_call_of_the_engine(void **state)
{
    struct usage before = usage_now("before");
    uint64_t calls = mnt_counter("provider_calls_total");
    int64_t since = clock_ms();
    struct usage after;
    struct stat st;

    (void)state;
    for (unsigned i = 0; i < sessions; i++) {
        expect_ok(stat(at("sessions/s%u", i), &st));
    }
    print_message("  stat of all: %" PRId64 " ms\n", clock_ms() - since);
    since = clock_ms();
    for (unsigned i = 0; i < sessions; i++) {
        expect_text(at("sessions/s%u/status", i), "absent\n");
    }
    print_message("  status of all: %" PRId64 " ms\n", clock_ms() - since);
    after = usage_now("all looked at");
    assert_int_equal(mnt_counter("provider_calls_total"), calls);
    assert_true(loaded() >= sessions || forget_all());
    expect_room("bytes a session", (after.bytes - before.bytes) / sessions,
                SESSION_BYTES);
}

/* As find and du do, which look at each file of each session. */
static void walking_over_all_costs_no_call_of_the_engine(void **state)
{
    uint64_t calls = mnt_counter("provider_calls_total");
    struct buf out = BUF_INIT(TOOLS_TEXT_MAX);
    int64_t since = clock_ms();

    (void)state;
    assert_int_equal(shell("find $M -maxdepth 3 > $T/found; "
                           "grep -c '/s[0-9]*/status$' $T/found",
                           TOOLS_SHELL_MS, &out),
                     0);
    assert_int_equal(strtoul(buf_str(&out), NULL, 10), sessions);
    print_message("  find: %" PRId64 " ms\n", clock_ms() - since);
    since = clock_ms();
    assert_int_equal(shell("du -s $M > $T/size", TOOLS_SHELL_MS, &out), 0);
    print_message("  du: %" PRId64 " ms\n", clock_ms() - since);
    assert_int_equal(mnt_counter("provider_calls_total"), calls);
    (void)usage_now("all walked over");
    buf_done(&out);
}

static void what_is_not_looked_at_any_more_is_not_loaded(void **state)
{
    (void)state;
    if (!forget_all()) {
        skip();
    }
    eventually(forget_all() && loaded() == 0);
    (void)usage_now("all let go");
}

static void change_names(void)
{
    for (int i = 0; i < 10; i++) {
        made--;
        expect_ok(rename(at("sessions/s%u", made), at("sessions/r%u", made)));
        expect_errno(access(at("sessions/s%u", made), F_OK), ENOENT);
        expect_ok(rmdir(at("sessions/r%u", made)));
    }
}

static void names_change_at_once_among_thousands(void **state)
{
    (void)state;
    expect_quick("ten renames and removals", change_names, LOOK_MS);
    list_all();
}

/* What is asked for: things that are there, and things that are not. */
static void look_up(unsigned i)
{
    static const char *const files[] = {"",        "/status", "/workspace",
                                        "/events", "/exec",   "/execs"};
    unsigned number = i / ARRAY_SIZE(files) % made;
    const char *file = files[i % ARRAY_SIZE(files)];
    struct stat st;
    int fd;

    expect_ok(stat(at("sessions/s%u%s", number, file), &st));
    expect_errno(stat(at("sessions/none-%u", i), &st), ENOENT);
    expect_errno(stat(at("sessions/s%u/none%s", number, file), &st), ENOENT);
    expect_errno(stat(at("sessions/s%u/workspace/%u", number, i), &st), ENOENT);
    if (i % 8 == 0) {
        fd = open(at("sessions/s%u/status", number), O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(close(fd), 0);
    }
    if (i % 64 == 0) {
        assert_true(count_entries(at("sessions/s%u", number)) > 5);
    }
    if (i % FORGET_EVERY == 0) {
        (void)forget_all();
    }
}

static void lookups_leave_memory_flat(void **state)
{
    struct usage early = {.bytes = 0};
    struct usage late;
    unsigned rounds = lookups / 4; /* Each looks up four things, or more. */

    for (unsigned i = 0; i < rounds; i++) {
        if (i % 20000 == 0) {
            /* A new deadline. */
            (void)e2e_teardown(state);
            expect_ok(rmdir(mnt.session));
            (void)e2e_setup(state);
        }
        if (i == rounds / 4) {
            early = usage_now("after a quarter");
        }
        look_up(i);
    }
    (void)forget_all();
    late = usage_now("after all");
    expect_room("bytes more", late.bytes - early.bytes, FLAT_BYTES);
    assert_true(late.files <= early.files + 2);
}

static void raise_files(void)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_true(limit.rlim_cur > 2 * OPEN_FILES + 100);
}

static void fifteen_hundred_files_are_open_at_once(void **state)
{
    static int files[OPEN_FILES];
    static int words[OPEN_FILES];
    struct usage before = usage_now("before");

    (void)state;
    raise_files();
    for (unsigned i = 0; i < OPEN_FILES; i++) {
        files[i] = open(in("workspace/f%u", i),
                        O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        words[i] =
            open(at("sessions/s%u/status", i % made), O_RDONLY | O_CLOEXEC);
        assert_true(files[i] >= 0 && words[i] >= 0);
        assert_int_equal(pwrite(files[i], &i, sizeof(i), i), sizeof(i));
    }
    (void)usage_now("all open");
    expect_shell("ls workspace | wc -l; cat ../s0/status", "1500\nabsent\n");
    for (unsigned i = 0; i < OPEN_FILES; i++) {
        unsigned got = 0;
        char text[16];

        assert_int_equal(pread(files[i], &got, sizeof(got), i), sizeof(got));
        assert_int_equal(got, i);
        assert_int_equal(pread(words[i], text, sizeof(text), 0), 7);
        assert_int_equal(close(files[i]), 0);
        assert_int_equal(close(words[i]), 0);
    }
    (void)usage_now("all closed");
    for (unsigned i = 0; i < OPEN_FILES; i++) {
        expect_ok(unlink(in("workspace/f%u", i)));
    }
    eventually(count_of("fd") <= before.files + FILES_A_SANDBOX);
    (void)usage_now("all removed");
}

static void threads_end_when_their_sessions_are_at_rest(void **state)
{
    unsigned count = mnt_local() ? made / 20 : made;
    struct usage used;

    (void)state;
    for (unsigned i = 0; i < count; i++) {
        put_ok(at("sessions/s%u/exec", i), "echo hi");
    }
    used = usage_now("all used");
    for (unsigned i = 0; i < count; i++) {
        expect_text(at("sessions/s%u/exec", i), "hi\n");
        expect_text(at("sessions/s%u/status", i), "running\n");
    }
    used = usage_now("all looked at");
    expect_below("threads", used.threads, count / SLACK + THREADS);
    eventually(count_of("task") <= THREADS);
    (void)usage_now("at rest");
}

static const struct CMUnitTest tests[] = {
    e2e_test(starting_and_ending_load_no_session),
    e2e_test(names_are_listed_at_once_and_load_no_session),
    e2e_test(looking_at_all_costs_little_and_no_call_of_the_engine),
    e2e_test(walking_over_all_costs_no_call_of_the_engine),
    e2e_test(what_is_not_looked_at_any_more_is_not_loaded),
    e2e_test(names_change_at_once_among_thousands),
    e2e_test(lookups_leave_memory_flat),
    e2e_test(fifteen_hundred_files_are_open_at_once),
    e2e_test(threads_end_when_their_sessions_are_at_rest),
};

int main(int argc, char **argv)
{
    if (argc > 3) {
        sessions = (unsigned)strtoul(argv[2], NULL, 10);
        lookups = (unsigned)strtoul(argv[3], NULL, 10);
    }
    return e2e_run(argc < 2 ? argc : 2, argv, tests, ARRAY_SIZE(tests));
}
