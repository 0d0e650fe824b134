/* Texts of JSON that are bytes. */
#include "tests/cmocka.h"

#include "core/json.h"
#include "core/json_bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    CAP = 4096
};

/* A text in JSON as a peer may write it, its bytes, and as we write it. */
static const struct {
    const char *line;
    const char *bytes;
    size_t size;
    const char *written;
} cases[] = {
    {"\"\"", "", 0, "\"\""},
    {"\"plain\"", "plain", 5, "\"plain\""},
    {"\"\\udcff\"", "\377", 1, "\"\\udcff\""},
    {"\"a\\uDC80b\"", "a\200b", 3, "\"a\\udc80b\""},
    {"\"\377\"", "\377", 1, "\"\\udcff\""},
    {"\"\303x\"", "\303x", 2, "\"\\udcc3x\""},
    {"\"\355\262\200\"", "\355\262\200", 3, "\"\\udced\\udcb2\\udc80\""},
    {"\"\\udcc3\\udca9\"", "\303\251", 2, "\"\303\251\""},
    {"\"\\u00e9\"", "\303\251", 2, "\"\303\251\""},
    {"\"\303\251\"", "\303\251", 2, "\"\303\251\""},
    {"\"\\u0000\"", "\0", 1, "\"\\u0000\""},
    {"\"\\u0000\\u00ff\"", "\0\303\277", 3, "\"\\u0000\303\277\""},
    {"\"\\u0000\\u0000\"", "\0\0", 2, "\"\\u0000\\u0000\""},
    {"\"\\ud83d\\ude00\"", "\360\237\230\200", 4, "\"\360\237\230\200\""},
    {"\"\\ud83d\"", "\357\277\275", 3, "\"\357\277\275\""},
    {"\"\\ud83d\\udcff\"", "\360\237\223\277", 4, "\"\360\237\223\277\""},
    {"\"\\udc00\"", "\357\277\275", 3, "\"\357\277\275\""},
    {"\"\\\\udcff\"", "\\udcff", 6, "\"\\\\udcff\""},
    {"\"\\\\\\udcff\"", "\\\377", 2, "\"\\\\\\udcff\""},
    {"\"\\\\u0000\"", "\\u0000", 6, "\"\\\\u0000\""},
    {"\"\\n\\\"\\/\"", "\n\"/", 3, "\"\\n\\\"/\""},
};

static void a_text_comes_as_its_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buf json = BUF_INIT(CAP);
        struct buf bytes = BUF_INIT(CAP);
        struct err err = ERR_INIT;
        struct js *js = NULL;
        const char *text;
        size_t size;

        assert_int_equal(
            js_bytes_read(cases[i].line, strlen(cases[i].line), &json), 0);
        if (js_parse(json.data, json.size, &js, &err) < 0) {
            fail_msg("%s: %s", cases[i].line, err.msg);
        }
        text = js_bytes(js, &size);
        assert_int_equal(js_bytes_take(text, size, &bytes), 0);
        assert_int_equal(bytes.size, cases[i].size);
        assert_memory_equal(buf_str(&bytes), cases[i].bytes, bytes.size);
        js_free(js);
        buf_done(&json);
        buf_done(&bytes);
    }
}

static void bytes_go_as_a_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buf text = BUF_INIT(CAP);
        struct buf json = BUF_INIT(CAP);
        struct buf line = BUF_INIT(CAP);
        struct js *list = js_array();

        assert_int_equal(js_bytes_give(cases[i].bytes, cases[i].size, &text),
                         0);
        js_add_bytes(list, buf_str(&text), text.size);
        assert_int_equal(js_write(list, &json), 0);
        assert_int_equal(js_bytes_write(json.data, json.size, &line), 0);
        assert_int_equal(line.size, strlen(cases[i].written) + 2);
        assert_memory_equal(line.data + 1, cases[i].written, line.size - 2);
        js_free(list);
        buf_done(&text);
        buf_done(&json);
        buf_done(&line);
    }
}

/* Whatever a peer sends: nothing is read behind its end. */
static void a_text_that_ends_early_is_taken(void **state)
{
    static const char *const cut[] = {
        "\"\\",      "\"\\u",          "\"\\udc8",
        "\"\\ud83d", "\"\\ud83d\\u",   "\"\\ud83d\\udc0",
        "\"\303",    "\"\360\237\230", "\\u0000",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cut) / sizeof(cut[0]); i++) {
        for (size_t size = 0; size <= strlen(cut[i]); size++) {
            char *exact = malloc(size ? size : 1);
            struct buf out = BUF_INIT(CAP);

            assert_non_null(exact);
            memcpy(exact, cut[i], size);
            assert_int_equal(js_bytes_read(exact, size, &out), 0);
            assert_int_equal(js_bytes_write(exact, size, &out), 0);
            assert_int_equal(js_bytes_take(exact, size, &out), 0);
            assert_int_equal(js_bytes_give(exact, size, &out), 0);
            buf_done(&out);
            free(exact);
        }
    }
}

static void what_does_not_fit_is_said(void **state)
{
    struct buf small = BUF_INIT(4);

    (void)state;
    assert_int_equal(js_bytes_read("\"\\udcff\"", 8, &small), -EFBIG);
    assert_int_equal(js_bytes_give("\377\377", 2, &small), -EFBIG);
    buf_done(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_comes_as_its_bytes),
        cmocka_unit_test(bytes_go_as_a_text),
        cmocka_unit_test(a_text_that_ends_early_is_taken),
        cmocka_unit_test(what_does_not_fit_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
