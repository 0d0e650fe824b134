/* Base64 in the standard alphabet, padded, without line ends. */
#ifndef SESSIONFS_BASE64_H
#define SESSIONFS_BASE64_H

#include "core/buf.h"

/**
 * Appends bytes as base64.
 *
 * @param data borrowed
 * @param size bytes
 * @param out  appended to
 * @return 0, -EFBIG or -ENOMEM
 */
MUST_USE int base64_encode(const void *data, size_t size, struct buf *out);

/**
 * Appends the bytes that a text stands for.
 *
 * @param text borrowed
 * @param size bytes
 * @param out  appended to
 * @return 0, -EINVAL for what base64_encode() would not write, -EFBIG, -ENOMEM
 */
MUST_USE int base64_decode(const char *text, size_t size, struct buf *out);

#endif
