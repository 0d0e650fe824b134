/* What the answer of a command shows of its output. */
#include "tests/cmocka.h"

#include "core/base64.h"
#include "core/exec_cut.h"
#include "core/exec_shape.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A stream in memory that gives at most `step` bytes at once. */
struct memory {
    const char *data;
    size_t size;
    size_t step;
    uint64_t seen; /* Bytes read. */
};

static ssize_t read_memory(void *arg, uint64_t offset, void *out, size_t size,
                           struct err *err)
{
    struct memory *memory = arg;
    size_t left = offset < memory->size ? memory->size - (size_t)offset : 0;

    (void)err;
    size = size < left ? size : left;
    size = size < memory->step ? size : memory->step;
    memcpy(out, memory->data + offset, size);
    memory->seen += size;
    return (ssize_t)size;
}

static void make(const struct buf *out, const struct buf *errs, size_t step,
                 enum shape_mode mode, bool failed, struct shape *shape)
{
    struct memory first = {buf_str(out), out->size, step, 0};
    struct memory second = {buf_str(errs), errs->size, step, 0};
    const struct shape_source sources[] = {{read_memory, &first},
                                           {read_memory, &second}};
    struct err err = ERR_INIT;

    assert_int_equal(
        shape_make(&sources[0], &sources[1], mode, failed, shape, &err), 0);
}

static void add(struct buf *buf, const char *text)
{
    assert_int_equal(buf_add(buf, text, strlen(text)), 0);
}

static void a_text_is_cleaned_in_whatever_pieces_it_comes(void **state)
{
    static const struct {
        const char *raw;
        const char *clean;
        uint64_t lines;
    } cases[] = {
        {"", "", 0},
        {"a", "a", 1},
        {"a\n", "a\n", 1},
        {"\n\n", "\n\n", 2},
        {"a\nb", "a\nb", 2},
        {"a\r\nb\r\n", "a\nb\n", 2},
        {"1%\r20%\r100%\n", "100%\n", 1},
        {"1%\r20%\r100%\r\r\n", "100%\n", 1},
        {"1%\r20%", "20%", 1},
        {"done\r", "done", 1},
        {"x\n1%\r", "x\n1%", 2},
        {"\33[1;31mred\33[0m\n", "red\n", 1},
        {"\33[?25l\33[2K\33[1Gx", "x", 1},
        {"\33]0;title\ax", "x", 1},
        {"\33]8;;http://x\33\\link\33]8;;\33\\", "link", 1},
        {"\33]0;no end\nx", "\nx", 2},
        {"\33]0;no end\33[31mx", "x", 1},
        {"\33(Bx\33)0y", "xy", 1},
        {"\33Px\33\\y\33=\33>z\33c", "yz", 1},
        {"\33[31", "", 0},
        {"\33[3\nx", "\nx", 2},
        {"a\33[31m\rb\n", "b\n", 1},
        {"\t\b \v\f\177", "\t\b \v\f\177", 1},
        {"\303\251\342\202\254\360\237\230\200",
         "\303\251\342\202\254"
         "\360\237\230\200",
         1},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        for (size_t step = 1; step < 12; step += 2) {
            struct buf out = BUF_INIT(1024);
            struct buf none = BUF_INIT(1);
            struct shape shape;

            add(&out, cases[i].raw);
            make(&out, &none, step, SHAPE_NORMAL, false, &shape);
            assert_string_equal(buf_str(&shape.out), cases[i].clean);
            assert_int_equal(shape.total_lines, cases[i].lines);
            assert_false(shape.base64);
            assert_false(shape.truncated);
            shape_done(&shape);
            buf_done(&out);
        }
    }
}

static void what_is_no_utf8_is_base64_of_its_first_bytes(void **state)
{
    static const char *const bad[] = {
        "\377",
        "\200",
        "a\303",
        "\303\50",
        "\300\200",
        "\355\240\200",
        "\364\220\200\200",
        "\360\200\200\200",
        "\340\200\200",
        "\xf8\x88\x80\x80\x80",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct buf out = BUF_INIT(1024);
        struct buf errs = BUF_INIT(1024);
        struct buf back = BUF_INIT(1024);
        struct shape shape;

        add(&out, "\33[1mx\r\n");
        add(&errs, bad[i]);
        make(&out, &errs, 3, SHAPE_AUTO, false, &shape);
        assert_true(shape.base64);
        assert_false(shape.truncated);
        assert_string_equal(buf_str(&shape.out), "G1sxbXgNCg==");
        assert_int_equal(base64_decode(shape.err.data, shape.err.size, &back),
                         0);
        assert_string_equal(buf_str(&back), bad[i]);
        shape_done(&shape);
        buf_done(&back);
        buf_done(&out);
        buf_done(&errs);
    }
}

