/* Configs: what is read of them, with which words, and written. */
#include "core/config.h"

#include "core/cleanup.h"
#include "core/json.h"
#include "tests/cmocka.h"

#include <errno.h>
#include <string.h>

#define INVALID "Invalid session_sandbox config: "

/* ---- Bad ones ---- */

struct bad {
    const char *text;
    const char *words; /* All of them. */
};

static const struct bad bad[] = {
    {"[]", "session_sandbox config must be an object"},
    {"[{\"provider\": \"mem\"}]", "session_sandbox config must be an object"},
    {"5", "session_sandbox config must be an object"},
    {"\"mem\"", "session_sandbox config must be an object"},
    {"true", "session_sandbox config must be an object"},
    /* Types first, whatever else is wrong. */
    {"{\"provider\": 5}", INVALID "'provider' must be a string"},
    {"{\"provider\": null}", INVALID "'provider' must be a string"},
    {"{\"provider\": [\"mem\"]}", INVALID "'provider' must be a string"},
    {"{\"provider\": \"a\\u0000b\"}",
     INVALID "'provider' must be free of NUL bytes"},
    {"{\"provider\": \"\", \"auto_start\": 1}",
     INVALID "'auto_start' must be a boolean"},
    {"{\"idle_pause_enabled\": \"no\"}",
     INVALID "'idle_pause_enabled' must be a boolean"},
    {"{\"provider\": \"\", \"idle_pause_after_seconds\": \"1\"}",
     INVALID "'idle_pause_after_seconds' must be an integer"},
    {"{\"provider\": \"m\", \"idle_pause_after_seconds\": 1.5}",
     INVALID "'idle_pause_after_seconds' must be an integer"},
    {"{\"provider\": \"m\", \"exec_timeout_ms\": -1}",
     INVALID "'exec_timeout_ms' must be from 0 to 2147483647"},
    {"{\"provider\": \"m\", \"exec_timeout_ms\": null}",
     INVALID "'exec_timeout_ms' must be an integer"},
    {"{\"provider\": \"m\", \"create_timeout_ms\": 0}",
     INVALID "'create_timeout_ms' must be from 1 to 86400000"},
    {"{\"provider\": \"m\", \"call_timeout_ms\": 86400001}",
     INVALID "'call_timeout_ms' must be from 1 to 86400000"},
    {"{\"provider\": \"m\", \"wake\": \"never\"}",
     INVALID "'wake' must be 'access' or 'exec'"},
    {"{\"provider\": \"m\", \"wake\": 1}",
     INVALID "'wake' must be 'access' or 'exec'"},
    {"{\"provider\": \"m\", \"wake\": \"exec\\u0000\"}",
     INVALID "'wake' must be 'access' or 'exec'"},
    {"{\"provider\": \"m\", \"idle_pause_after_seconds\": 2147483648}",
     INVALID "'idle_pause_after_seconds' must be from 1 to 2147483647"},
    {"{\"provider\": \"m\", \"init\": []}", INVALID "'init' must be an object"},
    {"{\"provider\": \"m\", \"init\": {\"commands\": \"ls\"}}",
     INVALID "'init.commands' must be an array of strings"},
    {"{\"provider\": \"m\", \"init\": {\"commands\": [\"ls\", 1]}}",
     INVALID "'init.commands' must be an array of strings"},
    {"{\"provider\": \"m\", \"init\": {\"commands\": [\"a\\u0000\"]}}",
     INVALID "'init.commands' must be free of NUL bytes"},
    {"{\"provider\": \"m\", \"provider_config\": []}",
     INVALID "'provider_config' must be an object"},
    {"{\"provider\": \"m\", \"provider_config\": \"{}\"}",
     INVALID "'provider_config' must be an object"},
    /* Then the provider, then the pause. */
    {"{}", "session_sandbox config requires non-empty 'provider'"},
    {"{\"auto_start\": true}",
     "session_sandbox config requires non-empty 'provider'"},
    {"{\"provider\": \"\"}",
     "session_sandbox config requires non-empty 'provider'"},
    {"{\"provider\": \" \\t\\r\\n\"}",
     "session_sandbox config requires non-empty 'provider'"},
    {"{\"provider\": \" \", \"idle_pause_after_seconds\": 0}",
     "session_sandbox config requires non-empty 'provider'"},
    {"{\"provider\": \"m\", \"idle_pause_after_seconds\": 0}",
     "session_sandbox config requires idle_pause_after_seconds >= 1"},
    {"{\"provider\": \"m\", \"idle_pause_after_seconds\": -7}",
     "session_sandbox config requires idle_pause_after_seconds >= 1"},
};

