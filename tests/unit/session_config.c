/* `config.json`: what may change, when, and whose a sandbox is. */
#include "tests/unit/config_fixture.h"

#include "core/buf.h"
#include "core/checkpoint.h"
#include "core/registry_priv.h"
#include "core/store.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- config.json ---- */

static void a_config_is_kept(void **state)
{
    struct fixture *fixture = *state;
    struct session *session;
    struct err err = ERR_INIT;
    char *events;

    config_open(fixture, config_table);
    session = fixture_create(fixture, "a");
    assert_int_equal(config_write(session,
                                  "{\"provider\": \"remote\","
                                  " \"exec_timeout_ms\": 77}",
                                  &err),
                     0);
    /* What changes nothing is no event. */
    assert_int_equal(config_write(session,
                                  "{\"exec_timeout_ms\": 77,"
                                  " \"provider\": \"remote\"}",
                                  &err),
                     0);
    events = fixture_events(session);
    assert_non_null(strstr(events, "\"session.configured\""));
    assert_null(strstr(strstr(events, "\"session.configured\"") + 1,
                       "\"session.configured\""));
    assert_non_null(strstr(events, "\"changed\":[\"provider\",\"auto_start\","
                                   "\"exec_timeout_ms\"]"));
    free(events);
    session_unref(session);
    fixture_close(fixture);
    config_open(fixture, config_table);
    session = fixture_find(fixture, "a");
    assert_true(config_says(session, "\"exec_timeout_ms\": 77"));
    assert_true(config_says(session, "\"provider\": \"remote\""));
    assert_int_equal(fixture_ensure(session, false), 0);
    session_unref(session);
}

static void a_bad_config_changes_nothing(void **state)
{
    static const struct {
        const char *text;
        int code;
    } cases[] = {
        {"", EINVAL},
        {"{", EINVAL},
        {"[]", EINVAL},
        {"{\"provider\": \"\"}", EINVAL},
        {"{\"provider\": \"none\"}", ENODEV},
        {"{\"provider\": \"local\", \"wake\": 2}", EINVAL},
        {"{\"provider\": \"local\"} x", EINVAL},
        {"{\"provider\": \"local\", \"provider_config\": {\"x\": 1}}", EINVAL},
        {"{\"provider\": \"a\", \"provider\": \"local\"}", EINVAL},
    };
    struct fixture *fixture = *state;
    struct session *session;
    struct err err = ERR_INIT;
    char *before, *after;

    config_open(fixture, config_table);
    session = fixture_create(fixture, "a");
    before = config_of(session);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(config_write(session, cases[i].text, &err),
                         -cases[i].code);
        assert_true(err.msg[0] != '\0');
    }
    after = config_of(session);
    assert_string_equal(before, after);
    free(before);
    free(after);
    session_unref(session);
}

#define INIT(command)                                                          \
    "{\"provider\": \"local\", \"auto_start\": false,"                         \
    " \"init\": {\"commands\": [\"" command "\"]}}"

static void init_may_change_until_it_succeeded(void **state)
{
    struct fixture *fixture = *state;
    struct session *session;
    struct err err = ERR_INIT;

    config_open(fixture, config_table);
    session = fixture_create(fixture, "a");
    assert_int_equal(config_write(session, INIT("exit:3"), &err), 0);
    assert_true(fixture_ensure(session, false) < 0);
    /* There is a sandbox now. */
    assert_int_equal(config_write(session, "{\"provider\": \"remote\"}", &err),
                     -EBUSY);
    assert_non_null(strstr(err.msg, "only its 'init' may change"));
    assert_int_equal(config_write(session, "{\"provider\": \"local\"}", &err),
                     -EBUSY);
    assert_int_equal(config_write(session, INIT("o:fine"), &err), 0);
    assert_int_equal(fixture_ensure(session, false), 0);
    assert_int_equal(config_write(session, INIT("o:other"), &err), -EBUSY);
    /* The same again is no change. */
    assert_int_equal(config_write(session, INIT("o:fine"), &err), 0);
    assert_int_equal(fixture_destroy(session), 0);
    assert_int_equal(config_write(session, INIT("o:other"), &err), 0);
    session_unref(session);
}

