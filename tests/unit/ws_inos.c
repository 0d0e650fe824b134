/* Inode numbers that are shown in place of others: no two are the same. */
#include "core/ws_inos.h"
#include "core/compiler.h"
#include "tests/cmocka.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    NUMBERS = 200,
    STEPS = 2000,
    MANY = 300000, /* More than are kept. */
};

static void expect_all_differ(struct ws_inos *inos, uint64_t count)
{
    bool *met = calloc(count, sizeof(*met));

    assert_non_null(met);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t shown = ws_inos_shown(inos, i);

        assert_true(shown < count && !met[shown]);
        met[shown] = true;
    }
    free(met);
}

static void what_is_kept_is_shown(void **state)
{
    struct ws_inos *inos = NULL;

    (void)state;
    assert_int_equal(ws_inos_shown(inos, 7), 7);
    ws_inos_keep(&inos, 7, 7);
    ws_inos_keep(&inos, 7, 5);
    assert_int_equal(ws_inos_shown(inos, 7), 5);
    assert_int_equal(ws_inos_shown(inos, 5), 7);
    /* It lies elsewhere once more. */
    ws_inos_keep(&inos, 9, 5);
    assert_int_equal(ws_inos_shown(inos, 9), 5);
    assert_true(ws_inos_shown(inos, 7) != 5);
    ws_inos_keep(&inos, 5, 5);
    assert_int_equal(ws_inos_shown(inos, 5), 5);
    ws_inos_free(inos);
}

static void no_two_are_shown_by_one(void **state)
{
    struct ws_inos *inos = NULL;

    (void)state;
    srandom(1);
    for (unsigned i = 0; i < STEPS; i++) {
        uint64_t theirs = (uint64_t)random() % NUMBERS;
        uint64_t shown = (uint64_t)random() % NUMBERS;

        ws_inos_keep(&inos, theirs, shown);
        assert_int_equal(ws_inos_shown(inos, theirs), shown);
        expect_all_differ(inos, NUMBERS);
    }
    ws_inos_free(inos);
}

static void nor_where_the_oldest_are_forgotten(void **state)
{
    struct ws_inos *inos = NULL;

    (void)state;
    for (uint64_t i = 1; i < MANY; i++) {
        ws_inos_keep(&inos, i, i - 1);
    }
    assert_int_equal(ws_inos_shown(inos, MANY - 1), MANY - 2);
    assert_int_equal(ws_inos_shown(inos, 1), 1); /* As it is. */
    expect_all_differ(inos, MANY);
    ws_inos_free(inos);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_kept_is_shown),
        cmocka_unit_test(no_two_are_shown_by_one),
        cmocka_unit_test(nor_where_the_oldest_are_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
