/* What the tests of `local` share. */
#ifndef SESSIONFS_TESTS_LOCAL_H
#define SESSIONFS_TESTS_LOCAL_H

#include <sys/types.h>

/** @return how many failed */
int suite_local_adopt(void);
/** @return how many failed */
int suite_local_escapes(void);
/** @return how many failed */
int suite_local_isolation(void);
/** @return how many failed */
int suite_local_keeper(void);
/** @return how many failed */
int suite_local_leftovers(void);

/** Finds a program that is built beside this one. @param name of it
 *  @param path BENCH_PATH bytes */
void local_beside(const char *name, char *path);

#endif
