/* What a session has written becomes a checkpoint's layer as it is. */
#include "core/clock.h"
#include "providers/local/box.h"
#include "providers/local/snapshots.h"
#include "providers/local/written.h"
#include "tests/cmocka.h"
#include "tests/contract/local_snapshots.h"
#include "tests/contract/snapshots_model.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    FILES = 2100, /* More than are copied; */
    SOME = 300,   /* where fewer are, these are more. */
    SOME_LEAST = 200,
    MANY = 75,
    JOINED = 32,      /* So many become one. */
    LATER_MS = 20000, /* As it is usual. */
    MOST = 1000
};

/* How a sandbox's move to another mount ends, for once. */
static enum {
    AS_IT_DOES,
    REFUSED,
    NOT_TOLD
} move_ends;

int __real_box_move(const struct box *box, int mount,
                    const struct limits *limits, struct err *err);
int __wrap_box_move(const struct box *box, int mount,
                    const struct limits *limits, struct err *err);

int __wrap_box_move(const struct box *box, int mount,
                    const struct limits *limits, struct err *err)
{
    int rc = move_ends == REFUSED ? err_set(err, EINVAL, "refused")
                                  : __real_box_move(box, mount, limits, err);

    if (rc == 0 && move_ends == NOT_TOLD) {
        rc = err_set(err, ETIMEDOUT, "it took too long");
    }
    move_ends = AS_IT_DOES;
    return rc;
}

/* Whether little room is left, enough for a command; or much, whatever the
 * machine has. */
static atomic_bool is_tight;

int __real_fstatvfs(int fd, struct statvfs *out);
int __wrap_fstatvfs(int fd, struct statvfs *out);

int __wrap_fstatvfs(int fd, struct statvfs *out)
{
    int rc = __real_fstatvfs(fd, out);

    if (rc == 0) {
        out->f_blocks = ((uint64_t)1 << 40) / out->f_frsize;
        out->f_bavail = atomic_load(&is_tight)
                            ? ((uint64_t)3 << 29) / out->f_frsize
                            : out->f_blocks;
    }
    return rc;
}

static int sh(struct model *model, const char *script, const char *expect)
{
    return bench_sh(model->bench, &model->box, script, expect);
}

static void begin(void **state, struct model *model)
{
    if (geteuid() != 0) {
        skip(); /* Nothing is sealed there. */
    }
    model_still = true;
    model_make(*state, model);
}

static void end(struct model *model)
{
    model_still = false;
    snapshots_seal_from(2000, 64 << 20);
    model_end(model);
}

static void write_files(struct model *model, unsigned count)
{
    char script[256];

    (void)snprintf(script, sizeof(script),
                   "mkdir -p many/deep; cd many; i=0; "
                   "while [ $i -lt %u ]; do echo $i >f$i; i=$((i + 1)); done; "
                   "echo x >deep/x; ln -s deep link; chmod 750 deep",
                   count);
    assert_int_equal(sh(model, script, ""), 0);
}

static void write_many(struct model *model)
{
    snapshots_seal_from(SOME_LEAST, 64 << 20);
    write_files(model, SOME);
}

static struct snapshot_made take(struct model *model, uint64_t key)
{
    int64_t began = clock_wall_us();
    struct snapshot_made made = model_take_only(model, key, NULL);
    int64_t took = clock_wall_us() - began;
    char command[4 * BENCH_PATH];
    char root[BENCH_PATH];
    int fd = model_root(model, root);

    print_message("%s: %u changed, %u us\n", made.moved ? "sealed" : "copied",
                  (unsigned)made.changed, (unsigned)took);
    (void)snprintf(command, sizeof(command),
                   "mkdir %s/%u && cp -a /proc/%d/fd/%d/. %s/%u", model->copies,
                   (unsigned)key, (int)getpid(), fd, model->copies,
                   (unsigned)key);
    assert_int_equal(system(command), 0);
    (void)close(fd);
    return made;
}

