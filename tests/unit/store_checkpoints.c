/* The store's records of checkpoints and of sessions that are being forked. */
#include "tests/cmocka.h"

#include "core/buf.h"
#include "core/store_checkpoints.h"
#include "tests/scratch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct caller caller = {.uid = 7, .pid = 9};

struct place {
    char dir[64];
    struct store *store;
    uint64_t number; /* Of a session. */
    struct err err;
};

static void reopen(struct place *place)
{
    store_close(place->store);
    place->store = NULL;
    if (store_open(place->dir, 0, &place->store, &place->err) < 0) {
        fail_msg("%s", place->err.msg);
    }
}

static int setup(void **state)
{
    struct place *place = calloc(1, sizeof(*place));

    assert_non_null(place);
    scratch_make(place->dir, sizeof(place->dir));
    reopen(place);
    assert_int_equal(store_session_add(place->store, "a", "{}", &caller,
                                       &place->number, &place->err),
                     0);
    *state = place;
    return 0;
}

static int teardown(void **state)
{
    struct place *place = *state;

    store_close(place->store);
    scratch_remove(place->dir);
    free(place);
    return 0;
}

static int add(struct place *place, uint64_t key, const char *name)
{
    struct checkpoint c = {.key = key,
                           .before = key - 1,
                           .time_us = 1000 * (int64_t)key,
                           .changed = key,
                           .bytes = 10,
                           .cause = CHECKPOINT_WRITE};

    (void)snprintf(c.name, sizeof(c.name), "%s", name);
    return store_checkpoint_add(place->store, place->number, &c, NULL,
                                &place->err);
}

static uint64_t find(struct place *place, const char *name)
{
    struct checkpoint c;
    int rc = store_checkpoint_find(place->store, place->number, name, &c,
                                   &place->err);

    assert_true(rc == 0 || rc == -ENOENT);
    return rc == 0 ? c.key : 0;
}

static uint64_t next(struct place *place)
{
    uint64_t key = 0;

    assert_int_equal(
        store_checkpoint_next(place->store, place->number, &key, &place->err),
        0);
    return key;
}

static void put_state(struct place *place, uint64_t head)
{
    char provider[] = "p";
    struct store_state state = {
        .status = SESSION_PAUSED, .provider = provider, .head = head};

    assert_int_equal(store_state_save(place->store, place->number, 0, &state,
                                      NULL, &place->err),
                     0);
}

static uint64_t head(struct place *place)
{
    struct store_state state;
    uint64_t key;

    assert_int_equal(
        store_state_load(place->store, place->number, &state, &place->err), 0);
    key = state.head;
    store_state_done(&state);
    return key;
}

static void one_is_found_by_its_number_or_its_name(void **state)
{
    struct place *place = *state;

    assert_int_equal(add(place, 1, ""), 0);
    assert_int_equal(add(place, 2, "it"), 0);
    reopen(place);
    assert_int_equal(find(place, "1"), 1);
    assert_int_equal(find(place, "it"), 2);
    assert_int_equal(find(place, "2"), 0); /* It goes by its name alone. */
    assert_int_equal(find(place, "01"), 0);
    assert_int_equal(find(place, "-1"), 0);
    assert_int_equal(find(place, "18446744073709551617"), 0);
    assert_int_equal(add(place, 3, "it"), -EEXIST);
    assert_int_equal(next(place), 3);
}

static void what_is_recorded_is_read_back(void **state)
{
    struct place *place = *state;
    struct checkpoint c;

    put_state(place, 0);
    assert_int_equal(add(place, 5, ""), 0);
    assert_int_equal(
        store_checkpoint_get(place->store, place->number, 5, &c, &place->err),
        0);
    assert_int_equal(c.before, 4);
    assert_int_equal(c.time_us, 5000);
    assert_int_equal(c.changed, 5);
    assert_int_equal(c.bytes, 10);
    assert_int_equal(c.cause, CHECKPOINT_WRITE);
    assert_string_equal(c.name, "");
    assert_int_equal(head(place), 5);
    assert_int_equal(next(place), 6);
}

/* A command's end and its checkpoint are recorded together, or neither is. */
static void a_command_ends_with_its_checkpoint_or_not_at_all(void **state)
{
    static const struct store_exec exec = {.script = "x", .size = 1};
    const struct store_event event = {.name = "exec.ended"};
    struct place *place = *state;
    struct exec_info info;
    struct checkpoint c = {.key = 1, .exec = 1};

    assert_int_equal(store_exec_add(place->store, place->number, &exec, &caller,
                                    &info, &place->err),
                     0);
    assert_int_equal(add(place, 1, ""), 0);
    info.status = EXEC_EXITED;
    info.checkpoint = 1;
    assert_true(store_checkpoint_exec(place->store, place->number, &info, &c,
                                      &event, &place->err) < 0);
    err_clear(&place->err);
    assert_int_equal(
        store_exec_load(place->store, place->number, 1, &info, &place->err), 0);
    assert_int_equal(info.status, EXEC_QUEUED);
    assert_int_equal(info.checkpoint, 0);
    c.key = 2;
    info.status = EXEC_EXITED;
    info.checkpoint = 2;
    info.before = 1;
    info.changed = 3;
    assert_int_equal(store_checkpoint_exec(place->store, place->number, &info,
                                           &c, &event, &place->err),
                     0);
    assert_int_equal(
        store_exec_load(place->store, place->number, 1, &info, &place->err), 0);
    assert_int_equal(info.checkpoint, 2);
    assert_int_equal(info.before, 1);
    assert_int_equal(info.changed, 3);
    assert_int_equal(find(place, "2"), 2);
}

