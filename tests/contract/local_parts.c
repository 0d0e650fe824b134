/*
 * Big files of checkpoints of `local`, of which little changes.
 * usage: contract_local_parts [TESTS], a pattern of names
 */
#include "core/clock.h"
#include "core/provider_snapshots.h"
#include "providers/local/note.h"
#include "providers/local/parts.h"
#include "tests/cmocka.h"
#include "tests/contract/local_snapshots.h"
#include "tests/contract/snapshots_model.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SMALL = 8192, /* From here on files are in parts where many are tried. */
    LEAST = 4 * 1024 * 1024, /* And where it is as it is for users. */
    BIG_MIB = 32,
    HUGE_MIB = 256,
    ROUNDS = 10,
    CHANGED = 4096,
    MORE_ROOM = 64 * 1024,
    MANY = 40,
    STEPS = 12,
    CHANGES = 14,
};

/* ---- The store ---- */

static uint64_t room_of(int dir, const char *name)
{
    struct stat attr;

    return fstatat(dir, name, &attr, AT_SYMLINK_NOFOLLOW) < 0
               ? 0
               : (uint64_t)attr.st_blocks * 512;
}

/* The room that a tree takes; links count each time. */
static uint64_t tree_room(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry = dir ? readdir(dir) : NULL;
    uint64_t sum = room_of(at, name);

    while (entry) {
        if (strcmp(entry->d_name, ".") != 0 &&
            strcmp(entry->d_name, "..") != 0) {
            sum += tree_room(dirfd(dir), entry->d_name);
        }
        entry = readdir(dir);
    }
    if (dir) {
        (void)closedir(dir);
    }
    return sum;
}

static uint64_t store_room(const struct bench *bench)
{
    char path[BENCH_PATH + 16];

    (void)snprintf(path, sizeof(path), "%s/layers", bench->dir);
    return tree_room(AT_FDCWD, path);
}

static unsigned count_records(const struct bench *bench)
{
    char path[BENCH_PATH + 16];
    const struct dirent *entry;
    unsigned count = 0;
    DIR *dir;

    (void)snprintf(path, sizeof(path), "%s/layers", bench->dir);
    dir = opendir(path);
    assert_non_null(dir);
    entry = readdir(dir);
    while (entry) {
        count += strstr(entry->d_name, ".parts") != NULL;
        entry = readdir(dir);
    }
    (void)closedir(dir);
    return count;
}

static void drop(struct model *model, uint64_t key)
{
    struct err err = ERR_INIT;

    assert_int_equal(provider_snapshot_drop(model->bench->provider,
                                            &model->box.sandbox, key,
                                            bench_limits(model->bench), &err),
                     0);
}

static void shrinks_to(const struct bench *bench, uint64_t most)
{
    for (int i = 0; i < 5000 && store_room(bench) > most; i++) {
        (void)usleep(1000);
    }
    assert_true(store_room(bench) <= most);
}

/* ---- One big file ---- */

static void write_big(struct model *model, unsigned mib)
{
    char script[128];

    (void)snprintf(script, sizeof(script),
                   "mkdir -p d && head -c %uM /dev/urandom >d/big", mib);
    assert_int_equal(bench_sh(model->bench, &model->box, script, ""), 0);
}

/* Writes a block somewhere else each time. */
static void change_big(struct model *model, unsigned round, unsigned mib)
{
    char script[256];

    (void)snprintf(script, sizeof(script),
                   "head -c %d /dev/urandom | dd of=d/big bs=%d seek=%u "
                   "conv=notrunc status=none",
                   CHANGED, CHANGED, round * (mib * 256 / (ROUNDS + 2)));
    assert_int_equal(bench_sh(model->bench, &model->box, script, ""), 0);
}

static void only_root(void)
{
    if (!note_trusted()) {
        skip();
    }
}

static void cost_little(struct bench *bench, unsigned mib)
{
    struct model model;
    struct model fork;
    int64_t took = 0;
    uint64_t empty = store_room(bench);
    uint64_t before;

    model_make(bench, &model);
    write_big(&model, mib);
    model_take(&model, 1);
    before = store_room(bench);
    for (unsigned round = 1; round <= ROUNDS; round++) {
        struct snapshot_made made;
        int64_t begin;

        change_big(&model, round, mib);
        begin = clock_wall_us();
        made = model_take_only(&model, round + 1, NULL);
        took += clock_wall_us() - begin;
        assert_int_equal(made.changed, 1);
        assert_true(made.bytes <= CHANGED + MORE_ROOM);
        if (round == 1 || round == ROUNDS) {
            model_copy(&model, round + 1);
        }
    }
    print_message("%u MiB: a checkpoint takes %" PRId64 " us, and %" PRIu64
                  " bytes\n",
                  mib, took / ROUNDS, (store_room(bench) - before) / ROUNDS);
    assert_true(store_room(bench) - before <=
                (uint64_t)ROUNDS * (CHANGED + MORE_ROOM));
    model_check(&model, 1);
    model_check(&model, 2);
    model_check(&model, ROUNDS + 1);
    model_check_changes(&model, 1, ROUNDS + 1, ROUNDS + 1);
    model_restore(&model, 2);
    model_check_now(&model, 2);
    model_fork(&model, 2, &fork);
    model_check_now(&fork, 2);
    /* Both are over the same whole file. */
    assert_true(store_room(bench) - before <= ((uint64_t)mib + 1) << 20);
    change_big(&fork, 0, mib);
    model_take(&fork, 100);
    model_check(&fork, 100);
    model_check_now(&model, 2);
    model_end(&fork);
    model_restore(&model, ROUNDS + 1);
    model_check_now(&model, ROUNDS + 1);
    model_restore(&model, 1);
    model_check_now(&model, 1);
    for (unsigned key = 2; key <= ROUNDS + 1; key++) {
        drop(&model, key);
    }
    shrinks_to(bench, before + MORE_ROOM);
    model_check(&model, 1);
    model_end(&model);
    shrinks_to(bench, empty + MORE_ROOM);
}

