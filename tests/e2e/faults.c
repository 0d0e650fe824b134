/* What a failing engine looks like through the mount. */
#include "tests/e2e/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void a_failing_start_is_the_error_of_open(void **state)
{
    struct wrote done;

    (void)state;
    mnt_fault(mnt.id, "create", "errno EDQUOT");
    done = put(in("exec"), "echo hi");
    assert_int_equal(done.open, EDQUOT);
    done = put(in("status"), "running");
    assert_int_equal(done.write, EDQUOT);
    assert_int_equal(mkdir(in("workspace/d"), 0755), -1);
    assert_int_equal(errno, EDQUOT);
    expect_shell("(echo 'echo hi' > exec) 2>&1 | grep -o 'Disk quota exceeded';"
                 "ls execs; ls workspace; grep -c EDQUOT error",
                 "Disk quota exceeded\n4\n");
    mnt_fault(mnt.id, "create", NULL);
    expect_shell("echo 'echo hi' > exec; cat exec status", "hi\nrunning\n");
}

/* The same number means another thing when a file is looked for. */
static void a_start_that_fails_with_an_everyday_number_is_told(void **state)
{
    struct wrote done;

    (void)state;
    mnt_fault(mnt.id, "create", "errno ENOENT");
    done = put(in("exec"), "echo hi");
    assert_int_equal(done.open, ENOENT);
    assert_int_equal(mkdir(in("workspace/d"), 0755), -1);
    assert_int_equal(errno, ENOENT);
    expect_shell("cat exec.json workspace/none 2> /dev/null;"
                 "(echo '{' > exec.json) 2> /dev/null; grep -c ENOENT error",
                 "3\n");
    mnt_fault(mnt.id, "create", NULL);
}

static void a_command_that_cannot_run_keeps_its_number(void **state)
{
    struct wrote done;

    (void)state;
    put_ok(in("exec"), "echo one");
    mnt_fault(mnt.id, "exec", "errno ENOSPC");
    done = put(in("exec"), "echo two");
    assert_int_equal(done.open, 0);
    assert_int_equal(done.write, 0);
    assert_int_equal(done.close, ENOSPC);
    expect_text(in("execs/2/status"), "failed\n");
    expect_text(in("execs/2/exit_code"), "");
    assert_true(strlen(text_of(in("execs/2/error"))) > 1);
    expect_errno(open(in("exec"), O_RDONLY), ENOSPC);
    expect_shell("readlink execs/last; cat exec 2>&1 | grep -o 'No space left'",
                 "2\nNo space left\n");
    mnt_fault(mnt.id, "exec", NULL);
    expect_shell("echo 'echo three' > exec; cat exec; readlink execs/last",
                 "three\n3\n");
}

static const struct {
    const char *op;
    const char *fault;
    int code;
} words[] = {
    {"pause", "errno EACCES", EACCES},
    {"pause", "errno ENOTCONN", ENOTCONN},
    {"pause", "errno ETIMEDOUT", ETIMEDOUT},
    {"destroy", "errno EIO", EIO},
};

static void each_failure_has_its_errno_and_words(void **state)
{
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_SIZE(words); i++) {
        struct wrote done;

        (void)e2e_setup(state);
        mnt_running();
        mnt_fault(mnt.id, words[i].op, words[i].fault);
        done = put(in("status"),
                   strcmp(words[i].op, "pause") == 0 ? "paused" : "absent");
        assert_int_equal(done.write, words[i].code);
        assert_true(strlen(text_of(in("error"))) > 10);
        mnt_fault(mnt.id, words[i].op, NULL);
    }
}

static void an_unconfirmed_deletion_is_tried_again(void **state)
{
    (void)state;
    mnt_running();
    mnt_fault(mnt.id, "destroy", "errno EIO");
    assert_int_equal(put(in("status"), "absent").write, EIO);
    expect_errno(rmdir(mnt.session), ENOTEMPTY);
    mnt_fault(mnt.id, "destroy", NULL);
    eventually_text(in("status"), "absent\n");
    expect_ok(rmdir(mnt.session));
}

static void a_file_error_reaches_the_caller(void **state)
{
    char byte;
    int fd;

    (void)state;
    expect_shell("in_write f hello", "");
    fd = open(in("workspace/f"), O_RDONLY | O_CLOEXEC);
    mnt_fault(mnt.id, "get", "errno EIO");
    expect_errno(pread(fd, &byte, 1, 0) < 0 ? -1 : 0, EIO);
    mnt_fault(mnt.id, "get", NULL);
    assert_int_equal(pread(fd, &byte, 1, 0), 1);
    expect_ok(close(fd));
    mnt_fault(mnt.id, "put", "errno ENOSPC");
    fd = open(in("workspace/f"), O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(write(fd, "x", 1) < 0 || fsync(fd) < 0 || close(fd) < 0);
    assert_int_equal(errno, ENOSPC);
    (void)close(fd);
    mnt_fault(mnt.id, "put", NULL);
    /* It is let go at the file's release, which nobody waits for. */
    eventually_text(in("workspace/f"), "hello\n");
    expect_shell("in_cat f", "hello\n");
}

static void a_lost_sandbox_is_replaced_only_when_asked(void **state)
{
    (void)state;
    put_ok(in("workspace/f"), "x");
    mnt_fault(mnt.id, "lost", "");
    eventually_text(in("status"), "lost\n");
    assert_int_equal(put(in("exec"), "true").open, ESTALE);
    expect_errno(open(in("workspace/f"), O_WRONLY), ESTALE);
    put_ok(in("status"), "running");
    expect_shell("cat status; ls workspace", "running\n");
}

static const struct CMUnitTest tests[] = {
    e2e_test(a_failing_start_is_the_error_of_open),
    e2e_test(a_start_that_fails_with_an_everyday_number_is_told),
    e2e_test(a_command_that_cannot_run_keeps_its_number),
    e2e_test(each_failure_has_its_errno_and_words),
    e2e_test(an_unconfirmed_deletion_is_tried_again),
    e2e_test(a_file_error_reaches_the_caller),
    e2e_test(a_lost_sandbox_is_replaced_only_when_asked),
};

E2E_MAIN(tests)
