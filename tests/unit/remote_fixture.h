/* A tree over the file calls of `mem`, which are counted. */
#ifndef SESSIONFS_TESTS_REMOTE_FIXTURE_H
#define SESSIONFS_TESTS_REMOTE_FIXTURE_H

#include "tests/unit/workspace_fixture.h"

/** @param state gets a fixture @return 0 */
int remote_fixture_setup(void **state);
/** @param state gets one over an engine that has only what it must have
 *  @return 0 */
int remote_fixture_setup_plain(void **state);
/** @param state ended @return 0 */
int remote_fixture_teardown(void **state);

/** @param fx a fixture @return calls of the engine's files so far */
uint64_t remote_fixture_calls(const struct fixture *fx);
/** @param fx a fixture @return those that failed */
uint64_t remote_fixture_failures(const struct fixture *fx);

/** @param fx a fixture @return another one over the same files, as if somebody
 *  else had them */
struct fixture *remote_fixture_other(const struct fixture *fx);
/** @param fx of remote_fixture_other(), freed */
void remote_fixture_end_other(struct fixture *fx);

/** @param fx a fixture @param path of a file @param text which another one must
 *  find in it */
void remote_fixture_expect_there(struct fixture *fx, const char *path,
                                 const char *text);
/** @param fx a fixture @param path of a file @param text which another one
 *  writes to it */
void remote_fixture_write_there(struct fixture *fx, const char *path,
                                const char *text);

/** @param fx a fixture @return where it keeps what it has on this machine */
const char *remote_fixture_dir(const struct fixture *fx);

/** @param fx a fixture @param bytes that may be staged */
void remote_fixture_stage(struct fixture *fx, uint64_t bytes);

/**
 * Tells the engine to misbehave, as providers/mem/faults.c says.
 *
 * @param fx   a fixture
 * @param op   which call
 * @param what it does; NULL: nothing any more
 */
void remote_fixture_fault(const struct fixture *fx, const char *op,
                          const char *what);

/** @param fx a fixture @param point where a copy of this process is killed
 *  @param fn what the copy does until then */
void remote_fixture_die_at(struct fixture *fx, const char *point,
                           void (*fn)(struct fixture *fx));

/* A test with the fixture; the same over both kinds of engine. */
#define ONE(name)                                                              \
    cmocka_unit_test_setup_teardown(name, remote_fixture_setup,                \
                                    remote_fixture_teardown)
#define BOTH(name)                                                             \
    ONE(name), cmocka_unit_test_setup_teardown(                                \
                   name, remote_fixture_setup_plain, remote_fixture_teardown)

#endif
