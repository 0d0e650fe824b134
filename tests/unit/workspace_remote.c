/* The tree over a provider's file calls, here those of `mem`. */
#include "core/workspace_remote.h"

#include "core/clock.h"
#include "tests/unit/remote_fixture.h"

#include <errno.h>
#include <stdio.h>
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

enum {
    HALF = 300
};

/* Whether the engine may tell more than a half. */
static atomic_bool goes_on;

static atomic_uint lists; /* Listings that began. */

static int tell_half(provider_entry_fn *fn, void *arg, int from)
{
    struct provider_entry entry = {
        .attr = {.st_mode = S_IFREG | 0644, .st_nlink = 1}};
    int rc = 0;

    for (int i = from; rc == 0 && i < from + HALF; i++) {
        char name[16];

        (void)snprintf(name, sizeof(name), "f%d", i);
        entry.name = name;
        entry.attr.st_ino = 1000 + (ino_t)i;
        rc = fn(arg, &entry);
    }
    return rc;
}

/* Tells a directory slowly. */
static int list_slowly(struct provider *provider, const struct sandbox *sandbox,
                       const char *path, const struct limits *limits,
                       provider_entry_fn *fn, void *arg, struct err *err)
{
    int rc = tell_half(fn, arg, 0);

    (void)atomic_fetch_add(&lists, 1);
    (void)provider;
    (void)sandbox;
    (void)path;
    while (rc == 0 && !atomic_load(&goes_on)) {
        struct limits moment = *limits;

        moment.deadline_ms = clock_deadline(5);
        rc = limits_wait(&moment, -1, 0, err);
        if (rc == -ETIMEDOUT) {
            err_clear(err);
            rc = 0;
        }
    }
    return rc < 0 ? rc : tell_half(fn, arg, HALF);
}

static bool count_one(void *arg, const char *name, const struct stat *attr,
                      off_t next)
{
    off_t *count = arg;

    assert_true(name[0] && attr->st_ino);
    assert_int_equal(next, *count + 1);
    *count = next;
    return true;
}

/* The kernel waits for no answer as long as an engine may take. */
static void a_long_listing_is_read_while_it_comes(void **state)
{
    struct fixture *fx = remote_fixture_other(*state);
    struct remote *r = remote_of(fx->ws);
    struct provider_files slow = *r->files;
    struct ws_dir *dir, *other;
    off_t count = 0;

    slow.list = list_slowly;
    r->files = &slow;
    atomic_store(&goes_on, false);
    fx->ctx.limits.deadline_ms = clock_deadline(20000);
    assert_int_equal(ws_opendir(fx->root, &fx->ctx, &dir, &fx->err), 0);
    assert_int_equal(ws_readdir(dir, 0, count_one, &count, &fx->ctx, &fx->err),
                     0);
    assert_in_range(count, 3, HALF + 2);
    fx->ctx.limits.deadline_ms = clock_deadline(50);
    assert_int_equal(
        ws_readdir(dir, count, count_one, &count, &fx->ctx, &fx->err),
        -ETIMEDOUT);
    err_clear(&fx->err);
    fx->ctx.limits.deadline_ms = clock_deadline(20000);
    atomic_store(&goes_on, true);
    while (count < 2 * HALF + 2) {
        assert_int_equal(
            ws_readdir(dir, count, count_one, &count, &fx->ctx, &fx->err), 0);
    }
    assert_int_equal(
        ws_readdir(dir, count, count_one, &count, &fx->ctx, &fx->err), 0);
    assert_int_equal(count, 2 * HALF + 2);
    ws_closedir(dir);

    atomic_store(&goes_on, false); /* Nobody waits for it for ever. */
    ws_changed(fx->ws);
    count = 0;
    assert_int_equal(ws_opendir(fx->root, &fx->ctx, &other, &fx->err), 0);
    assert_int_equal(
        ws_readdir(other, 0, count_one, &count, &fx->ctx, &fx->err), 0);
    ws_closedir(other);
    remote_fixture_end_other(fx);
}

static int tell_no_tree(struct provider *provider,
                        const struct sandbox *sandbox, const char *path,
                        size_t most, const struct limits *limits,
                        provider_tree_fn *fn, void *arg, struct err *err)
{
    (void)provider;
    (void)sandbox;
    (void)path;
    (void)most;
    (void)limits;
    (void)fn;
    (void)arg;
    return err_set(err, E2BIG, "too large");
}

static void read_dir(struct fixture *fx, struct ws_node *node,
                     struct ws_dir **out)
{
    off_t count = 0;

    assert_int_equal(ws_opendir(node, &fx->ctx, out, &fx->err), 0);
    assert_int_equal(ws_readdir(*out, 0, count_one, &count, &fx->ctx, &fx->err),
                     0);
}

/* Whose names are looked up while it is being told. */
static void a_long_listing_is_not_begun_again(void **state)
{
    struct fixture *fx = remote_fixture_other(*state);
    struct remote *r = remote_of(fx->ws);
    struct provider_files slow = *r->files;
    struct ws_node *node;
    struct ws_dir *dir;
    struct stat attr;

    fixture_mkdir(fx, "d");
    node = fixture_at(fx, "d");
    ws_changed(fx->ws);
    slow.list = list_slowly;
    slow.tree = tell_no_tree;
    r->files = &slow;
    atomic_store(&lists, 0);
    atomic_store(&goes_on, false);
    mutex_lock(&r->base.lock); /* A walk has begun. */
    r->walk.path[0] = '\0';
    r->walk.at_ms = clock_ms();
    mutex_unlock(&r->base.lock);
    read_dir(fx, node, &dir);
    for (int i = 0; i < 3; i++) {
        struct ws_node *none;

        fx->ctx.limits.deadline_ms = clock_deadline(20);
        err_clear(&fx->err);
        assert_int_equal(
            ws_lookup(node, "none", &fx->ctx, &none, &attr, &fx->err),
            -ETIMEDOUT);
    }
    assert_int_equal(atomic_load(&lists), 1);
    ws_closedir(dir);
    ws_node_unref(node);
    remote_fixture_end_other(fx);
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
        ONE(a_long_listing_is_read_while_it_comes),
        ONE(a_long_listing_is_not_begun_again),
    };
    int failed =
        fixture_run_cases(remote_fixture_setup, remote_fixture_teardown);

    failed +=
        fixture_run_cases(remote_fixture_setup_plain, remote_fixture_teardown);
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
