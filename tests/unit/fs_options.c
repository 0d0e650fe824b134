/* Options: lists as mount(8) gives them. */
#include "fs/options.h"
#include "tests/cmocka.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>

static void a_backslash_makes_a_comma_part_of_an_option(void **state)
{
    static const struct {
        const char *list;
        const char *dir; /* NULL: refused. */
    } rows[] = {
        {"state=/a", "/a"},          {"rw,state=/a,nodev", "/a"},
        {"state=/a\\,b,rw", "/a,b"}, {"state=/a\\\\b,rw", "/a\\b"},
        {"state=/a b=c", "/a b=c"},  {"rw,,state=/a\\", "/a\\"},
        {"state=/a,b", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char list[32];
        char *argv[] = {(char[]){"sessionfs"}, (char[]){"-o"}, list,
                        (char[]){"/dev"}, NULL};
        struct options options;
        struct err err = ERR_INIT;
        int rc;

        (void)snprintf(list, sizeof(list), "%s", rows[i].list);
        optind = 0; /* getopt() begins anew. */
        rc = options_parse(4, argv, &options, &err);
        assert_int_equal(rc, rows[i].dir ? 0 : -EINVAL);
        if (rows[i].dir) {
            assert_string_equal(options.state, rows[i].dir);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_backslash_makes_a_comma_part_of_an_option),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
