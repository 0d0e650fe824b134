/*
 * What `local` reports survives a power cut where that is asked for: it is on
 * the disk before, in the right order, and a disk that fails is told.
 */
#include "core/provider_snapshots.h"
#include "providers/local/head.h"
#include "tests/cmocka.h"
#include "tests/contract/snapshots_model.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    REMOVAL_US = 50000,
    REMOVALS_MOST = 200,
};

int __real_syncfs(int fd);
int __real_fsync(int fd);
int __wrap_syncfs(int fd);
int __wrap_fsync(int fd);

/* What the disk was asked, and what it says. */
static struct {
    atomic_uint all;   /* syncfs(): what was written. */
    atomic_uint names; /* fsync(): what was noted, */
    atomic_bool noted; /* where the name was there by then, */
    atomic_bool early; /* and whether it was when it should not be. */
    atomic_bool fail_all;
    atomic_bool fail_names;
    atomic_uint fail_at; /* This one of `names`; 0: none. */
    char watched[BENCH_PATH + 64];
} disk;

static bool is_there(void)
{
    struct stat attr;

    return lstat(disk.watched, &attr) == 0;
}

int __wrap_syncfs(int fd)
{
    atomic_fetch_add(&disk.all, 1);
    if (is_there()) {
        atomic_store(&disk.early, true);
    }
    if (atomic_load(&disk.fail_all)) {
        errno = EIO;
        return -1;
    }
    return __real_syncfs(fd);
}

int __wrap_fsync(int fd)
{
    const unsigned n = atomic_fetch_add(&disk.names, 1) + 1;

    if (is_there()) {
        atomic_store(&disk.noted, true);
    }
    if (atomic_load(&disk.fail_names) || n == atomic_load(&disk.fail_at)) {
        errno = EIO;
        return -1;
    }
    return __real_fsync(fd);
}

static void reset(void)
{
    atomic_store(&disk.all, 0);
    atomic_store(&disk.names, 0);
    atomic_store(&disk.noted, false);
    atomic_store(&disk.early, false);
    atomic_store(&disk.fail_all, false);
    atomic_store(&disk.fail_names, false);
    atomic_store(&disk.fail_at, 0);
    disk.watched[0] = '\0';
}

static void watch_key(const struct model *model, uint64_t key)
{
    (void)snprintf(disk.watched, sizeof(disk.watched), "%s/keys/%" PRIu64,
                   model->box.dir, key);
}

static void open_with(struct bench *bench, bool durable)
{
    bench->env.durable_power = durable;
    bench_reopen(bench);
    reset();
}

static void make(struct bench *bench, struct model *model)
{
    model_make(bench, model);
    assert_int_equal(bench_sh(bench, &model->box, "echo one >one", ""), 0);
}

static int take(struct model *model, uint64_t key)
{
    const struct snapshot_ask ask = {.key = key};
    struct snapshot_made made;
    struct err err = ERR_INIT;

    return provider_snapshot_take(model->bench->provider, &model->box.sandbox,
                                  &ask, bench_limits(model->bench), &made,
                                  &err);
}

static int find(void *arg, uint64_t key)
{
    return key == *(const uint64_t *)arg ? -EEXIST : 0;
}

static bool has_key(struct model *model, uint64_t key)
{
    struct err err = ERR_INIT;

    return provider_snapshot_list(model->bench->provider, &model->box.sandbox,
                                  bench_limits(model->bench), find, &key,
                                  &err) == -EEXIST;
}

static void without_it_nothing_waits_for_the_disk(void **state)
{
    struct model model;
    struct model fork;

    open_with(*state, false);
    make(*state, &model);
    model_take(&model, 1);
    model_restore(&model, 1);
    model_fork(&model, 1, &fork);
    assert_int_equal(disk.all, 0);
    assert_int_equal(disk.names, 0);
    model_end(&fork);
    model_end(&model);
}

static void what_was_written_is_on_the_disk_before_it_is_noted(void **state)
{
    struct model model;

    open_with(*state, true);
    make(*state, &model);
    watch_key(&model, 1);
    assert_int_equal(take(&model, 1), 0);
    assert_int_equal(disk.all, 1);
    assert_true(disk.noted);
    assert_false(disk.early);
    /* Also where nothing has changed: that, too, is noted. */
    reset();
    watch_key(&model, 2);
    assert_int_equal(take(&model, 2), 0);
    assert_true(disk.noted);
    model_end(&model);
}