static void one_that_is_hidden_is_found_by_nobody_but_core(void **state)
{
    struct place *place = *state;
    struct store_checkpoint_sum sum;
    struct checkpoint c;

    assert_int_equal(add(place, 1, ""), 0);
    assert_int_equal(add(place, 2, "it"), 0);
    assert_int_equal(store_checkpoint_hide(place->store, place->number, 2, NULL,
                                           &place->err),
                     0);
    assert_int_equal(find(place, "it"), 0);
    assert_int_equal(find(place, "2"), 0);
    assert_int_equal(
        store_checkpoint_from(place->store, place->number, 2, &c, &place->err),
        0);
    assert_int_equal(
        store_checkpoint_any(place->store, place->number, 2, &c, &place->err),
        1);
    assert_true(c.gone);
    assert_int_equal(store_checkpoint_after(place->store, place->number, 1, 1,
                                            &c, &place->err),
                     1);
    assert_int_equal(c.key, 2);
    assert_int_equal(
        store_checkpoint_sum(place->store, place->number, 1, &sum, &place->err),
        0);
    assert_int_equal(sum.count, 1);
    assert_int_equal(sum.bytes, 10);
    assert_int_equal(sum.first, 0); /* 1 is not to be told. */
    assert_int_equal(sum.gone, 2);
    assert_int_equal(add(place, 3, "it"), 0); /* The name is free. */
}

static void texts_of_changes_stay_while_something_shows_them(void **state)
{
    struct place *place = *state;
    struct buf text = BUF_INIT(1024);
    struct checkpoint c = {.key = 2};
    uint64_t size = 0;

    assert_int_equal(add(place, 2, ""), 0);
    assert_false(store_changes_size(place->store, place->number, 1, 2, &size));
    assert_int_equal(store_changes_put(place->store, place->number, 1, 2,
                                       "A\tf\n", 4, &place->err),
                     0);
    assert_true(store_changes_size(place->store, place->number, 1, 2, &size));
    assert_int_equal(size, 4);
    assert_int_equal(store_changes_get(place->store, place->number, 1, 2, &text,
                                       &place->err),
                     0);
    assert_string_equal(buf_str(&text), "A\tf\n");
    assert_int_equal(store_checkpoint_drop(place->store, place->number, &c,
                                           NULL, &place->err),
                     0);
    assert_int_equal(store_changes_get(place->store, place->number, 1, 2, &text,
                                       &place->err),
                     -ENOENT);
    buf_done(&text);
}

static void all_go_with_the_sandbox_but_not_their_numbers(void **state)
{
    struct place *place = *state;

    put_state(place, 0);
    assert_int_equal(add(place, 1, ""), 0);
    assert_int_equal(add(place, 2, "it"), 0);
    assert_int_equal(
        store_state_remove(place->store, place->number, 0, NULL, &place->err),
        0);
    assert_int_equal(find(place, "1"), 0);
    assert_int_equal(find(place, "it"), 0);
    assert_int_equal(next(place), 3);
}

static void a_fork_is_seen_by_nobody_until_it_is_whole(void **state)
{
    const struct store_event event = {.name = "session.created"};
    struct place *place = *state;
    struct store_session row;
    uint64_t number = 0;
    uint64_t found = 0;

    assert_int_equal(
        store_fork_begin(place->store, "a", "{}", &number, &place->err),
        -EEXIST);
    err_clear(&place->err);
    assert_int_equal(
        store_fork_begin(place->store, "b", "{}", &number, &place->err), 0);
    assert_int_equal(store_session_find(place->store, "b", &row, &place->err),
                     -ENOENT);
    err_clear(&place->err);
    assert_int_equal(store_session_count(place->store), 1);
    assert_int_equal(store_session_add(place->store, "b", "{}", &caller, &found,
                                       &place->err),
                     -EEXIST);
    err_clear(&place->err);
    assert_int_equal(store_fork_next(place->store, 0, &found, &place->err), 1);
    assert_int_equal(found, number);
    assert_int_equal(store_fork_end(place->store, number, &event, &place->err),
                     0);
    assert_int_equal(store_session_find(place->store, "b", &row, &place->err),
                     0);
    store_session_done(&row);
    assert_int_equal(store_fork_next(place->store, 0, &found, &place->err), 0);
}

static void one_that_is_abandoned_gives_its_id_back(void **state)
{
    struct place *place = *state;
    uint64_t number = 0;

    assert_int_equal(
        store_fork_begin(place->store, "b", "{}", &number, &place->err), 0);
    assert_int_equal(store_fork_abandon(place->store, number, &place->err), 0);
    assert_int_equal(store_session_add(place->store, "b", "{}", &caller,
                                       &number, &place->err),
                     0);
}

static void a_store_that_was_not_closed_is_told(void **state)
{
    struct place *place = *state;
    char path[128];
    FILE *lock;

    reopen(place);
    assert_false(store_cut_off(place->store));
    store_close(place->store);
    place->store = NULL;
    (void)snprintf(path, sizeof(path), "%s/lock", place->dir);
    lock = fopen(path, "w");
    assert_non_null(lock);
    assert_true(fputs("1 unmounting\n", lock) > 0);
    assert_int_equal(fclose(lock), 0);
    reopen(place);
    assert_true(store_cut_off(place->store));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_is_found_by_its_number_or_its_name),
        TEST(what_is_recorded_is_read_back),
        TEST(a_command_ends_with_its_checkpoint_or_not_at_all),
        TEST(one_that_is_hidden_is_found_by_nobody_but_core),
        TEST(texts_of_changes_stay_while_something_shows_them),
        TEST(all_go_with_the_sandbox_but_not_their_numbers),
        TEST(a_fork_is_seen_by_nobody_until_it_is_whole),
        TEST(one_that_is_abandoned_gives_its_id_back),
        TEST(a_store_that_was_not_closed_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
