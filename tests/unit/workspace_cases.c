/* What every tree must do, as POSIX has it. */
#include "tests/unit/workspace_fixture.h"

#include <errno.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void a_file_reads_as_it_was_written(struct fixture *fx)
{
    struct ws_file *file;
    char buf[32] = "";

    fixture_write(fx, "f", "hello");
    fixture_expect(fx, "f", "hello");
    fixture_write(fx, "f", "bye"); /* No tail of the longer one. */
    fixture_expect(fx, "f", "bye");
    file = fixture_open(fx, "f", O_RDWR);
    assert_int_equal(ws_write(file, "XY", 2, 7, &fx->ctx, &fx->err), 2);
    assert_int_equal(ws_write(file, "A", 1, 0, &fx->ctx, &fx->err), 1);
    assert_int_equal(ws_read(file, buf, 32, 0, &fx->ctx, &fx->err), 9);
    assert_memory_equal(buf, "Aye\0\0\0\0XY", 9);
    assert_int_equal(ws_read(file, buf, 32, 9, &fx->ctx, &fx->err), 0);
    assert_int_equal(ws_fsync(file, false, &fx->ctx, &fx->err), 0);
    ws_close(file);
    assert_int_equal(fixture_stat(fx, "f").st_size, 9);
}

static void a_sparse_file_is_as_long_as_it_says(struct fixture *fx)
{
    struct ws_file *file;
    const off_t far = (off_t)3 << 30;
    char byte = 'x';

    fixture_write(fx, "f", "");
    file = fixture_open(fx, "f", O_RDWR);
    if (fx->direct) {
        assert_int_equal(ws_write(file, "z", 1, far, &fx->ctx, &fx->err), 1);
        assert_true(fixture_stat(fx, "f").st_size == far + 1);
        assert_int_equal(ws_read(file, &byte, 1, far - 1, &fx->ctx, &fx->err),
                         1);
        assert_int_equal(byte, 0);
        assert_true(ws_lseek(file, 0, SEEK_DATA, &fx->ctx, &fx->err) > 0);
    }
    assert_int_equal(ws_lseek(file, 0, SEEK_SET, &fx->ctx, &fx->err), -EINVAL);
    ws_close(file);
}

struct appender {
    struct fixture *fx;
    struct ws_file *file;
    char letter;
};

static void *append_lines(void *arg)
{
    struct appender *me = arg;
    struct err err = ERR_INIT;
    char line[16];

    memset(line, me->letter, sizeof(line));
    line[15] = '\n';
    for (int i = 0; i < 20; i++) {
        if (ws_write(me->file, line, 16, 0, &me->fx->ctx, &err) != 16) {
            return arg;
        }
    }
    return NULL;
}

