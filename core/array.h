/* Arrays that grow by one. */
#ifndef SESSIONFS_ARRAY_H
#define SESSIONFS_ARRAY_H

#include "core/compiler.h"

#include <stdlib.h>

enum {
    ARRAY_FIRST = 16 /* How many have room at first. */
};

/**
 * Makes room for one more in an array; each time for twice as many.
 *
 * @param list  NULL at first
 * @param count how many it has
 * @param room  how many have room in it, 0 at first; written on success
 * @param size  of one
 * @return the array in the place of `list`; NULL without memory: `list` is as
 *         it was
 */
MUST_USE static inline void *array_grow(void *list, size_t count, size_t *room,
                                        size_t size)
{
    const size_t most = *room ? *room * 2 : ARRAY_FIRST;
    void *wide;

    if (count < *room) {
        return list;
    }
    wide = reallocarray(list, most, size);
    if (wide) {
        *room = most;
    }
    return wide;
}

#endif
