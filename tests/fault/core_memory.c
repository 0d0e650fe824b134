/* Commands where there is no memory, and no thread. */
#include "tests/unit/core_fixture.h"

#include "core/exec_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Calls of this thread that are left until one fails; 0: none does. */
static _Thread_local unsigned fail_in;
/* How many pieces of work still find a thread; negative: all. */
static atomic_int threads = -1;
/* Commands beside the queue, where the count of them was looked at. */
static atomic_uint most_background;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
int __real_session_run(struct session *session, struct workers *workers,
                       work_fn *fn, void *arg);
int __wrap_session_run(struct session *session, struct workers *workers,
                       work_fn *fn, void *arg);
void __real_exec_wake(struct exec *exec);
void __wrap_exec_wake(struct exec *exec);

static bool fails(void)
{
    return fail_in && --fail_in == 0;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

int __wrap_session_run(struct session *session, struct workers *workers,
                       work_fn *fn, void *arg)
{
    int left = atomic_load(&threads);

    if (left == 0) {
        return -EAGAIN;
    }
    if (left > 0) {
        atomic_store(&threads, left - 1);
    }
    return __real_session_run(session, workers, fn, arg);
}

void __wrap_exec_wake(struct exec *exec)
{
    struct session *session = exec->job.session;

    mutex_lock(&session->lock);
    if (session->background > atomic_load(&most_background)) {
        atomic_store(&most_background, session->background);
    }
    mutex_unlock(&session->lock);
    __real_exec_wake(exec);
}

static bool count_one(void *arg, uint64_t n)
{
    (void)n;
    (*(unsigned *)arg)++;
    return true;
}

static unsigned count_records(struct session *session)
{
    unsigned count = 0;
    struct err err = ERR_INIT;

    assert_int_equal(session_exec_each(session, 0, count_one, &count, &err), 0);
    return count;
}

/* Every allocation of it fails in turn. */
static void a_command_that_is_refused_leaves_no_record(void **state)
{
    struct session *session = fixture_create(*state, "a");
    unsigned refused = 0;
    bool failed = true;

    assert_int_equal(fixture_ensure(session, false), 0);
    for (unsigned n = 1; failed; n++) {
        unsigned before = count_records(session);
        struct exec *exec = NULL;
        struct exec_info info;
        struct err err = ERR_INIT;
        int rc;

        fail_in = n;
        rc = exec_submit(session, "exit:3", 6, &me, &exec, &err);
        failed = fail_in == 0;
        fail_in = 0;
        if (rc < 0) {
            assert_int_equal(rc, -ENOMEM);
            assert_int_equal(count_records(session), before);
            refused++;
            continue;
        }
        fixture_wait_exec(exec, &info);
        exec_unref(exec);
        assert_int_equal(count_records(session), before + 1);
        assert_true(failed || info.status == EXEC_EXITED);
    }
    assert_true(refused > 1);
    session_unref(session);
}

/* Its engine ends it before its start is known, and the end finds no thread. */
static void a_command_in_the_background_counts_until_it_ends(void **state)
{
    static const char json[] =
        "{\"command\": \"now exit:3\", \"background\": true}";
    struct session *session = fixture_create(*state, "a");
    struct exec *exec = NULL;
    struct exec_info info;
    struct err err = ERR_INIT;

    assert_int_equal(fixture_ensure(session, false), 0);
    atomic_store(&threads, 1);
    assert_int_equal(
        exec_submit_json(session, json, strlen(json), &me, &exec, &err), 0);
    fixture_wait_exec(exec, &info);
    atomic_store(&threads, -1);
    exec_unref(exec);
    assert_int_equal(info.exit_code, 3);
    assert_true(atomic_load(&most_background) <= 1);
    fixture_exec(session, "exit:0", &info);
    assert_int_equal(fixture_pause(session), 0);
    session_unref(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_command_that_is_refused_leaves_no_record),
        FIXTURE_TEST(a_command_in_the_background_counts_until_it_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
