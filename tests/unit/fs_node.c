/* The tables of control files, open files, and the table of inodes. */
#include "tests/cmocka.h"

#include "core/buf.h"
#include "fs/control.h"
#include "fs/file.h"
#include "fs/inode.h"
#include "fs/node.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- A small tree ---- */

static int shown; /* How often text_show was called. */

static int text_show(const struct node_ctx *ctx, struct buf *out,
                     struct err *err)
{
    (void)ctx;
    (void)err;
    return buf_printf(out, "text %d\n", ++shown);
}

static int missing_show(const struct node_ctx *ctx, struct buf *out,
                        struct err *err)
{
    (void)ctx;
    (void)out;
    return err_set(err, ENOENT, "not there");
}

static char stored[NODE_STORE_MAX + 1];

static void text_store(const struct node_ctx *ctx, const char *text,
                       done_fn *done, void *arg)
{
    struct err err = ERR_INIT;

    (void)ctx;
    (void)snprintf(stored, sizeof(stored), "%s", text);
    done(arg, 0, &err);
}

enum {
    CHILDREN = 500
};

static int child_find(const struct node_ctx *ctx, const char *name,
                      struct node *out, struct err *err)
{
    unsigned long n = strtoul(name + 1, NULL, 10);

    (void)ctx;
    if (*name != 'c' || n < 1 || n > CHILDREN) {
        return err_set(err, ENOENT, "no child");
    }
    out->session = NULL;
    return 0;
}

static int child_list(const struct node_ctx *ctx, uint64_t after,
                      bool (*fn)(void *arg, uint64_t number, const char *name),
                      void *arg, struct err *err)
{
    (void)ctx;
    (void)err;
    for (uint64_t n = after + 1; n <= CHILDREN; n++) {
        char name[16];

        (void)snprintf(name, sizeof(name), "c%d", (int)n);
        if (!fn(arg, n, name)) {
            break;
        }
    }
    return 0;
}

static const struct node_row child_row = {
    .name = "C", .id = 201, .mode = S_IFDIR | 0700};

static const struct node_children children = {
    .row = &child_row, .find = child_find, .list = child_list};

static const struct node_row rows[] = {
    {.name = "text", .id = 202, .mode = S_IFREG | 0400, .show = text_show},
    {.name = "word",
     .id = 203,
     .mode = S_IFREG | 0600,
     .show = text_show,
     .store = text_store,
     .flags = NODE_NEWS},
    {.name = "secret",
     .id = 204,
     .flags = NODE_UNLISTED,
     .mode = S_IFREG | 0400,
     .show = text_show},
    {.name = "missing",
     .id = 205,
     .flags = NODE_OPTIONAL,
     .mode = S_IFLNK | 0777,
     .show = missing_show},
    {.name = NULL},
};

static const struct node_row top = {.name = "",
                                    .id = 200,
                                    .mode = S_IFDIR | 0700,
                                    .up = &node_root,
                                    .rows = rows,
                                    .children = &children};

static const struct node dir = {.row = &top};
static const struct node_mount mount_point = {.started_us = 1500000};
static const struct node_ctx ctx = {.mount = &mount_point};

/* ---- Names ---- */

static void names_are_found_or_not(void **state)
{
    static const struct {
        const char *name;
        int rc;
    } cases[] = {
        {"text", 0},      {"secret", 0},         {"c7", 0},
        {"c500", 0},      {"c501", -ENOENT},     {"missing", -ENOENT},
        {"tex", -ENOENT}, {"Text", -ENOENT},     {"", -ENOENT},
        {"c\n", -ENOENT}, {"\xff\xfe", -ENOENT},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        struct node found;

        assert_int_equal(node_find(&ctx, &dir, cases[i].name, &found, &err),
                         cases[i].rc);
        assert_int_equal(err.code, -cases[i].rc);
    }
}

static void too_long_a_name_is_said_to_be_so(void **state)
{
    char name[NODE_NAME_MAX + 2];
    struct err err = ERR_INIT;
    struct node found;

    (void)state;
    memset(name, 'a', sizeof(name));
    name[NODE_NAME_MAX + 1] = '\0';
    assert_int_equal(node_find(&ctx, &dir, name, &found, &err), -ENAMETOOLONG);
}

