/* Quoting. See quote.h. */
#include "core/quote.h"

#include "core/utf8.h"

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

static bool is_plain(const char *path)
{
    struct utf8 utf8 = {0};

    for (; *path; path++) {
        unsigned char c = (unsigned char)*path;

        if (c < ' ' || c == '\177' || c == '"' || c == '\\' ||
            !utf8_step(&utf8, c)) {
            return false;
        }
    }
    return utf8.left == 0;
}

int quote_path(struct buf *out, const char *path)
{
    return is_plain(path) ? buf_add(out, path, strlen(path))
                          : quote_c(out, path);
}

/* The bytes of the character that a text begins with; 0: it is no UTF-8. */
static size_t char_size(const char *text)
{
    struct utf8 utf8 = {0, 0, 0};
    size_t size = 0;

    do {
        if (!text[size] || !utf8_step(&utf8, (unsigned char)text[size])) {
            return 0;
        }
        size++;
    } while (utf8.left);
    return size;
}

int quote_words(struct buf *out, const char *text)
{
    int rc = 0;

    while (rc == 0 && *text) {
        size_t size = char_size(text);
        bool plain = size > 0 && (unsigned char)*text >= ' ' && *text != '\177';

        rc = plain ? buf_add(out, text, size) : buf_add(out, "?", 1);
        text += size ? size : 1;
    }
    return rc;
}
