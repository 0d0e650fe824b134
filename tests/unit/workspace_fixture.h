/* A tree to try core/workspace.h on, and short ways to use it. */
#ifndef SESSIONFS_TESTS_WORKSPACE_FIXTURE_H
#define SESSIONFS_TESTS_WORKSPACE_FIXTURE_H

#include "core/workspace.h"

#include "tests/cmocka.h"

#include <fcntl.h>

/* The mounting user and the map of ids that the tests use. */
enum {
    FIXTURE_UID = 500,
    FIXTURE_GID = 501,
    FIXTURE_BASE = 200000,
    FIXTURE_IDS = 65536,
    FIXTURE_USER = 1000, /* The sandbox's default user and group. */
};

struct fixture {
    struct workspace *ws;
    struct ws_node *root;
    struct cancel cancel;
    struct ws_ctx ctx;
    struct err err;
    bool direct;
    char dir[64]; /* direct: the directory on the host. */
    void *own;    /* What the kind of tree keeps. */
};

/* A test of both kinds of tree. */
struct workspace_case {
    const char *name;
    void (*run)(struct fixture *fx);
};

extern const struct workspace_case workspace_cases[];
extern const size_t workspace_n_cases;

/** @param fx its context and root are set up; ws is there */
void fixture_begin(struct fixture *fx);
/** @param fx nothing of the tree is left but what the test holds */
void fixture_end(struct fixture *fx);

/**
 * Finds a path, step by step; fails the test where it is not there.
 *
 * @param fx   the fixture
 * @param path relative, "" is the root
 * @return the node with a reference
 */
struct ws_node *fixture_at(struct fixture *fx, const char *path);

/** @param fx the fixture @param path a path @return 0 or what lookup said */
int fixture_find(struct fixture *fx, const char *path);

/** @param fx the fixture @param path a path @return its attributes */
struct stat fixture_stat(struct fixture *fx, const char *path);

/** @param fx the fixture @param path a new directory, mode 0755 */
void fixture_mkdir(struct fixture *fx, const char *path);

/**
 * Makes or overwrites a file.
 *
 * @param fx   the fixture
 * @param path its path
 * @param text its whole new content
 */
void fixture_write(struct fixture *fx, const char *path, const char *text);

/**
 * @param fx   the fixture
 * @param path a file
 * @param text fails the test unless this is its whole content
 */
void fixture_expect(struct fixture *fx, const char *path, const char *text);

/** @param fx the fixture @param from a path @param to a path
 *  @param flags of rename @return 0 or a negative errno */
int fixture_rename(struct fixture *fx, const char *from, const char *to,
                   unsigned flags);

/** @param fx the fixture @param path a file @return 0 or a negative errno */
int fixture_unlink(struct fixture *fx, const char *path);

/** @param fx the fixture @param path a file @param flags of open
 *  @return the open file */
struct ws_file *fixture_open(struct fixture *fx, const char *path, int flags);

/** @param fx the fixture @param target of a new link @param path the link
 *  @return 0 or a negative errno */
int fixture_symlink(struct fixture *fx, const char *target, const char *path);

/**
 * Runs the shared cases over one kind of tree.
 *
 * @param setup    makes a fixture for each case
 * @param teardown ends it
 * @return as cmocka_run_group_tests()
 */
int fixture_run_cases(CMFixtureFunction setup, CMFixtureFunction teardown);

/** @param state gets a fixture over a new directory @return 0 */
int fixture_direct_setup(void **state);
/** @param state the same where files cannot be opened by handle @return 0 */
int fixture_direct_setup_plain(void **state);
/** @param state ended; fails where an fd is left @return 0 or -1 */
int fixture_direct_teardown(void **state);

/* A test of a direct tree; and of one without handles, too. */
#define FIXTURE_DIRECT(name)                                                   \
    cmocka_unit_test_setup_teardown(name, fixture_direct_setup,                \
                                    fixture_direct_teardown)
#define FIXTURE_DIRECT_BOTH(name)                                              \
    FIXTURE_DIRECT(name),                                                      \
        cmocka_unit_test_setup_teardown(name, fixture_direct_setup_plain,      \
                                        fixture_direct_teardown)

/**
 * Checks that links of a tree with raw_links say what is stored, and that none
 * is followed.
 *
 * @param fx of such a tree
 */
void fixture_raw_links(struct fixture *fx);

#endif
