/* JSON, configs and quoting. */
#include "tests/cmocka.h"

#include "core/config.h"
#include "core/json.h"
#include "core/quote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void an_object_is_written_as_it_was_built(void **state)
{
    struct js *js = js_object();
    struct js *inner = js_object();
    struct buf text = BUF_INIT(1024);

    (void)state;
    js_set_text(js, "t", "a\n\"");
    js_set_text(js, "n", NULL);
    js_set_text(js, "bad", "x\377\303\251y\303");
    js_set_int(js, "i", INT64_MIN);
    js_set_bool(js, "b", true);
    js_set_time(js, "never", 0);
    js_set_time(js, "then", 1000000);
    js_set_raw(js, "raw", "[1, {\"k\": null}]");
    js_set_raw(js, "broken", "[1");
    js_set_int(inner, "x", 1);
    js_set(js, "o", inner);
    assert_int_equal(js_write(js, &text), 0);
    assert_string_equal(
        buf_str(&text),
        "{\"t\":\"a\\n\\\"\",\"n\":null,\"bad\":\"x?\303\251y?\","
        "\"i\":-9223372036854775808,\"b\":true,\"never\":null,"
        "\"then\":\"1970-01-01T00:00:01.000000Z\","
        "\"raw\":[1,{\"k\":null}],\"broken\":null,\"o\":{\"x\":1}}");
    js_free(js);
    buf_done(&text);
}

static void what_does_not_fit_is_told(void **state)
{
    static const size_t caps[] = {8, 3000};
    char value[4000];

    (void)state;
    memset(value, 'x', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(caps); i++) {
        struct js *js = js_object();
        struct buf text = BUF_INIT(caps[i]);

        js_set_text(js, "key", value);
        assert_int_equal(js_write(js, &text), -EFBIG);
        assert_int_equal(js_write(NULL, &text), -ENOMEM);
        js_set_text(NULL, "key", "value");
        js_free(js);
        buf_done(&text);
    }
}

static void bad_json_is_refused_with_its_place(void **state)
{
    static const char *const cases[] = {
        "", "{", "{\"a\":1,\"a\":2}", "[1,]", "{} {}", "\"\377\"", "nul",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct js *js = NULL;
        struct err err = ERR_INIT;

        assert_int_equal(js_parse(cases[i], strlen(cases[i]), &js, &err),
                         -EINVAL);
        assert_non_null(strstr(err.msg, "line "));
    }
}

/* Each of them would take many times its two bytes. */
static void json_of_very_many_values_is_refused(void **state)
{
    struct buf text = BUF_INIT(2 * (size_t)JS_VALUES_MAX + 64);
    struct js *js = NULL;
    struct err err = ERR_INIT;

    (void)state;
    assert_int_equal(buf_printf(&text, "[\"[[,{\\\",\""), 0);
    for (int i = 2; i < JS_VALUES_MAX; i++) {
        assert_int_equal(buf_add(&text, ",1", 2), 0);
    }
    assert_int_equal(buf_add(&text, "]", 1), 0);
    assert_int_equal(js_parse(text.data, text.size, &js, &err), 0);
    js_free(js);
    text.size--;
    assert_int_equal(buf_add(&text, ",1,1]", 5), 0);
    assert_int_equal(js_parse(text.data, text.size, &js, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "values"));
    buf_done(&text);
}

static void configs_are_checked(void **state)
{
    static const struct {
        const char *text;
        const char *words; /* NULL: it is valid. */
    } cases[] = {
        {"{\"provider\":\"p\"}", NULL},
        {"{\"provider\":\"p\",\"provider_config\":{\"k\":1},\"new\":[]}", NULL},
        {"{\"provider\":\" \"}", "requires non-empty 'provider'"},
        {"{}", "requires non-empty 'provider'"},
        {"[]", "must be an object"},
        {"{\"provider\":\"p\",\"provider_config\":[]}", "must be an object"},
        {"{", "Invalid session_sandbox config"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct config config;
        struct err err = ERR_INIT;
        int rc = config_parse(cases[i].text, &config, &err);

        if (cases[i].words) {
            assert_int_equal(rc, -EINVAL);
            assert_non_null(strstr(err.msg, cases[i].words));
        } else {
            assert_int_equal(rc, 0);
            assert_string_equal(config.provider, "p");
            config_done(&config);
        }
    }
}

static void a_config_survives_its_text(void **state)
{
    struct config config;
    struct config again;
    struct err err = ERR_INIT;
    char *text = NULL;

    (void)state;
    assert_int_equal(config_default("p", &config, &err), 0);
    assert_int_equal(config_text(&config, &text, &err), 0);
    assert_int_equal(config_parse(text, &again, &err), 0);
    assert_string_equal(again.provider, "p");
    assert_string_equal(again.provider_config, "{}");
    free(text);
    config_done(&config);
    config_done(&again);
}

static void quoted_bytes_stay_on_one_line(void **state)
{
    static const struct {
        const char *text;
        const char *quoted;
    } cases[] = {
        {"", "\"\""},
        {"a b", "\"a b\""},
        {"a\nb\t\r", "\"a\\nb\\t\\r\""},
        {"\"\\", "\"\\\"\\\\\""},
        {"\001\177\303\251", "\"\\001\\177\\303\\251\""},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct buf text = BUF_INIT(256);

        assert_int_equal(quote_c(&text, cases[i].text), 0);
        assert_string_equal(buf_str(&text), cases[i].quoted);
        assert_int_equal(quote_words(&text, "\nx\033\303\251\377\303"), 0);
        assert_string_equal(buf_str(&text) + strlen(cases[i].quoted),
                            "?x?\303\251??");
        buf_done(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_object_is_written_as_it_was_built),
        cmocka_unit_test(what_does_not_fit_is_told),
        cmocka_unit_test(bad_json_is_refused_with_its_place),
        cmocka_unit_test(json_of_very_many_values_is_refused),
        cmocka_unit_test(configs_are_checked),
        cmocka_unit_test(a_config_survives_its_text),
        cmocka_unit_test(quoted_bytes_stay_on_one_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
