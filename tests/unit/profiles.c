/* Profiles, what is told of providers, and sessions by `new`. */
#include "tests/unit/config_fixture.h"

#include "core/buf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Profiles ---- */

static void a_bad_profile_ends_the_start(void **state)
{
    static const struct {
        const char *file;
        const char *text;
        const char *words;
    } cases[] = {
        {"a.json", "{", "a.json': Invalid session_sandbox config: line 1, "},
        {"a.json", "[]", "a.json': session_sandbox config must be an object"},
        {"a.json", "{\"provider\": \"none\"}",
         "a.json': Session sandbox provider 'none' is not registered"},
        {"a.json", "{\"provider\": \"local\", \"wake\": 1}",
         "a.json': Invalid session_sandbox config: 'wake' must be "},
        {"a.json", "{\"provider\": \"local\", \"provider_config\": {\"x\": 1}}",
         "a.json': Invalid provider_config of 'local': unknown key 'x'"},
        {"default.json", "{\"provider\": \"\"}",
         "default.json': session_sandbox config requires non-empty"},
        {"a b.json", "{}", "a b.json': its name is not one that a session"},
    };
    struct fixture *fixture = *state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;

        config_profile(fixture, cases[i].file, cases[i].text);
        assert_true(config_try_open(fixture, config_table, &err) < 0);
        if (!strstr(err.msg, cases[i].words)) {
            fail_msg("'%s' has no '%s'", err.msg, cases[i].words);
        }
        assert_ptr_equal(strstr(err.msg, "profile '/"), err.msg);
        assert_null(fixture->registry);
        (void)snprintf(err.msg, sizeof(err.msg), "profiles/%s", cases[i].file);
        assert_int_equal(unlink(config_path(fixture, err.msg)), 0);
    }
    config_open(fixture, config_table);
}

static void a_profile_that_is_no_file_ends_the_start(void **state)
{
    struct fixture *fixture = *state;
    struct err err = ERR_INIT;

    config_profile(fixture, "b.txt", "not read");
    config_profile(fixture, ".c.json", "not read");
    assert_int_equal(mkfifo(config_path(fixture, "profiles/a.json"), 0600), 0);
    assert_int_equal(config_try_open(fixture, config_table, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "a.json': it is no regular file"));
    assert_int_equal(unlink(config_path(fixture, "profiles/a.json")), 0);
    config_open(fixture, config_table);
    assert_string_equal(registry_name(fixture->registry, REGISTRY_PROFILES, 1),
                        "default");
    assert_null(registry_name(fixture->registry, REGISTRY_PROFILES, 2));
    assert_null(registry_name(fixture->registry, REGISTRY_PROFILES, 0));
}

static void profiles_are_told_in_order(void **state)
{
    struct fixture *fixture = *state;
    struct buf text = BUF_INIT(65536);
    struct err err = ERR_INIT;

    config_profile(fixture, "zoo.json", "{}");
    config_profile(fixture, "box.json",
                   "{\"provider\": \" remote \", \"exec_timeout_ms\": 7}");
    config_open(fixture, config_table);
    assert_string_equal(registry_name(fixture->registry, REGISTRY_PROFILES, 1),
                        "box");
    assert_string_equal(registry_name(fixture->registry, REGISTRY_PROFILES, 2),
                        "default");
    assert_string_equal(registry_name(fixture->registry, REGISTRY_PROFILES, 3),
                        "zoo");
    assert_null(registry_name(fixture->registry, REGISTRY_PROFILES, 4));
    assert_int_equal(
        registry_about(fixture->registry, REGISTRY_PROFILES, 1, &text, &err),
        0);
    assert_non_null(strstr(buf_str(&text), "\"provider\": \"remote\","));
    assert_non_null(strstr(buf_str(&text), "\"exec_timeout_ms\": 7,"));
    /* What says nothing is like the default: it does not start by itself. */
    buf_done(&text);
    assert_int_equal(
        registry_about(fixture->registry, REGISTRY_PROFILES, 3, &text, &err),
        0);
    assert_non_null(strstr(buf_str(&text), "\"auto_start\": false"));
    buf_done(&text);
    assert_int_equal(
        registry_about(fixture->registry, REGISTRY_PROFILES, 4, &text, &err),
        -ENOENT);
}

