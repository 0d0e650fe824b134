/* Paths of this machine, beside somebody who moves things. */
#include "core/path.h"

#include "tests/cmocka.h"
#include "tests/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LOOKS = 20000
};

struct mover {
    int dir;
    atomic_bool ends;
};

static void *move(void *arg)
{
    struct mover *mover = arg;

    while (!mover->ends) {
        (void)renameat(mover->dir, "x", mover->dir, "y");
        (void)renameat(mover->dir, "y", mover->dir, "x");
    }
    return NULL;
}

/* The kernel cannot tell then whether `..` still lies below. */
static void renames_elsewhere_fail_no_look(void **state)
{
    struct mover mover = {.dir = -1};
    struct err err = ERR_INIT;
    char dir[128];
    pthread_t thread;

    (void)state;
    scratch_make(dir, sizeof(dir));
    mover.dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(mover.dir, "x", 0700), 0);
    assert_int_equal(mkdirat(mover.dir, "a", 0700), 0);
    assert_int_equal(mkdirat(mover.dir, "b", 0700), 0);
    assert_int_equal(pthread_create(&thread, NULL, move, &mover), 0);
    for (int i = 0; i < LOOKS; i++) {
        char *path = NULL;
        int rc = path_beneath(dir, "a/../b/../a/../b", &path, &err);

        free(path);
        if (rc < 0) {
            print_message("look %d: %s\n", i, err.msg);
        }
        assert_int_equal(rc, 0);
    }
    mover.ends = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)close(mover.dir);
    scratch_remove(dir);
}

static void a_directory_is_not_below_itself(void **state)
{
    struct err err = ERR_INIT;
    char dir[128];
    char words[320];
    char *path = NULL;

    (void)state;
    scratch_make(dir, sizeof(dir));
    assert_int_equal(path_beneath(dir, dir, &path, &err), -EPERM);
    (void)snprintf(words, sizeof(words), "'%s' does not lie below '%s'", dir,
                   dir);
    assert_string_equal(err.msg, words);
    scratch_remove(dir);
}

static void what_the_kernel_makes_up_is_known(void **state)
{
    static const struct {
        const char *path;
        bool is;
    } cases[] = {{"/proc", true}, {"/proc/self/fd", true},
                 {"/sys", true},  {"/sys/kernel", true},
                 {"/", false},    {"/tmp", false}};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int fd = open(cases[i].path, O_PATH | O_CLOEXEC);

        assert_true(fd >= 0);
        assert_int_equal(path_is_kernels(fd), cases[i].is);
        (void)close(fd);
    }
    assert_false(path_is_kernels(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renames_elsewhere_fail_no_look),
        cmocka_unit_test(a_directory_is_not_below_itself),
        cmocka_unit_test(what_the_kernel_makes_up_is_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
