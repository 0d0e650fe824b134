/* What cannot be sent at the end of a remote tree, and is sent by another. */
#include "tests/unit/remote_fixture.h"

#include "core/workspace_impl.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BIG = 3 * 1024 * 1024 + 7,
    DISK = 4 * 1024 * 1024
};

/* What was told. */
struct heard {
    unsigned n[WS_LOST + 1];
    char path[64];
    struct err err;
};

static void hear(void *arg, enum ws_fate fate, const char *path,
                 const struct err *err)
{
    struct heard *heard = arg;

    heard->n[fate]++;
    (void)snprintf(heard->path, sizeof(heard->path), "%s", path);
    heard->err = *err;
}

static struct ws_file *make(struct fixture *fx, const char *path)
{
    const char *slash = strrchr(path, '/');
    char dir[64] = "";
    struct ws_file *file = NULL;
    struct ws_node *node, *at;
    struct stat attr;

    if (slash) {
        (void)snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
    }
    at = fixture_at(fx, dir);
    assert_int_equal(ws_create(at, slash ? slash + 1 : path, 0640,
                               O_RDWR | O_EXCL, &fx->ctx, &node, &file, &attr,
                               &fx->err),
                     0);
    ws_node_unref(node);
    ws_node_unref(at);
    return file;
}

static void add(struct fixture *fx, struct ws_file *file, const char *text,
                off_t at)
{
    size_t size = strlen(text);

    assert_int_equal(ws_write(file, text, size, at, &fx->ctx, &fx->err), size);
}

/* Whether the engine takes changes. */
static void engine(struct fixture *fx, bool up)
{
    static const char *const ops[] = {"put", "write", "create_file",
                                      "set_attr"};

    for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
        remote_fixture_fault(fx, ops[i], up ? NULL : "errno ENOTCONN");
    }
}

static struct heard end(struct fixture *fx)
{
    struct heard heard = {.err = ERR_INIT};
    const struct ws_told told = {hear, &heard};

    ws_end(fx->ws, &fx->ctx.limits, &told);
    return heard;
}

/* As the next daemon does it. */
static struct heard send_later(struct fixture *fx, int expected)
{
    struct fixture *other = remote_fixture_other(fx);
    struct heard heard = {.err = ERR_INIT};
    const struct ws_told told = {hear, &heard};

    assert_int_equal(
        ws_send_kept(other->ws, &other->ctx.limits, &told, &other->err),
        expected);
    remote_fixture_end_other(other);
    return heard;
}

/* How many files are kept. */
static unsigned count_kept(struct fixture *fx)
{
    char path[128];
    unsigned n = 0;
    DIR *dir;

    (void)snprintf(path, sizeof(path), "%s/unsent", remote_fixture_dir(fx));
    dir = opendir(path);
    if (!dir) {
        return 0;
    }
    for (const struct dirent *entry = readdir(dir); entry;
         entry = readdir(dir)) {
        n += entry->d_name[0] != '.';
    }
    (void)closedir(dir);
    return n;
}

static char *big_text(void)
{
    char *bytes = malloc(BIG + 1);

    memset(bytes, 'x', BIG);
    bytes[BIG] = '\0';
    return bytes;
}

static void what_cannot_be_sent_is_sent_by_the_next(void **state)
{
    struct fixture *fx = *state;
    const struct stat want = {.st_mtim = {2000, 5}, .st_mode = 0600};
    char *bytes = big_text();
    struct ws_file *fresh, *part, *cut, *looks;
    struct stat attr;
    struct heard heard;

    fixture_write(fx, "part", bytes);
    fixture_write(fx, "cut", "something long");
    fixture_write(fx, "looks", "text");
    fixture_mkdir(fx, "d");
    fresh = make(fx, "d/fresh");
    add(fx, fresh, "new", 0);
    part = fixture_open(fx, "part", O_RDWR);
    add(fx, part, "Y", BIG / 2);
    cut = fixture_open(fx, "cut", O_WRONLY | O_TRUNC);
    add(fx, cut, "short", 0);
    looks = fixture_open(fx, "looks", O_WRONLY);
    add(fx, looks, "T", 0);
    assert_int_equal(ws_setattr(looks->node, looks,
                                PROVIDER_ATTR_MTIME | PROVIDER_ATTR_MODE, &want,
                                &fx->ctx, &attr, &fx->err),
                     0);
    engine(fx, false);
    heard = end(fx);
    assert_int_equal(heard.n[WS_KEPT], 4);
    assert_int_equal(heard.n[WS_LOST], 0);
    assert_false(ws_unsent(fx->ws));
    assert_int_equal(count_kept(fx), 8);
    ws_close(fresh);
    ws_close(part);
    ws_close(cut);
    ws_close(looks);
    assert_int_equal(send_later(fx, -ENOTCONN).n[WS_KEPT], 1); /* All alike. */
    assert_int_equal(count_kept(fx), 8);
    engine(fx, true);
    heard = send_later(fx, 0);
    assert_int_equal(heard.n[WS_SENT], 4);
    assert_int_equal(count_kept(fx), 0);
    bytes[BIG / 2] = 'Y';
    remote_fixture_expect_there(fx, "part", bytes);
    remote_fixture_expect_there(fx, "d/fresh", "new");
    remote_fixture_expect_there(fx, "cut", "short");
    remote_fixture_expect_there(fx, "looks", "Text");
    ws_changed(fx->ws);
    attr = fixture_stat(fx, "looks");
    assert_int_equal(attr.st_mtim.tv_sec, 2000);
    assert_int_equal(attr.st_mode & 07777, 0600);
    assert_int_equal(fixture_stat(fx, "d/fresh").st_mode & 07777, 0640);
    free(bytes);
}

