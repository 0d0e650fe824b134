/* Writes to a remote tree: what is staged, and how it comes to the engine. */
#include "tests/unit/remote_fixture.h"

#include "core/workspace_impl.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Makes a new file and leaves it open. */
static struct ws_file *make(struct fixture *fx, const char *name, int flags)
{
    struct ws_file *file = NULL;
    struct ws_node *node = NULL;
    struct stat attr;

    assert_int_equal(ws_create(fx->root, name, 0644, O_RDWR | flags, &fx->ctx,
                               &node, &file, &attr, &fx->err),
                     0);
    ws_node_unref(node);
    return file;
}

static void add(struct fixture *fx, struct ws_file *file, const char *text,
                off_t at)
{
    size_t size = strlen(text);

    assert_int_equal(ws_write(file, text, size, at, &fx->ctx, &fx->err), size);
}

/* As close(2) does it. */
static int finish(struct fixture *fx, struct ws_file *file)
{
    int rc;

    err_clear(&fx->err);
    rc = ws_flush(file, &fx->ctx, &fx->err);
    ws_close(file);
    return rc;
}

static int find_there(struct fixture *fx, const char *path)
{
    struct fixture *other = remote_fixture_other(fx);
    int rc = fixture_find(other, path);

    remote_fixture_end_other(other);
    return rc;
}

static void a_new_file_is_one_call(void **state)
{
    struct fixture *fx = *state;
    const struct stat want = {.st_mtim = {2000, 5}, .st_mode = 0600};
    struct ws_file *file;
    struct ws_node *node;
    struct stat attr;
    uint64_t before;

    assert_int_equal(fixture_find(fx, "f"), -ENOENT);
    (void)fixture_stat(fx, "");
    before = remote_fixture_calls(fx);
    file = make(fx, "f", O_EXCL);
    for (int i = 0; i < 10; i++) {
        add(fx, file, "text", i * 4);
    }
    assert_int_equal(ws_setattr(file->node, file,
                                PROVIDER_ATTR_MTIME | PROVIDER_ATTR_MODE, &want,
                                &fx->ctx, &attr, &fx->err),
                     0);
    assert_int_equal(finish(fx, file), 0);
    assert_int_equal(ws_lookup(fx->root, "f", &fx->ctx, &node, &attr, &fx->err),
                     0);
    ws_node_unref(node);
    assert_int_equal(remote_fixture_calls(fx) - before, 1);
    assert_int_equal(attr.st_size, 40);
    assert_int_equal(attr.st_mtim.tv_sec, 2000);
    assert_int_equal(attr.st_mtim.tv_nsec, 5);
    assert_int_equal(attr.st_mode & 07777, 0600);
    fixture_expect(fx, "f", "texttexttexttexttexttexttexttexttexttext");
    assert_int_equal(remote_fixture_calls(fx) - before, 1);
    ws_changed(fx->ws);
    attr = fixture_stat(fx, "f");
    assert_int_equal(attr.st_mtim.tv_sec, 2000);
}

static void a_number_stays_when_the_engine_has_the_file(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *file = make(fx, "f", 0);
    uint64_t ino = ws_node_ino(file->node);

    assert_int_equal(fixture_stat(fx, "f").st_ino, ino);
    assert_int_equal(finish(fx, file), 0);
    ws_changed(fx->ws);
    assert_true(fixture_stat(fx, "f").st_ino == ino);
    assert_int_equal(fixture_rename(fx, "f", "g", 0), 0);
    ws_changed(fx->ws);
    assert_true(fixture_stat(fx, "g").st_ino == ino);
}

static bool count_name(void *arg, const char *name, const struct stat *attr,
                       off_t next)
{
    unsigned *n = arg;

    assert_true(name[0] && attr->st_ino && next);
    (*n)++;
    return true;
}

static void what_is_not_sent_is_there_for_us(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *file;
    struct ws_dir *dir;
    struct stat attr;
    unsigned n = 0;

    fixture_mkdir(fx, "d");
    ws_node_unref(fixture_at(fx, "d"));
    file = make(fx, "f", O_EXCL);
    add(fx, file, "text", 0);
    assert_true(ws_unsent(fx->ws) && ws_unsent_file(file));
    assert_int_equal(fixture_stat(fx, "f").st_size, 4);
    assert_int_equal(find_there(fx, "f"), -ENOENT);
    assert_int_equal(ws_opendir(fx->root, &fx->ctx, &dir, &fx->err), 0);
    assert_int_equal(ws_readdir(dir, 0, count_name, &n, &fx->ctx, &fx->err), 0);
    ws_closedir(dir);
    assert_int_equal(n, 4); /* ".", "..", "d" and "f" */
    assert_int_equal(ws_mkdir(fx->root, "f", 0755, &fx->ctx,
                              &(struct ws_node *){NULL}, &attr, &fx->err),
                     -EEXIST);
    assert_int_equal(fixture_rename(fx, "f", "d/g", 0), 0);
    add(fx, file, "more", 4); /* It is followed. */
    assert_int_equal(ws_rmdir(fx->root, "d", &fx->ctx, &fx->err), -ENOTEMPTY);
    assert_int_equal(finish(fx, file), 0);
    assert_false(ws_unsent(fx->ws));
    remote_fixture_expect_there(fx, "d/g", "textmore");
}