/* Numbers, a line each. */
static void add_lines(struct buf *buf, unsigned from, unsigned to)
{
    for (unsigned i = from; i <= to; i++) {
        assert_int_equal(buf_printf(buf, "%u\n", i), 0);
    }
}

static const struct {
    enum shape_mode mode;
    bool failed;
    size_t out;
    size_t err;
} budgets[] = {
    {SHAPE_AUTO, false, 384, 384},       {SHAPE_AUTO, true, 8192, 4096},
    {SHAPE_SILENT, false, 200, 200},     {SHAPE_SILENT, true, 200, 200},
    {SHAPE_CONCISE, false, 2048, 2048},  {SHAPE_CONCISE, true, 2048, 2048},
    {SHAPE_NORMAL, false, 8192, 4096},   {SHAPE_NORMAL, true, 8192, 4096},
    {SHAPE_VERBOSE, false, 16384, 4096}, {SHAPE_VERBOSE, true, 16384, 4096},
    {SHAPE_FULL, false, 65536, 65536},   {SHAPE_FULL, true, 65536, 65536},
};

/* The text is the whole but for what the marks say. */
static void assert_honest(const struct buf *text, const struct buf *whole)
{
    const char *at = buf_str(text);
    const char *from = buf_str(whole);

    for (;;) {
        const char *mark = strstr(at, "\n\n[... ");
        size_t size = mark ? (size_t)(mark - at) : strlen(at);
        char *end = NULL;

        assert_memory_equal(at, from, size);
        from += size;
        if (!mark) {
            break;
        }
        from += strtoull(mark + 7, &end, 10);
        assert_memory_equal(end, " bytes omitted ...]\n\n", 21);
        at = end + 21;
    }
    assert_ptr_equal(from, whole->data + whole->size);
}

static void a_long_text_is_cut_to_its_budget_and_says_so(void **state)
{
    struct buf out = BUF_INIT(1024 * 1024);

    (void)state;
    add_lines(&out, 1, 20000);
    for (size_t i = 0; i < ARRAY_SIZE(budgets); i++) {
        struct shape shape;

        make(&out, &out, 5000, budgets[i].mode, budgets[i].failed, &shape);
        assert_true(shape.truncated);
        assert_in_range(shape.out.size, budgets[i].out - 80, budgets[i].out);
        assert_in_range(shape.err.size, budgets[i].err - 80, budgets[i].err);
        assert_honest(&shape.out, &out);
        assert_honest(&shape.err, &out);
        assert_memory_equal(shape.out.data, "1\n2\n3\n", 6);
        assert_int_equal(shape.total_lines, 20000);
        shape_done(&shape);
    }
    buf_done(&out);
}

static void a_text_of_just_the_budget_is_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(budgets); i++) {
        for (size_t more = 0; more < 2; more++) {
            struct buf out = BUF_INIT(SIZE_MAX);
            struct buf none = BUF_INIT(1);
            struct shape shape;

            while (out.size < budgets[i].out + more) {
                add(&out, "x");
            }
            make(&out, &none, SIZE_MAX, budgets[i].mode, budgets[i].failed,
                 &shape);
            assert_int_equal(shape.truncated, more);
            assert_int_equal(shape.out.size == out.size, more == 0);
            shape_done(&shape);
            buf_done(&out);
        }
    }
}

static void no_character_is_cut_in_two(void **state)
{
    static const char *const letters[] = {"\303\251", "\342\202\254",
                                          "\360\237\230\200"};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(letters); i++) {
        for (size_t before = 0; before < 4; before++) {
            struct buf out = BUF_INIT(SIZE_MAX);
            struct buf none = BUF_INIT(1);
            struct shape shape;

            for (size_t k = 0; k < before; k++) {
                add(&out, "x");
            }
            while (out.size < 3000) {
                add(&out, letters[i]);
            }
            make(&out, &none, 7, SHAPE_CONCISE, i == 1, &shape);
            assert_honest(&shape.out, &out);
            /* The text is UTF-8: shaping it again finds nothing else. */
            buf_done(&out);
            add(&out, buf_str(&shape.out));
            shape_done(&shape);
            make(&out, &none, 7, SHAPE_FULL, false, &shape);
            assert_false(shape.base64);
            shape_done(&shape);
            buf_done(&out);
        }
    }
}

static void a_failure_shows_the_lines_round_its_errors(void **state)
{
    struct buf out = BUF_INIT(SIZE_MAX);
    struct shape shape;

    (void)state;
    add_lines(&out, 10001, 15000);
    add(&out, "x.c:3: ERROR: bad\n");
    add_lines(&out, 15001, 20000);
    add(&out, "FAILED\n");
    add_lines(&out, 20001, 25000);
    make(&out, &out, 100, SHAPE_CONCISE, true, &shape);
    assert_honest(&shape.out, &out);
    assert_non_null(strstr(shape.out.data,
                           "14996\n14997\n14998\n14999\n15000\nx.c:3: ERROR: "
                           "bad\n15001\n15002\n15003\n15004\n15005\n\n\n["));
    assert_non_null(strstr(shape.out.data, "20000\nFAILED\n20001\n"));
    assert_string_equal(buf_str(&shape.out), buf_str(&shape.err));
    shape_done(&shape);
    /* A success shows head and tail, but for stderr. */
    make(&out, &out, 100, SHAPE_CONCISE, false, &shape);
    assert_null(strstr(shape.out.data, "ERROR"));
    assert_non_null(strstr(shape.err.data, "ERROR"));
    assert_honest(&shape.out, &out);
    shape_done(&shape);
    buf_done(&out);
}