struct storm {
    struct session *session;
    atomic_bool over;
    atomic_uint taken;
};

static void *write_configs(void *arg)
{
    static const char *const texts[] = {
        "{\"provider\": \"local\", \"init\": {\"commands\": [\"o:a\"]}}",
        "{\"provider\": \"remote\", \"exec_timeout_ms\": 5000}",
    };
    struct storm *storm = arg;

    for (int i = 0; !atomic_load(&storm->over); i++) {
        struct err err = ERR_INIT;
        int rc = config_write(storm->session, texts[i % 2], &err);

        assert_true(rc == 0 || rc == -EBUSY);
        atomic_fetch_add(&storm->taken, rc == 0);
    }
    return NULL;
}

static void configs_change_while_sandboxes_come_and_go(void **state)
{
    struct fixture *fixture = *state;
    struct storm storm = {.over = false};
    pthread_t threads[2];

    config_open(fixture, config_table);
    storm.session = fixture_create(fixture, "a");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            pthread_create(&threads[i], NULL, write_configs, &storm), 0);
    }
    for (int i = 0; i < 50; i++) {
        unsigned before = atomic_load(&storm.taken);

        assert_int_equal(fixture_ensure(storm.session, false), 0);
        assert_int_equal(fixture_destroy(storm.session), 0);
        fixture_until(atomic_load(&storm.taken) > before);
    }
    atomic_store(&storm.over, true);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    session_unref(storm.session);
}

/* ---- Whose sandbox it is ---- */

static void say_other_provider(struct fixture *fixture, uint64_t number)
{
    struct store *store = NULL;
    struct store_state record;
    struct err err = ERR_INIT;

    assert_int_equal(store_open(config_path(fixture, "state"), 0, &store, &err),
                     0);
    assert_int_equal(store_state_load(store, number, &record, &err), 0);
    free(record.provider);
    record.provider = strdup("gone");
    assert_int_equal(
        store_state_save(store, number, record.generation, &record, NULL, &err),
        0);
    store_state_done(&record);
    store_close(store);
}

static void the_sandbox_of_another_provider_is_let_alone(void **state)
{
    static const char words[] = "Session sandbox provider mismatch: state has "
                                "'gone', config requests 'local'";
    struct fixture *fixture = *state;
    struct session *session;
    struct result result;
    uint64_t number;

    config_open(fixture, config_table);
    session = fixture_create(fixture, "a");
    assert_int_equal(fixture_ensure(session, false), 0);
    number = session_number(session);
    session_unref(session);
    fixture_close(fixture);
    say_other_provider(fixture, number);
    config_open(fixture, config_table);
    session = fixture_find(fixture, "a");
    result_init(&result);
    session_ensure(session, true, &me, result_fill, &result);
    assert_int_equal(result_wait(&result), -EINVAL);
    assert_string_equal(result.err.msg, words);
    result_init(&result);
    session_destroy(session, &me, result_fill, &result);
    assert_int_equal(result_wait(&result), -EINVAL);
    assert_string_equal(result.err.msg, words);
    session_unref(session);
}

/* ---- A stored one that cannot be read ---- */

/* As a disk or another version of the program may have left it. */
static struct session *find_with(struct fixture *fixture, bool sandbox,
                                 const char *text)
{
    struct session *session;
    struct err err = ERR_INIT;

    if (!fixture->registry) {
        config_open(fixture, config_table);
    }
    session = fixture_create(fixture, "a");
    if (sandbox) {
        assert_int_equal(fixture_ensure(session, false), 0);
    }
    assert_int_equal(store_session_configure(fixture->registry->store,
                                             session_number(session), text,
                                             NULL, &err),
                     0);
    session_unref(session);
    fixture_close(fixture);
    config_open(fixture, config_table);
    return fixture_find(fixture, "a");
}

static bool has_error(struct session *session, const char *part)
{
    struct buf text = BUF_INIT(1024 * 1024);
    struct err err = ERR_INIT;
    bool has;

    assert_int_equal(session_errors(session, &text, &err), 0);
    has = strstr(buf_str(&text), part);
    buf_done(&text);
    return has;
}