static void what_is_removed_before_it_is_sent_costs_no_call(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *file;
    char text[8] = "";
    uint64_t before;

    assert_int_equal(fixture_find(fx, "f"), -ENOENT);
    (void)fixture_stat(fx, "");
    before = remote_fixture_calls(fx);
    file = make(fx, "f", O_EXCL);
    add(fx, file, "text", 0);
    assert_int_equal(fixture_unlink(fx, "f"), 0);
    assert_int_equal(ws_read(file, text, 8, 0, &fx->ctx, &fx->err), 4);
    assert_string_equal(text, "text");
    assert_int_equal(finish(fx, file), 0);
    assert_int_equal(remote_fixture_calls(fx), before);
    assert_int_equal(fixture_find(fx, "f"), -ENOENT);
    assert_false(ws_unsent(fx->ws));
}

static void fail_writes(struct fixture *fx, const char *what)
{
    remote_fixture_fault(fx, "put", what);
    remote_fixture_fault(fx, "write", what);
}

static void a_failed_save_is_told_and_keeps_the_old(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *file;

    fixture_write(fx, "f", "old");
    file = fixture_open(fx, "f", O_WRONLY | O_TRUNC);
    add(fx, file, "something new", 0);
    fail_writes(fx, "errno ENOSPC");
    assert_int_equal(ws_fsync(file, false, &fx->ctx, &fx->err), -ENOSPC);
    assert_true(ws_unsent(fx->ws));
    assert_int_equal(finish(fx, file), -ENOSPC);
    fail_writes(fx, NULL);
    assert_false(ws_unsent(fx->ws));
    fixture_expect(fx, "f", "old");
    remote_fixture_expect_there(fx, "f", "old");
    file = make(fx, "new", O_EXCL);
    fail_writes(fx, "errno EDQUOT");
    add(fx, file, "x", 0);
    assert_int_equal(finish(fx, file), -EDQUOT);
    fail_writes(fx, NULL);
    assert_int_equal(fixture_find(fx, "new"), -ENOENT);
    assert_int_equal(find_there(fx, "new"), -ENOENT);
}

static void a_failed_fsync_may_be_tried_again(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *file = make(fx, "f", O_EXCL);

    add(fx, file, "text", 0);
    fail_writes(fx, "errno EIO");
    assert_int_equal(ws_fsync(file, false, &fx->ctx, &fx->err), -EIO);
    assert_int_equal(ws_sync(fx->ws, &fx->ctx.limits, &fx->err), -EIO);
    fail_writes(fx, NULL);
    err_clear(&fx->err);
    assert_int_equal(ws_sync(fx->ws, &fx->ctx.limits, &fx->err), 0);
    remote_fixture_expect_there(fx, "f", "text");
    assert_false(ws_unsent(fx->ws));
    assert_int_equal(finish(fx, file), 0);
}

/* The one entry that begins so; fails where there is none. */
static bool find_beside(void *arg, const char *name, const struct stat *attr,
                        off_t next)
{
    char *found = arg;

    (void)attr;
    (void)next;
    if (strncmp(name, "f.conflict-", 11) == 0) {
        (void)snprintf(found, 64, "%s", name);
    }
    return true;
}

static void expect_beside(struct fixture *fx, const char *text)
{
    struct ws_dir *dir;
    char name[64] = "";

    ws_changed(fx->ws);
    assert_int_equal(ws_opendir(fx->root, &fx->ctx, &dir, &fx->err), 0);
    assert_int_equal(ws_readdir(dir, 0, find_beside, name, &fx->ctx, &fx->err),
                     0);
    ws_closedir(dir);
    assert_true(name[0]);
    fixture_expect(fx, name, text);
}

static void of_two_versions_none_is_lost(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *file;

    fixture_write(fx, "f", "a text");
    file = fixture_open(fx, "f", O_RDWR);
    add(fx, file, "A", 0);
    remote_fixture_write_there(fx, "f", "theirs, longer");
    assert_int_equal(finish(fx, file), -ESTALE);
    assert_non_null(strstr(fx->err.msg, "f.conflict-"));
    expect_beside(fx, "A text");
    fixture_expect(fx, "f", "theirs, longer");
    assert_false(ws_unsent(fx->ws));
}

