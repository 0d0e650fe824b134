/* The end of a JSON object in a stream, and what can never become one. */
#include "tests/cmocka.h"

#include "core/json.h"
#include "core/json_scan.h"

#include <stdlib.h>
#include <string.h>

static const char *const whole[] = {
    "{}",
    " \t\r\n{ }",
    "{\"\":\"\"}",
    "{\"a\":[],\"b\":{},\"c\":[[],{}]}",
    "{\"a\":true,\"b\":false,\"c\":null}",
    "{\"a\":0,\"b\":-0,\"c\":10,\"d\":-1.5e+3,\"e\":0.1E-2,\"f\":1e5}",
    "{\"a\":[1,2 , 3\n]}",
    "{\"a\\n\\u00e9\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\"}",
    "{\"a\":\"\\ud83d\\ude00 \\uD83D\\uDE00\"}",
    "{\"a\":\"\303\251\342\202\254\360\237\230\200\"}",
    "{\"a\":\"}\",\"b\":\"\\\"}\"}",
};

/* Each is bad with its last byte, not before. */
static const char *const bad[] = {
    "x",
    "[",
    "\"",
    "1",
    "}",
    "\357",
    "{x",
    "{]",
    "{,",
    "{1",
    "{\"a\",",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":,",
    "{\"a\":]",
    "{\"a\":1]",
    "{\"a\":[1}",
    "{\"a\":[,",
    "{\"a\":[1,]",
    "{\"a\":1,}",
    "{\"a\":1,,",
    "{\"a\":1 2",
    "{\"a\":tx",
    "{\"a\":nul}",
    "{\"a\":truee",
    "{\"a\":+",
    "{\"a\":.",
    "{\"a\":-}",
    "{\"a\":-x",
    "{\"a\":00",
    "{\"a\":01",
    "{\"a\":1.}",
    "{\"a\":1.e",
    "{\"a\":1ex",
    "{\"a\":1e+}",
    "{\"a\":1e5.",
    "{\"a\":1.5.",
    "{\"a\":\"\n",
    "{\"a\":\"\t",
    "{\"a\":\"\\x",
    "{\"a\":\"\\'",
    "{\"a\":\"\\u00g",
    "{\"a\":\"\\udc00",
    "{\"a\":\"\\ud800x",
    "{\"a\":\"\\ud800\"",
    "{\"a\":\"\\ud800\\n",
    "{\"a\":\"\\ud800\\ud800",
    "{\"a\":\"\377",
    "{\"a\":\"\303\"",
    "{\"a\":\"\355\240",
    "{\"a\":\"\300",
    "{'",
};

static enum js_scan_result scan_in_steps(const char *text, size_t size,
                                         size_t step, size_t *used)
{
    struct js_scan scan = {.state = 0};
    enum js_scan_result result = JS_SCAN_MORE;
    size_t done = 0;

    while (done < size && result == JS_SCAN_MORE) {
        size_t n = size - done < step ? size - done : step;
        size_t taken = 0;

        result = js_scan_feed(&scan, text + done, n, &taken);
        done += taken;
    }
    *used = done;
    return result;
}

static void an_object_ends_with_its_brace(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(whole); i++) {
        size_t size = strlen(whole[i]);
        char more[256];

        (void)strcpy(more, whole[i]);
        (void)strcat(more, " {");
        for (size_t step = 1; step <= size + 2; step++) {
            size_t used = 0;

            assert_int_equal(scan_in_steps(more, size + 2, step, &used),
                             JS_SCAN_DONE);
            assert_int_equal(used, size);
        }
        for (size_t part = 0; part < size; part++) {
            size_t used = 0;

            assert_int_equal(scan_in_steps(more, part, 3, &used), JS_SCAN_MORE);
            assert_int_equal(used, part);
        }
    }
}

static void what_cannot_be_mended_is_bad_at_its_first_wrong_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        size_t size = strlen(bad[i]);
        size_t used = 0;

        assert_int_equal(scan_in_steps(bad[i], size - 1, 1, &used),
                         JS_SCAN_MORE);
        for (size_t step = 1; step <= size; step++) {
            if (scan_in_steps(bad[i], size, step, &used) != JS_SCAN_BAD) {
                fail_msg("'%s' is taken", bad[i]);
            }
        }
    }
}

