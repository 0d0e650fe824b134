/* Sessions over an engine of variables: life, drift, faults, files. */
#include "tests/unit/core_fixture.h"

#include "core/buf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void a_session_goes_through_its_life(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = fixture_create(fixture, "a");

    assert_int_equal(session_status(session), SESSION_ABSENT);
    assert_int_equal(engine_calls(ENGINE_CREATE), 0);
    assert_int_equal(fixture_ensure(session, false), 0);
    assert_int_equal(session_status(session), SESSION_RUNNING);
    assert_int_equal(fixture_ensure(session, false), 0);
    assert_int_equal(engine_calls(ENGINE_CREATE), 1);
    assert_int_equal(fixture_pause(session), 0);
    assert_int_equal(session_status(session), SESSION_PAUSED);
    assert_int_equal(fixture_pause(session), 0);
    assert_int_equal(engine_calls(ENGINE_PAUSE), 1);
    assert_int_equal(fixture_ensure(session, false), 0);
    assert_int_equal(engine_calls(ENGINE_RESUME), 1);
    assert_int_equal(session_status(session), SESSION_RUNNING);
    assert_int_equal(fixture_destroy(session), 0);
    assert_int_equal(session_status(session), SESSION_ABSENT);
    assert_int_equal(fixture_destroy(session), 0);
    assert_int_equal(engine_calls(ENGINE_DESTROY), 1);
    session_unref(session);
}

static void an_absent_session_is_not_paused_nor_made(void **state)
{
    struct session *session = fixture_create(*state, "a");

    assert_int_equal(fixture_pause(session), 0);
    assert_int_equal(fixture_destroy(session), 0);
    assert_int_equal(session_status(session), SESSION_ABSENT);
    assert_int_equal(engine_calls(ENGINE_PAUSE), 0);
    assert_int_equal(engine_calls(ENGINE_DESTROY), 0);
    session_unref(session);
}

static void two_ensures_at_once_cause_one_create(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct result results[8];

    engine_hold(ENGINE_CREATE, true);
    for (int i = 0; i < 8; i++) {
        result_init(&results[i]);
        session_ensure(session, false, &me, result_fill, &results[i]);
    }
    fixture_until(session_status(session) == SESSION_STARTING);
    engine_hold(ENGINE_CREATE, false);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(result_wait(&results[i]), 0);
    }
    assert_int_equal(engine_calls(ENGINE_CREATE), 1);
    session_unref(session);
}

static void what_the_engine_says_wins_over_the_record(void **state)
{
    struct session *session = fixture_create(*state, "a");
    char *events;

    assert_int_equal(fixture_ensure(session, false), 0);
    engine_set_state(PROVIDER_PAUSED);
    assert_int_equal(fixture_ensure(session, false), 0);
    assert_int_equal(engine_calls(ENGINE_RESUME), 1);
    engine_set_state(PROVIDER_LOST);
    assert_int_equal(fixture_ensure(session, false), -ESTALE);
    assert_int_equal(session_status(session), SESSION_LOST);
    assert_int_equal(engine_calls(ENGINE_CREATE), 1);
    assert_int_equal(fixture_ensure(session, true), 0);
    assert_int_equal(engine_calls(ENGINE_CREATE), 2);
    assert_int_equal(session_status(session), SESSION_RUNNING);
    events = fixture_events(session);
    assert_non_null(strstr(events, "\"event\":\"sandbox.lost\""));
    assert_non_null(strstr(events, "\"generation\":2"));
    free(events);
    session_unref(session);
}

static void a_sandbox_that_somebody_else_resumed_can_be_paused(void **state)
{
    struct session *session = fixture_create(*state, "a");

    assert_int_equal(fixture_ensure(session, false), 0);
    assert_int_equal(fixture_pause(session), 0);
    engine_set_state(PROVIDER_RUNNING);
    (void)usleep(1100 * 1000);
    fixture_until(session_status(session) == SESSION_RUNNING);
    assert_int_equal(fixture_pause(session), 0);
    assert_int_equal(engine_calls(ENGINE_PAUSE), 2);
    assert_int_equal(session_status(session), SESSION_PAUSED);
    session_unref(session);
}

static void a_status_that_is_read_asks_in_the_background(void **state)
{
    struct session *session = fixture_create(*state, "a");

    assert_int_equal(fixture_ensure(session, false), 0);
    engine_hold(ENGINE_STATUS, true);
    engine_set_state(PROVIDER_LOST);
    (void)usleep(1100 * 1000);
    assert_int_equal(session_status(session), SESSION_RUNNING);
    fixture_until(engine_calls(ENGINE_STATUS) == 1);
    assert_int_equal(session_status(session), SESSION_RUNNING);
    assert_int_equal(engine_calls(ENGINE_STATUS), 1);
    engine_hold(ENGINE_STATUS, false);
    fixture_until(session_status(session) == SESSION_LOST);
    session_unref(session);
}

