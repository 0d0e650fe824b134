/* See json_bytes.h. */
#include "core/json_bytes.h"

#include "core/utf8.h"

#include <stdint.h>
#include <string.h>

enum {
    ESCAPE_SIZE = 6, /* \uXXXX */
    HIGH = 0xd800,   /* Surrogates: the first half of a pair, */
    LOW = 0xdc00,    /* and the second. */
    BEHIND = 0xe000,
    PLAIN = 0x80, /* Lower bytes are characters. */
};

/* How long the character is that a text begins with; 0: it is none. */
static size_t character(const char *text, size_t size)
{
    struct utf8 utf8 = {0, 0, 0};

    for (size_t i = 0; i < size; i++) {
        if (!utf8_step(&utf8, (unsigned char)text[i])) {
            return 0;
        }
        if (utf8.left == 0) {
            return i + 1;
        }
    }
    return 0;
}

/* How many bytes go on without anything that needs a look. */
static size_t plain(const char *text, size_t size)
{
    size_t n = 0;

    while (n < size && (unsigned char)text[n] < PLAIN && text[n] != '\\' &&
           text[n] != '\0') {
        n++;
    }
    return n;
}

static int hex(char c)
{
    static const char letters[] = "abcdef";
    const char *at = c ? strchr(letters, c | ('a' - 'A')) : NULL;

    return c >= '0' && c <= '9' ? c - '0' : at ? (int)(at - letters) + 10 : -1;
}

/* The number of an escape that a text begins with; -1: there is none. */
static int unit(const char *text, size_t size)
{
    int number = 0;

    if (size < ESCAPE_SIZE || text[0] != '\\' || text[1] != 'u') {
        return -1;
    }
    for (int i = 2; i < ESCAPE_SIZE && number >= 0; i++) {
        int digit = hex(text[i]);

        number = digit < 0 ? -1 : number << 4 | digit;
    }
    return number;
}

static bool is_low(int number)
{
    return number >= LOW && number < BEHIND;
}

/* The byte that a character of two bytes is the number of. */
static unsigned byte_of(const char *text)
{
    return ((unsigned char)text[0] & 3U) << 6 |
           ((unsigned char)text[1] & (PLAIN / 2 - 1U));
}

/* ---- From a line ---- */

static int read_byte(unsigned byte, struct buf *out)
{
    return buf_printf(out, "\\u0000\\u%04x", byte);
}

/* Takes an escape, or the two of a pair. */
static int read_escape(const char *text, size_t size, size_t *used,
                       struct buf *out)
{
    int number = unit(text, size);

    *used = number < 0 ? (size > 1 ? 2 : 1) : ESCAPE_SIZE;
    if (number >= HIGH && number < LOW &&
        is_low(unit(text + ESCAPE_SIZE, size - ESCAPE_SIZE))) {
        *used = 2 * (size_t)ESCAPE_SIZE;
        return buf_add(out, text, *used);
    }
    if (number == 0) {
        return read_byte(0, out);
    }
    if (number >= LOW + PLAIN && number <= LOW + UINT8_MAX) {
        return read_byte((unsigned)(number - LOW), out);
    }
    return number >= HIGH && number < BEHIND ? buf_printf(out, "\\ufffd")
                                             : buf_add(out, text, *used);
}

int js_bytes_read(const char *json, size_t size, struct buf *out)
{
    int rc = 0;

    while (size && rc == 0) {
        size_t used = plain(json, size);

        if (used) {
            rc = buf_add(out, json, used);
        } else if (*json == '\\') {
            rc = read_escape(json, size, &used, out);
        } else {
            used = character(json, size);
            rc = used ? buf_add(out, json, used)
                      : read_byte((unsigned char)*json, out);
            used = used ? used : 1;
        }
        json += used;
        size -= used;
    }
    return rc;
}

/* ---- To a line ---- */

/* Takes an escape that js_write() wrote, with what belongs to it. */
static int write_escape(const char *json, size_t size, size_t *used,
                        struct buf *out)
{
    if (unit(json, size) != 0) {
        *used = size > 1 ? 2 : 1;
        return buf_add(out, json, *used);
    }
    json += ESCAPE_SIZE;
    size -= ESCAPE_SIZE;
    if (unit(json, size) == 0) {
        *used = 2 * (size_t)ESCAPE_SIZE;
        return buf_add(out, json, ESCAPE_SIZE);
    }
    *used = ESCAPE_SIZE + (size < 2 ? size : 2);
    return size < 2 ? 0 : buf_printf(out, "\\udc%02x", byte_of(json));
}

int js_bytes_write(const char *json, size_t size, struct buf *out)
{
    int rc = 0;

    while (size && rc == 0) {
        const char *at = memchr(json, '\\', size);
        size_t used = at ? (size_t)(at - json) : size;

        rc = used ? buf_add(out, json, used)
                  : write_escape(json, size, &used, out);
        json += used;
        size -= used;
    }
    return rc;
}

/* ---- Texts ---- */

int js_bytes_take(const char *text, size_t size, struct buf *out)
{
    int rc = 0;

    while (size && rc == 0) {
        const char *at = memchr(text, '\0', size);
        size_t used = at ? (size_t)(at - text) : size;

        if (used) {
            rc = buf_add(out, text, used);
        } else if (size > 2 && text[1]) {
            unsigned char byte = (unsigned char)byte_of(text + 1);

            used = 3;
            rc = buf_add(out, &byte, 1);
        } else {
            used = size > 1 ? 2 : 1;
            rc = buf_add(out, "", 1);
        }
        text += used;
        size -= used;
    }
    return rc;
}

/* A NUL, and the character of a byte's number. */
static int give_byte(unsigned char byte, struct buf *out)
{
    const unsigned char text[] = {0, (unsigned char)(0xc0 | byte >> 6),
                                  (unsigned char)(PLAIN | (byte & 0x3f))};

    return byte ? buf_add(out, text, sizeof(text)) : buf_add(out, "\0", 2);
}

int js_bytes_give(const char *data, size_t size, struct buf *out)
{
    int rc = 0;

    while (size && rc == 0) {
        size_t used = *data ? character(data, size) : 0;

        rc = used ? buf_add(out, data, used)
                  : give_byte((unsigned char)*data, out);
        used = used ? used : 1;
        data += used;
        size -= used;
    }
    return rc;
}
