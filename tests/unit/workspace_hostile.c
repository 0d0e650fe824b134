/* Trees that a workload made to lead the daemon astray, or to wear it out. */
#include "core/workspace_direct.h"

#include "tests/unit/workspace_fixture.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A host path of the tree. */
static const char *host(const struct fixture *fx, const char *path)
{
    static char full[PATH_MAX];

    (void)snprintf(full, sizeof(full), "%s/%s", fx->dir, path);
    return full;
}

static void host_write(const struct fixture *fx, const char *path,
                       const char *text)
{
    int fd = open(host(fx, path), O_WRONLY | O_CREAT | O_TRUNC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    (void)close(fd);
}

static void host_rename(const struct fixture *fx, const char *from,
                        const char *to)
{
    char target[PATH_MAX];

    (void)snprintf(target, sizeof(target), "%s/%s", fx->dir, to);
    assert_int_equal(rename(host(fx, from), target), 0);
}

static void a_fifo_is_never_opened(void **state)
{
    struct fixture *fx = *state;
    static const int flags[] = {O_RDONLY, O_WRONLY, O_RDWR};
    struct stat want = {.st_size = 0};
    struct ws_node *node;
    struct ws_file *file;
    struct stat attr;

    assert_int_equal(mkfifo(host(fx, "config.json"), 0644), 0);
    node = fixture_at(fx, "config.json");
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
        assert_int_equal(ws_open(node, flags[i], &fx->ctx, &file, &fx->err),
                         -ENXIO);
    }
    assert_int_equal(ws_setattr(node, NULL, PROVIDER_ATTR_SIZE, &want, &fx->ctx,
                                &attr, &fx->err),
                     -EINVAL);
    ws_node_unref(node);
    assert_int_equal(ws_create(fx->root, "config.json", 0600, O_WRONLY,
                               &fx->ctx, &node, &file, &attr, &fx->err),
                     -ENXIO);
    assert_true(S_ISFIFO(fixture_stat(fx, "config.json").st_mode));
}

static void a_file_that_became_a_link_leads_nowhere(void **state)
{
    struct fixture *fx = *state;
    struct ws_node *dir, *file, *found;
    struct ws_file *open;
    struct stat attr;

    fixture_mkdir(fx, "d");
    host_write(fx, "d/passwd", "mine");
    host_write(fx, "f", "mine");
    dir = fixture_at(fx, "d");
    file = fixture_at(fx, "f");
    host_rename(fx, "d", "was-d");
    host_rename(fx, "f", "was-f");
    assert_int_equal(symlink("/etc", host(fx, "d")), 0);
    assert_int_equal(symlink("/etc/passwd", host(fx, "f")), 0);
    /* The nodes are still the files that they were. */
    assert_int_equal(
        ws_lookup(dir, "passwd", &fx->ctx, &found, &attr, &fx->err), 0);
    assert_int_equal(attr.st_size, 4);
    ws_node_unref(found);
    assert_int_equal(ws_open(file, O_RDWR, &fx->ctx, &open, &fx->err), 0);
    assert_int_equal(ws_getattr(file, open, &fx->ctx, &attr, &fx->err), 0);
    assert_int_equal(attr.st_size, 4);
    ws_close(open);
    ws_node_unref(dir);
    ws_node_unref(file);
    assert_int_equal(fixture_find(fx, "d/passwd"), -ENOTDIR);
}

static void a_raw_link_says_all_and_leads_nowhere(void **state)
{
    struct fixture *fx = *state;

    direct_of(fx->ws)->raw_links = true;
    fixture_raw_links(fx);
}

struct swapper {
    struct fixture *fx;
    atomic_bool stop;
};