struct seen {
    int room; /* Entries that still fit. */
    uint64_t next;
    char names[CHILDREN + 8][16];
    uint64_t inos[CHILDREN + 8];
    int count;
};

static bool see(void *arg, const char *name, const struct stat *attr,
                uint64_t next)
{
    struct seen *seen = arg;

    if (seen->room == 0) {
        return false;
    }
    seen->room--;
    seen->next = next;
    (void)snprintf(seen->names[seen->count], sizeof(seen->names[0]), "%s",
                   name);
    seen->inos[seen->count++] = attr->st_ino;
    return true;
}

static void a_listing_in_pieces_tells_each_name_once(void **state)
{
    static const char *const first[] = {".", "..", "text", "word", "c1", "c2"};
    static const int pieces[] = {1, 3, 7, 1000};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
        static struct seen seen;
        int before = -1;

        memset(&seen, 0, sizeof(seen));
        while (seen.count != before) {
            struct err err = ERR_INIT;

            before = seen.count;
            seen.room = pieces[i];
            assert_int_equal(node_list(&ctx, &dir, seen.next, see, &seen, &err),
                             0);
        }
        assert_int_equal(seen.count, 4 + CHILDREN);
        for (size_t k = 0; k < ARRAY_SIZE(first); k++) {
            assert_string_equal(seen.names[k], first[k]);
        }
        assert_string_equal(seen.names[seen.count - 1], "c500");
    }
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void inode_numbers_are_distinct_and_agree_with_stat(void **state)
{
    static struct seen seen;
    struct err err = ERR_INIT;
    struct node found;
    struct stat attr;

    (void)state;
    memset(&seen, 0, sizeof(seen));
    seen.room = 1000;
    assert_int_equal(node_list(&ctx, &dir, 0, see, &seen, &err), 0);
    assert_int_equal(node_find(&ctx, &dir, "text", &found, &err), 0);
    assert_int_equal(node_stat(&ctx, &found, &attr, &err), 0);
    assert_true(attr.st_ino == seen.inos[2]);
    assert_true(seen.inos[0] == node_ino(&dir));
    assert_true(seen.inos[1] == 1);
    qsort(seen.inos, (size_t)seen.count, sizeof(seen.inos[0]), compare);
    for (int i = 1; i < seen.count; i++) {
        assert_true(seen.inos[i] > seen.inos[i - 1]);
    }
}

static void stat_tells_what_a_read_would_give(void **state)
{
    const struct node node = {.row = &rows[0]};
    struct err err = ERR_INIT;
    struct stat attr;

    (void)state;
    shown = 0;
    assert_int_equal(node_stat(&ctx, &node, &attr, &err), 0);
    assert_int_equal(attr.st_size, strlen("text 1\n"));
    assert_int_equal(attr.st_blocks, 1);
    assert_int_equal(attr.st_mtim.tv_sec, 1);
    assert_int_equal(attr.st_mtim.tv_nsec, 500000000);
}

/* Every row below `row`, counted by id. */
static void walk(const struct node_row *row, unsigned char ids[256], int depth)
{
    assert_true(depth < 8);
    assert_true(row->id != 0);
    ids[row->id]++;
    for (const struct node_row *at = row->rows; at && at->name; at++) {
        assert_true(strlen(at->name) > 0 && strlen(at->name) < NODE_NAME_MAX);
        assert_true(!S_ISDIR(at->mode) || at->up == row);
        assert_true(!S_ISREG(at->mode) || at->show || at->ops);
        walk(at, ids, depth + 1);
    }
    if (row->children) {
        const struct node_row *child = row->children->row;

        assert_true(!S_ISDIR(child->mode) || child->up == row);
        walk(child, ids, depth + 1);
    }
}

static void each_file_of_the_mount_has_its_own_number(void **state)
{
    unsigned char ids[256] = {0};
    int count = 0;

    (void)state;
    walk(&node_root, ids, 0);
    for (size_t i = 0; i < sizeof(ids); i++) {
        assert_true(ids[i] <= 1);
        count += ids[i];
    }
    assert_true(count > 20);
}