/* The one entry that begins so. */
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

static void find_conflict(struct fixture *fx, char found[64])
{
    struct ws_dir *dir;

    found[0] = '\0';
    ws_changed(fx->ws);
    assert_int_equal(ws_opendir(fx->root, &fx->ctx, &dir, &fx->err), 0);
    assert_int_equal(ws_readdir(dir, 0, find_beside, found, &fx->ctx, &fx->err),
                     0);
    ws_closedir(dir);
}

/* Leaves a change of f that is kept. */
static void keep_f(struct fixture *fx, const char *text, int flags)
{
    struct ws_file *file = fixture_open(fx, "f", O_RDWR | flags);

    add(fx, file, text, 0);
    engine(fx, false);
    assert_int_equal(end(fx).n[WS_KEPT], 1);
    ws_close(file);
    engine(fx, true);
}

static void of_two_versions_none_is_lost(void **state)
{
    struct fixture *fx = *state;
    struct heard heard;
    char beside[64];

    fixture_write(fx, "f", "a text");
    keep_f(fx, "A", 0);
    remote_fixture_write_there(fx, "f", "theirs, longer");
    heard = send_later(fx, 0);
    assert_int_equal(heard.n[WS_BESIDE], 1);
    assert_string_equal(heard.path, "f");
    find_conflict(fx, beside);
    assert_true(beside[0]);
    assert_non_null(strstr(heard.err.msg, beside));
    remote_fixture_expect_there(fx, "f", "theirs, longer");
    remote_fixture_expect_there(fx, beside, "A text");
    assert_int_equal(count_kept(fx), 0);
}

/* Also who cut a file is no longer the last. */
static void a_file_that_was_cut_collides_too(void **state)
{
    struct fixture *fx = *state;
    char beside[64];

    fixture_write(fx, "f", "a text");
    keep_f(fx, "mine", O_TRUNC);
    remote_fixture_write_there(fx, "f", "theirs, longer");
    assert_int_equal(send_later(fx, 0).n[WS_BESIDE], 1);
    find_conflict(fx, beside);
    remote_fixture_expect_there(fx, beside, "mine");
    remote_fixture_expect_there(fx, "f", "theirs, longer");
}

static void what_is_there_already_is_no_conflict(void **state)
{
    struct fixture *fx = *state;
    char beside[64];

    fixture_write(fx, "f", "a text");
    keep_f(fx, "A", 0);
    remote_fixture_write_there(fx, "f",
                               "A text"); /* As a daemon does that dies then. */
    assert_int_equal(send_later(fx, 0).n[WS_SENT], 1);
    find_conflict(fx, beside);
    assert_string_equal(beside, "");
    keep_f(fx, "tail\n", O_APPEND);
    remote_fixture_write_there(fx, "f", "A texttail\nand more");
    assert_int_equal(send_later(fx, 0).n[WS_SENT], 1);
    remote_fixture_expect_there(fx, "f", "A texttail\nand more");
    assert_int_equal(count_kept(fx), 0);
}

/* Two add a line each; the engine takes the first, and its answer is lost. */
static void lose_an_answer(struct fixture *fx, struct ws_file *two[2])
{
    fixture_write(fx, "log", "one\n");
    for (int i = 0; i < 2; i++) {
        two[i] = fixture_open(fx, "log", O_WRONLY | O_APPEND);
    }
    add(fx, two[0], "first\n", 0);
    engine(fx, false);
    assert_int_equal(ws_flush(two[0], &fx->ctx, &fx->err), -ENOTCONN);
    engine(fx, true);
    remote_fixture_write_there(fx, "log", "one\nfirst\n");
    add(fx, two[1], "second\n", 0);
}