/* Swaps a directory for a link to /etc and a file for one to /etc/passwd. */
static void *swap(void *arg)
{
    struct swapper *me = arg;
    char paths[4][128];
    static const char *const names[] = {"d", "d-link", "f", "f-link"};

    for (size_t i = 0; i < 4; i++) {
        (void)snprintf(paths[i], sizeof(paths[i]), "%s/%s", me->fx->dir,
                       names[i]);
    }
    while (!atomic_load(&me->stop)) {
        (void)renameat2(AT_FDCWD, paths[0], AT_FDCWD, paths[1],
                        RENAME_EXCHANGE);
        (void)renameat2(AT_FDCWD, paths[2], AT_FDCWD, paths[3],
                        RENAME_EXCHANGE);
    }
    return NULL;
}

/* Tries to reach through the names; whatever is reached must be ours. */
static void try_names(struct fixture *fx)
{
    struct ws_node *dir, *node;
    struct ws_file *file;
    struct stat attr;
    char text[16] = "";

    if (ws_lookup(fx->root, "d", &fx->ctx, &dir, &attr, &fx->err) == 0) {
        if (ws_lookup(dir, "passwd", &fx->ctx, &node, &attr, &fx->err) == 0) {
            assert_int_equal(attr.st_size, 4);
            ws_node_unref(node);
        }
        ws_node_unref(dir);
    }
    if (ws_create(fx->root, "f", 0600, O_RDWR, &fx->ctx, &node, &file, &attr,
                  &fx->err) == 0) {
        assert_int_equal(ws_read(file, text, 15, 0, &fx->ctx, &fx->err), 4);
        assert_string_equal(text, "mine");
        ws_close(file);
        ws_node_unref(node);
    }
}

