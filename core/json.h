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

/** @return an empty object, or NULL without memory, which all here take */
struct js *js_object(void);

/**
 * Parses one value; NUL escapes are allowed, duplicate keys are not.
 *
 * @param text borrowed
 * @param size bytes
 * @param out  the value, on success
 * @param err  filled on failure: where and why
 * @return 0, -EINVAL or -ENOMEM
 */
MUST_USE int js_parse(const char *text, size_t size, struct js **out,
                      struct err *err);

/** @param js freed; NULL is fine */
void js_free(struct js *js);

/** @param js an object @param key of it @param text bytes that are not UTF-8
 *  come out as `?`; NULL gives null */
void js_set_text(struct js *js, const char *key, const char *text);
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

/**
 * Appends the value as text.
 *
 * @param js  a value
 * @param out appended to, without a final newline; on failure a part of it
 * @return 0, -EFBIG or -ENOMEM
 */
MUST_USE int js_write(const struct js *js, struct buf *out);

#endif