static void what_is_wrong_has_its_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct config config = {.provider = NULL};
        struct err err = ERR_INIT;

        assert_int_equal(config_parse(bad[i].text, &config, &err), -EINVAL);
        assert_string_equal(err.msg, bad[i].words);
        assert_null(config.provider);
    }
}

/* What no JSON is: where, and what the parser says. */
static void what_is_no_json_is_told_with_its_place(void **state)
{
    static const struct {
        const char *text;
        size_t size;
        const char *part; /* Of the words. */
    } cases[] = {
        {"", 0, "line 1, "},
        {"{", 1, "line 1, column 1: "},
        {"{\"provider\": \"m\",\n x}", 20, "line 2, column 2: "},
        {"{\"provider\": \"m\"} x", 19, "end of file expected"},
        {"{\"provider\": \"m\", \"provider\": \"n\"}", 35, "duplicate"},
        {"{\"provider\": \"\\ud800\"}", 22, "\\uD800"},
        {"{\"provider\": \"\xff\"}", 16, "line 1, "},
        {"{\"a\": 1e999, \"provider\": \"m\"}", 29, "line 1, "},
        {"{\"a\\u0000b\": 1}", 15, "line 1, "},
        {"{\"a\": \"\0\"}", 10, "line 1, "},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        struct js *js = NULL;

        assert_int_equal(config_json(cases[i].text, cases[i].size, &js, &err),
                         -EINVAL);
        assert_ptr_equal(strstr(err.msg, INVALID), err.msg);
        if (!strstr(err.msg, cases[i].part)) {
            fail_msg("'%s' has no '%s'", err.msg, cases[i].part);
        }
        assert_null(js);
    }
}

static void what_is_deep_or_long_is_refused(void **state)
{
    const size_t size = (size_t)CONFIG_TEXT_MAX + 1;
    char *text = malloc(size);
    struct err err = ERR_INIT;
    struct js *js = NULL;

    (void)state;
    assert_non_null(text);
    memset(text, ' ', size);
    assert_int_equal(config_json(text, size, &js, &err), -EFBIG);
    memset(text, '[', size);
    assert_int_equal(config_json(text, size - 1, &js, &err), -EINVAL);
    assert_null(js);
    free(text);
}

/* ---- Good ones ---- */

static void a_config_that_says_little_has_the_defaults(void **state)
{
    struct config config;
    struct err err = ERR_INIT;

    (void)state;
    assert_int_equal(
        config_parse("{\"provider\": \"\\t mem\\n \"}", &config, &err), 0);
    assert_string_equal(config.provider, "mem");
    assert_string_equal(config.provider_config, "{}");
    assert_true(config.auto_start);
    assert_true(config.idle_pause_enabled);
    assert_int_equal(config.idle_pause_after_seconds, 180);
    assert_int_equal(config.wake, CONFIG_WAKE_ACCESS);
    assert_int_equal(config.exec_timeout_ms, 0);
    assert_int_equal(config.create_timeout_ms, 300000);
    assert_int_equal(config.call_timeout_ms, 60000);
    assert_int_equal(config.checkpoint_writes, CONFIG_WRITES_GATHERED);
    assert_int_equal(config.checkpoints_keep, 1000);
    assert_int_equal(config.checkpoints_keep_seconds, 0);
    assert_int_equal(config.checkpoints_keep_bytes, 0);
    assert_int_equal(config.init_count, 0);
    config_done(&config);
}

