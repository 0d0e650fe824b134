/*
 * What the targets share. A target is a function that libFuzzer, or replay.c,
 * calls with bytes: it must end, and whatever it finds wrong aborts.
 */
#ifndef SESSIONFS_TESTS_FUZZ_H
#define SESSIONFS_TESTS_FUZZ_H

#include "core/buf.h"
#include "core/err.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** @param data borrowed @param size bytes @return 0 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Demands that something holds, also without asserts. */
#define DEMAND(what)                                                           \
    do {                                                                       \
        if (!(what)) {                                                         \
            (void)fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__,   \
                          #what);                                              \
            abort();                                                           \
        }                                                                      \
    } while (0)

/* Demands that an error is filled exactly when something failed. */
#define DEMAND_ERR(rc, err)                                                    \
    DEMAND((rc) < 0 ? (err)->code == -(rc) : !(err)->code)

/** @param data borrowed @param size bytes @return a copy of just this size
 *  with a NUL behind, so that what reads further is seen; free() it */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    DEMAND(text);
    if (size) {
        memcpy(text, data, size);
    }
    text[size] = '\0';
    return text;
}

#endif
