/* Growing bytes. See buf.h. */
#include "core/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_init(struct buf *buf, size_t cap)
{
    *buf = (struct buf)BUF_INIT(cap);
}

void buf_done(struct buf *buf)
{
    free(buf->data);
    buf_init(buf, buf->cap);
}

/* Makes room for `more` bytes and a NUL. */
static int reserve(struct buf *buf, size_t more)
{
    size_t room = buf->room ? buf->room : 64;
    char *data;

    if (more > buf->cap - buf->size) {
        return -EFBIG;
    }
    if (buf->size + more + 1 <= buf->room) {
        return 0;
    }
    while (room < buf->size + more + 1) {
        room *= 2;
    }
    data = realloc(buf->data, room);
    if (!data) {
        return -ENOMEM;
    }
    buf->data = data;
    buf->room = room;
    return 0;
}

int buf_add(struct buf *buf, const void *data, size_t size)
{
    int rc = reserve(buf, size);

    if (rc < 0) {
        return rc;
    }
    if (size) {
        memcpy(buf->data + buf->size, data, size);
    }
    buf->size += size;
    buf->data[buf->size] = '\0';
    return 0;
}

int buf_printf(struct buf *buf, const char *fmt, ...)
{
    va_list va;
    int n, rc;

    va_start(va, fmt);
    n = vsnprintf(NULL, 0, fmt, va);
    va_end(va);
    if (n < 0) {
        return -EINVAL;
    }
    rc = reserve(buf, (size_t)n);
    if (rc < 0) {
        return rc;
    }
    va_start(va, fmt);
    (void)vsnprintf(buf->data + buf->size, (size_t)n + 1, fmt, va);
    va_end(va);
    buf->size += (size_t)n;
    return 0;
}

const char *buf_str(const struct buf *buf)
{
    return buf->data ? buf->data : "";
}

bool buf_blank(const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (data[i] == '\0' || !strchr(" \t\n\v\f\r", data[i])) {
            return false;
        }
    }
    return true;
}
