/* The life of a sandbox: create, pause, resume, destroy, status. */
#include "core/clock.h"
#include "tests/cmocka.h"
#include "tests/contract/bench.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void need_pause(void)
{
    if (!bench_ops()->pause) {
        skip();
    }
}

/* A life-cycle call that must succeed. */
static void must(struct bench *bench, struct bench_box *box,
                 provider_life_fn *call)
{
    struct err err = ERR_INIT;
    int rc;

    rc = call(bench->provider, &box->sandbox, bench_limits(bench), &err);
    if (rc < 0) {
        print_error("%s\n", err.msg);
    }
    assert_int_equal(rc, 0);
    assert_int_equal(err.code, 0);
}

/* Puts a word into `file`. */
static void write_file(struct bench *bench, struct bench_box *box,
                       const char *word)
{
    char script[64];

    (void)snprintf(script, sizeof(script), "%s %s",
                   bench_pick(bench, box, "exec >file; echo", "write file"),
                   word);
    assert_int_equal(bench_sh(bench, box, script, ""), 0);
}

/* Starts a command that says `first` and does not end. */
static void start_long(struct bench *bench, struct bench_box *box,
                       struct bench_run *run)
{
    const char *script =
        bench_pick(bench, box, "echo first; sleep 60", "echo first\nhang");

    (void)bench_script(bench, box, script, run);
    bench_says(run, "first");
}

static void a_created_sandbox_runs_and_has_a_name(void **state)
{
    struct bench_box box;

    bench_create(*state, &box);
    assert_int_equal(bench_status(*state, &box), PROVIDER_RUNNING);
    assert_non_null(box.instance.external_id);
    assert_true(strlen(box.instance.external_id) > 0);
    assert_non_null(box.instance.workspace_path);
    assert_int_equal(box.instance.workspace_path[0], '/');
    bench_destroy(*state, &box);
}

static void a_destroyed_sandbox_is_lost(void **state)
{
    struct bench_box box;

    bench_create(*state, &box);
    bench_destroy(*state, &box);
    assert_int_equal(bench_status(*state, &box), PROVIDER_LOST);
}

static void a_sandbox_may_be_destroyed_twice_or_without_being(void **state)
{
    struct bench_box box;

    bench_name(*state, &box);
    bench_destroy(*state, &box);
    must(*state, &box, provider_create);
    bench_destroy(*state, &box);
    bench_destroy(*state, &box);
}

static void a_sandbox_can_be_made_again_and_is_empty(void **state)
{
    struct bench_box box;

    bench_create(*state, &box);
    write_file(*state, &box, "old");
    bench_destroy(*state, &box);
    must(*state, &box, provider_create);
    assert_int_equal(bench_status(*state, &box), PROVIDER_RUNNING);
    assert_int_not_equal(bench_sh(*state, &box, "cat file", ""), 0);
    bench_destroy(*state, &box);
}

static void pause_and_resume_may_be_asked_twice(void **state)
{
    struct bench_box box;

    need_pause();
    bench_create(*state, &box);
    must(*state, &box, provider_pause);
    assert_int_equal(bench_status(*state, &box), PROVIDER_PAUSED);
    must(*state, &box, provider_pause);
    assert_int_equal(bench_status(*state, &box), PROVIDER_PAUSED);
    must(*state, &box, provider_resume);
    assert_int_equal(bench_status(*state, &box), PROVIDER_RUNNING);
    must(*state, &box, provider_resume);
    assert_int_equal(bench_status(*state, &box), PROVIDER_RUNNING);
    bench_destroy(*state, &box);
}

static void a_paused_sandbox_can_be_destroyed(void **state)
{
    struct bench_box box;

    need_pause();
    bench_create(*state, &box);
    must(*state, &box, provider_pause);
    bench_destroy(*state, &box);
    assert_int_equal(bench_status(*state, &box), PROVIDER_LOST);
}

