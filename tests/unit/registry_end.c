/* What becomes of sandboxes at the end of a registry, and what the next start
 * makes of them. */
#include "tests/unit/core_fixture.h"

#include "core/buf.h"
#include "core/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Opens the fixture's registry so that it ends in that way. */
static void reopen(struct fixture *fixture, enum registry_end end,
                   const char *provider)
{
    if (fixture->registry) {
        fixture_close(fixture);
    }
    fixture->on_unmount = end;
    fixture_open(fixture, provider);
}

/* Two sandboxes: `a` runs, `b` is paused. */
static void make_two(struct fixture *fixture)
{
    struct session *a = fixture_create(fixture, "a");
    struct session *b = fixture_create(fixture, "b");

    assert_int_equal(fixture_ensure(b, false), 0);
    assert_int_equal(fixture_pause(b), 0);
    assert_int_equal(fixture_ensure(a, false), 0);
    session_unref(a);
    session_unref(b);
}

static enum session_status status_of(struct fixture *fixture, const char *id)
{
    struct session *session = fixture_find(fixture, id);
    enum session_status status = session_status(session);

    session_unref(session);
    return status;
}

static bool is_recorded(struct fixture *fixture, const char *id,
                        const char *status)
{
    struct session *session = fixture_find(fixture, id);
    char text[64];
    bool is;

    (void)snprintf(text, sizeof(text), "\"session_status\":\"%s\"", status);
    is = fixture_json_has(session, text);
    session_unref(session);
    return is;
}

static unsigned events_with(struct fixture *fixture, const char *id,
                            const char *text)
{
    struct session *session = fixture_find(fixture, id);
    unsigned n = fixture_events_with(session, text);

    session_unref(session);
    return n;
}

static void *release(void *arg)
{
    (void)usleep(300 * 1000);
    engine_hold((enum engine_slot)(uintptr_t)arg, false);
    return NULL;
}

/* Lets the held calls go on when the registry's end has begun. */
static void release_later(enum engine_slot slot)
{
    pthread_t thread;

    assert_int_equal(
        pthread_create(&thread, NULL, release, (void *)(uintptr_t)slot), 0);
    assert_int_equal(pthread_detach(thread), 0);
}

static void pausing_pauses_what_runs(void **state)
{
    struct fixture *fixture = *state;

    make_two(fixture);
    reopen(fixture, REGISTRY_PAUSE, "local");
    assert_int_equal(engine_calls(ENGINE_PAUSE), 2);
    assert_int_equal(status_of(fixture, "a"), SESSION_PAUSED);
    assert_int_equal(events_with(fixture, "a", "\"cause\":\"unmount\""), 1);
    assert_int_equal(events_with(fixture, "b", "\"cause\":\"unmount\""), 0);
    assert_int_equal(atomic_load(&fixture->left), 0);
}

/* It was asked for before, and comes when others have been told to pause. */
static void pausing_pauses_what_is_made_during_the_end(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = fixture_create(fixture, "a");
    struct result destroyed;
    struct result ensured;

    assert_int_equal(fixture_ensure(session, false), 0);
    result_init(&destroyed);
    result_init(&ensured);
    engine_hold(ENGINE_DESTROY, true);
    session_destroy(session, &me, result_fill, &destroyed);
    session_ensure(session, false, &me, result_fill, &ensured);
    fixture_until(status_of(fixture, "a") == SESSION_DELETING);
    release_later(ENGINE_DESTROY);
    session_unref(session);
    reopen(fixture, REGISTRY_PAUSE, "local");
    assert_int_equal(result_wait(&destroyed), 0);
    assert_int_equal(result_wait(&ensured), 0);
    assert_int_equal(status_of(fixture, "a"), SESSION_PAUSED);
    assert_int_equal(atomic_load(&fixture->left), 0);
}

static void keeping_leaves_all_as_it_is(void **state)
{
    struct fixture *fixture = *state;

    reopen(fixture, REGISTRY_KEEP, "remote");
    make_two(fixture);
    engine_set_state(PROVIDER_RUNNING);
    reopen(fixture, REGISTRY_KEEP, "remote");
    assert_int_equal(engine_calls(ENGINE_PAUSE), 1);
    assert_int_equal(engine_calls(ENGINE_DESTROY), 0);
    assert_true(is_recorded(fixture, "a", "running"));
    /* The engine would say that it runs, too. */
    assert_true(is_recorded(fixture, "b", "paused"));
    assert_int_equal(events_with(fixture, "a", "processes_lost"), 0);
    assert_int_equal(atomic_load(&fixture->left), 0);
}

/* The engine's sandboxes end with it, as those of `local` do. */
static void kept_ones_whose_processes_ended_are_told_as_they_are(void **state)
{
    struct fixture *fixture = *state;
    struct session *session;

    reopen(fixture, REGISTRY_KEEP, "local");
    make_two(fixture);
    engine_set_state(PROVIDER_PAUSED);
    reopen(fixture, REGISTRY_KEEP, "local");
    session = fixture_find(fixture, "a");
    assert_int_equal(session_status(session), SESSION_PAUSED);
    assert_true(fixture_json_has(session, "\"session_status\":\"paused\""));
    assert_int_equal(fixture_events_with(session, "\"sandbox.processes_lost\""),
                     1);
    assert_int_equal(fixture_ensure(session, false), 0);
    /* It has been told. */
    assert_int_equal(fixture_events_with(session, "\"processes\":\"lost\""), 0);
    session_unref(session);
    /* Of what was paused it is told when it runs again. */
    session = fixture_find(fixture, "b");
    engine_set_state(PROVIDER_PAUSED);
    assert_int_equal(fixture_ensure(session, false), 0);
    assert_int_equal(fixture_events_with(session, "\"processes\":\"lost\""), 1);
    assert_int_equal(fixture_pause(session), 0);
    assert_int_equal(fixture_ensure(session, false), 0);
    assert_int_equal(fixture_events_with(session, "\"processes\":\"lost\""), 1);
    session_unref(session);
}

