/*
 * Bytes that grow up to a cap. Zero is not a valid state: use buf_init() or
 * BUF_INIT, and buf_done() at the end. Not shared between threads.
 */
#ifndef SESSIONFS_BUF_H
#define SESSIONFS_BUF_H

#include "core/compiler.h"

#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *data;  /* NULL while nothing was added; else NUL behind the end. */
    size_t size; /* Bytes in use, the NUL not counted. */
    size_t room; /* Bytes allocated. */
    size_t cap;  /* More than this is -EFBIG. */
};

#define BUF_INIT(cap_)                                                         \
    {                                                                          \
        .data = NULL, .size = 0, .room = 0, .cap = (cap_)                      \
    }

/**
 * Makes an empty buffer.
 *
 * @param buf written
 * @param cap the most bytes it may ever hold
 */
void buf_init(struct buf *buf, size_t cap);

/**
 * Frees what the buffer holds; it is empty and usable afterwards.
 *
 * @param buf the buffer
 */
void buf_done(struct buf *buf);

/**
 * Appends bytes.
 *
 * @param buf  the buffer
 * @param data borrowed
 * @param size how many bytes
 * @return 0, -EFBIG over the cap, -ENOMEM; the buffer is unchanged then
 */
MUST_USE int buf_add(struct buf *buf, const void *data, size_t size);

/**
 * Appends formatted text.
 *
 * @param buf the buffer
 * @param fmt printf format
 * @return 0, -EFBIG over the cap, -ENOMEM; the buffer is unchanged then
 */
MUST_USE int buf_printf(struct buf *buf, const char *fmt, ...) PRINTF(2, 3);

/**
 * The text of the buffer.
 *
 * @param buf the buffer
 * @return its data, NUL-terminated, "" while it is empty; borrowed
 */
const char *buf_str(const struct buf *buf);

/**
 * @param data borrowed
 * @param size bytes
 * @return whether there is nothing but blanks and line ends
 */
bool buf_blank(const char *data, size_t size);

#endif
