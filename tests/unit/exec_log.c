/* Output on disk: any interleaving reads back, from any offset. */
#include "tests/cmocka.h"

#include "core/exec_log.h"
#include "tests/scratch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    MODEL_SIZE = 64 * 1024,
    DIR_SIZE = 64,
};

/* What the log should hold, by view. */
struct model {
    char data[3][MODEL_SIZE];
    size_t size[3];
};

static const char *dir_of(void **state)
{
    return *state;
}

static int make_dir(void **state)
{
    char *dir = malloc(DIR_SIZE);

    assert_non_null(dir);
    scratch_make(dir, DIR_SIZE);
    *state = dir;
    return 0;
}

static int remove_dir(void **state)
{
    scratch_remove(dir_of(state));
    free(*state);
    return 0;
}

static void add(struct model *model, struct exec_log *log,
                enum command_stream stream, const char *data, size_t size)
{
    const enum exec_view views[] = {
        EXEC_OUTPUT, stream == COMMAND_STDOUT ? EXEC_STDOUT : EXEC_STDERR};
    struct err err = ERR_INIT;

    assert_int_equal(exec_log_append(log, stream, data, size, &err), 0);
    for (size_t i = 0; i < ARRAY_SIZE(views); i++) {
        char *to = model->data[views[i]] + model->size[views[i]];

        memcpy(to, data, size);
        model->size[views[i]] += size;
    }
}

static void assert_same(struct exec_log *log, const struct model *model,
                        enum exec_view view, size_t offset, size_t size)
{
    static char out[MODEL_SIZE];
    struct err err = ERR_INIT;
    size_t left = offset < model->size[view] ? model->size[view] - offset : 0;
    size_t want = size < left ? size : left;
    ssize_t n = exec_log_read(log, view, offset, out, size, &err);

    assert_int_equal(n, want);
    assert_memory_equal(out, model->data[view] + offset, want);
}

static void assert_all(struct exec_log *log, const struct model *model,
                       unsigned *seed)
{
    for (int view = EXEC_OUTPUT; view <= EXEC_STDERR; view++) {
        size_t size = model->size[view];

        assert_int_equal(exec_log_size(log, (enum exec_view)view), size);
        assert_same(log, model, (enum exec_view)view, 0, MODEL_SIZE);
        assert_same(log, model, (enum exec_view)view, size, 10);
        for (int i = 0; i < 40; i++) {
            assert_same(log, model, (enum exec_view)view,
                        (size_t)rand_r(seed) % (size + 2),
                        1 + (size_t)rand_r(seed) % 3000);
        }
    }
}

/* Fills a log at random: runs of one byte to a few hundred. */
static void fill(struct exec_log *log, struct model *model, unsigned *seed,
                 int pieces)
{
    char data[300];

    for (int i = 0; i < pieces; i++) {
        size_t size = rand_r(seed) % 4 ? 1 + (size_t)rand_r(seed) % 5
                                       : 1 + (size_t)rand_r(seed) % 300;

        for (size_t k = 0; k < size; k++) {
            data[k] = (char)rand_r(seed);
        }
        add(model, log, rand_r(seed) % 2 ? COMMAND_STDOUT : COMMAND_STDERR,
            data, size);
    }
}

static void any_interleaving_reads_back(void **state)
{
    for (unsigned round = 0; round < 12; round++) {
        static const int pieces[] = {0, 1, 2, 64, 65, 400};
        struct model *model = calloc(1, sizeof(*model));
        struct exec_log *log = NULL;
        struct exec_log *again = NULL;
        struct err err = ERR_INIT;
        unsigned seed = round + 1;

        assert_non_null(model);
        assert_int_equal(exec_log_new(dir_of(state), round, &log, &err), 0);
        assert_int_equal(exec_log_start(log, &err), 0);
        fill(log, model, &seed, pieces[round % ARRAY_SIZE(pieces)]);
        assert_all(log, model, &seed);
        /* The same from the files alone, as after a restart. */
        assert_int_equal(exec_log_new(dir_of(state), round, &again, &err), 0);
        assert_all(again, model, &seed);
        exec_log_free(again);
        exec_log_free(log);
        free(model);
    }
}