static void eight_writers_append_without_losing_a_line(struct fixture *fx)
{
    struct appender writers[8];
    pthread_t threads[8];
    void *failed;

    fixture_write(fx, "log", "");
    for (int i = 0; i < 8; i++) {
        writers[i] = (struct appender){
            fx, fixture_open(fx, "log", O_WRONLY | O_APPEND), (char)('a' + i)};
        assert_int_equal(
            pthread_create(&threads[i], NULL, append_lines, &writers[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
        assert_int_equal(ws_flush(writers[i].file, &fx->ctx, &fx->err), 0);
        ws_close(writers[i].file);
    }
    assert_int_equal(fixture_stat(fx, "log").st_size, 8 * 20 * 16);
}

static void creating_honours_excl_and_opens_what_is_there(struct fixture *fx)
{
    struct ws_node *node;
    struct ws_file *file;
    struct stat attr;

    fixture_write(fx, "f", "old");
    assert_int_equal(ws_create(fx->root, "f", 0600, O_RDWR | O_EXCL, &fx->ctx,
                               &node, &file, &attr, &fx->err),
                     -EEXIST);
    assert_int_equal(fx->err.code, EEXIST);
    assert_int_equal(ws_create(fx->root, "f", 0600, O_RDWR, &fx->ctx, &node,
                               &file, &attr, &fx->err),
                     0);
    assert_int_equal(attr.st_size, 3);
    assert_int_equal(attr.st_mode & 07777, 0644);
    ws_close(file);
    ws_node_unref(node);
    fixture_mkdir(fx, "d");
    assert_int_equal(ws_create(fx->root, "d", 0600, O_RDWR, &fx->ctx, &node,
                               &file, &attr, &fx->err),
                     -EISDIR);
}

static void a_rename_replaces_and_obeys_its_flags(struct fixture *fx)
{
    uint64_t ino;

    fixture_write(fx, "a", "A");
    fixture_write(fx, "b", "B");
    ino = fixture_stat(fx, "a").st_ino;
    assert_int_equal(fixture_rename(fx, "a", "b", RENAME_NOREPLACE), -EEXIST);
    assert_int_equal(fixture_rename(fx, "a", "b", RENAME_EXCHANGE), 0);
    fixture_expect(fx, "a", "B");
    fixture_expect(fx, "b", "A");
    assert_true(fixture_stat(fx, "b").st_ino == ino);
    assert_int_equal(fixture_rename(fx, "b", "a", 0), 0);
    fixture_expect(fx, "a", "A");
    assert_int_equal(fixture_find(fx, "b"), -ENOENT);
    assert_int_equal(fixture_rename(fx, "a", "c", RENAME_WHITEOUT), -EINVAL);
    assert_int_equal(
        fixture_rename(fx, "a", "c", RENAME_NOREPLACE | RENAME_EXCHANGE),
        -EINVAL);
    assert_int_equal(fixture_rename(fx, "a", "gone", RENAME_EXCHANGE), -ENOENT);
    assert_int_equal(fixture_rename(fx, "gone", "a", 0), -ENOENT);
}

static void directories_rename_as_posix_says(struct fixture *fx)
{
    fixture_mkdir(fx, "d");
    fixture_mkdir(fx, "d/in");
    fixture_mkdir(fx, "full");
    fixture_write(fx, "full/f", "x");
    fixture_write(fx, "f", "x");
    assert_int_equal(fixture_rename(fx, "d", "d/in/d", 0), -EINVAL);
    assert_int_equal(fixture_rename(fx, "d", "full", 0), -ENOTEMPTY);
    assert_int_equal(fixture_rename(fx, "d", "f", 0), -ENOTDIR);
    assert_int_equal(fixture_rename(fx, "f", "d", 0), -EISDIR);
    fixture_mkdir(fx, "empty");
    assert_int_equal(fixture_rename(fx, "full", "empty", 0), 0);
    fixture_expect(fx, "empty/f", "x");
}

static void a_directory_takes_its_children_and_open_files(struct fixture *fx)
{
    struct ws_node *dir, *node, *found;
    struct ws_file *file;
    struct stat attr;
    char buf[8];

    fixture_mkdir(fx, "d");
    fixture_mkdir(fx, "d/e");
    fixture_mkdir(fx, "new");
    fixture_write(fx, "d/e/f", "text");
    dir = fixture_at(fx, "d/e");
    node = fixture_at(fx, "d/e/f");
    file = fixture_open(fx, "d/e/f", O_RDWR);
    assert_int_equal(fixture_rename(fx, "d", "new/d", 0), 0);
    fixture_expect(fx, "new/d/e/f", "text");
    assert_int_equal(ws_read(file, buf, 8, 0, &fx->ctx, &fx->err), 4);
    assert_int_equal(ws_write(file, "T", 1, 0, &fx->ctx, &fx->err), 1);
    fixture_expect(fx, "new/d/e/f", "Text");
    assert_int_equal(ws_getattr(node, NULL, &fx->ctx, &attr, &fx->err), 0);
    assert_int_equal(ws_lookup(dir, "f", &fx->ctx, &found, &attr, &fx->err), 0);
    assert_ptr_equal(found, node);
    ws_node_unref(found);
    ws_close(file);
    ws_node_unref(node);
    ws_node_unref(dir);
}

static void names_are_bytes(struct fixture *fx)
{
    char most[257];
    const char *names[] = {
        "new\nline", "\x01\x7f", "\xff\xfe\x80", "-rf", "...", " ", most};

    memset(most, 'n', 256);
    most[255] = '\0';
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        fixture_write(fx, names[i], "x");
        fixture_expect(fx, names[i], "x");
        assert_int_equal(fixture_unlink(fx, names[i]), 0);
    }
}

static void bad_names_are_refused(struct fixture *fx)
{
    char long_name[257];
    const struct {
        const char *name;
        int rc;
    } rows[] = {{"", -EINVAL},     {".", -EINVAL},
                {"..", -EINVAL},   {"a/b", -EINVAL},
                {"../x", -EINVAL}, {long_name, -ENAMETOOLONG}};
    struct ws_node *node;
    struct stat attr;

    memset(long_name, 'n', 256);
    long_name[256] = '\0';
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *name = rows[i].name;

        err_clear(&fx->err);
        assert_int_equal(
            ws_lookup(fx->root, name, &fx->ctx, &node, &attr, &fx->err),
            rows[i].rc);
        assert_int_equal(fx->err.code, -rows[i].rc);
        assert_int_equal(
            ws_mkdir(fx->root, name, 0700, &fx->ctx, &node, &attr, &fx->err),
            rows[i].rc);
        assert_int_equal(ws_unlink(fx->root, name, &fx->ctx, &fx->err),
                         rows[i].rc);
        assert_int_equal(
            ws_rename(fx->root, "a", fx->root, name, 0, &fx->ctx, &fx->err),
            rows[i].rc);
    }
}

static void removal_tells_files_from_directories(struct fixture *fx)
{
    fixture_mkdir(fx, "d");
    fixture_write(fx, "d/f", "x");
    assert_int_equal(ws_rmdir(fx->root, "d", &fx->ctx, &fx->err), -ENOTEMPTY);
    assert_int_equal(ws_unlink(fx->root, "d", &fx->ctx, &fx->err), -EISDIR);
    assert_int_equal(fixture_unlink(fx, "d/f"), 0);
    assert_int_equal(fixture_unlink(fx, "d/f"), -ENOENT);
    fixture_write(fx, "f", "x");
    assert_int_equal(ws_rmdir(fx->root, "f", &fx->ctx, &fx->err), -ENOTDIR);
    assert_int_equal(ws_rmdir(fx->root, "d", &fx->ctx, &fx->err), 0);
    assert_int_equal(fixture_find(fx, "d"), -ENOENT);
    assert_int_equal(fixture_find(fx, "f/x"), -ENOTDIR);
}

/* What a listing has told so far. */
struct listing {
    struct fixture *fx;
    unsigned seen[4000];
    unsigned others;
    unsigned room; /* Entries that still fit in this round. */
    off_t next;
    bool removing;
};

static bool take_entry(void *arg, const char *name, const struct stat *attr,
                       off_t next)
{
    struct listing *list = arg;
    unsigned n;

    if (!list->room) {
        return false;
    }
    list->room--;
    list->next = next;
    assert_true(attr->st_ino != 0);
    if (sscanf(name, "file-%u", &n) != 1) {
        assert_true(S_ISDIR(attr->st_mode));
        list->others++;
        return true;
    }
    assert_true(n < 4000 && S_ISREG(attr->st_mode));
    if (n % 997 == 0) {
        assert_true(fixture_stat(list->fx, name).st_ino == attr->st_ino);
    }
    list->seen[n]++;
    return true;
}

static void list_all(struct listing *list, struct ws_dir *dir, unsigned round)
{
    struct fixture *fx = list->fx;
    off_t before;

    do {
        before = list->next;
        list->room = round;
        assert_int_equal(
            ws_readdir(dir, list->next, take_entry, list, &fx->ctx, &fx->err),
            0);
        for (unsigned n = 0; list->removing && n < 4000; n++) {
            char name[32];

            (void)snprintf(name, sizeof(name), "file-%04u", n);
            if (list->seen[n] == 1) {
                assert_int_equal(fixture_unlink(fx, name), 0);
                list->seen[n] = 1000; /* Told once, and gone. */
            }
        }
    } while (list->next != before);
}

static void a_listing_tells_each_entry_once(struct fixture *fx)
{
    struct listing *list = calloc(1, sizeof(*list));
    struct ws_dir *dir;
    struct ws_node *node;
    struct stat attr;
    char name[32];

    for (unsigned n = 0; n < 4000; n++) {
        (void)snprintf(name, sizeof(name), "file-%04u", n);
        assert_int_equal(ws_mknod(fx->root, name, S_IFREG | 0644, &fx->ctx,
                                  &node, &attr, &fx->err),
                         0);
        ws_node_unref(node);
    }
    list->fx = fx;
    assert_int_equal(ws_opendir(fx->root, &fx->ctx, &dir, &fx->err), 0);
    list_all(list, dir, 37);
    for (unsigned n = 0; n < 4000; n++) {
        assert_int_equal(list->seen[n], 1);
        list->seen[n] = 0;
    }
    assert_int_equal(list->others, 2); /* "." and ".." */
    list->next = 0;
    list->removing = true;
    list_all(list, dir, 101);
    for (unsigned n = 0; n < 4000; n++) {
        assert_int_equal(list->seen[n], 1000);
    }
    assert_int_equal(ws_fsyncdir(dir, false, &fx->ctx, &fx->err), 0);
    ws_closedir(dir);
    free(list);
}

static void hard_links_share_an_inode(struct fixture *fx)
{
    struct ws_node *node, *other;
    struct stat attr;

    fixture_write(fx, "a", "one");
    fixture_mkdir(fx, "d");
    node = fixture_at(fx, "a");
    other = fixture_at(fx, "d");
    assert_int_equal(ws_link(node, other, "b", &fx->ctx, &attr, &fx->err), 0);
    assert_int_equal(attr.st_nlink, 2);
    assert_int_equal(ws_link(node, other, "b", &fx->ctx, &attr, &fx->err),
                     -EEXIST);
    ws_node_unref(other);
    assert_true(fixture_stat(fx, "a").st_ino == fixture_stat(fx, "d/b").st_ino);
    fixture_write(fx, "d/b", "two");
    fixture_expect(fx, "a", "two");
    assert_int_equal(fixture_unlink(fx, "a"), 0);
    fixture_expect(fx, "d/b", "two");
    assert_int_equal(fixture_stat(fx, "d/b").st_nlink, 1);
    ws_node_unref(node);
}

static void links_show_what_stays_inside(struct fixture *fx)
{
    static const struct {
        const char *at, *target, *read;
    } rows[] = {
        {"l1", "f", "f"},
        {"d/l2", "../f", "../f"},
        {"d/e/l3", "../../f", "../../f"},
        {"d/e/l4", "../../../f", NULL},
        {"l5", "..", NULL},
        {"l6", "d/../f", NULL},
        {"l7", "/etc/passwd", NULL},
        {"l8", "/workspace/d/x", "./d/x"},
        {"d/e/l9", "/workspace/d/x", "../../d/x"},
        {"d/l10", "/workspace", ".."},
        {"l11", "/workspace/", "."},
        {"l12", "/workspaces/x", NULL},
        {"l13", "/workspace/../etc", NULL},
        {"l14", "/workspace/d/../../etc", NULL},
        {"d/l15", "./..//f", "./..//f"},
        {"l16", "gone \n\xff", "gone \n\xff"},
    };
    struct ws_node *d, *e;
    char out[4096];

    fixture_mkdir(fx, "d");
    fixture_mkdir(fx, "d/e");
    d = fixture_at(fx, "d"); /* The kernel holds the way to a link, too. */
    e = fixture_at(fx, "d/e");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ws_node *node;

        assert_int_equal(fixture_symlink(fx, rows[i].target, rows[i].at), 0);
        node = fixture_at(fx, rows[i].at);
        assert_int_equal(
            ws_readlink(node, &fx->ctx, out, sizeof(out), &fx->err),
            rows[i].read ? 0 : -EACCES);
        if (rows[i].read) {
            assert_string_equal(out, rows[i].read);
        }
        ws_node_unref(node);
    }
    assert_int_equal(fixture_symlink(fx, "x", "l1"), -EEXIST);
    ws_node_unref(e);
    ws_node_unref(d);
}

