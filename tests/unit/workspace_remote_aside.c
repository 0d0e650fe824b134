/* What the engine will not take: put aside, shown, moved and removed. */
#include "tests/unit/remote_fixture.h"

#include "core/remote_aside.h"
#include "core/workspace_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BIG = 3 * 1024 * 1024 + 7
};

/* What was told. */
struct heard {
    unsigned n[WS_LOST + 1];
    struct err err;
};

static void hear(void *arg, enum ws_fate fate, const char *path,
                 const struct err *err)
{
    struct heard *heard = arg;

    (void)path;
    heard->n[fate]++;
    heard->err = *err;
}

/* Whatever changes content fails so; NULL: nothing does any more. */
static void refuse(const struct fixture *fx, const char *what)
{
    static const char *const ops[] = {"put", "write", "create_file",
                                      "set_attr"};

    for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
        remote_fixture_fault(fx, ops[i], what);
    }
}

/* Changes a file and ends before that is sent. */
static void keep(struct fixture *fx, const char *path, const char *text,
                 off_t at)
{
    struct heard heard = {.err = ERR_INIT};
    const struct ws_told told = {hear, &heard};
    struct ws_file *file = fixture_open(fx, path, O_RDWR);
    size_t size = strlen(text);

    assert_int_equal(ws_write(file, text, size, at, &fx->ctx, &fx->err), size);
    refuse(fx, "errno ENOTCONN");
    ws_end(fx->ws, &fx->ctx.limits, &told);
    assert_int_equal(heard.n[WS_KEPT], 1);
    ws_close(file);
    refuse(fx, NULL);
}

static struct heard send(struct fixture *fx, int expected)
{
    struct heard heard = {.err = ERR_INIT};
    const struct ws_told told = {hear, &heard};

    assert_int_equal(ws_send_kept(fx->ws, &fx->ctx.limits, &told, &fx->err),
                     expected);
    return heard;
}

/* As what is refused twice: at first it may be so for a moment. */
static struct heard send_twice(struct fixture *fx, int expected)
{
    assert_int_equal(send(fx, expected).n[WS_KEPT], 1);
    return send(fx, expected);
}

/* The entry that begins so, where there is one. */
struct wanted {
    const char *begin;
    char found[64];
};

static bool meet(void *arg, const char *name, const struct stat *attr,
                 off_t next)
{
    struct wanted *wanted = arg;

    (void)attr;
    (void)next;
    if (strncmp(name, wanted->begin, strlen(wanted->begin)) == 0) {
        (void)snprintf(wanted->found, sizeof(wanted->found), "%s", name);
    }
    return true;
}

static struct wanted look_for(struct fixture *fx, const char *begin)
{
    struct wanted wanted = {.begin = begin};
    struct ws_dir *dir;

    assert_int_equal(ws_opendir(fx->root, &fx->ctx, &dir, &fx->err), 0);
    assert_int_equal(ws_readdir(dir, 0, meet, &wanted, &fx->ctx, &fx->err), 0);
    ws_closedir(dir);
    return wanted;
}

static int move_to(struct fixture *fx, const char *from, const char *dir,
                   const char *name, unsigned flags)
{
    struct ws_node *to = fixture_at(fx, dir);
    int rc = ws_rename(fx->root, from, to, name, flags, &fx->ctx, &fx->err);

    ws_node_unref(to);
    return rc;
}

static void what_is_refused_twice_is_put_aside(void **state)
{
    struct fixture *fx = *state;
    struct fixture *next;
    struct wanted aside;
    struct heard heard;

    fixture_mkdir(fx, "d");
    fixture_write(fx, "d/f", "old");
    keep(fx, "d/f", "new", 0);
    refuse(fx, "errno EACCES");
    next = remote_fixture_other(fx);
    heard = send_twice(next, -EACCES);
    assert_int_equal(heard.n[WS_ASIDE], 1);
    aside = look_for(next, "f.unsent-");
    assert_true(aside.found[0]);
    assert_non_null(strstr(heard.err.msg, aside.found));
    assert_int_equal(send(next, 0).n[WS_ASIDE], 0); /* Nothing is kept. */
    fixture_expect(next, aside.found, "new");
    remote_fixture_end_other(next);

    next = remote_fixture_other(fx); /* The next daemon has it, too. */
    fixture_expect(next, aside.found, "new");
    fixture_expect(next, "d/f", "old");
    remote_fixture_end_other(next);
}

