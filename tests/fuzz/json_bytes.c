/* Bytes in JSON: they come back as they were, and a line that is none stays
 * none. */
#include "tests/fuzz/fuzz.h"

#include "core/json.h"
#include "core/json_bytes.h"

/* Gives bytes as a line. */
static void give_line(const char *data, size_t size, struct buf *line)
{
    struct buf text = BUF_INIT(SIZE_MAX);
    struct buf json = BUF_INIT(SIZE_MAX);
    struct js *list = js_array();

    DEMAND(js_bytes_give(data, size, &text) == 0);
    js_add_bytes(list, buf_str(&text), text.size);
    DEMAND(js_write(list, &json) == 0);
    DEMAND(js_bytes_write(buf_str(&json), json.size, line) == 0);
    js_free(list);
    buf_done(&text);
    buf_done(&json);
}

/* What the text of a line stands for, appended to a buffer. */
static int take(void *arg, const char *key, const struct js *value,
                struct err *err)
{
    size_t size = 0;

    (void)key;
    (void)err;
    if (js_type(value) == JS_TEXT) {
        const char *text = js_bytes(value, &size);

        DEMAND(js_bytes_take(text, size, arg) == 0);
    }
    return 0;
}

static bool take_line(const char *line, size_t size, struct buf *out)
{
    struct buf json = BUF_INIT(12 * size); /* As those who read lines have. */
    struct err err = ERR_INIT;
    struct js *js = NULL;
    bool is_json;

    DEMAND(js_bytes_read(line, size, &json) == 0);
    is_json = js_parse(buf_str(&json), json.size, &js, &err) == 0;
    if (is_json && js_type(js) == JS_ARRAY) {
        DEMAND(js_each(js, take, out, &err) == 0);
    }
    js_free(js);
    buf_done(&json);
    return is_json;
}

static bool has_control(const char *line, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if ((unsigned char)line[i] < ' ' && !strchr("\t\r\n", line[i])) {
            return true;
        }
    }
    return size && memchr(line, '\0', size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *given = fuzz_text(data, size);
    struct buf line = BUF_INIT(SIZE_MAX);
    struct buf bytes = BUF_INIT(SIZE_MAX);

    give_line(given, size, &line);
    DEMAND(take_line(buf_str(&line), line.size, &bytes));
    DEMAND(bytes.size == size && memcmp(buf_str(&bytes), given, size) == 0);
    buf_done(&bytes);
    if (take_line(given, size, &bytes)) {
        DEMAND(!has_control(given, size));
    }
    buf_done(&line);
    buf_done(&bytes);
    free(given);
    return 0;
}