static void what_is_large_is_sealed(void **state)
{
    struct model model;
    struct snapshot_made made;

    begin(state, &model);
    assert_int_equal(sh(&model, "echo kept >/tmp/kept; echo a >a", ""), 0);
    made = take(&model, 1);
    assert_false(made.moved);
    assert_int_equal(made.changed, 1);
    write_files(&model, FILES);
    made = take(&model, 2);
    assert_true(made.moved);
    assert_int_equal(made.changed, FILES + 4);
    model_check(&model, 1);
    model_check(&model, 2);
    model_check_changes(&model, 1, 2, 2);

    /* The sandbox has gone on, and sees the workspace. */
    assert_int_equal(
        sh(&model, "cat /tmp/kept a many/f17 many/link/x", "kept\na\n17\nx\n"),
        0);
    assert_int_equal(sh(&model, "ls many | wc -l", "2102\n"), 0);
    assert_int_equal(
        sh(&model, "grep -c ' /workspace ' /proc/self/mountinfo", "1\n"), 0);
    assert_int_equal(sh(&model,
                        "rm many/f1; echo new >many/f2; mv many/deep moved; "
                        "echo n >n",
                        ""),
                     0);
    made = take(&model, 3);
    assert_false(made.moved);
    /* f1, f2, n, and two names with one file of `deep`. */
    assert_int_equal(made.changed, 6);
    assert_int_equal(sh(&model, "chmod 700 many; mkdir many/e", ""), 0);
    assert_int_equal(model_take_only(&model, 4, NULL).changed, 2);
    assert_int_equal(sh(&model, "echo z >many/e/z; rmdir many/e || :", NULL),
                     0);
    assert_int_equal(model_take_only(&model, 5, NULL).changed, 1);
    assert_int_equal(sh(&model, "rm -r many/e; chmod 755 many", ""), 0);
    for (uint64_t key = 1; key <= 3; key++) {
        model_check(&model, key);
        model_check_changes(&model, key, 0, 3);
    }
    model_check_changes(&model, 2, 3, 3);
    assert_int_equal(model_take_only(&model, 6, NULL).changed, 2);
    made = model_take_only(&model, 7, NULL);
    assert_int_equal(made.changed, 0);
    model_restore(&model, 2);
    model_check_now(&model, 2);
    model_restore(&model, 3);
    model_check_now(&model, 3);
    end(&model);
}

static void seal_on_seal_shows_the_same(void **state)
{
    struct model model;
    struct model fork;

    begin(state, &model);
    for (unsigned key = 1; key <= 4; key++) {
        char script[128];

        (void)snprintf(script, sizeof(script), "rm -rf many; mkdir d%u", key);
        assert_int_equal(sh(&model, script, ""), 0);
        write_many(&model);
        assert_true(take(&model, key).moved);
        assert_int_equal(
            sh(&model, "grep -c ' /workspace ' /proc/self/mountinfo", "1\n"),
            0);
    }
    for (unsigned key = 1; key <= 4; key++) {
        model_check(&model, key);
    }
    model_fork(&model, 3, &fork);
    model_check_now(&fork, 3);
    assert_int_equal(sh(&fork, "rm -r many", ""), 0);
    model_check(&model, 3);
    model_end(&fork);
    end(&model);
}

/* How many layers the workspace lies over. */
static int depth(struct model *model)
{
    static const char script[] =
        "t=$(readlink %s/head | cut -d. -f2); n=0; cd %s/../../layers; "
        "while [ $t != 0 ]; do n=$((n + 1)); "
        "t=$(readlink $t.on | cut -d. -f1); done; exit $n";
    const char *const dir = model->box.sandbox.dir;
    char command[2 * BENCH_PATH + sizeof(script)];
    int status;

    (void)snprintf(command, sizeof(command), script, dir, dir);
    status = system(command);
    return WEXITSTATUS(status);
}

/* Also what lies in a layer's directory comes to lie elsewhere. */
static int take_moved(struct model *model, unsigned key)
{
    char script[192];

    (void)snprintf(script, sizeof(script),
                   "mkdir -p d%u/in; echo %u >d%u/f; echo %u >same; "
                   "mv d%u/f moved; mv d%u m%u; echo x >>m%u/in/f",
                   key, key, key, key, key / 2 + 1, key / 3, key, key);
    (void)sh(model, script, NULL);
    return model_take_only(model, key, NULL).moved;
}

/* So many that they are joined meanwhile. */
static void many_seals_show_the_same(void **state)
{
    struct model model;
    int sealed = 0;
    unsigned key = 0;

    begin(state, &model);
    snapshots_seal_from(0, 0);
    /* Nothing is sealed while they are joined, which takes its time. */
    while (key < MANY || (sealed <= depth(&model) && key < MOST)) {
        sealed += take_moved(&model, ++key);
        if (key % 25 == 0) {
            model_copy(&model, key);
        }
    }
    assert_in_range(depth(&model), 1, sealed - 1);
    bench_reopen(*state);
    for (key = 25; key <= MANY; key += 25) {
        model_check(&model, key);
    }
    for (key = MANY; key >= 25; key -= 25) {
        model_restore(&model, key);
        model_check_now(&model, key);
        assert_int_equal(sh(&model, "echo x >x", ""), 0);
        (void)model_take_only(&model, 1000 + key, NULL);
    }
    end(&model);
}

