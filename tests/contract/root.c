/* The workspace as a directory of this machine, where an engine has that. */
#include "tests/cmocka.h"
#include "tests/contract/bench.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void take_root(struct bench *bench, struct bench_box *box,
                      struct provider_root *out)
{
    struct err err = ERR_INIT;

    if (!bench_ops()->root) {
        skip();
    }
    assert_int_equal(provider_root(bench->provider, &box->sandbox, out, &err),
                     0);
}

static void its_owner_is_the_sandboxs_user(void **state)
{
    struct provider_root root;
    struct bench_box box;
    struct stat st;

    bench_create(*state, &box);
    take_root(*state, &box, &root);
    assert_int_equal(fstat(root.fd, &st), 0);
    assert_true(S_ISDIR(st.st_mode));
    assert_true(root.user < root.count && root.group < root.count);
    assert_int_equal(st.st_uid, root.base + root.user);
    assert_int_equal(st.st_gid, root.gid_base + root.group);
    assert_int_not_equal(root.base, 0);
    assert_true(fcntl(root.fd, F_GETFL) & O_PATH);
    (void)close(root.fd);
    bench_destroy(*state, &box);
}

static void both_sides_see_each_others_files(void **state)
{
    struct provider_root root;
    struct bench_box box;
    char text[16] = "";
    int fd;

    bench_create(*state, &box);
    take_root(*state, &box, &root);
    assert_int_equal(bench_sh(*state, &box, "echo in > a; chmod 640 a", ""), 0);
    fd = openat(root.fd, "a", O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, text, sizeof(text) - 1), 3);
    assert_string_equal(text, "in\n");
    (void)close(fd);
    fd = openat(root.fd, "b", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_int_equal(
        fchown(fd, root.base + root.user, root.gid_base + root.group), 0);
    assert_int_equal(write(fd, "out\n", 4), 4);
    (void)close(fd);
    assert_int_equal(bench_sh(*state, &box, "cat b; echo more >> b", "out\n"),
                     0);
    (void)close(root.fd);
    bench_destroy(*state, &box);
}

static void a_pause_leaves_it_usable(void **state)
{
    struct bench *bench = *state;
    struct provider_root root;
    struct bench_box box;
    struct err err = ERR_INIT;
    struct stat st;

    if (!(bench_ops()->flags & PROVIDER_FILES_WHEN_PAUSED)) {
        skip();
    }
    bench_create(bench, &box);
    assert_int_equal(bench_sh(bench, &box, "echo in > a", ""), 0);
    assert_int_equal(provider_pause(bench->provider, &box.sandbox,
                                    bench_limits(bench), &err),
                     0);
    take_root(bench, &box, &root);
    assert_int_equal(fstatat(root.fd, "a", &st, 0), 0);
    assert_int_equal(st.st_size, 3);
    (void)close(root.fd);
    bench_destroy(bench, &box);
}

/* Makes `dir` deeper than a path can be long, and than fds go. */
static void dig(int dir)
{
    int at = dup(dir);

    for (int i = 0; i < 1100; i++) {
        int next;

        assert_int_equal(mkdirat(at, "deeper", 0755), 0);
        next = openat(at, "deeper", O_PATH | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        (void)close(at);
        at = next;
    }
    (void)close(at);
}

static void a_hostile_tree_is_destroyed_and_no_link_followed(void **state)
{
    struct bench *bench = *state;
    struct provider_root root;
    struct bench_box box;
    char outside[BENCH_PATH + 16];
    char name[256];
    struct stat st;
    int fd;

    bench_create(bench, &box);
    take_root(bench, &box, &root);
    (void)snprintf(outside, sizeof(outside), "%s/outside", bench->dir);
    fd = open(outside, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(symlinkat(bench->dir, root.fd, "link"), 0);
    assert_int_equal(symlinkat("/", root.fd, "root"), 0);
    assert_int_equal(mkfifoat(root.fd, "fifo", 0600), 0);
    dig(root.fd);
    memset(name, 0xfe, 255);
    name[255] = '\0';
    assert_int_equal(mkdirat(root.fd, name, 0), 0);
    for (int i = 0; i < 200; i++) {
        (void)snprintf(name, sizeof(name), "%d\n", i);
        assert_int_equal(mkdirat(root.fd, name, 0700), 0);
    }
    (void)close(root.fd);
    bench_destroy(bench, &box);
    assert_int_equal(bench_status(bench, &box), PROVIDER_LOST);
    assert_int_equal(stat(outside, &st), 0);
    assert_int_equal(unlink(outside), 0);
}

int suite_root(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_owner_is_the_sandboxs_user),
        cmocka_unit_test(both_sides_see_each_others_files),
        cmocka_unit_test(a_pause_leaves_it_usable),
        cmocka_unit_test(a_hostile_tree_is_destroyed_and_no_link_followed),
    };

    return bench_ops()->root
               ? cmocka_run_group_tests_name("root", tests, bench_group_setup,
                                             bench_group_teardown)
               : 0;
}
