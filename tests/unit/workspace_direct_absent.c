/* Names that are not there, in a tree over a directory. */
#include "core/workspace_direct.h"

#include "tests/unit/workspace_fixture.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    MISSES = 40 /* More than it takes until a directory is listed. */
};

static int find(struct fixture *fx, struct ws_node *dir, const char *name)
{
    struct ws_node *node = NULL;
    struct stat attr;
    int rc = ws_lookup(dir, name, &fx->ctx, &node, &attr, &fx->err);

    ws_node_unref(node);
    return rc;
}

/* Looks for what is not there until it is known what is. */
static void miss(struct fixture *fx, struct ws_node *dir)
{
    char name[32];

    for (int i = 0; i < MISSES; i++) {
        (void)snprintf(name, sizeof(name), "missing-%d", i);
        assert_int_equal(find(fx, dir, name), -ENOENT);
    }
}

static void touch_behind(struct fixture *fx, const char *name)
{
    char path[PATH_MAX];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/%s", fx->dir, name);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    (void)close(fd);
}

static void a_listing_counts_in_one_state_of_the_tree(void **state)
{
    struct fixture *fx = *state;

    fixture_mkdir(fx, "d");
    fixture_write(fx, "there", "text");
    fx->ctx.state = 1;
    miss(fx, fx->root);
    assert_int_equal(find(fx, fx->root, "there"), 0);
    touch_behind(fx, "new");
    assert_int_equal(find(fx, fx->root, "new"), -ENOENT);
    fx->ctx.state = 0; /* Somebody may be at it. */
    assert_int_equal(find(fx, fx->root, "new"), 0);
    fx->ctx.state = 2;
    assert_int_equal(find(fx, fx->root, "new"), 0);
    miss(fx, fx->root);
    touch_behind(fx, "d/new");
    assert_int_equal(fixture_find(fx, "d/new"), 0); /* Another directory. */
}

static void a_name_that_is_too_long_is_told(void **state)
{
    struct fixture *fx = *state;
    char name[NAME_MAX + 2];

    memset(name, 'n', sizeof(name));
    name[NAME_MAX + 1] = '\0';
    fx->ctx.state = 1;
    miss(fx, fx->root);
    assert_int_equal(find(fx, fx->root, name), -ENAMETOOLONG);
}

static void make_dir(struct fixture *fx)
{
    fixture_mkdir(fx, "new");
}

static void make_file(struct fixture *fx)
{
    fixture_write(fx, "new", "text");
}

static void make_node(struct fixture *fx)
{
    struct ws_node *node = NULL;
    struct stat attr;

    assert_int_equal(ws_mknod(fx->root, "new", S_IFREG | 0644, &fx->ctx, &node,
                              &attr, &fx->err),
                     0);
    ws_node_unref(node);
}

static void make_symlink(struct fixture *fx)
{
    assert_int_equal(fixture_symlink(fx, "there", "new"), 0);
}

static void make_link(struct fixture *fx)
{
    struct ws_node *node = fixture_at(fx, "there");
    struct stat attr;

    assert_int_equal(ws_link(node, fx->root, "new", &fx->ctx, &attr, &fx->err),
                     0);
    ws_node_unref(node);
}

static void move_there(struct fixture *fx)
{
    assert_int_equal(fixture_rename(fx, "there", "new", 0), 0);
}

static void what_we_make_is_found(void **state)
{
    static void (*const make[])(struct fixture *) = {
        make_dir, make_file, make_node, make_symlink, make_link, move_there};
    struct fixture *fx = *state;

    fx->ctx.state = 1;
    for (size_t i = 0; i < ARRAY_SIZE(make); i++) {
        fixture_write(fx, "there", "text");
        miss(fx, fx->root);
        assert_int_equal(find(fx, fx->root, "new"), -ENOENT);
        make[i](fx);
        assert_int_equal(find(fx, fx->root, "new"), 0);
        assert_int_equal(make[i] == make_dir
                             ? ws_rmdir(fx->root, "new", &fx->ctx, &fx->err)
                             : fixture_unlink(fx, "new"),
                         0);
        miss(fx, fx->root);
        assert_int_equal(find(fx, fx->root, "new"), -ENOENT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_DIRECT(a_listing_counts_in_one_state_of_the_tree),
        FIXTURE_DIRECT(a_name_that_is_too_long_is_told),
        FIXTURE_DIRECT_BOTH(what_we_make_is_found),
    };

    if (geteuid() != 0) {
        return 77; /* Owners are changed. */
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
