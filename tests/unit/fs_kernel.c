/* What depends on the kernel, as far as it needs no mount. */
#include "tests/cmocka.h"

#include "fs/kernel.h"
#include "fs/kernel_ring.h"
#include "fs/kernel_uring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
    ROUNDS = 100
};

/* More than fit at once, several times around. */
static void a_ring_gives_back_all_that_was_put_in(void **state)
{
    struct kernel_ring ring;
    uint64_t sum = 0;
    int rc = kernel_ring_open(&ring, SIZE);

    (void)state;
    if (rc == -EPERM || rc == -ENOSYS || rc == -EINVAL) {
        skip(); /* Not here, or only an old one. */
    }
    assert_int_equal(rc, 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features_are_read_by_name),
        cmocka_unit_test(a_ring_gives_back_all_that_was_put_in),
        cmocka_unit_test(what_came_by_no_ring_is_answered_elsewhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
