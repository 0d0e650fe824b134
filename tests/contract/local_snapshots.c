/* Checkpoints of `local`: each is what the workspace was. */
#include "core/clock.h"
#include "core/provider_snapshots.h"
#include "tests/cmocka.h"
#include "tests/contract/snapshots_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    STEPS = 20,
    CHANGES = 14,
    MANY = 80
};

static unsigned seed(void)
{
    const char *text = getenv("SEED");

    return text ? (unsigned)strtoul(text, NULL, 10) : 1;
}

static void a_checkpoint_is_what_the_workspace_was(void **state)
{
    struct model model;

    model_make(*state, &model);
    for (unsigned key = 1; key <= STEPS; key++) {
        model_change(&model, seed() * 1000 + key, CHANGES);
        model_take(&model, key);
        model_check(&model, key);
    }
    for (unsigned key = 1; key <= STEPS; key++) {
        model_check(&model, key);
    }
    model_end(&model);
}

static void a_restored_workspace_is_what_it_was(void **state)
{
    struct model model;

    srandom(seed());
    model_make(*state, &model);
    for (unsigned key = 1; key <= STEPS; key++) {
        unsigned back = 1 + (unsigned)random() % key;

        model_change(&model, seed() * 1000 + key, CHANGES);
        model_take(&model, key);
        model_change(&model, seed() * 1000 + key + 500, CHANGES);
        model_restore(&model, back);
        model_check_now(&model, back);
    }
    for (unsigned key = 1; key <= STEPS; key++) {
        model_check(&model, key);
    }
    model_end(&model);
}

static void what_differs_is_told(void **state)
{
    struct model model;

    srandom(seed());
    model_make(*state, &model);
    for (unsigned key = 1; key <= STEPS; key++) {
        model_change(&model, seed() * 7000 + key, CHANGES);
        model_take(&model, key);
        model_check_changes(&model, key, 0, key);
        if (key > 1) {
            unsigned from = 1 + (unsigned)random() % (key - 1);

            model_check_changes(&model, key - 1, key, key);
            model_check_changes(&model, from, 0, key);
            model_check_changes(&model, key, from, from);
        }
        if (key % 5 == 0) {
            model_restore(&model, key - 2);
            model_check_changes(&model, key, 0, key - 2);
        }
    }
    model_end(&model);
}

/* So many that layers are joined, also those that were joined. */
static void long_chains_show_the_same(void **state)
{
    struct model model;

    model_make(*state, &model);
    for (unsigned key = 1; key <= MANY; key++) {
        model_change(&model, seed() * 5000 + key, 4);
        model_take(&model, key);
        if (key % 16 == 0) {
            model_restore(&model, key);
        }
    }
    for (unsigned key = 1; key <= MANY; key++) {
        model_check(&model, key);
    }
    model_end(&model);
}

static void a_fork_goes_its_own_way(void **state)
{
    struct model model;
    struct model fork;

    model_make(*state, &model);
    for (unsigned key = 1; key <= 6; key++) {
        model_change(&model, seed() * 1000 + key, CHANGES);
        model_take(&model, key);
        model_fork(&model, key, &fork);
        model_check_now(&fork, key);
        model_change(&fork, seed() * 1000 + key + 500, CHANGES);
        model_take(&fork, 100 + key);
        model_check(&fork, 100 + key);
        model_check_now(&model, key);
        if (key % 2) {
            model_end(&fork);
            model_check(&model, key);
        } else {
            model_end(&model);
            model = fork;
            model.box.sandbox.dir = model.box.dir;
            model.box.sandbox.instance = &model.box.instance;
        }
    }
    model_end(&model);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_is_what_the_workspace_was),
        cmocka_unit_test(a_restored_workspace_is_what_it_was),
        cmocka_unit_test(what_differs_is_told),
        cmocka_unit_test(long_chains_show_the_same),
        cmocka_unit_test(a_fork_goes_its_own_way),
    };

    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    bench_use("local");
    return cmocka_run_group_tests_name("snapshots", tests, bench_group_setup,
                                       bench_group_teardown)
               ? 1
               : 0;
}