static void a_link_swapped_in_meanwhile_leads_nowhere(void **state)
{
    struct fixture *fx = *state;
    struct swapper swapper = {.fx = fx};
    pthread_t thread;

    fixture_mkdir(fx, "d");
    host_write(fx, "d/passwd", "mine");
    host_write(fx, "f", "mine");
    assert_int_equal(symlink("/etc", host(fx, "d-link")), 0);
    assert_int_equal(symlink("/etc/passwd", host(fx, "f-link")), 0);
    direct_fd_limit(1); /* So that names are walked again and again. */
    assert_int_equal(pthread_create(&thread, NULL, swap, &swapper), 0);
    for (int i = 0; i < 5000; i++) {
        try_names(fx);
    }
    atomic_store(&swapper.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/*
 * The calls that make files are led through here: as soon as a file is there it
 * is moved away, as a sandbox would, and kept.
 */
static bool take_away;
static unsigned taken;

int __real_mkdirat(int dir_fd, const char *name, mode_t mode);
int __real_mknodat(int dir_fd, const char *name, mode_t mode, dev_t device);
int __real_symlinkat(const char *target, int dir_fd, const char *name);
int __wrap_mkdirat(int dir_fd, const char *name, mode_t mode);
int __wrap_mknodat(int dir_fd, const char *name, mode_t mode, dev_t device);
int __wrap_symlinkat(const char *target, int dir_fd, const char *name);

static int made(int rc, int dir_fd, const char *name)
{
    char kept[32];

    if (rc == 0 && take_away) {
        (void)snprintf(kept, sizeof(kept), "kept-%u", taken++);
        assert_int_equal(renameat(dir_fd, name, dir_fd, kept), 0);
    }
    return rc;
}

int __wrap_mkdirat(int dir_fd, const char *name, mode_t mode)
{
    return made(__real_mkdirat(dir_fd, name, mode), dir_fd, name);
}

int __wrap_mknodat(int dir_fd, const char *name, mode_t mode, dev_t device)
{
    return made(__real_mknodat(dir_fd, name, mode, device), dir_fd, name);
}

int __wrap_symlinkat(const char *target, int dir_fd, const char *name)
{
    return made(__real_symlinkat(target, dir_fd, name), dir_fd, name);
}

static void what_is_taken_away_as_it_is_made_was_never_our_own(void **state)
{
    struct fixture *fx = *state;
    struct ws_node *node;
    struct stat attr;

    take_away = true;
    assert_int_equal(
        ws_mkdir(fx->root, "n", 0755, &fx->ctx, &node, &attr, &fx->err),
        -ENOENT);
    assert_int_equal(
        ws_symlink(fx->root, "n", "x", &fx->ctx, &node, &attr, &fx->err),
        -ENOENT);
    assert_int_equal(ws_mknod(fx->root, "n", S_IFIFO | 0644, &fx->ctx, &node,
                              &attr, &fx->err),
                     -ENOENT);
    take_away = false;
    assert_int_equal(taken, 3);
    for (unsigned i = 0; i < taken; i++) {
        char kept[32];

        (void)snprintf(kept, sizeof(kept), "kept-%u", i);
        assert_int_equal(lstat(host(fx, kept), &attr), 0);
        assert_int_equal(attr.st_uid, FIXTURE_BASE + FIXTURE_USER);
        assert_int_equal(attr.st_gid, FIXTURE_BASE + FIXTURE_USER);
    }
}

static void a_tree_of_two_thousand_levels_can_be_used(void **state)
{
    struct fixture *fx = *state;
    struct ws_node *nodes[2001];
    struct stat attr;

    direct_fd_limit(16);
    nodes[0] = ws_node_ref(fx->root);
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(ws_mkdir(nodes[i], "directory", 0755, &fx->ctx,
                                  &nodes[i + 1], &attr, &fx->err),
                         0);
    }
    for (int i = 0; i <= 2000; i += 250) {
        assert_int_equal(ws_getattr(nodes[i], NULL, &fx->ctx, &attr, &fx->err),
                         0);
        assert_true(attr.st_ino == ws_node_ino(nodes[i]));
    }
    assert_true(direct_fd_count() <= 16 + 2);
    direct_fd_limit(0);
    for (int i = 1999; i >= 0; i--) {
        assert_int_equal(ws_rmdir(nodes[i], "directory", &fx->ctx, &fx->err),
                         0);
    }
    for (int i = 0; i <= 2000; i++) {
        ws_node_unref(nodes[i]);
    }
}

enum {
    MANY = 1000
};

static void few_fds_serve_a_thousand_files(void **state)
{
    struct fixture *fx = *state;
    static struct ws_node *nodes[MANY];
    struct ws_node *dir;
    struct ws_file *file;
    struct stat attr;
    char name[32], text[8] = "";

    direct_fd_limit(16);
    fixture_mkdir(fx, "d");
    dir = fixture_at(fx, "d");
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof(name), "d/%d", i);
        fixture_write(fx, name, i % 2 ? "odd" : "even");
        nodes[i] = fixture_at(fx, name);
    }
    file = fixture_open(fx, "d/7", O_RDWR);
    assert_int_equal(fixture_unlink(fx, "d/7"), 0);
    assert_int_equal(fixture_rename(fx, "d", "moved", 0), 0);
    assert_true(direct_fd_count() <= 16 + 3);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(ws_getattr(nodes[i], NULL, &fx->ctx, &attr, &fx->err),
                         0);
        assert_int_equal(attr.st_size, i % 2 ? 3 : 4);
    }
    assert_int_equal(ws_read(file, text, 8, 0, &fx->ctx, &fx->err), 3);
    assert_int_equal(ws_write(file, "ODD", 3, 0, &fx->ctx, &fx->err), 3);
    ws_close(file);
    fixture_expect(fx, "moved/8", "even");
    for (int i = 0; i < MANY; i++) {
        ws_node_unref(nodes[i]);
    }
    ws_node_unref(dir);
}

