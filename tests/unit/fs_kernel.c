/* What depends on the kernel, as far as it needs no mount. */
#include "tests/cmocka.h"

#include "core/clock.h"
#include "fs/fs.h"
#include "fs/kernel.h"
#include "fs/kernel_near.h"
#include "fs/kernel_rest.h"
#include "fs/kernel_ring.h"
#include "fs/kernel_uring.h"
#include "fs/signals.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void features_are_read_by_name(void **state)
{
    struct err err = ERR_INIT;
    unsigned mask = 7;

    (void)state;
    assert_int_equal(kernel_features_parse("", &mask, &err), 0);
    assert_int_equal(mask, 0);
    assert_int_equal(kernel_features_parse("io_uring:epoch", &mask, &err), 0);
    assert_int_equal(mask, 1U << KERNEL_IO_URING | 1U << KERNEL_EPOCH);
    for (int i = 0; i < KERNEL_FEATURES; i++) {
        const char *name = kernel_feature_name((enum kernel_feature)i);

        assert_int_equal(kernel_features_parse(name, &mask, &err), 0);
        assert_int_equal(mask, 1U << i);
    }
    assert_int_equal(kernel_features_parse("epoch:epo", &mask, &err), -EINVAL);
    for (int i = 0; i < KERNEL_FEATURES; i++) {
        const char *name = kernel_feature_name((enum kernel_feature)i);

        assert_non_null(strstr(err.msg, name));
    }
}

enum {
    SIZE = 8,
    ROUNDS = 100,
    PAYLOAD = 8192,
    GUARD_S = 30,
};

static void ring_open(struct kernel_ring *ring)
{
    int rc = kernel_ring_open(ring, SIZE);

    if (rc == -EPERM || rc == -ENOSYS || rc == -EINVAL) {
        skip(); /* Not here, or only an old one. */
    }
    assert_int_equal(rc, 0);
}

/* More than fit at once, several times around. */
static void a_ring_gives_back_all_that_was_put_in(void **state)
{
    struct kernel_ring ring;
    uint64_t sum = 0;

    (void)state;
    ring_open(&ring);
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        struct io_uring_sqe *sqe = kernel_ring_add(&ring);
        uint64_t data;
        int res;

        assert_non_null(sqe);
        sqe->opcode = IORING_OP_NOP;
        sqe->user_data = i;
        if (i % (SIZE + 3) == 0 || i == ROUNDS) {
            assert_int_equal(kernel_ring_enter(&ring, true), 0);
        }
        while (kernel_ring_next(&ring, &data, &res)) {
            assert_int_equal(res, 0);
            sum += data;
        }
    }
    assert_int_equal(sum, ROUNDS * (ROUNDS + 1) / 2);
    kernel_ring_close(&ring);
    assert_int_equal(ring.fd, -1);
}

static void what_came_by_no_ring_is_answered_elsewhere(void **state)
{
    struct wire_out out = {.len = sizeof(out), .unique = 42};
    const struct iovec iov = {&out, sizeof(out)};
    uint64_t unique = 42;
    ssize_t size;

    (void)state;
    assert_false(kernel_uring_answer(&iov, 1, &size));
    kernel_uring_interrupt(NULL, &unique);
    assert_int_equal(unique, 42);
}

/* Handles requests of the thread itself, which so is where it is. */
static int cpus_after(struct kernel_near *near, struct wire_in head,
                      unsigned requests)
{
    cpu_set_t set;

    for (unsigned i = 0; i < requests; i++) {
        kernel_near_follow(near, &head);
    }
    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    return CPU_COUNT(&set);
}

