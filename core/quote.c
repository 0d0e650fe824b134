/* Quoting. See quote.h. */
#include "core/quote.h"

#include <string.h>

static int quote_byte(struct buf *out, unsigned char c)
{
    static const char plain[] = "\a\b\t\n\v\f\r\"\\";
    static const char letter[] = "abtnvfr\"\\";
    const char *at = c ? strchr(plain, c) : NULL;

    if (at) {
        return buf_printf(out, "\\%c", letter[at - plain]);
    }
    if (c < ' ' || c > '~') {
        return buf_printf(out, "\\%03o", c);
    }
    return buf_add(out, &c, 1);
}

int quote_c(struct buf *out, const char *text)
{
    int rc = buf_add(out, "\"", 1);

    for (; rc == 0 && *text; text++) {
        rc = quote_byte(out, (unsigned char)*text);
    }
    return rc < 0 ? rc : buf_add(out, "\"", 1);
}

int quote_words(struct buf *out, const char *text)
{
    size_t at = out->size;
    int rc = buf_add(out, text, strlen(text));

    for (; rc == 0 && at < out->size; at++) {
        unsigned char c = (unsigned char)out->data[at];

        if (c < ' ' || c == '\177') {
            out->data[at] = '?';
        }
    }
    return rc;
}