/* Whatever has its number later, an evicted file that is gone is not found. */
static void a_number_that_is_used_again_is_another_file(void **state)
{
    struct fixture *fx = *state;
    struct ws_node *old, *new;
    struct stat attr, before, after;

    direct_fd_limit(1);
    host_write(fx, "keep", "x");
    host_write(fx, "f", "old");
    old = fixture_at(fx, "f");
    before = fixture_stat(fx, "f");
    (void)fixture_stat(fx, "keep"); /* Evicts. */
    assert_int_equal(unlink(host(fx, "f")), 0);
    host_write(fx, "f", "newer");
    after = fixture_stat(fx, "f");
    /* Where others make files meanwhile, the number may not come again. */
    for (int i = 0; i < 200 && after.st_ino != before.st_ino; i++) {
        host_rename(fx, "f", "keep");
        host_write(fx, "f", "newer");
        after = fixture_stat(fx, "f");
    }
    new = fixture_at(fx, "f");
    assert_ptr_not_equal(new, old);
    assert_int_equal(ws_getattr(old, NULL, &fx->ctx, &attr, &fx->err), -ESTALE);
    assert_int_equal(ws_getattr(new, NULL, &fx->ctx, &attr, &fx->err), 0);
    assert_int_equal(attr.st_size, 5);
    ws_node_unref(old);
    ws_node_unref(new);
}

static void a_file_moved_behind_us_is_found_or_stale(void **state)
{
    struct fixture *fx = *state;
    bool handles = direct_of(fx->ws)->handles;
    struct ws_node *node;
    struct stat attr;

    direct_fd_limit(1);
    host_write(fx, "keep", "x");
    host_write(fx, "f", "old");
    node = fixture_at(fx, "f");
    (void)fixture_stat(fx, "keep");
    host_rename(fx, "f", "g");
    host_write(fx, "f", "another");
    assert_int_equal(ws_getattr(node, NULL, &fx->ctx, &attr, &fx->err),
                     handles ? 0 : -ESTALE);
    ws_node_unref(node);
    assert_int_equal(fixture_stat(fx, "g").st_size, 3);
    assert_int_equal(fixture_stat(fx, "f").st_size, 7);
}

/* A link that is known under two names gives what is safe under both. */
static void a_link_with_two_names_leads_no_higher_than_the_lower(void **state)
{
    struct fixture *fx = *state;
    struct ws_node *a, *b, *link;
    char text[64];

    fixture_mkdir(fx, "a");
    fixture_mkdir(fx, "a/b");
    a = fixture_at(fx, "a");
    b = fixture_at(fx, "a/b");
    assert_int_equal(symlink("../../x", host(fx, "l")), 0);
    link = fixture_at(fx, "l");
    host_rename(fx, "l", "a/b/l"); /* The kernel still knows it as l. */
    assert_int_equal(fixture_find(fx, "a/b/l"), 0);
    assert_int_equal(ws_readlink(link, &fx->ctx, text, 64, &fx->err), -EACCES);
    ws_node_unref(link);
    link = fixture_at(fx, "a/b/l"); /* Nobody knows it as l any more. */
    assert_int_equal(ws_readlink(link, &fx->ctx, text, 64, &fx->err), 0);
    ws_node_unref(link);
    ws_node_unref(b);
    ws_node_unref(a);
}

/* What a link of a directory says, met in there. */
static int read_in(struct fixture *fx, struct ws_node *dir, const char *name)
{
    struct ws_node *link = NULL;
    struct stat attr;
    char text[64];
    int rc;

    assert_int_equal(ws_lookup(dir, name, &fx->ctx, &link, &attr, &fx->err), 0);
    rc = ws_readlink(link, &fx->ctx, text, sizeof(text), &fx->err);
    ws_node_unref(link);
    return rc;
}

/* What the sandbox moves stays where it was for the kernel, and is another
 * directory where it is met again. */
