/* What ends a wait and what does not. */
#include "tests/e2e/tools.h"

#include "core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    INTERRUPT_MS = 1000
};

/* A command that no other process of this machine has; over 29 seconds. */
static const char *long_sleep(void)
{
    static char text[64];

    (void)snprintf(text, sizeof(text), mnt_sh() ? "sleep 29.%d%u" : "hang",
                   (int)getpid(), mnt.tests);
    return text;
}

/* One that ends after some milliseconds and prints `done`. */
static const char *short_sleep(int ms)
{
    static char text[64];

    (void)snprintf(text, sizeof(text),
                   mnt_sh() ? "sleep %d.%03d\necho done"
                            : "sleep %d%03d\necho done",
                   ms / 1000, ms % 1000);
    return text;
}

/* In a child: reads a file to its end. */
static int read_all(void *arg)
{
    char chunk[4096];
    int fd = open(arg, O_RDONLY);
    ssize_t n;

    if (fd < 0) {
        return errno;
    }
    child_ready();
    do {
        n = read(fd, chunk, sizeof(chunk));
    } while (n > 0);
    return n < 0 ? errno : 0;
}

static void command_running(const char *n)
{
    eventually(access(in("execs/%s", n), F_OK) == 0);
    eventually_text(in("execs/%s/status", n), "running\n");
}

/* Starts a writer that waits for a long command. */
static struct child waiting_writer(char *script)
{
    struct child child = child_start(child_write_exec, script);

    child_await(&child);
    command_running("1");
    process_asleep(child.pid);
    return child;
}

static void expect_ends(struct child *child, int signal_number)
{
    int64_t start = clock_ms();
    int status;

    expect_ok(kill(child->pid, signal_number));
    status = child_end(child, INTERRUPT_MS);
    if (status != 128 + signal_number) {
        fail_msg("signal %d: exit status %d", signal_number, status);
    }
    print_message("%s: %d ms\n", strsignal(signal_number),
                  (int)(clock_ms() - start));
}

static const int fatal[] = {SIGINT, SIGKILL, SIGTERM, SIGHUP, SIGQUIT};

static void a_fatal_signal_ends_a_waiting_writer_and_its_command(void **state)
{
    int64_t took = INT64_MAX;
    size_t i;

    for (i = 0; i < ARRAY_SIZE(fatal); i++) {
        char script[64];
        struct child child;
        int64_t start;

        (void)e2e_setup(state);
        (void)snprintf(script, sizeof(script),
                       mnt_sh() ? "%s & %s0; wait" : "%s %s", long_sleep(),
                       long_sleep());
        child = waiting_writer(script);
        assert_true(!mnt_sh() || process_exists(long_sleep()));
        start = clock_ms();
        expect_ends(&child, fatal[i]);
        eventually(!mnt_sh() || !process_exists(long_sleep()));
        eventually_text(in("execs/1/status"), "killed\n");
        expect_text(in("status"), "running\n");
        took = took < clock_ms() - start ? took : clock_ms() - start;
    }
    /* A tree that obeys TERM needs no KILL, a second later. */
    assert_true(took < INTERRUPT_MS);
}

static void a_fatal_signal_ends_a_waiting_reader_alone(void **state)
{
    static const char *const files[] = {"execs/1/wait", "exec"};
    char script[64];
    struct child writer;
    size_t i;

    (void)state;
    (void)snprintf(script, sizeof(script), "%s", long_sleep());
    writer = waiting_writer(script);
    for (i = 0; i < ARRAY_SIZE(fatal) * ARRAY_SIZE(files); i++) {
        char path[MNT_PATH_SIZE];
        struct child reader;

        (void)snprintf(path, sizeof(path), "%s", in("%s", files[i % 2]));
        reader = child_start(read_all, path);
        child_await(&reader);
        process_asleep(reader.pid);
        expect_ends(&reader, fatal[i / 2]);
    }
    expect_text(in("execs/1/status"), "running\n");
    expect_ends(&writer, SIGINT);
    eventually_text(in("execs/1/status"), "killed\n");
}

static void a_queued_command_is_taken_back_by_its_writer(void **state)
{
    char script[64];
    char other[] = "write never x";
    struct child writer;
    struct child queued;

    (void)state;
    (void)snprintf(script, sizeof(script), "%s", long_sleep());
    writer = waiting_writer(script);
    queued = child_start(child_write_exec, other);
    child_await(&queued);
    eventually(access(in("execs/2"), F_OK) == 0);
    expect_text(in("execs/2/status"), "queued\n");
    process_asleep(queued.pid);
    expect_ends(&queued, SIGINT);
    eventually_text(in("execs/2/status"), "killed\n");
    expect_ends(&writer, SIGKILL);
    put_ok(in("exec"), "echo next");
    expect_text(in("exec"), "next\n");
    expect_errno(access(in("workspace/never"), F_OK), ENOENT);
}

static void on_signal(int signal_number)
{
    (void)signal_number;
}

static struct {
    const char *name;
    int signal;
    int flags;    /* Of its handler. */
    bool handler; /* Else the default. */
    bool blocked;
} harmless[] = {
    {"SIGCHLD", SIGCHLD, 0, true, false},
    {"SIGWINCH", SIGWINCH, 0, true, false},
    {"SIGALRM", SIGALRM, 0, true, false},
    {"SIGALRM, restarting", SIGALRM, SA_RESTART, true, false},
    {"SIGUSR1", SIGUSR1, 0, true, false},
    {"SIGWINCH by default", SIGWINCH, 0, false, false},
    {"SIGTSTP", SIGTSTP, 0, false, false},
    {"SIGINT, blocked", SIGINT, 0, true, true},
};