/* ---- Open files ---- */

static void a_text_is_made_at_offset_0_and_sliced_after(void **state)
{
    const struct node node = {.row = &rows[0]};
    const struct file_call call = {{0, 0}, 1};
    struct err err = ERR_INIT;
    struct file *file;
    char out[64];

    (void)state;
    shown = 0;
    assert_int_equal(file_open(&mount_point, &node, O_RDONLY, &file, &err), 0);
    assert_int_equal(file_read(file, &call, 0, out, 3, &err), 3);
    assert_int_equal(file_read(file, &call, 3, out + 3, 60, &err), 4);
    assert_memory_equal(out, "text 1\n", 7);
    assert_int_equal(file_read(file, &call, 7, out, 60, &err), 0);
    assert_int_equal(file_read(file, &call, UINT64_MAX, out, 60, &err), 0);
    assert_int_equal(file_read(file, &call, 0, out, 60, &err), 7);
    assert_memory_equal(out, "text 2\n", 7);
    file_close(file);
}

static void what_has_no_store_cannot_be_opened_for_writing(void **state)
{
    static const int flags[] = {O_WRONLY, O_RDWR};
    const struct node node = {.row = &rows[0]};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
        struct err err = ERR_INIT;
        struct file *file = NULL;

        assert_int_equal(file_open(&mount_point, &node, flags[i], &file, &err),
                         -EACCES);
        assert_null(file);
    }
}

static void note_rc(void *arg, int rc, const struct err *err)
{
    (void)err;
    *(int *)arg = rc;
}

static void a_write_is_stripped_and_checked(void **state)
{
    static const struct {
        const char *data;
        size_t size;
        int rc;
        const char *text;
    } cases[] = {
        {"running\n", 8, 0, "running"},
        {"paused \t\r\n", 10, 0, "paused"},
        {" x", 2, 0, " x"},
        {"\n", 1, 0, ""},
        {"a\0b", 3, -EINVAL, ""},
    };
    const struct node node = {.row = &rows[1]};
    const struct file_call call = {{0, 0}, 1};
    static char large[NODE_STORE_MAX + 1];
    struct err err = ERR_INIT;
    struct file *file;
    int rc;

    (void)state;
    assert_int_equal(file_open(&mount_point, &node, O_WRONLY, &file, &err), 0);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        rc = 1;
        stored[0] = '\0';
        file_store(file, &call, cases[i].data, cases[i].size, note_rc, &rc);
        assert_int_equal(rc, cases[i].rc);
        assert_string_equal(stored, cases[i].text);
    }
    memset(large, 'x', sizeof(large));
    file_store(file, &call, large, sizeof(large), note_rc, &rc);
    assert_int_equal(rc, -EINVAL);
    file_close(file);
}

static void poll_tells_a_changed_text(void **state)
{
    const struct node news = {.row = &rows[1]};
    const struct node plain = {.row = &rows[0]};
    const struct file_call call = {{0, 0}, 1};
    struct err err = ERR_INIT;
    struct file *file;
    char out[64];

    (void)state;
    assert_int_equal(file_open(&mount_point, &plain, O_RDONLY, &file, &err), 0);
    assert_true(file_readable(file));
    file_close(file);
    assert_int_equal(file_open(&mount_point, &news, O_RDONLY, &file, &err), 0);
    shown = 0;
    assert_true(file_readable(file));
    shown = 0;
    assert_true(file_read(file, &call, 0, out, sizeof(out), &err) > 0);
    shown = 0;
    assert_false(file_readable(file));
    assert_true(file_readable(file));
    file_close(file);
}

/* ---- Inodes ---- */

static const struct inode_key root_key = {.part = &control_part, .row = &top};

static struct inode *look_up(struct inode_table *table, uint64_t n)
{
    struct inode_key key = {.part = &control_part, .row = &rows[0]};
    struct inode *inode;

    key.exec_n = n;
    inode = inode_look_up(table, &key);
    assert_non_null(inode);
    return inode;
}

