/* JSON by jansson. See json.h. */
#include "core/json.h"

#include "core/clock.h"
#include "core/quote.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct js {
    json_t *value;
    bool failed; /* Something could not be set. */
};

enum {
    PARSE_FLAGS = JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES
};

/* Wraps a value, which is taken. */
static struct js *wrap(json_t *value)
{
    struct js *js = value ? calloc(1, sizeof(*js)) : NULL;

    if (!js) {
        json_decref(value);
        return NULL;
    }
    js->value = value;
    return js;
}

struct js *js_object(void)
{
    return wrap(json_object());
}

struct js *js_array(void)
{
    return wrap(json_array());
}

/* Where the string ends that begins before `at`. */
static size_t string_end(const char *text, size_t size, size_t at)
{
    while (at < size && text[at] != '"') {
        at += text[at] == '\\' ? 2 : 1;
    }
    return at;
}

/* Whether there are so many values that they would take much more memory than
 * their text. */
static bool has_too_many(const char *text, size_t size)
{
    size_t n = 0;

    for (size_t at = 0; at < size; at++) {
        if (text[at] == '"') {
            at = string_end(text, size, at + 1);
        } else {
            n += text[at] == ',' || text[at] == '[' || text[at] == '{';
        }
    }
    return n > JS_VALUES_MAX;
}

int js_parse(const char *text, size_t size, struct js **out, struct err *err)
{
    json_error_t why;
    json_t *value;
    struct js *js;

    if (has_too_many(text, size)) {
        return err_set(err, EINVAL, "over %d values", JS_VALUES_MAX);
    }
    value = json_loadb(text, size, PARSE_FLAGS | JSON_DECODE_ANY, &why);
    if (!value) {
        /* Without the text that it is near to, which may be a secret. */
        const char *near = strstr(why.text, " near ");
        int len = near ? (int)(near - why.text) : (int)strlen(why.text);

        return err_set(err, EINVAL, "line %d, column %d: %.*s", why.line,
                       why.column, len, why.text);
    }
    if (memchr(text, '\0', size)) { /* jansson overlooks some. */
        json_decref(value);
        return err_set(err, EINVAL, "a NUL byte between tokens");
    }
    js = wrap(value);
    if (!js) {
        return err_no_memory(err);
    }
    *out = js;
    return 0;
}

void js_free(struct js *js)
{
    if (js) {
        json_decref(js->value);
        free(js);
    }
}

static void set(struct js *js, const char *key, json_t *value)
{
    if (!js) {
        json_decref(value);
    } else if (json_object_set_new(js->value, key, value) < 0) {
        js->failed = true;
    }
}

/* Text that is no UTF-8, as one cut within a character: what is none is
 * replaced. */
static json_t *mended_text(const char *text)
{
    struct buf mended = BUF_INIT(strlen(text) + 1);
    json_t *value = NULL;

    if (quote_words(&mended, text) == 0) {
        value = json_string(buf_str(&mended));
    }
    buf_done(&mended);
    return value;
}

void js_set_text(struct js *js, const char *key, const char *text)
{
    json_t *value = text ? json_string(text) : json_null();

    set(js, key, value ? value : mended_text(text));
}

void js_set_bytes(struct js *js, const char *key, const char *text, size_t size)
{
    set(js, key, json_stringn(text, size));
}

void js_add_bytes(struct js *js, const char *text, size_t size)
{
    json_t *value = json_stringn(text, size);

    if (!js) {
        json_decref(value);
    } else if (json_array_append_new(js->value, value) < 0) {
        js->failed = true;
    }
}

void js_set_null(struct js *js, const char *key)
{
    set(js, key, json_null());
}

void js_set_int(struct js *js, const char *key, int64_t value)
{
    set(js, key, json_integer(value));
}

void js_set_bool(struct js *js, const char *key, bool value)
{
    set(js, key, json_boolean(value));
}

void js_set_time(struct js *js, const char *key, int64_t value)
{
    char text[CLOCK_TEXT_SIZE];

    if (value == 0) {
        set(js, key, json_null());
        return;
    }
    clock_format(value, text);
    set(js, key, json_string(text));
}

void js_set(struct js *js, const char *key, struct js *value)
{
    json_t *inner = value && !value->failed ? json_incref(value->value) : NULL;

    js_free(value);
    set(js, key, inner);
}

void js_set_raw(struct js *js, const char *key, const char *text)
{
    json_t *value =
        text ? json_loads(text, PARSE_FLAGS | JSON_DECODE_ANY, NULL) : NULL;

    set(js, key, value ? value : json_null());
}

bool js_is_object(const struct js *js)
{
    return js && json_is_object(js->value);
}

const char *js_text(const struct js *js, const char *key)
{
    return json_string_value(json_object_get(js->value, key));
}

struct js *js_get(const struct js *js, const char *key)
{
    return wrap(json_incref(json_object_get(js->value, key)));
}

enum js_type js_type(const struct js *js)
{
    switch (json_typeof(js->value)) {
    case JSON_OBJECT:
        return JS_OBJECT;
    case JSON_ARRAY:
        return JS_ARRAY;
    case JSON_STRING:
        return JS_TEXT;
    case JSON_INTEGER:
        return JS_INT;
    case JSON_REAL:
        return JS_REAL;
    case JSON_TRUE:
    case JSON_FALSE:
        return JS_BOOL;
    case JSON_NULL:
        break;
    }
    return JS_NULL;
}

const char *js_bytes(const struct js *js, size_t *size)
{
    *size = json_string_length(js->value);
    return json_string_value(js->value);
}

int64_t js_int(const struct js *js)
{
    return json_integer_value(js->value);
}

bool js_bool(const struct js *js)
{
    return json_is_true(js->value);
}

size_t js_count(const struct js *js)
{
    return json_is_array(js->value) ? json_array_size(js->value)
                                    : json_object_size(js->value);
}

static int each_item(json_t *array, js_each_fn *fn, void *arg, struct err *err)
{
    int rc = 0;

    for (size_t i = 0; i < json_array_size(array) && rc == 0; i++) {
        struct js item = {.value = json_array_get(array, i)};

        rc = fn(arg, NULL, &item, err);
    }
    return rc;
}

int js_each(const struct js *js, js_each_fn *fn, void *arg, struct err *err)
{
    const char *key;
    json_t *value;

    if (json_is_array(js->value)) {
        return each_item(js->value, fn, arg, err);
    }
    json_object_foreach(js->value, key, value)
    {
        struct js member = {.value = value};
        int rc = fn(arg, key, &member, err);

        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* Where a dump goes, and why it would stop. */
struct dump {
    struct buf *out;
    int rc;
};

static int add_text(const char *data, size_t size, void *arg)
{
    struct dump *dump = arg;
    int rc = buf_add(dump->out, data, size);

    if (rc < 0) {
        dump->rc = rc;
    }
    return rc;
}

static int write_value(const struct js *js, size_t flags, struct buf *out)
{
    struct dump dump = {.out = out, .rc = -ENOMEM};

    if (!js || js->failed) {
        return -ENOMEM;
    }
    return json_dump_callback(js->value, add_text, &dump,
                              JSON_ENCODE_ANY | flags) < 0
               ? dump.rc
               : 0;
}

int js_write(const struct js *js, struct buf *out)
{
    return write_value(js, JSON_COMPACT, out);
}

int js_write_lines(const struct js *js, struct buf *out)
{
    return write_value(js, JSON_INDENT(2), out);
}

bool js_equal(const struct js *a, const struct js *b)
{
    return a && b ? json_equal(a->value, b->value) : a == b;
}