static void who_is_second_learns_it(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *lock = make(fx, "lock", O_EXCL);
    struct ws_file *file = make(fx, "f", O_EXCL);
    struct ws_node *node;
    struct stat attr;

    add(fx, file, "mine", 0);
    remote_fixture_write_there(fx, "lock", "");
    remote_fixture_write_there(fx, "f", "theirs");
    assert_int_equal(finish(fx, lock), -EEXIST);
    assert_int_equal(finish(fx, file), -ESTALE);
    expect_beside(fx, "mine");
    fixture_expect(fx, "f", "theirs");
    /* While others work in the sandbox it is known at once. */
    assert_int_equal(fixture_find(fx, "late"), -ENOENT);
    remote_fixture_write_there(fx, "late", "");
    ws_contested(fx->ws, true);
    assert_int_equal(ws_create(fx->root, "late", 0644, O_RDWR | O_EXCL,
                               &fx->ctx, &node, &file, &attr, &fx->err),
                     -EEXIST);
    assert_int_equal(finish(fx, make(fx, "other", O_EXCL)), 0);
}

static void lines_of_both_sides_are_kept(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *file;

    fixture_write(fx, "log", "one\n");
    file = fixture_open(fx, "log", O_WRONLY | O_APPEND);
    add(fx, file, "mine\n", 0);
    remote_fixture_write_there(fx, "log", "one\ntheirs\n");
    assert_int_equal(finish(fx, file), 0);
    remote_fixture_expect_there(fx, "log", "one\ntheirs\nmine\n");
    fixture_expect(fx, "log", "one\ntheirs\nmine\n");
    file = make(fx, "new", O_APPEND);
    add(fx, file, "mine\n", 0);
    remote_fixture_write_there(fx, "new", "theirs\n");
    assert_int_equal(finish(fx, file), 0);
    remote_fixture_expect_there(fx, "new", "theirs\nmine\n");
}

static void a_new_file_whose_answer_was_lost_is_one(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *file = make(fx, "f", O_EXCL);

    add(fx, file, "text", 0);
    fail_writes(fx, "errno EIO");
    assert_int_equal(ws_fsync(file, false, &fx->ctx, &fx->err), -EIO);
    fail_writes(fx, NULL);
    remote_fixture_write_there(fx, "f", "text");
    assert_int_equal(finish(fx, file), 0);
    remote_fixture_expect_there(fx, "f", "text");
}

static void a_part_of_a_large_file_is_sent_alone(void **state)
{
    struct fixture *fx = *state;
    const size_t size = 3 * 1024 * 1024 + 7;
    char *bytes = malloc(size + 1);
    struct ws_file *file;
    uint64_t before;

    memset(bytes, 'x', size);
    bytes[size] = '\0';
    fixture_write(fx, "big", bytes);
    ws_changed(fx->ws);
    file = fixture_open(fx, "big", O_RDWR);
    before = remote_fixture_calls(fx);
    add(fx, file, "Y", (off_t)size / 2);
    add(fx, file, "tail", (off_t)size);
    assert_int_equal(ws_fsync(file, false, &fx->ctx, &fx->err), 0);
    assert_true(remote_fixture_calls(fx) - before <= 8);
    assert_int_equal(finish(fx, file), 0);
    bytes[size / 2] = 'Y';
    bytes = realloc(bytes, size + 8);
    (void)strcpy(bytes + size, "tail");
    remote_fixture_expect_there(fx, "big", bytes);
    fixture_expect(fx, "big", bytes);
    free(bytes);
}

static void a_shorter_file_has_no_tail_and_a_longer_one_zeros(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *file;
    struct stat want = {.st_size = 3};
    struct stat attr;
    char text[16];

    fixture_write(fx, "f", "long text");
    file = fixture_open(fx, "f", O_RDWR);
    assert_int_equal(ws_setattr(file->node, file, PROVIDER_ATTR_SIZE, &want,
                                &fx->ctx, &attr, &fx->err),
                     0);
    want.st_size = 6;
    assert_int_equal(ws_setattr(file->node, file, PROVIDER_ATTR_SIZE, &want,
                                &fx->ctx, &attr, &fx->err),
                     0);
    assert_int_equal(ws_read(file, text, 16, 0, &fx->ctx, &fx->err), 6);
    assert_memory_equal(text, "lon\0\0\0", 6);
    assert_int_equal(finish(fx, file), 0);
    ws_changed(fx->ws);
    assert_int_equal(fixture_stat(fx, "f").st_size, 6);
    file = fixture_open(fx, "f", O_RDONLY);
    assert_int_equal(ws_read(file, text, 16, 0, &fx->ctx, &fx->err), 6);
    assert_memory_equal(text, "lon\0\0\0", 6);
    ws_close(file);
}

