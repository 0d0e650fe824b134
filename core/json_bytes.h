/*
 * JSON whose texts are bytes, as Python writes names that are not UTF-8: a
 * byte that belongs to no character is the escape of a lone surrogate, \udc80
 * to \udcff. JSON proper has no such texts, so they are rewritten on the way:
 *
 *     line --js_bytes_read()--> js_parse(), js_text() --js_bytes_take()-->
 * bytes bytes --js_bytes_give()--> js_set_bytes(), js_write()
 *           --js_bytes_write()--> line
 *
 * In between a byte is a NUL and the character of its number, and a NUL is two
 * of them; every other text is itself.
 */
#ifndef SESSIONFS_JSON_BYTES_H
#define SESSIONFS_JSON_BYTES_H

#include "core/buf.h"

/**
 * Rewrites JSON for js_parse(). Bytes that are not UTF-8 may also stand for
 * themselves; a surrogate that stands for none becomes U+FFFD.
 *
 * @param json borrowed; not checked
 * @param size bytes
 * @param out  appended to
 * @return 0, -EFBIG or -ENOMEM
 */
MUST_USE int js_bytes_read(const char *json, size_t size, struct buf *out);

/**
 * Takes the bytes out of a text of such a value.
 *
 * @param text borrowed
 * @param size bytes
 * @param out  appended to
 * @return 0, -EFBIG or -ENOMEM
 */
MUST_USE int js_bytes_take(const char *text, size_t size, struct buf *out);

/**
 * Makes a text of bytes.
 *
 * @param data borrowed
 * @param size bytes
 * @param out  appended to: UTF-8
 * @return 0, -EFBIG or -ENOMEM
 */
MUST_USE int js_bytes_give(const char *data, size_t size, struct buf *out);

/**
 * Rewrites what js_write() wrote; it never gets longer.
 *
 * @param json borrowed
 * @param size bytes
 * @param out  appended to
 * @return 0, -EFBIG or -ENOMEM
 */
MUST_USE int js_bytes_write(const char *json, size_t size, struct buf *out);

#endif
