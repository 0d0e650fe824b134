/* How often a remote tree asks its engine. */
#include "tests/unit/remote_fixture.h"

#include "core/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    FILES = 100
};

/* Makes files in a directory, as somebody else does. */
static void fill(struct fixture *fx, const char *dir, unsigned n)
{
    struct fixture *other = remote_fixture_other(fx);
    char path[64];

    fixture_mkdir(other, dir);
    for (unsigned i = 0; i < n; i++) {
        (void)snprintf(path, sizeof(path), "%s/f%u", dir, i);
        fixture_write(other, path, "text");
    }
    remote_fixture_end_other(other);
}

static bool count_name(void *arg, const char *name, const struct stat *attr,
                       off_t next)
{
    unsigned *n = arg;

    assert_true(name[0] && attr->st_ino && next);
    (*n)++;
    return true;
}

/* Lists a directory and looks at each file, as `ls -l` does. */
static void look(struct fixture *fx, const char *dir, unsigned files)
{
    struct ws_node *node = fixture_at(fx, dir);
    struct ws_dir *open;
    unsigned n = 0;
    char name[32];

    assert_int_equal(ws_opendir(node, &fx->ctx, &open, &fx->err), 0);
    assert_int_equal(ws_readdir(open, 0, count_name, &n, &fx->ctx, &fx->err),
                     0);
    assert_int_equal(n, files + 2);
    ws_closedir(open);
    for (unsigned i = 0; i < files; i++) {
        struct ws_node *file;
        struct stat attr;

        (void)snprintf(name, sizeof(name), "f%u", i);
        assert_int_equal(
            ws_lookup(node, name, &fx->ctx, &file, &attr, &fx->err), 0);
        assert_int_equal(attr.st_size, 4);
        ws_node_unref(file);
    }
    ws_node_unref(node);
}

static void a_listing_answers_for_its_files(void **state)
{
    struct fixture *fx = *state;
    uint64_t before;

    fill(fx, "d", FILES);
    ws_node_unref(fixture_at(fx, "d"));
    before = remote_fixture_calls(fx);
    look(fx, "d", FILES);
    assert_int_equal(remote_fixture_calls(fx) - before, 1);
    look(fx, "d", FILES);
    assert_int_equal(fixture_find(fx, "d/gone"), -ENOENT);
    assert_int_equal(remote_fixture_calls(fx) - before, 1);
}

static void a_directory_comes_with_its_entries(void **state)
{
    struct fixture *fx = *state;
    uint64_t before;

    fill(fx, "d", FILES);
    fill(fx, "empty", 0);
    before = remote_fixture_calls(fx);
    look(fx, "d", FILES);
    assert_int_equal(remote_fixture_calls(fx) - before, 2); /* The top's. */
    ws_changed(fx->ws);
    before = remote_fixture_calls(fx);
    look(fx, "empty", 0);
    assert_int_equal(fixture_find(fx, "empty/gone"), -ENOENT);
    assert_int_equal(remote_fixture_calls(fx) - before, 2);
}

static void what_is_made_is_one_call(void **state)
{
    struct fixture *fx = *state;
    uint64_t before;

    (void)fixture_stat(fx, "");
    before = remote_fixture_calls(fx);
    fixture_mkdir(fx, "d");
    assert_int_equal(remote_fixture_calls(fx) - before, 1);
    (void)fixture_stat(fx, "");
    before = remote_fixture_calls(fx);
    assert_int_equal(fixture_symlink(fx, "d", "l"), 0);
    assert_int_equal(remote_fixture_calls(fx) - before, 1);
    (void)fixture_stat(fx, "");
    before = remote_fixture_calls(fx);
    look(fx, "d", 0);
    assert_int_equal(remote_fixture_calls(fx), before);
}

/* Also where the directory lies in a tree that was told. */
static void many_links_are_a_call_each(void **state)
{
    struct fixture *fx = *state;
    char name[32];
    uint64_t before;

    fill(fx, "a", 0);
    fill(fx, "a/b", 10);
    fill(fx, "a/c", 10);
    look(fx, "a/b", 10);
    look(fx, "a/c", 10);
    before = remote_fixture_calls(fx);
    for (unsigned i = 0; i < FILES; i++) {
        (void)snprintf(name, sizeof(name), "a/c/l%u", i);
        assert_int_equal(fixture_symlink(fx, "x", name), 0);
        (void)fixture_stat(fx, "a/c");
    }
    assert_in_range(remote_fixture_calls(fx) - before, FILES, FILES + 10);
}

