/* How signals end the mount. */
#include "tests/cmocka.h"

#include "fs/fs.h"
#include "fs/signals.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <time.h>

static struct fuse_session *new_session(void)
{
    static const struct fuse_lowlevel_ops ops = {.init = NULL};
    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
    struct fuse_session *fuse;

    assert_int_equal(fuse_opt_add_arg(&args, "test"), 0);
    fuse = fuse_session_new(&args, &ops, sizeof(ops), NULL);
    fuse_opt_free_args(&args);
    assert_non_null(fuse);
    return fuse;
}

/* As libfuse's loop does: an interrupted wait looks again. */
static int wait_for(sem_t *sem, time_t seconds)
{
    struct timespec until;

    assert_int_equal(clock_gettime(CLOCK_REALTIME, &until), 0);
    until.tv_sec += seconds;
    return sem_timedwait(sem, &until) < 0 ? errno : 0;
}

static void a_signal_before_the_wait_ends_the_wait(void **state)
{
    static const int asking[] = {SIGTERM, SIGINT, SIGHUP};
    struct fuse_session *fuse = new_session();
    struct err err = ERR_INIT;
    sem_t sem;

    (void)state;
    assert_int_equal(sem_init(&sem, 0, 0), 0);
    for (size_t i = 0; i < ARRAY_SIZE(asking); i++) {
        fuse_session_reset(fuse);
        assert_int_equal(signals_begin(fuse, &err), 0);
        assert_int_equal(raise(asking[i]), 0);
        assert_true(fuse_session_exited(fuse));
        assert_int_equal(wait_for(&sem, 30), EINTR);
        signals_hold();
    }
    assert_int_equal(sem_destroy(&sem), 0);
    fuse_session_destroy(fuse);
}

static void asking_twice_does_not_cut_the_end_off(void **state)
{
    struct fuse_session *fuse = new_session();
    struct err err = ERR_INIT;
    sem_t sem;

    (void)state;
    assert_int_equal(sem_init(&sem, 0, 0), 0);
    assert_int_equal(signals_begin(fuse, &err), 0);
    assert_int_equal(raise(SIGTERM), 0);
    signals_hold();
    assert_int_equal(raise(SIGTERM), 0);
    assert_int_equal(raise(SIGHUP), 0);
    assert_int_equal(raise(SIGPIPE), 0);
    /* And no alarm comes any more. */
    assert_int_equal(wait_for(&sem, 2), ETIMEDOUT);
    assert_int_equal(sem_destroy(&sem), 0);
    fuse_session_destroy(fuse);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signal_before_the_wait_ends_the_wait),
        cmocka_unit_test(asking_twice_does_not_cut_the_end_off),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
