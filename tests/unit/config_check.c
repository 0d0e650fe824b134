/* provider_config: types, trust, paths, and the effective one. */
#include "core/config_check.h"

#include "core/path.h"
#include "tests/cmocka.h"
#include "tests/scratch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPERATORS                                                              \
    "is the operator's: it is taken from profiles, or with -o trust=config"
#define INVALID "Invalid provider_config of 'toy': "

static const char *const sizes[] = {"small", "big", NULL};

static const struct config_key toy_keys[] = {
    {.name = "text", .type = CONFIG_TEXT, .fallback = "\"t\"", .text = "T"},
    {.name = "word",
     .type = CONFIG_WORD,
     .trust = CONFIG_UP_TO,
     .fallback = "\"small\"",
     .words = sizes,
     .text = "W"},
    {.name = "flag", .type = CONFIG_BOOL, .fallback = "true", .text = "F"},
    {.name = "memory",
     .type = CONFIG_INT,
     .trust = CONFIG_UP_TO,
     .fallback = "512",
     .min = 1,
     .max = 4096,
     .unit = "bytes",
     .text = "M"},
    {.name = "count", .type = CONFIG_INT, .min = 0, .max = 9, .text = "C"},
    {.name = "list", .type = CONFIG_TEXTS, .text = "L"},
    {.name = "map", .type = CONFIG_MAP, .text = "P"},
    {.name = "base",
     .type = CONFIG_PATH,
     .trust = CONFIG_OPERATOR,
     .text = "B"},
    {.name = "socket",
     .type = CONFIG_PATH,
     .trust = CONFIG_OPERATOR,
     .text = "S"},
    {.name = "argv",
     .type = CONFIG_TEXTS,
     .trust = CONFIG_OPERATOR,
     .fallback = "[\"toy\"]",
     .text = "A"},
    {.name = NULL},
};

/* All defaults, and the keys that have some. */
#define DEFAULTS                                                               \
    "{\"text\":\"t\",\"word\":\"small\",\"flag\":true,\"memory\":512,"         \
    "\"argv\":[\"toy\"]}"

/* DIR/{state,mount,base/{deb,link -> deb,out -> ..},link -> mount} */
struct fixture {
    char dir[64];
    char real[4096];
    char state[128];
    char mount[128];
    char base[128];
    struct config_places places;
};

static struct fixture fixture;

static const char *below(const char *name)
{
    static char paths[8][256];
    static unsigned next;
    char *path = paths[next++ % 8];

    (void)snprintf(path, sizeof(paths[0]), "%.100s/%s", fixture.real, name);
    return path;
}

static int setup(void **state)
{
    (void)state;
    scratch_make(fixture.dir, sizeof(fixture.dir));
    assert_non_null(realpath(fixture.dir, fixture.real));
    (void)snprintf(fixture.state, sizeof(fixture.state), "%s", below("state"));
    (void)snprintf(fixture.mount, sizeof(fixture.mount), "%s", below("mount"));
    (void)snprintf(fixture.base, sizeof(fixture.base), "%s", below("base"));
    assert_int_equal(mkdir(fixture.state, 0700), 0);
    assert_int_equal(mkdir(fixture.mount, 0700), 0);
    assert_int_equal(mkdir(fixture.base, 0700), 0);
    assert_int_equal(mkdir(below("base/deb"), 0700), 0);
    assert_int_equal(mkdir(below("state/sub"), 0700), 0);
    assert_int_equal(symlink("deb", below("base/link")), 0);
    assert_int_equal(symlink("..", below("base/out")), 0);
    assert_int_equal(symlink("/", below("base/root")), 0);
    assert_int_equal(symlink("mount", below("link")), 0);
    assert_int_equal(symlink("b", below("a")), 0);
    assert_int_equal(symlink("a", below("b")), 0);
    assert_int_equal(symlink("base/../base/link/.", below("far")), 0);
    fixture.places = (struct config_places){
        .state = fixture.state,
        .mount = fixture.mount,
    };
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    scratch_remove(fixture.dir);
    return 0;
}

/* Checks a provider_config; `out` gets the effective one. */
static int check(const char *text, bool trusted, const char *current,
                 char out[1024], struct err *err)
{
    const struct config_rules rules = {
        .keys = toy_keys,
        .trusted = trusted,
        .current = current,
        .places = &fixture.places,
    };
    struct config config;
    struct err none = ERR_INIT;
    int rc;

    assert_int_equal(config_default("toy", &config, &none), 0);
    free(config.provider_config);
    config.provider_config = strdup(text);
    rc = config_check(&config, &rules, err);
    assert_int_equal(rc, -err->code);
    if (rc < 0) { /* Nothing changed. */
        assert_string_equal(config.provider_config, text);
    }
    (void)snprintf(out, 1024, "%s", config.provider_config);
    config_done(&config);
    return rc;
}