static void a_walk_is_one_call_where_the_engine_tells_trees(void **state)
{
    struct fixture *fx = *state;
    uint64_t before;
    char path[32];

    fill(fx, "d", 0);
    for (unsigned i = 0; i < 20; i++) {
        (void)snprintf(path, sizeof(path), "d/f%u", i);
        fill(fx, path, 0);
    }
    ws_changed(fx->ws);
    before = remote_fixture_calls(fx);
    for (unsigned i = 0; i < 20; i++) {
        (void)snprintf(path, sizeof(path), "d/f%u", i);
        look(fx, path, 0);
    }
    /* d, the first below it, and then all. */
    assert_true(remote_fixture_calls(fx) - before <= 5);
}

static void removing_is_one_call_a_file(void **state)
{
    struct fixture *fx = *state;
    struct ws_node *dir;
    struct stat attr;
    char name[32];
    uint64_t before;

    fill(fx, "d", FILES);
    look(fx, "d", FILES);
    dir = fixture_at(fx, "d");
    before = remote_fixture_calls(fx);
    for (unsigned i = 0; i < FILES; i++) {
        (void)snprintf(name, sizeof(name), "f%u", i);
        assert_int_equal(ws_unlink(dir, name, &fx->ctx, &fx->err), 0);
        assert_int_equal(ws_getattr(dir, NULL, &fx->ctx, &attr, &fx->err), 0);
    }
    assert_int_equal(remote_fixture_calls(fx) - before, FILES);
    ws_node_unref(dir);
}

/* Also those of the directories that come next. */
static void small_files_come_in_few_calls(void **state)
{
    static const char *const dirs[] = {"d", "d/a", "d/b", "d/c"};
    struct fixture *fx = *state;
    uint64_t before;
    char path[32];

    for (size_t d = 0; d < ARRAY_SIZE(dirs); d++) {
        fill(fx, dirs[d], FILES / 4);
    }
    before = remote_fixture_calls(fx);
    for (size_t d = 0; d < ARRAY_SIZE(dirs); d++) {
        for (unsigned i = 0; i < FILES / 4; i++) {
            (void)snprintf(path, sizeof(path), "%s/f%u", dirs[d], i);
            fixture_expect(fx, path, "text");
        }
    }
    /* Attributes and names five, two files each by itself, then 32, 64 … */
    assert_in_range(remote_fixture_calls(fx) - before, 1, 12);
}

static void small_files_are_fetched_side_by_side(void **state)
{
    struct fixture *fx = *state;
    int64_t start;
    char path[32];

    fill(fx, "d", FILES);
    look(fx, "d", FILES);
    remote_fixture_fault(fx, "get", "delay 20");
    start = clock_ms();
    for (unsigned i = 0; i < FILES; i++) {
        (void)snprintf(path, sizeof(path), "d/f%u", i);
        fixture_expect(fx, path, "text");
    }
    /* One after another it would be two seconds. */
    assert_true(clock_ms() - start < FILES * 20);
}

static void a_change_is_seen_at_once_after_it_is_told(void **state)
{
    struct fixture *fx = *state;

    fill(fx, "d", 3);
    look(fx, "d", 3);
    assert_int_equal(fixture_find(fx, "d/e"), -ENOENT);
    fill(fx, "d/e", 0);
    ws_changed(fx->ws);
    assert_int_equal(fixture_find(fx, "d/e"), 0);
}

/* ---- Each call that fails ---- */

static int try_list(struct fixture *fx)
{
    struct ws_node *node = fixture_at(fx, "d");
    struct ws_dir *dir;
    unsigned n = 0;
    int rc;

    ws_changed(fx->ws); /* What came with its attributes, too. */
    assert_int_equal(ws_opendir(node, &fx->ctx, &dir, &fx->err), 0);
    rc = ws_readdir(dir, 0, count_name, &n, &fx->ctx, &fx->err);
    ws_closedir(dir);
    ws_node_unref(node);
    return rc;
}

static int try_stat(struct fixture *fx)
{
    ws_changed(fx->ws);
    return fixture_find(fx, "f");
}

static int try_mkdir(struct fixture *fx)
{
    struct ws_node *node;
    struct stat attr;
    int rc = ws_mkdir(fx->root, "new", 0755, &fx->ctx, &node, &attr, &fx->err);

    ws_node_unref(rc == 0 ? node : NULL);
    return rc == 0 ? ws_rmdir(fx->root, "new", &fx->ctx, &fx->err) : rc;
}

static int try_remove(struct fixture *fx)
{
    return fixture_unlink(fx, "gone");
}

static int try_rename(struct fixture *fx)
{
    int rc = fixture_rename(fx, "f", "g", 0);

    return rc == 0 ? fixture_rename(fx, "g", "f", 0) : rc;
}

static int try_symlink(struct fixture *fx)
{
    return fixture_symlink(fx, "f", "l");
}