static void a_replacement_at_resume_is_another_generation(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct buf text = BUF_INIT(64 * 1024);
    struct err err = ERR_INIT;

    assert_int_equal(fixture_ensure(session, false), 0);
    assert_int_equal(fixture_pause(session), 0);
    engine_replace_at(ENGINE_RESUME);
    assert_int_equal(fixture_ensure(session, false), 0);
    assert_int_equal(session_status_json(session, &text, &err), 0);
    assert_non_null(strstr(buf_str(&text), "\"generation\":2"));
    assert_non_null(strstr(buf_str(&text), "\"observed\":\"running\""));
    assert_null(strstr(buf_str(&text), "provider_state"));
    buf_done(&text);
    session_unref(session);
}

/* ---- Faults ---- */

struct fault {
    enum engine_slot slot;
    int code;
    bool paused; /* The sandbox is, before. */
    int (*act)(struct session *session);
    enum session_status after;
};

static int act_ensure(struct session *session)
{
    return fixture_ensure(session, false);
}

static void a_failing_call_is_told_and_leaves_a_clear_state(void **state)
{
    static const struct fault faults[] = {
        {ENGINE_RESUME, EDQUOT, true, act_ensure, SESSION_PAUSED},
        {ENGINE_RESUME, ESTALE, true, act_ensure, SESSION_LOST},
        {ENGINE_PAUSE, EIO, false, fixture_pause, SESSION_RUNNING},
        {ENGINE_STATUS, ENOTCONN, false, act_ensure, SESSION_UNREACHABLE},
        {ENGINE_STATUS, EACCES, false, act_ensure, SESSION_ERROR},
        {ENGINE_DESTROY, EIO, false, fixture_destroy, SESSION_DELETING},
    };

    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        const struct fault *fault = &faults[i];
        char id[8] = {'f', (char)('0' + i), '\0'};
        struct session *session = fixture_create(*state, id);

        engine_reset();
        assert_int_equal(fixture_ensure(session, false), 0);
        if (fault->paused) {
            assert_int_equal(fixture_pause(session), 0);
        }
        engine_fail(fault->slot, fault->code);
        assert_int_equal(fault->act(session), -fault->code);
        assert_int_equal(session_status(session), fault->after);
        engine_fail(fault->slot, 0);
        assert_int_equal(fixture_destroy(session), 0);
        assert_int_equal(session_status(session), SESSION_ABSENT);
        session_unref(session);
    }
}

static void a_failed_create_leaves_nothing(void **state)
{
    struct session *session = fixture_create(*state, "a");
    char *events;

    engine_fail(ENGINE_CREATE, ENOSPC);
    assert_int_equal(fixture_ensure(session, false), -ENOSPC);
    assert_int_equal(session_status(session), SESSION_ABSENT);
    assert_int_equal(engine_calls(ENGINE_DESTROY), 1);
    events = fixture_events(session);
    assert_non_null(strstr(events, "\"errno\":\"ENOSPC\""));
    free(events);
    engine_fail(ENGINE_CREATE, 0);
    assert_int_equal(fixture_ensure(session, false), 0);
    session_unref(session);
}

static void an_instance_that_is_too_large_is_not_kept(void **state)
{
    struct session *session = fixture_create(*state, "a");

    engine_set_metadata(PROVIDER_STATE_MAX + 1);
    assert_int_equal(fixture_ensure(session, false), -EPROTO);
    assert_int_equal(session_status(session), SESSION_ABSENT);
    assert_int_equal(engine_calls(ENGINE_DESTROY), 1);
    engine_set_metadata(PROVIDER_STATE_MAX);
    assert_int_equal(fixture_ensure(session, false), 0);
    session_unref(session);
}

