/* The tree over a provider's file calls, here those of `mem`. */
#include "core/workspace_remote.h"

#include "tests/unit/remote_fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void a_removed_or_replaced_open_file_stays_readable(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *removed, *replaced;
    struct stat attr;
    char byte;

    fixture_write(fx, "a", "a");
    fixture_write(fx, "b", "b");
    fixture_write(fx, "c", "c");
    removed = fixture_open(fx, "a", O_RDWR);
    replaced = fixture_open(fx, "b", O_RDWR);
    assert_int_equal(fixture_unlink(fx, "a"), 0);
    assert_int_equal(fixture_rename(fx, "c", "b", 0), 0);
    fixture_write(fx, "a", "new");
    assert_int_equal(ws_read(removed, &byte, 1, 0, &fx->ctx, &fx->err), 1);
    assert_int_equal(byte, 'a');
    assert_int_equal(ws_write(replaced, "x", 1, 0, &fx->ctx, &fx->err), 1);
    assert_int_equal(ws_flush(replaced, &fx->ctx, &fx->err), 0);
    assert_int_equal(ws_read(replaced, &byte, 1, 0, &fx->ctx, &fx->err), 1);
    assert_int_equal(byte, 'x');
    assert_int_equal(
        ws_getattr(removed->node, removed, &fx->ctx, &attr, &fx->err), 0);
    assert_int_equal(attr.st_nlink, 0);
    fixture_expect(fx, "a", "new");
    fixture_expect(fx, "b", "c");
    ws_close(removed);
    ws_close(replaced);
    assert_false(ws_unsent(fx->ws));
}

/* What somebody else removes nobody has brought here. */
static void what_the_engine_removed_is_stale_or_gone(void **state)
{
    struct fixture *fx = *state;
    struct fixture *other = remote_fixture_other(fx);
    struct ws_file *file;
    char byte;

    fixture_write(fx, "a", "a");
    file = fixture_open(fx, "a", O_RDONLY);
    assert_int_equal(fixture_unlink(other, "a"), 0);
    ws_changed(fx->ws);
    assert_int_equal(ws_read(file, &byte, 1, 0, &fx->ctx, &fx->err), -ENOENT);
    ws_close(file);
    remote_fixture_end_other(other);
}

static void a_linked_file_outlives_its_first_name(void **state)
{
    struct fixture *fx = *state;
    struct ws_node *node;
    struct stat attr;

    fixture_write(fx, "a", "text");
    node = fixture_at(fx, "a");
    assert_int_equal(ws_link(node, fx->root, "b", &fx->ctx, &attr, &fx->err),
                     0);
    assert_int_equal(fixture_unlink(fx, "a"), 0);
    assert_int_equal(ws_getattr(node, NULL, &fx->ctx, &attr, &fx->err), 0);
    assert_int_equal(attr.st_size, 4);
    fixture_expect(fx, "b", "text");
    ws_node_unref(node);
}

static void all_files_are_the_mounting_users(void **state)
{
    struct fixture *fx = *state;
    struct stat want = {.st_uid = FIXTURE_UID, .st_gid = FIXTURE_GID};
    struct ws_node *node;
    struct stat attr;

    fixture_write(fx, "f", "x");
    node = fixture_at(fx, "f");
    assert_int_equal(ws_setattr(node, NULL, PROVIDER_ATTR_UID, &want, &fx->ctx,
                                &attr, &fx->err),
                     0);
    assert_int_equal(attr.st_uid, FIXTURE_UID);
    assert_int_equal(attr.st_gid, FIXTURE_GID);
    want.st_uid = 1;
    assert_int_equal(ws_setattr(node, NULL, PROVIDER_ATTR_UID, &want, &fx->ctx,
                                &attr, &fx->err),
                     -EPERM);
    ws_node_unref(node);
}

static void what_the_provider_lacks_is_said(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *file;
    struct ws_node *node;
    struct stat attr;
    char buf[8];

    fixture_write(fx, "f", "x");
    node = fixture_at(fx, "f");
    file = fixture_open(fx, "f", O_RDWR);
    assert_int_equal(ws_getxattr(node, "user.a", buf, 8, &fx->err),
                     -EOPNOTSUPP);
    assert_int_equal(ws_listxattr(node, buf, 8, &fx->err), 0);
    assert_int_equal(ws_fallocate(file, 0, 0, 8, &fx->ctx, &fx->err),
                     -EOPNOTSUPP);
    assert_int_equal(ws_mknod(fx->root, "p", S_IFIFO | 0600, &fx->ctx, &node,
                              &attr, &fx->err),
                     -EOPNOTSUPP);
    ws_close(file);
    ws_node_unref(node);
}

static void failed_file_calls_are_counted(void **state)
{
    struct fixture *fx = *state;
    uint64_t before;

    fixture_mkdir(fx, "d");
    fixture_write(fx, "d/f", "x");
    before = remote_fixture_failures(fx);
    assert_int_equal(ws_rmdir(fx->root, "d", &fx->ctx, &fx->err), -ENOTEMPTY);
    assert_int_equal(fixture_find(fx, "absent"), -ENOENT);
    assert_int_equal(remote_fixture_failures(fx) - before, 1);
}

static void a_raw_link_says_all_and_leads_nowhere(void **state)
{
    struct fixture *fx = *state;

    remote_of(fx->ws)->view.raw_links = true;
    fixture_raw_links(fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(a_removed_or_replaced_open_file_stays_readable),
        ONE(what_the_engine_removed_is_stale_or_gone),
        ONE(a_linked_file_outlives_its_first_name),
        ONE(all_files_are_the_mounting_users),
        ONE(what_the_provider_lacks_is_said),
        ONE(a_raw_link_says_all_and_leads_nowhere),
        ONE(failed_file_calls_are_counted),
    };
    int failed =
        fixture_run_cases(remote_fixture_setup, remote_fixture_teardown);

    failed +=
        fixture_run_cases(remote_fixture_setup_plain, remote_fixture_teardown);
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
