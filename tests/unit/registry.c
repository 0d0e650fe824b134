/* The registry: ids, making, finding, removing, renaming, telling. */
#include "tests/unit/core_fixture.h"

#include "core/buf.h"
#include "core/checkpoint_priv.h"
#include "core/session_priv.h"
#include "core/workspace.h"

#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void ids_are_checked(void **state)
{
    static const struct {
        const char *id;
        bool valid;
    } cases[] = {
        {"a", true},
        {"A9._-z", true},
        {"0123456789012345678901234567890123456789012345678901234567890123",
         true},
        {"01234567890123456789012345678901234567890123456789012345678901234",
         false},
        {"", false},
        {".", false},
        {"..", false},
        {".a", false},
        {"-a", false},
        {"_a", false},
        {"a/b", false},
        {"a b", false},
        {"a\n", false},
        {"\303\244", false},
        {"a'", false},
    };
    struct fixture *fixture = *state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct session *session = NULL;
        struct err err = ERR_INIT;
        int rc;

        assert_int_equal(session_id_valid(cases[i].id), cases[i].valid);
        rc = registry_create(fixture->registry, cases[i].id, &me, NULL, &err);
        assert_int_equal(rc, cases[i].valid ? 0 : -EINVAL);
        rc = registry_find(fixture->registry, cases[i].id, &session, &err);
        assert_int_equal(rc, cases[i].valid ? 0 : -ENOENT);
        session_unref(session);
    }
}

static void an_id_is_there_once(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = fixture_create(fixture, "a");
    struct err err = ERR_INIT;

    assert_int_equal(registry_create(fixture->registry, "a", &me, NULL, &err),
                     -EEXIST);
    assert_int_equal(registry_count(fixture->registry), 1);
    session_unref(session);
}

static void a_found_session_is_the_same_object(void **state)
{
    struct session *session = fixture_create(*state, "a");
    struct session *again = fixture_find(*state, "a");

    assert_ptr_equal(session, again);
    session_unref(session);
    session_unref(again);
}

static void a_removed_session_takes_its_output_along(void **state)
{
    const struct job deletion = {.kind = JOB_DESTROY, .internal = true};
    struct fixture *fixture = *state;
    struct session *session = fixture_create(fixture, "a");
    struct exec_info info;
    struct err err = ERR_INIT;
    struct exec *exec = NULL;
    struct result result;
    uint64_t number = session_number(session);
    char path[128];

    fixture_exec(session, "o:x", &info);
    assert_int_equal(registry_remove(fixture->registry, "a", &err), -ENOTEMPTY);
    assert_int_equal(fixture_destroy(session), 0);
    err_clear(&err);
    assert_int_equal(registry_remove(fixture->registry, "a", &err), 0);
    assert_true(session_gone(session));
    assert_int_equal(registry_find(fixture->registry, "a", &session, &err),
                     -ENOENT);
    assert_int_equal(exec_submit(session, "x", 1, &me, &exec, &err), -ENOENT);
    result_init(&result);
    session_ensure(session, false, &me, result_fill, &result);
    assert_int_equal(result_wait(&result), -ENOENT);
    /* Core asks for itself without waiting for an answer. */
    session_submit(session, &deletion);
    (void)snprintf(path, sizeof(path), "%s/sessions/%llu", fixture->dir,
                   (unsigned long long)number);
    assert_int_equal(access(path, F_OK), -1);
    (void)snprintf(path, sizeof(path), "%s/trash/%llu", fixture->dir,
                   (unsigned long long)number);
    fixture_until(access(path, F_OK) < 0);
    session_unref(session);
    session = fixture_create(fixture, "a");
    assert_true(session_number(session) > number);
    session_unref(session);
}

static void a_busy_session_is_not_removed(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = fixture_create(fixture, "a");
    struct result result;
    struct err err = ERR_INIT;

    result_init(&result);
    engine_hold(ENGINE_CREATE, true);
    session_ensure(session, false, &me, result_fill, &result);
    assert_true(registry_remove(fixture->registry, "a", &err) < 0);
    engine_hold(ENGINE_CREATE, false);
    assert_int_equal(result_wait(&result), 0);
    assert_false(session_gone(session));
    session_unref(session);
}

