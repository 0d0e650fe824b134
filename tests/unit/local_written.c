/* Layers that a power cut may have taken. */
#include "providers/local/written.h"
#include "tests/cmocka.h"
#include "tests/scratch.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    PATH_SIZE = 256,
    TRIES = 10000,
    PROCESSES = 8,
    LONG_MS = 1000000,
};

static atomic_uint_fast64_t last;
/* Also of daemons that were killed: they just do nothing any more. */
static struct written *all[PROCESSES];
static size_t count;
static char store[PATH_SIZE];
static int dir;

static uint64_t last_one(void *arg)
{
    (void)arg;
    return atomic_load(&last);
}

static struct written *start(void)
{
    struct written *written = NULL;
    struct err err = ERR_INIT;

    assert_int_equal(written_open(dir, last_one, NULL, &written, &err), 0);
    assert_true(count < PROCESSES);
    all[count++] = written;
    return written;
}

static struct written *begin(bool synced)
{
    struct written *written = start();
    struct err err = ERR_INIT;

    assert_int_equal(written_begin(written, synced, &err), 0);
    return written;
}

static void read_link(char out[PATH_SIZE])
{
    ssize_t size = readlinkat(dir, "written", out, PATH_SIZE - 1);

    assert_true(size > 0);
    out[size] = '\0';
}

/* The machine has gone down, and is up again; `ended`: a daemon had ended. */
static void go_down(bool ended)
{
    char text[PATH_SIZE];

    read_link(text);
    (void)snprintf(strchr(text, '.'), 32, ".another%s", ended ? ".all" : "");
    assert_int_equal(unlinkat(dir, "written", 0), 0);
    assert_int_equal(symlinkat(text, dir, "written"), 0);
}

static int setup(void **state)
{
    (void)state;
    scratch_make(store, sizeof(store));
    dir = open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    atomic_store(&last, 0);
    written_wait(LONG_MS);
    return dir < 0;
}

static int teardown(void **state)
{
    (void)state;
    while (count > 0) {
        written_close(all[--count]);
    }
    (void)close(dir);
    scratch_remove(store);
    return 0;
}

static void what_is_not_on_the_disk_is_lost_with_the_machine(void **state)
{
    struct written *written = begin(false);

    (void)state;
    atomic_store(&last, 3);
    written_later(written);
    /* It is killed; the machine goes on. */
    written = start();
    assert_false(written_lost(written, 3));
    go_down(false);
    written = start();
    assert_false(written_lost(written, 0));
    assert_true(written_lost(written, 1));
    assert_true(written_lost(written, 3));
}

static void await_link(const char *begin)
{
    char text[PATH_SIZE] = "";

    for (int i = 0; i < TRIES && strncmp(text, begin, strlen(begin)) != 0;
         i++) {
        (void)usleep(1000);
        read_link(text);
    }
    assert_int_equal(strncmp(text, begin, strlen(begin)), 0);
}

static void it_is_on_the_disk_before_long(void **state)
{
    struct written *written = begin(false);

    (void)state;
    written_wait(1);
    atomic_store(&last, 3);
    written_later(written);
    await_link("3.");
    atomic_store(&last, 5);
    written_later(written);
    await_link("5.");
    written_wait(LONG_MS);
    atomic_store(&last, 6);
    written_later(written);
    go_down(false);
    written = start();
    assert_false(written_lost(written, 5));
    assert_true(written_lost(written, 6));
}

static void what_had_ended_before_is_trusted(void **state)
{
    struct written *written = begin(false);

    (void)state;
    atomic_store(&last, 3);
    written_close(written);
    count--;
    go_down(true);
    written = begin(false);
    assert_false(written_lost(written, 3));
    /* And is on the disk, from where it was read. */
    atomic_store(&last, 4);
    go_down(false);
    written = start();
    assert_false(written_lost(written, 3));
    assert_true(written_lost(written, 4));
}

static void where_all_wait_for_the_disk_nothing_is_lost(void **state)
{
    struct written *written;

    (void)state;
    atomic_store(&last, 3);
    written = begin(true);
    atomic_store(&last, 4);
    go_down(true); /* As it says by itself. */
    written = start();
    assert_false(written_lost(written, 4));
}

static void a_start_goes_on_with_what_was_due(void **state)
{
    struct written *written = begin(false);

    (void)state;
    atomic_store(&last, 3);
    written_later(written);
    written_wait(1);
    (void)begin(false);
    await_link("3.");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_not_on_the_disk_is_lost_with_the_machine),
        TEST(it_is_on_the_disk_before_long),
        TEST(what_had_ended_before_is_trusted),
        TEST(where_all_wait_for_the_disk_nothing_is_lost),
        TEST(a_start_goes_on_with_what_was_due),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
