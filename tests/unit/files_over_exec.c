/* Names and attributes by scripts, with the shells that sandboxes have. */
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/files_over_exec_priv.h"
#include "tests/cmocka.h"
#include "tests/unit/shell_provider.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a name may be: all of it only ever an argument. */
static const char *const names[] = {
    "plain",
    "with space",
    "new\nline",
    "end\n",
    "-n",
    "--help",
    "$(touch pwned)",
    "`touch pwned`",
    "'quote'",
    "\"double\"",
    "back\\slash",
    "*",
    "[a-z]?",
    "\xff\xfe",
    "\xc3\xa4",
    "tab\there",
    "!ex",
    ";touch pwned;",
    "a|b&c",
    "\x01\x7f",
    "~",
    "#",
    "..x",
    ".hidden",
    "%s%n",
};

/* ---- Attributes and listings ---- */

static void stat_tells_what_is(void **state)
{
    struct shell_provider *sh = *state;
    struct err err = ERR_INIT;
    struct stat told, real;
    static const char *const paths[] = {"", "f", "d", "d/g", "l", "p"};

    put_text(sh, "f", "hello");
    assert_int_equal(chmod(host(sh, "f"), 04751), 0);
    assert_int_equal(mkdir(host(sh, "d"), 0700), 0);
    put_text(sh, "d/g", "");
    assert_int_equal(symlink("nowhere", host(sh, "l")), 0);
    assert_int_equal(mkfifo(host(sh, "p"), 0600), 0);
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        assert_int_equal(CALL_TO(stat, paths[i], &told), 0);
        assert_int_equal(lstat(host(sh, paths[i]), &real), 0);
        same_attributes(&told, &real);
    }
}

struct listing {
    struct shell_provider *sh;
    const char *dir; /* NULL: told by the tree. */
    unsigned seen;
};

static int on_entry(void *arg, const struct provider_entry *entry)
{
    struct listing *listing = arg;
    char path[512];
    struct stat real;

    (void)snprintf(path, sizeof(path), "%s%s%s", listing->dir,
                   listing->dir[0] ? "/" : "", entry->name);
    assert_int_equal(lstat(host(listing->sh, path), &real), 0);
    same_attributes(&entry->attr, &real);
    listing->seen++;
    return 0;
}

static int on_node(void *arg, const char *dir,
                   const struct provider_entry *entry)
{
    struct listing *listing = arg;

    listing->dir = dir;
    return on_entry(listing, entry);
}

static void names_may_be_any_bytes(void **state)
{
    struct shell_provider *sh = *state;
    struct listing listing = {.sh = sh, .dir = ""};
    struct err err = ERR_INIT;
    struct stat told;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char moved[300];

        (void)snprintf(moved, sizeof(moved), "%s 2", names[i]);
        assert_int_equal(MAKE(create, names[i], 0644), 0);
        assert_int_equal(CALL_TO(stat, names[i], &told), 0);
        assert_int_equal(told.st_mode, S_IFREG | 0644);
        assert_int_equal(CALL(write_at, names[i], "x", 1, 0), 0);
        assert_int_equal(CALL(rename, names[i], moved, 0), 0);
        assert_int_equal(CALL(link, moved, names[i]), 0);
        assert_int_equal(CALL(remove, moved, false), 0);
        assert_int_equal(MAKE(symlink, names[i], moved), 0);
    }
    assert_int_equal(CALL_TO(list, "", on_entry, &listing), 0);
    assert_int_equal(listing.seen, 2 * ARRAY_SIZE(names));
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char moved[300];
        char target[300];

        (void)snprintf(moved, sizeof(moved), "%s 2", names[i]);
        expect_text(sh, names[i], "x");
        assert_int_equal(CALL_TO(read_link, moved, target, sizeof(target)), 0);
        assert_string_equal(target, names[i]);
        assert_int_equal(CALL(remove, names[i], false), 0);
        assert_int_equal(MAKE(make_dir, names[i], 0755), 0);
        assert_int_equal(CALL(remove, names[i], true), 0);
    }
    assert_int_not_equal(access(host(sh, "pwned"), F_OK), 0);
}

