/* What a daemon that was killed has left half made at the engine. */
#include "tests/unit/remote_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SOON = 200 /* Looks of 10 ms each. */
};

/* How many halves are noted, and one of their names. */
static unsigned notes(struct fixture *fx, char name[32])
{
    char path[128];
    unsigned n = 0;
    DIR *dir;

    (void)snprintf(path, sizeof(path), "%s/halves", remote_fixture_dir(fx));
    dir = opendir(path);
    if (!dir) {
        return 0;
    }
    for (const struct dirent *entry = readdir(dir); entry;
         entry = readdir(dir)) {
        if (entry->d_name[0] != '.') {
            (void)snprintf(name, 32, "%.31s", entry->d_name);
            n++;
        }
    }
    (void)closedir(dir);
    return n;
}

static void write_it(struct fixture *fx)
{
    fixture_write(fx, "d/f", "text");
}

/* Writes d/f in a process that is killed when its half is noted. */
static void killed_in_the_middle(struct fixture *fx, char name[32])
{
    remote_fixture_die_at(fx, "half-noted", write_it);
    assert_int_equal(notes(fx, name), 1);
}

static void what_was_half_made_is_removed_by_the_next(void **state)
{
    struct fixture *fx = *state;
    struct fixture *next;
    char name[32], path[64];

    fixture_mkdir(fx, "d");
    fixture_write(fx, "d/old", "text");
    assert_int_equal(notes(fx, name), 0);
    killed_in_the_middle(fx, name);
    (void)snprintf(path, sizeof(path), "d/.sessionfs-%s", name);
    fixture_write(fx, path, "half"); /* As the engine has it then. */
    next = remote_fixture_other(fx);
    assert_int_equal(ws_sync(next->ws, &next->ctx.limits, &next->err), 0);
    for (int i = 0; i < SOON && notes(fx, name); i++) {
        (void)poll(NULL, 0, 10);
    }
    assert_int_equal(notes(fx, name), 0);
    assert_int_equal(fixture_find(next, path), -ENOENT);
    fixture_expect(next, "d/old", "text");
    remote_fixture_end_other(next);
}

/* Only what is ours, and only where we said. */
static void a_note_names_nothing_else(void **state)
{
    struct fixture *fx = *state;
    struct fixture *next;
    char name[32], command[300];

    fixture_mkdir(fx, "d");
    killed_in_the_middle(fx, name);
    fixture_write(fx, "d/keep", "text");
    (void)snprintf(command, sizeof(command), "printf d/keep >%s/halves/%s",
                   remote_fixture_dir(fx), name);
    assert_int_equal(system(command), 0);
    next = remote_fixture_other(fx);
    assert_int_equal(ws_sync(next->ws, &next->ctx.limits, &next->err), 0);
    for (int i = 0; i < SOON && notes(fx, name); i++) {
        (void)poll(NULL, 0, 10);
    }
    fixture_expect(next, "d/keep", "text");
    remote_fixture_end_other(next);
}

/* Nobody knows what an engine has that did not answer. */
static void what_is_not_certain_stays_noted(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *file;
    char name[32];

    fixture_write(fx, "f", "old");
    file = fixture_open(fx, "f", O_RDWR);
    assert_int_equal(ws_write(file, "new", 3, 0, &fx->ctx, &fx->err), 3);
    remote_fixture_fault(fx, "put", "errno ENOTCONN");
    assert_int_equal(ws_fsync(file, false, &fx->ctx, &fx->err), -ENOTCONN);
    assert_int_equal(notes(fx, name), 1);
    remote_fixture_fault(fx, "put", "errno ENOSPC");
    assert_int_equal(ws_fsync(file, false, &fx->ctx, &fx->err), -ENOSPC);
    assert_int_equal(notes(fx, name), 1);
    remote_fixture_fault(fx, "put", NULL);
    assert_int_equal(ws_fsync(file, false, &fx->ctx, &fx->err), 0);
    ws_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(what_was_half_made_is_removed_by_the_next),
        ONE(a_note_names_nothing_else),
        ONE(what_is_not_certain_stays_noted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
