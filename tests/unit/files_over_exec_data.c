/* What is in files, by scripts, with the shells that sandboxes have. */
#include "core/cleanup.h"
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

static int count_entry(void *arg, const struct provider_entry *entry)
{
    unsigned *count = arg;

    (void)entry;
    (*count)++;
    return 0;
}

static void parts_are_read_and_written(void **state)
{
    static const uint64_t places[] = {0,     1,      65535, 65536,
                                      65537, 100000, 200001};
    struct shell_provider *sh = *state;
    struct err err = ERR_INIT;
    char model[400000];
    char *out = malloc(sizeof(model));
    size_t size = 0;

    memset(model, 0, sizeof(model));
    assert_int_equal(MAKE(create, "f", 0644), 0);
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        char piece[70000];
        size_t n = i % 2 ? sizeof(piece) : 7;

        memset(piece, (char)('a' + (int)i), sizeof(piece));
        piece[0] = '\0';
        piece[1] = '\xff';
        assert_int_equal(CALL(write_at, "f", piece, n, places[i]), 0);
        memcpy(model + places[i], piece, n);
        size = places[i] + n > size ? places[i] + n : size;
    }
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        size_t want = size - places[i] < 70000 ? size - places[i] : 70000;

        assert_int_equal(CALL(read_at, "f", out, 70000, places[i]), want);
        assert_memory_equal(out, model + places[i], want);
    }
    assert_int_equal(CALL(read_at, "f", out, 10, size), 0);
    assert_int_equal(CALL(read_at, "f", out, 10, size + 1000000), 0);
    assert_int_equal(CALL(read_at, "f", out, 10, size - 3), 3);
    free(out);
}

static void get(struct shell_provider *sh, const char *path, const char *data,
                size_t size)
{
    AUTO_FD int fd = memory_file("what was there before", 21);
    struct err err = ERR_INIT;
    struct stat was, real;
    char *found = malloc(size + 1);

    assert_int_equal(files_over_exec.get(&sh->base, &sh->sandbox, path, fd,
                                         &sh->limits, &was, &err),
                     0);
    assert_int_equal(lstat(host(sh, path), &real), 0);
    same_attributes(&was, &real);
    assert_int_equal(lseek(fd, 0, SEEK_END), size);
    assert_int_equal(pread(fd, found, size, 0), size);
    assert_memory_equal(found, data, size);
    free(found);
}

static void whole_files_go_out_and_in(void **state)
{
    static const size_t sizes[] = {0, 1, 65536, 1048576, 1048577, 3000000};
    struct shell_provider *sh = *state;
    char *data = malloc(3000000);

    for (size_t i = 0; i < 3000000; i++) {
        data[i] = (char)(i * 7 % 251);
    }
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct provider_put any = {.mask = 0};

        sh->runs = sh->files = 0;
        assert_int_equal(put(sh, "f", data, sizes[i], &any), 0);
        assert_int_equal(sh->runs, 1);
        assert_int_equal(sh->files, sizes[i] > 1048576);
        get(sh, "f", data, sizes[i]);
        assert_true(sh->runs + sh->files <= 5);
    }
    free(data);
}

static void the_largest_go_in_pieces(void **state)
{
    struct shell_provider *sh = *state;
    struct provider_put any = {.mask = 0};
    size_t size = 34 * 1024 * 1024 + 3;
    char *data = malloc(size);

    for (size_t i = 0; i < size; i++) {
        data[i] = (char)(i * 13 % 253);
    }
    assert_int_equal(put(sh, "f", data, size, &any), 0);
    assert_int_equal(sh->files, 0);
    get(sh, "f", data, size);
    free(data);
}

static void a_put_keeps_what_it_is_not_told(void **state)
{
    struct shell_provider *sh = *state;
    struct provider_put some = {.mask = PROVIDER_ATTR_MTIME};
    struct stat real;

    put_text(sh, "f", "old");
    assert_int_equal(chmod(host(sh, "f"), 0751), 0);
    some.attr.st_mtim = (struct timespec){.tv_sec = 1500000000};
    assert_int_equal(put(sh, "f", "new", 3, &some), 0);
    assert_int_equal(stat(host(sh, "f"), &real), 0);
    assert_int_equal(real.st_mode, S_IFREG | 0751);
    assert_int_equal(real.st_mtim.tv_sec, 1500000000);
    some.mask = PROVIDER_ATTR_MODE;
    some.attr.st_mode = 0600;
    assert_int_equal(put(sh, "g", "new", 3, &some), 0);
    assert_int_equal(stat(host(sh, "g"), &real), 0);
    assert_int_equal(real.st_mode, S_IFREG | 0600);
}

static void a_put_keeps_other_names(void **state)
{
    struct shell_provider *sh = *state;
    struct provider_put any = {.mask = 0};
    char one[300];

    put_text(sh, "a", "old");
    (void)snprintf(one, sizeof(one), "%s", host(sh, "a"));
    assert_int_equal(link(one, host(sh, "b")), 0);
    assert_int_equal(put(sh, "a", "new", 3, &any), 0);
    expect_text(sh, "b", "new");
}

/* Nothing is left of a save that failed, and nothing is changed. */
static void nothing_but(struct shell_provider *sh, unsigned count)
{
    unsigned seen = 0;
    struct err err = ERR_INIT;

    assert_int_equal(CALL_TO(list, "", count_entry, &seen), 0);
    assert_int_equal(seen, count);
}