static int try_link(struct fixture *fx)
{
    struct ws_node *node = fixture_at(fx, "f");
    struct stat attr;
    int rc = ws_link(node, fx->root, "hard", &fx->ctx, &attr, &fx->err);

    ws_node_unref(node);
    return rc;
}

static int try_chmod(struct fixture *fx)
{
    struct ws_node *node = fixture_at(fx, "f");
    const struct stat want = {.st_mode = 0640};
    struct stat attr;
    int rc = ws_setattr(node, NULL, PROVIDER_ATTR_MODE, &want, &fx->ctx, &attr,
                        &fx->err);

    ws_node_unref(node);
    return rc;
}

static int try_read_link(struct fixture *fx)
{
    struct ws_node *node = fixture_at(fx, "link");
    char target[8];
    int rc = ws_readlink(node, &fx->ctx, target, sizeof(target), &fx->err);

    ws_node_unref(node);
    return rc;
}

static int try_read(struct fixture *fx)
{
    struct ws_file *file = fixture_open(fx, "f", O_RDONLY);
    char byte;
    ssize_t n = ws_read(file, &byte, 1, 0, &fx->ctx, &fx->err);

    ws_close(file);
    return n < 0 ? (int)n : n == 1 && byte == 'o' ? 0 : -EIO;
}

static int try_save(struct fixture *fx)
{
    struct ws_file *file = fixture_open(fx, "save", O_WRONLY | O_TRUNC);
    int rc;

    assert_int_equal(ws_write(file, "new", 3, 0, &fx->ctx, &fx->err), 3);
    rc = ws_flush(file, &fx->ctx, &fx->err);
    ws_close(file);
    return rc;
}

static int try_statfs(struct fixture *fx)
{
    struct statvfs room;

    return ws_statfs(fx->ws, &fx->ctx, &room, &fx->err);
}

struct row {
    const char *op;
    int (*fn)(struct fixture *fx);
};

/* One call fails so, and what it was about stays as it was. */
static void fail_call(struct fixture *fx, const struct row *row,
                      const char *fault, int code)
{
    int rc;

    remote_fixture_fault(fx, row->op, fault);
    remote_fixture_fault(fx, "tree", fault);
    rc = row->fn(fx);
    remote_fixture_fault(fx, row->op, NULL);
    remote_fixture_fault(fx, "tree", NULL);
    if (rc != -code || fx->err.code != code) {
        fail_msg("%s, %s: %d, %s", row->op, fault, rc, fx->err.msg);
    }
    err_clear(&fx->err);
    fixture_expect(fx, "save", "old");
}

static void fail_each_way(struct fixture *fx, const struct row *row)
{
    static const struct {
        const char *fault;
        int code;
    } faults[] = {
        {"errno ENOSPC", ENOSPC},     {"errno EDQUOT", EDQUOT},
        {"errno EIO", EIO},           {"errno EACCES", EACCES},
        {"errno ENOTCONN", ENOTCONN},
    };

    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        fail_call(fx, row, faults[i].fault, faults[i].code);
    }
    if (row->fn(fx) != 0) {
        fail_msg("%s afterwards: %s", row->op, fx->err.msg);
    }
}

static void each_failure_is_the_callers_and_passes(void **state)
{
    static const struct row rows[] = {
        {"stat", try_stat},           {"list", try_list},
        {"make_dir", try_mkdir},      {"remove", try_remove},
        {"rename", try_rename},       {"symlink", try_symlink},
        {"link", try_link},           {"set_attr", try_chmod},
        {"read_link", try_read_link}, {"get", try_read},
        {"statfs", try_statfs},       {"put", try_save},
    };
    struct fixture *fx = *state;
    struct fixture *other = remote_fixture_other(fx);

    fixture_write(other, "f", "old");
    fixture_write(other, "save", "old");
    fixture_write(other, "gone", "old");
    fixture_mkdir(other, "d");
    assert_int_equal(fixture_symlink(other, "f", "link"), 0);
    remote_fixture_end_other(other);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        fail_each_way(fx, &rows[i]);
    }
    fixture_expect(fx, "save", "new");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(a_listing_answers_for_its_files),
        ONE(a_directory_comes_with_its_entries),
        ONE(what_is_made_is_one_call),
        ONE(many_links_are_a_call_each),
        ONE(a_walk_is_one_call_where_the_engine_tells_trees),
        ONE(removing_is_one_call_a_file),
        ONE(small_files_come_in_few_calls),
        ONE(small_files_are_fetched_side_by_side),
        ONE(a_change_is_seen_at_once_after_it_is_told),
        ONE(each_failure_is_the_callers_and_passes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
