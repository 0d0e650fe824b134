/* Whether times of files are known to move in ticks. */
#include "core/cleanup.h"
#include "core/clock.h"
#include "providers/local/tick.h"
#include "tests/cmocka.h"
#include "tests/scratch.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    ROUNDS = 20
};

/* A file's time after a change, which is looked at. */
static struct timespec change(int fd)
{
    struct stat st;

    assert_int_equal(pwrite(fd, "", 1, 0), 1);
    assert_int_equal(fstat(fd, &st), 0);
    return st.st_ctim;
}

static bool is_later(struct timespec a, struct timespec b)
{
    return b.tv_sec > a.tv_sec ||
           (b.tv_sec == a.tv_sec && b.tv_nsec > a.tv_nsec);
}

static int make_dir(void **state)
{
    static char dir[256];

    scratch_make(dir, sizeof(dir));
    *state = dir;
    return 0;
}

static int remove_dir(void **state)
{
    scratch_remove(*state);
    return 0;
}

static void after_a_tick_a_change_is_later(void **state)
{
    AUTO_FD int fd = open(*state, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    for (int i = 0; i < ROUNDS; i++) {
        struct timespec before = change(fd);

        tick_pass();
        assert_true(is_later(before, change(fd)));
    }
}

/* No more than a tick or two, where nobody else has the processor. */
static void a_tick_is_short(void **state)
{
    int64_t least = INT64_MAX;

    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        int64_t begin = clock_ms();

        tick_pass();
        least = clock_ms() - begin < least ? clock_ms() - begin : least;
    }
    assert_in_range(least, 0, 60);
}

static void coarse_times_are_known(void **state)
{
    AUTO_FD int dir = open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_FD int fd = openat(dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    bool equal = false;

    assert_true(fd >= 0);
    for (int i = 0; i < ROUNDS; i++) {
        struct timespec before = change(fd);

        equal = !is_later(before, change(fd)) || equal;
    }
    assert_int_equal(tick_is_coarse(dir), equal);
}

/* Where no kernel has finer times. */
static void so_are_those_of_ramfs(void **state)
{
    AUTO_FD int dir = -1;

    if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0) {
        skip();
    }
    assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    assert_int_equal(mount("none", *state, "ramfs", 0, NULL), 0);
    dir = open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(tick_is_coarse(dir));
    assert_int_equal(umount2(*state, MNT_DETACH), 0);
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIR(after_a_tick_a_change_is_later),
        IN_DIR(a_tick_is_short),
        IN_DIR(coarse_times_are_known),
        IN_DIR(so_are_those_of_ramfs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
