/* What a workload has shut to its owner, who we are where we are not root. */
#include "tests/cmocka.h"
#include "tests/contract/local_snapshots.h"
#include "tests/contract/snapshots_model.h"

#include <unistd.h>

static int sh(struct model *model, const char *script, const char *expect)
{
    return bench_sh(model->bench, &model->box, script, expect);
}

static unsigned take(struct model *model, uint64_t key)
{
    return (unsigned)model_take_only(model, key, NULL).changed;
}

static int count(void *arg, char kind, const char *path)
{
    unsigned *n = arg;

    (void)kind;
    (void)path;
    (*n)++;
    return 0;
}

static unsigned changes(struct model *model, uint64_t from, uint64_t to)
{
    const struct provider_span span = {.from = from, .to = to};
    struct err err = ERR_INIT;
    unsigned n = 0;

    assert_int_equal(
        provider_changes(model->bench->provider, &model->box.sandbox, &span,
                         bench_limits(model->bench), count, &n, &err),
        0);
    return n;
}

static void a_shut_directory_is_in_checkpoints(void **state)
{
    static const char make[] =
        "mkdir -p d/e; echo f >d/f; echo g >d/e/g; echo h >h; ln h d/h; "
        "chmod 0 h d/f d/e d";
    static const char open[] =
        "stat -c %a d h; chmod 700 d; stat -c %a d/f d/e; "
        "chmod 700 d/e d/f h; cat d/f d/e/g; echo i >>h; cat h; ls d";
    struct model model;

    model_make(*state, &model);
    assert_int_equal(sh(&model, make, ""), 0);
    assert_int_equal(take(&model, 1), 6);
    /* Looking at it is no change. */
    assert_int_equal(take(&model, 2), 0);
    assert_int_equal(sh(&model, "stat -c %a d h", "0\n0\n"), 0);
    assert_int_equal(take(&model, 3), 0);
    bench_reopen(*state);
    assert_int_equal(take(&model, 4), 0);
    model_restore(&model, 1);
    assert_int_equal(take(&model, 5), 0);
    assert_int_equal(sh(&model, open, "0\n0\n0\n0\nf\ng\nh\ni\ne\nf\nh\n"), 0);
    assert_int_equal(sh(&model, "echo n >d/n; chmod 0 h d/f d/e d", ""), 0);
    assert_int_equal(take(&model, 6), 3); /* h, d/f, d/n */
    assert_int_equal(take(&model, 7), 0);
    model_restore(&model, 1);
    assert_int_equal(sh(&model, open, "0\n0\n0\n0\nf\ng\nh\ni\ne\nf\nh\n"), 0);
    model_restore(&model, 6);
    assert_int_equal(
        sh(&model, "stat -c %a d h; chmod 700 d; ls d", "0\n0\ne\nf\nh\nn\n"),
        0);
    /* What its owner cannot see is not told to him. */
    assert_true(changes(&model, 1, 6) <= 3);
    assert_true(changes(&model, 1, 0) >= 1);
    model_end(&model);
}

/* So many that layers are joined. */
static void a_shut_directory_is_in_many_checkpoints(void **state)
{
    struct model model;

    model_make(*state, &model);
    for (unsigned key = 1; key <= 40; key++) {
        assert_int_equal(
            sh(&model, "mkdir -p d; chmod 700 d; echo >>d/f; chmod 0 d", ""),
            0);
        assert_int_equal(take(&model, key), key == 1 ? 2 : 1);
    }
    model_restore(&model, 33);
    assert_int_equal(
        sh(&model, "stat -c %a d; chmod 700 d; wc -l <d/f", "0\n33\n"), 0);
    model_end(&model);
}

int suite_snapshots_shut(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shut_directory_is_in_checkpoints),
        cmocka_unit_test(a_shut_directory_is_in_many_checkpoints),
    };

    return cmocka_run_group_tests_name("shut", tests, bench_group_setup,
                                       bench_group_teardown);
}
