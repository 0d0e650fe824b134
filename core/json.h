/*
 * JSON values. The only module that knows jansson.
 *
 * Building does not fail at each step: an object that met a lack of memory
 * remembers it, and js_write() tells. Values are not shared between threads.
 */
#ifndef SESSIONFS_JSON_H
#define SESSIONFS_JSON_H

#include "core/buf.h"
#include "core/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct js;

enum {
    JS_VALUES_MAX = 1000000 /* In one text: each takes a hundred bytes. */
};

/** @return an empty object, or NULL without memory, which all here take */
struct js *js_object(void);
/** @return an empty array, or NULL without memory, which all here take */
struct js *js_array(void);

/**
 * Parses one value; NUL escapes are allowed, duplicate keys are not.
 *
 * @param text borrowed
 * @param size bytes
 * @param out  the value, on success
 * @param err  filled on failure: where and why
 * @return 0, -EINVAL, also for over JS_VALUES_MAX values, or -ENOMEM
 */
MUST_USE int js_parse(const char *text, size_t size, struct js **out,
                      struct err *err);

/** @param js freed; NULL is fine */
void js_free(struct js *js);

/** @param js an object @param key of it @param text bytes that are not UTF-8
 *  come out as `?`; NULL gives null */
void js_set_text(struct js *js, const char *key, const char *text);
/** @param js an object @param key of it @param text UTF-8; NULs may be inside
 *  @param size bytes */
void js_set_bytes(struct js *js, const char *key, const char *text,
                  size_t size);
/** @param js an array @param text UTF-8, appended; NULs may be inside
 *  @param size bytes */
void js_add_bytes(struct js *js, const char *text, size_t size);
/** @param js an object @param key of it; gets null */
void js_set_null(struct js *js, const char *key);
/** @param js an object @param key of it @param value a number */
void js_set_int(struct js *js, const char *key, int64_t value);
/** @param js an object @param key of it @param value true or false */
void js_set_bool(struct js *js, const char *key, bool value);
/** @param js an object @param key of it @param value a clock_wall_us() value
 *  as RFC 3339; 0 gives null */
void js_set_time(struct js *js, const char *key, int64_t value);
/** @param js an object @param key of it @param value taken */
void js_set(struct js *js, const char *key, struct js *value);
/** @param js an object @param key of it @param text JSON as it is; what does
 *  not parse, and NULL, give null */
void js_set_raw(struct js *js, const char *key, const char *text);

/** @param js a value @return whether it is an object */
bool js_is_object(const struct js *js);
/** @param js an object @param key of it @return its text, borrowed, or NULL */
const char *js_text(const struct js *js, const char *key);
/** @param js an object @param key of it @return its value as a value of its
 *  own, or NULL when there is none */
struct js *js_get(const struct js *js, const char *key);

enum js_type {
    JS_NULL,
    JS_BOOL,
    JS_INT,
    JS_REAL,
    JS_TEXT,
    JS_ARRAY,
    JS_OBJECT,
};

/** @param js a value @return what it is */
enum js_type js_type(const struct js *js);
/** @param js a text @param size its bytes @return it, borrowed */
const char *js_bytes(const struct js *js, size_t *size);
/** @param js an integer @return it */
int64_t js_int(const struct js *js);
/** @param js a bool @return it */
bool js_bool(const struct js *js);
/** @param js an array or object @return how many values it has */
size_t js_count(const struct js *js);

/**
 * Called for each value of an array or object.
 *
 * @param arg   the caller's
 * @param key   in an object, else NULL; borrowed
 * @param value borrowed for the call
 * @param err   filled on failure
 * @return 0, or a negative errno, which ends the walk
 */
typedef int js_each_fn(void *arg, const char *key, const struct js *value,
                       struct err *err);

/**
 * Tells the values of an array or object, in their order.
 *
 * @param js  an array or object
 * @param fn  called for each
 * @param arg given to fn
 * @param err filled on failure
 * @return 0 or what fn said
 */
MUST_USE int js_each(const struct js *js, js_each_fn *fn, void *arg,
                     struct err *err);

/**
 * Appends the value as text.
 *
 * @param js  a value
 * @param out appended to, without a final newline; on failure a part of it
 * @return 0, -EFBIG or -ENOMEM
 */
MUST_USE int js_write(const struct js *js, struct buf *out);

/** As js_write(), in lines for people. @param js a value @param out appended
 *  to @return 0, -EFBIG or -ENOMEM */
MUST_USE int js_write_lines(const struct js *js, struct buf *out);

/** @param a a value @param b a value; NULL is like no other but NULL
 *  @return whether they are the same, whatever the order of members */
bool js_equal(const struct js *a, const struct js *b);

#endif