static void a_link_leads_as_far_as_where_its_directory_is_met(void **state)
{
    static const struct {
        const char *name;
        const char *target;
        int before;
        int after;
    } links[] = {
        {"over", "../x", 0, 0},
        {"root", "../../x", 0, 0},
        {"out", "../../../x", -EACCES, 0},
        {"far", "../../../../../x", -EACCES, -EACCES},
    };
    struct fixture *fx = *state;
    struct ws_node *held[6];
    struct stat attr;
    char path[32];

    fixture_mkdir(fx, "a");
    fixture_mkdir(fx, "a/b");
    fixture_mkdir(fx, "w");
    fixture_mkdir(fx, "w/d");
    held[0] = fixture_at(fx, "w");
    held[1] = fixture_at(fx, "w/d");
    for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
        (void)snprintf(path, sizeof(path), "w/d/%s", links[i].name);
        assert_int_equal(symlink(links[i].target, host(fx, path)), 0);
        assert_int_equal(read_in(fx, held[1], links[i].name), links[i].before);
    }
    attr = fixture_stat(fx, "w/d");
    host_rename(fx, "w", "a/b/w");
    held[2] = fixture_at(fx, "a");
    held[3] = fixture_at(fx, "a/b");
    held[4] = fixture_at(fx, "a/b/w");
    held[5] = fixture_at(fx, "a/b/w/d");
    assert_ptr_not_equal(held[1], held[5]);
    assert_int_equal(fixture_stat(fx, "a/b/w/d").st_ino, attr.st_ino);
    for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
        assert_int_equal(read_in(fx, held[5], links[i].name), links[i].after);
        /* Whoever has stayed where it was comes to no place that is known. */
        assert_int_equal(read_in(fx, held[1], links[i].name), -ESTALE);
        assert_int_equal(read_in(fx, held[5], links[i].name), links[i].after);
    }
    for (size_t i = 0; i < ARRAY_SIZE(held); i++) {
        ws_node_unref(held[i]);
    }
}

/* What we moved ourselves is where the kernel holds it to be. */
static void
a_link_in_a_directory_that_we_moved_leads_as_far_as_before(void **state)
{
    struct fixture *fx = *state;
    struct ws_node *held[3], *link;
    char text[64];

    fixture_mkdir(fx, "a");
    fixture_mkdir(fx, "a/b");
    fixture_mkdir(fx, "w");
    assert_int_equal(symlink("../../../x", host(fx, "w/l")), 0);
    held[0] = fixture_at(fx, "a");
    held[1] = fixture_at(fx, "a/b");
    held[2] = fixture_at(fx, "w");
    link = fixture_at(fx, "w/l");
    assert_int_equal(ws_readlink(link, &fx->ctx, text, 64, &fx->err), -EACCES);
    assert_int_equal(fixture_rename(fx, "w", "a/b/w", 0), 0);
    assert_int_equal(ws_readlink(link, &fx->ctx, text, 64, &fx->err), 0);
    ws_node_unref(link);
    for (size_t i = 0; i < sizeof(held) / sizeof(held[0]); i++) {
        ws_node_unref(held[i]);
    }
}

/* While we move w, the sandbox exchanges it with x, which is known as /x. */
static enum {
    NO_SWAP,
    SWAP_BEFORE,
    SWAP_AFTER
} exchange;

int __real_renameat2(int from_fd, const char *from, int to_fd, const char *to,
                     unsigned flags);
int __wrap_renameat2(int from_fd, const char *from, int to_fd, const char *to,
                     unsigned flags);

int __wrap_renameat2(int from_fd, const char *from, int to_fd, const char *to,
                     unsigned flags)
{
    int rc = exchange == SWAP_BEFORE
                 ? __real_renameat2(to_fd, "x", from_fd, from, RENAME_EXCHANGE)
                 : 0;

    rc = rc == 0 ? __real_renameat2(from_fd, from, to_fd, to, flags) : rc;
    if (rc == 0 && exchange == SWAP_AFTER) {
        rc = __real_renameat2(to_fd, "x", to_fd, to, RENAME_EXCHANGE);
    }
    return rc;
}

/* For the kernel it is w that has moved up, and from there its link would lead
 * out of the workspace. */