/* Waits until something is so in the store of layers. */
static void await(struct model *model, const char *what)
{
    static const char script[] =
        "cd %s/../../layers; for i in $(seq 2400); do %s && exit 0; "
        "sleep 0.025; done; ls; exit 1";
    char command[2 * BENCH_PATH + sizeof(script)];

    (void)snprintf(command, sizeof(command), script, model->box.sandbox.dir,
                   what);
    assert_int_equal(system(command), 0);
}

static void seal_until_joined(struct model *model)
{
    snapshots_seal_from(0, 0);
    for (unsigned key = 1; key <= JOINED; key++) {
        assert_int_equal(sh(model, "echo x >>f", ""), 0);
        assert_true(model_take_only(model, key, NULL).moved);
    }
    await(model, "test -h $(find . -lname '*.100') && "
                 "test -e $(basename $(find . -lname '*.100') .on)/f");
}

/* A power cut would take what others have made since. */
static void what_is_joined_keeps_nobody_from_the_disk(void **state)
{
    struct model model;
    struct model other;

    begin(state, &model);
    written_wait(1);
    seal_until_joined(&model);
    model_make(*state, &other);
    assert_int_equal(sh(&other, "echo x >f", ""), 0);
    (void)model_take_only(&other, 1, NULL);
    await(&other, "test $(readlink written | cut -d. -f1) -ge "
                  "$(ls | grep on | sort -n | tail -n 1 | cut -d. -f1)");
    written_wait(LATER_MS);
    model_end(&other);
    end(&model);
}

/* Which the session never comes back to. */
static void a_restore_lets_what_was_joined_go(void **state)
{
    struct model model;
    struct err err = ERR_INIT;

    begin(state, &model);
    seal_until_joined(&model);
    model_restore(&model, 1);
    for (unsigned key = 2; key <= JOINED; key++) {
        assert_int_equal(
            provider_snapshot_drop(model.bench->provider, &model.box.sandbox,
                                   key, bench_limits(model.bench), &err),
            0);
    }
    await(&model, "test $(ls | grep -c on) = 1");
    end(&model);
}

/* Nothing is sealed while layers are joined. */
static void seal_next(struct model *model, uint64_t *key)
{
    do {
        assert_int_equal(sh(model, "echo x >>f", ""), 0);
    } while (!model_take_only(model, ++*key, NULL).moved);
}

/* What is done meanwhile in workspaces would fail. */
static void nothing_is_joined_where_room_is_short(void **state)
{
    struct model model;
    uint64_t key = 0;

    begin(state, &model);
    snapshots_seal_from(0, 0);
    atomic_store(&is_tight, true);
    for (unsigned i = 0; i <= JOINED; i++) {
        seal_next(&model, &key);
    }
    assert_int_equal(depth(&model), JOINED + 1);
    atomic_store(&is_tight, false);
    seal_next(&model, &key);
    seal_next(&model, &key);
    assert_in_range(depth(&model), 1, JOINED);
    end(&model);
}

/* Another checkpoint after each says that nothing has changed. */
static void nothing_is_counted_twice(void **state)
{
    struct model model;

    begin(state, &model);
    write_many(&model);
    assert_true(model_take_only(&model, 1, NULL).moved);
    assert_int_equal(model_take_only(&model, 2, NULL).changed, 0);
    bench_reopen(*state);
    assert_int_equal(model_take_only(&model, 3, NULL).changed, 0);
    end(&model);
}

static void what_holds_the_workspace_keeps_it(void **state)
{
    struct model model;

    begin(state, &model);
    write_many(&model);
    assert_int_equal(
        sh(&model, "(cd many; sleep 60) >/dev/null 2>&1 & echo $! >/tmp/pid",
           ""),
        0);
    assert_false(take(&model, 1).moved);
    assert_int_equal(sh(&model,
                        "p=$(cat /tmp/pid); kill $p; while kill -0 $p "
                        "2>/dev/null; do sleep 0.05; done",
                        ""),
                     0);
    model_still = false; /* Something is open. */
    assert_false(model_take_only(&model, 2, NULL).moved);
    model_still = true;
    assert_true(model_take_only(&model, 3, NULL).moved);
    model_check(&model, 1);
    end(&model);
}