static void a_disk_that_fails_fails_a_checkpoint(void **state)
{
    struct model model;

    open_with(*state, true);
    make(*state, &model);
    model_take(&model, 1);
    assert_int_equal(bench_sh(*state, &model.box, "echo two >two", ""), 0);
    atomic_store(&disk.fail_all, true);
    assert_int_equal(take(&model, 2), -EIO);
    assert_false(has_key(&model, 2));
    reset();
    atomic_store(&disk.fail_names, true);
    assert_int_equal(take(&model, 2), -EIO);
    assert_false(has_key(&model, 2));
    reset();
    model_take(&model, 2);
    model_check(&model, 2);
    model_check(&model, 1);
    model_end(&model);
}

static int restore(struct model *model, uint64_t key)
{
    struct err err = ERR_INIT;

    return provider_snapshot_restore(model->bench->provider,
                                     &model->box.sandbox, key,
                                     bench_limits(model->bench), &err);
}

static void a_restore_waits_for_the_disk(void **state)
{
    struct model model;
    struct model fork;

    open_with(*state, true);
    make(*state, &model);
    model_take(&model, 1);
    assert_int_equal(bench_sh(*state, &model.box, "echo two >one", ""), 0);
    model_take(&model, 2);
    reset();
    atomic_store(&disk.fail_names, true);
    assert_int_equal(restore(&model, 1), -EIO);
    reset();
    model_check_now(&model, 2);
    (void)snprintf(disk.watched, sizeof(disk.watched), "%s/head",
                   model.box.dir);
    assert_int_equal(restore(&model, 1), 0);
    assert_true(disk.noted);
    model_check_now(&model, 1);
    reset();
    model_fork(&model, 2, &fork);
    assert_true(disk.names > 0);
    model_check_now(&fork, 2);
    model_end(&fork);
    model_end(&model);
}