static void stay_inside(void *arg, int rc, struct workspace *ws,
                        const struct err *err)
{
    int *inside = arg;

    (void)err;
    assert_int_equal(rc, 0);
    (*inside)++;
    ws_unref(ws);
}

/* The kernel has its answer before the operation has left. */
static void a_file_operation_that_leaves_late_keeps_no_session(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = fixture_create(fixture, "a");
    struct err err = ERR_INIT;
    int inside = 0;

    assert_int_equal(fixture_ensure(session, false), 0);
    session_files_enter(session, SESSION_LOOK, &me, stay_inside, &inside);
    assert_int_equal(fixture_destroy(session), 0);
    session_files_enter(session, SESSION_LOOK, &me, stay_inside, &inside);
    assert_int_equal(inside, 2);
    assert_int_equal(registry_remove(fixture->registry, "a", &err), 0);
    session_files_leave(session);
    session_files_leave(session);
    session_unref(session);
}

/* It would run when the sandbox is gone, and the session were busy. */
static void nothing_is_kept_of_what_is_being_deleted(void **state)
{
    const struct job pause = {.kind = JOB_PAUSE, .idle = true};
    struct fixture *fixture = *state;
    struct session *session = fixture_create(fixture, "a");
    struct err err = ERR_INIT;
    struct result result;
    bool waits;

    assert_int_equal(fixture_ensure(session, false), 0);
    checkpoint_wrote(session);
    result_init(&result);
    engine_hold(ENGINE_DESTROY, true);
    session_destroy(session, &me, result_fill, &result);
    checkpoint_gather_last(session);
    session_submit(session, &pause);
    mutex_lock(&session->lock);
    waits = !list_empty(&session->queue);
    mutex_unlock(&session->lock);
    engine_hold(ENGINE_DESTROY, false);
    assert_int_equal(result_wait(&result), 0);
    assert_false(waits);
    assert_int_equal(registry_remove(fixture->registry, "a", &err), 0);
    session_unref(session);
}

static void a_rename_keeps_the_session(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = fixture_create(fixture, "a");
    struct session *other = fixture_create(fixture, "c");
    struct session *found;
    struct err err = ERR_INIT;
    char id[SESSION_ID_SIZE];
    unsigned news;
    char *events;

    assert_int_equal(registry_rename(fixture->registry, "a", "b/", &me, &err),
                     -EINVAL);
    assert_int_equal(registry_rename(fixture->registry, "a", "c", &me, &err),
                     -ENOTEMPTY);
    assert_int_equal(registry_rename(fixture->registry, "x", "y", &me, &err),
                     -ENOENT);
    err_clear(&err);
    news = atomic_load(&fixture->news);
    assert_int_equal(registry_rename(fixture->registry, "a", "b", &me, &err),
                     0);
    /* Who polls its events learns of it. */
    assert_true(atomic_load(&fixture->news) > news);
    session_id(session, id);
    assert_string_equal(id, "b");
    found = fixture_find(fixture, "b");
    assert_ptr_equal(found, session);
    events = fixture_events(session);
    assert_non_null(strstr(events, "{\"from\":\"a\",\"to\":\"b\"}"));
    free(events);
    session_unref(found);
    session_unref(other);
    session_unref(session);
}

struct walk {
    uint64_t last;
    unsigned count;
    unsigned most;
};

static bool step(void *arg, uint64_t number, const char *id)
{
    struct walk *walk = arg;

    assert_true(number > walk->last);
    assert_true(session_id_valid(id));
    walk->last = number;
    return ++walk->count < walk->most;
}

