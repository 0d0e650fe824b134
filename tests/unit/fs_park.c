/*
 * Parked requests. The few calls of libfuse that they make are replaced here:
 * a request is a record of its answers.
 */
#include "tests/cmocka.h"

#include "core/clock.h"
#include "core/mutex.h"
#include "fs/park.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SOON_MS = 10000
};

struct fuse_req {
    struct mutex lock; /* As libfuse's: held during the callback. */
    fuse_interrupt_func_t func;
    void *data;
    struct fuse_ctx ctx;
    int answers;
    int code;
};

static struct fs fs;

void *fuse_req_userdata(fuse_req_t req)
{
    (void)req;
    return &fs;
}

const struct fuse_ctx *fuse_req_ctx(fuse_req_t req)
{
    return &req->ctx;
}

void fuse_req_interrupt_func(fuse_req_t req, fuse_interrupt_func_t func,
                             void *data)
{
    mutex_lock(&req->lock);
    req->func = func;
    req->data = data;
    mutex_unlock(&req->lock);
}

int fuse_reply_err(fuse_req_t req, int code)
{
    mutex_lock(&req->lock);
    req->answers++;
    req->code = code;
    mutex_unlock(&req->lock);
    return 0;
}

static int answers(struct fuse_req *req)
{
    int n;

    mutex_lock(&req->lock);
    n = req->answers;
    mutex_unlock(&req->lock);
    return n;
}

/* Waits up to a while for the answer; its code, or -1. */
static int answer_within(struct fuse_req *req, int ms)
{
    int64_t deadline = clock_deadline(ms);

    while (!answers(req) && clock_ms() < deadline) {
        (void)usleep(1000);
    }
    return answers(req) ? req->code : -1;
}

static void interrupt(struct fuse_req *req)
{
    mutex_lock(&req->lock);
    if (req->func) {
        req->func(req, req->data);
    }
    mutex_unlock(&req->lock);
}

struct record {
    atomic_int dropped; /* The code + 1; 0: was not. */
    atomic_int freed;
};

static void record_dropped(void *arg, int code)
{
    struct record *record = arg;

    atomic_store(&record->dropped, code + 1);
}

static void record_freed(void *arg)
{
    struct record *record = arg;

    atomic_fetch_add(&record->freed, 1);
}

static const struct park_kind patient = {
    .dropped = record_dropped,
    .free = record_freed,
};

static const struct park_kind hurried = {
    .most_ms = 50,
    .late = EINPROGRESS,
    .dropped = record_dropped,
    .free = record_freed,
};

static const struct park_kind lenient = {
    .most_ms = 50,
    .late = 0,
    .dropped = record_dropped,
    .free = record_freed,
};

static const struct reply_about about = {.op = "write"};

static int set_up(void **state)
{
    struct err err = ERR_INIT;
    struct fuse_req *req = calloc(1, sizeof(*req));

    assert_non_null(req);
    mutex_init(&req->lock);
    req->ctx.pid = getpid();
    assert_int_equal(loop_new(&fs.loop, &err), 0);
    fs.parks = parks_new(fs.loop);
    assert_non_null(fs.parks);
    *state = req;
    return 0;
}

static int tear_down(void **state)
{
    struct fuse_req *req = *state;

    parks_close(fs.parks);
    loop_free(fs.loop);
    parks_free(fs.parks);
    assert_int_equal(req->answers, 1);
    mutex_done(&req->lock);
    free(req);
    return 0;
}

static void work_that_ends_at_once_answers(void **state)
{
    struct fuse_req *req = *state;
    struct record record = {0};
    struct err err = ERR_INIT;
    struct park *park = park_new(req, &about, &patient, &record);

    park_end(park, 0, &err);
    park_wait(park);
    assert_int_equal(answer_within(req, 0), 0);
    assert_int_equal(record.freed, 1);
    assert_int_equal(record.dropped, 0);
}

static void work_that_ends_later_answers_with_its_error(void **state)
{
    struct fuse_req *req = *state;
    struct record record = {0};
    struct err err = ERR_INIT;
    struct park *park = park_new(req, &about, &patient, &record);

    park_wait(park);
    assert_int_equal(answers(req), 0);
    park_end(park, err_set(&err, ENOENT, "gone"), &err);
    assert_int_equal(answer_within(req, 0), ENOENT);
    assert_int_equal(record.freed, 1);
}

static void the_deadline_answers_and_the_work_ends_unheard(void **state)
{
    struct fuse_req *req = *state;
    struct record record = {0};
    struct err err = ERR_INIT;
    struct park *park = park_new(req, &about, &hurried, &record);

    park_wait(park);
    assert_int_equal(answer_within(req, SOON_MS), EINPROGRESS);
    assert_int_equal(record.freed, 0);
    park_end(park, 0, &err);
    assert_int_equal(record.dropped, EINPROGRESS + 1);
    assert_int_equal(record.freed, 1);
}

static void a_deadline_may_be_a_success(void **state)
{
    struct fuse_req *req = *state;
    struct record record = {0};
    struct park *park = park_new(req, &about, &lenient, &record);

    park_wait(park);
    assert_int_equal(answer_within(req, SOON_MS), 0);
    assert_null(park_take(park));
    park_unref(park);
}

static void an_interrupt_of_a_thread_that_is_not_seen_counts(void **state)
{
    struct fuse_req *req = *state;
    struct record record = {0};
    struct park *park;

    req->ctx.pid = 0;
    park = park_new(req, &about, &patient, &record);
    park_wait(park);
    assert_int_equal(answer_within(req, 50), -1);
    interrupt(req);
    assert_int_equal(answer_within(req, SOON_MS), EINTR);
    assert_null(park_take(park));
    park_unref(park);
    assert_int_equal(record.dropped, EINTR + 1);
}