static void a_link_is_never_followed(struct fixture *fx)
{
    struct ws_node *node, *made;
    struct ws_file *file;
    struct stat attr;

    fixture_mkdir(fx, "d");
    fixture_write(fx, "d/f", "x");
    assert_int_equal(fixture_symlink(fx, "d", "l"), 0);
    assert_int_equal(fixture_symlink(fx, "d/f", "lf"), 0);
    assert_int_equal(fixture_find(fx, "l/f"), -ENOTDIR);
    node = fixture_at(fx, "lf");
    assert_int_equal(ws_open(node, O_WRONLY, &fx->ctx, &file, &fx->err),
                     -ELOOP);
    ws_node_unref(node);
    assert_int_equal(ws_create(fx->root, "lf", 0644, O_WRONLY, &fx->ctx, &made,
                               &file, &attr, &fx->err),
                     -ELOOP);
}

static void modes_and_times_stay_as_set(struct fixture *fx)
{
    struct ws_node *node;
    struct ws_file *file;
    struct stat want = {.st_mode = 0640,
                        .st_atim = {1000, 123456789},
                        .st_mtim = {2000, 987654321}};
    struct stat attr;

    fixture_write(fx, "f", "text");
    node = fixture_at(fx, "f");
    file = fixture_open(fx, "f", O_WRONLY);
    assert_int_equal(ws_write(file, "T", 1, 0, &fx->ctx, &fx->err), 1);
    assert_int_equal(ws_setattr(node, NULL,
                                PROVIDER_ATTR_MODE | PROVIDER_ATTR_ATIME |
                                    PROVIDER_ATTR_MTIME,
                                &want, &fx->ctx, &attr, &fx->err),
                     0);
    assert_int_equal(ws_flush(file, &fx->ctx, &fx->err), 0);
    ws_close(file);
    attr = fixture_stat(fx, "f");
    assert_int_equal(attr.st_mode, S_IFREG | 0640);
    assert_int_equal(attr.st_atim.tv_sec, 1000);
    assert_int_equal(attr.st_atim.tv_nsec, 123456789);
    assert_int_equal(attr.st_mtim.tv_sec, 2000);
    assert_int_equal(attr.st_mtim.tv_nsec, 987654321);
    want.st_atim.tv_sec = 3000;
    assert_int_equal(ws_setattr(node, NULL, PROVIDER_ATTR_ATIME, &want,
                                &fx->ctx, &attr, &fx->err),
                     0);
    assert_int_equal(attr.st_mtim.tv_sec, 2000);
    want.st_mtim.tv_nsec = UTIME_NOW;
    assert_int_equal(ws_setattr(node, NULL, PROVIDER_ATTR_MTIME, &want,
                                &fx->ctx, &attr, &fx->err),
                     0);
    assert_true(attr.st_mtim.tv_sec > 1000000);
    ws_node_unref(node);
}

