/* The watch over the disk: sums of trees, limits of sessions, a full disk. */
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/mutex.h"
#include "providers/local/disk.h"
#include "providers/local/remove.h"
#include "providers/local/watch.h"
#include "tests/cmocka.h"
#include "tests/scratch.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define MIB (1024 * 1024)

enum {
    PATH_SIZE = 512,
    SOON_MS = 10000,
    DEPTH = 4000,
};

/* What the watch has told. */
struct told {
    struct mutex lock;
    struct cond change;
    unsigned stops;
    uint64_t number;
    struct err why;
};

struct ground {
    char dir[PATH_SIZE / 2];
    struct told told;
    struct watch *watch;
};

static void on_stop(void *arg, uint64_t number, const struct err *why)
{
    struct told *told = arg;

    mutex_lock(&told->lock);
    told->stops++;
    told->number = number;
    told->why = *why;
    cond_broadcast(&told->change);
    mutex_unlock(&told->lock);
}

static int open_dir(const char *dir)
{
    return open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void start(struct ground *ground)
{
    const struct watch_calls calls = {
        .open = open_dir, .stop = on_stop, .arg = &ground->told};
    struct err err = ERR_INIT;

    mutex_init(&ground->told.lock);
    cond_init(&ground->told.change);
    assert_int_equal(watch_new(ground->dir, &calls, &ground->watch, &err), 0);
}

static int set_up(void **state)
{
    struct ground *ground = calloc(1, sizeof(*ground));

    assert_non_null(ground);
    scratch_make(ground->dir, sizeof(ground->dir));
    start(ground);
    *state = ground;
    return 0;
}

static int tear_down(void **state)
{
    struct ground *ground = *state;

    watch_free(ground->watch);
    cond_done(&ground->told.change);
    mutex_done(&ground->told.lock);
    scratch_remove(ground->dir);
    free(ground);
    return 0;
}

static void path_of(const struct ground *ground, const char *name, char *out)
{
    (void)snprintf(out, PATH_SIZE, "%s/%s", ground->dir, name);
}

static void write_data(const char *path, size_t size)
{
    static const char zeros[MIB];
    AUTO_FD int fd =
        open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    for (size_t done = 0; done < size; done += sizeof(zeros)) {
        if (write(fd, zeros, sizeof(zeros)) != (ssize_t)sizeof(zeros)) {
            return; /* A disk that is full. */
        }
    }
}

/* The same for a new file, in one step: nobody sees it grow. */
static void put_data(const struct ground *ground, const char *path, size_t size)
{
    char made[PATH_SIZE];

    path_of(ground, "made", made);
    write_data(made, size);
    assert_int_equal(rename(made, path), 0);
}

/* A session of that number, which runs. */
static void add(struct ground *ground, uint64_t number, int64_t limit)
{
    char name[32];
    char path[PATH_SIZE];

    (void)snprintf(name, sizeof(name), "%d", (int)number);
    path_of(ground, name, path);
    (void)mkdir(path, 0700);
    assert_int_equal(watch_add(ground->watch, number, path, limit), 0);
    watch_runs(ground->watch, number, true);
}

static int64_t sum(const char *path)
{
    AUTO_FD int top = open_dir(path);
    int64_t bytes = -1;

    assert_true(top >= 0);
    assert_true(disk_sum(top, clock_deadline(SOON_MS), &bytes));
    return bytes;
}

static int room(struct ground *ground, uint64_t number)
{
    struct err err = ERR_INIT;

    return watch_room(ground->watch, number, &err);
}

static void await_stops(struct ground *ground, unsigned count)
{
    struct told *told = &ground->told;
    int64_t deadline = clock_deadline(SOON_MS);
    int rc = 0;

    mutex_lock(&told->lock);
    while (told->stops < count && rc == 0) {
        rc = cond_wait(&told->change, &told->lock, deadline);
    }
    mutex_unlock(&told->lock);
    assert_int_equal(rc, 0);
    assert_int_equal(told->stops, count);
}

static void await_room(struct ground *ground, uint64_t number, int rc)
{
    int64_t deadline = clock_deadline(SOON_MS);

    while (room(ground, number) != rc && clock_ms() < deadline) {
        (void)usleep(10000);
    }
    assert_int_equal(room(ground, number), rc);
}

static void a_sum_counts_blocks_once_and_follows_nothing(void **state)
{
    struct ground *ground = *state;
    char tree[PATH_SIZE];
    char path[PATH_SIZE];
    char other[PATH_SIZE];
    int64_t before;

    path_of(ground, "outside", other);
    write_data(other, 8 * MIB);
    path_of(ground, "tree", tree);
    assert_int_equal(mkdir(tree, 0700), 0);
    before = sum(tree);
    path_of(ground, "tree/a", path);
    write_data(path, 2 * MIB);
    assert_in_range(sum(tree) - before, 2 * MIB, 2 * MIB + 65536);
    path_of(ground, "tree/b", other);
    assert_int_equal(link(path, other), 0);
    path_of(ground, "tree/link", other);
    assert_int_equal(symlink("..", other), 0);
    path_of(ground, "tree/fifo", other);
    assert_int_equal(mkfifo(other, 0600), 0);
    path_of(ground, "tree/sparse", path);
    write_data(path, 0);
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    assert_in_range(sum(tree) - before, 2 * MIB, 2 * MIB + 65536);
}

static void a_sum_reaches_the_bottom_of_a_deep_tree(void **state)
{
    const struct ground *ground = *state;
    struct cancel never = CANCEL_NEVER;
    struct limits limits = {.deadline_ms = clock_deadline(SOON_MS),
                            .cancel = &never};
    struct err err = ERR_INIT;
    char name[200];
    char tree[PATH_SIZE];
    AUTO_FD int at = -1;

    memset(name, 'd', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    path_of(ground, "tree", tree);
    assert_int_equal(mkdir(tree, 0700), 0);
    at = open_dir(tree);
    for (int i = 0; i < DEPTH / 10; i++) {
        int next;

        assert_int_equal(mkdirat(at, name, 0700), 0);
        next = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        (void)close(at);
        at = next;
    }
    assert_int_equal(fchdir(at), 0);
    write_data("bottom", 3 * MIB);
    assert_int_equal(chdir("/"), 0);
    assert_true(sum(tree) >= 3 * MIB);
    (void)close(at);
    at = open_dir(ground->dir);
    assert_int_equal(remove_tree(at, "tree", &limits, &err), 0);
}

static void a_sum_that_takes_too_long_says_so(void **state)
{
    const struct ground *ground = *state;
    AUTO_FD int top = -1;
    char path[PATH_SIZE];
    int64_t bytes;

    for (int i = 0; i < 2000; i++) {
        char name[32];

        (void)snprintf(name, sizeof(name), "f%d", i);
        path_of(ground, name, path);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    top = open_dir(ground->dir);
    assert_false(disk_sum(top, clock_ms() - 1, &bytes));
    assert_true(disk_sum(top, clock_deadline(SOON_MS), &bytes));
}

static void who_holds_too_much_is_stopped_alone_until_it_frees(void **state)
{
    struct ground *ground = *state;
    char path[PATH_SIZE];
    char more[PATH_SIZE];

    add(ground, 1, 4 * MIB);
    add(ground, 2, 4 * MIB);
    path_of(ground, "2/file", path);
    write_data(path, 2 * MIB);
    path_of(ground, "1/file", path);
    put_data(ground, path, 8 * MIB);
    await_stops(ground, 1);
    assert_int_equal(ground->told.number, 1);
    assert_int_equal(ground->told.why.code, EDQUOT);
    assert_non_null(strstr(ground->told.why.msg, "disk_bytes"));
    assert_int_equal(room(ground, 1), -EDQUOT);
    assert_int_equal(room(ground, 2), 0);
    /* One that grows no more is let be, one that goes on is not. */
    (void)usleep(1200000);
    await_stops(ground, 1);
    path_of(ground, "1/more", more);
    put_data(ground, more, 8 * MIB);
    await_stops(ground, 2);
    assert_int_equal(unlink(more), 0);
    assert_int_equal(unlink(path), 0);
    await_room(ground, 1, 0);
    assert_int_equal(room(ground, 2), 0);
}

static void a_session_that_is_dropped_is_not_looked_at(void **state)
{
    struct ground *ground = *state;
    char path[PATH_SIZE];

    add(ground, 1, MIB);
    add(ground, 2, MIB);
    watch_drop(ground->watch, 1);
    path_of(ground, "1/file", path);
    put_data(ground, path, 8 * MIB);
    path_of(ground, "2/file", path);
    put_data(ground, path, 8 * MIB);
    await_stops(ground, 1);
    assert_int_equal(ground->told.number, 2);
    assert_int_equal(room(ground, 1), 0);
}

/* On a disk of its own, which only root can make. */
static void who_fills_the_disk_is_stopped_and_nobody_may_grow(void **state)
{
    struct ground *ground = *state;
    char path[PATH_SIZE];

    watch_free(ground->watch);
    ground->watch = NULL;
    if (mount("tmpfs", ground->dir, "tmpfs", 0, "size=64m") < 0) {
        skip();
    }
    start(ground);
    add(ground, 1, 256 * MIB);
    add(ground, 2, 256 * MIB);
    path_of(ground, "2/file", path);
    write_data(path, 2 * MIB);
    path_of(ground, "1/file", path);
    write_data(path, 2 * MIB);
    (void)usleep(1200000);
    assert_int_equal(room(ground, 1), 0);
    write_data(path, 58 * MIB);
    await_stops(ground, 1);
    assert_int_equal(ground->told.number, 1);
    assert_int_equal(ground->told.why.code, ENOSPC);
    assert_int_equal(room(ground, 1), -ENOSPC);
    assert_int_equal(room(ground, 2), -ENOSPC);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(room(ground, 2), 0);
    watch_free(ground->watch);
    ground->watch = NULL;
    assert_int_equal(umount2(ground->dir, MNT_DETACH), 0);
}

#define WITH_WATCH(name)                                                       \
    cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WATCH(a_sum_counts_blocks_once_and_follows_nothing),
        WITH_WATCH(a_sum_reaches_the_bottom_of_a_deep_tree),
        WITH_WATCH(a_sum_that_takes_too_long_says_so),
        WITH_WATCH(who_holds_too_much_is_stopped_alone_until_it_frees),
        WITH_WATCH(a_session_that_is_dropped_is_not_looked_at),
        WITH_WATCH(who_fills_the_disk_is_stopped_and_nobody_may_grow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
