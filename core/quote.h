/* Bytes made safe for one line of text. */
#ifndef SESSIONFS_QUOTE_H
#define SESSIONFS_QUOTE_H

#include "core/buf.h"

/**
 * Appends a string in double quotes, as C writes it: control characters, `"`,
 * `\` and bytes above 126 come out as escapes.
 *
 * @param out  appended to
 * @param text any bytes, NUL-terminated
 * @return 0, -EFBIG or -ENOMEM
 */
MUST_USE int quote_c(struct buf *out, const char *text);

/**
 * Appends a path as it is, or as quote_c() does where it has control
 * characters, `"`, `\\` or bytes that are no UTF-8: as git does with
 * core.quotePath off.
 *
 * @param out  appended to
 * @param path any bytes, NUL-terminated
 * @return 0, -EFBIG or -ENOMEM
 */
MUST_USE int quote_path(struct buf *out, const char *path);

/**
 * Appends words for people, with control characters, and bytes that are no
 * UTF-8, as `?`.
 *
 * @param out  appended to
 * @param text any bytes, NUL-terminated
 * @return 0, -EFBIG or -ENOMEM
 */
MUST_USE int quote_words(struct buf *out, const char *text);

#endif
