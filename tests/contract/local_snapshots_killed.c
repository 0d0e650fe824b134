/* Checkpoints of `local` when the daemon is killed: all is done, or nothing. */
#include "providers/local/snapshots.h"
#include "tests/cmocka.h"
#include "tests/contract/local_snapshots.h"
#include "tests/contract/snapshots_model.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    NOW = 1000, /* The copy of what is now, as if of a key. */
    KILLS = 14,
    KILL_MOST_US = 12000,
    CHANGES = 14,
    JOINED = 32, /* Sealed layers. */
    LINGER_S = 20,
};

/* What another daemon begins, and is killed in. */
struct deed {
    struct model *model;
    uint64_t take;    /* This key; or 0, then */
    uint64_t restore; /* this one. */
    const char *point;
};

static void copy_now(struct model *model)
{
    char command[4 * BENCH_PATH];
    char root[BENCH_PATH];
    int fd = model_root(model, root);

    (void)snprintf(command, sizeof(command),
                   "rm -rf %s/%d && mkdir %s/%d && "
                   "cp -a /proc/%d/fd/%d/. %s/%d",
                   model->copies, NOW, model->copies, NOW, (int)getpid(), fd,
                   model->copies, NOW);
    assert_int_equal(system(command), 0);
    (void)close(fd);
}

/* In a process of its own, whose end is awaited by nobody else. */
static void be_daemon(const struct deed *deed)
{
    struct bench *bench = deed->model->bench;
    const struct sandbox *sandbox = &deed->model->box.sandbox;
    const struct snapshot_ask ask = {.key = deed->take, .still = model_still};
    struct snapshot_made made;
    struct err err = ERR_INIT;
    int rc;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setenv("SESSIONFS_CRASH", deed->point, 1);
    rc = loop_new(&bench->loop, &err);
    bench->env.loop = bench->loop;
    if (rc == 0) {
        rc = provider_open(bench_ops(), &bench->env, &bench->provider, &err);
    }
    if (rc == 0 && deed->take) {
        rc = provider_snapshot_take(bench->provider, sandbox, &ask,
                                    bench_limits(bench), &made, &err);
    } else if (rc == 0) {
        rc = provider_snapshot_restore(bench->provider,
                                       &deed->model->box.sandbox, deed->restore,
                                       bench_limits(bench), &err);
    }
    if (rc == 0 && strncmp(deed->point, "local-join", 10) == 0) {
        (void)sleep(LINGER_S); /* It is in the background. */
    }
    _exit(rc < 0 ? 1 : 0);
}

