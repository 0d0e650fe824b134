/*
 * The daemon is killed at random moments while checkpoints are taken, named,
 * dropped, restored and forked from. What was reported is true afterwards. See
 * checkpoints_killed.py.
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
};

static unsigned rounds = 6;

static const char *command_of(const char *what)
{
    static char text[4 * MNT_PATH_SIZE];

    (void)snprintf(text, sizeof(text), "python3 %s %s %s %s/journal %s",
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

static void one_round(void **state)
{
    off_t before = journal_size();
    struct child child;

    (void)e2e_setup(state); /* A new deadline. */
    child = child_start(work, NULL);
    eventually(journal_size() > before);
    (void)usleep(1000 * (useconds_t)(LEAST_MS + rand() % SPREAD_MS));
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
    for (unsigned i = 0; i < rounds; i++) {
        one_round(state);
    }
}

static const struct CMUnitTest tests[] = {
    e2e_test(what_was_reported_of_checkpoints_outlives_a_kill),
};

int main(int argc, char **argv)
{
    if (argc > 2) {
        rounds = (unsigned)strtoul(argv[2], NULL, 10);
    }
    return e2e_run(argc < 2 ? argc : 2, argv, tests, ARRAY_SIZE(tests));
}