static void a_line_whose_answer_was_lost_is_not_doubled(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *two[2];

    for (int kept = 0; kept < 2; kept++) {
        lose_an_answer(fx, two);
        if (kept) {
            engine(fx, false);
            assert_int_equal(end(fx).n[WS_KEPT], 1);
            engine(fx, true);
            assert_int_equal(send_later(fx, 0).n[WS_SENT], 1);
        }
        err_clear(&fx->err);
        assert_int_equal(ws_flush(two[1], &fx->ctx, &fx->err), 0);
        ws_close(two[0]);
        ws_close(two[1]);
        remote_fixture_expect_there(fx, "log", "one\nfirst\nsecond\n");
    }
}

static void what_is_gone_comes_back_with_its_directories(void **state)
{
    struct fixture *fx = *state;
    struct ws_node *dir;
    struct ws_file *file;

    fixture_mkdir(fx, "a");
    fixture_mkdir(fx, "a/b");
    file = make(fx, "a/b/f");
    add(fx, file, "text", 0);
    engine(fx, false);
    assert_int_equal(end(fx).n[WS_KEPT], 1);
    ws_close(file);
    engine(fx, true);
    dir = fixture_at(fx, "a");
    assert_int_equal(ws_rmdir(dir, "b", &fx->ctx, &fx->err), 0);
    ws_node_unref(dir);
    assert_int_equal(ws_rmdir(fx->root, "a", &fx->ctx, &fx->err), 0);
    assert_int_equal(send_later(fx, 0).n[WS_SENT], 1);
    remote_fixture_expect_there(fx, "a/b/f", "text");
}

static void end_now(struct fixture *fx)
{
    (void)end(fx);
}

static void send_now(struct fixture *fx)
{
    (void)send_later(fx, 0);
}

static void a_kill_loses_nothing_that_was_kept(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *file = make(fx, "f");

    add(fx, file, "text", 0);
    engine(fx, false);
    remote_fixture_die_at(fx, "unsent-data", end_now);
    assert_int_equal(count_kept(fx), 1); /* Nobody's. */
    engine(fx, true);
    assert_int_equal(send_later(fx, 0).n[WS_SENT], 0);
    assert_int_equal(count_kept(fx), 0);
    engine(fx, false);
    remote_fixture_die_at(fx, "unsent-kept", end_now);
    engine(fx, true);
    remote_fixture_die_at(fx, "unsent-sent", send_now);
    assert_int_equal(count_kept(fx), 2);
    assert_int_equal(send_later(fx, 0).n[WS_SENT], 1);
    remote_fixture_expect_there(fx, "f", "text");
    engine(fx, false);
    assert_int_equal(end(fx).n[WS_KEPT], 1);
    engine(fx, true);
    remote_fixture_die_at(fx, "unsent-forgotten", send_now);
    assert_int_equal(count_kept(fx), 1);
    assert_int_equal(send_later(fx, 0).n[WS_SENT], 0);
    assert_int_equal(count_kept(fx), 0);
    ws_close(file);
}

static void what_somebody_still_writes_is_left_to_him(void **state)
{
    struct fixture *fx = *state;
    struct heard heard = {.err = ERR_INIT};
    const struct ws_told told = {hear, &heard};
    struct ws_file *file = make(fx, "f");
    struct ws_file *other = fixture_open(fx, "f", O_RDWR);

    add(fx, file, "text", 0);
    ws_keep(file, &told);
    assert_int_equal(heard.n[WS_KEPT], 0);
    assert_true(ws_unsent(fx->ws));
    ws_close(other);
    ws_keep(file, &told);
    assert_int_equal(heard.n[WS_KEPT], 1);
    ws_close(file);
    assert_int_equal(send_later(fx, 0).n[WS_SENT], 1);
    remote_fixture_expect_there(fx, "f", "text");
}

static void what_makes_no_sense_is_put_aside_and_named(void **state)
{
    struct fixture *fx = *state;
    char path[128], command[300];
    const char *at;
    struct fixture *next;
    struct heard heard;
    struct ws_file *file = make(fx, "f");

    add(fx, file, "text", 0);
    engine(fx, false);
    assert_int_equal(end(fx).n[WS_KEPT], 1);
    engine(fx, true);
    ws_close(file);
    (void)snprintf(path, sizeof(path), "%s/unsent", remote_fixture_dir(fx));
    (void)snprintf(command, sizeof(command),
                   "cd %s && for f in *; do case $f in *.data) ;; "
                   "*) truncate -s 100 $f ;; esac; done",
                   path);
    assert_int_equal(system(command), 0);
    heard = send_later(fx, -EIO);
    assert_int_equal(heard.n[WS_ASIDE], 1);
    assert_non_null(strstr(heard.err.msg, path));
    assert_int_equal(count_kept(fx), 0);
    at = strstr(heard.err.msg, "'unsent-");
    assert_non_null(at);
    (void)snprintf(path, sizeof(path), "%.*s", (int)strcspn(at + 1, "'"),
                   at + 1);
    next = remote_fixture_other(fx);
    fixture_expect(next, path, "text");
    remote_fixture_end_other(next);
}