static void a_directory_is_one_script(void **state)
{
    struct shell_provider *sh = *state;
    struct listing listing = {.sh = sh, .dir = "d"};
    struct err err = ERR_INIT;
    char name[32];

    assert_int_equal(mkdir(host(sh, "d"), 0755), 0);
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(name, sizeof(name), "d/%d", i);
        put_text(sh, name, "");
    }
    assert_int_equal(mkdir(host(sh, "d/sub"), 0755), 0);
    put_text(sh, "d/sub/hidden", "");
    sh->runs = 0;
    assert_int_equal(CALL_TO(list, "d", on_entry, &listing), 0);
    assert_int_equal(sh->runs, 1);
    assert_int_equal(listing.seen, 1001);
}

static void a_long_directory_comes_in_pieces(void **state)
{
    const struct over_pieces before = over_pieces;
    struct shell_provider *sh = *state;
    const int64_t deadline = clock_deadline(60 * 1000);
    struct listing listing = {.sh = sh, .dir = "d"};
    struct err err = ERR_INIT;
    char name[300];

    assert_int_equal(mkdir(host(sh, "d"), 0755), 0);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        (void)snprintf(name, sizeof(name), "d/%s", names[i]);
        put_text(sh, name, "x");
    }
    over_pieces = (struct over_pieces){.bytes = 500, .names = 7};
    sh->limits.deadline_ms = deadline;
    sh->runs = 0;
    assert_int_equal(CALL_TO(list, "d", on_entry, &listing), 0);
    assert_int_equal(listing.seen, ARRAY_SIZE(names));
    assert_int_equal(sh->runs, 2 + (ARRAY_SIZE(names) + 6) / 7);
    assert_true(sh->until_ms > deadline); /* Each has its own. */
    if (sh->kind->tools) {                /* At once, where it must be. */
        (void)snprintf(name, sizeof(name), "%s/xargs", sh->tools);
        assert_int_equal(unlink(name), 0);
        listing.seen = 0;
        sh->runs = 0;
        assert_int_equal(CALL_TO(list, "d", on_entry, &listing), 0);
        assert_int_equal(listing.seen, ARRAY_SIZE(names));
        assert_int_equal(sh->runs, 3);
    }
    over_pieces = before;
    assert_int_not_equal(access(host(sh, "pwned"), F_OK), 0);
    assert_int_not_equal(access(host(sh, "d/pwned"), F_OK), 0);
}

static void a_tree_is_one_script(void **state)
{
    struct shell_provider *sh = *state;
    struct listing listing = {.sh = sh};
    struct err err = ERR_INIT;
    char name[64];

    for (int i = 0; i < 20; i++) {
        (void)snprintf(name, sizeof(name), "d%d", i);
        assert_int_equal(mkdir(host(sh, name), 0755), 0);
        (void)snprintf(name, sizeof(name), "d%d/new\nline", i);
        put_text(sh, name, "x");
    }
    sh->runs = 0;
    assert_int_equal(files_over_exec.tree(&sh->base, &sh->sandbox, "", 1000,
                                          &sh->limits, on_node, &listing, &err),
                     0);
    assert_int_equal(listing.seen, 40);
    listing.seen = 0;
    assert_int_equal(files_over_exec.tree(&sh->base, &sh->sandbox, "d3", 1000,
                                          &sh->limits, on_node, &listing, &err),
                     0);
    assert_int_equal(listing.seen, 1);
    assert_int_equal(sh->runs, 2);
    listing.seen = 0;
    assert_int_equal(files_over_exec.tree(&sh->base, &sh->sandbox, "", 10,
                                          &sh->limits, on_node, &listing, &err),
                     -E2BIG);
    assert_int_equal(listing.seen, 10);
}

