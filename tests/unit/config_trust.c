/*
 * Who may say what, for every key of every provider there is: whoever writes
 * `new` and `config.json`, and the operator, by a profile or by trust.
 */
#include "tests/unit/config_fixture.h"

#include "core/buf.h"
#include "core/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TEXT_SIZE = 512
};

/* A value of a key that goes beyond its default, as JSON; false: none does. */
static bool value_beyond(const struct config_key *key, char out[TEXT_SIZE])
{
    const char *fallback = key->fallback ? key->fallback : "";

    out[0] = '\0';
    switch (key->type) {
    case CONFIG_TEXT:
        (void)snprintf(out, TEXT_SIZE, "\"sh\""); /* It may be a program. */
        break;
    case CONFIG_WORD:
        for (size_t i = 0; key->words[i]; i++) {
            (void)snprintf(out, TEXT_SIZE, "\"%s\"", key->words[i]);
            if (strcmp(out, fallback) != 0) {
                break;
            }
        }
        break;
    case CONFIG_PATH:
        (void)snprintf(out, TEXT_SIZE, "\"/usr/share\"");
        break;
    case CONFIG_BOOL:
        (void)snprintf(out, TEXT_SIZE, "%s",
                       strcmp(fallback, "true") == 0 ? "false" : "true");
        break;
    case CONFIG_INT:
        (void)snprintf(out, TEXT_SIZE, "%" PRId64, key->max);
        break;
    case CONFIG_TEXTS:
        (void)snprintf(out, TEXT_SIZE, "[\"other\"]");
        break;
    case CONFIG_MAP:
        (void)snprintf(out, TEXT_SIZE, "{\"other\": \"value\"}");
        break;
    }
    return strcmp(out, fallback) != 0;
}

/* Called for each key that reaches beyond what anyone may say; `text` is a
 * config that sets it. */
typedef void key_fn(struct fixture *fixture, const struct config_key *key,
                    const char *text);

static unsigned each_key(struct fixture *fixture, key_fn *fn)
{
    unsigned count = 0;

    for (size_t i = 0; provider_table[i]; i++) {
        const struct config_key *key = provider_table[i]->keys;

        for (; key && key->name; key++) {
            char value[TEXT_SIZE];
            char text[2 * TEXT_SIZE];

            if (key->trust == CONFIG_ANYONE || !value_beyond(key, value)) {
                continue;
            }
            (void)snprintf(text, sizeof(text),
                           "{\"provider\": \"%s\", \"auto_start\": false, "
                           "\"provider_config\": {\"%s\": %s}}",
                           provider_table[i]->name, key->name, value);
            fn(fixture, key, text);
            count++;
        }
    }
    return count;
}

static void expect_refused(int rc, const struct config_key *key,
                           const struct err *err)
{
    char quoted[TEXT_SIZE];

    (void)snprintf(quoted, sizeof(quoted), "'%s'", key->name);
    if (rc != -EPERM || !strstr(err->msg, quoted) ||
        !strstr(err->msg, "-o trust=config")) {
        fail_msg("%s: %d, %s", key->name, rc, err->msg);
    }
}

static void try_as_user(struct fixture *fixture, const struct config_key *key,
                        const char *text)
{
    struct session *session = fixture_find(fixture, "there");
    char *before = config_of(session);
    char id[SESSION_ID_SIZE];
    struct err err = ERR_INIT;
    char *after;

    expect_refused(
        registry_new(fixture->registry, text, strlen(text), &me, id, &err), key,
        &err);
    expect_refused(config_write(session, text, &err), key, &err);
    after = config_of(session);
    assert_string_equal(after, before);
    assert_int_equal(registry_count(fixture->registry), 1);
    free(before);
    free(after);
    session_unref(session);
}

static void no_user_reaches_the_host(void **state)
{
    struct fixture *fixture = *state;

    config_asked.provider = "mem";
    config_open(fixture, provider_table);
    session_unref(fixture_create(fixture, "there"));
    assert_true(each_key(fixture, try_as_user) >= 6);
}