static void *follow_main(void *arg)
{
    const struct wire_in one = {.opcode = 3, .pid = (uint32_t)gettid()};
    const struct wire_in writes = {.opcode = WIRE_WRITE, .pid = one.pid};
    const struct wire_in other = {.opcode = 3, .pid = (uint32_t)getpid()};
    const struct wire_in nobody = {.opcode = 18};
    const struct wire_in first = {.opcode = 3, .pid = one.pid, .unique = 8};
    const struct wire_in closes = {
        .opcode = WIRE_RELEASE, .pid = one.pid, .unique = 9};
    struct kernel_near near;
    int *counts = arg;

    kernel_near_init(&near);
    counts[0] = cpus_after(&near, one, 5);
    counts[1] = cpus_after(&near, one, 20);
    counts[2] = cpus_after(&near, nobody, 1);
    counts[3] = cpus_after(&near, other, 1);
    counts[4] = cpus_after(&near, one, 25);
    (void)cpus_after(&near, first, 1);
    counts[6] = kernel_near_waits(8);
    counts[7] = kernel_near_waits(7);
    (void)cpus_after(&near, closes, 1);
    counts[8] = kernel_near_waits(9);
    counts[5] = cpus_after(&near, writes, 1);
    return NULL;
}

static void one_thread_that_sends_many_requests_is_followed(void **state)
{
    int counts[9];
    pthread_t thread;
    cpu_set_t set;
    int all;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    all = CPU_COUNT(&set);
    assert_int_equal(pthread_create(&thread, NULL, follow_main, counts), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(counts[0], all);
    assert_int_equal(counts[1], 1);
    assert_int_equal(counts[2], 1);
    assert_int_equal(counts[3], all);
    assert_int_equal(counts[4], 1);
    assert_int_equal(counts[5], all);
    assert_true(counts[6]);
    assert_false(counts[7]);
    assert_false(counts[8]);
}

/* ---- Who is answered runs at once ---- */

static void running_threads_are_read(void **state)
{
    (void)state;
    assert_int_equal(kernel_rest_running("0.20 0.18 0.12 1/80 11206\n"), 1);
    assert_int_equal(kernel_rest_running("0.20 0.18 0.12 31/80 11206\n"), 31);
    assert_int_equal(kernel_rest_running("0.20"), 0);
    assert_int_equal(kernel_rest_running(""), 0);
}

/* Sinks where it is quiet, and tells how it stood. */
struct sinker {
    struct kernel_rest rest;
    bool busy, quiet; /* Whether it sank. */
    int sunk, risen;  /* What it was then. */
    int waited;       /* What it was where it did not rise itself. */
};

static void *sink_main(void *arg)
{
    struct sinker *sinker = arg;
    struct kernel_rest *rest = &sinker->rest;
    int64_t late = clock_deadline(GUARD_S * 1000LL);

    sinker->busy = kernel_rest_sink(rest);
    atomic_store(&rest->quiet, true);
    sinker->quiet = kernel_rest_sink(rest);
    sinker->sunk = sched_getscheduler(0);
    kernel_rest_rise();
    sinker->risen = sched_getscheduler(0);
    do {
        atomic_store(&rest->quiet, true);
    } while (!kernel_rest_sink(rest));
    do {
        kernel_rest_note(rest);
        sinker->waited = sched_getscheduler(0);
    } while (sinker->waited != SCHED_OTHER && clock_ms() < late);
    kernel_rest_rise();
    return NULL;
}

static void who_answers_is_put_last_and_not_for_long(void **state)
{
    struct sinker *sinker = calloc(1, sizeof(*sinker));
    pthread_t thread;

    (void)state;
    assert_non_null(sinker);
    kernel_rest_init(&sinker->rest);
    if (!kernel_rest_begin(&sinker->rest)) {
        kernel_rest_done(&sinker->rest);
        free(sinker);
        skip(); /* One CPU, or no right to it. */
    }
    assert_int_equal(pthread_create(&thread, NULL, sink_main, sinker), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    kernel_rest_done(&sinker->rest);
    assert_false(sinker->busy);
    assert_true(sinker->quiet);
    assert_int_equal(sinker->sunk, SCHED_IDLE);
    assert_int_equal(sinker->risen, SCHED_OTHER);
    assert_int_equal(sinker->waited, SCHED_OTHER);
    free(sinker);
}

/* ---- The device ---- */

static int broken; /* The errno of reads from now on. */

ssize_t __real_read(int fd, void *out, size_t size);
ssize_t __wrap_read(int fd, void *out, size_t size);

ssize_t __wrap_read(int fd, void *out, size_t size)
{
    if (broken) {
        errno = broken;
        return -1;
    }
    return __real_read(fd, out, size);
}

/* A connection whose device is a pipe, in which nothing comes. */
struct device {
    struct fs fs;
    int ends[2];
};

static void device_open(struct device *device)
{
    static const struct fuse_lowlevel_ops none;
    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
    struct err err = ERR_INIT;
    char name[32];

    memset(device, 0, sizeof(*device));
    device->fs.kernel = kernel_new(0, false);
    assert_non_null(device->fs.kernel);
    assert_int_equal(fuse_opt_add_arg(&args, "test"), 0);
    device->fs.fuse = fuse_session_new(&args, &none, sizeof(none), &device->fs);
    assert_non_null(device->fs.fuse);
    fuse_opt_free_args(&args);
    assert_int_equal(pipe(device->ends), 0);
    (void)snprintf(name, sizeof(name), "/dev/fd/%d", device->ends[0]);
    assert_int_equal(fuse_session_mount(device->fs.fuse, name), 0);
    assert_int_equal(kernel_attach(&device->fs, &err), 0);
}

static void device_close(struct device *device)
{
    fuse_session_destroy(device->fs.fuse); /* And closes its end. */
    (void)close(device->ends[1]);
    kernel_free(device->fs.kernel);
}

/* What libfuse's loop gets, and whether it is to end. */
static int receive(int code, bool *ends)
{
    struct device device;
    struct fuse_buf buf = {.size = 0};
    int rc;

    device_open(&device);
    broken = code;
    rc = fuse_session_receive_buf(device.fs.fuse, &buf);
    broken = 0;
    *ends = fuse_session_exited(device.fs.fuse);
    free(buf.mem);
    device_close(&device);
    return rc;
}

static void a_request_cut_off_by_the_unmount_is_no_failure(void **state)
{
    bool ends;

    (void)state;
    assert_int_equal(receive(ENODEV, &ends), 0);
    assert_true(ends);
    assert_int_equal(receive(ECONNABORTED, &ends), 0);
    assert_true(ends);
    assert_int_equal(receive(EFAULT, &ends), -EFAULT);
}

/* The pipe knows nothing of rings. */
static void a_ring_that_breaks_ends_the_loop(void **state)
{
    int64_t late = clock_deadline(GUARD_S * 1000LL);
    struct fuse_loop_config *config;
    struct kernel_uring *uring;
    struct err err = ERR_INIT;
    struct kernel_rest rest;
    struct kernel_ring ring;
    struct device device;

    (void)state;
    kernel_rest_init(&rest);
    ring_open(&ring);
    kernel_ring_close(&ring);
    config = fuse_loop_cfg_create();
    device_open(&device);
    assert_int_equal(kernel_uring_new(device.fs.fuse, device.ends[0], PAYLOAD,
                                      &rest, &uring, &err),
                     0);
    assert_int_equal(signals_begin(device.fs.fuse, &err), 0);
    (void)alarm(GUARD_S); /* Else it would not end at all. */
    kernel_uring_start(uring);
    assert_int_equal(fuse_session_loop_mt(device.fs.fuse, config), 0);
    assert_true(clock_ms() < late);
    signals_hold();
    kernel_uring_free(uring);
    kernel_rest_done(&rest);
    fuse_loop_cfg_destroy(config);
    device_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features_are_read_by_name),
        cmocka_unit_test(a_ring_gives_back_all_that_was_put_in),
        cmocka_unit_test(what_came_by_no_ring_is_answered_elsewhere),
        cmocka_unit_test(one_thread_that_sends_many_requests_is_followed),
        cmocka_unit_test(running_threads_are_read),
        cmocka_unit_test(who_answers_is_put_last_and_not_for_long),
        cmocka_unit_test(a_request_cut_off_by_the_unmount_is_no_failure),
        cmocka_unit_test(a_ring_that_breaks_ends_the_loop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
