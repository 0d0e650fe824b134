/* Options: lists as mount(8) gives them. */
#include "fs/options.h"
#include "tests/cmocka.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* Parses with a file of options that holds `text`; its mode is `mode`. */
static int parse_with_file(const char *text, mode_t mode, const char *list,
                           struct options *out, struct err *err)
{
    char dir[] = "/tmp/options.XXXXXX";
    char path[64];
    char *argv[] = {
        (char[]){"sessionfs"},   (char[]){"--config"}, path, (char[]){"-o"},
        (char *)(uintptr_t)list, (char[]){"/dev"},     NULL};
    FILE *file;
    int rc;

    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/conf", dir);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, mode), 0);
    optind = 0;
    rc = options_parse(6, argv, out, err);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    return rc;
}

static void the_command_line_wins_over_a_file_of_options(void **state)
{
    static const struct {
        const char *text;
        const char *list;
        const char *dir;
        const char *provider;
        bool read_only;
    } rows[] = {
        {"", "state=/a", "/a", "local", false},
        {"# state=/c\n\n  \n", "state=/a", "/a", "local", false},
        {"state=/c,d e\n", "rw", "/c,d e", "local", false},
        {"  state=/c \r\nro", "rw", "/c", "local", true},
        {"state=/c\nprovider=mem\n", "state=/a", "/a", "mem", false},
        {"state=/c\n_netdev\nprovider=mem", "provider=x", "/c", "x", false},
        {"state=/c\nstate=/d\n", "rw", "/d", "local", false},
        {"state=/c#d\n", "rw", "/c#d", "local", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct options options;
        struct err err = ERR_INIT;

        assert_int_equal(
            parse_with_file(rows[i].text, 0644, rows[i].list, &options, &err),
            0);
        assert_string_equal(options.state, rows[i].dir);
        assert_string_equal(options.provider, rows[i].provider);
        assert_int_equal(options.read_only, rows[i].read_only);
    }
}

static void a_bad_file_of_options_is_refused_with_its_line(void **state)
{
    static const struct {
        const char *text;
        mode_t mode;
        int rc;
        const char *words; /* Behind the file's path. */
    } rows[] = {
        {"colour=red\n", 0600, -EINVAL, ":1: unknown option 'colour'"},
        {"ro\n\nstate\n", 0600, -EINVAL, ":3: option 'state' needs a value"},
        {"#\nro=1", 0600, -EINVAL, ":2: option 'ro' takes no value"},
        {"[mount]\n", 0600, -EINVAL, ":1: unknown option '[mount]'"},
        {"ro\n", 0620, -EPERM, ": others may write it"},
        {"ro\n", 0602, -EPERM, ": others may write it"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct options options;
        struct err err = ERR_INIT;
        const char *words;

        assert_int_equal(parse_with_file(rows[i].text, rows[i].mode, "state=/a",
                                         &options, &err),
                         rows[i].rc);
        words = strstr(err.msg, "/conf");
        assert_non_null(words);
        assert_string_equal(words + strlen("/conf"), rows[i].words);
    }
}

static void a_file_of_options_that_is_named_must_be_there(void **state)
{
    char *argv[] = {(char[]){"sessionfs"}, (char[]){"--config"},
                    (char[]){"/nowhere/conf"}, (char[]){"/dev"}, NULL};
    struct options options;
    struct err err = ERR_INIT;

    (void)state;
    optind = 0;
    assert_int_equal(options_parse(4, argv, &options, &err), -ENOENT);
    assert_string_equal(err.msg, "/nowhere/conf: No such file or directory");
}

static void the_state_and_the_mount_point_lie_apart(void **state)
{
    static const struct {
        const char *state; /* Below a directory that has `m` and `m/n`. */
        const char *mount_point;
        const char *words; /* NULL: good. */
    } rows[] = {
        {"/s", "/m", NULL},
        {"/m1", "/m", NULL},
        {"/m/n/../../s", "/m", NULL},
        {"/m", "/m", "the state directory lies in the mount point"},
        {"/m/s", "/m", "the state directory lies in the mount point"},
        {"/m/n/s/t", "/m", "the state directory lies in the mount point"},
        {"", "/m", "the mount point lies in the state directory"},
        {"/m/.", "/m/n", "the mount point lies in the state directory"},
    };
    char dir[] = "/tmp/options.XXXXXX";
    char path[64];

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/m", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    (void)snprintf(path, sizeof(path), "%s/m/n", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char list[64];
        char *argv[] = {(char[]){"sessionfs"}, (char[]){"-o"}, list, path,
                        NULL};
        struct options options;
        struct err err = ERR_INIT;
        int rc;

        (void)snprintf(list, sizeof(list), "state=%s%s", dir, rows[i].state);
        (void)snprintf(path, sizeof(path), "%s%s", dir, rows[i].mount_point);
        optind = 0;
        rc = options_parse(4, argv, &options, &err);
        assert_int_equal(rc, rows[i].words ? -EINVAL : 0);
        assert_string_equal(err.msg, rows[i].words ? rows[i].words : "");
    }
    (void)snprintf(path, sizeof(path), "%s/m/n", dir);
    assert_int_equal(rmdir(path), 0);
    (void)snprintf(path, sizeof(path), "%s/m", dir);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void words_and_numbers_are_those_of_the_table(void **state)
{
    static const struct {
        const char *list;
        const char *words; /* NULL: good. */
    } rows[] = {
        {"links=safe,on_unmount=keep", NULL},
        {"links=Raw", "option 'links' cannot be 'Raw', but safe|raw"},
        {"links=", "option 'links' needs a value"},
        {"links", "option 'links' needs a value"},
        {"events_keep=1", NULL},
        {"events_keep=10000000", NULL},
        {"events_keep=0",
         "option 'events_keep' is a number from 1 to 10000000"},
        {"events_keep=-1",
         "option 'events_keep' is a number from 1 to 10000000"},
        {"events_keep=10000001",
         "option 'events_keep' is a number from 1 to 10000000"},
        {"events_keep=99999999999999999999999",
         "option 'events_keep' is a number from 1 to 10000000"},
        {"unmount_timeout=1s",
         "option 'unmount_timeout' is a number from 1 to 3600"},
        {"unmount_timeout= 1",
         "option 'unmount_timeout' is a number from 1 to 3600"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char list[64];
        char *argv[] = {(char[]){"sessionfs"}, (char[]){"-o"}, list,
                        (char[]){"/dev"}, NULL};
        struct options options;
        struct err err = ERR_INIT;

        (void)snprintf(list, sizeof(list), "%s", rows[i].list);
        optind = 0;
        assert_int_equal(options_parse(4, argv, &options, &err),
                         rows[i].words ? -EINVAL : 0);
        assert_string_equal(err.msg, rows[i].words ? rows[i].words : "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_backslash_makes_a_comma_part_of_an_option),
        cmocka_unit_test(
            what_mount_adds_is_taken_and_what_people_ask_for_refused),
        cmocka_unit_test(words_and_numbers_are_those_of_the_table),
        cmocka_unit_test(the_command_line_wins_over_a_file_of_options),
        cmocka_unit_test(a_bad_file_of_options_is_refused_with_its_line),
        cmocka_unit_test(the_state_and_the_mount_point_lie_apart),
        cmocka_unit_test(a_file_of_options_that_is_named_must_be_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
