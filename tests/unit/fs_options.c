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

static void
what_mount_adds_is_taken_and_what_people_ask_for_refused(void **state)
{
    static const struct {
        const char *source; /* NULL: none is given. */
        const char *list;
        bool good;
    } rows[] = {
        {"none", "rw,dev,suid", true},
        {"none", "dev,suid", true},
        {"none", "rw,noexec,nosuid,nodev", true},
        {"sessionfs", "ro,noauto,nofail,_netdev,x-systemd.automount", true},
        {"a,b", "rw,user,relatime,X-mount.mkdir=0700", true},
        {"none", "suid,dev,suid", false},
        {"none", "dev,dev,suid", false},
        {"none", "remount,ro", false},
        {NULL, "suid", false},
        {NULL, "rw,dev", false},
        {NULL, "rw,nosuid,nodev", true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char list[64];
        char source[16];
        char *argv[] = {(char[]){"sessionfs"}, (char[]){"-o"}, list,
                        (char[]){"/dev"},      NULL,           NULL};
        struct options options;
        struct err err = ERR_INIT;
        int rc;

        (void)snprintf(list, sizeof(list), "%s", rows[i].list);
        if (rows[i].source) {
            (void)snprintf(source, sizeof(source), "%s", rows[i].source);
            argv[4] = argv[3];
            argv[3] = source;
        }
        optind = 0;
        rc = options_parse(rows[i].source ? 5 : 4, argv, &options, &err);
        assert_int_equal(rc, rows[i].good ? 0 : -EINVAL);
        if (rows[i].good) {
            assert_string_equal(options.source,
                                rows[i].source ? rows[i].source : "sessionfs");
            assert_string_equal(options.mount_point, "/dev");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_backslash_makes_a_comma_part_of_an_option),
        cmocka_unit_test(
            what_mount_adds_is_taken_and_what_people_ask_for_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