static void mkdir_takes_the_default_profile(void **state)
{
    struct fixture *fixture = *state;
    struct session *session;

    config_profile(fixture, "default.json",
                   "{\"provider\": \"remote\", \"auto_start\": true}");
    config_open(fixture, config_table);
    session = fixture_create(fixture, "a");
    assert_true(config_says(session, "\"provider\": \"remote\""));
    fixture_until(session_status(session) == SESSION_RUNNING);
    session_unref(session);
}

static void providers_tell_what_they_can(void **state)
{
    struct fixture *fixture = *state;
    struct buf text = BUF_INIT(65536);
    struct session *session;
    struct err err = ERR_INIT;

    config_open(fixture, config_table);
    assert_string_equal(registry_name(fixture->registry, REGISTRY_PROVIDERS, 2),
                        "remote");
    assert_null(registry_name(fixture->registry, REGISTRY_PROVIDERS, 3));
    assert_int_equal(
        registry_about(fixture->registry, REGISTRY_PROVIDERS, 1, &text, &err),
        0);
    assert_non_null(strstr(buf_str(&text), "\nstate: open\n"));
    buf_done(&text);
    assert_int_equal(
        registry_about(fixture->registry, REGISTRY_PROVIDERS, 2, &text, &err),
        0);
    assert_non_null(strstr(buf_str(&text), "\nstate: not open yet"));
    assert_non_null(strstr(buf_str(&text), "yes  checkpoints\n"));
    buf_done(&text);
    /* Its first use shows that it cannot be opened. */
    session = config_new(fixture, "{\"provider\": \"remote\", \"id\": \"r\","
                                  " \"auto_start\": false}");
    engine_fail(ENGINE_OPEN, EACCES);
    assert_int_equal(fixture_ensure(session, false), -EACCES);
    assert_int_equal(
        registry_about(fixture->registry, REGISTRY_PROVIDERS, 2, &text, &err),
        0);
    assert_non_null(strstr(buf_str(&text), "\nstate: it cannot be used: "
                                           "provider 'remote': "));
    buf_done(&text);
    session_unref(session);
}

/* ---- new ---- */

static void new_takes_profiles_and_configs(void **state)
{
    struct fixture *fixture = *state;
    struct session *session;
    char id[SESSION_ID_SIZE];

    config_profile(fixture, "box.json",
                   "{\"provider\": \"remote\", \"auto_start\": false}");
    config_open(fixture, config_table);
    session = config_new(fixture, " \tbox\n");
    session_id(session, id);
    assert_int_equal(strlen(id), 9);
    assert_int_equal(id[0], 's');
    assert_int_equal(strspn(id + 1, "abcdefghijklmnopqrstuvwxyz234567"), 8);
    assert_true(config_says(session, "\"provider\": \"remote\""));
    session_unref(session);
    session = config_new(fixture, "box  one\r\n");
    session_id(session, id);
    assert_string_equal(id, "one");
    session_unref(session);
    session =
        config_new(fixture, "{\"id\": \"two\", \"provider\": \"local\","
                            " \"auto_start\": false, \"wake\": \"exec\"}\n");
    session_id(session, id);
    assert_string_equal(id, "two");
    assert_true(config_says(session, "\"wake\": \"exec\""));
    session_unref(session);
    /* What says nothing is the default profile. */
    session = config_new(fixture, "{\"id\": \"three\"}");
    assert_true(config_says(session, "\"auto_start\": false"));
    session_unref(session);
    session_unref(config_new(fixture, "null"));
    session_unref(config_new(fixture, "{}"));
    assert_int_equal(registry_count(fixture->registry), 6);
}

#define RULE                                                                   \
    ": a session's name is up to 64 of A-Z a-z 0-9 . _ - and begins with a "   \
    "letter or digit"

