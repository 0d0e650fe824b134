/* What an engine does not take before the end is kept, and sent later. */
#include "tests/e2e/tools.h"

#include "core/clock.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int write_and_wait(void *arg)
{
    int fd = open(arg, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

    if (fd < 0 || write(fd, "mine", 4) != 4) {
        return 1;
    }
    child_ready();
    (void)pause();
    return 0;
}

/* Ends the daemon while somebody has written and not closed, and the engine
 * does as `what` says. */
static void end_unsent(const char *what)
{
    char path[MNT_PATH_SIZE];
    struct child child;
    int64_t start;

    (void)snprintf(path, sizeof(path), "%s", in("workspace/f"));
    child = child_start(write_and_wait, path);
    child_await(&child);
    mnt_fault(mnt.id, NULL, what);
    start = clock_ms();
    assert_int_equal(kill(mnt.pid, SIGTERM), 0);
    mnt_stopped();
    print_message("ended after %d ms\n", (int)(clock_ms() - start));
    assert_true(clock_ms() - start < 10 * 1000);
    (void)kill(child.pid, SIGKILL);
    (void)child_end(&child, TOOLS_SOON_MS);
    assert_non_null(
        strstr(text_of(mnt.log), "'f' was written and could not be sent"));
}

static void what_was_not_sent_is_sent_by_the_next_daemon(void **state)
{
    (void)state;
    expect_shell("echo old > workspace/f; echo true > exec", "");
    end_unsent("errno ENOTCONN");
    mnt_start();
    expect_shell("grep -c file.kept events", "1\n");
    eventually(strstr(text_of(in("error")), " send ") != NULL);
    mnt_kill(); /* Nothing of it goes. */
    mnt_fault(mnt.id, NULL, NULL);
    mnt_start();
    eventually(strstr(text_of(in("events")), "file.sent") != NULL);
    expect_shell("cat workspace/f; echo; find $STATE -name unsent", "mine\n");
}

static void an_engine_that_is_stuck_does_not_hold_the_end(void **state)
{
    (void)state;
    expect_shell("echo old > workspace/f; echo true > exec", "");
    mnt_stop();
    mnt.options = ",unmount_timeout=1";
    mnt_start();
    mnt.options = NULL;
    put_ok(in("exec"), "true");
    end_unsent("stuck");
    mnt_fault(mnt.id, NULL, NULL);
    mnt_start();
    eventually(strstr(text_of(in("events")), "file.sent") != NULL);
    expect_text(in("workspace/f"), "mine");
}

static void what_changed_meanwhile_is_not_lost(void **state)
{
    (void)state;
    expect_shell("echo old > workspace/f; echo theirs > workspace/g; "
                 "echo true > exec",
                 "");
    end_unsent("errno ENOTCONN");
    mnt_fault(mnt.id, NULL, NULL);
    mnt_fault(mnt.id, "put", "errno ENOTCONN");
    mnt_start();
    put_ok(in("status"), "running");
    expect_shell("mv workspace/g workspace/f; "
                 "(echo true > exec) 2>/dev/null; cat execs/2/status",
                 "failed\n");
    mnt_fault(mnt.id, "put", NULL);
    expect_shell("echo true > exec; cat workspace/f workspace/f.conflict-*; "
                 "echo; grep -c 'send.*conflict-' error; "
                 "grep -c file.conflict events",
                 "theirs\nmine\n1\n1\n");
}

/* Commands fail twice at most; nothing is lost. */
static void what_is_refused_twice_is_put_aside(void **state)
{
    (void)state;
    expect_shell("echo old > workspace/f; echo true > exec", "");
    end_unsent("errno ENOTCONN");
    mnt_fault(mnt.id, NULL, NULL);
    mnt_fault(mnt.id, "put", "errno EROFS");
    mnt_start();
    eventually(strstr(text_of(in("events")), "file.aside") != NULL);
    expect_shell(
        "echo true > exec; cat workspace/f workspace/f.unsent-*; "
        "echo; ls workspace | sed s/-.*/-1/; grep -c 'send.*f.unsent-' error; "
        "mv workspace/f.unsent-* workspace/g 2>/dev/null || "
        "cat workspace/f.unsent-*",
        "old\nmine\nf\nf.unsent-1\n1\nmine");
}

static void what_belongs_to_a_sandbox_goes_with_it(void **state)
{
    (void)state;
    expect_shell("echo old > workspace/f; echo true > exec", "");
    end_unsent("errno ENOTCONN");
    mnt_fault(mnt.id, NULL, NULL);
    mnt_fault(mnt.id, "put", "errno ENOTCONN");
    mnt_start();
    put_ok(in("status"), "absent");
    mnt_fault(mnt.id, "put", NULL);
    expect_shell("echo running > status; echo true > exec; ls workspace; "
                 "find $STATE -name unsent; grep -c file.sent events || true",
                 "0\n");
}

static const struct CMUnitTest tests[] = {
    e2e_test(what_was_not_sent_is_sent_by_the_next_daemon),
    e2e_test(an_engine_that_is_stuck_does_not_hold_the_end),
    e2e_test(what_changed_meanwhile_is_not_lost),
    e2e_test(what_is_refused_twice_is_put_aside),
    e2e_test(what_belongs_to_a_sandbox_goes_with_it),
};

E2E_MAIN(tests)