/* A process that waits, in a session of its own. */
struct waiter {
    struct child writer; /* Waits in close. */
    struct child reader; /* Waits in read of `wait`. */
    size_t row;
    bool reads; /* Whether the reader, not the writer, is pestered. */
    char id[64];
    char path[2 * MNT_PATH_SIZE];
};

static void handle(size_t row)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t set;

    action.sa_flags = harmless[row].flags;
    if (harmless[row].handler) {
        (void)sigaction(harmless[row].signal, &action, NULL);
    }
    if (harmless[row].blocked) {
        (void)sigemptyset(&set);
        (void)sigaddset(&set, harmless[row].signal);
        (void)sigprocmask(SIG_BLOCK, &set, NULL);
    }
}

static int waiter_write(void *arg)
{
    const struct waiter *waiter = arg;

    if (!waiter->reads) {
        handle(waiter->row);
    }
    return child_write_exec((void *)(uintptr_t)short_sleep(1200));
}

static int waiter_read(void *arg)
{
    struct waiter *waiter = arg;

    handle(waiter->row);
    return read_all(waiter->path);
}

static void waiter_start(struct waiter *waiter)
{
    (void)e2e_setup(NULL);
    (void)snprintf(waiter->id, sizeof(waiter->id), "%s", mnt.id);
    (void)snprintf(waiter->path, sizeof(waiter->path), "%s",
                   in("execs/1/wait"));
    waiter->writer = child_start(waiter_write, waiter);
    child_await(&waiter->writer);
    command_running("1");
    if (waiter->reads) {
        waiter->reader = child_start(waiter_read, waiter);
        child_await(&waiter->reader);
    }
}

/* Each gets its row's signal again and again for a while. */
static void pester(const struct waiter *waiters, size_t count)
{
    const struct timespec pause_ms = {0, 50L * 1000 * 1000};
    size_t i;

    for (i = 0; i < 8 * count; i++) {
        const struct waiter *waiter = &waiters[i % count];
        pid_t pid = waiter->reads ? waiter->reader.pid : waiter->writer.pid;

        if (i % count == 0) {
            (void)nanosleep(&pause_ms, NULL);
        }
        (void)kill(pid, harmless[waiter->row].signal);
        (void)kill(pid, SIGCONT);
    }
}

static void waiter_check(struct waiter *waiter)
{
    const char *kind = waiter->reads ? "read" : "close";
    int status = child_end(&waiter->writer, TOOLS_SOON_MS);

    if (waiter->reads && status == 0) {
        status = child_end(&waiter->reader, TOOLS_SOON_MS);
    }
    if (status != 0) {
        fail_msg("%s in %s: %d", harmless[waiter->row].name, kind, status);
    }
    expect_text(at("sessions/%s/execs/1/status", waiter->id), "exited\n");
    expect_text(at("sessions/%s/exec", waiter->id), "done\n");
}

static void other_signals_end_no_wait(void **state)
{
    static struct waiter waiters[2 * ARRAY_SIZE(harmless)];
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_SIZE(waiters); i++) {
        waiters[i].row = i / 2;
        waiters[i].reads = i % 2 != 0;
        waiter_start(&waiters[i]);
    }
    pester(waiters, ARRAY_SIZE(waiters));
    expect_text(in("execs/1/status"), "running\n");
    for (i = 0; i < ARRAY_SIZE(waiters); i++) {
        waiter_check(&waiters[i]);
    }
}

static void strace_ends_no_wait(void **state)
{
    struct child child =
        child_start(child_write_exec, (void *)(uintptr_t)short_sleep(1500));
    char command[128];
    struct buf out = BUF_INIT(TOOLS_TEXT_MAX);

    (void)state;
    child_await(&child);
    command_running("1");
    (void)snprintf(command, sizeof(command),
                   "for i in 1 2 3; do timeout -k 0.1 -s INT 0.1 strace -p %d; "
                   "done",
                   (int)child.pid);
    (void)shell(command, TOOLS_SHELL_MS, &out);
    assert_non_null(strstr(buf_str(&out), "attached"));
    buf_done(&out);
    expect_text(in("execs/1/status"), "running\n");
    assert_int_equal(child_end(&child, TOOLS_SOON_MS), 0);
    expect_text(in("exec"), "done\n");
}

/* In a child: a shell in the foreground of a terminal, as far as signals go. */
static int shell_in_group(void *arg)
{
    (void)setpgid(0, 0);
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGQUIT, SIG_DFL);
    child_ready();
    (void)execl("/bin/bash", "bash", "-c", (char *)arg, (char *)NULL);
    return 127;
}

static void ctrl_c_in_a_shell_ends_the_command(void **state)
{
    char script[MNT_PATH_SIZE];
    struct child child;

    (void)state;
    (void)snprintf(script, sizeof(script),
                   "trap 'exit 9' INT; cd %s; echo '%s' > exec; echo no",
                   mnt.session, long_sleep());
    child = child_start(shell_in_group, script);
    child_await(&child);
    command_running("1");
    process_asleep(child.pid);
    expect_ok(kill(-child.pid, SIGINT));
    assert_int_equal(child_end(&child, INTERRUPT_MS), 9);
    eventually_text(in("execs/1/status"), "killed\n");
    eventually(!mnt_sh() || !process_exists(long_sleep()));
}

static const struct CMUnitTest tests[] = {
    e2e_test(a_fatal_signal_ends_a_waiting_writer_and_its_command),
    e2e_test(a_fatal_signal_ends_a_waiting_reader_alone),
    e2e_test(a_queued_command_is_taken_back_by_its_writer),
    e2e_test(other_signals_end_no_wait),
    e2e_test(strace_ends_no_wait),
    e2e_test(ctrl_c_in_a_shell_ends_the_command),
};

E2E_MAIN(tests)