static void all_sessions_are_told_once_in_order(void **state)
{
    struct fixture *fixture = *state;
    struct walk all = {0, 0, 1000};
    struct walk some = {0, 0, 70};
    struct err err = ERR_INIT;

    for (int i = 0; i < 150; i++) {
        char id[16];

        (void)snprintf(id, sizeof(id), "s%d", i);
        assert_int_equal(
            registry_create(fixture->registry, id, &me, NULL, &err), 0);
    }
    assert_int_equal(registry_each(fixture->registry, 0, step, &all, &err), 0);
    assert_int_equal(all.count, 150);
    assert_int_equal(registry_each(fixture->registry, 0, step, &some, &err), 0);
    assert_int_equal(some.count, 70);
    some.most = 1000;
    assert_int_equal(
        registry_each(fixture->registry, some.last, step, &some, &err), 0);
    assert_int_equal(some.count, 150);
}

static unsigned count_threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    unsigned count = 0;

    assert_non_null(dir);
    while (readdir(dir)) {
        count++;
    }
    (void)closedir(dir);
    return count;
}

static void touch_all(struct fixture *fixture, int count)
{
    for (int i = 0; i < count; i++) {
        struct session *session;
        char id[16];

        (void)snprintf(id, sizeof(id), "s%d", i);
        session = fixture_find(fixture, id);
        (void)session_status(session);
        session_unref(session);
    }
}

static void a_session_at_rest_costs_no_memory_and_no_thread(void **state)
{
    enum {
        COUNT = 500,
        PASSES = 8,
        EACH = 50 /* Bytes: far below what one session takes. */
    };
    struct fixture *fixture = *state;
    struct err err = ERR_INIT;
    unsigned threads = count_threads();
    size_t first;

    for (int i = 0; i < COUNT; i++) {
        char id[16];

        (void)snprintf(id, sizeof(id), "s%d", i);
        assert_int_equal(
            registry_create(fixture->registry, id, &me, NULL, &err), 0);
    }
    touch_all(fixture, COUNT);
    (void)usleep(50 * 1000);
    first = mallinfo2().uordblks;
    for (int i = 0; i < PASSES; i++) {
        touch_all(fixture, COUNT);
    }
    fixture_until(mallinfo2().uordblks < first + (size_t)COUNT * PASSES * EACH);
    fixture_until(count_threads() <= threads);
}

static void failures_are_lines_that_names_cannot_forge(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = fixture_create(fixture, "a");
    struct buf text = BUF_INIT(64 * 1024);
    struct err err = ERR_INIT;
    struct err why = ERR_INIT;

    (void)err_set(&why, ENOSPC, "first\nsecond");
    registry_fail(fixture->registry, "mkdir", "a\n\"\377", &me, &why);
    assert_int_equal(registry_errors(fixture->registry, &text, &err), 0);
    assert_non_null(strstr(buf_str(&text),
                           "Z mkdir \"a\\n\\\"\\377\" 4242 ENOSPC "
                           "first?second\n"));
    buf_done(&text);
    session_fail(session, "exec", 3, NULL, &me, &why);
    session_fail(session, "pause", 0, NULL, &me, &why);
    assert_int_equal(session_errors(session, &text, &err), 0);
    assert_non_null(strstr(buf_str(&text), "Z exec 3 4242 ENOSPC "));
    assert_non_null(strstr(buf_str(&text), "Z pause - 4242 ENOSPC "));
    buf_done(&text);
    session_unref(session);
}

static void everything_is_there_after_a_restart(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = fixture_create(fixture, "a");
    uint64_t number = session_number(session);

    assert_int_equal(fixture_ensure(session, false), 0);
    session_unref(session);
    fixture_close(fixture);
    /* Paused at the end, and the other provider is now the default one. */
    fixture_open(fixture, "remote");
    session = fixture_find(fixture, "a");
    assert_int_equal(session_number(session), number);
    assert_int_equal(session_status(session), SESSION_PAUSED);
    assert_int_equal(fixture_ensure(session, false), 0);
    assert_int_equal(engine_calls(ENGINE_CREATE), 1);
    session_unref(session);
}

