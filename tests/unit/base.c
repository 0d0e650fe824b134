/* The base modules of core: errors, buffers, time, tokens, loop, workers. */
#include "tests/cmocka.h"

#include "core/buf.h"
#include "core/cancel.h"
#include "core/clock.h"
#include "core/cpus.h"
#include "core/loop.h"
#include "core/mutex.h"
#include "core/provider.h"
#include "core/workers.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static void an_error_keeps_code_and_nested_words(void **state)
{
    struct err err = ERR_INIT;
    int rc = err_set(&err, ENOENT, "no box '%s'", "a");

    (void)state;
    assert_int_equal(rc, -ENOENT);
    assert_int_equal(err_wrap(&err, rc, "open"), -ENOENT);
    assert_string_equal(err.msg, "open: no box 'a'");
    errno = EACCES;
    assert_int_equal(err_errno(&err, "read %d", 7), -EACCES);
    assert_string_equal(err.msg, "read 7: Permission denied");
    err_clear(&err);
    assert_int_equal(err.code, 0);
}

static void too_long_words_are_cut_not_overrun(void **state)
{
    char text[2 * ERR_MSG_SIZE];
    struct err err = ERR_INIT;

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    (void)err_set(&err, EIO, "%s", text);
    assert_int_equal(strlen(err.msg), ERR_MSG_SIZE - 1);
    assert_int_equal(err_wrap(&err, -EIO, "%s", text), -EIO);
    assert_int_equal(strlen(err.msg), ERR_MSG_SIZE - 1);
}

static void a_buffer_grows_to_its_cap_and_no_further(void **state)
{
    struct buf buf = BUF_INIT(200);

    (void)state;
    assert_string_equal(buf_str(&buf), "");
    for (int i = 0; i < 200; i++) {
        assert_int_equal(buf_add(&buf, "y", 1), 0);
    }
    assert_int_equal(buf_add(&buf, "z", 1), -EFBIG);
    assert_int_equal(buf_printf(&buf, "%d", 1), -EFBIG);
    assert_int_equal(buf.size, 200);
    assert_int_equal(strlen(buf_str(&buf)), 200);
    buf_done(&buf);
    assert_int_equal(buf_printf(&buf, "%s-%d", "a", 1), 0);
    assert_string_equal(buf_str(&buf), "a-1");
    buf_done(&buf);
}

static void times_are_written_as_rfc_3339(void **state)
{
    char text[CLOCK_TEXT_SIZE];

    (void)state;
    clock_format(1700000000000007, text);
    assert_string_equal(text, "2023-11-14T22:13:20.000007Z");
    assert_true(clock_deadline(DEADLINE_NONE) == DEADLINE_NONE);
    assert_true(clock_deadline(10) >= clock_ms());
}

static void a_wait_ends_by_fd_deadline_or_token(void **state)
{
    struct err err = ERR_INIT;
    struct cancel cancel;
    struct limits limits;
    int pipe_fds[2];

    (void)state;
    assert_int_equal(cancel_init(&cancel, &err), 0);
    assert_int_equal(pipe(pipe_fds), 0);
    limits = (struct limits){clock_deadline(20), &cancel};
    assert_int_equal(limits_wait(&limits, pipe_fds[0], EPOLLIN, &err),
                     -ETIMEDOUT);
    assert_int_equal(write(pipe_fds[1], "x", 1), 1);
    limits.deadline_ms = DEADLINE_NONE;
    assert_int_equal(limits_wait(&limits, pipe_fds[0], EPOLLIN, &err), 0);
    cancel_fire(&cancel);
    cancel_fire(&cancel);
    assert_int_equal(limits_wait(&limits, -1, 0, &err), -ECANCELED);
    (void)close(pipe_fds[0]);
    (void)close(pipe_fds[1]);
    cancel_done(&cancel);
}

/* What the loop's callbacks write down, in their thread alone. */
struct trace {
    struct loop *loop;
    char text[64];
    struct loop_timer *timers[3];
    struct loop_source *source;
    int fds[2];
    struct cancel end;
};

static void note(struct trace *trace, char c)
{
    size_t n = strlen(trace->text);

    trace->text[n] = c;
    trace->text[n + 1] = '\0';
}

static void on_first(void *arg)
{
    note(arg, '1');
}

static void on_never(void *arg)
{
    note(arg, '!');
}

static void on_last(void *arg)
{
    struct trace *trace = arg;

    note(trace, '3');
    cancel_fire(&trace->end);
}

static void on_readable(void *arg, uint32_t events)
{
    struct trace *trace = arg;

    note(trace, events & EPOLLIN ? 'r' : '?');
    loop_source_free(trace->source);
}

static void set_up_trace(void *arg)
{
    struct trace *trace = arg;
    struct err err = ERR_INIT;

    loop_timer_set(trace->timers[2], clock_ms() + 400);
    loop_timer_set(trace->timers[0], clock_ms() + 200);
    loop_timer_set(trace->timers[1], clock_ms() + 300);
    loop_timer_set(trace->timers[1], DEADLINE_NONE);
    if (loop_source_new(trace->loop, trace->fds[0], EPOLLIN, on_readable, trace,
                        &trace->source, &err) < 0) {
        note(trace, 'e');
    }
}

static void tear_down_trace(void *arg)
{
    struct trace *trace = arg;

    for (size_t i = 0; i < ARRAY_SIZE(trace->timers); i++) {
        loop_timer_free(trace->timers[i]);
    }
}