static void files_outlive_a_pause(void **state)
{
    struct bench_box box;

    need_pause();
    bench_create(*state, &box);
    write_file(*state, &box, "kept");
    must(*state, &box, provider_pause);
    must(*state, &box, provider_resume);
    assert_int_equal(bench_sh(*state, &box, "cat file", "kept\n"), 0);
    bench_destroy(*state, &box);
}

static void a_lost_sandbox_cannot_be_resumed(void **state)
{
    struct bench *bench = *state;
    struct bench_box box;
    struct err err = ERR_INIT;

    bench_create(bench, &box);
    bench_destroy(bench, &box);
    assert_int_equal(provider_resume(bench->provider, &box.sandbox,
                                     bench_limits(bench), &err),
                     -ESTALE);
    assert_int_equal(err.code, ESTALE);
    assert_true(strlen(err.msg) > 0);
}

static void a_command_needs_a_running_sandbox(void **state)
{
    struct bench *bench = *state;
    struct command command = {.n = 1, .shell = "true", .shell_size = 4};
    struct bench_box box;
    struct bench_run run;
    struct err err = ERR_INIT;

    need_pause();
    bench_create(bench, &box);
    must(bench, &box, provider_pause);
    bench_run_init(&run);
    assert_true(provider_exec(bench->provider, &box.sandbox, &command,
                              bench_limits(bench), &bench_sink, &run,
                              &err) < 0);
    assert_true(strlen(err.msg) > 0);
    assert_int_equal(run.started, 0);
    bench_run_done(&run);
    bench_destroy(bench, &box);
}

/* An engine that is quick enough may be done before it looks. */
static void create_within(struct bench *bench, const struct limits *limits,
                          int failure)
{
    struct bench_box box;
    struct err err = ERR_INIT;
    int rc;

    bench_name(bench, &box);
    rc = provider_create(bench->provider, &box.sandbox, limits, &err);
    if (rc == 0) {
        assert_int_equal(bench_status(bench, &box), PROVIDER_RUNNING);
    } else {
        assert_int_equal(rc, failure);
        assert_int_equal(err.code, -failure);
        assert_true(strlen(err.msg) > 0);
        assert_null(box.instance.external_id);
    }
    bench_destroy(bench, &box);
}

static void a_fired_token_ends_a_create(void **state)
{
    struct limits limits = {.deadline_ms = DEADLINE_NONE};
    struct cancel fired;
    struct err err = ERR_INIT;

    assert_int_equal(cancel_init(&fired, &err), 0);
    cancel_fire(&fired);
    limits.cancel = &fired;
    create_within(*state, &limits, -ECANCELED);
    cancel_done(&fired);
}

static void a_deadline_that_has_passed_ends_a_create(void **state)
{
    struct bench *bench = *state;
    struct limits limits = {.cancel = &bench->never, .deadline_ms = 1};

    create_within(bench, &limits, -ETIMEDOUT);
}

static void sandboxes_do_not_see_each_other(void **state)
{
    struct bench_box a;
    struct bench_box b;

    bench_create(*state, &a);
    bench_create(*state, &b);
    write_file(*state, &a, "a");
    assert_int_not_equal(bench_sh(*state, &b, "cat file", ""), 0);
    write_file(*state, &b, "b");
    assert_int_equal(bench_sh(*state, &a, "cat file", "a\n"), 0);
    bench_destroy(*state, &a);
    assert_int_equal(bench_sh(*state, &b, "cat file", "b\n"), 0);
    bench_destroy(*state, &b);
}

static void a_sandbox_outlives_a_close_of_the_provider(void **state)
{
    struct bench_box box;

    bench_create(*state, &box);
    write_file(*state, &box, "kept");
    bench_reopen(*state);
    if (bench_status(*state, &box) == PROVIDER_LOST) {
        /* An engine that lives in our memory ends with us. */
        bench_destroy(*state, &box);
        skip();
    }
    must(*state, &box, provider_resume);
    assert_int_equal(bench_sh(*state, &box, "cat file", "kept\n"), 0);
    bench_destroy(*state, &box);
}

