/*
 * Cleans a stream of a command's output as it comes, piece by piece, for
 * exec_shape: escape sequences go, and of each line only the text after its
 * last carriage return stays; those right before its end belong to the end.
 *
 * Positions count bytes of the clean text. Since a carriage return takes back
 * what its line had, a place may be told more than once: the last counts.
 */
#ifndef SESSIONFS_EXEC_CLEAN_H
#define SESSIONFS_EXEC_CLEAN_H

#include "core/utf8.h"

#include <stddef.h>
#include <stdint.h>

struct clean {
    /* All are called with arg; may be NULL. */
    void (*text)(void *arg, uint64_t pos, const char *data, size_t size);
    /* What came from `pos` on is void. */
    void (*back)(void *arg, uint64_t pos);
    /* A line ended, with its newline, at pos. */
    void (*line)(void *arg, uint64_t pos);
    void *arg;

    uint64_t pos;   /* Where the next byte goes. */
    uint64_t start; /* Of the present line. */
    uint64_t lines; /* That have ended. */
    bool bad;       /* It is not UTF-8. */
    struct utf8 utf8;
    unsigned char state; /* Its own, */
    bool returned;       /* like this. */
};

/** @param clean zeroed but for its functions @param data borrowed
 *  @param size bytes */
void clean_feed(struct clean *clean, const char *data, size_t size);

/** @param clean whose stream is at its end */
void clean_end(struct clean *clean);

#endif