/* Until then a power cut would lead back to it. */
static void what_was_there_stays_until_a_restore_is_on_the_disk(void **state)
{
    struct model model;
    char upper[HEAD_NAME_SIZE];
    struct err err = ERR_INIT;
    struct head head;
    unsigned last;
    int dir;

    open_with(*state, true);
    make(*state, &model);
    model_take(&model, 1);
    dir = open(model.box.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    reset();
    assert_int_equal(head_read(dir, model.box.sandbox.number, &head, &err), 0);
    head_upper(&head, upper);
    assert_int_equal(restore(&model, 1), 0);
    last = disk.names;
    assert_int_equal(faccessat(dir, upper, F_OK, 0), -1);
    reset();
    assert_int_equal(head_read(dir, model.box.sandbox.number, &head, &err), 0);
    head_upper(&head, upper);
    atomic_store(&disk.fail_at, last);
    assert_int_equal(restore(&model, 1), -EIO);
    reset();
    assert_int_equal(faccessat(dir, upper, F_OK, 0), 0);
    bench_reopen(*state);
    assert_int_equal(faccessat(dir, upper, F_OK, 0), -1);
    model_check_now(&model, 1);
    (void)close(dir);
    model_end(&model);
}

static int drop(struct model *model, uint64_t key)
{
    struct err err = ERR_INIT;

    return provider_snapshot_drop(model->bench->provider, &model->box.sandbox,
                                  key, bench_limits(model->bench), &err);
}

static void a_new_workspace_waits_for_the_disk(void **state)
{
    struct model model;

    open_with(*state, true);
    make(*state, &model);
    assert_true(disk.names > 0);
    model_end(&model);
}

static void a_drop_waits_for_the_disk(void **state)
{
    struct model model;

    open_with(*state, true);
    make(*state, &model);
    model_take(&model, 1);
    model_take(&model, 2);
    reset();
    assert_int_equal(drop(&model, 1), 0);
    assert_true(disk.names > 0);
    atomic_store(&disk.fail_names, true);
    assert_int_equal(drop(&model, 2), -EIO);
    reset();
    assert_int_equal(drop(&model, 2), 0); /* Again. */
    model_end(&model);
}

/* Whether the layer of a checkpoint is there, now and after a while. */
static bool stays(const struct model *model, const char *layer)
{
    char path[2 * BENCH_PATH];

    (void)snprintf(path, sizeof(path), "%s/../../layers/%s", model->box.dir,
                   layer);
    (void)usleep(REMOVAL_US);
    return access(path, F_OK) == 0;
}

static void read_layer(const struct model *model, uint64_t key, char *out,
                       size_t size)
{
    char path[2 * BENCH_PATH];
    ssize_t n;

    (void)snprintf(path, sizeof(path), "%s/keys/%" PRIu64, model->box.dir, key);
    n = readlink(path, out, size - 1);
    assert_true(n > 0);
    out[n] = '\0';
}

static int destroy(struct model *model)
{
    struct err err = ERR_INIT;

    return provider_destroy(model->bench->provider, &model->box.sandbox,
                            bench_limits(model->bench), &err);
}

/* Until then a power cut would bring back the checkpoint, without its files. */
static void layers_go_when_nothing_on_the_disk_leads_to_them(void **state)
{
    struct model model;
    char one[32];
    char two[32];

    open_with(*state, true);
    make(*state, &model);
    model_take(&model, 1);
    read_layer(&model, 1, one, sizeof(one));
    assert_int_equal(bench_sh(*state, &model.box, "echo two >one", ""), 0);
    model_take(&model, 2);
    read_layer(&model, 2, two, sizeof(two));
    model_restore(&model, 1);
    atomic_store(&disk.fail_names, true);
    assert_int_equal(drop(&model, 2), -EIO);
    assert_true(stays(&model, two));
    assert_int_equal(destroy(&model), -EIO);
    assert_true(stays(&model, one));
    reset();
    assert_int_equal(destroy(&model), 0);
    bench_reopen(*state);
    for (int i = 0; stays(&model, one) || stays(&model, two); i++) {
        assert_true(i < REMOVALS_MOST);
    }
    model_end(&model);
}

static void what_waits_for_the_disk_in_a_workspace_does(void **state)
{
    static const char is_volatile[] =
        "grep ' /workspace overlay ' /proc/mounts | grep -q volatile";
    struct model model;

    open_with(*state, true);
    make(*state, &model);
    assert_int_equal(bench_sh(*state, &model.box, is_volatile, ""), 1);
    model_end(&model);
    open_with(*state, false);
    make(*state, &model);
    assert_int_equal(bench_sh(*state, &model.box, is_volatile, ""), 0);
    model_end(&model);
}

/* It is up again, and all after the layer of a checkpoint was in memory alone.
 */
static void go_down(struct model *model, uint64_t key)
{
    char path[BENCH_PATH + 64];
    char text[64];
    ssize_t size;

    watch_key(model, key);
    size = readlink(disk.watched, text, sizeof(text) - sizeof(".another"));
    assert_true(size > 0);
    (void)snprintf(text + size, sizeof(text) - (size_t)size, ".another");
    provider_close(model->bench->provider);
    (void)snprintf(path, sizeof(path), "%s/layers/written", model->bench->dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(text, path), 0);
    bench_open_again(model->bench);
}

static enum provider_state status_of(struct model *model)
{
    enum provider_state out = PROVIDER_RUNNING;
    struct err err = ERR_INIT;

    assert_int_equal(provider_status(model->bench->provider,
                                     &model->box.sandbox,
                                     bench_limits(model->bench), &out, &err),
                     0);
    return out;
}

static void a_power_cut_takes_what_nobody_waited_for(void **state)
{
    struct model model;
    struct model fork;

    open_with(*state, false);
    make(*state, &model);
    model_take(&model, 1);
    assert_int_equal(bench_sh(*state, &model.box, "echo two >two", ""), 0);
    model_take(&model, 2);
    model_fork(&model, 2, &fork);
    go_down(&model, 1);
    assert_true(has_key(&model, 1));
    assert_false(has_key(&model, 2));
    assert_int_equal(status_of(&fork), PROVIDER_LOST);
    assert_int_equal(status_of(&model), PROVIDER_PAUSED);
    model_restore(&model, 1);
    model_check_now(&model, 1);
    model_end(&fork);
    model_end(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_it_nothing_waits_for_the_disk),
        cmocka_unit_test(what_was_written_is_on_the_disk_before_it_is_noted),
        cmocka_unit_test(a_disk_that_fails_fails_a_checkpoint),
        cmocka_unit_test(a_restore_waits_for_the_disk),
        cmocka_unit_test(what_was_there_stays_until_a_restore_is_on_the_disk),
        cmocka_unit_test(a_new_workspace_waits_for_the_disk),
        cmocka_unit_test(a_drop_waits_for_the_disk),
        cmocka_unit_test(layers_go_when_nothing_on_the_disk_leads_to_them),
        cmocka_unit_test(what_waits_for_the_disk_in_a_workspace_does),
        cmocka_unit_test(a_power_cut_takes_what_nobody_waited_for),
    };

    bench_use("local");
    return cmocka_run_group_tests_name("durable", tests, bench_group_setup,
                                       bench_group_teardown);
}