/* A child that has the signal pending: stopped, so that it stays so. */
static pid_t stopped_child(void)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        (void)raise(SIGSTOP);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
    return pid;
}

static void only_a_signal_that_ends_programs_interrupts(void **state)
{
    struct fuse_req *req = *state;
    struct record record = {0};
    pid_t pid = stopped_child();
    struct park *park;

    req->ctx.pid = pid;
    park = park_new(req, &about, &patient, &record);
    park_wait(park);
    assert_int_equal(kill(pid, SIGALRM), 0);
    interrupt(req);
    assert_int_equal(answer_within(req, 350), -1);
    /* FUSE_INTERRUPT came for the first signal and does not come again. */
    assert_int_equal(kill(pid, SIGTERM), 0);
    assert_int_equal(answer_within(req, SOON_MS), EINTR);
    park_unref(park);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void a_work_that_ends_after_an_interrupt_is_heard(void **state)
{
    struct fuse_req *req = *state;
    struct record record = {0};
    struct err err = ERR_INIT;
    struct park *park = park_new(req, &about, &patient, &record);

    park_wait(park);
    interrupt(req);
    assert_int_equal(answer_within(req, 150), -1);
    park_end(park, 0, &err);
    assert_int_equal(answer_within(req, 0), 0);
    assert_null(req->func);
}

static void the_end_of_the_mount_answers_all(void **state)
{
    struct fuse_req *req = *state;
    struct record record = {0};
    struct park *park = park_new(req, &about, &patient, &record);

    park_wait(park);
    parks_close(fs.parks);
    assert_int_equal(answer_within(req, 0), ENOTCONN);
    park_unref(park);
}

static void too_many_of_a_session_are_refused(void **state)
{
    struct fuse_req *last = *state;
    struct fuse_req *reqs = calloc(PARKS_MOST, sizeof(*reqs));
    struct park **parks = calloc(PARKS_MOST, sizeof(struct park *));
    struct record record = {0}, refused = {0};
    struct err err = ERR_INIT;
    struct park *park;

    assert_non_null(reqs);
    assert_non_null(parks);
    for (int i = 0; i < PARKS_MOST; i++) {
        mutex_init(&reqs[i].lock);
        reqs[i].ctx.pid = getpid();
        parks[i] = park_new(&reqs[i], &about, &patient, &record);
        park_wait(parks[i]);
        assert_int_equal(answers(&reqs[i]), 0);
    }
    park = park_new(last, &about, &patient, &refused);
    park_wait(park);
    assert_int_equal(answer_within(last, 0), EAGAIN);
    assert_int_equal(atomic_load(&refused.dropped), EAGAIN + 1);
    park_unref(park);
    for (int i = 0; i < PARKS_MOST; i++) {
        park_end(parks[i], 0, &err);
        assert_int_equal(answer_within(&reqs[i], 0), 0);
        mutex_done(&reqs[i].lock);
    }
    free(parks);
    free(reqs);
}

/* ---- Everybody at once ---- */

enum {
    RACERS = 300
};

struct racer {
    struct fuse_req req;
    struct record record;
    struct park *park;
};

static void *end_all(void *arg)
{
    struct racer *racers = arg;
    struct err err = ERR_INIT;

    for (int i = 0; i < RACERS; i++) {
        park_end(racers[i].park, 0, &err);
        (void)usleep(100);
    }
    return NULL;
}

static void *interrupt_all(void *arg)
{
    struct racer *racers = arg;

    for (int i = 0; i < RACERS; i++) {
        interrupt(&racers[i].req);
        (void)usleep(100);
    }
    return NULL;
}

static void each_of_many_is_answered_exactly_once(void **state)
{
    struct racer *racers = calloc(RACERS, sizeof(*racers));
    pthread_t threads[2];

    assert_non_null(racers);
    for (int i = 0; i < RACERS; i++) {
        mutex_init(&racers[i].req.lock);
        racers[i].park =
            park_new(&racers[i].req, &about, &hurried, &racers[i].record);
        park_wait(racers[i].park);
    }
    assert_int_equal(pthread_create(&threads[0], NULL, end_all, racers), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, interrupt_all, racers),
                     0);
    (void)pthread_join(threads[0], NULL);
    (void)pthread_join(threads[1], NULL);
    work_that_ends_at_once_answers(state);
    parks_close(fs.parks);
    for (int i = 0; i < RACERS; i++) {
        assert_int_equal(racers[i].req.answers, 1);
        assert_int_equal(racers[i].record.freed, 1);
        mutex_done(&racers[i].req.lock);
    }
    free(racers);
}

#define PARK_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PARK_TEST(work_that_ends_at_once_answers),
        PARK_TEST(work_that_ends_later_answers_with_its_error),
        PARK_TEST(the_deadline_answers_and_the_work_ends_unheard),
        PARK_TEST(a_deadline_may_be_a_success),
        PARK_TEST(an_interrupt_of_a_thread_that_is_not_seen_counts),
        PARK_TEST(only_a_signal_that_ends_programs_interrupts),
        PARK_TEST(a_work_that_ends_after_an_interrupt_is_heard),
        PARK_TEST(the_end_of_the_mount_answers_all),
        PARK_TEST(too_many_of_a_session_are_refused),
        PARK_TEST(each_of_many_is_answered_exactly_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