static void an_unconfirmed_deletion_is_tried_again_and_named(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = fixture_create(fixture, "a");
    struct buf text = BUF_INIT(64 * 1024);
    struct err err = ERR_INIT;

    assert_int_equal(fixture_ensure(session, false), 0);
    engine_fail(ENGINE_DESTROY, ENOTCONN);
    assert_int_equal(fixture_destroy(session), -ENOTCONN);
    assert_int_equal(registry_errors(fixture->registry, &text, &err), 0);
    assert_non_null(strstr(buf_str(&text), "delete \"a\" 0 ENOTCONN"));
    buf_done(&text);
    assert_int_equal(registry_stats(fixture->registry, &text, &err), 0);
    assert_non_null(strstr(buf_str(&text), "sessionfs_deletions_pending 1\n"));
    buf_done(&text);
    assert_int_equal(registry_remove(fixture->registry, "a", &err), -ENOTEMPTY);
    /* Nothing new is made beside what may still be there. */
    assert_int_equal(fixture_ensure(session, true), -ENOTCONN);
    assert_int_equal(engine_calls(ENGINE_CREATE), 1);
    engine_fail(ENGINE_DESTROY, 0);
    fixture_until(session_status(session) == SESSION_ABSENT);
    assert_int_equal(engine_calls(ENGINE_DESTROY), 3);
    err_clear(&err);
    assert_int_equal(registry_remove(fixture->registry, "a", &err), 0);
    session_unref(session);
}

/* ---- Files ---- */

struct visit {
    struct result result;
    struct workspace *tree;
};

static void inside(void *arg, int rc, struct workspace *ws,
                   const struct err *err)
{
    struct visit *visit = arg;

    visit->tree = ws;
    result_fill(&visit->result, rc, err);
}

static void enter(struct session *session, enum session_need need,
                  struct visit *visit)
{
    result_init(&visit->result);
    visit->tree = NULL;
    session_files_enter(session, need, &me, inside, visit);
}

static void looking_and_reading_start_nothing(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct visit visit;

    for (int need = SESSION_LOOK; need <= SESSION_READ; need++) {
        enter(session, (enum session_need)need, &visit);
        assert_true(result_done(&visit.result));
        assert_int_equal(visit.result.rc, 0);
        assert_null(visit.tree);
        session_files_leave(session);
    }
    assert_int_equal(engine_calls(ENGINE_CREATE), 0);
    session_unref(session);
}

static void writing_makes_the_sandbox(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct visit visit;

    enter(session, SESSION_WRITE, &visit);
    assert_int_equal(result_wait(&visit.result), 0);
    assert_non_null(visit.tree);
    assert_int_equal(session_status(session), SESSION_RUNNING);
    ws_unref(visit.tree);
    session_files_leave(session);
    session_unref(session);
}

static void a_full_sandbox_takes_no_data_but_can_be_cleared(void **state)
{
    static const int codes[] = {EDQUOT, ENOSPC};
    struct session *session = fixture_create(*state, "a");
    struct visit visit;

    enter(session, SESSION_GROW, &visit);
    assert_int_equal(result_wait(&visit.result), 0);
    ws_unref(visit.tree);
    session_files_leave(session);
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        engine_fail(ENGINE_ROOM, codes[i]);
        enter(session, SESSION_GROW, &visit);
        assert_int_equal(result_wait(&visit.result), -codes[i]);
        assert_null(visit.tree);
        enter(session, SESSION_WRITE, &visit);
        assert_int_equal(result_wait(&visit.result), 0);
        ws_unref(visit.tree);
        session_files_leave(session);
    }
    session_unref(session);
}

static void a_pause_waits_for_those_inside_and_keeps_others_out(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct visit first;
    struct visit second;
    struct result paused;

    assert_int_equal(fixture_ensure(session, false), 0);
    enter(session, SESSION_WRITE, &first);
    assert_true(result_done(&first.result));
    result_init(&paused);
    engine_hold(ENGINE_PAUSE, true);
    session_pause(session, &me, result_fill, &paused);
    (void)usleep(50 * 1000);
    assert_int_equal(engine_calls(ENGINE_PAUSE), 0);
    enter(session, SESSION_LOOK, &second);
    assert_false(result_done(&second.result));
    ws_unref(first.tree);
    session_files_leave(session);
    fixture_until(engine_calls(ENGINE_PAUSE) == 1);
    assert_false(result_done(&second.result));
    engine_hold(ENGINE_PAUSE, false);
    assert_int_equal(result_wait(&paused), 0);
    assert_int_equal(result_wait(&second.result), 0);
    ws_unref(second.tree);
    session_files_leave(session);
    session_unref(session);
}

