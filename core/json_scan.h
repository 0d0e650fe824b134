/*
 * Finds the end of a JSON object in a stream, byte by byte, and says as soon
 * as no further bytes could make it one. Needs no memory. What it lets pass,
 * js_parse() may still refuse: it looks at no value (duplicate keys, numbers
 * out of range).
 */
#ifndef SESSIONFS_JSON_SCAN_H
#define SESSIONFS_JSON_SCAN_H

#include "core/utf8.h"

#include <stddef.h>
#include <stdint.h>

enum {
    JS_SCAN_DEPTH = 64,     /* Deeper is refused, */
    JS_SCAN_VALUES = 65536, /* and so are more values than this. */
};

/* Zeroed: before the object. */
struct js_scan {
    unsigned char state; /* The scanner's own, like all members. */
    unsigned char depth;
    unsigned char count; /* Of digits of an escape, bytes of a word. */
    bool is_key;
    bool low_due; /* The second half of a surrogate pair must follow. */
    unsigned short unit;
    struct utf8 utf8;
    unsigned values;
    uint64_t objects; /* A bit for each depth: an object, not an array. */
    const char *word; /* true, false, null */
};

enum js_scan_result {
    JS_SCAN_MORE, /* All was taken, and the object goes on. */
    JS_SCAN_DONE, /* It is complete. */
    JS_SCAN_BAD,  /* It is no JSON object. */
};

/**
 * Takes bytes up to the end of the object.
 *
 * @param scan the object so far
 * @param data borrowed
 * @param size bytes
 * @param used how many of them were taken, unless it is bad; the rest is
 *             behind the object
 * @return what there is now
 */
enum js_scan_result js_scan_feed(struct js_scan *scan, const char *data,
                                 size_t size, size_t *used);

#endif
