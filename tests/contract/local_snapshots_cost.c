/* What checkpoints of `local` cost: as much as has changed. */
#include "core/clock.h"
#include "tests/cmocka.h"
#include "tests/contract/local_snapshots.h"
#include "tests/contract/snapshots_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    ROUNDS = 15,
    CHANGED = 10,     /* Files, */
    FILE_SIZE = 4096, /* of so many bytes, each round. */
    MORE_ROOM = 16 * 1024,
    SLACK = 3,
    TAKE_US = 5000,
    RESTORE_US = 15000,
    FORK_US = 8000,
};

struct costs {
    int64_t take_us;
    int64_t restore_us;
    int64_t fork_us;
    uint64_t bytes;
};

static int by_value(const void *a, const void *b)
{
    const int64_t *left = a;
    const int64_t *right = b;

    return *left < *right ? -1 : *left > *right;
}

/* Other programs run too: what it takes undisturbed. */
static int64_t least(int64_t *all, const char *what)
{
    qsort(all, ROUNDS, sizeof(*all), by_value);
    print_message("%s: median %" PRId64 " us, least %" PRId64 " us\n", what,
                  all[ROUNDS / 2], all[0]);
    return all[0];
}

static void make_base(struct model *model, char *config, size_t size,
                      unsigned files)
{
    char command[1024];

    (void)snprintf(config, size, "{\"base\":\"%s/base.%u\"}", model->bench->dir,
                   files);
    (void)snprintf(command, sizeof(command),
                   "mkdir -p %s/base.%u && cd %s/base.%u && python3 -c '"
                   "import os\n"
                   "for i in range(%u):\n"
                   "    d = \"d%%d\" %% (i // 100)\n"
                   "    if i %% 100 == 0: os.mkdir(d)\n"
                   "    with open(\"%%s/f%%d\" %% (d, i), \"w\") as f:\n"
                   "        f.write(\"x\" * 4096)'",
                   model->bench->dir, files, model->bench->dir, files, files);
    assert_int_equal(system(command), 0);
}

static void change(struct model *model, unsigned round)
{
    char script[256];

    (void)snprintf(script, sizeof(script),
                   "for i in 0 1 2 3 4 5 6 7 8 9; do "
                   "printf %%04096d %u >d1/f1%u$i; done",
                   round, round % 10);
    assert_int_equal(bench_sh(model->bench, &model->box, script, ""), 0);
}

static int64_t restore(struct model *model, uint64_t key)
{
    struct err err = ERR_INIT;
    int64_t took = clock_wall_us();

    assert_int_equal(
        provider_snapshot_restore(model->bench->provider, &model->box.sandbox,
                                  key, bench_limits(model->bench), &err),
        0);
    took = clock_wall_us() - took;
    assert_int_equal(provider_resume(model->bench->provider,
                                     &model->box.sandbox,
                                     bench_limits(model->bench), &err),
                     0);
    return took;
}

static int64_t fork_once(struct model *model, uint64_t key)
{
    struct model fork;
    struct err err = ERR_INIT;
    int64_t took;

    memset(&fork, 0, sizeof(fork));
    fork.bench = model->bench;
    bench_name(model->bench, &fork.box);
    fork.box.sandbox.config = model->box.sandbox.config;
    took = clock_wall_us();
    assert_int_equal(provider_snapshot_fork(
                         model->bench->provider, &model->box.sandbox, key,
                         &fork.box.sandbox, bench_limits(model->bench), &err),
                     0);
    took = clock_wall_us() - took;
    model_end(&fork);
    return took;
}

static void measure(struct bench *bench, unsigned files, struct costs *out)
{
    int64_t takes[ROUNDS];
    int64_t restores[ROUNDS];
    int64_t forks[ROUNDS];
    struct model model = {.bench = bench};
    struct err err = ERR_INIT;
    char config[BENCH_PATH + 64];

    make_base(&model, config, sizeof(config), files);
    bench_name(bench, &model.box);
    model.box.sandbox.config = config;
    assert_int_equal(provider_create(bench->provider, &model.box.sandbox,
                                     bench_limits(bench), &err),
                     0);
    change(&model, 0);
    (void)model_take_only(&model, 1, NULL);
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct snapshot_made made;

        change(&model, i + 1);
        takes[i] = clock_wall_us();
        made = model_take_only(&model, i + 2, NULL);
        takes[i] = clock_wall_us() - takes[i];
        assert_int_equal(made.changed, CHANGED);
        out->bytes = made.bytes > out->bytes ? made.bytes : out->bytes;
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        forks[i] = fork_once(&model, i + 1);
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        restores[i] = restore(&model, ROUNDS - i);
    }
    model_end(&model);
    out->take_us = least(takes, "take");
    out->restore_us = least(restores, "restore");
    out->fork_us = least(forks, "fork");
    print_message("%u files: %" PRIu64 " bytes\n", files, out->bytes);
    assert_true(out->take_us < SLACK * TAKE_US);
    assert_true(out->restore_us < SLACK * RESTORE_US);
    assert_true(out->fork_us < SLACK * FORK_US);
    assert_true(out->bytes <= CHANGED * FILE_SIZE + MORE_ROOM);
}

static void the_size_of_a_workspace_does_not_matter(void **state)
{
    struct costs small = {0};
    struct costs large = {0};

    measure(*state, 1000, &small);
    measure(*state, 100000, &large);
    assert_true(large.take_us < SLACK * small.take_us);
}

int suite_snapshots_cost(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_size_of_a_workspace_does_not_matter),
    };

    return cmocka_run_group_tests_name("cost", tests, bench_group_setup,
                                       bench_group_teardown);
}