static void a_file_has_one_inode_while_it_is_known(void **state)
{
    struct inode_table *table = inode_table_new(&root_key, NULL);
    struct inode *a;

    (void)state;
    assert_non_null(table);
    assert_ptr_equal(inode_key(inode_find(table, FUSE_ROOT_ID))->row, &top);
    a = look_up(table, 1);
    assert_ptr_equal(look_up(table, 1), a);
    assert_ptr_not_equal(look_up(table, 2), a);
    assert_ptr_equal(inode_find(table, inode_number(a)), a);
    assert_int_equal(inode_count(table), 2);
    inode_forget(table, a, 1);
    assert_int_equal(inode_count(table), 2);
    inode_forget(table, a, 1);
    assert_int_equal(inode_count(table), 1);
    inode_table_free(table);
}

static void a_reference_outlives_the_kernels_interest(void **state)
{
    struct inode_table *table = inode_table_new(&root_key, NULL);
    struct inode *a = look_up(table, 1);

    (void)state;
    (void)inode_ref(table, a);
    inode_forget(table, a, 1);
    assert_int_equal(inode_count(table), 1);
    assert_int_equal(inode_key(a)->exec_n, 1);
    inode_table_clear(table);
    assert_int_equal(inode_count(table), 1);
    inode_unref(table, a);
    assert_int_equal(inode_count(table), 0);
    inode_table_free(table);
}

static void open_files_live_until_their_last_close(void **state)
{
    struct inode_table *table = inode_table_new(&root_key, NULL);
    struct inode *a = look_up(table, 1);

    (void)state;
    inode_opened(table, a);
    inode_opened(table, a);
    inode_forget(table, a, 1);
    inode_closed(table, a);
    assert_int_equal(inode_count(table), 1);
    inode_closed(table, a);
    assert_int_equal(inode_count(table), 0);
    inode_table_free(table);
}

static void the_end_of_the_mount_closes_what_is_open(void **state)
{
    struct inode_table *table = inode_table_new(&root_key, NULL);
    struct inode *a = look_up(table, 1);
    struct inode *b = look_up(table, 2);

    (void)state;
    inode_opened(table, a);
    inode_opened(table, b);
    (void)inode_ref(table, b);
    inode_table_clear(table);
    assert_int_equal(inode_count(table), 1);
    inode_unref(table, b);
    assert_int_equal(inode_count(table), 0);
    inode_table_free(table);
}

enum {
    MILLION = 1000 * 1000,
    WINDOW = 100 * 1000
};

static void a_million_lookups_leave_nothing_behind(void **state)
{
    static struct inode *window[WINDOW];
    struct inode_table *table = inode_table_new(&root_key, NULL);
    size_t before = mallinfo2().uordblks;

    (void)state;
    for (uint64_t i = 0; i < MILLION; i++) {
        struct inode **at = &window[i % WINDOW];

        if (*at) {
            inode_forget(table, *at, 1);
        }
        *at = look_up(table, i + 1);
    }
    assert_int_equal(inode_count(table), WINDOW);
    for (size_t i = 0; i < WINDOW; i++) {
        inode_forget(table, window[i], 1);
    }
    assert_int_equal(inode_count(table), 0);
    assert_true(mallinfo2().uordblks <= before + 64 * 1024);
    inode_table_free(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found_or_not),
        cmocka_unit_test(too_long_a_name_is_said_to_be_so),
        cmocka_unit_test(a_listing_in_pieces_tells_each_name_once),
        cmocka_unit_test(inode_numbers_are_distinct_and_agree_with_stat),
        cmocka_unit_test(stat_tells_what_a_read_would_give),
        cmocka_unit_test(each_file_of_the_mount_has_its_own_number),
        cmocka_unit_test(a_text_is_made_at_offset_0_and_sliced_after),
        cmocka_unit_test(what_has_no_store_cannot_be_opened_for_writing),
        cmocka_unit_test(a_write_is_stripped_and_checked),
        cmocka_unit_test(poll_tells_a_changed_text),
        cmocka_unit_test(a_file_has_one_inode_while_it_is_known),
        cmocka_unit_test(a_reference_outlives_the_kernels_interest),
        cmocka_unit_test(open_files_live_until_their_last_close),
        cmocka_unit_test(the_end_of_the_mount_closes_what_is_open),
        cmocka_unit_test(a_million_lookups_leave_nothing_behind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
