/* What others do to a file of a remote tree while it is being sent or read. */
#include "tests/unit/remote_fixture.h"

#include "core/clock.h"
#include "core/workspace_impl.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

static void add(struct fixture *fx, struct ws_file *file, const char *text)
{
    size_t size = strlen(text);

    assert_int_equal(ws_write(file, text, size, 0, &fx->ctx, &fx->err), size);
}

/* One who appends, in a thread of their own. */
struct appender {
    struct fixture *fx;
    struct ws_file *file;
    pthread_t thread;
    int rc;
};

static void *flush_line(void *arg)
{
    struct appender *appender = arg;
    struct err err = ERR_INIT;

    appender->rc = ws_flush(appender->file, &appender->fx->ctx, &err);
    return NULL;
}

/* Has one of them send, until the engine is called. */
static void begin_flush(struct appender *appender, uint64_t before)
{
    const struct timespec moment = {0, 1000L * 1000};

    assert_int_equal(
        pthread_create(&appender->thread, NULL, flush_line, appender), 0);
    while (remote_fixture_calls(appender->fx) == before) {
        (void)nanosleep(&moment, NULL);
    }
}

/* Waits for two, of which the first has a file; both went well. */
static void end_both(struct appender *first, struct appender *other)
{
    assert_int_equal(pthread_join(first->thread, NULL), 0);
    assert_int_equal(pthread_join(other->thread, NULL), 0);
    assert_int_equal(first->rc, 0);
    assert_int_equal(other->rc, 0);
    ws_close(first->file);
}

static void many_who_append_share_a_call(void **state)
{
    static const char all[] = "0\n1\n2\n3\n4\n5\n6\n7\n";
    struct appender appenders[8];
    struct fixture *fx = *state;
    uint64_t before;

    fixture_write(fx, "log", "");
    for (size_t i = 0; i < ARRAY_SIZE(appenders); i++) {
        appenders[i].fx = fx;
        appenders[i].file = fixture_open(fx, "log", O_WRONLY | O_APPEND);
    }
    /* Who had to wait for the first would wait for ever. */
    fx->ctx.limits.deadline_ms = clock_deadline(20000);
    remote_fixture_fault(fx, "put", "stuck");
    before = remote_fixture_calls(fx);
    for (size_t i = 0; i < ARRAY_SIZE(appenders); i++) {
        const char line[] = {all[2 * i], '\n', '\0'};

        add(fx, appenders[i].file, line);
        begin_flush(&appenders[i], before);
    }
    fixture_expect(fx, "log", all);
    remote_fixture_fault(fx, "put", NULL);
    for (size_t i = 0; i < ARRAY_SIZE(appenders); i++) {
        assert_int_equal(pthread_join(appenders[i].thread, NULL), 0);
        assert_int_equal(appenders[i].rc, 0);
        ws_close(appenders[i].file);
    }
    /* On a slow machine the first asks what there is. */
    assert_in_range(remote_fixture_calls(fx) - before, 2, 3);
    assert_false(ws_unsent(fx->ws));
    remote_fixture_expect_there(fx, "log", all);
}

/* Who adds a line while others fail has not been told of it. */
static void a_failure_is_told_to_those_whose_lines_it_was_about(void **state)
{
    struct fixture *fx = *state;
    struct appender first = {.fx = fx};
    struct ws_file *second;

    fixture_write(fx, "log", "");
    first.file = fixture_open(fx, "log", O_WRONLY | O_APPEND);
    second = fixture_open(fx, "log", O_WRONLY | O_APPEND);
    fx->ctx.limits.deadline_ms = clock_deadline(20000);
    add(fx, first.file, "1\n");
    remote_fixture_fault(fx, "put", "stuck"); /* And fails then. */
    remote_fixture_fault(fx, "put@s7", "errno EIO");
    begin_flush(&first, remote_fixture_calls(fx));
    add(fx, second, "2\n");
    remote_fixture_fault(fx, "put", NULL);
    assert_int_equal(pthread_join(first.thread, NULL), 0);
    assert_int_equal(first.rc, -EIO);
    assert_true(ws_unsent_file(second));
    remote_fixture_fault(fx, "put@s7", NULL);
    ws_close(first.file);
    assert_int_equal(ws_flush(second, &fx->ctx, &fx->err), 0);
    ws_close(second);
    remote_fixture_expect_there(fx, "log", "1\n2\n");
}

static void *rotate(void *arg)
{
    struct appender *other = arg;

    other->rc = fixture_rename(other->fx, "log", "log.1", 0);
    return NULL;
}