static void a_put_spares_what_somebody_else_wrote(void **state)
{
    struct shell_provider *sh = *state;
    struct stat was;
    struct stat none = {.st_mode = 0};
    struct provider_put put_it = {.was = &was};

    put_text(sh, "f", "one");
    assert_int_equal(stat(host(sh, "f"), &was), 0);
    (void)poll(NULL, 0, 20); /* The kernel's clock for files ticks. */
    assert_int_equal(put(sh, "f", "two", 3, &put_it), 0);
    expect_text(sh, "f", "two");
    assert_int_equal(put(sh, "f", "three", 5, &put_it), -ESTALE);
    expect_text(sh, "f", "two");
    put_it.was = &none;
    assert_int_equal(put(sh, "f", "three", 5, &put_it), -ESTALE);
    assert_int_equal(put(sh, "g", "three", 5, &put_it), 0);
    expect_text(sh, "g", "three");
    put_it.was = &was;
    assert_int_equal(put(sh, "h", "three", 5, &put_it), -ESTALE);
    nothing_but(sh, 2);
}

/* As when who sends it is killed. */
static void a_put_that_is_cut_changes_nothing(void **state)
{
    struct shell_provider *sh = *state;
    struct provider_put any = {.mask = 0};

    put_text(sh, "f", "old");
    sh->cut = 2;
    assert_int_equal(put(sh, "f", "newer", 5, &any), -EIO);
    sh->cut = 0;
    expect_text(sh, "f", "old");
    nothing_but(sh, 1);
}

static void a_put_that_fails_leaves_nothing(void **state)
{
    struct shell_provider *sh = *state;
    struct provider_put any = {.mask = 0};
    char *data = calloc(1, 2000000);

    assert_int_equal(mkdir(host(sh, "d"), 0755), 0);
    assert_int_equal(symlink("x", host(sh, "l")), 0);
    assert_int_equal(put(sh, "d", "x", 1, &any), -EISDIR);
    assert_int_equal(put(sh, "d", data, 2000000, &any), -EISDIR);
    assert_int_equal(put(sh, "l", "x", 1, &any), -ELOOP);
    assert_int_equal(put(sh, "no/f", "x", 1, &any), -ENOENT);
    assert_int_equal(put(sh, "no/f", data, 2000000, &any), -ENOENT);
    assert_int_equal(put(sh, "l/f", "x", 1, &any), -ELOOP);
    sh->broken = ENOTCONN;
    assert_int_equal(put(sh, "f", data, 2000000, &any), -ENOTCONN);
    nothing_but(sh, 2);
    free(data);
}

/* What was told of some files. */
struct told {
    unsigned n;
    char text[8][16];
};

static void take_told(void *arg, size_t i, const struct stat *was,
                      const void *bytes)
{
    struct told *told = arg;

    assert_true(i < 8 && was->st_size < 16);
    told->n++;
    memcpy(told->text[i], bytes, (size_t)was->st_size);
    told->text[i][was->st_size] = '\0';
}

static void many_come_at_once(void **state)
{
    static const char *const paths[] = {"-n",  "a\nb", "'\"$x", "\xff\xfe",
                                        "d/f", "no",   "link",  "pipe"};
    struct shell_provider *sh = *state;
    struct told told = {.n = 0};
    const struct provider_many many = {
        .paths = paths, .n = 8, .most = 100, .fn = take_told, .arg = &told};
    struct err err = ERR_INIT;

    assert_int_equal(mkdir(host(sh, "d"), 0755), 0);
    assert_int_equal(symlink("-n", host(sh, "link")), 0);
    assert_int_equal(mkfifo(host(sh, "pipe"), 0600), 0);
    put_text(sh, "-n", "one\n");
    put_text(sh, "a\nb", "");
    put_text(sh, "'\"$x", "\n\nthree");
    put_text(sh, "\xff\xfe", "4");
    put_text(sh, "d/f", "five");
    sh->runs = 0;
    assert_int_equal(files_over_exec.get_many(&sh->base, &sh->sandbox, &many,
                                              &sh->limits, &err),
                     0);
    assert_int_equal(sh->runs, 1);
    assert_int_equal(told.n, 5);
    assert_string_equal(told.text[0], "one\n");
    assert_string_equal(told.text[1], "");
    assert_string_equal(told.text[2], "\n\nthree");
    assert_string_equal(told.text[3], "4");
    assert_string_equal(told.text[4], "five");
}

/* One of many that has grown since is not carried along. */
static void many_are_never_more_than_was_asked_for(void **state)
{
    static const char *const paths[] = {"small", "grown"};
    struct shell_provider *sh = *state;
    struct told told = {.n = 0};
    const struct provider_many many = {
        .paths = paths, .n = 2, .most = 100, .fn = take_told, .arg = &told};
    struct err err = ERR_INIT;

    put_text(sh, "small", "one");
    put_text(sh, "grown", "two");
    assert_int_equal(truncate(host(sh, "grown"), 64 * 1024 * 1024), 0);
    assert_int_equal(files_over_exec.get_many(&sh->base, &sh->sandbox, &many,
                                              &sh->limits, &err),
                     0);
    assert_int_equal(told.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SHELL_TEST(parts_are_read_and_written),
        SHELL_TEST(whole_files_go_out_and_in),
        SHELL_TEST(the_largest_go_in_pieces),
        SHELL_TEST(many_come_at_once),
        SHELL_TEST(many_are_never_more_than_was_asked_for),
        SHELL_TEST(a_put_keeps_what_it_is_not_told),
        SHELL_TEST(a_put_keeps_other_names),
        SHELL_TEST(a_put_spares_what_somebody_else_wrote),
        SHELL_TEST(a_put_that_is_cut_changes_nothing),
        SHELL_TEST(a_put_that_fails_leaves_nothing),
    };
    int failed = 0;

    while (shell_next_kind()) {
        failed += cmocka_run_group_tests(tests, NULL, NULL);
    }
    return failed;
}