static void expect(const char *text, bool trusted, const char *current,
                   const char *want)
{
    struct err err = ERR_INIT;
    char out[1024];

    if (check(text, trusted, current, out, &err) < 0) {
        fail_msg("%s: %s", text, err.msg);
    }
    assert_string_equal(out, want);
}

static void refuse(const char *text, bool trusted, const char *current,
                   int code, const char *words)
{
    struct err err = ERR_INIT;
    char out[1024];
    int rc = check(text, trusted, current, out, &err);

    if (rc != -code || strcmp(err.msg, words) != 0) {
        fail_msg("%s: %s (%d), want %s", text, err.msg, rc, words);
    }
}

/* ---- Types ---- */

static void what_is_of_a_wrong_type_is_named(void **state)
{
    static const struct {
        const char *text;
        const char *words;
    } cases[] = {
        {"{\"x\": 1}", INVALID "unknown key 'x'"},
        {"{\"text\": \"a\", \"Text\": \"a\"}", INVALID "unknown key 'Text'"},
        {"{\"text\": 1}", INVALID "'text' must be a string"},
        {"{\"text\": null}", INVALID "'text' must be a string"},
        {"{\"text\": \"a\\u0000\"}", INVALID "'text' must be a string"},
        {"{\"word\": \"medium\"}",
         INVALID "'word' must be one of 'small', 'big'"},
        {"{\"word\": 1}", INVALID "'word' must be one of 'small', 'big'"},
        {"{\"flag\": 1}", INVALID "'flag' must be true or false"},
        {"{\"flag\": \"true\"}", INVALID "'flag' must be true or false"},
        {"{\"memory\": 0}",
         INVALID "'memory' must be an integer from 1 to 4096 bytes"},
        {"{\"memory\": 4097}",
         INVALID "'memory' must be an integer from 1 to 4096 bytes"},
        {"{\"memory\": \"1\"}",
         INVALID "'memory' must be an integer from 1 to 4096 bytes"},
        {"{\"memory\": 1.0}",
         INVALID "'memory' must be an integer from 1 to 4096 bytes"},
        {"{\"count\": 10}", INVALID "'count' must be an integer from 0 to 9"},
        {"{\"list\": \"a\"}", INVALID "'list' must be an array of strings"},
        {"{\"list\": [\"a\", 1]}",
         INVALID "'list' must be an array of strings"},
        {"{\"list\": [\"\\u0000\"]}",
         INVALID "'list' must be an array of strings"},
        {"{\"map\": []}", INVALID "'map' must be an object of strings"},
        {"{\"map\": {\"a\": 1}}", INVALID "'map' must be an object of strings"},
        {"{\"socket\": \"run/x\"}",
         INVALID "'socket' must be an absolute path"},
        {"{\"socket\": \"\"}", INVALID "'socket' must be an absolute path"},
        {"{\"socket\": [\"/x\"]}", INVALID "'socket' must be an absolute path"},
        {"{\"base\": \"deb\"}", INVALID "'base' must be an absolute path"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        refuse(cases[i].text, true, NULL, EINVAL, cases[i].words);
        refuse(cases[i].text, false, NULL, EINVAL, cases[i].words);
    }
}

static void defaults_are_filled_in(void **state)
{
    (void)state;
    expect("{}", false, NULL, DEFAULTS);
    expect("{\"memory\": 1, \"map\": {\"a\": \"b\"}, \"count\": 0}", false,
           NULL,
           "{\"text\":\"t\",\"word\":\"small\",\"flag\":true,\"memory\":1,"
           "\"count\":0,\"map\":{\"a\":\"b\"},\"argv\":[\"toy\"]}");
}

static void what_was_recorded_is_filled_up_and_not_checked(void **state)
{
    struct config config;
    struct err err = ERR_INIT;

    (void)state;
    assert_int_equal(config_default("toy", &config, &err), 0);
    free(config.provider_config);
    config.provider_config = strdup("{\"old\":1,\"memory\":9999}");
    assert_int_equal(config_fill(&config, toy_keys, &err), 0);
    assert_string_equal(config.provider_config,
                        "{\"old\":1,\"memory\":9999,\"text\":\"t\","
                        "\"word\":\"small\",\"flag\":true,"
                        "\"argv\":[\"toy\"]}");
    config_done(&config);
}

/* ---- Trust ---- */

static void what_reaches_the_host_is_the_operators(void **state)
{
    static const struct {
        const char *text;
        const char *key;
    } cases[] = {
        {"{\"base\": \"/usr\"}", "'base' " OPERATORS},
        {"{\"socket\": \"/run/x\"}", "'socket' " OPERATORS},
        {"{\"argv\": []}", "'argv' " OPERATORS},
        {"{\"argv\": [\"toy\", \"-v\"]}", "'argv' " OPERATORS},
        {"{\"memory\": 513}",
         "'memory' beyond its default, 512 bytes, " OPERATORS},
        {"{\"word\": \"big\"}",
         "'word' beyond its default, \"small\", " OPERATORS},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        char words[256];
        char out[1024];

        (void)snprintf(words, sizeof(words), "provider_config key %s",
                       cases[i].key);
        refuse(cases[i].text, false, NULL, EPERM, words);
        refuse(cases[i].text, false, DEFAULTS, EPERM, words);
        assert_int_equal(check(cases[i].text, true, NULL, out, &err), 0);
    }
}

static void up_to_the_default_anyone_may_go(void **state)
{
    (void)state;
    expect("{\"memory\": 512, \"word\": \"small\"}", false, NULL, DEFAULTS);
    expect("{\"memory\": 511}", false, NULL,
           "{\"text\":\"t\",\"word\":\"small\",\"flag\":true,\"memory\":511,"
           "\"argv\":[\"toy\"]}");
}

/* What a profile has given survives an edit of something else. */
static void what_is_in_effect_may_be_said_again(void **state)
{
    static const char current[] =
        "{\"text\":\"t\",\"word\":\"big\",\"flag\":true,\"memory\":4096,"
        "\"socket\":\"/run/x\",\"argv\":[\"a\",\"b\"]}";
    static const char edited[] =
        "{\"text\":\"u\",\"word\":\"big\",\"flag\":true,\"memory\":4096,"
        "\"socket\":\"/run/x\",\"argv\":[\"a\",\"b\"]}";

    (void)state;
    expect(edited, false, current, edited);
    refuse("{\"memory\": 4095}", false, current, EPERM,
           "provider_config key 'memory' beyond its default, 512 "
           "bytes, " OPERATORS);
    refuse("{\"socket\": \"/run/y\"}", false, current, EPERM,
           "provider_config key 'socket' " OPERATORS);
    refuse("{\"argv\": [\"b\", \"a\"]}", false, current, EPERM,
           "provider_config key 'argv' " OPERATORS);
    /* Giving up what a profile has given is no reach. */
    expect("{}", false, current, DEFAULTS);
}

/* ---- Paths ---- */

static void check_path(const char *key, const char *path, bool trusted,
                       int code, const char *words)
{
    char text[512];
    char full[512];

    (void)snprintf(text, sizeof(text), "{\"%s\": \"%s\"}", key, path);
    (void)snprintf(full, sizeof(full), "provider_config key '%s'%s", key,
                   words);
    refuse(text, trusted, NULL, code, full);
}

static void a_path_that_touches_mount_or_state_is_refused(void **state)
{
    static const struct {
        const char *path; /* Below the directory. */
        const char *words;
        const char *told; /* The path in them. */
    } cases[] = {
        {"mount", "lies in the mount", "mount"},
        {"mount/sessions/a", "lies in the mount", "mount/sessions/a"},
        {"link", "lies in the mount", "link"},
        {"link/x", "lies in the mount", "link/x"},
        {"base/../link/x/..", "lies in the mount", "base/../link/x/.."},
        {"state", "overlaps the state directory", "state"},
        {"state/sub/new", "overlaps the state directory", "state/sub/new"},
        {"base/../state", "overlaps the state directory", "state"},
        {"", "overlaps the state directory", NULL},
        {"base/out", "overlaps the state directory", NULL},
        {"base/root", "overlaps the state directory", "/"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *told = cases[i].told ? cases[i].told : "";
        char words[512];

        (void)snprintf(words, sizeof(words), ": '%s' %s",
                       *told == '/' ? "/"
                       : *told      ? below(told)
                                    : fixture.real,
                       cases[i].words);
        check_path("socket", below(cases[i].path), true, EINVAL, words);
        check_path("base", below(cases[i].path), true, EINVAL, words);
    }
}

static void a_path_is_kept_without_links(void **state)
{
    static const struct {
        const char *path;
        const char *real;
    } cases[] = {
        {"base/deb", "base/deb"},     {"base/link", "base/deb"},
        {"far", "base/deb"},          {"far/new/x", "base/deb/new/x"},
        {"base//deb/./..//", "base"}, {"mounted", "mounted"},
        {"stat/../state2", "state2"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        char *path = NULL;

        assert_int_equal(
            path_resolve(below(cases[i].path), fixture.mount, &path, &err), 0);
        assert_string_equal(path, below(cases[i].real));
        free(path);
    }
}

static void a_path_that_leads_nowhere_is_refused(void **state)
{
    struct err err = ERR_INIT;
    char *path = NULL;
    char *endless = malloc(8192);

    (void)state;
    assert_non_null(endless);
    assert_int_equal(path_resolve(below("a"), NULL, &path, &err), -ELOOP);
    memset(endless, 'x', 8191);
    endless[0] = '/';
    endless[8191] = '\0';
    assert_int_equal(path_resolve(endless, NULL, &path, &err), -ENAMETOOLONG);
    for (int i = 0; i < 8191; i += 2) {
        memcpy(endless + i, "/.", i + 2 < 8191 ? 2 : 1);
    }
    assert_int_equal(path_resolve(endless, NULL, &path, &err), -ENAMETOOLONG);
    assert_null(path);
    free(endless);
}

/* ---- Below -o base ---- */

static void a_base_below_the_operators_is_anyones(void **state)
{
    static const char *const names[] = {
        "deb", "link", "./deb", "deb/../deb/", "link/.",
    };
    char want[256];
    char text[256];

    (void)state;
    (void)snprintf(want, sizeof(want),
                   "{\"text\":\"t\",\"word\":\"small\",\"flag\":true,"
                   "\"memory\":512,\"base\":\"%s\",\"argv\":[\"toy\"]}",
                   below("base/deb"));
    fixture.places.base = fixture.base;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        (void)snprintf(text, sizeof(text), "{\"base\": \"%s\"}", names[i]);
        expect(text, false, NULL, want);
        expect(text, true, NULL, want);
    }
    (void)snprintf(text, sizeof(text), "{\"base\": \"%s\"}",
                   below("base/link"));
    expect(text, false, NULL, want);
    expect(text, true, NULL, want);
}

static void a_base_elsewhere_stays_the_operators(void **state)
{
    static const struct {
        const char *name;
        int code;
    } cases[] = {
        {"..", EPERM},        {"../base/deb", EPERM}, {"out", EPERM},
        {"out/base", EPERM},  {"root/usr", EPERM},    {"/usr", EPERM},
        {".", EPERM},         {"deb/..", EPERM},      {"none", ENOENT},
        {"deb/none", ENOENT},
    };
    struct err err = ERR_INIT;
    char text[256];
    char out[1024];

    (void)state;
    fixture.places.base = fixture.base;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        (void)snprintf(text, sizeof(text), "{\"base\": \"%s\"}", cases[i].name);
        assert_int_equal(check(text, false, NULL, out, &err), -cases[i].code);
        assert_ptr_equal(strstr(err.msg, "provider_config key 'base': "),
                         err.msg);
        err_clear(&err);
    }
    /* No other key, and no other type of key. */
    check_path("socket", below("base/deb"), false, EPERM, " " OPERATORS);
    /* The operator may name any. */
    assert_int_equal(check("{\"base\": \"/usr\"}", true, NULL, out, &err), 0);
}

static void one_path_lies_in_another_by_whole_names(void **state)
{
    static const struct {
        const char *path;
        const char *dir;
        bool lies;
    } cases[] = {
        {"/a", "/a", true},    {"/a/b", "/a", true}, {"/ab", "/a", false},
        {"/a", "/a/b", false}, {"/a", "/", true},    {"/", "/", true},
        {"/", "/a", false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(path_begins_with(cases[i].path, cases[i].dir),
                         cases[i].lies);
        assert_int_equal(path_lies_in(cases[i].path, cases[i].dir),
                         cases[i].lies);
    }
}

#define CHECK_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TEST(what_is_of_a_wrong_type_is_named),
        CHECK_TEST(defaults_are_filled_in),
        CHECK_TEST(what_was_recorded_is_filled_up_and_not_checked),
        CHECK_TEST(what_reaches_the_host_is_the_operators),
        CHECK_TEST(up_to_the_default_anyone_may_go),
        CHECK_TEST(what_is_in_effect_may_be_said_again),
        CHECK_TEST(a_path_that_touches_mount_or_state_is_refused),
        CHECK_TEST(a_path_is_kept_without_links),
        CHECK_TEST(a_path_that_leads_nowhere_is_refused),
        CHECK_TEST(a_base_below_the_operators_is_anyones),
        CHECK_TEST(a_base_elsewhere_stays_the_operators),
        CHECK_TEST(one_path_lies_in_another_by_whole_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