static void too_deep_and_too_many_is_bad(void **state)
{
    struct js_scan scan = {.state = 0};
    char text[JS_SCAN_DEPTH + 8] = "{\"a\":";
    size_t used = 0;

    (void)state;
    memset(text + 5, '[', JS_SCAN_DEPTH);
    assert_int_equal(scan_in_steps(text, 5 + JS_SCAN_DEPTH - 1, 1, &used),
                     JS_SCAN_MORE);
    assert_int_equal(scan_in_steps(text, 5 + JS_SCAN_DEPTH, 1, &used),
                     JS_SCAN_BAD);
    assert_int_equal(js_scan_feed(&scan, "{\"a\":[", 6, &used), JS_SCAN_MORE);
    for (unsigned i = 1; i < JS_SCAN_VALUES; i++) {
        assert_int_equal(js_scan_feed(&scan, "1,", 2, &used), JS_SCAN_MORE);
    }
    assert_int_equal(js_scan_feed(&scan, "1,", 2, &used), JS_SCAN_BAD);
}

static void add_random(struct buf *text, unsigned depth)
{
    static const char *const scalars[] = {
        "0",       "-1.5e7",       "true",
        "null",    "\"\"",         "\"\\u00e9\\\"}\"",
        "\"x y\"", "\"\303\251\"", "\"\\ud83d\\ude00\"",
        "[]",      "{ }",
    };
    const char *scalar = scalars[(size_t)rand() % ARRAY_SIZE(scalars)];
    int count = rand() % 4;
    bool array = depth % 2;

    if (depth && rand() % 3) {
        assert_int_equal(buf_add(text, scalar, strlen(scalar)), 0);
        return;
    }
    assert_int_equal(buf_add(text, array ? "[" : "{", 1), 0);
    for (int i = 0; i < count; i++) {
        assert_int_equal(buf_printf(text, i ? ",\n " : " "), 0);
        if (!array) {
            assert_int_equal(buf_printf(text, "\"k%d\" : ", i), 0);
        }
        add_random(text, depth + 1);
    }
    assert_int_equal(buf_add(text, array ? "]" : "}", 1), 0);
}

static void random_objects_may_be_cut_at_any_byte(void **state)
{
    (void)state;
    srand(5);
    for (unsigned i = 0; i < 200; i++) {
        struct buf text = BUF_INIT(SIZE_MAX);

        add_random(&text, 0);
        for (size_t at = 0; at <= text.size; at++) {
            struct js_scan scan = {.state = 0};
            enum js_scan_result whole_now = JS_SCAN_DONE;
            size_t used = 0;

            if (at < text.size) {
                whole_now = JS_SCAN_MORE;
            }
            assert_int_equal(js_scan_feed(&scan, text.data, at, &used),
                             whole_now);
            assert_int_equal(used, at);
            assert_int_equal(
                js_scan_feed(&scan, text.data + at, text.size - at, &used),
                JS_SCAN_DONE);
            assert_int_equal(used, text.size - at);
        }
        buf_done(&text);
    }
}

/* Whatever is made of these bytes: an object that is done, the parser takes,
 * and what it calls bad, the parser refuses with any more bytes. */
static void the_parser_agrees(void **state)
{
    static const char *const bits[] = {
        "{",      "}",  "[",  "]",         "\"",      ":",       ",",
        "\"a\":", "1",  "-",  "0",         ".",       "e",       "true",
        "nul",    " ",  "\\", "u12ab",     "\\ud83d", "\\ude00", "\303",
        "\251",   "\n", "x",  "{\"b\":2}", "\"k\"",
    };

    (void)state;
    srand(3);
    for (unsigned i = 0; i < 200000; i++) {
        struct buf text = BUF_INIT(1024);
        struct err err = ERR_INIT;
        struct js *js = NULL;
        enum js_scan_result result;
        size_t used = 0;

        assert_int_equal(buf_add(&text, "{\"a\":", i % 2 ? 5 : 1), 0);
        for (int n = rand() % 8; n >= 0; n--) {
            const char *bit = bits[(size_t)rand() % ARRAY_SIZE(bits)];

            assert_int_equal(buf_add(&text, bit, strlen(bit)), 0);
        }
        result = scan_in_steps(text.data, text.size, 1 + i % 5, &used);
        if (result == JS_SCAN_DONE) {
            int rc = js_parse(text.data, used, &js, &err);

            assert_true(rc == 0 || strstr(err.msg, "duplicate") ||
                        strstr(err.msg, "NUL byte"));
        } else {
            assert_true(js_parse(text.data, text.size, &js, &err) < 0);
        }
        js_free(js);
        buf_done(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_object_ends_with_its_brace),
        cmocka_unit_test(what_cannot_be_mended_is_bad_at_its_first_wrong_byte),
        cmocka_unit_test(too_deep_and_too_many_is_bad),
        cmocka_unit_test(random_objects_may_be_cut_at_any_byte),
        cmocka_unit_test(the_parser_agrees),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
