/* What configs name on this machine: whether it is there. */
#include "core/config_check.h"

#include "tests/cmocka.h"
#include "tests/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct config_key keys[] = {
    {.name = "any", .type = CONFIG_PATH},
    {.name = "dir", .type = CONFIG_PATH, .there = CONFIG_DIRECTORY},
    {.name = "program", .type = CONFIG_TEXT, .there = CONFIG_PROGRAM},
    {.name = NULL},
};

/* DIR/{a/,b/tool,c/tool (not executable),dir/tool/} */
static char dir[64];

static const char *below(const char *name)
{
    static char paths[16][128];
    static unsigned next;
    char *path = paths[next++ % 16];

    (void)snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
    return path;
}

static void make(const char *parent, mode_t mode)
{
    char name[32];
    int fd;

    (void)snprintf(name, sizeof(name), "%s/tool", parent);
    assert_int_equal(mkdir(below(parent), 0755), 0);
    fd = mode ? open(below(name), O_CREAT | O_WRONLY | O_CLOEXEC, mode) : -1;
    assert_true(!mode || (fd >= 0 && close(fd) == 0));
}

static int set_up(void **state)
{
    (void)state;
    scratch_make(dir, sizeof(dir));
    make("a", 0);
    make("b", 0755);
    make("c", 0644);
    make("dir", 0);
    assert_int_equal(mkdir(below("dir/tool"), 0755), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    scratch_remove(dir);
    return 0;
}

/* A config with one key. */
static int look(const char *key, const char *value, struct err *err)
{
    char text[512];
    const struct config config = {.provider_config = text};

    (void)snprintf(text, sizeof(text), "{\"%s\":\"%s\"}", key, value);
    err_clear(err);
    return config_there(&config, keys, err);
}

static void what_is_not_there_is_told_with_its_key(void **state)
{
    const struct {
        const char *key;
        const char *value;
        int rc;
        const char *words;
    } cases[] = {
        {"any", "/none", 0, NULL},
        {"dir", dir, 0, NULL},
        {"dir", below("none"), -ENOENT, "/none': No such file or directory"},
        {"dir", below("b/tool"), -ENOTDIR, "/tool': Not a directory"},
        {"program", below("b/tool"), 0, NULL},
        {"program", below("c/tool"), -EACCES, "/tool': Permission denied"},
        {"program", below("dir/tool"), -EACCES, "/tool': Permission denied"},
        {"program", below("a/tool"), -ENOENT, "/tool': No such file"},
        {"program", "b/tool", -EINVAL, "neither an absolute path nor a name"},
        {"program", "", -ENOENT, "'' in PATH: No such file"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        char key[32];

        assert_int_equal(look(cases[i].key, cases[i].value, &err), cases[i].rc);
        if (cases[i].words) {
            (void)snprintf(key, sizeof(key), "key '%s'", cases[i].key);
            assert_non_null(strstr(err.msg, key));
            assert_non_null(strstr(err.msg, cases[i].words));
        }
    }
}

static void names_are_looked_for_as_when_they_are_started(void **state)
{
    static const struct {
        const char *path; /* Each a letter: a directory below ours. */
        int rc;
    } cases[] = {
        {"a", -ENOENT}, {"c", -EACCES}, {"b", 0},      {"ab", 0},
        {"cb", 0},      {"bc", 0},      {"", -ENOENT}, {"ca", -EACCES},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        char path[512] = "/none";

        for (const char *at = cases[i].path; *at; at++) {
            const char one[] = {*at, '\0'};

            (void)strcat(path, ":");
            (void)strcat(path, below(one));
        }
        assert_int_equal(setenv("PATH", path, 1), 0);
        assert_int_equal(look("program", "tool", &err), cases[i].rc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_there_is_told_with_its_key),
        cmocka_unit_test(names_are_looked_for_as_when_they_are_started),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