/* Their names would part when one of them is written in a layer. */
static void files_with_more_names_stay_one(void **state)
{
    static const char same[] = "echo more >>same; cat many/f5 many/deep/f5";
    struct model model;

    begin(state, &model);
    write_many(&model);
    assert_int_equal(sh(&model, "ln many/f5 same; ln many/f5 many/deep/f5", ""),
                     0);
    assert_true(take(&model, 1).moved);
    assert_int_equal(sh(&model, same, "5\nmore\n5\nmore\n"), 0);
    assert_int_equal(model_take_only(&model, 2, NULL).changed, 3);
    assert_int_equal(sh(&model, "rm -r many", ""), 0);
    write_many(&model);
    assert_int_equal(sh(&model, "ln -f same many/f5", ""), 0);
    assert_true(take(&model, 3).moved);
    assert_int_equal(
        sh(&model, "echo last >>many/f5; cat same", "5\nmore\nlast\n"), 0);
    model_check(&model, 1);
    model_check(&model, 3);
    end(&model);
}

/* What is copied in a seal has to be little. */
static void many_files_with_more_names_are_copied(void **state)
{
    struct model model;

    begin(state, &model);
    snapshots_seal_from(10, 64 << 20);
    assert_int_equal(sh(&model,
                        "mkdir a b; for i in 1 2 3 4 5 6 7 8 9; do "
                        "echo x >a/$i; ln a/$i b/$i; done",
                        ""),
                     0);
    assert_false(take(&model, 1).moved);
    assert_int_equal(sh(&model, "echo y >a/1; cat b/1", "y\n"), 0);
    model_check(&model, 1);
    end(&model);
}

static void a_paused_workspace_is_sealed(void **state)
{
    struct model model;
    struct err err = ERR_INIT;

    begin(state, &model);
    write_many(&model);
    assert_int_equal(provider_pause(model.bench->provider, &model.box.sandbox,
                                    bench_limits(model.bench), &err),
                     0);
    assert_true(take(&model, 1).moved);
    assert_int_equal(provider_resume(model.bench->provider, &model.box.sandbox,
                                     bench_limits(model.bench), &err),
                     0);
    model_check_now(&model, 1);
    assert_int_equal(sh(&model, "cat many/f5; rm many/f5", "5\n"), 0);
    model_check(&model, 1);
    end(&model);
}

static void resume(struct model *model)
{
    struct err err = ERR_INIT;

    model->bench->limits.deadline_ms = clock_deadline(20000);
    assert_int_equal(provider_resume(model->bench->provider,
                                     &model->box.sandbox, &model->bench->limits,
                                     &err),
                     0);
}

/* What was written is copied then; and what will be is not lost. */
static void a_seal_that_fails_is_undone(void **state)
{
    struct model model;

    begin(state, &model);
    write_many(&model);
    assert_int_equal(sh(&model, "echo kept >/tmp/kept", ""), 0);
    move_ends = REFUSED;
    assert_false(take(&model, 1).moved);
    assert_int_equal(
        sh(&model, "cat /tmp/kept many/f1; echo a >a", "kept\n1\n"), 0);
    assert_true(take(&model, 2).moved);
    model_check(&model, 1);
    model_check(&model, 2);
    end(&model);
}

/* The sandbox may have what is thrown away for its workspace. */
static void a_sandbox_that_may_be_elsewhere_is_ended(void **state)
{
    struct model model;

    begin(state, &model);
    write_many(&model);
    move_ends = NOT_TOLD;
    assert_false(take(&model, 1).moved);
    resume(&model);
    assert_int_equal(sh(&model, "cat many/f1; echo a >a; rm many/f2", "1\n"),
                     0);
    assert_true(take(&model, 2).moved);
    model_check(&model, 1);
    model_check(&model, 2);
    bench_reopen(*state);
    resume(&model);
    model_check_now(&model, 2);
    end(&model);
}

int suite_snapshots_seal(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_large_is_sealed),
        cmocka_unit_test(seal_on_seal_shows_the_same),
        cmocka_unit_test(many_seals_show_the_same),
        cmocka_unit_test(what_is_joined_keeps_nobody_from_the_disk),
        cmocka_unit_test(a_restore_lets_what_was_joined_go),
        cmocka_unit_test(nothing_is_joined_where_room_is_short),
        cmocka_unit_test(nothing_is_counted_twice),
        cmocka_unit_test(what_holds_the_workspace_keeps_it),
        cmocka_unit_test(files_with_more_names_stay_one),
        cmocka_unit_test(many_files_with_more_names_are_copied),
        cmocka_unit_test(a_paused_workspace_is_sealed),
        cmocka_unit_test(a_seal_that_fails_is_undone),
        cmocka_unit_test(a_sandbox_that_may_be_elsewhere_is_ended),
    };

    return cmocka_run_group_tests_name("seal", tests, bench_group_setup,
                                       bench_group_teardown);
}