static void a_close_ends_commands_as_lost(void **state)
{
    struct bench_box box;
    struct bench_run run;

    bench_create(*state, &box);
    start_long(*state, &box, &run);
    bench_reopen(*state);
    assert_int_equal(run.exited, 1);
    bench_closed(&run);
    assert_int_equal(run.result.end, COMMAND_LOST);
    bench_run_done(&run);
    bench_destroy(*state, &box);
}

static void a_destroy_ends_commands(void **state)
{
    struct bench_box box;
    struct bench_run run;

    bench_create(*state, &box);
    start_long(*state, &box, &run);
    bench_destroy(*state, &box);
    bench_closed(&run);
    assert_true(run.result.end == COMMAND_LOST ||
                run.result.end == COMMAND_KILLED);
    bench_run_done(&run);
}

/* What it says in a fifth of a second, in bytes. */
static size_t says_while_paused(struct bench *bench, struct bench_box *box,
                                struct bench_run *run)
{
    int64_t until = clock_deadline(200);
    size_t before;

    mutex_lock(&run->lock);
    before = run->bytes[COMMAND_STDOUT];
    mutex_unlock(&run->lock);
    while (clock_ms() < until) {
        assert_int_equal(bench_status(bench, box), PROVIDER_PAUSED);
    }
    mutex_lock(&run->lock);
    before = run->bytes[COMMAND_STDOUT] - before;
    mutex_unlock(&run->lock);
    return before;
}

static void memory_is_kept_over_a_pause(void **state)
{
    struct bench_box box;
    struct bench_run run;
    int looks = 0;

    if (!(bench_ops()->flags & PROVIDER_MEMORY_KEPT)) {
        skip();
    }
    bench_create(*state, &box);
    if (!bench_has_shell(*state, &box)) {
        bench_destroy(*state, &box);
        skip();
    }
    (void)bench_script(*state, &box,
                       "i=0; while [ $i -lt 1000 ]; do echo $i; i=$((i + 1)); "
                       "[ -e stop ] && exit 5; sleep 0.01; done",
                       &run);
    bench_says(&run, "3\n");
    must(*state, &box, provider_pause);
    /* What was in the pipe may still come; then nothing more. */
    while (says_while_paused(*state, &box, &run) > 0) {
        assert_true(++looks < 5);
    }
    assert_int_equal(run.exited, 0);
    must(*state, &box, provider_resume);
    assert_int_equal(bench_sh(*state, &box, "echo x > stop", ""), 0);
    bench_closed(&run);
    assert_int_equal(run.result.end, COMMAND_EXITED);
    assert_int_equal(run.result.code, 5);
    bench_run_done(&run);
    bench_destroy(*state, &box);
}

int suite_life(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_created_sandbox_runs_and_has_a_name),
        cmocka_unit_test(a_destroyed_sandbox_is_lost),
        cmocka_unit_test(a_sandbox_may_be_destroyed_twice_or_without_being),
        cmocka_unit_test(a_sandbox_can_be_made_again_and_is_empty),
        cmocka_unit_test(pause_and_resume_may_be_asked_twice),
        cmocka_unit_test(a_paused_sandbox_can_be_destroyed),
        cmocka_unit_test(files_outlive_a_pause),
        cmocka_unit_test(a_lost_sandbox_cannot_be_resumed),
        cmocka_unit_test(a_command_needs_a_running_sandbox),
        cmocka_unit_test(a_fired_token_ends_a_create),
        cmocka_unit_test(a_deadline_that_has_passed_ends_a_create),
        cmocka_unit_test(sandboxes_do_not_see_each_other),
        cmocka_unit_test(a_sandbox_outlives_a_close_of_the_provider),
        cmocka_unit_test(a_close_ends_commands_as_lost),
        cmocka_unit_test(a_destroy_ends_commands),
        cmocka_unit_test(memory_is_kept_over_a_pause),
    };

    return cmocka_run_group_tests_name("life", tests, bench_group_setup,
                                       bench_group_teardown);
}