static void a_command_without_files_has_no_output(void **state)
{
    struct exec_log *log = NULL;
    struct err err = ERR_INIT;
    char out[4];

    assert_int_equal(exec_log_new(dir_of(state), 1, &log, &err), 0);
    assert_int_equal(exec_log_size(log, EXEC_OUTPUT), 0);
    assert_int_equal(exec_log_read(log, EXEC_STDERR, 0, out, 4, &err), 0);
    exec_log_free(log);
}

static bool exists(void **state, const char *name)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", dir_of(state), name);
    return access(path, F_OK) == 0;
}

static void files_are_made_at_their_first_use(void **state)
{
    struct model *model = calloc(1, sizeof(*model));
    struct exec_log *log = NULL;
    struct err err = ERR_INIT;
    unsigned seed = 1;

    assert_non_null(model);
    assert_int_equal(exec_log_new(dir_of(state), 1, &log, &err), 0);
    assert_int_equal(exec_log_start(log, &err), 0);
    assert_false(exists(state, "1.log"));
    add(model, log, COMMAND_STDOUT, "abc", 3);
    assert_true(exists(state, "1.log"));
    assert_false(exists(state, "1.idx"));
    assert_all(log, model, &seed);
    add(model, log, COMMAND_STDERR, "de", 2);
    assert_true(exists(state, "1.idx"));
    assert_all(log, model, &seed);
    exec_log_free(log);
    free(model);
}

static void output_goes_on_where_it_was_cut(void **state)
{
    for (int pieces = 0; pieces < 4; pieces++) {
        struct model *model = calloc(1, sizeof(*model));
        struct exec_log *log = NULL;
        struct err err = ERR_INIT;
        unsigned seed = (unsigned)pieces;

        assert_non_null(model);
        assert_int_equal(exec_log_new(dir_of(state), 1, &log, &err), 0);
        assert_int_equal(exec_log_start(log, &err), 0);
        for (int i = 0; i < 5; i++) {
            fill(log, model, &seed, pieces);
            exec_log_free(log);
            assert_int_equal(exec_log_new(dir_of(state), 1, &log, &err), 0);
            assert_int_equal(exec_log_continue(log, &err), 0);
        }
        assert_all(log, model, &seed);
        exec_log_free(log);
        free(model);
    }
}

static void what_a_lost_command_left_is_not_shown(void **state)
{
    struct exec_log *log = NULL;
    struct exec_log *next = NULL;
    struct err err = ERR_INIT;

    assert_int_equal(exec_log_new(dir_of(state), 1, &log, &err), 0);
    assert_int_equal(exec_log_start(log, &err), 0);
    assert_int_equal(exec_log_append(log, COMMAND_STDERR, "old", 3, &err), 0);
    exec_log_free(log);
    assert_int_equal(exec_log_new(dir_of(state), 1, &log, &err), 0);
    assert_int_equal(exec_log_start(log, &err), 0);
    assert_int_equal(exec_log_size(log, EXEC_OUTPUT), 0);
    assert_int_equal(exec_log_new(dir_of(state), 1, &next, &err), 0);
    assert_int_equal(exec_log_size(next, EXEC_OUTPUT), 0);
    exec_log_free(next);
    exec_log_free(log);
}