static void what_changes_a_little_costs_a_little(void **state)
{
    only_root();
    parts_from(LEAST);
    cost_little(*state, BIG_MIB);
}

static void the_size_of_a_file_costs_time_alone(void **state)
{
    only_root();
    parts_from(LEAST);
    cost_little(*state, HUGE_MIB);
}

/* Longer, shorter, replaced, zeros, touched only, holes, another name. */
static void whatever_happens_to_it_is_kept(void **state)
{
    static const char *const scripts[] = {
        "head -c 100 /dev/urandom >>d/big",
        "truncate -s 5000001 d/big",
        "head -c 50000 /dev/zero | dd of=d/big bs=4096 seek=7 conv=notrunc "
        "status=none",
        "touch -d 2001-01-01 d/big",
        "truncate -s 4194305 d/big; truncate -s 9000000 d/big",
        "head -c 9000000 /dev/urandom >new; mv new d/big",
        "chmod 4711 d/big; ln d/big d/second",
        "head -c 9 /dev/urandom | dd of=d/big bs=1 seek=99 conv=notrunc "
        "status=none",
        "rm d/second; mv d e",
        "head -c 9 /dev/urandom | dd of=e/big bs=1 seek=9 conv=notrunc "
        "status=none",
        "fallocate -p -o 4096 -l 8192 e/big",
        "rm e/big; mkdir e/big",
        "rmdir e/big; head -c 6000000 /dev/urandom >e/big",
        "printf x | dd of=e/big conv=notrunc status=none",
    };
    struct model model;

    only_root();
    parts_from(LEAST);
    model_make(*state, &model);
    write_big(&model, 8);
    model_take(&model, 1);
    for (unsigned i = 0; i < sizeof(scripts) / sizeof(*scripts); i++) {
        assert_int_equal(bench_sh(*state, &model.box, scripts[i], ""), 0);
        model_take(&model, i + 2);
        model_check(&model, i + 2);
        model_check_changes(&model, i + 1, i + 2, i + 2);
        if (i % 4 == 3) {
            model_restore(&model, i);
            model_check_now(&model, i);
            model_restore(&model, i + 2);
            model_check_now(&model, i + 2);
        }
    }
    for (unsigned i = 0; i <= sizeof(scripts) / sizeof(*scripts); i++) {
        model_check(&model, i + 1);
    }
    model_end(&model);
}

/* ---- All kinds of changes ---- */

/* A byte of one of a few files, which are there unless other changes took them
 * away. */
static void change_some(struct model *model, unsigned key)
{
    char script[256];

    (void)snprintf(script, sizeof(script),
                   "f=b%u; [ -f $f ] || head -c 65536 /dev/urandom >$f; "
                   "printf x%u | dd of=$f bs=1 seek=%u conv=notrunc; true",
                   key % 3, key, key * 1501);
    assert_int_equal(bench_sh(model->bench, &model->box, script, ""), 0);
}

/* So many that layers are joined. */
static void many_in_parts_show_the_same(void **state)
{
    struct bench *bench = *state;
    struct model model;
    struct model fork;

    only_root();
    parts_from(SMALL);
    model_make(bench, &model);
    for (unsigned key = 1; key <= MANY; key++) {
        model_change(&model, 3000 + key, 5);
        change_some(&model, key);
        model_take(&model, key);
        if (key % 20 == 0) {
            model_restore(&model, key - 7);
            model_check_now(&model, key - 7);
            model_fork(&model, key - 3, &fork);
            model_check_now(&fork, key - 3);
            model_end(&fork);
        }
    }
    assert_true(count_records(bench) > 5);
    for (unsigned key = 1; key <= MANY; key++) {
        model_check(&model, key);
    }
    for (unsigned key = 1; key < MANY; key++) {
        drop(&model, key);
    }
    model_check(&model, MANY);
    bench_reopen(bench);
    model_check(&model, MANY);
    model_restore(&model, MANY);
    model_check_now(&model, MANY);
    model_end(&model);
    shrinks_to(bench, MORE_ROOM);
    assert_int_equal(count_records(bench), 0);
}

static void what_differs_in_parts_is_told(void **state)
{
    struct model model;

    only_root();
    parts_from(SMALL);
    model_make(*state, &model);
    for (unsigned key = 1; key <= STEPS; key++) {
        model_change(&model, 6000 + key, CHANGES);
        model_take(&model, key);
        model_check_changes(&model, key, 0, key);
        model_check_changes(&model, (key + 1) / 2, key, key);
        if (key % 4 == 0) {
            model_restore(&model, key - 2);
            model_check_changes(&model, key, 0, key - 2);
        }
    }
    model_end(&model);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_changes_a_little_costs_a_little),
        cmocka_unit_test(the_size_of_a_file_costs_time_alone),
        cmocka_unit_test(whatever_happens_to_it_is_kept),
        cmocka_unit_test(many_in_parts_show_the_same),
        cmocka_unit_test(what_differs_in_parts_is_told),
    };

    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    } else {
        cmocka_set_skip_filter("the_size_*");
    }
    bench_use("local");
    parts_from(SMALL);
    return cmocka_run_group_tests_name("parts", tests, bench_group_setup,
                                       bench_group_teardown) +
                   suite_snapshots_killed()
               ? 1
               : 0;
}
