/* UTF-8, checked byte by byte. A zeroed object begins a text. */
#ifndef SESSIONFS_UTF8_H
#define SESSIONFS_UTF8_H

#include <stdbool.h>

struct utf8 {
    unsigned char left; /* Bytes that the present character still needs, */
    unsigned char low;  /* the next of them in this range. */
    unsigned char high;
};

/* Begins a character of more than one byte. */
static inline bool utf8_lead(struct utf8 *utf8, unsigned char byte)
{
    if (byte < 0xc2 || byte > 0xf4) {
        return false;
    }
    utf8->left = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
    utf8->low = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
    utf8->high = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
    return true;
}

/**
 * Takes a byte.
 *
 * @param utf8 the text so far; between characters while left is 0
 * @param byte the next
 * @return false: this is no UTF-8
 */
static inline bool utf8_step(struct utf8 *utf8, unsigned char byte)
{
    if (utf8->left == 0) {
        return byte < 0x80 || utf8_lead(utf8, byte);
    }
    if (byte < utf8->low || byte > utf8->high) {
        return false;
    }
    utf8->left--;
    utf8->low = 0x80;
    utf8->high = 0xbf;
    return true;
}

#endif