/* With a point it must be killed there; else it is killed in time, or not. */
static void do_killed(const struct deed *deed)
{
    struct bench *bench = deed->model->bench;
    struct err err = ERR_INIT;
    int status;
    pid_t pid;

    provider_close(bench->provider);
    /* A fork beside a thread may be born with the allocator's lock held. */
    loop_free(bench->loop);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        be_daemon(deed);
    }
    assert_int_equal(loop_new(&bench->loop, &err), 0);
    bench->env.loop = bench->loop;
    if (!deed->point[0]) {
        (void)usleep((useconds_t)(random() % KILL_MOST_US));
        (void)kill(pid, SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(!deed->point[0] || WIFSIGNALED(status));
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    bench_open_again(bench);
}

struct search {
    uint64_t key;
    bool found;
};

static int look(void *arg, uint64_t key)
{
    struct search *search = arg;

    search->found = search->found || key == search->key;
    return 0;
}

static bool has_key(struct model *model, uint64_t key)
{
    struct search search = {.key = key};
    struct err err = ERR_INIT;

    assert_int_equal(
        provider_snapshot_list(model->bench->provider, &model->box.sandbox,
                               bench_limits(model->bench), look, &search, &err),
        0);
    return search.found;
}

static void take_killed(struct model *model, uint64_t key, const char *point)
{
    const struct deed deed = {.model = model, .take = key, .point = point};

    copy_now(model);
    do_killed(&deed);
    model_check_now(model, NOW);
    if (has_key(model, key)) {
        char command[3 * BENCH_PATH];

        (void)snprintf(command, sizeof(command), "cp -a %s/%d %s/%" PRIu64,
                       model->copies, NOW, model->copies, key);
        assert_int_equal(system(command), 0);
    } else {
        model_take(model, key);
    }
    model_check(model, key);
}

static void take_killed_only(struct model *model, uint64_t key,
                             const char *point)
{
    const struct deed deed = {.model = model, .take = key, .point = point};

    do_killed(&deed);
    assert_false(has_key(model, key));
}

static void restore_killed(struct model *model, uint64_t key, const char *point)
{
    const struct deed deed = {.model = model, .restore = key, .point = point};

    copy_now(model);
    do_killed(&deed);
    if (!model_is_now(model, key)) {
        model_check_now(model, NOW);
    }
    model_restore(model, key);
    model_check_now(model, key);
}

static void resume(struct model *model)
{
    struct err err = ERR_INIT;

    assert_int_equal(provider_resume(model->bench->provider,
                                     &model->box.sandbox,
                                     bench_limits(model->bench), &err),
                     0);
}

static void change(struct model *model, unsigned seed)
{
    resume(model);
    model_change(model, seed, CHANGES);
}

static void a_kill_at_any_point_leaves_all_or_nothing(void **state)
{
    static const char *const takes[] = {"local-take-laid", "local-take-noted"};
    static const char *const restores[] = {"local-restore-made",
                                           "local-restore-noted"};
    struct model model;

    model_make(*state, &model);
    change(&model, 1);
    model_take(&model, 1);
    for (unsigned i = 0; i < 2; i++) {
        change(&model, 10 + i);
        take_killed(&model, 10 + i, takes[i]);
        change(&model, 20 + i);
        restore_killed(&model, 1, restores[i]);
    }
    model_check(&model, 1);
    model_end(&model);
}

static void a_kill_at_any_time_leaves_all_or_nothing(void **state)
{
    struct model model;

    srandom((unsigned)getpid());
    model_make(*state, &model);
    change(&model, 1);
    model_take(&model, 1);
    for (unsigned i = 2; i < KILLS; i++) {
        change(&model, 100 + i);
        if (i % 2) {
            take_killed(&model, i, "");
        } else {
            restore_killed(&model, i > 3 ? i - 1 : 1, "");
        }
    }
    model_check(&model, 1);
    model_end(&model);
}

static void a_kill_in_a_seal_leaves_all_or_nothing(void **state)
{
    static const char *const points[] = {
        "local-seal-marked", "local-seal-taken", "local-seal-moved",
        "local-seal-noted",  "local-take-laid",  "local-take-noted"};
    struct model model;

    if (geteuid() != 0) {
        skip(); /* Nothing is sealed there. */
    }
    model_still = true;
    model_make(*state, &model);
    change(&model, 1);
    model_take(&model, 1);
    snapshots_seal_from(0, 0);
    for (unsigned i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
        change(&model, 50 + i);
        take_killed(&model, 10 + i, points[i]);
        model_check(&model, 1);
    }
    /* What the killed one has sealed is new in the next. */
    resume(&model);
    assert_int_equal(bench_sh(*state, &model.box, "echo a >a; echo b >b", ""),
                     0);
    take_killed_only(&model, 50, "local-seal-noted");
    assert_int_equal(model_take_only(&model, 51, NULL).changed, 2);
    for (unsigned i = 0; i < KILLS / 2; i++) {
        change(&model, 80 + i);
        take_killed(&model, 100 + i, "");
    }
    restore_killed(&model, 12, "local-restore-made");
    model_still = false;
    snapshots_seal_from(2000, 64 << 20);
    model_end(&model);
}

static uint64_t seal(struct model *model, uint64_t key, unsigned count)
{
    char script[64];

    (void)snprintf(script, sizeof(script), "echo %u >>f; mkdir -p d; >d/%u",
                   (unsigned)key, (unsigned)key);
    resume(model);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(bench_sh(model->bench, &model->box, script, ""), 0);
        (void)model_take_only(model, key++, NULL);
    }
    return key;
}

/* The next daemon begins anew. */
static void a_kill_in_a_join_loses_none(void **state)
{
    static const char *const points[] = {"local-join-begun", "local-join-made"};
    struct model model;
    uint64_t key;

    if (geteuid() != 0) {
        skip(); /* Nothing is sealed there. */
    }
    model_still = true;
    snapshots_seal_from(0, 0);
    model_make(*state, &model);
    key = seal(&model, 1, JOINED);
    for (unsigned i = 0; i < 2; i++) {
        const struct deed deed = {
            .model = &model, .take = key, .point = points[i]};

        copy_now(&model);
        do_killed(&deed);
        model_check_now(&model, NOW);
        key = seal(&model, key + 1, 1);
    }
    model_copy(&model, key - 1);
    key = seal(&model, key, 2);
    model_check(&model, key - 3);
    model_still = false;
    snapshots_seal_from(2000, 64 << 20);
    model_end(&model);
}

static void a_kill_while_what_is_shut_is_open_leaves_it_shut(void **state)
{
    const char *const point = "local-shut-open";
    struct model model;

    if (geteuid() == 0) {
        skip(); /* Nothing is shut to root. */
    }
    model_make(*state, &model);
    assert_int_equal(
        bench_sh(*state, &model.box, "mkdir d; echo f >d/f; chmod 0 d/f d", ""),
        0);
    for (unsigned key = 1; key <= 2; key++) {
        take_killed_only(&model, key, point);
        resume(&model);
        assert_int_equal(bench_sh(*state, &model.box,
                                  "stat -c %a d; chmod 700 d; "
                                  "stat -c %a d/f; chmod 0 d",
                                  "0\n0\n"),
                         0);
    }
    assert_int_equal(model_take_only(&model, 3, NULL).changed, 2);
    model_end(&model);
}

int suite_snapshots_killed(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kill_at_any_point_leaves_all_or_nothing),
        cmocka_unit_test(a_kill_at_any_time_leaves_all_or_nothing),
        cmocka_unit_test(a_kill_in_a_seal_leaves_all_or_nothing),
        cmocka_unit_test(a_kill_in_a_join_loses_none),
        cmocka_unit_test(a_kill_while_what_is_shut_is_open_leaves_it_shut),
    };

    return cmocka_run_group_tests_name("killed", tests, bench_group_setup,
                                       bench_group_teardown);
}