/* A log of "abc" and "de", whose index file is then written to. */
static void read_with_index(const char *dir, const char *mode,
                            const void *records, size_t size)
{
    struct model *model = calloc(1, sizeof(*model));
    struct exec_log *log = NULL;
    struct err err = ERR_INIT;
    unsigned seed = 1;
    char path[128];
    FILE *idx;

    assert_non_null(model);
    assert_int_equal(exec_log_new(dir, 1, &log, &err), 0);
    assert_int_equal(exec_log_start(log, &err), 0);
    add(model, log, COMMAND_STDOUT, "abc", 3);
    add(model, log, COMMAND_STDERR, "de", 2);
    exec_log_free(log);
    (void)snprintf(path, sizeof(path), "%s/1.idx", dir);
    idx = fopen(path, mode);
    assert_non_null(idx);
    assert_int_equal(fwrite(records, size, 1, idx), 1);
    assert_int_equal(fclose(idx), 0);
    assert_int_equal(exec_log_new(dir, 1, &log, &err), 0);
    assert_all(log, model, &seed);
    exec_log_free(log);
    free(model);
}

/* As it was written when the first run had a record too. */
static void an_index_with_the_first_run_is_read(void **state)
{
    static const uint64_t records[][2] = {{0, 0}, {3 << 1 | 1, 3}};

    read_with_index(dir_of(state), "w", records, sizeof(records));
}

static void an_announcement_without_bytes_does_no_harm(void **state)
{
    /* Two of bytes that never came, and half a record. */
    static const uint64_t records[][2] = {{5 << 1, 3}, {9 << 1 | 1, 7}, {0, 0}};

    read_with_index(dir_of(state), "a", records,
                    2 * sizeof(records[0]) + sizeof(records[0]) / 2 - 1);
}

static void a_full_disk_is_told_and_what_fitted_is_kept(void **state)
{
    struct rlimit limit;
    struct rlimit old;
    struct exec_log *log = NULL;
    struct err err = ERR_INIT;
    char data[100];
    char out[100];

    memset(data, 'x', sizeof(data));
    assert_int_equal(exec_log_new(dir_of(state), 1, &log, &err), 0);
    assert_int_equal(exec_log_start(log, &err), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old;
    limit.rlim_cur = 150;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(exec_log_append(log, COMMAND_STDOUT, data, 100, &err), 0);
    assert_int_equal(exec_log_append(log, COMMAND_STDOUT, data, 100, &err),
                     -EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(exec_log_append(log, COMMAND_STDOUT, data, 100, &err),
                     -EIO);
    assert_int_equal(exec_log_size(log, EXEC_STDOUT), 150);
    assert_int_equal(exec_log_read(log, EXEC_STDOUT, 100, out, 100, &err), 50);
    exec_log_free(log);
}

/* Of a disk of 1 MiB: what a session's records need. */
static void output_leaves_room_on_its_disk(void **state)
{
    static char data[64 * 1024];
    struct exec_log *log = NULL;
    struct err err = ERR_INIT;
    struct statvfs disk;
    int rc = 0;

    if (mount("tmpfs", dir_of(state), "tmpfs", 0, "size=1m") < 0) {
        skip(); /* Only root may. */
    }
    assert_int_equal(exec_log_new(dir_of(state), 1, &log, &err), 0);
    assert_int_equal(exec_log_start(log, &err), 0);
    for (int i = 0; i < 16 && rc == 0; i++) {
        rc = exec_log_append(log, COMMAND_STDOUT, data, sizeof(data), &err);
    }
    assert_int_equal(rc, -ENOSPC);
    assert_true(exec_log_size(log, EXEC_STDOUT) >= 12 * sizeof(data));
    assert_int_equal(statvfs(dir_of(state), &disk), 0);
    assert_true(disk.f_bavail * disk.f_frsize >= 64 * 1024);
    exec_log_free(log);
    assert_int_equal(umount(dir_of(state)), 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, make_dir, remove_dir)
    const struct CMUnitTest tests[] = {
        T(any_interleaving_reads_back),
        T(a_command_without_files_has_no_output),
        T(files_are_made_at_their_first_use),
        T(output_goes_on_where_it_was_cut),
        T(what_a_lost_command_left_is_not_shown),
        T(an_index_with_the_first_run_is_read),
        T(an_announcement_without_bytes_does_no_harm),
        T(a_full_disk_is_told_and_what_fitted_is_kept),
        T(output_leaves_room_on_its_disk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