static void new_refuses_what_is_wrong(void **state)
{
    static const struct {
        const char *text;
        size_t size; /* 0: of the string. */
        int code;
        const char *words;
    } cases[] = {
        {"\n", 1, EINVAL, "write PROFILE [ID], or a config in JSON"},
        {"default a b", 0, EINVAL, "write PROFILE [ID], or a config in JSON"},
        {"none", 0, ENOENT, "there is no profile 'none'"},
        {"../default", 0, ENOENT, "there is no profile '../default'"},
        {"default a/b", 0, EINVAL, "id 'a/b'" RULE},
        {"default ..", 0, EINVAL, "id '..'" RULE},
        {"default taken", 0, EEXIST, "there is a session 'taken' already"},
        {"default\0x", 9, EINVAL, "a NUL byte in it"},
        {"{\"id\": \"a\\u0000b\"}", 0, EINVAL, "id 'a'" RULE},
        {"{\"id\": 5}", 0, EINVAL, "id ''" RULE},
        {"{\"id\": \"\"}", 0, EINVAL, "id ''" RULE},
        {"{\"id\": \"taken\"}", 0, EEXIST,
         "there is a session 'taken' already"},
        {"{\"id\": \"a\", \"wake\": \"exec\"}", 0, EINVAL,
         "session_sandbox config requires non-empty 'provider'"},
        {"[]", 0, EINVAL, "session_sandbox config must be an object"},
        {"{\"provider\": \"x\"}", 0, ENODEV,
         "Session sandbox provider 'x' is not registered"},
    };
    struct fixture *fixture = *state;
    struct err err = ERR_INIT;
    char id[SESSION_ID_SIZE] = "";

    config_open(fixture, config_table);
    session_unref(fixture_create(fixture, "taken"));
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        size_t size = cases[i].size ? cases[i].size : strlen(cases[i].text);
        int rc =
            registry_new(fixture->registry, cases[i].text, size, &me, id, &err);

        if (rc != -cases[i].code || strcmp(err.msg, cases[i].words) != 0) {
            fail_msg("%s: %s (%d)", cases[i].text, err.msg, rc);
        }
        assert_string_equal(id, "");
    }
    assert_int_equal(registry_count(fixture->registry), 1);
}

static void a_config_starts_its_sandbox(void **state)
{
    struct fixture *fixture = *state;
    struct session *session;

    config_open(fixture, config_table);
    session = config_new(fixture, "{\"provider\": \"local\"}");
    fixture_until(session_status(session) == SESSION_RUNNING);
    session_unref(session);
}

static void a_start_that_fails_is_recorded(void **state)
{
    struct fixture *fixture = *state;
    struct session *session;
    struct buf text = BUF_INIT(65536);
    struct err err = ERR_INIT;

    config_open(fixture, config_table);
    engine_fail(ENGINE_CREATE, EDQUOT);
    session = config_new(fixture, "{\"provider\": \"local\"}");
    do {
        buf_done(&text);
        assert_int_equal(session_errors(session, &text, &err), 0);
    } while (text.size == 0 && usleep(1000) == 0);
    assert_non_null(strstr(buf_str(&text), " auto_start - 4242 EDQUOT "));
    buf_done(&text);
    fixture_until(fixture_events_with(session, "\"session.not_started\"") == 1);
    engine_fail(ENGINE_CREATE, 0);
    assert_int_equal(fixture_ensure(session, false), 0);
    session_unref(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONFIG_TEST(a_bad_profile_ends_the_start),
        CONFIG_TEST(a_profile_that_is_no_file_ends_the_start),
        CONFIG_TEST(profiles_are_told_in_order),
        CONFIG_TEST(mkdir_takes_the_default_profile),
        CONFIG_TEST(providers_tell_what_they_can),
        CONFIG_TEST(new_takes_profiles_and_configs),
        CONFIG_TEST(new_refuses_what_is_wrong),
        CONFIG_TEST(a_config_starts_its_sandbox),
        CONFIG_TEST(a_start_that_fails_is_recorded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