static void fill_disk(const char *dir, size_t leave)
{
    static const char block[4096];
    char path[128];
    int fd;
    off_t size = 0;

    (void)snprintf(path, sizeof(path), "%s/filler", dir);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    while (write(fd, block, sizeof(block)) == (ssize_t)sizeof(block)) {
        size += (off_t)sizeof(block);
    }
    assert_int_equal(ftruncate(fd, size - (off_t)leave), 0);
    assert_int_equal(close(fd), 0);
}

/* What is cached gives way to what is kept. */
static void a_full_disk_loses_nothing(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *file;
    char *bytes;

    if (!fx) {
        skip(); /* Nothing can be mounted here. */
    }
    bytes = big_text();
    bytes[1024 * 1024] = '\0';
    fixture_write(fx, "read", bytes);
    fixture_expect(fx, "read", bytes);
    file = make(fx, "f");
    add(fx, file, "text", 0);
    engine(fx, false);
    fill_disk(remote_fixture_dir(fx), 0);
    assert_int_equal(end(fx).n[WS_KEPT], 1);
    ws_close(file);
    engine(fx, true);
    assert_int_equal(send_later(fx, 0).n[WS_SENT], 1);
    remote_fixture_expect_there(fx, "f", "text");
    free(bytes);
}

/* And to what is written. */
static void a_cache_takes_no_room_from_what_is_written(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *file;
    char *bytes;

    if (!fx) {
        skip();
    }
    bytes = big_text();
    remote_fixture_write_there(fx, "read", bytes);
    fixture_expect(fx, "read", bytes);
    file = make(fx, "f");
    assert_int_equal(ws_write(file, bytes, BIG, 0, &fx->ctx, &fx->err), BIG);
    /* More than there is: said at once, and what was there stays. */
    assert_int_equal(ws_write(file, bytes, BIG, BIG, &fx->ctx, &fx->err),
                     -ENOSPC);
    assert_int_equal(ws_fsync(file, false, &fx->ctx, &fx->err), 0);
    ws_close(file);
    remote_fixture_expect_there(fx, "f", bytes);
    free(bytes);
}

/* Where there is no room at all that is said of each. */
static void what_cannot_be_kept_is_named(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *file;
    struct heard heard;

    if (!fx) {
        skip();
    }
    file = make(fx, "f");
    add(fx, file, "text", 0);
    engine(fx, false);
    fill_disk(remote_fixture_dir(fx), 0);
    heard = end(fx);
    assert_int_equal(heard.n[WS_LOST], 1);
    assert_int_equal(heard.err.code, ENOSPC);
    assert_string_equal(heard.path, "f");
    assert_int_equal(count_kept(fx), 0);
    engine(fx, true);
    assert_int_equal(ws_fsync(file, false, &fx->ctx, &fx->err), 0);
    ws_close(file);
}

static int small_disk_setup(void **state)
{
    int rc = remote_fixture_setup(state);
    char options[32];

    (void)snprintf(options, sizeof(options), "size=%d", DISK);
    if (rc == 0 &&
        mount("tmpfs", remote_fixture_dir(*state), "tmpfs", 0, options) < 0) {
        (void)remote_fixture_teardown(state);
        *state = NULL;
    }
    return rc;
}

static int small_disk_teardown(void **state)
{
    if (*state) {
        (void)umount2(remote_fixture_dir(*state), MNT_DETACH);
        return remote_fixture_teardown(state);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(what_cannot_be_sent_is_sent_by_the_next),
        BOTH(of_two_versions_none_is_lost),
        BOTH(a_file_that_was_cut_collides_too),
        BOTH(what_is_there_already_is_no_conflict),
        ONE(a_line_whose_answer_was_lost_is_not_doubled),
        BOTH(what_is_gone_comes_back_with_its_directories),
        ONE(a_kill_loses_nothing_that_was_kept),
        ONE(what_somebody_still_writes_is_left_to_him),
        ONE(what_makes_no_sense_is_put_aside_and_named),
        cmocka_unit_test_setup_teardown(a_full_disk_loses_nothing,
                                        small_disk_setup, small_disk_teardown),
        cmocka_unit_test_setup_teardown(
            a_cache_takes_no_room_from_what_is_written, small_disk_setup,
            small_disk_teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_kept_is_named,
                                        small_disk_setup, small_disk_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