static void what_is_being_sent_is_not_renamed_meanwhile(void **state)
{
    struct fixture *fx = *state;
    struct appender first = {.fx = fx};
    struct appender other = {.fx = fx};
    const struct timespec moment = {0, 50L * 1000 * 1000};

    fixture_write(fx, "log", "1\n");
    first.file = fixture_open(fx, "log", O_WRONLY | O_APPEND);
    fx->ctx.limits.deadline_ms = clock_deadline(20000);
    add(fx, first.file, "2\n");
    remote_fixture_fault(fx, "put", "stuck");
    begin_flush(&first, remote_fixture_calls(fx));
    assert_int_equal(pthread_create(&other.thread, NULL, rotate, &other), 0);
    (void)nanosleep(&moment, NULL);
    remote_fixture_fault(fx, "put", NULL);
    end_both(&first, &other);
    remote_fixture_expect_there(fx, "log.1", "1\n2\n");
    ws_changed(fx->ws);
    assert_int_equal(fixture_find(fx, "log"), -ENOENT);
}

static void *move_dir(void *arg)
{
    struct appender *other = arg;

    other->rc = fixture_rename(other->fx, "d", "e", 0);
    return NULL;
}

/* Closes a file of a directory that is renamed meanwhile; the one that comes
 * first is held up. */
static void close_and_move(struct fixture *fx, bool closes_first)
{
    const char *op = closes_first ? "put" : "rename";
    struct appender first = {.fx = fx};
    struct appender other = {.fx = fx};
    const struct timespec moment = {0, 50L * 1000 * 1000};
    uint64_t before;

    fixture_mkdir(fx, "d");
    fixture_write(fx, "d/f", "1\n");
    first.file = fixture_open(fx, "d/f", O_WRONLY | O_TRUNC);
    fx->ctx.limits.deadline_ms = clock_deadline(20000);
    add(fx, first.file, "2\n");
    remote_fixture_fault(fx, op, "stuck");
    before = remote_fixture_calls(fx);
    if (closes_first) {
        begin_flush(&first, before);
    }
    assert_int_equal(pthread_create(&other.thread, NULL, move_dir, &other), 0);
    while (remote_fixture_calls(fx) == before) {
        (void)nanosleep(&moment, NULL);
    }
    if (!closes_first) {
        begin_flush(&first, before);
    }
    (void)nanosleep(&moment, NULL);
    remote_fixture_fault(fx, op, NULL);
    end_both(&first, &other);
    remote_fixture_expect_there(fx, "e/f", "2\n");
    fixture_expect(fx, "e/f", "2\n");
    assert_int_equal(fixture_find(fx, "d/f"), -ENOENT);
}

static void a_directory_waits_for_what_is_being_sent_below_it(void **state)
{
    close_and_move(*state, true);
}

static void what_is_sent_waits_for_the_directory_that_it_lies_in(void **state)
{
    close_and_move(*state, false);
}

static void *read_all(void *arg)
{
    struct appender *reader = arg;
    struct err err = ERR_INIT;
    char text[8] = "";

    reader->rc = (int)ws_read(reader->file, text, sizeof(text) - 1, 0,
                              &reader->fx->ctx, &err);
    return NULL;
}

static void what_is_read_is_found_where_its_directory_went(void **state)
{
    struct fixture *fx = *state;
    struct appender reader = {.fx = fx};
    const struct timespec moment = {0, 10L * 1000 * 1000};
    uint64_t before;

    fixture_mkdir(fx, "d");
    remote_fixture_write_there(fx, "d/f", "text");
    ws_changed(fx->ws);
    reader.file = fixture_open(fx, "d/f", O_RDONLY);
    (void)fixture_stat(fx, "d/f");
    fx->ctx.limits.deadline_ms = clock_deadline(20000);
    before = remote_fixture_calls(fx);
    remote_fixture_fault(fx, "get", "stuck");
    remote_fixture_fault(fx, "read", "stuck");
    assert_int_equal(pthread_create(&reader.thread, NULL, read_all, &reader),
                     0);
    while (remote_fixture_calls(fx) == before) {
        (void)nanosleep(&moment, NULL);
    }
    assert_int_equal(fixture_rename(fx, "d", "e", 0), 0);
    remote_fixture_fault(fx, "get", NULL);
    remote_fixture_fault(fx, "read", NULL);
    assert_int_equal(pthread_join(reader.thread, NULL), 0);
    assert_int_equal(reader.rc, 4);
    ws_close(reader.file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(many_who_append_share_a_call),
        ONE(a_failure_is_told_to_those_whose_lines_it_was_about),
        ONE(what_is_being_sent_is_not_renamed_meanwhile),
        ONE(a_directory_waits_for_what_is_being_sent_below_it),
        ONE(what_is_sent_waits_for_the_directory_that_it_lies_in),
        ONE(what_is_read_is_found_where_its_directory_went),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