/* Whatever there is of errors and long lines, all rules hold. */
static void random_outputs_are_cut_honestly(void **state)
{
    static const char *const words[] = {
        "ok\n",
        "\n",
        "error: x\n",
        "warning ",
        "Traceback\n",
        "\303\251",
        "a long word of a long line that goes on and on ",
    };

    (void)state;
    srand(7);
    for (unsigned i = 0; i < 300; i++) {
        struct buf out = BUF_INIT(SIZE_MAX);
        size_t want = (size_t)rand() % 12000;
        struct shape shape;

        while (out.size < want) {
            add(&out, words[(size_t)rand() % ARRAY_SIZE(words)]);
        }
        make(&out, &out, 1 + (size_t)rand() % 3000, (enum shape_mode)(i % 6),
             i % 2, &shape);
        assert_honest(&shape.out, &out);
        assert_honest(&shape.err, &out);
        assert_true(shape.out.size <= 16384 && shape.err.size <= 65536);
        shape_done(&shape);
        buf_done(&out);
    }
}

static void an_error_is_known_by_its_words(void **state)
{
    static const struct {
        const char *line;
        bool error;
    } cases[] = {
        {"main.c:3:1: error: expected ';'", true},
        {"Traceback (most recent call last):", true},
        {"thread 'main' panicked at src/main.rs", true},
        {"FAIL: test_x", true},
        {"/bin/sh: 1: foo: not found", true},
        {"cat: x: No such file or directory", true},
        {"Segmentation fault", true},
        {"undefined reference to `x'", true},
        {"", false},
        {"all is well", false},
        {"compiling x.c", false},
        {"eerro", false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(cut_is_error(cases[i].line, strlen(cases[i].line)),
                         cases[i].error);
    }
}

static void hints_follow_the_exit_code(void **state)
{
    static const struct {
        int code;
        const char *part; /* NULL: no hint. */
    } cases[] = {
        {0, NULL},         {1, NULL},          {124, "timed out"},
        {126, "executed"}, {127, "not found"}, {128, NULL},
        {129, "signal"},   {137, "memory"},    {139, "Segmentation"},
        {141, "SIGPIPE"},  {143, "SIGTERM"},   {192, "signal"},
        {193, NULL},       {255, NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *hint = shape_hint(cases[i].code);

        assert_int_equal(hint != NULL, cases[i].part != NULL);
        assert_true(!hint || strstr(hint, cases[i].part));
    }
}

static void base64_is_strict(void **state)
{
    static const char *const bad[] = {
        "a",    "aa",   "aaa",  "a===", "YQ=a", "YQ==YQ==",
        "YR==", "YWJ=", "Y Q=", "====", "YQ=\n"};
    static const struct {
        const char *plain;
        const char *text;
    } good[] = {{"", ""},
                {"a", "YQ=="},
                {"ab", "YWI="},
                {"abc", "YWJj"},
                {"\377\376\375~", "//79fg=="}};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct buf out = BUF_INIT(64);

        assert_int_equal(base64_decode(bad[i], strlen(bad[i]), &out), -EINVAL);
        buf_done(&out);
    }
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct buf text = BUF_INIT(64);
        struct buf plain = BUF_INIT(64);

        assert_int_equal(
            base64_encode(good[i].plain, strlen(good[i].plain), &text), 0);
        assert_string_equal(buf_str(&text), good[i].text);
        assert_int_equal(base64_decode(buf_str(&text), text.size, &plain), 0);
        assert_string_equal(buf_str(&plain), good[i].plain);
        buf_done(&text);
        buf_done(&plain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_is_cleaned_in_whatever_pieces_it_comes),
        cmocka_unit_test(what_is_no_utf8_is_base64_of_its_first_bytes),
        cmocka_unit_test(a_long_text_is_cut_to_its_budget_and_says_so),
        cmocka_unit_test(a_text_of_just_the_budget_is_whole),
        cmocka_unit_test(no_character_is_cut_in_two),
        cmocka_unit_test(a_failure_shows_the_lines_round_its_errors),
        cmocka_unit_test(random_outputs_are_cut_honestly),
        cmocka_unit_test(an_error_is_known_by_its_words),
        cmocka_unit_test(hints_follow_the_exit_code),
        cmocka_unit_test(base64_is_strict),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
