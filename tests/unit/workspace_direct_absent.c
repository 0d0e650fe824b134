/* Names that are not there, in a tree over a directory. */
#include "core/workspace_direct.h"

#include "tests/unit/workspace_fixture.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    MISSES = 40,       /* More than it takes until a directory is listed. */
    MANY_NAMES = 2000, /* It takes a while to list them. */
    ROUNDS = 60,       /* Of which one in twenty once went wrong. */
    LOOKS = 3,
    LOOK_US = 1500,
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

struct seeker {
    pthread_t thread;
    struct fixture fx;
    atomic_bool *over;
};

static void *seek_main(void *arg)
{
    struct seeker *seeker = arg;
    struct ws_node *node = NULL;
    struct stat attr;
    char name[32];

    for (unsigned i = 0; !atomic_load(seeker->over); i++) {
        (void)snprintf(name, sizeof(name), "missing-%u", i);
        (void)!ws_lookup(seeker->fx.root, name, &seeker->fx.ctx, &node, &attr,
                         &seeker->fx.err);
    }
    return NULL;
}

static bool is_found_once_made(struct fixture *fx, const char *name)
{
    bool found = true;

    fixture_write(fx, name, "text");
    for (int i = 0; i < LOOKS && found; i++) {
        found = find(fx, fx->root, name) == 0;
        (void)usleep(LOOK_US);
    }
    return found;
}

static void what_is_made_while_others_look_is_found(void **state)
{
    struct fixture *fx = *state;
    struct seeker seekers[3];
    atomic_bool over = false;
    unsigned unfound = 0;
    char name[32];

    fx->ctx.state = 1;
    for (int i = 0; i < MANY_NAMES; i++) {
        (void)snprintf(name, sizeof(name), "there-%d", i);
        touch_behind(fx, name);
    }
    for (size_t i = 0; i < ARRAY_SIZE(seekers); i++) {
        seekers[i] = (struct seeker){.fx = *fx, .over = &over};
        assert_int_equal(
            pthread_create(&seekers[i].thread, NULL, seek_main, &seekers[i]),
            0);
    }
    for (int i = 0; i < ROUNDS; i++) {
        (void)snprintf(name, sizeof(name), "new-%d", i);
        unfound += !is_found_once_made(fx, name);
    }
    atomic_store(&over, true);
    for (size_t i = 0; i < ARRAY_SIZE(seekers); i++) {
        (void)pthread_join(seekers[i].thread, NULL);
    }
    assert_int_equal(unfound, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_DIRECT(a_listing_counts_in_one_state_of_the_tree),
        FIXTURE_DIRECT(a_name_that_is_too_long_is_told),
        FIXTURE_DIRECT_BOTH(what_we_make_is_found),
        FIXTURE_DIRECT(what_is_made_while_others_look_is_found),
    };

    if (geteuid() != 0) {
        return 77; /* Owners are changed. */
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
