/*
 * Checkpoints of `local`: each is what the workspace was.
 * usage: contract_local_snapshots [TESTS], a pattern of names
 * With SEAL=N in the environment what is more than N entries is sealed.
 */
#include "tests/contract/local_snapshots.h"
#include "core/provider_snapshots.h"
#include "providers/local/snapshots.h"
#include "tests/cmocka.h"
#include "tests/contract/snapshots_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    STEPS = 14,
    CHANGES = 14,
    MANY = 70
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

static void resume(struct model *model)
{
    struct err err = ERR_INIT;

    assert_int_equal(provider_resume(model->bench->provider,
                                     &model->box.sandbox,
                                     bench_limits(model->bench), &err),
                     0);
}

static void another_daemon_goes_on(void **state)
{
    struct model model;
    struct snapshot_made made;

    model_make(*state, &model);
    model_change(&model, seed() * 9000, 40);
    model_take(&model, 1);
    bench_reopen(*state);
    made = model_take_only(&model, 2, NULL);
    assert_int_equal(made.changed, 0);
    assert_int_equal(made.bytes, 0);
    resume(&model);
    assert_int_equal(bench_sh(*state, &model.box, "echo x >one", ""), 0);
    made = model_take_only(&model, 3, NULL);
    assert_int_equal(made.changed, 1);
    model_check(&model, 1);
    for (unsigned key = 4; key <= 10; key++) {
        bench_reopen(*state);
        resume(&model);
        model_change(&model, seed() * 9000 + key, CHANGES);
        model_take(&model, key);
        model_check(&model, key);
        if (key % 3 == 0) {
            model_restore(&model, 1);
        }
    }
    model_check(&model, 5);
    model_end(&model);
}

/* What is made in place of a lost workspace has nothing of the old one. */
static void a_lost_workspace_is_restored_or_replaced(void **state)
{
    struct bench *bench = *state;
    struct model model;
    struct err err = ERR_INIT;
    char command[BENCH_PATH + 64];

    model_make(bench, &model);
    model_change(&model, seed() * 9500, 40);
    model_take(&model, 1);
    for (int turn = 0; turn < 2; turn++) {
        provider_close(bench->provider);
        (void)snprintf(command, sizeof(command), "rm -r %s/upper*",
                       model.box.dir);
        assert_int_equal(system(command), 0);
        bench_open_again(bench);
        assert_int_equal(bench_status(bench, &model.box), PROVIDER_LOST);
        if (turn == 0) {
            model_restore(&model, 1);
            model_check_now(&model, 1);
        }
    }
    assert_int_equal(provider_create(bench->provider, &model.box.sandbox,
                                     bench_limits(bench), &err),
                     0);
    assert_int_equal(bench_sh(bench, &model.box, "ls -A", ""), 0);
    model_take(&model, 2);
    model_check(&model, 2);
    model_restore(&model, 1);
    model_check_now(&model, 1);
    model_end(&model);
}

/* A store to memory that is dirty already changes no time. `m` is mapped by
 * what goes on when `prepare` has been done. */
static void stores_are_kept(struct model *model, const char *prepare)
{
    static const char format[] = "mkfifo go; python3 -c '\n"
                                 "import mmap, os\n"
                                 "f = open(\"m\", \"r+b\")\n"
                                 "m = mmap.mmap(f.fileno(), 8192)\n"
                                 "m[0] = 65\n"
                                 "%s\n"
                                 "open(\"done\", \"w\").close()\n"
                                 "for i in range(4):\n"
                                 "    open(\"go\").read()\n"
                                 "    m[1 + i] = 66 + i\n"
                                 "    open(\"done\", \"w\").close()\n"
                                 "' >/dev/null 2>&1 &\n"
                                 "while ! [ -e done ]; do sleep 0.01; done";
    char script[sizeof(format) + 64];

    (void)snprintf(script, sizeof(script), format, prepare);
    assert_int_equal(bench_sh(model->bench, &model->box, script, ""), 0);
    for (unsigned key = 1; key <= 4; key++) {
        model_take(model, 2 * key);
        assert_int_equal(bench_sh(model->bench, &model->box,
                                  "rm -f done; echo >go; while ! [ -e done ]; "
                                  "do sleep 0.01; done",
                                  ""),
                         0);
        model_take(model, 2 * key + 1);
    }
    for (unsigned key = 2; key <= 9; key++) {
        model_check(model, key);
    }
}

static void make_m(void **state, struct model *model)
{
    model_make(*state, model);
    assert_int_equal(
        bench_sh(*state, &model->box, "head -c 8192 /dev/zero >m", ""), 0);
}

static void what_is_stored_in_memory_is_kept(void **state)
{
    struct model model;

    make_m(state, &model);
    stores_are_kept(&model, "");
    model_end(&model);
}

/* The name by which it was mapped is gone; also where the file was copied from
 * a layer. */
static void a_store_under_another_name_is_kept(void **state)
{
    struct model model;

    make_m(state, &model);
    stores_are_kept(&model, "os.link(\"m\", \"n\"); os.unlink(\"m\")");
    model_end(&model);
    make_m(state, &model);
    model_take(&model, 1);
    model_restore(&model, 1);
    stores_are_kept(&model, "os.link(\"m\", \"n\"); os.unlink(\"m\")");
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
        cmocka_unit_test(another_daemon_goes_on),
        cmocka_unit_test(a_lost_workspace_is_restored_or_replaced),
        cmocka_unit_test(what_is_stored_in_memory_is_kept),
        cmocka_unit_test(a_store_under_another_name_is_kept),
        cmocka_unit_test(what_differs_is_told),
        cmocka_unit_test(long_chains_show_the_same),
        cmocka_unit_test(a_fork_goes_its_own_way),
    };

    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    } else { /* That is for a machine with nothing else to do. */
        cmocka_set_skip_filter("the_size_*");
    }
    if (getenv("SEAL")) {
        model_still = true;
        snapshots_seal_from(strtoull(getenv("SEAL"), NULL, 10), 1 << 20);
    }
    bench_use("local");
    return cmocka_run_group_tests_name("snapshots", tests, bench_group_setup,
                                       bench_group_teardown) +
                   suite_snapshots_cost() + suite_snapshots_killed() +
                   suite_snapshots_seal() + suite_snapshots_shut()
               ? 1
               : 0;
}