static void a_length_can_be_set_with_and_without_a_handle(struct fixture *fx)
{
    struct ws_node *node, *dir;
    struct ws_file *file;
    struct stat want = {.st_size = 2};
    struct stat attr;

    fixture_write(fx, "f", "text");
    node = fixture_at(fx, "f");
    assert_int_equal(ws_setattr(node, NULL, PROVIDER_ATTR_SIZE, &want, &fx->ctx,
                                &attr, &fx->err),
                     0);
    assert_int_equal(attr.st_size, 2);
    fixture_expect(fx, "f", "te");
    file = fixture_open(fx, "f", O_RDWR);
    want.st_size = 3;
    assert_int_equal(ws_setattr(node, file, PROVIDER_ATTR_SIZE, &want, &fx->ctx,
                                &attr, &fx->err),
                     0);
    assert_int_equal(ws_flush(file, &fx->ctx, &fx->err), 0);
    ws_close(file);
    ws_node_unref(node);
    assert_int_equal(fixture_stat(fx, "f").st_size, 3);
    fixture_mkdir(fx, "d");
    dir = fixture_at(fx, "d");
    assert_int_equal(ws_setattr(dir, NULL, PROVIDER_ATTR_SIZE, &want, &fx->ctx,
                                &attr, &fx->err),
                     -EISDIR);
    ws_node_unref(dir);
}

