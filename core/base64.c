/* See base64.h. */
#include "core/base64.h"

#include <errno.h>
#include <string.h>

static const char alphabet[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int base64_encode(const void *data, size_t size, struct buf *out)
{
    const unsigned char *bytes = data;
    int rc = 0;

    for (size_t i = 0; i < size && rc == 0; i += 3) {
        size_t n = size - i < 3 ? size - i : 3;
        unsigned bits = (unsigned)bytes[i] << 16;
        char four[4];

        bits |= n > 1 ? (unsigned)bytes[i + 1] << 8 : 0;
        bits |= n > 2 ? (unsigned)bytes[i + 2] : 0;
        four[0] = alphabet[bits >> 18];
        four[1] = alphabet[bits >> 12 & 63];
        four[2] = alphabet[bits >> 6 & 63];
        four[3] = alphabet[bits & 63];
        memset(four + n + 1, '=', 3 - n);
        rc = buf_add(out, four, sizeof(four));
    }
    return rc;
}

static int value_of(char c)
{
    const char *at = c ? strchr(alphabet, c) : NULL;

    return at ? (int)(at - alphabet) : -1;
}

/* Four characters, of which the last `pad` are `=`. */
static int decode_four(const char *four, size_t pad, struct buf *out)
{
    unsigned bits = 0;
    char three[3];

    for (size_t i = 0; i < 4; i++) {
        int value = i < 4 - pad ? value_of(four[i]) : 0;

        if (value < 0) {
            return -EINVAL;
        }
        bits = bits << 6 | (unsigned)value;
    }
    /* Bits that stand for nothing are zero. */
    if (pad && (bits & ((1U << 8 * pad) - 1)) != 0) {
        return -EINVAL;
    }
    three[0] = (char)(bits >> 16);
    three[1] = (char)(bits >> 8 & 0xff);
    three[2] = (char)(bits & 0xff);
    return buf_add(out, three, 3 - pad);
}

int base64_decode(const char *text, size_t size, struct buf *out)
{
    int rc = size % 4 ? -EINVAL : 0;

    for (size_t i = 0; i < size && rc == 0; i += 4) {
        size_t pad = 0;

        if (i + 4 == size && text[i + 3] == '=') {
            pad = text[i + 2] == '=' ? 2 : 1;
        }
        rc = decode_four(text + i, pad, out);
    }
    return rc;
}
