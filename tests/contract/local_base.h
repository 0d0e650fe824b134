/* What the tests of `local` over a base directory share. */
#ifndef SESSIONFS_TESTS_LOCAL_BASE_H
#define SESSIONFS_TESTS_LOCAL_BASE_H

#include "core/cleanup.h"
#include "tests/contract/bench.h"

/* A directory of this machine, and a config that names it. */
struct base {
    char dir[BENCH_PATH];
    char config[BENCH_PATH + 32];
};

/** @return how many failed */
int suite_base_changes(void);
/** @return how many failed */
int suite_base_places(void);
/** @return how many failed */
int suite_base_rootfs(void);

/** @param bench an open one @param base made in its directory
 *  @param script that fills it */
void base_make(struct bench *bench, struct base *base, const char *script);
/** @param base a base @param script run in it, on this machine */
void base_sh(const struct base *base, const char *script);
/** @param base removed */
void base_remove(const struct base *base);
/** @param bench an open one @param box made, over the base, and running
 *  @param base a base */
void base_create(struct bench *bench, struct bench_box *box,
                 const struct base *base);
/** @param bench an open one @param box over a base @param expect lines of a
 *  letter, a blank and a path: what its changes must be */
void base_changes(struct bench *bench, struct bench_box *box,
                  const char *expect);

#endif