static void try_trusted(struct fixture *fixture, const struct config_key *key,
                        const char *text)
{
    struct session *session = fixture_find(fixture, "there");
    char quoted[TEXT_SIZE];
    char id[SESSION_ID_SIZE];
    struct err err = ERR_INIT;

    (void)snprintf(quoted, sizeof(quoted), "\"%s\": ", key->name);
    if (config_write(session, text, &err) < 0 ||
        registry_new(fixture->registry, text, strlen(text), &me, id, &err) <
            0) {
        fail_msg("%s: %s", text, err.msg);
    }
    assert_true(config_says(session, quoted));
    session_unref(session);
    session = fixture_find(fixture, id);
    assert_true(config_says(session, quoted));
    session_unref(session);
}

static void who_is_trusted_does(void **state)
{
    struct fixture *fixture = *state;

    config_asked.provider = "mem";
    config_asked.trust_config = true;
    config_open(fixture, provider_table);
    session_unref(fixture_create(fixture, "there"));
    assert_true(each_key(fixture, try_trusted) >= 6);
}

static unsigned profiles_made;

static void write_one(struct fixture *fixture, const struct config_key *key,
                      const char *text)
{
    char name[64];

    (void)key;
    (void)snprintf(name, sizeof(name), "p%u.json", profiles_made++);
    config_profile(fixture, name, text);
}

/* A session by a profile; then another key of it is changed by a user, who
 * writes all that config.json has said. */
static void edit_what_a_profile_gave(struct fixture *fixture, unsigned number)
{
    struct session *session;
    struct err err = ERR_INIT;
    char name[64];
    char *text, *at;

    (void)snprintf(name, sizeof(name), "p%u id%u", number, number);
    session = config_new(fixture, name);
    text = config_of(session);
    at = strstr(text, "\"exec_timeout_ms\": 0");
    assert_non_null(at);
    at[strlen("\"exec_timeout_ms\": ")] = '9';
    if (config_write(session, text, &err) < 0) {
        fail_msg("%s: %s", text, err.msg);
    }
    assert_true(config_says(session, "\"exec_timeout_ms\": 9"));
    free(text);
    session_unref(session);
}

static void a_profile_does_and_survives_an_edit(void **state)
{
    struct fixture *fixture = *state;

    profiles_made = 0;
    config_asked.provider = "mem";
    assert_true(each_key(fixture, write_one) >= 6);
    config_open(fixture, provider_table);
    for (unsigned i = 0; i < profiles_made; i++) {
        edit_what_a_profile_gave(fixture, i);
    }
    assert_int_equal(registry_count(fixture->registry), profiles_made);
}

static void check_key(const struct config_key *key)
{
    struct err err = ERR_INIT;
    struct js *js = NULL;

    assert_non_null(key->text);
    assert_true(key->text[0]);
    assert_true(key->text[strlen(key->text) - 1] != '.');
    assert_int_equal(key->type == CONFIG_WORD, key->words != NULL);
    assert_true(key->type != CONFIG_INT || key->min < key->max);
    assert_true(key->trust != CONFIG_UP_TO || key->fallback);
    if (key->fallback &&
        js_parse(key->fallback, strlen(key->fallback), &js, &err) < 0) {
        fail_msg("%s: %s", key->name, err.msg);
    }
    js_free(js);
}

/* What the tables say is what they are made of. */
static void every_table_is_sound(void **state)
{
    (void)state;
    for (size_t i = 0; provider_table[i]; i++) {
        const struct config_key *key = provider_table[i]->keys;

        for (; key && key->name; key++) {
            check_key(key);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONFIG_TEST(no_user_reaches_the_host),
        CONFIG_TEST(who_is_trusted_does),
        CONFIG_TEST(a_profile_does_and_survives_an_edit),
        cmocka_unit_test(every_table_is_sound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
