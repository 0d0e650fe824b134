/* The tree over a provider's file calls, here those of `mem`. */
#include "core/workspace_remote.h"
#include "core/loop.h"

#include "tests/unit/workspace_fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

extern const struct provider_ops provider_mem;

/* What a fixture keeps of its own. */
struct engine {
    struct loop *loop;
    struct provider *provider;
    struct instance instance;
    struct sandbox sandbox;
};

static int setup(void **state)
{
    struct fixture *fx = calloc(1, sizeof(*fx));
    struct engine *engine = calloc(1, sizeof(*engine));
    struct provider_env env = {.state_dir = "/nonexistent"};
    const struct ws_view view = {.uid = FIXTURE_UID, .gid = FIXTURE_GID};
    struct cancel cancel;
    const struct limits limits = {.deadline_ms = INT64_MAX, .cancel = &cancel};

    assert_int_equal(cancel_init(&cancel, &fx->err), 0);
    assert_int_equal(loop_new(&engine->loop, &fx->err), 0);
    env.loop = engine->loop;
    assert_int_equal(
        provider_open(&provider_mem, &env, &engine->provider, &fx->err), 0);
    engine->sandbox = (struct sandbox){.number = 7,
                                       .id = "s7",
                                       .dir = "/nonexistent",
                                       .config = "{}",
                                       .instance = &engine->instance};
    assert_int_equal(
        provider_create(engine->provider, &engine->sandbox, &limits, &fx->err),
        0);
    assert_int_equal(ws_new_remote(engine->provider, &engine->sandbox, &view,
                                   &fx->ws, &fx->err),
                     0);
    cancel_done(&cancel);
    fx->own = engine;
    fixture_begin(fx);
    *state = fx;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fx = *state;
    struct engine *engine = fx->own;

    fixture_end(fx);
    provider_close(engine->provider);
    loop_free(engine->loop);
    instance_done(&engine->instance);
    free(engine);
    free(fx);
    return 0;
}

static void a_removed_or_replaced_open_file_is_stale(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *removed, *replaced;
    char byte;

    fixture_write(fx, "a", "a");
    fixture_write(fx, "b", "b");
    fixture_write(fx, "c", "c");
    removed = fixture_open(fx, "a", O_RDWR);
    replaced = fixture_open(fx, "b", O_RDWR);
    assert_int_equal(fixture_unlink(fx, "a"), 0);
    assert_int_equal(fixture_rename(fx, "c", "b", 0), 0);
    fixture_write(fx, "a", "new");
    assert_int_equal(ws_read(removed, &byte, 1, 0, &fx->ctx, &fx->err),
                     -ESTALE);
    assert_int_equal(ws_write(replaced, "x", 1, 0, &fx->ctx, &fx->err),
                     -ESTALE);
    fixture_expect(fx, "a", "new");
    fixture_expect(fx, "b", "c");
    ws_close(removed);
    ws_close(replaced);
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

static void tally_files(void *arg, const char *op, uint64_t calls,
                        uint64_t failures)
{
    uint64_t *out = arg;

    if (strcmp(op, "files") == 0) {
        out[0] = calls;
        out[1] = failures;
    }
}

static void failed_file_calls_are_counted(void **state)
{
    struct fixture *fx = *state;
    const struct engine *engine = fx->own;
    uint64_t before[2] = {0, 0};
    uint64_t after[2] = {0, 0};

    fixture_mkdir(fx, "d");
    fixture_write(fx, "d/f", "x");
    provider_stats(engine->provider, tally_files, before);
    assert_int_equal(ws_rmdir(fx->root, "d", &fx->ctx, &fx->err), -ENOTEMPTY);
    assert_int_equal(fixture_find(fx, "absent"), -ENOENT);
    provider_stats(engine->provider, tally_files, after);
    assert_true(after[0] - before[0] >= 2);
    assert_int_equal(after[1] - before[1], 1);
}

static void a_raw_link_says_all_and_leads_nowhere(void **state)
{
    struct fixture *fx = *state;

    remote_of(fx->ws)->view.raw_links = true;
    fixture_raw_links(fx);
}

#define ONE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(a_removed_or_replaced_open_file_is_stale),
        ONE(a_linked_file_outlives_its_first_name),
        ONE(all_files_are_the_mounting_users),
        ONE(what_the_provider_lacks_is_said),
        ONE(a_raw_link_says_all_and_leads_nowhere),
        ONE(failed_file_calls_are_counted),
    };
    int failed = fixture_run_cases(setup, teardown);

    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