static void set_attr_sets_what_is_asked(void **state)
{
    struct shell_provider *sh = *state;
    struct err err = ERR_INIT;
    struct stat want = {.st_mode = 0640, .st_size = 3};
    struct stat real, before;

    put_text(sh, "f", "hello");
    want.st_mtim =
        (struct timespec){.tv_sec = 1700000000, .tv_nsec = 123456789};
    want.st_atim = (struct timespec){.tv_sec = 1600000000};
    assert_int_equal(
        CALL(set_attr, "f",
             PROVIDER_ATTR_MODE | PROVIDER_ATTR_SIZE | PROVIDER_ATTR_MTIME,
             &want),
        0);
    expect_text(sh, "f", "hel");
    assert_int_equal(stat(host(sh, "f"), &before), 0);
    assert_int_equal(before.st_mode, S_IFREG | 0640);
    assert_int_equal(before.st_mtim.tv_sec, 1700000000);
    if (!sh->kind->tools) { /* The small ones know whole seconds. */
        assert_int_equal(before.st_mtim.tv_nsec, 123456789);
    }
    assert_int_equal(CALL(set_attr, "f", PROVIDER_ATTR_ATIME, &want), 0);
    assert_int_equal(stat(host(sh, "f"), &real), 0);
    assert_int_equal(real.st_atim.tv_sec, 1600000000);
    assert_int_equal(real.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
    want.st_size = 5000000000;
    assert_int_equal(CALL(set_attr, "f", PROVIDER_ATTR_SIZE, &want), 0);
    assert_int_equal(stat(host(sh, "f"), &real), 0);
    assert_int_equal(real.st_size, 5000000000);
    assert_true(real.st_blocks < 100);
    want.st_mode = 01777;
    assert_int_equal(MAKE(make_dir, "d", 0711), 0);
    assert_int_equal(sh->made.st_mode, S_IFDIR | 0711);
    assert_int_equal(CALL(set_attr, "d", PROVIDER_ATTR_MODE, &want), 0);
    assert_int_equal(stat(host(sh, "d"), &real), 0);
    assert_int_equal(real.st_mode, S_IFDIR | 01777);
    assert_int_equal(CALL(set_attr, "", PROVIDER_ATTR_MODE, &want), 0);
}

/* ---- Failures ---- */

static int count_entry(void *arg, const struct provider_entry *entry)
{
    unsigned *n = arg;

    assert_true(entry->name[0] && entry->attr.st_mode);
    (*n)++;
    return 0;
}

/* What a look tells of a path. */
static struct provider_look look_at(struct shell_provider *sh, const char *path,
                                    size_t most, int expected, unsigned *n)
{
    struct provider_look look = {.fn = count_entry, .arg = n, .most = most};
    struct err err = ERR_INIT;

    *n = 0;
    assert_int_equal(CALL_TO(look, path, &look), expected);
    return look;
}

static void a_look_is_a_directory_with_its_entries(void **state)
{
    struct shell_provider *sh = *state;
    struct provider_look look;
    char name[300];
    unsigned n;

    put_text(sh, "f", "text");
    assert_int_equal(symlink(".", host(sh, "l")), 0);
    assert_int_equal(mkdir(host(sh, "d"), 0755), 0);
    put_text(sh, "d/d", "x");
    put_text(sh, "d/e\ne", "x");
    look = look_at(sh, "d", 10, 0, &n);
    assert_true(look.whole && S_ISDIR(look.attr.st_mode) && n == 2);
    look = look_at(sh, "", 10, 0, &n);
    assert_true(look.whole && S_ISDIR(look.attr.st_mode) && n >= 3);
    look = look_at(sh, "f", 10, 0, &n);
    assert_true(!look.whole && n == 0 && look.attr.st_size == 4);
    look = look_at(sh, "l", 10, 0, &n);
    assert_true(!look.whole && n == 0 && S_ISLNK(look.attr.st_mode));
    (void)look_at(sh, "no", 10, -ENOENT, &n);
    assert_int_equal(mkdir(host(sh, "many"), 0755), 0);
    look = look_at(sh, "many", 10, 0, &n);
    assert_true(look.whole && n == 0);
    for (int i = 0; i < 20; i++) { /* Longer names than it has room for. */
        (void)snprintf(name, sizeof(name), "many/%0200d", i);
        put_text(sh, name, "x");
    }
    look = look_at(sh, "many", 10, 0, &n);
    assert_true(!look.whole && n == 0 && S_ISDIR(look.attr.st_mode));
    if (geteuid() != 0) {
        assert_int_equal(chmod(host(sh, "many"), 0), 0);
        look = look_at(sh, "many", 10, 0, &n);
        assert_true(!look.whole && S_ISDIR(look.attr.st_mode));
        assert_int_equal(chmod(host(sh, "many"), 0755), 0);
    }
}

static void each_failure_has_its_errno(void **state)
{
    struct shell_provider *sh = *state;
    struct err err = ERR_INIT;
    struct stat attr = {.st_mode = 0644, .st_size = 1};
    char target[100];
    char longest[300];
    char byte;

    memset(longest, 'x', sizeof(longest) - 1);
    longest[256] = '\0';
    put_text(sh, "f", "x");
    assert_int_equal(mkdir(host(sh, "full"), 0755), 0);
    put_text(sh, "full/.x", "x");
    assert_int_equal(mkdir(host(sh, "empty"), 0755), 0);
    assert_int_equal(symlink("full", host(sh, "l")), 0);
    assert_int_equal(mkfifo(host(sh, "p"), 0600), 0);
    assert_int_equal(CALL_TO(stat, "no", &attr), -ENOENT);
    assert_int_equal(CALL_TO(stat, "no/no", &attr), -ENOENT);
    assert_int_equal(CALL_TO(stat, "f/no", &attr), -ENOTDIR);
    assert_int_equal(CALL_TO(stat, "l/.x", &attr), -ELOOP);
    assert_int_equal(CALL_TO(stat, longest, &attr), -ENAMETOOLONG);
    assert_int_equal(CALL_TO(list, "f", on_entry, NULL), -ENOTDIR);
    assert_int_equal(CALL_TO(list, "l", on_entry, NULL), -ELOOP);
    assert_int_equal(CALL_TO(list, "no", on_entry, NULL), -ENOENT);
    assert_int_equal(MAKE(create, "f", 0644), -EEXIST);
    assert_int_equal(MAKE(create, "l", 0644), -EEXIST);
    assert_int_equal(MAKE(create, "p", 0644), -EEXIST);
    assert_int_equal(MAKE(create, "no/f", 0644), -ENOENT);
    assert_int_equal(MAKE(create, "f/f", 0644), -ENOTDIR);
    assert_int_equal(MAKE(create, longest, 0644), -ENAMETOOLONG);
    assert_int_equal(MAKE(make_dir, "f", 0755), -EEXIST);
    assert_int_equal(MAKE(make_dir, "empty", 0755), -EEXIST);
    assert_int_equal(MAKE(make_dir, "no/d", 0755), -ENOENT);
    assert_int_equal(CALL(remove, "no", false), -ENOENT);
    assert_int_equal(CALL(remove, "full", false), -EISDIR);
    assert_int_equal(CALL(remove, "full", true), -ENOTEMPTY);
    assert_int_equal(CALL(remove, "f", true), -ENOTDIR);
    assert_int_equal(CALL(remove, "l", true), -ENOTDIR);
    assert_int_equal(MAKE(symlink, "t", "f"), -EEXIST);
    assert_int_equal(MAKE(symlink, "t", "empty"), -EEXIST);
    assert_int_equal(CALL_TO(read_link, "f", target, sizeof(target)), -EINVAL);
    assert_int_equal(CALL_TO(read_link, "l", target, 4), -ENAMETOOLONG);
    assert_int_equal(CALL_TO(read_link, "no", target, 9), -ENOENT);
    assert_int_equal(CALL(link, "full", "g"), -EPERM);
    assert_int_equal(CALL(link, "f", "empty"), -EEXIST);
    assert_int_equal(CALL(link, "no", "g"), -ENOENT);
    assert_int_equal(CALL(set_attr, "full", PROVIDER_ATTR_SIZE, &attr),
                     -EISDIR);
    assert_int_equal(CALL(set_attr, "l", PROVIDER_ATTR_MODE, &attr),
                     -EOPNOTSUPP);
    assert_int_equal(CALL(set_attr, "no", PROVIDER_ATTR_MODE, &attr), -ENOENT);
    assert_int_equal(CALL(read_at, "full", &byte, 1, 0), -EISDIR);
    assert_int_equal(CALL(read_at, "l", &byte, 1, 0), -ELOOP);
    assert_int_equal(CALL(read_at, "p", &byte, 1, 0), -ENXIO);
    assert_int_equal(CALL(read_at, "no", &byte, 1, 0), -ENOENT);
    assert_int_equal(CALL(write_at, "no", "x", 1, 0), -ENOENT);
    assert_int_equal(CALL(write_at, "full", "x", 1, 0), -EISDIR);
    assert_int_not_equal(access(host(sh, "no"), F_OK), 0);
}

static void a_rename_does_what_rename_does(void **state)
{
    struct shell_provider *sh = *state;
    struct err err = ERR_INIT;
    struct stat a, b;

    put_text(sh, "f", "f");
    put_text(sh, "g", "g");
    assert_int_equal(mkdir(host(sh, "d"), 0755), 0);
    assert_int_equal(mkdir(host(sh, "e"), 0755), 0);
    put_text(sh, "e/x", "x");
    assert_int_equal(symlink("d", host(sh, "l")), 0);
    assert_int_equal(CALL(rename, "f", "g", 0), 0);
    expect_text(sh, "g", "f");
    assert_int_equal(CALL(rename, "f", "h", 0), -ENOENT);
    assert_int_equal(CALL(rename, "g", "d", 0), -EISDIR);
    assert_int_equal(CALL(rename, "d", "g", 0), -ENOTDIR);
    assert_int_equal(CALL(rename, "d", "e", 0), -ENOTEMPTY);
    assert_int_equal(CALL(rename, "e", "e/sub", 0), -EINVAL);
    assert_int_equal(CALL(rename, "e", "d", 0), 0);
    expect_text(sh, "d/x", "x");
    /* A link to a directory is replaced, and nothing goes into it. */
    assert_int_equal(CALL(rename, "g", "l", 0), 0);
    expect_text(sh, "l", "f");
    assert_int_not_equal(access(host(sh, "d/g"), F_OK), 0);
    assert_int_equal(CALL(rename, "l", "d/l", 0), 0);
    expect_text(sh, "d/l", "f");
    assert_int_equal(CALL(rename, "d/l", "d/x", RENAME_NOREPLACE), -EEXIST);
    assert_int_equal(CALL(rename, "d/l", "new", RENAME_NOREPLACE), 0);
    expect_text(sh, "new", "f");
    assert_int_equal(CALL(rename, "d", "dir", RENAME_NOREPLACE), 0);
    expect_text(sh, "dir/x", "x");
    assert_int_equal(CALL(link, "new", "same"), 0);
    assert_int_equal(CALL(rename, "new", "same", 0), 0);
    assert_int_equal(stat(host(sh, "new"), &a), 0);
    assert_int_equal(stat(host(sh, "same"), &b), 0);
    assert_int_equal(a.st_ino, b.st_ino);
    assert_int_equal(CALL(rename, "new", "absent", RENAME_EXCHANGE), -ENOENT);
    if (CALL(rename, "new", "dir/x", RENAME_EXCHANGE) == 0) {
        expect_text(sh, "new", "x");
        expect_text(sh, "dir/x", "f");
    } else {
        assert_int_equal(err.code, EINVAL);
        expect_text(sh, "new", "f");
    }
}

static void a_new_file_has_its_mode(void **state)
{
    static const mode_t modes[] = {0, 0400, 0644, 0666, 0755, 0700, 02755};
    struct shell_provider *sh = *state;
    struct err err = ERR_INIT;
    struct stat real;
    char name[16];

    for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
        (void)snprintf(name, sizeof(name), "f%zu", i);
        assert_int_equal(MAKE(create, name, modes[i]), 0);
        assert_int_equal(stat(host(sh, name), &real), 0);
        assert_int_equal(real.st_mode, S_IFREG | modes[i]);
        (void)snprintf(name, sizeof(name), "d%zu", i);
        assert_int_equal(MAKE(make_dir, name, modes[i]), 0);
        assert_int_equal(stat(host(sh, name), &real), 0);
        assert_int_equal(real.st_mode, S_IFDIR | modes[i]);
        assert_int_equal(chmod(host(sh, name), 0755), 0);
    }
}