static void room_is_told_with_real_figures(struct fixture *fx)
{
    struct statvfs room;

    assert_int_equal(ws_statfs(fx->ws, &fx->ctx, &room, &fx->err), 0);
    assert_true(room.f_bsize && room.f_blocks && room.f_files);
    assert_int_equal(room.f_namemax, 255);
}

static void inode_numbers_are_distinct_and_stay(struct fixture *fx)
{
    uint64_t a, b;

    fixture_write(fx, "a", "");
    fixture_write(fx, "b", "");
    a = fixture_stat(fx, "a").st_ino;
    b = fixture_stat(fx, "b").st_ino;
    assert_true(a != b && a >> 63 && b >> 63);
    assert_int_equal(fixture_rename(fx, "a", "c", 0), 0);
    assert_true(fixture_stat(fx, "c").st_ino == a);
    assert_true(fixture_stat(fx, "b").st_ino == b);
}

static void devices_are_refused(struct fixture *fx)
{
    struct ws_node *node;
    struct stat attr;

    assert_int_equal(ws_mknod(fx->root, "c", S_IFCHR | 0600, &fx->ctx, &node,
                              &attr, &fx->err),
                     -EPERM);
    assert_int_equal(ws_mknod(fx->root, "b", S_IFBLK | 0600, &fx->ctx, &node,
                              &attr, &fx->err),
                     -EPERM);
    assert_int_equal(fixture_find(fx, "c"), -ENOENT);
}

#define CASE(name)                                                             \
    {                                                                          \
#name, name                                                            \
    }

const struct workspace_case workspace_cases[] = {
    CASE(a_file_reads_as_it_was_written),
    CASE(a_sparse_file_is_as_long_as_it_says),
    CASE(eight_writers_append_without_losing_a_line),
    CASE(creating_honours_excl_and_opens_what_is_there),
    CASE(a_rename_replaces_and_obeys_its_flags),
    CASE(directories_rename_as_posix_says),
    CASE(a_directory_takes_its_children_and_open_files),
    CASE(names_are_bytes),
    CASE(bad_names_are_refused),
    CASE(removal_tells_files_from_directories),
    CASE(a_listing_tells_each_entry_once),
    CASE(hard_links_share_an_inode),
    CASE(links_show_what_stays_inside),
    CASE(a_link_is_never_followed),
    CASE(modes_and_times_stay_as_set),
    CASE(a_length_can_be_set_with_and_without_a_handle),
    CASE(room_is_told_with_real_figures),
    CASE(inode_numbers_are_distinct_and_stay),
    CASE(devices_are_refused),
};

const size_t workspace_n_cases = ARRAY_SIZE(workspace_cases);