static void deleting_destroys_all_and_keeps_sessions(void **state)
{
    struct fixture *fixture = *state;

    reopen(fixture, REGISTRY_DELETE, "local");
    make_two(fixture);
    session_unref(fixture_create(fixture, "c"));
    reopen(fixture, REGISTRY_PAUSE, "local");
    assert_int_equal(engine_calls(ENGINE_DESTROY), 2);
    assert_int_equal(registry_count(fixture->registry), 3);
    assert_int_equal(status_of(fixture, "a"), SESSION_ABSENT);
    assert_int_equal(status_of(fixture, "b"), SESSION_ABSENT);
    assert_int_equal(atomic_load(&fixture->left), 0);
}

static void
what_is_not_confirmed_is_named_and_deleted_by_the_next_start(void **state)
{
    static const int codes[] = {ENOTCONN, 0}; /* 0: it does not answer. */

    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        struct fixture *fixture = *state;

        engine_reset();
        atomic_store(&fixture->left, 0);
        reopen(fixture, REGISTRY_DELETE, "remote");
        if (i == 0) {
            make_two(fixture);
        } else {
            struct session *session = fixture_find(fixture, "a");

            assert_int_equal(fixture_ensure(session, false), 0);
            session_unref(session);
        }
        engine_fail(ENGINE_DESTROY, codes[i]);
        engine_hold(ENGINE_DESTROY, codes[i] == 0);
        assert_true(registry_close(fixture->registry, 300));
        fixture->registry = NULL;
        assert_int_equal(atomic_load(&fixture->left), i == 0 ? 2 : 1);
        engine_hold(ENGINE_DESTROY, false);
        engine_fail(ENGINE_DESTROY, 0);
        /* It was asked for then, whatever is asked for at the next end. */
        reopen(fixture, REGISTRY_KEEP, "remote");
        fixture_until(status_of(fixture, "a") == SESSION_ABSENT);
        fixture_until(status_of(fixture, "b") == SESSION_ABSENT);
    }
}

static void what_could_not_be_paused_is_named(void **state)
{
    struct fixture *fixture = *state;

    make_two(fixture);
    engine_hold(ENGINE_PAUSE, true);
    assert_true(registry_close(fixture->registry, 300));
    fixture->registry = NULL;
    assert_int_equal(atomic_load(&fixture->left), 1);
    engine_hold(ENGINE_PAUSE, false);
    fixture_open(fixture, "local");
}

static void a_start_that_fails_deletes_nothing(void **state)
{
    struct fixture *fixture = *state;
    static const struct provider_ops *const table[] = {&engine_local,
                                                       &engine_remote, NULL};
    struct registry_config config = {
        .state_dir = fixture->dir,
        .provider = "nothing",
        .on_unmount = REGISTRY_DELETE,
        .loop = fixture->loop,
    };
    struct registry *registry = NULL;
    struct err err = ERR_INIT;

    make_two(fixture);
    fixture_close(fixture);
    assert_true(registry_open(&config, table, &registry, &err) < 0);
    assert_int_equal(engine_calls(ENGINE_DESTROY), 0);
    fixture_open(fixture, "local");
    assert_int_equal(status_of(fixture, "a"), SESSION_PAUSED);
}

/* A back-off that lasts is in the record's words and in the counters. */
static void a_deletion_survives_restarts_named_and_counted(void **state)
{
    struct fixture *fixture = *state;
    struct session *session;
    struct buf text = BUF_INIT(64 * 1024);
    struct err err = ERR_INIT;

    make_two(fixture);
    session = fixture_find(fixture, "a");
    engine_fail(ENGINE_DESTROY, ENOTCONN);
    assert_int_equal(fixture_destroy(session), -ENOTCONN);
    session_unref(session);
    for (int i = 0; i < 3; i++) {
        reopen(fixture, REGISTRY_PAUSE, "local");
        assert_int_equal(status_of(fixture, "a"), SESSION_DELETING);
        assert_int_equal(registry_errors(fixture->registry, &text, &err), 0);
        assert_non_null(strstr(buf_str(&text), "delete \"a\" 0 ENOTCONN"));
        buf_done(&text);
        assert_int_equal(registry_stats(fixture->registry, &text, &err), 0);
        assert_non_null(
            strstr(buf_str(&text), "sessionfs_deletions_pending 1\n"));
        buf_done(&text);
    }
    engine_fail(ENGINE_DESTROY, 0);
    fixture_until(status_of(fixture, "a") == SESSION_ABSENT);
    /* The deletion that told so may not have ended yet. */
    assert_int_equal(registry_remove(fixture->registry, "a", &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(pausing_pauses_what_runs),
        FIXTURE_TEST(pausing_pauses_what_is_made_during_the_end),
        FIXTURE_TEST(keeping_leaves_all_as_it_is),
        FIXTURE_TEST(kept_ones_whose_processes_ended_are_told_as_they_are),
        FIXTURE_TEST(deleting_destroys_all_and_keeps_sessions),
        FIXTURE_TEST(
            what_is_not_confirmed_is_named_and_deleted_by_the_next_start),
        FIXTURE_TEST(what_could_not_be_paused_is_named),
        FIXTURE_TEST(a_start_that_fails_deletes_nothing),
        FIXTURE_TEST(a_deletion_survives_restarts_named_and_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