/* Puts a new version of d/f aside, and tells how it is called. */
static struct wanted put_aside(struct fixture *fx)
{
    fixture_mkdir(fx, "d");
    fixture_write(fx, "d/f", "old");
    keep(fx, "d/f", "new", 0);
    refuse(fx, "errno EROFS");
    assert_int_equal(send_twice(fx, -EROFS).n[WS_ASIDE], 1);
    refuse(fx, NULL);
    return look_for(fx, "f.unsent-");
}

static void what_is_aside_can_be_moved_where_it_is_taken(void **state)
{
    struct fixture *fx = *state;
    struct wanted aside = put_aside(fx);
    struct ws_node *node = fixture_at(fx, aside.found);
    uint64_t ino = ws_node_ino(node);

    refuse(fx, "errno EROFS");
    assert_int_equal(move_to(fx, aside.found, "", "g", 0), -EROFS);
    fixture_expect(fx, aside.found, "new");
    refuse(fx, NULL);
    assert_int_equal(move_to(fx, aside.found, "d", "f", RENAME_NOREPLACE),
                     -EEXIST);
    assert_int_equal(move_to(fx, aside.found, "d", "f", RENAME_EXCHANGE),
                     -EINVAL);
    assert_int_equal(move_to(fx, aside.found, "d", "f", 0), 0);
    fixture_expect(fx, "d/f", "new");
    assert_int_equal(fixture_stat(fx, "d/f").st_ino, ino);
    assert_int_equal(look_for(fx, "f.unsent-").found[0], '\0');
    remote_fixture_expect_there(fx, "d/f", "new");
    ws_node_unref(node);
}

static void what_is_aside_is_read_and_removed_alone(void **state)
{
    struct fixture *fx = *state;
    struct wanted aside = put_aside(fx);
    struct ws_node *node = fixture_at(fx, aside.found);
    const struct stat want = {.st_mode = 0600};
    struct ws_file *file;
    struct stat attr;
    char bytes[8];

    attr = fixture_stat(fx, aside.found);
    assert_int_equal(attr.st_mode & 0222, 0);
    assert_int_equal(attr.st_size, 3);
    assert_int_equal(attr.st_uid, FIXTURE_UID);
    assert_int_equal(ws_open(node, O_RDWR, &fx->ctx, &file, &fx->err), -EROFS);
    assert_int_equal(ws_setattr(node, NULL, PROVIDER_ATTR_MODE, &want, &fx->ctx,
                                &attr, &fx->err),
                     -EROFS);
    assert_int_equal(ws_link(node, fx->root, "link", &fx->ctx, &attr, &fx->err),
                     -EPERM);
    assert_int_equal(move_to(fx, "d", "", aside.found, 0), -EPERM);
    file = fixture_open(fx, aside.found, O_RDONLY);
    assert_int_equal(ws_unlink(fx->root, aside.found, &fx->ctx, &fx->err), 0);
    assert_int_equal(ws_read(file, bytes, sizeof(bytes), 0, &fx->ctx, &fx->err),
                     3);
    ws_close(file);
    ws_node_unref(node);
    assert_int_equal(look_for(fx, "f.unsent-").found[0], '\0');
    remote_fixture_expect_there(fx, "d/f", "old");
}

/* Nothing is put aside because nobody answers. */
static void an_engine_that_answers_nothing_refuses_nothing(void **state)
{
    struct fixture *fx = *state;

    fixture_write(fx, "f", "old");
    keep(fx, "f", "new", 0);
    refuse(fx, "errno EACCES");
    remote_fixture_fault(fx, "stat", "errno EACCES");
    remote_fixture_fault(fx, "look", "errno EACCES");
    assert_int_equal(send(fx, -EACCES).n[WS_KEPT], 1);
    remote_fixture_fault(fx, "stat", NULL);
    remote_fixture_fault(fx, "look", NULL);
    refuse(fx, NULL);
    assert_int_equal(send(fx, 0).n[WS_SENT], 1);
    remote_fixture_expect_there(fx, "f", "new");
}

