/* What a command has said is on the disk before its end is told. */
#include "tests/unit/core_fixture.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int __real_fsync(int fd);
int __wrap_fsync(int fd);

enum {
    PATH_SIZE = 256
};

static struct {
    atomic_uint logs;
    atomic_bool fail;
} disk;

/* Whether it is a command's output. */
static bool is_log(int fd)
{
    char link[64];
    char path[PATH_SIZE];
    ssize_t size;

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    size = readlink(link, path, sizeof(path) - 1);
    path[size < 0 ? 0 : size] = '\0';
    return size > 4 && strcmp(path + size - 4, ".log") == 0;
}

int __wrap_fsync(int fd)
{
    if (is_log(fd)) {
        atomic_fetch_add(&disk.logs, 1);
        if (atomic_load(&disk.fail)) {
            errno = EIO;
            return -1;
        }
    }
    return __real_fsync(fd);
}

static struct session *begin(struct fixture *fixture, bool durable)
{
    fixture_close(fixture);
    fixture->durable_power = durable;
    fixture_open(fixture, "local");
    atomic_store(&disk.logs, 0);
    atomic_store(&disk.fail, false);
    return fixture_create(fixture, "a");
}

static void output_is_on_the_disk_where_a_power_cut_counts(void **state)
{
    struct session *session = begin(*state, true);
    struct exec_info info;

    fixture_exec(session, "o:x", &info);
    assert_int_equal(info.status, EXEC_EXITED);
    assert_int_equal(disk.logs, 1);
    /* There is nothing to be kept. */
    fixture_exec(session, "exit:0", &info);
    assert_int_equal(info.status, EXEC_EXITED);
    assert_int_equal(disk.logs, 1);
    atomic_store(&disk.fail, true);
    fixture_exec(session, "o:x", &info);
    assert_int_equal(info.status, EXEC_FAILED);
    assert_int_equal(info.err.code, EIO);
    session_unref(session);
}

static void else_nobody_waits_for_it(void **state)
{
    struct session *session = begin(*state, false);
    struct exec_info info;

    fixture_exec(session, "o:x", &info);
    assert_int_equal(info.status, EXEC_EXITED);
    assert_int_equal(disk.logs, 0);
    session_unref(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(output_is_on_the_disk_where_a_power_cut_counts),
        FIXTURE_TEST(else_nobody_waits_for_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
