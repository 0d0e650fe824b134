/*
 * Everything at once: threads that start, pause, destroy, run, cancel, visit
 * files and look, over an engine that fails now and then. Each request is
 * answered exactly once, and afterwards the sessions are as good as new.
 */
#include "tests/unit/core_fixture.h"

#include "core/buf.h"
#include "core/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    THREADS = 8,
    STORM_MS = 2000
};

/* One for each session. */
static const char *const configs[] = {
    "{\"provider\":\"local\"}",
    "{\"provider\":\"local\",\"idle_pause_after_seconds\":1,"
    "\"init\":{\"commands\":[\"o:one\",\"fill:5000\"]}}",
    "{\"provider\":\"remote\",\"idle_pause_after_seconds\":1}",
    "{\"provider\":\"remote\",\"wake\":\"exec\","
    "\"init\":{\"commands\":[\"o:one\"]}}",
};

enum {
    SESSIONS = ARRAY_SIZE(configs)
};

static atomic_uint asked;
static atomic_uint answered;
static atomic_bool over;

static void count(void *arg, int rc, const struct err *err)
{
    (void)arg;
    assert_int_equal(rc, -err->code);
    atomic_fetch_add(&answered, 1);
}

static void leave(void *arg, int rc, struct workspace *ws,
                  const struct err *err)
{
    assert_int_equal(rc, -err->code);
    if (rc == 0) {
        ws_unref(ws);
        session_files_leave(arg);
    }
    atomic_fetch_add(&answered, 1);
}

static void run_command(struct session *session, unsigned *seed)
{
    static const char *const words[] = {"o:a e:b", "exit:2", "late:x",
                                        "fill:10000", "hang"};
    unsigned choice = (unsigned)rand_r(seed) % ARRAY_SIZE(words);
    struct exec *exec = fixture_submit(session, words[choice]);
    struct exec_info info;

    if (choice == ARRAY_SIZE(words) - 1 || rand_r(seed) % 4 == 0) {
        (void)usleep((unsigned)rand_r(seed) % 2000);
        exec_cancel(exec);
    }
    fixture_wait_exec(exec, &info);
    assert_true(info.status != EXEC_QUEUED && info.status != EXEC_RUNNING);
    exec_unref(exec);
}

static void look(struct session *session)
{
    struct buf text = BUF_INIT(64 * 1024);
    struct err err = ERR_INIT;

    (void)session_status(session);
    assert_int_equal(session_status_json(session, &text, &err), 0);
    buf_done(&text);
}

static void act(struct session *session, unsigned *seed)
{
    switch (rand_r(seed) % 8) {
    case 0:
    case 1:
        atomic_fetch_add(&asked, 1);
        session_ensure(session, true, &me, count, NULL);
        break;
    case 2:
        atomic_fetch_add(&asked, 1);
        session_pause(session, &me, count, NULL);
        break;
    case 3:
        atomic_fetch_add(&asked, 1);
        session_destroy(session, &me, count, NULL);
        break;
    case 4:
        run_command(session, seed);
        break;
    case 5:
        atomic_fetch_add(&asked, 1);
        session_files_enter(session, (enum session_need)(rand_r(seed) % 3), &me,
                            leave, session);
        break;
    default:
        look(session);
        break;
    }
}

struct actor {
    struct fixture *fixture;
    unsigned seed;
};

static void *actor_main(void *arg)
{
    struct actor *actor = arg;

    while (!atomic_load(&over)) {
        char id[8] = {'s', (char)('0' + rand_r(&actor->seed) % SESSIONS), 0};
        struct session *session = fixture_find(actor->fixture, id);

        act(session, &actor->seed);
        session_unref(session);
    }
    return NULL;
}

/* Lets single slots fail for a moment, one after another. */
static void be_unreliable(unsigned *seed)
{
    static const int codes[] = {EIO, ENOTCONN, ESTALE, EDQUOT};
    int64_t deadline = clock_deadline(STORM_MS);

    while (clock_ms() < deadline) {
        enum engine_slot slot =
            (enum engine_slot)(1 + rand_r(seed) % (ENGINE_SLOTS - 1));

        engine_fail(slot, codes[rand_r(seed) % (int)ARRAY_SIZE(codes)]);
        if (rand_r(seed) % 8 == 0) {
            engine_set_state(PROVIDER_LOST);
        }
        engine_replace_at((enum engine_slot)(rand_r(seed) % ENGINE_SLOTS));
        (void)usleep(2000);
        engine_fail(slot, 0);
        (void)usleep(5000);
    }
}

static void a_storm_leaves_the_sessions_as_good_as_new(void **state)
{
    struct fixture *fixture = *state;
    pthread_t threads[THREADS];
    struct actor actors[THREADS];
    unsigned seed = 7;
    struct err err = ERR_INIT;

    for (char i = 0; i < SESSIONS; i++) {
        char id[8] = {'s', (char)('0' + i), 0};

        session_unref(fixture_create_with(fixture, id, configs[(int)i]));
    }
    for (unsigned i = 0; i < THREADS; i++) {
        actors[i] = (struct actor){fixture, i + 1};
        assert_int_equal(
            pthread_create(&threads[i], NULL, actor_main, &actors[i]), 0);
    }
    be_unreliable(&seed);
    atomic_store(&over, true);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    fixture_until(atomic_load(&answered) == atomic_load(&asked));
    for (char i = 0; i < SESSIONS; i++) {
        char id[8] = {'s', (char)('0' + i), 0};
        struct session *session = fixture_find(fixture, id);
        struct exec_info info;

        assert_int_equal(fixture_ensure(session, true), 0);
        fixture_exec(session, "exit:1", &info);
        assert_int_equal(info.status, EXEC_EXITED);
        assert_int_equal(fixture_destroy(session), 0);
        assert_int_equal(registry_remove(fixture->registry, id, &err), 0);
        session_unref(session);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_storm_leaves_the_sessions_as_good_as_new, fixture_setup,
            fixture_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
