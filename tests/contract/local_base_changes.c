/* What a session over a base is said to have changed. */
#include "core/clock.h"
#include "tests/cmocka.h"
#include "tests/contract/local_base.h"

#include <string.h>

static const char files[] =
    "mkdir -p d/e empty && echo f >d/e/f && echo g >d/g && echo a >a && "
    "echo b >b && chmod 755 b && ln -s a l && mkfifo p && echo h >h && "
    "ln h h2";

static const struct {
    const char *name;
    const char *script;
    const char *expect;
} cases[] = {
    {"nothing", "cat a d/e/f; ls -lR", ""},
    {"touched", "touch a d/e/f; chmod 755 b; ln a x; rm x", ""},
    {"written as it was", "echo a >a", ""},
    {"written", "echo x >a; echo y >>d/e/f", "M a\nM d/e/f\n"},
    {"of the same length and time",
     "touch -r a t; echo X >a; touch -r t a; "
     "rm t",
     "M a\n"},
    {"mode", "chmod 700 a d", "M a\nM d\n"},
    {"added", "echo x >x; mkdir -p n/m; echo z >n/m/z; ln -s / r",
     "A n\nA n/m\nA n/m/z\nA r\nA x\n"},
    {"added and taken away", "echo x >x; mkdir n; rm -r x n", ""},
    {"deleted", "rm a d/e/f l p", "D a\nD d/e/f\nD l\nD p\n"},
    {"deleted with all", "rm -r d empty", "D d\nD empty\n"},
    {"renamed", "mv a z", "D a\nA z\n"},
    {"renamed over another", "mv a b", "D a\nM b\n"},
    {"directory renamed", "mv d z", "D d\nA z\nA z/e\nA z/e/f\nA z/g\n"},
    {"directory renamed deep", "mv d/e e; echo x >e/x",
     "D d/e\nA e\nA e/f\nA e/x\n"},
    {"directories swapped", "mv d t; mv empty d; mv t empty",
     "D d/e\nD d/g\nA empty/e\nA empty/e/f\nA empty/g\n"},
    {"made anew", "rm -r d; mkdir d; echo g >d/g; echo n >d/n",
     "D d/e\nA d/n\n"},
    {"made anew with the same",
     "rm -r d; mkdir -p d/e; echo f >d/e/f; echo G "
     ">d/g",
     "M d/g\n"},
    {"file to directory", "rm a; mkdir a; echo x >a/x", "D a\nA a\nA a/x\n"},
    {"directory to file", "rm -r d; echo x >d", "D d\nA d\n"},
    {"directory to link", "rm -r d; ln -s empty d", "D d\nA d\n"},
    {"file to link", "ln -sf a b", "M b\n"},
    {"link", "ln -sfn b l", "M l\n"},
    {"to FIFO and back", "rm a p; mkfifo a; echo >p", "M a\nM p\n"},
    {"one of two names", "echo x >h", "M h\n"},
    {"sorted", "touch B _ Z z 0; mkdir y; touch y/1 y-",
     "A 0\nA B\nA Z\nA _\nA y\nA y/1\nA y-\nA z\n"},
};

static void each_change_is_told(void **state)
{
    struct bench *bench = *state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct base base;
        struct bench_box box;

        base_make(bench, &base, files);
        base_create(bench, &box, &base);
        print_message("%s\n", cases[i].name);
        assert_int_equal(bench_sh(bench, &box, cases[i].script, NULL), 0);
        base_changes(bench, &box, cases[i].expect);
        bench_destroy(bench, &box);
        base_remove(&base);
    }
}

static void without_a_base_everything_is_added(void **state)
{
    struct bench *bench = *state;
    struct bench_box box;

    bench_create(bench, &box);
    base_changes(bench, &box, "");
    assert_int_equal(
        bench_sh(bench, &box, "mkdir d; echo >d/f; echo >g; rm g", ""), 0);
    base_changes(bench, &box, "A d\nA d/f\n");
    bench_destroy(bench, &box);
}

static void it_is_told_while_paused_and_after_a_restart(void **state)
{
    struct bench *bench = *state;
    struct base base;
    struct bench_box box;
    struct err err = ERR_INIT;

    base_make(bench, &base, files);
    base_create(bench, &box, &base);
    assert_int_equal(bench_sh(bench, &box, "mv d z; rm a", ""), 0);
    assert_int_equal(
        provider_pause(bench->provider, &box.sandbox, &bench->limits, &err), 0);
    base_changes(bench, &box, "D a\nD d\nA z\nA z/e\nA z/e/f\nA z/g\n");
    bench_reopen(bench);
    base_changes(bench, &box, "D a\nD d\nA z\nA z/e\nA z/e/f\nA z/g\n");
    bench_destroy(bench, &box);
    base_remove(&base);
}

static int count(void *arg, char kind, const char *path)
{
    size_t *longest = arg;
    size_t len = strlen(path);

    assert_int_equal(kind, 'A');
    *longest = len > *longest ? len : *longest;
    return 0;
}

/* Deeper than a path can be long. */
static void a_deep_tree_is_told_whole(void **state)
{
    static const struct provider_span span = {.from = 0, .to = 0};
    struct bench *bench = *state;
    struct bench_box box;
    struct err err = ERR_INIT;
    size_t longest = 0;

    bench_create(bench, &box);
    assert_int_equal(bench_sh(bench, &box,
                              "python3 -c \"import os\nfor i in "
                              "range(2000):\n os.mkdir('dd')\n "
                              "os.chdir('dd')\"",
                              NULL),
                     0);
    bench->limits.deadline_ms = clock_deadline(60000);
    assert_int_equal(provider_changes(bench->provider, &box.sandbox, &span,
                                      &bench->limits, count, &longest, &err),
                     0);
    assert_int_equal(longest, 2000 * 3 - 1);
    bench_destroy(bench, &box);
}

static void a_strange_name_is_told_as_it_is(void **state)
{
    struct bench *bench = *state;
    struct bench_box box;

    bench_create(bench, &box);
    assert_int_equal(bench_sh(bench, &box,
                              "printf x >\"$(printf 'a\\tb\\033\\377')\"; "
                              ": >'\n'",
                              ""),
                     0);
    base_changes(bench, &box, "A \n\nA a\tb\033\377\n");
    bench_destroy(bench, &box);
}

static void another_state_is_not_there(void **state)
{
    static const struct provider_span span = {.from = 0, .to = 1};
    struct bench *bench = *state;
    struct bench_box box;
    struct err err = ERR_INIT;
    size_t longest = 0;

    bench_create(bench, &box);
    assert_int_equal(provider_changes(bench->provider, &box.sandbox, &span,
                                      &bench->limits, count, &longest, &err),
                     -ENOENT);
    bench_destroy(bench, &box);
}

int suite_base_changes(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_change_is_told),
        cmocka_unit_test(without_a_base_everything_is_added),
        cmocka_unit_test(it_is_told_while_paused_and_after_a_restart),
        cmocka_unit_test(a_deep_tree_is_told_whole),
        cmocka_unit_test(a_strange_name_is_told_as_it_is),
        cmocka_unit_test(another_state_is_not_there),
    };

    return cmocka_run_group_tests_name("changes", tests, bench_group_setup,
                                       bench_group_teardown);
}