static void room_is_told(void **state)
{
    struct shell_provider *sh = *state;
    struct err err = ERR_INIT;
    struct statvfs told;

    assert_int_equal(files_over_exec.statfs(&sh->base, &sh->sandbox,
                                            &sh->limits, &told, &err),
                     0);
    assert_true(told.f_blocks > 0 && told.f_bavail > 0);
    assert_true(told.f_bavail <= told.f_blocks);
    assert_true(told.f_files > 0);
    assert_int_equal(told.f_namemax, 255);
}

static void who_may_not_is_told_so(void **state)
{
    struct shell_provider *sh = *state;
    struct provider_put any = {.mask = 0};
    struct err err = ERR_INIT;
    struct stat attr;
    char byte;

    put_text(sh, "f", "x");
    assert_int_equal(mkdir(host(sh, "d"), 0755), 0);
    put_text(sh, "d/f", "x");
    assert_int_equal(chmod(host(sh, "f"), 0), 0);
    assert_int_equal(chmod(host(sh, "d"), 0555), 0);
    assert_int_equal(CALL(read_at, "f", &byte, 1, 0), -EACCES);
    assert_int_equal(CALL(write_at, "f", "x", 1, 0), -EACCES);
    assert_int_equal(MAKE(create, "d/g", 0644), -EACCES);
    assert_int_equal(MAKE(make_dir, "d/g", 0755), -EACCES);
    assert_int_equal(CALL(remove, "d/f", false), -EACCES);
    assert_int_equal(CALL(rename, "d/f", "g", 0), -EACCES);
    assert_int_equal(CALL(rename, "f", "d/g", 0), -EACCES);
    assert_int_equal(MAKE(symlink, "x", "d/l"), -EACCES);
    assert_int_equal(CALL(link, "d/f", "d/g"), -EACCES);
    assert_int_equal(put(sh, "d/f", "y", 1, &any), -EACCES);
    assert_int_equal(chmod(host(sh, "d"), 0), 0);
    assert_int_equal(CALL_TO(stat, "d/f", &attr), -EACCES);
    assert_int_equal(CALL_TO(list, "d", on_entry, NULL), -EACCES);
    assert_int_equal(chmod(host(sh, "d"), 0755), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SHELL_TEST(stat_tells_what_is),
        SHELL_TEST(names_may_be_any_bytes),
        SHELL_TEST(a_directory_is_one_script),
        SHELL_TEST(a_long_directory_comes_in_pieces),
        SHELL_TEST(a_tree_is_one_script),
        SHELL_TEST(set_attr_sets_what_is_asked),
        SHELL_TEST(a_look_is_a_directory_with_its_entries),
        SHELL_TEST(each_failure_has_its_errno),
        SHELL_TEST(a_rename_does_what_rename_does),
        SHELL_TEST(a_new_file_has_its_mode),
        SHELL_TEST(room_is_told),
    };
    const struct CMUnitTest of_users[] = {
        SHELL_TEST(who_may_not_is_told_so),
    };
    int failed = 0;

    while (shell_next_kind()) {
        /* Root may do all, and another user runs the same program. */
        failed += geteuid() == 0 ? cmocka_run_group_tests(tests, NULL, NULL)
                                 : cmocka_run_group_tests(of_users, NULL, NULL);
    }
    return failed;
}
