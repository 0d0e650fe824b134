/* Deadlines of work that an engine does not do: 10 s, and the unmount's. */
#include "tests/e2e/tools.h"

#include "core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    UNMOUNT_MS = 35000,
    FORGOTTEN_MS = 2100, /* What caches hold of a workspace is old then. */
};

static int write_running(void *arg)
{
    (void)arg;
    child_ready();
    return put(in("status"), "running").write;
}

static int write_paused(void *arg)
{
    (void)arg;
    child_ready();
    return put(in("status"), "paused").write;
}

static int open_exec(void *arg)
{
    (void)arg;
    child_ready();
    return put(in("exec"), "true").open;
}

static int make_file(void *arg)
{
    (void)arg;
    child_ready();
    return put_bytes(in("workspace/new"), O_CREAT, "x", 1).open;
}

static int make_dir(void *arg)
{
    (void)arg;
    child_ready();
    return mkdir(in("workspace/newdir"), 0755) == 0 ? 0 : errno;
}

static int make_link(void *arg)
{
    (void)arg;
    child_ready();
    return symlink("x", in("workspace/link")) == 0 ? 0 : errno;
}

static int read_file(void *arg)
{
    struct buf out = BUF_INIT(TOOLS_TEXT_MAX);
    int rc;

    (void)arg;
    child_ready();
    rc = get(in("workspace/f"), &out);
    buf_done(&out);
    return rc;
}

/* A request in a session of its own, whose engine is stuck. */
struct asker {
    const char *name;
    int (*fn)(void *);
    struct child child;
    char id[64];
};

static void asker_start(struct asker *asker)
{
    (void)e2e_setup(NULL);
    (void)snprintf(asker->id, sizeof(asker->id), "%s", mnt.id);
    mnt_fault(asker->id, "create", "stuck");
    asker->child = child_start(asker->fn, NULL);
    child_await(&asker->child);
}

static void what_holds_a_lock_is_answered_within_ten_seconds(void **state)
{
    static struct asker askers[] = {
        {.name = "write of status", .fn = write_running},
        {.name = "creation of a file", .fn = make_file},
        {.name = "mkdir", .fn = make_dir},
        {.name = "symlink", .fn = make_link},
    };
    static struct asker opener = {.name = "open of exec", .fn = open_exec};
    int64_t start = clock_ms();
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_SIZE(askers); i++) {
        asker_start(&askers[i]);
    }
    asker_start(&opener);
    for (i = 0; i < ARRAY_SIZE(askers); i++) {
        int status = child_end(&askers[i].child, 12000);

        print_message("%s: %s after %d ms\n", askers[i].name, strerror(status),
                      (int)(clock_ms() - start));
        assert_int_equal(status, EINPROGRESS);
        assert_true(clock_ms() - start > 8000);
        expect_text(at("sessions/%s/status", askers[i].id), "starting\n");
        mnt_fault(askers[i].id, "create", NULL);
        eventually_text(at("sessions/%s/status", askers[i].id), "running\n");
    }
    mnt_fault(opener.id, "create", NULL);
    assert_int_equal(child_end(&opener.child, TOOLS_SOON_MS), 0);
}

static int (*const waiting[])(void *) = {
    read_file,
    open_exec,
    write_paused,
    make_file,
};

static struct child children[ARRAY_SIZE(waiting)];

static void children_start(void)
{
    size_t i;

    mnt_running();
    put_ok(in("workspace/f"), "x");
    mnt_fault(mnt.id, NULL, "stuck");
    (void)usleep(FORGOTTEN_MS * 1000);
    for (i = 0; i < ARRAY_SIZE(waiting); i++) {
        children[i] = child_start(waiting[i], NULL);
        child_await(&children[i]);
    }
    process_asleep(children[0].pid);
}

static void children_kill(void)
{
    size_t i;

    for (i = 0; i < ARRAY_SIZE(waiting); i++) {
        (void)kill(children[i].pid, SIGKILL);
        (void)child_end(&children[i], TOOLS_SOON_MS);
    }
}

static void a_daemon_that_is_told_to_end_does_so_in_time(void **state)
{
    int64_t start;

    (void)state;
    children_start();
    start = clock_ms();
    expect_ok(kill(mnt.pid, SIGTERM));
    mnt_stopped();
    print_message("ended after %d ms\n", (int)(clock_ms() - start));
    assert_true(clock_ms() - start < UNMOUNT_MS);
    children_kill();
    mnt_fault(mnt.id, NULL, NULL);
    mnt_start();
    assert_true(strlen(text_of(in("status"))) > 1);
}

static void umount_after_stuck_requests_died_is_bounded(void **state)
{
    int64_t start;

    (void)state;
    children_start();
    children_kill();
    start = clock_ms();
    mnt_stop();
    print_message("ended after %d ms\n", (int)(clock_ms() - start));
    assert_true(clock_ms() - start < UNMOUNT_MS);
    mnt_fault(mnt.id, NULL, NULL);
    mnt_start();
    assert_true(strlen(text_of(in("status"))) > 1);
}

static const struct CMUnitTest tests[] = {
    e2e_test(what_holds_a_lock_is_answered_within_ten_seconds),
    e2e_test(a_daemon_that_is_told_to_end_does_so_in_time),
    e2e_test(umount_after_stuck_requests_died_is_bounded),
};

E2E_MAIN(tests)
