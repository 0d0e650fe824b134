/* A directory for one test. */
#ifndef SESSIONFS_TESTS_SCRATCH_H
#define SESSIONFS_TESTS_SCRATCH_H

#include <stddef.h>

/**
 * Makes an empty directory, in $TMPDIR or /tmp.
 *
 * @param out  its path
 * @param size of out
 */
void scratch_make(char *out, size_t size);

/** @param dir removed with all in it; what cannot be fails the test */
void scratch_remove(const char *dir);

#endif