static void what_is_refused_for_a_moment_is_sent(void **state)
{
    struct fixture *fx = *state;

    fixture_write(fx, "f", "old");
    for (int i = 0; i < 3; i++) {
        keep(fx, "f", "new", 0);
        refuse(fx, "errno EACCES");
        assert_int_equal(send(fx, -EACCES).n[WS_KEPT], 1);
        refuse(fx, NULL);
        assert_int_equal(send(fx, 0).n[WS_SENT], 1);
    }
    assert_int_equal(look_for(fx, "f.unsent-").found[0], '\0');
    remote_fixture_expect_there(fx, "f", "new");
}

/* It may get better; but not for ever. */
static void what_fails_for_no_reason_is_tried_again(void **state)
{
    struct fixture *fx = *state;
    unsigned kept = 0;

    fixture_write(fx, "f", "old");
    keep(fx, "f", "new", 0);
    refuse(fx, "errno EIO");
    while (send(fx, -EIO).n[WS_KEPT]) {
        kept++;
        assert_true(kept < 10);
    }
    assert_int_equal(kept, 3);
    assert_true(look_for(fx, "f.unsent-").found[0]);
}

/* What was not written of it is fetched. */
static void a_part_is_put_aside_as_a_whole(void **state)
{
    struct fixture *fx = *state;
    char *bytes = malloc(BIG + 1);

    memset(bytes, 'x', BIG);
    bytes[BIG] = '\0';
    fixture_write(fx, "f", bytes);
    keep(fx, "f", "Y", BIG / 2);
    refuse(fx, "errno ENOSPC");
    assert_int_equal(send_twice(fx, -ENOSPC).n[WS_ASIDE], 1);
    bytes[BIG / 2] = 'Y';
    fixture_expect(fx, look_for(fx, "f.unsent-").found, bytes);
    free(bytes);
}

static void a_long_name_is_cut(void **state)
{
    struct fixture *fx = *state;
    char name[256], begin[220];

    memset(name, 'n', sizeof(name) - 1);
    name[255] = '\0';
    (void)snprintf(begin, sizeof(begin), "%.200s.unsent-", name);
    fixture_write(fx, name, "old");
    keep(fx, name, "new", 0);
    refuse(fx, "errno EROFS");
    assert_int_equal(send_twice(fx, -EROFS).n[WS_ASIDE], 1);
    assert_true(look_for(fx, begin).found[0]);
}

/* One of the same second and name, where there are no more descriptors. */
static void what_is_aside_stays_where_another_fails(void **state)
{
    struct fixture *fx = *state;
    struct wanted aside = put_aside(fx);
    struct remote *r = remote_of(fx->ws);
    struct remote_kept kept = {
        .path = "f",
        .n = strtoull(strrchr(aside.found, '-') + 1, NULL, 10) * 1000000,
        .stage = {.node = &r->root, .path = "f", .whole = true}};
    struct rlimit before, none;
    int rc;

    kept.stage.fd = remote_private_file(remote_fixture_dir(fx), &fx->err);
    assert_true(kept.stage.fd >= 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    rc = remote_aside_put(r, &kept, &fx->ctx.limits, &fx->err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(rc, -EMFILE);
    assert_int_equal(close(kept.stage.fd), 0);
    fixture_expect(fx, aside.found, "new");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(what_is_refused_twice_is_put_aside),
        BOTH(what_is_aside_can_be_moved_where_it_is_taken),
        ONE(what_is_aside_is_read_and_removed_alone),
        BOTH(an_engine_that_answers_nothing_refuses_nothing),
        BOTH(what_is_refused_for_a_moment_is_sent),
        ONE(what_fails_for_no_reason_is_tried_again),
        BOTH(a_part_is_put_aside_as_a_whole),
        ONE(a_long_name_is_cut),
        ONE(what_is_aside_stays_where_another_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
