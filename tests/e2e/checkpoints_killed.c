/*
 * The daemon is killed while checkpoints are taken, named, dropped, restored
 * and forked from: at random moments, and at chosen ones. What was reported is
 * true afterwards. See checkpoints_killed.py.
 */
#include "tests/e2e/tools.h"

#include "core/clock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LEAST_MS = 20,
    SPREAD_MS = 180,
    WORK_MS = 20000,
    POINT_MS = 1500,      /* By then it comes to a point, or not; */
    POINT_LONG_MS = 4000, /* or in many rounds. */
};

/* Where a daemon kills itself; those of `local` come last. */
static const char *const points[] = {
    "checkpoint-taken",  "checkpoint-recorded", "drop-done",
    "fork-reserved",     "fork-intent",         "fork-made",
    "fork-whole",        "restore-kept",        "restore-done",
    "exec-ended",        "exec-recorded",       "destroy-intent",
    "destroy-done",      "session-removed",     "local-take-laid",
    "local-take-noted",  "local-restore-made",  "local-restore-noted",
    "local-seal-marked", "local-seal-taken",    "local-seal-moved",
    "local-seal-noted",
};

enum {
    POINTS_OF_ALL = 14
};

static unsigned rounds = 6;
static int64_t point_ms = POINT_MS;
static unsigned deaths; /* At points. */

static const char *command_of(const char *what)
{
    static char text[4 * MNT_PATH_SIZE];

    (void)snprintf(text, sizeof(text), "python3 -B %s %s %s %s/journal %s",
                   SESSIONFS_KILLED_PY, what, at("sessions/kept"), mnt.dir,
                   mnt.provider);
    return text;
}

static int work(void *arg)
{
    (void)arg;
    return system(command_of("work")) == 0 ? 0 : 1;
}

static off_t journal_size(void)
{
    char path[MNT_PATH_SIZE + 16];
    struct stat st;

    (void)snprintf(path, sizeof(path), "%s/journal", mnt.dir);
    return stat(path, &st) == 0 ? st.st_size : 0;
}

static bool is_dead(void)
{
    siginfo_t end = {.si_pid = 0};

    return waitid(P_PID, (id_t)mnt.pid, &end, WEXITED | WNOHANG | WNOWAIT) ==
               0 &&
           end.si_pid;
}

static const char *some_point(void)
{
    size_t count = mnt_local() ? ARRAY_SIZE(points) : POINTS_OF_ALL;

    return points[(size_t)rand() % count];
}

/* Starts a daemon that dies at a point. */
static void start_mortal(const char *point)
{
    mnt_kill();
    assert_int_equal(setenv("SESSIONFS_CRASH", point, 1), 0);
    mnt_start();
    assert_int_equal(unsetenv("SESSIONFS_CRASH"), 0);
}

static void await_death(void)
{
    const int64_t until = clock_deadline(point_ms);

    while (!is_dead() && clock_ms() < until) {
        (void)usleep(2000);
    }
}

static void one_round(void **state, bool by_point)
{
    off_t before = journal_size();
    struct child child;

    (void)e2e_setup(state); /* A new deadline. */
    if (by_point) {
        start_mortal(some_point());
    }
    child = child_start(work, NULL);
    if (by_point) {
        await_death();
        deaths += is_dead();
    } else {
        eventually(journal_size() > before);
        (void)usleep(1000 * (useconds_t)(LEAST_MS + rand() % SPREAD_MS));
    }
    mnt_kill();
    assert_int_equal(child_end(&child, WORK_MS), 0);
    expect_sound_database();
    mnt_start();
    assert_int_equal(system(command_of("check")), 0);
}

static void what_was_reported_of_checkpoints_outlives_a_kill(void **state)
{
    unsigned seed = (unsigned)clock_wall_us();

    print_message("  %u rounds, seed %u\n", rounds, seed);
    srand(seed);
    mnt_session("kept");
    assert_int_equal(system(command_of("begin")), 0);
    for (unsigned i = 0; i < rounds; i++) {
        one_round(state, i % 2);
    }
    print_message("  %u ended at a point\n", deaths);
}

static const struct CMUnitTest tests[] = {
    e2e_test(what_was_reported_of_checkpoints_outlives_a_kill),
};

int main(int argc, char **argv)
{
    if (argc > 2) {
        rounds = (unsigned)strtoul(argv[2], NULL, 10);
        point_ms = POINT_LONG_MS;
    }
    return e2e_run(argc < 2 ? argc : 2, argv, tests, ARRAY_SIZE(tests));
}
