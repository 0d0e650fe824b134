/* The tree over a directory: the shared cases, owners, and hostile trees. */
#include "core/workspace_direct.h"

#include "core/buf.h"

#include "tests/unit/workspace_fixture.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

/* The host's own view of a file. */
static struct stat host_stat(struct fixture *fx, const char *path)
{
    char full[PATH_MAX];
    struct stat attr;

    (void)snprintf(full, sizeof(full), "%s/%s", fx->dir, path);
    assert_int_equal(lstat(full, &attr), 0);
    return attr;
}

static void files_belong_to_who_makes_them(void **state)
{
    struct fixture *fx = *state;
    static const struct {
        uid_t uid;
        gid_t gid;
        int rc;
        uid_t host_uid;
        gid_t host_gid;
    } rows[] = {
        {FIXTURE_UID, FIXTURE_GID, 0, FIXTURE_BASE + FIXTURE_USER,
         FIXTURE_BASE + FIXTURE_USER},
        {0, 0, 0, FIXTURE_BASE, FIXTURE_BASE},
        {42, 43, 0, FIXTURE_BASE + 42, FIXTURE_BASE + 43},
        {FIXTURE_IDS, 0, -EPERM, 0, 0},
        {0, FIXTURE_IDS, -EPERM, 0, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct ws_node *node;
        struct stat attr;

        fx->ctx.uid = rows[i].uid;
        fx->ctx.gid = rows[i].gid;
        assert_int_equal(
            ws_mkdir(fx->root, "d", 0750, &fx->ctx, &node, &attr, &fx->err),
            rows[i].rc);
        if (rows[i].rc < 0) {
            assert_int_equal(fixture_find(fx, "d"), -ENOENT);
            continue;
        }
        ws_node_unref(node);
        assert_int_equal(attr.st_uid, rows[i].uid);
        assert_int_equal(attr.st_gid, rows[i].gid);
        assert_int_equal(attr.st_mode, S_IFDIR | 0750);
        assert_int_equal(fixture_symlink(fx, "x", "l"), 0);
        fixture_write(fx, "f", "x");
        for (const char *const *name = (const char *[]){"d", "l", "f", NULL};
             *name; name++) {
            assert_int_equal(host_stat(fx, *name).st_uid, rows[i].host_uid);
            assert_int_equal(host_stat(fx, *name).st_gid, rows[i].host_gid);
        }
        assert_int_equal(fixture_unlink(fx, "f"), 0);
        assert_int_equal(fixture_unlink(fx, "l"), 0);
        assert_int_equal(ws_rmdir(fx->root, "d", &fx->ctx, &fx->err), 0);
    }
}

static void a_setgid_directory_hands_its_group_on(void **state)
{
    struct fixture *fx = *state;
    struct stat want = {.st_mode = 02775, .st_gid = 77};
    struct ws_node *dir, *node;
    struct stat attr;

    fixture_mkdir(fx, "d");
    dir = fixture_at(fx, "d");
    assert_int_equal(ws_setattr(dir, NULL,
                                PROVIDER_ATTR_GID | PROVIDER_ATTR_MODE, &want,
                                &fx->ctx, &attr, &fx->err),
                     0);
    fixture_write(fx, "d/f", "x");
    fixture_mkdir(fx, "d/sub");
    assert_int_equal(fixture_stat(fx, "d/f").st_gid, 77);
    assert_int_equal(fixture_stat(fx, "d/f").st_uid, FIXTURE_UID);
    assert_int_equal(fixture_stat(fx, "d/sub").st_gid, 77);
    assert_int_equal(fixture_stat(fx, "d/sub").st_mode, S_IFDIR | 02755);
    assert_int_equal(
        ws_mknod(dir, "s", S_IFREG | 06755, &fx->ctx, &node, &attr, &fx->err),
        0);
    ws_node_unref(node);
    assert_int_equal(attr.st_mode, S_IFREG | 04755); /* A stranger's group. */
    ws_node_unref(dir);
}

static void owners_change_within_the_map(void **state)
{
    struct fixture *fx = *state;
    struct stat want = {.st_uid = 12, .st_gid = 13};
    const unsigned both = PROVIDER_ATTR_UID | PROVIDER_ATTR_GID;
    struct ws_file *file;
    struct ws_node *node;
    struct stat attr;

    fixture_write(fx, "f", "x");
    node = fixture_at(fx, "f");
    assert_int_equal(
        ws_setattr(node, NULL, both, &want, &fx->ctx, &attr, &fx->err), 0);
    assert_int_equal(host_stat(fx, "f").st_uid, FIXTURE_BASE + 12);
    assert_int_equal(attr.st_uid, 12);
    want = (struct stat){.st_uid = FIXTURE_UID, .st_gid = FIXTURE_GID};
    assert_int_equal(
        ws_setattr(node, NULL, both, &want, &fx->ctx, &attr, &fx->err), 0);
    assert_int_equal(host_stat(fx, "f").st_gid, FIXTURE_BASE + FIXTURE_USER);
    want.st_uid = FIXTURE_IDS;
    assert_int_equal(
        ws_setattr(node, NULL, both, &want, &fx->ctx, &attr, &fx->err), -EPERM);
    /* Ids of the host outside the map are nobody's; keeping them is fine. */
    file = fixture_open(fx, "f", O_RDONLY);
    assert_int_equal(fchown(ws_file_fd(file), 5, 6), 0);
    ws_close(file);
    attr = fixture_stat(fx, "f");
    assert_int_equal(attr.st_uid, WS_ID_NOBODY);
    assert_int_equal(attr.st_gid, WS_ID_NOBODY);
    ws_node_unref(node);
}

static void writing_takes_set_id_bits_away(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *file;
    struct ws_node *node;
    struct stat want = {.st_mode = 06755, .st_size = 1};
    struct stat attr;

    fixture_write(fx, "f", "xxxx");
    node = fixture_at(fx, "f");
    for (int i = 0; i < 4; i++) {
        fx->ctx.uid = i == 3 ? 0 : FIXTURE_UID;
        assert_int_equal(ws_setattr(node, NULL, PROVIDER_ATTR_MODE, &want,
                                    &fx->ctx, &attr, &fx->err),
                         0);
        assert_int_equal(attr.st_mode, S_IFREG | 06755);
        if (i == 0 || i == 3) {
            file = fixture_open(fx, "f", O_WRONLY);
            assert_int_equal(ws_write(file, "y", 1, 0, &fx->ctx, &fx->err), 1);
        } else if (i == 1) {
            file = fixture_open(fx, "f", O_WRONLY | O_TRUNC);
        } else {
            file = fixture_open(fx, "f", O_RDONLY);
            assert_int_equal(ws_setattr(node, NULL, PROVIDER_ATTR_SIZE, &want,
                                        &fx->ctx, &attr, &fx->err),
                             0);
        }
        ws_close(file);
        assert_int_equal(fixture_stat(fx, "f").st_mode & 07777,
                         i == 3 ? 06755 : 0755);
    }
    ws_node_unref(node);
}

static void user_xattrs_work_and_others_do_not(void **state)
{
    struct fixture *fx = *state;
    struct ws_node *node;
    char buf[64];

    fixture_write(fx, "f", "x");
    node = fixture_at(fx, "f");
    assert_int_equal(ws_setxattr(node, "user.a", "value", 5, 0, &fx->err), 0);
    assert_int_equal(
        ws_setxattr(node, "user.a", "v", 1, XATTR_CREATE, &fx->err), -EEXIST);
    assert_int_equal(ws_setxattr(node, "trusted.a", "v", 1, 0, &fx->err),
                     -EPERM);
    assert_int_equal(
        ws_setxattr(node, "system.posix_acl_access", "v", 1, 0, &fx->err),
        -EOPNOTSUPP);
    assert_int_equal(
        ws_getxattr(node, "security.capability", buf, 64, &fx->err), -ENODATA);
    assert_int_equal(ws_getxattr(node, "user.a", buf, 64, &fx->err), 5);
    assert_memory_equal(buf, "value", 5);
    assert_int_equal(ws_getxattr(node, "user.a", NULL, 0, &fx->err), 5);
    assert_int_equal(ws_getxattr(node, "user.a", buf, 2, &fx->err), -ERANGE);
    assert_int_equal(ws_listxattr(node, buf, 64, &fx->err), 7);
    assert_string_equal(buf, "user.a");
    assert_int_equal(ws_removexattr(node, "user.a", &fx->err), 0);
    assert_int_equal(ws_listxattr(node, NULL, 0, &fx->err), 0);
    ws_node_unref(node);
    assert_int_equal(fixture_symlink(fx, "f", "l"), 0);
    node = fixture_at(fx, "l");
    assert_int_equal(ws_setxattr(node, "user.a", "v", 1, 0, &fx->err), -EPERM);
    ws_node_unref(node);
}

static void a_range_is_copied_and_space_is_reserved(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *in, *out;

    fixture_write(fx, "a", "0123456789");
    fixture_write(fx, "b", "");
    in = fixture_open(fx, "a", O_RDONLY);
    out = fixture_open(fx, "b", O_RDWR);
    assert_int_equal(ws_copy_range(in, 2, out, 0, 4, &fx->ctx, &fx->err), 4);
    fixture_expect(fx, "b", "2345");
    assert_int_equal(ws_fallocate(out, 0, 0, 8192, &fx->ctx, &fx->err), 0);
    assert_int_equal(fixture_stat(fx, "b").st_size, 8192);
    ws_close(in);
    ws_close(out);
}

static void an_unlinked_open_file_stays(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *file;
    struct ws_node *node;
    struct stat attr;
    char buf[8];

    fixture_write(fx, "f", "text");
    node = fixture_at(fx, "f");
    file = fixture_open(fx, "f", O_RDWR);
    assert_int_equal(fixture_unlink(fx, "f"), 0);
    assert_int_equal(ws_read(file, buf, 8, 0, &fx->ctx, &fx->err), 4);
    assert_int_equal(ws_write(file, "T", 1, 0, &fx->ctx, &fx->err), 1);
    assert_int_equal(ws_getattr(node, NULL, &fx->ctx, &attr, &fx->err), 0);
    assert_int_equal(attr.st_nlink, 0);
    ws_close(file);
    ws_node_unref(node);
}

/* Puts a path into a list of lines. */
static int add_line(void *arg, const char *path)
{
    return buf_printf(arg, "%s\n", path);
}

static void writers_are(struct fixture *fx, const char *want)
{
    struct buf lines = BUF_INIT(4096);

    assert_int_equal(ws_writers(fx->ws, add_line, &lines), 0);
    assert_string_equal(buf_str(&lines), want);
    buf_done(&lines);
}

static int refuse(void *arg, const char *path)
{
    (void)arg;
    (void)path;
    return -ECANCELED;
}

static void files_that_are_open_for_writing_are_told(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *files[3];

    fixture_mkdir(fx, "d");
    fixture_write(fx, "d/f", "text");
    fixture_write(fx, "g", "text");
    writers_are(fx, "");
    files[0] = fixture_open(fx, "d/f", O_RDONLY);
    files[1] = fixture_open(fx, "d/f", O_WRONLY);
    files[2] = fixture_open(fx, "g", O_RDWR);
    writers_are(fx, "d/f\ng\n");
    assert_int_equal(fixture_rename(fx, "d", "e", 0), 0);
    writers_are(fx, "e/f\ng\n");
    assert_int_equal(fixture_unlink(fx, "g"), 0);
    writers_are(fx, "e/f\ng\n");
    assert_int_equal(ws_writers(fx->ws, refuse, NULL), -ECANCELED);
    ws_close(files[1]);
    writers_are(fx, "g\n");
    ws_close(files[0]);
    ws_close(files[2]);
    writers_are(fx, "");
}

static void is_busy_by_what_is_open_alone(struct fixture *fx,
                                          struct ws_node *node)
{
    struct ws_file *file = NULL;
    struct ws_dir *listing = NULL;

    assert_false(ws_busy(fx->ws));
    assert_int_equal(ws_open(node, O_RDONLY, &fx->ctx, &file, &fx->err), 0);
    assert_true(ws_busy(fx->ws));
    ws_close(file);
    assert_false(ws_busy(fx->ws));
    assert_int_equal(ws_opendir(fx->root, &fx->ctx, &listing, &fx->err), 0);
    assert_true(ws_busy(fx->ws));
    ws_closedir(listing);
    assert_false(ws_busy(fx->ws));
}

/* What has the same files elsewhere, but for one that is gone and one that is
 * another's. */
static void nodes_go_with_a_tree_that_moves(void **state)
{
    struct fixture *fx = *state;
    struct ws_file *file = NULL;
    struct ws_node *above[2], *deep, *gone, *other, *found;
    struct stat attr;
    char command[256];
    char to[128];
    int fd;

    fixture_mkdir(fx, "d");
    fixture_mkdir(fx, "d/e");
    fixture_write(fx, "d/e/f", "text");
    fixture_write(fx, "gone", "text");
    fixture_write(fx, "other", "text");
    above[0] = fixture_at(fx, "d");
    above[1] = fixture_at(fx, "d/e");
    deep = fixture_at(fx, "d/e/f");
    gone = fixture_at(fx, "gone");
    other = fixture_at(fx, "other");
    (void)snprintf(to, sizeof(to), "%s.to", fx->dir);
    (void)snprintf(command, sizeof(command),
                   "cp -a %s %s && cd %s && rm -f gone && echo new >d/e/f && "
                   "mv %s/other %s/was && echo x >%s/other",
                   fx->dir, to, to, fx->dir, fx->dir, fx->dir);
    assert_int_equal(system(command), 0);

    is_busy_by_what_is_open_alone(fx, deep);

    fd = open(to, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(ws_move(fx->ws, fd, &fx->err), 0);
    assert_int_equal(ws_getattr(deep, NULL, &fx->ctx, &attr, &fx->err), 0);
    assert_int_equal(attr.st_size, 4);
    assert_int_equal(ws_getattr(gone, NULL, &fx->ctx, &attr, &fx->err),
                     -ESTALE);
    assert_int_equal(ws_getattr(other, NULL, &fx->ctx, &attr, &fx->err),
                     -ESTALE);
    found = fixture_at(fx, "d/e/f");
    assert_ptr_equal(found, deep); /* Met again under its name. */
    assert_int_equal(
        ws_open(deep, O_WRONLY | O_TRUNC, &fx->ctx, &file, &fx->err), 0);
    ws_close(file);
    (void)snprintf(command, sizeof(command),
                   "test ! -s %s/d/e/f && test -s %s/d/e/f && rm -r %s", to,
                   fx->dir, to);
    assert_int_equal(system(command), 0);
    ws_node_unref(found);
    ws_node_unref(above[0]);
    ws_node_unref(above[1]);
    ws_node_unref(deep);
    ws_node_unref(gone);
    ws_node_unref(other);
}

static bool note_ino(void *arg, const char *name, const struct stat *attr,
                     off_t next)
{
    uint64_t *ino = arg;

    (void)next;
    *ino = strcmp(name, "d") == 0 ? attr->st_ino : *ino;
    return true;
}

/* What a stat, a lookup and a listing tell are one. */
static uint64_t ino_of_d(struct fixture *fx)
{
    struct ws_node *node = NULL;
    struct ws_dir *listing = NULL;
    struct stat attr;
    uint64_t listed = 0;

    assert_int_equal(ws_lookup(fx->root, "d", &fx->ctx, &node, &attr, &fx->err),
                     0);
    assert_int_equal(ws_opendir(fx->root, &fx->ctx, &listing, &fx->err), 0);
    assert_int_equal(
        ws_readdir(listing, 0, note_ino, &listed, &fx->ctx, &fx->err), 0);
    ws_closedir(listing);
    assert_true(listed == attr.st_ino);
    assert_int_equal(ws_getattr(node, NULL, &fx->ctx, &attr, &fx->err), 0);
    assert_true(listed == attr.st_ino);
    ws_node_unref(node);
    return listed;
}

/* The kernel opens directories whose listings it has kept. */
static void a_directory_is_opened_when_it_is_read(void **state)
{
    struct fixture *fx = *state;
    struct ws_node *node;
    struct ws_dir *dir;
    uint64_t listed = 0;
    int next;

    fixture_mkdir(fx, "at");
    fixture_mkdir(fx, "at/d");
    node = fixture_at(fx, "at");
    next = dup(STDOUT_FILENO);
    (void)close(next);
    assert_int_equal(ws_opendir(node, &fx->ctx, &dir, &fx->err), 0);
    assert_int_equal(dup(STDOUT_FILENO), next);
    (void)close(next);
    assert_int_equal(ws_readdir(dir, 0, note_ino, &listed, &fx->ctx, &fx->err),
                     0);
    assert_true(listed);
    assert_int_equal(fcntl(next, F_GETFD), FD_CLOEXEC);
    ws_closedir(dir);
    assert_int_equal(fcntl(next, F_GETFD), -1);

    assert_int_equal(ws_opendir(node, &fx->ctx, &dir, &fx->err), 0);
    assert_int_equal(ws_rmdir(node, "d", &fx->ctx, &fx->err), 0);
    assert_int_equal(ws_rmdir(fx->root, "at", &fx->ctx, &fx->err), 0);
    assert_int_equal(ws_readdir(dir, 0, note_ino, &listed, &fx->ctx, &fx->err),
                     -ENOENT);
    ws_closedir(dir);
    ws_node_unref(node);
}

static void numbers_stay_when_a_tree_moves(void **state)
{
    struct fixture *fx = *state;
    struct stat before, after;
    struct ws_node *node;
    char command[300];
    char to[128];
    uint64_t ino;

    fixture_mkdir(fx, "d");
    node = fixture_at(fx, "d");
    ino = ino_of_d(fx);
    assert_int_equal(ws_getattr(fx->root, NULL, &fx->ctx, &before, &fx->err),
                     0);
    (void)snprintf(to, sizeof(to), "%s.to", fx->dir);
    (void)snprintf(command, sizeof(command), "cp -a %s %s", fx->dir, to);
    assert_int_equal(system(command), 0);
    assert_int_equal(
        ws_move(fx->ws, open(to, O_PATH | O_DIRECTORY | O_CLOEXEC), &fx->err),
        0);
    assert_true(ino_of_d(fx) == ino);
    assert_int_equal(ws_getattr(fx->root, NULL, &fx->ctx, &after, &fx->err), 0);
    assert_true(before.st_ino == after.st_ino);
    (void)snprintf(command, sizeof(command), "rm -r %s", to);
    assert_int_equal(system(command), 0);
    ws_node_unref(node);
}

/* What a number was kept for lies elsewhere by then; who has it is another. */
static void no_two_files_have_one_number_after_a_move(void **state)
{
    struct fixture *fx = *state;
    struct ws_node *node;
    struct ws_node *other;
    struct stat a, b;
    char command[600];
    char to[128];

    fixture_write(fx, "f", "f");
    node = fixture_at(fx, "f");
    (void)snprintf(to, sizeof(to), "%s.to", fx->dir);
    (void)snprintf(command, sizeof(command), "cp -a %s %s && ln %s/f %s/other",
                   fx->dir, to, fx->dir, to);
    assert_int_equal(system(command), 0);
    assert_int_equal(
        ws_move(fx->ws, open(to, O_PATH | O_DIRECTORY | O_CLOEXEC), &fx->err),
        0);
    other = fixture_at(fx, "other");
    assert_int_equal(ws_getattr(node, NULL, &fx->ctx, &a, &fx->err), 0);
    assert_int_equal(ws_getattr(other, NULL, &fx->ctx, &b, &fx->err), 0);
    assert_true(a.st_ino != b.st_ino);
    (void)snprintf(command, sizeof(command), "rm -r %s", to);
    assert_int_equal(system(command), 0);
    ws_node_unref(other);
    ws_node_unref(node);
}

/* Removes a file as the mount does. */
static bool remove_and_leave(struct fixture *fx, const char *name)
{
    struct ws_node *node = ws_large(fx->root, name);
    bool left;

    assert_int_equal(fixture_unlink(fx, name), 0);
    left = node && ws_leave(node);
    ws_node_unref(node);
    return left;
}

static void make_large(struct fixture *fx, const char *name)
{
    char path[PATH_MAX];

    fixture_write(fx, name, "x");
    (void)snprintf(path, sizeof(path), "%s/%s", fx->dir, name);
    assert_int_equal(truncate(path, 1 << 20), 0);
}

static void a_large_file_is_let_go_with_its_last_name(void **state)
{
    struct fixture *fx = *state;
    struct ws_node *held;
    struct ws_file *file;
    unsigned fds = direct_fd_count();
    struct stat attr;
    char byte;

    make_large(fx, "f");
    held = fixture_at(fx, "f");
    assert_true(remove_and_leave(fx, "f"));
    assert_int_equal(direct_fd_count(), fds);
    assert_int_equal(ws_getattr(held, NULL, &fx->ctx, &attr, &fx->err),
                     -ESTALE);
    fixture_write(fx, "f", "new"); /* Perhaps with the old one's number. */
    assert_int_equal(ws_getattr(held, NULL, &fx->ctx, &attr, &fx->err),
                     -ESTALE);
    assert_int_equal(fixture_stat(fx, "f").st_size, 3);
    assert_false(remove_and_leave(fx, "f")); /* It is small. */
    ws_node_unref(held);
    make_large(fx, "f");
    file = fixture_open(fx, "f", O_RDONLY);
    assert_false(remove_and_leave(fx, "f"));
    assert_int_equal(ws_read(file, &byte, 1, 0, &fx->ctx, &fx->err), 1);
    assert_int_equal(byte, 'x');
    ws_close(file);
    make_large(fx, "f");
    held = fixture_at(fx, "f");
    assert_int_equal(ws_link(held, fx->root, "g", &fx->ctx, &attr, &fx->err),
                     0);
    assert_false(remove_and_leave(fx, "f"));
    assert_int_equal(ws_getattr(held, NULL, &fx->ctx, &attr, &fx->err), 0);
    ws_node_unref(held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_DIRECT(files_belong_to_who_makes_them),
        FIXTURE_DIRECT(a_setgid_directory_hands_its_group_on),
        FIXTURE_DIRECT(owners_change_within_the_map),
        FIXTURE_DIRECT(writing_takes_set_id_bits_away),
        FIXTURE_DIRECT(user_xattrs_work_and_others_do_not),
        FIXTURE_DIRECT(a_range_is_copied_and_space_is_reserved),
        FIXTURE_DIRECT_BOTH(an_unlinked_open_file_stays),
        FIXTURE_DIRECT_BOTH(a_large_file_is_let_go_with_its_last_name),
        FIXTURE_DIRECT(files_that_are_open_for_writing_are_told),
        FIXTURE_DIRECT_BOTH(nodes_go_with_a_tree_that_moves),
        FIXTURE_DIRECT_BOTH(a_directory_is_opened_when_it_is_read),
        FIXTURE_DIRECT(numbers_stay_when_a_tree_moves),
        FIXTURE_DIRECT(no_two_files_have_one_number_after_a_move),
    };
    int failed;

    (void)umask(0);
    if (geteuid() != 0) {
        return 77; /* Owners are changed. */
    }
    failed = fixture_run_cases(fixture_direct_setup, fixture_direct_teardown);
    failed +=
        fixture_run_cases(fixture_direct_setup_plain, fixture_direct_teardown);
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