static void data_of_a_paused_one_wakes_only_where_it_must(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = fixture_create(fixture, "a");
    struct visit visit;

    assert_int_equal(fixture_ensure(session, false), 0);
    assert_int_equal(fixture_pause(session), 0);
    enter(session, SESSION_READ, &visit);
    assert_int_equal(result_wait(&visit.result), 0);
    ws_unref(visit.tree);
    session_files_leave(session);
    assert_int_equal(engine_calls(ENGINE_RESUME), 0);
    session_unref(session);

    fixture_close(fixture);
    fixture_open(fixture, "remote");
    session = fixture_create(fixture, "b");
    assert_int_equal(fixture_ensure(session, false), 0);
    assert_int_equal(fixture_pause(session), 0);
    enter(session, SESSION_LOOK, &visit);
    assert_int_equal(result_wait(&visit.result), 0);
    ws_unref(visit.tree);
    session_files_leave(session);
    assert_int_equal(engine_calls(ENGINE_RESUME), 0);
    enter(session, SESSION_READ, &visit);
    assert_int_equal(result_wait(&visit.result), 0);
    ws_unref(visit.tree);
    session_files_leave(session);
    assert_int_equal(engine_calls(ENGINE_RESUME), 1);
    session_unref(session);
}

static void a_tree_that_cannot_be_had_locks_nobody_out(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct visit visit;

    assert_int_equal(fixture_ensure(session, false), 0);
    engine_fail(ENGINE_ROOT, EMFILE);
    enter(session, SESSION_READ, &visit);
    assert_int_equal(result_wait(&visit.result), -EMFILE);
    engine_fail(ENGINE_ROOT, 0);
    assert_int_equal(fixture_pause(session), 0);
    enter(session, SESSION_READ, &visit);
    assert_int_equal(result_wait(&visit.result), 0);
    ws_unref(visit.tree);
    session_files_leave(session);
    session_unref(session);
}

static void an_instance_keeps_its_tree_and_a_new_one_has_another(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct visit first;
    struct visit second;
    struct visit third;

    enter(session, SESSION_WRITE, &first);
    assert_int_equal(result_wait(&first.result), 0);
    session_files_leave(session);
    assert_int_equal(fixture_pause(session), 0);
    assert_int_equal(fixture_ensure(session, false), 0);
    enter(session, SESSION_WRITE, &second);
    assert_int_equal(result_wait(&second.result), 0);
    session_files_leave(session);
    assert_ptr_equal(first.tree, second.tree);
    assert_int_equal(fixture_destroy(session), 0);
    enter(session, SESSION_WRITE, &third);
    assert_int_equal(result_wait(&third.result), 0);
    session_files_leave(session);
    assert_ptr_not_equal(first.tree, third.tree);
    ws_unref(first.tree);
    ws_unref(second.tree);
    ws_unref(third.tree);
    session_unref(session);
}

static void data_of_a_lost_one_is_stale(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct visit visit;

    assert_int_equal(fixture_ensure(session, false), 0);
    engine_set_state(PROVIDER_LOST);
    assert_int_equal(fixture_ensure(session, false), -ESTALE);
    enter(session, SESSION_READ, &visit);
    assert_int_equal(result_wait(&visit.result), -ESTALE);
    enter(session, SESSION_WRITE, &visit);
    assert_int_equal(result_wait(&visit.result), -ESTALE);
    session_unref(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_session_goes_through_its_life),
        FIXTURE_TEST(an_absent_session_is_not_paused_nor_made),
        FIXTURE_TEST(two_ensures_at_once_cause_one_create),
        FIXTURE_TEST(what_the_engine_says_wins_over_the_record),
        FIXTURE_TEST(a_sandbox_that_somebody_else_resumed_can_be_paused),
        FIXTURE_TEST(a_status_that_is_read_asks_in_the_background),
        FIXTURE_TEST(a_replacement_at_resume_is_another_generation),
        FIXTURE_TEST(a_failing_call_is_told_and_leaves_a_clear_state),
        FIXTURE_TEST(a_failed_create_leaves_nothing),
        FIXTURE_TEST(an_instance_that_is_too_large_is_not_kept),
        FIXTURE_TEST(an_unconfirmed_deletion_is_tried_again_and_named),
        FIXTURE_TEST(looking_and_reading_start_nothing),
        FIXTURE_TEST(writing_makes_the_sandbox),
        FIXTURE_TEST(a_full_sandbox_takes_no_data_but_can_be_cleared),
        FIXTURE_TEST(a_pause_waits_for_those_inside_and_keeps_others_out),
        FIXTURE_TEST(data_of_a_paused_one_wakes_only_where_it_must),
        FIXTURE_TEST(a_tree_that_cannot_be_had_locks_nobody_out),
        FIXTURE_TEST(an_instance_keeps_its_tree_and_a_new_one_has_another),
        FIXTURE_TEST(data_of_a_lost_one_is_stale),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