static void expect_lost(struct fixture *fx)
{
    struct ws_node *held[3];
    struct ws_node *again;

    fixture_mkdir(fx, "a");
    fixture_mkdir(fx, "a/w");
    fixture_mkdir(fx, "x");
    assert_int_equal(symlink("../../y", host(fx, "a/w/l")), 0);
    assert_int_equal(symlink("../y", host(fx, "x/l")), 0);
    held[0] = fixture_at(fx, "a");
    held[1] = fixture_at(fx, "a/w");
    held[2] = fixture_at(fx, "x");
    assert_int_equal(read_in(fx, held[1], "l"), 0);
    assert_int_equal(fixture_rename(fx, "a/w", "v", 0), 0);
    exchange = NO_SWAP;
    assert_int_equal(read_in(fx, held[1], "l"), -EACCES);
    assert_int_equal(read_in(fx, held[2], "l"), 0);
    /* Met again it is known where it is. */
    again = fixture_at(fx, "x");
    assert_ptr_not_equal(again, held[1]);
    host_rename(fx, "x/l", "x/m");
    assert_int_equal(symlink("../y", host(fx, "x/l")), 0);
    assert_int_equal(read_in(fx, again, "l"), 0);
    assert_int_equal(read_in(fx, again, "m"), -EACCES);
    ws_node_unref(again);
    for (size_t i = 0; i < ARRAY_SIZE(held); i++) {
        ws_node_unref(held[i]);
    }
}

static void what_was_swapped_as_we_rename_leads_nowhere(void **state)
{
    exchange = SWAP_BEFORE;
    expect_lost(*state);
}

static void what_is_swapped_as_we_have_renamed_leads_nowhere(void **state)
{
    exchange = SWAP_AFTER;
    expect_lost(*state);
}

static void looking_up_and_forgetting_takes_no_memory(void **state)
{
    struct fixture *fx = *state;
    struct mallinfo2 before;
    char name[32];

    for (int i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof(name), "f%d", i);
        host_write(fx, name, "x");
        assert_int_equal(fixture_find(fx, name), 0);
    }
    before = mallinfo2();
    for (int i = 0; i < 200000; i++) {
        struct ws_node *node;
        struct stat attr;

        (void)snprintf(name, sizeof(name), "f%d", i % 100);
        assert_int_equal(
            ws_lookup(fx->root, name, &fx->ctx, &node, &attr, &fx->err), 0);
        ws_node_unref(node);
    }
    assert_true(mallinfo2().uordblks <= before.uordblks + 4096);
    assert_true(direct_fd_count() <= 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_DIRECT_BOTH(a_fifo_is_never_opened),
        FIXTURE_DIRECT_BOTH(a_file_that_became_a_link_leads_nowhere),
        FIXTURE_DIRECT_BOTH(a_raw_link_says_all_and_leads_nowhere),
        FIXTURE_DIRECT_BOTH(a_link_swapped_in_meanwhile_leads_nowhere),
        FIXTURE_DIRECT(what_is_taken_away_as_it_is_made_was_never_our_own),
        FIXTURE_DIRECT_BOTH(a_tree_of_two_thousand_levels_can_be_used),
        FIXTURE_DIRECT_BOTH(few_fds_serve_a_thousand_files),
        FIXTURE_DIRECT(a_number_that_is_used_again_is_another_file),
        FIXTURE_DIRECT_BOTH(a_file_moved_behind_us_is_found_or_stale),
        FIXTURE_DIRECT_BOTH(
            a_link_with_two_names_leads_no_higher_than_the_lower),
        FIXTURE_DIRECT_BOTH(a_link_leads_as_far_as_where_its_directory_is_met),
        FIXTURE_DIRECT_BOTH(
            a_link_in_a_directory_that_we_moved_leads_as_far_as_before),
        FIXTURE_DIRECT_BOTH(what_was_swapped_as_we_rename_leads_nowhere),
        FIXTURE_DIRECT_BOTH(what_is_swapped_as_we_have_renamed_leads_nowhere),
        FIXTURE_DIRECT_BOTH(looking_up_and_forgetting_takes_no_memory),
    };

    (void)umask(0);
    if (geteuid() != 0) {
        return 77; /* Owners are changed. */
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