static void mkdir_starts_nothing(void **state)
{
    struct config config;
    struct err err = ERR_INIT;

    (void)state;
    assert_int_equal(config_default("local", &config, &err), 0);
    assert_string_equal(config.provider, "local");
    assert_false(config.auto_start);
    config_done(&config);
}

/* Every field, none at its default. */
static const char full[] = "{\n"
                           "  \"provider\": \"mem\",\n"
                           "  \"auto_start\": false,\n"
                           "  \"idle_pause_enabled\": false,\n"
                           "  \"idle_pause_after_seconds\": 1,\n"
                           "  \"exec_timeout_ms\": 2,\n"
                           "  \"create_timeout_ms\": 3,\n"
                           "  \"call_timeout_ms\": 4,\n"
                           "  \"checkpoints_keep\": 5,\n"
                           "  \"checkpoints_keep_seconds\": 6,\n"
                           "  \"checkpoints_keep_bytes\": 7,\n"
                           "  \"wake\": \"exec\",\n"
                           "  \"checkpoint_writes\": \"never\",\n"
                           "  \"provider_config\": {\n"
                           "    \"a\": [\n"
                           "      \"\\u0001\"\n"
                           "    ]\n"
                           "  },\n"
                           "  \"init\": {\n"
                           "    \"commands\": [\n"
                           "      \"make\",\n"
                           "      \"echo '\303\244'\"\n"
                           "    ]\n"
                           "  }\n"
                           "}\n";

static void what_is_written_reads_back_the_same(void **state)
{
    struct config config;
    struct config copy;
    struct err err = ERR_INIT;
    char *text = NULL;

    (void)state;
    assert_int_equal(config_parse(full, &config, &err), 0);
    assert_int_equal(config.init_count, 2);
    assert_string_equal(config.init_commands[0], "make");
    assert_int_equal(config.wake, CONFIG_WAKE_EXEC);
    assert_int_equal(config.checkpoint_writes, CONFIG_WRITES_NEVER);
    assert_int_equal(config_copy(&config, &copy, &err), 0);
    config_done(&config);
    assert_int_equal(config_text(&copy, &text, &err), 0);
    assert_string_equal(text, full);
    config_done(&copy);
    free(text);
}

static void good_ones_are_taken(void **state)
{
    static const char *const texts[] = {
        "{\"provider\": \"m\", \"unknown\": {\"x\": [1]}, \"\": null}",
        "{\"provider\": \"m\", \"provider_config\": null}",
        "{\"provider\": \"m\", \"init\": {}}",
        "{\"provider\": \"m\", \"init\": {\"commands\": [], \"other\": 1}}",
        "{\"provider\": \"m\", \"idle_pause_after_seconds\": 2147483647}",
        "{\"provider\": \"m\", \"create_timeout_ms\": 86400000}",
        " \n{\"provider\":\"m\"}\n ",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct config config;
        struct err err = ERR_INIT;

        if (config_parse(texts[i], &config, &err) < 0) {
            fail_msg("%s: %s", texts[i], err.msg);
        }
        config_done(&config);
    }
}

static void null_and_an_empty_object_say_nothing(void **state)
{
    static const struct {
        const char *text;
        bool none;
    } cases[] = {
        {"null", true},   {"{}", true},
        {" { } ", true},  {"[]", false},
        {"0", false},     {"\"\"", false},
        {"false", false}, {"{\"a\": null}", false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        struct js *js = NULL;

        assert_int_equal(
            config_json(cases[i].text, strlen(cases[i].text), &js, &err), 0);
        assert_int_equal(config_is_none(js), cases[i].none);
        js_free(js);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_wrong_has_its_words),
        cmocka_unit_test(what_is_no_json_is_told_with_its_place),
        cmocka_unit_test(what_is_deep_or_long_is_refused),
        cmocka_unit_test(a_config_that_says_little_has_the_defaults),
        cmocka_unit_test(mkdir_starts_nothing),
        cmocka_unit_test(what_is_written_reads_back_the_same),
        cmocka_unit_test(good_ones_are_taken),
        cmocka_unit_test(null_and_an_empty_object_say_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