static void expect_unreadable(struct session *session, const char *why)
{
    struct exec *exec = NULL;
    struct err err = ERR_INIT;
    struct result result;

    assert_int_equal(session_status(session), SESSION_ERROR);
    assert_true(has_error(session, " config - 0 EIO "));
    assert_true(has_error(session, why));
    assert_true(fixture_json_has(session, "\"configured\":false"));
    result_init(&result);
    session_ensure(session, true, &me, result_fill, &result);
    assert_int_equal(result_wait(&result), -EIO);
    assert_non_null(strstr(result.err.msg, why));
    assert_int_equal(exec_submit(session, "o:x", 3, &me, &exec, &err), -EIO);
    assert_non_null(strstr(err.msg, why));
    result_init(&result);
    checkpoint_fork(session, "b", NULL, &me, result_fill, &result);
    assert_int_equal(result_wait(&result), -EIO);
}

static void one_that_cannot_be_read_is_shown_and_can_be_removed(void **state)
{
    static const struct {
        const char *text;
        const char *why;
    } cases[] = {
        {"", "Invalid session_sandbox config"},
        {"\x01garbage\xff", "Invalid session_sandbox config"},
        {"{\"provider\": \"loc", "Invalid session_sandbox config"},
        {"[]", "must be an object"},
        {"{\"provider\": 5}", "'provider' must be a string"},
        {"{\"provider\": \"local\", \"wake\": \"later\"}", "'wake' must be"},
    };
    struct fixture *fixture = *state;

    for (size_t i = 0; i < 2 * ARRAY_SIZE(cases); i++) {
        const char *text = cases[i / 2].text;
        bool sandbox = i % 2;
        struct session *session = find_with(fixture, sandbox, text);
        struct err err = ERR_INIT;

        expect_unreadable(session, cases[i / 2].why);
        assert_true(config_says(session, text));
        assert_int_equal(registry_remove(fixture->registry, "a", &err),
                         sandbox ? -ENOTEMPTY : 0);
        if (sandbox) {
            assert_int_equal(fixture_pause(session), 0);
            assert_int_equal(fixture_destroy(session), 0);
            assert_true(fixture_json_has(session, "\"exists\":false"));
            err_clear(&err);
            assert_int_equal(registry_remove(fixture->registry, "a", &err), 0);
        }
        session_unref(session);
    }
}

static void another_config_mends_one_that_cannot_be_read(void **state)
{
    struct fixture *fixture = *state;

    for (int sandbox = 0; sandbox < 2; sandbox++) {
        struct session *session = find_with(fixture, sandbox, "garbage");
        struct err err = ERR_INIT;
        struct exec_info info;

        assert_int_equal(config_write(session, "{\"provider\": 5}", &err),
                         -EINVAL);
        expect_unreadable(session, "Invalid");
        assert_int_equal(
            config_write(session, "{\"provider\": \"local\"}", &err), 0);
        assert_int_equal(session_status(session),
                         sandbox ? SESSION_PAUSED : SESSION_ABSENT);
        assert_false(has_error(session, " config - "));
        fixture_exec(session, "o:works", &info);
        assert_int_equal(info.status, EXEC_EXITED);
        session_unref(session);
        session = fixture_find(fixture, "a");
        assert_true(config_says(session, "\"provider\": \"local\""));
        assert_int_equal(fixture_destroy(session), 0);
        assert_int_equal(registry_remove(fixture->registry, "a", &err), 0);
        session_unref(session);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONFIG_TEST(a_config_is_kept),
        CONFIG_TEST(a_bad_config_changes_nothing),
        CONFIG_TEST(init_may_change_until_it_succeeded),
        CONFIG_TEST(configs_change_while_sandboxes_come_and_go),
        CONFIG_TEST(the_sandbox_of_another_provider_is_let_alone),
        CONFIG_TEST(one_that_cannot_be_read_is_shown_and_can_be_removed),
        CONFIG_TEST(another_config_mends_one_that_cannot_be_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