static void the_loop_runs_posts_timers_and_sources_in_order(void **state)
{
    struct trace trace = {.text = ""};
    struct err err = ERR_INIT;
    struct limits limits = {clock_deadline(20000), &trace.end};

    (void)state;
    assert_int_equal(loop_new(&trace.loop, &err), 0);
    assert_int_equal(cancel_init(&trace.end, &err), 0);
    assert_int_equal(pipe(trace.fds), 0);
    assert_int_equal(write(trace.fds[1], "x", 1), 1);
    trace.timers[0] = loop_timer_new(trace.loop, on_first, &trace);
    trace.timers[1] = loop_timer_new(trace.loop, on_never, &trace);
    trace.timers[2] = loop_timer_new(trace.loop, on_last, &trace);
    loop_post(trace.loop, set_up_trace, &trace);
    assert_int_equal(limits_wait(&limits, -1, 0, &err), -ECANCELED);
    loop_post(trace.loop, tear_down_trace, &trace);
    loop_free(trace.loop);
    assert_string_equal(trace.text, "r13");
    (void)close(trace.fds[0]);
    (void)close(trace.fds[1]);
    cancel_done(&trace.end);
}

struct tally {
    struct mutex lock;
    struct cond change;
    int done;
    bool release;
};

static void blocked_work(void *arg)
{
    struct tally *tally = arg;

    mutex_lock(&tally->lock);
    while (!tally->release) {
        (void)cond_wait(&tally->change, &tally->lock, DEADLINE_NONE);
    }
    tally->done++;
    mutex_unlock(&tally->lock);
}

static void quick_work(void *arg)
{
    struct tally *tally = arg;

    mutex_lock(&tally->lock);
    tally->done++;
    cond_broadcast(&tally->change);
    mutex_unlock(&tally->lock);
}

static void wait_for_done(struct tally *tally, int many)
{
    int64_t deadline = clock_deadline(20000);
    int rc = 0;

    mutex_lock(&tally->lock);
    while (tally->done < many && rc == 0) {
        rc = cond_wait(&tally->change, &tally->lock, deadline);
    }
    mutex_unlock(&tally->lock);
    assert_int_equal(rc, 0);
}

static void blocked_work_holds_up_no_other_while_threads_are_left(void **state)
{
    struct workers *workers = workers_new(3);
    struct tally tally = {.done = 0};

    (void)state;
    mutex_init(&tally.lock);
    cond_init(&tally.change);
    for (int round = 1; round <= 50; round++) {
        assert_int_equal(workers_run(workers, quick_work, &tally), 0);
        wait_for_done(&tally, round);
    }
    /* One thread idles now: two pieces at once must not share it. */
    assert_int_equal(workers_run(workers, blocked_work, &tally), 0);
    assert_int_equal(workers_run(workers, quick_work, &tally), 0);
    wait_for_done(&tally, 51);
    mutex_lock(&tally.lock);
    tally.release = true;
    cond_broadcast(&tally.change);
    mutex_unlock(&tally.lock);
    workers_free(workers);
    assert_int_equal(tally.done, 52);
    cond_done(&tally.change);
    mutex_done(&tally.lock);
}

static int cpu_count(void)
{
    cpu_set_t set;

    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    return CPU_COUNT(&set);
}

static void count_work(void *arg)
{
    *(int *)arg = cpu_count();
}

/* Binds itself, and has work done. */
static void *bound_main(void *arg)
{
    struct workers *workers = workers_new(1);
    int *counts = arg;

    cpus_bind(sched_getcpu());
    counts[0] = cpu_count();
    if (workers_run(workers, count_work, &counts[1]) < 0) {
        counts[1] = -1;
    }
    workers_free(workers);
    cpus_free();
    counts[2] = cpu_count();
    return NULL;
}

static void work_runs_on_all_cpus_whoever_has_it_done(void **state)
{
    int counts[3] = {0, 0, 0};
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, bound_main, counts), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(counts[0], 1);
    assert_int_equal(counts[1], cpu_count());
    assert_int_equal(counts[2], cpu_count());
}

/* Where a thread is after it was to be bound elsewhere. */
static void *where_bound(void *arg)
{
    int *cpu = arg;

    cpus_bind(*cpu);
    *cpu = sched_getcpu();
    return NULL;
}

/* As taskset(1) or a unit of systemd says. */
static void no_thread_is_bound_where_the_process_may_not_run(void **state)
{
    cpu_set_t all, one;
    pthread_t thread;
    int first = sched_getcpu();
    int other = 0;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    if (CPU_COUNT(&all) < 2) {
        skip();
    }
    while (other == first || !CPU_ISSET((unsigned)other, &all)) {
        other++;
    }
    CPU_ZERO(&one);
    CPU_SET((unsigned)first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(pthread_create(&thread, NULL, where_bound, &other), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
    assert_int_equal(other, first);
}

static void a_provider_without_a_required_slot_is_refused(void **state)
{
    static const struct provider_ops lame = {.name = "lame"};
    struct provider_env env = {.state_dir = "/"};
    struct provider *provider;
    struct err err = ERR_INIT;

    (void)state;
    assert_int_equal(provider_open(&lame, &env, &provider, &err), -ENOSYS);
    assert_non_null(strstr(err.msg, "lame"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_keeps_code_and_nested_words),
        cmocka_unit_test(too_long_words_are_cut_not_overrun),
        cmocka_unit_test(a_buffer_grows_to_its_cap_and_no_further),
        cmocka_unit_test(times_are_written_as_rfc_3339),
        cmocka_unit_test(a_wait_ends_by_fd_deadline_or_token),
        cmocka_unit_test(the_loop_runs_posts_timers_and_sources_in_order),
        cmocka_unit_test(blocked_work_holds_up_no_other_while_threads_are_left),
        cmocka_unit_test(work_runs_on_all_cpus_whoever_has_it_done),
        cmocka_unit_test(no_thread_is_bound_where_the_process_may_not_run),
        cmocka_unit_test(a_provider_without_a_required_slot_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