static void too_much_unsent_is_refused_in_words(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *file = make(fx, "f", O_EXCL);
    char *bytes = calloc(1, 1024 * 1024 + 1);

    memset(bytes, 'x', 1024 * 1024);
    remote_fixture_stage(fx, 1024 * 1024);
    add(fx, file, bytes, 0);
    assert_int_equal(ws_write(file, "y", 1, 1024 * 1024, &fx->ctx, &fx->err),
                     -ENOSPC);
    assert_non_null(strstr(fx->err.msg, "not sent"));
    assert_int_equal(finish(fx, file), 0);
    remote_fixture_expect_there(fx, "f", bytes);
    file = fixture_open(fx, "f", O_WRONLY | O_APPEND);
    add(fx, file, "y", 0); /* There is room again. */
    assert_int_equal(finish(fx, file), 0);
    free(bytes);
}

/* Writes two whole chunks, where the disk takes half of them. */
static int write_half(struct fixture *fx, struct ws_file *file,
                      const char *bytes, size_t size)
{
    struct rlimit before;
    struct rlimit small;
    ssize_t n;

    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = size + size / 4; /* In the second one. */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    n = ws_write(file, bytes, size, (off_t)size / 2, &fx->ctx, &fx->err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    return (int)n;
}

static void a_write_that_fails_midway_changes_nothing_else(void **state)
{
    struct fixture *fx = *state;
    const size_t half = 512 * 1024; /* Two chunks. */
    char *bytes = calloc(1, 2 * half + 1);
    char *other = calloc(1, half + 1);
    struct ws_file *file;

    memset(bytes, 'x', 2 * half);
    memset(other, 'o', half);
    fixture_write(fx, "big", bytes);
    ws_changed(fx->ws);
    file = fixture_open(fx, "big", O_RDWR);
    add(fx, file, "Y", 0);
    assert_int_equal(write_half(fx, file, other, half), -EFBIG);
    assert_int_equal(finish(fx, file), 0);
    bytes[0] = 'Y';
    remote_fixture_expect_there(fx, "big", bytes);
    free(bytes);
    free(other);
}

static void content_is_kept_until_it_changes(void **state)
{
    struct fixture *fx = *state;
    uint64_t before;

    remote_fixture_write_there(fx, "f", "text");
    fixture_expect(fx, "f", "text");
    before = remote_fixture_calls(fx);
    fixture_expect(fx, "f", "text");
    assert_int_equal(remote_fixture_calls(fx), before);
    ws_changed(fx->ws);
    fixture_expect(fx, "f", "text"); /* Attributes are asked for. */
    assert_in_range(remote_fixture_calls(fx) - before, 1, 2);
    remote_fixture_write_there(fx, "f", "TEXT");
    ws_changed(fx->ws);
    fixture_expect(fx, "f", "TEXT");
}

static void a_read_that_fails_is_no_short_file(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *file;
    char text[8];

    remote_fixture_write_there(fx, "f", "text");
    file = fixture_open(fx, "f", O_RDONLY);
    remote_fixture_fault(fx, "get", "errno EIO");
    remote_fixture_fault(fx, "read", "errno EIO");
    assert_int_equal(ws_read(file, text, 8, 0, &fx->ctx, &fx->err), -EIO);
    remote_fixture_fault(fx, "get", NULL);
    remote_fixture_fault(fx, "read", NULL);
    assert_int_equal(ws_read(file, text, 8, 0, &fx->ctx, &fx->err), 4);
    ws_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(a_new_file_is_one_call),
        BOTH(a_number_stays_when_the_engine_has_the_file),
        BOTH(what_is_not_sent_is_there_for_us),
        BOTH(what_is_removed_before_it_is_sent_costs_no_call),
        BOTH(a_failed_save_is_told_and_keeps_the_old),
        BOTH(a_failed_fsync_may_be_tried_again),
        BOTH(of_two_versions_none_is_lost),
        BOTH(who_is_second_learns_it),
        BOTH(lines_of_both_sides_are_kept),
        ONE(a_new_file_whose_answer_was_lost_is_one),
        BOTH(a_part_of_a_large_file_is_sent_alone),
        BOTH(a_shorter_file_has_no_tail_and_a_longer_one_zeros),
        BOTH(too_much_unsent_is_refused_in_words),
        BOTH(a_write_that_fails_midway_changes_nothing_else),
        BOTH(content_is_kept_until_it_changes),
        BOTH(a_read_that_fails_is_no_short_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