static void an_engine_that_fails_to_open_is_told(void **state)
{
    struct fixture *fixture = *state;
    static const struct provider_ops *const none[] = {NULL};
    static const struct provider_ops *const local[] = {&engine_local, NULL};
    struct registry_config config = {
        .state_dir = fixture->dir,
        .provider = "local",
        .loop = fixture->loop,
    };
    struct registry *registry = NULL;
    struct err err = ERR_INIT;

    fixture_close(fixture);
    assert_int_equal(registry_open(&config, none, &registry, &err), -ENODEV);
    assert_non_null(strstr(err.msg, "'local' is not registered"));
    engine_fail(ENGINE_OPEN, EACCES);
    assert_int_equal(registry_open(&config, local, &registry, &err), -EACCES);
    assert_null(registry);
    engine_fail(ENGINE_OPEN, 0);
    fixture_open(fixture, "local");
}

static int refuse_to_open(const struct provider_env *env, struct provider **out,
                          struct err *err)
{
    (void)env;
    (void)out;
    return err_set(err, EPERM, "for root only");
}

static void a_session_says_why_its_engine_is_not_there(void **state)
{
    struct provider_ops refusing = engine_local;
    const struct provider_ops *const table[] = {&refusing, &engine_remote,
                                                NULL};
    struct fixture *fixture = *state;
    struct registry_config config = {
        .state_dir = fixture->dir,
        .provider = "remote",
        .loop = fixture->loop,
    };
    struct err err = ERR_INIT;
    struct session *session;
    struct result result;

    session_unref(fixture_create(fixture, "a"));
    fixture_close(fixture);
    refusing.open = refuse_to_open;
    assert_int_equal(registry_open(&config, table, &fixture->registry, &err),
                     0);
    session = fixture_find(fixture, "a");
    result_init(&result);
    session_ensure(session, false, &me, result_fill, &result);
    assert_int_equal(result_wait(&result), -EPERM);
    assert_string_equal(result.err.msg, "provider 'local': for root only");
    session_unref(session);
    assert_true(registry_close(fixture->registry, 0));
    fixture_open(fixture, "local");
}

static void a_stuck_engine_does_not_hold_up_the_end(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = fixture_create(fixture, "a");
    struct session *other = fixture_create(fixture, "b");
    struct result result;

    assert_int_equal(fixture_ensure(other, false), 0);
    engine_hold(ENGINE_CREATE, true);
    result_init(&result);
    session_ensure(session, false, &me, result_fill, &result);
    fixture_until(engine_calls(ENGINE_CREATE) == 2);
    session_unref(session);
    session_unref(other);
    assert_true(registry_close(fixture->registry, 300));
    assert_int_equal(result_wait(&result), -ECANCELED);
    assert_int_equal(engine_calls(ENGINE_PAUSE), 1);
    engine_hold(ENGINE_CREATE, false);
    /* What the cut-off create may have made is deleted by the next start. */
    fixture_open(fixture, "local");
    session = fixture_find(fixture, "a");
    fixture_until(session_status(session) == SESSION_ABSENT);
    session_unref(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(ids_are_checked),
        FIXTURE_TEST(an_id_is_there_once),
        FIXTURE_TEST(a_found_session_is_the_same_object),
        FIXTURE_TEST(a_removed_session_takes_its_output_along),
        FIXTURE_TEST(a_busy_session_is_not_removed),
        FIXTURE_TEST(a_file_operation_that_leaves_late_keeps_no_session),
        FIXTURE_TEST(nothing_is_kept_of_what_is_being_deleted),
        FIXTURE_TEST(a_rename_keeps_the_session),
        FIXTURE_TEST(all_sessions_are_told_once_in_order),
        FIXTURE_TEST(a_session_at_rest_costs_no_memory_and_no_thread),
        FIXTURE_TEST(failures_are_lines_that_names_cannot_forge),
        FIXTURE_TEST(everything_is_there_after_a_restart),
        FIXTURE_TEST(an_engine_that_fails_to_open_is_told),
        FIXTURE_TEST(a_session_says_why_its_engine_is_not_there),
        FIXTURE_TEST(a_stuck_engine_does_not_hold_up_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
