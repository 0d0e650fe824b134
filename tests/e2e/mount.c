/* A daemon on a real mount, for one test program. */
#include "tests/e2e/mount.h"

#include "core/clock.h"
#include "tests/e2e/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    START_MS = 60000,
    STOP_MS = 60000,
    SKIPPED = 77,
    PATHS = 16,
};

struct mnt mnt;

/* Guards against a wedged mount: kills the daemon, which ends every request. */
static struct {
    pthread_mutex_t lock;
    int64_t deadline; /* clock_ms(), 0: none. */
} watchdog = {PTHREAD_MUTEX_INITIALIZER, 0};

int mnt_unmount(int flags)
{
    char command[2 * MNT_PATH_SIZE];
    int rc = umount2(mnt.path, flags);

    if (rc == 0 || errno != EPERM) {
        return rc;
    }
    (void)snprintf(command, sizeof(command), "fusermount3 -u %s '%s'",
                   flags & MNT_DETACH ? "-z" : "", mnt.path);
    return system(command) == 0 ? 0 : -1;
}

static void watchdog_set(int64_t deadline)
{
    (void)pthread_mutex_lock(&watchdog.lock);
    watchdog.deadline = deadline;
    (void)pthread_mutex_unlock(&watchdog.lock);
}

static NORETURN void watchdog_bite(void)
{
    (void)fprintf(stderr, "e2e: deadline passed, killing the daemon\n");
    if (mnt.pid > 0) {
        (void)kill(mnt.pid, SIGKILL);
    }
    (void)mnt_unmount(MNT_DETACH);
    /* The test's system call ends now and its checks fail with their own
     * words; where they do not, the program ends here. */
    (void)sleep(5);
    _exit(124);
}

static void *watchdog_run(void *arg)
{
    const struct timespec nap = {0, 100L * 1000 * 1000};

    (void)arg;
    for (;;) {
        int64_t deadline;

        (void)pthread_mutex_lock(&watchdog.lock);
        deadline = watchdog.deadline;
        (void)pthread_mutex_unlock(&watchdog.lock);
        if (deadline != 0 && clock_ms() > deadline) {
            watchdog_bite();
        }
        (void)nanosleep(&nap, NULL);
    }
    return NULL;
}

static PRINTF(2, 0) const
    char *path_of(const char *top, const char *fmt, va_list args)
{
    static char paths[PATHS][2 * MNT_PATH_SIZE];
    static unsigned next;
    char *out = paths[next++ % PATHS];
    int n = snprintf(out, sizeof(paths[0]), "%s/", top);

    (void)vsnprintf(out + n, sizeof(paths[0]) - (size_t)n, fmt, args);
    return out;
}

const char *at(const char *fmt, ...)
{
    const char *path;
    va_list args;

    va_start(args, fmt);
    path = path_of(mnt.path, fmt, args);
    va_end(args);
    return path;
}

const char *in(const char *fmt, ...)
{
    const char *path;
    va_list args;

    va_start(args, fmt);
    path = path_of(mnt.session, fmt, args);
    va_end(args);
    return path;
}

bool mnt_local(void)
{
    return strcmp(mnt.provider, "local") == 0;
}

bool mnt_sh(void)
{
    return strcmp(mnt.provider, "mem") != 0;
}

bool mnt_scripts(void)
{
    return strcmp(mnt.provider, "jsonl") == 0;
}

void mnt_session(const char *id)
{
    if (mkdir(at("sessions/%s", id), 0700) != 0) {
        fail_msg("mkdir sessions/%s: %s", id, strerror(errno));
    }
}

void mnt_running(void)
{
    put_ok(in("status"), "running");
    expect_text(in("status"), "running\n");
}

/* In the child: becomes the daemon. */
static NORETURN void daemon_exec(int ready)
{
    const char *program = getenv("SESSIONFS_PROGRAM");
    const char *more = getenv("SESSIONFS_OPTIONS");
    char options[2 * MNT_PATH_SIZE];
    char number[16];
    int log = open(mnt.log, O_WRONLY | O_CREAT | O_APPEND, 0600);

    (void)snprintf(options, sizeof(options), "state=%s,provider=%s%s%s",
                   mnt.state, mnt.provider, more ? more : "",
                   mnt.options ? mnt.options : "");
    (void)snprintf(number, sizeof(number), "%d", ready);
    (void)setenv("SESSIONFS_MEM_CONTROL", mnt.control, 1);
    (void)setsid();
    (void)dup2(log, STDOUT_FILENO);
    (void)dup2(log, STDERR_FILENO);
    (void)execl(program ? program : SESSIONFS_PROGRAM, "sessionfs", "-f", "-o",
                options, "--ready-fd", number, mnt.path, (char *)NULL);
    _exit(127);
}

/* Starts it; the read end of its --ready-fd comes back. */
static int daemon_spawn(pid_t *pid)
{
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    assert_int_equal(fcntl(ends[0], F_SETFD, FD_CLOEXEC), 0);
    *pid = fork();
    assert_true(*pid >= 0);
    if (*pid == 0) {
        daemon_exec(ends[1]);
    }
    (void)close(ends[1]);
    return ends[0];
}

void mnt_start(void)
{
    struct pollfd ready = {.events = POLLIN};
    char byte;
    ssize_t n;

    ready.fd = daemon_spawn(&mnt.pid);
    assert_int_equal(poll(&ready, 1, START_MS), 1);
    n = read(ready.fd, &byte, 1);
    (void)close(ready.fd);
    if (n != 1) {
        fail_msg("the daemon ended before it was mounted, see its log");
    }
}

/* Waits for one process; -1: it did not end in time. */
static int await(pid_t pid, int64_t deadline)
{
    const struct timespec nap = {0, 5L * 1000 * 1000};
    int status = 0;

    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (clock_ms() > deadline) {
            return -1;
        }
        (void)nanosleep(&nap, NULL);
    }
    return status;
}

static bool mounted(void)
{
    struct buf table = BUF_INIT(TOOLS_TEXT_MAX);
    bool found = get("/proc/self/mountinfo", &table) == 0 &&
                 strstr(buf_str(&table), mnt.path) != NULL;

    buf_done(&table);
    return found;
}

/* We are the subreaper of all that the daemon left behind. */
static bool orphans_gone(void)
{
    int64_t deadline = clock_deadline(TOOLS_SOON_MS);
    const struct timespec nap = {0, 5L * 1000 * 1000};
    pid_t pid;

    for (;;) {
        pid = waitpid(-1, NULL, WNOHANG);
        if (pid < 0) {
            return true;
        }
        if (pid == 0) {
            if (clock_ms() > deadline) {
                return false;
            }
            (void)nanosleep(&nap, NULL);
        }
    }
}

/* Waits for the end of an unmounted daemon; NULL or what is wrong with it. */
static const char *daemon_ended(void)
{
    pid_t pid = mnt.pid;
    int status = await(pid, clock_deadline(STOP_MS));

    mnt.pid = 0;
    if (status == -1) {
        (void)kill(pid, SIGKILL);
        (void)await(pid, DEADLINE_NONE);
        (void)mnt_unmount(MNT_DETACH);
        return "the daemon did not end";
    }
    if (status != 0) {
        (void)fprintf(stderr, "e2e: wait status %#x\n", (unsigned)status);
        return "the daemon ended with a failure";
    }
    return mounted() ? "a mount is left" : NULL;
}

/* Whether sandboxes outlive the daemon. */
static bool keeps(void)
{
    return mnt_local() && mnt.options &&
           strstr(mnt.options, "on_unmount=keep") != NULL;
}

/* Whoever looks for files on this machine may be in the mount just then. */
static bool unmounts_soon(void)
{
    int64_t deadline = clock_deadline(TOOLS_SOON_MS);
    int rc;

    do {
        rc = mnt_unmount(0);
    } while (rc != 0 && errno == EBUSY && clock_ms() < deadline &&
             usleep(50 * 1000) == 0);
    return rc == 0;
}

static const char *daemon_end(void)
{
    const char *wrong;

    if (!unmounts_soon()) {
        (void)fprintf(stderr, "e2e: umount: %s\n", strerror(errno));
        (void)mnt_unmount(MNT_DETACH);
        (void)kill(mnt.pid, SIGKILL);
        (void)daemon_ended();
        return "the mount was busy";
    }
    wrong = daemon_ended();
    if (!wrong && !keeps() && !orphans_gone()) {
        wrong = "a process of the daemon is left";
    }
    return wrong;
}

void mnt_stop(void)
{
    const char *wrong = daemon_end();

    if (wrong) {
        fail_msg("%s", wrong);
    }
}

void mnt_stopped(void)
{
    const char *wrong = daemon_ended();

    if (wrong) {
        fail_msg("%s", wrong);
    }
}

void mnt_kill(void)
{
    assert_int_equal(kill(mnt.pid, SIGKILL), 0);
    (void)await(mnt.pid, clock_deadline(STOP_MS));
    mnt.pid = 0;
    (void)mnt_unmount(MNT_DETACH);
    /* The keeper of `local` waits for the next daemon with what it holds. */
    if (!mnt_local()) {
        assert_true(orphans_gone());
    }
}

int mnt_second(char *out, size_t size)
{
    char log[MNT_PATH_SIZE];
    struct buf text = BUF_INIT(TOOLS_TEXT_MAX);
    char path[MNT_PATH_SIZE];
    pid_t pid;
    int status;

    (void)snprintf(log, sizeof(log), "%s", mnt.log);
    (void)snprintf(path, sizeof(path), "%s", mnt.path);
    (void)snprintf(mnt.log, sizeof(mnt.log), "%.400s.2", log);
    (void)snprintf(mnt.path, sizeof(mnt.path), "%.400s.2", path);
    (void)mkdir(mnt.path, 0700);
    (void)close(daemon_spawn(&pid));
    status = await(pid, clock_deadline(START_MS));
    if (status == -1) {
        (void)kill(pid, SIGTERM);
        (void)await(pid, DEADLINE_NONE);
    }
    (void)get(mnt.log, &text);
    (void)snprintf(out, size, "%s", buf_str(&text));
    buf_done(&text);
    (void)mnt_unmount(MNT_DETACH);
    (void)rmdir(mnt.path);
    (void)snprintf(mnt.log, sizeof(mnt.log), "%s", log);
    (void)snprintf(mnt.path, sizeof(mnt.path), "%s", path);
    assert_int_not_equal(status, -1);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int e2e_setup(void **state)
{
    (void)state;
    watchdog_set(clock_deadline(MNT_TEST_SECONDS * 1000LL));
    if (mnt.pid > 0 && waitpid(mnt.pid, NULL, WNOHANG) == mnt.pid) {
        (void)fprintf(stderr, "e2e: the daemon died, starting another\n");
        (void)mnt_unmount(MNT_DETACH);
        mnt.pid = 0;
    }
    if (mnt.pid == 0) {
        mnt_start();
    }
    (void)snprintf(mnt.id, sizeof(mnt.id), "t%u", ++mnt.tests);
    (void)snprintf(mnt.session, sizeof(mnt.session), "%s",
                   at("sessions/%s", mnt.id));
    mnt_session(mnt.id);
    return 0;
}

int e2e_teardown(void **state)
{
    (void)state;
    watchdog_set(0);
    return 0;
}

/*
 * Control groups beside ours whose keepers are dead. Other tests may run beside
 * us, and the groups of a keeper that was killed stay until the next starts.
 * A keeper that lives holds its group's lock, also where we cannot see its pid.
 */
static int dead_groups(void)
{
    static const char script[] =
        "own=$(sed -n s/^0:://p /proc/self/cgroup)\n"
        "for d in /sys/fs/cgroup/unified$own/sessionfs-keeper.* "
        "/sys/fs/cgroup$own/sessionfs-keeper.*; do\n"
        "p=${d##*keeper.}; [ ! -d $d ] || [ -d /proc/${p%%.*} ] || "
        "! flock -n $d true || echo; done | wc -l";
    FILE *pipe = popen(script, "r");
    char text[32] = "";

    if (pipe) {
        (void)!fgets(text, sizeof(text), pipe);
        (void)pclose(pipe);
    }
    return (int)strtol(text, NULL, 10);
}

static bool groups_gone(int before)
{
    int64_t deadline = clock_deadline(TOOLS_SOON_MS);
    const struct timespec nap = {0, 50L * 1000 * 1000};

    while (dead_groups() > before) {
        if (clock_ms() > deadline) {
            return false;
        }
        (void)nanosleep(&nap, NULL);
    }
    return true;
}

static void log_show(void)
{
    struct buf text = BUF_INIT(TOOLS_TEXT_MAX);
    size_t skip;

    if (get(mnt.log, &text) == 0 && text.size > 0) {
        skip = text.size > 8000 ? text.size - 8000 : 0;
        (void)fprintf(stderr, "---- the daemon's log ----\n%s\n",
                      text.data + skip);
    }
    buf_done(&text);
}

static void remove_all(void)
{
    char command[2 * MNT_PATH_SIZE];

    /* One file system only: never through a mount that is left. */
    (void)snprintf(command, sizeof(command), "rm -rf --one-file-system '%s'",
                   mnt.dir);
    if (mounted() || system(command) != 0) {
        (void)fprintf(stderr, "e2e: %s is left\n", mnt.dir);
    }
}

/* Functions of shells that run a command with an effect on a file. */
static const char words_of_sh[] =
    "in_write() { echo \"echo $2 > $1\" > exec; }\n"
    "in_append() { echo \"echo $2 >> $1\" > exec; }\n"
    "in_rm() { echo \"rm $1\" > exec; }\n"
    "in_cat() { echo \"cat $1\" > exec; cat exec; }\n";
static const char words_of_mem[] =
    "in_write() { echo \"write $1 $2\" > exec; }\n"
    "in_append() { echo \"append $1 $2\" > exec; }\n"
    "in_rm() { echo \"rm $1\" > exec; }\n"
    "in_cat() { echo \"cat $1\" > exec; cat exec; }\n";

static void directories_make(void)
{
    const char *top = getenv("TMPDIR");

    (void)snprintf(mnt.dir, sizeof(mnt.dir), "%.300s/sessionfs-e2e-XXXXXX",
                   top ? top : SESSIONFS_BUILD_DIR);
    if (!mkdtemp(mnt.dir)) {
        (void)fprintf(stderr, "e2e: %s: %s\n", mnt.dir, strerror(errno));
        exit(1);
    }
    (void)snprintf(mnt.path, sizeof(mnt.path), "%.400s/mnt", mnt.dir);
    (void)snprintf(mnt.state, sizeof(mnt.state), "%.400s/state", mnt.dir);
    (void)snprintf(mnt.control, sizeof(mnt.control), "%.400s/control", mnt.dir);
    (void)snprintf(mnt.log, sizeof(mnt.log), "%.400s/log", mnt.dir);
    (void)snprintf(mnt.words, sizeof(mnt.words), "%.400s/words", mnt.dir);
    (void)mkdir(mnt.path, 0700);
    (void)mkdir(mnt.control, 0700);
    put_ok(mnt.words, mnt_sh() ? words_of_sh : words_of_mem);
}

/* At home a test that cannot run is a skip, in CI a failure. */
static int unable(const char *why)
{
    (void)fprintf(stderr, "e2e: %s\n", why);
    return getenv("CI") ? 1 : SKIPPED;
}

/* Runs those tests that are for this provider; the number of failed ones. */
static int tests_run(const char *name, const struct CMUnitTest *tests,
                     size_t count)
{
    struct CMUnitTest *mine = calloc(count, sizeof(*mine));
    size_t n = 0;
    size_t i;
    int failed;

    if (!mine) {
        return -1;
    }
    for (i = 0; i < count; i++) {
        const char *only = tests[i].initial_state;

        if (!only || strcmp(only, mnt.provider) == 0 ||
            (strcmp(only, "sh") == 0 && mnt_sh()) ||
            (strcmp(only, "pauses") == 0 && !mnt_scripts())) {
            mine[n++] = tests[i];
        }
    }
    failed = _cmocka_run_group_tests(name, mine, n, NULL, NULL);
    free(mine);
    return failed;
}

int e2e_run(int argc, char **argv, const struct CMUnitTest *tests, size_t count)
{
    const char *wrong = NULL;
    pthread_t thread;
    int groups;
    int failed;

    if (argc < 2) {
        (void)fprintf(stderr, "usage: %s PROVIDER [TEST]\n", argv[0]);
        return 2;
    }
    if (access("/dev/fuse", R_OK | W_OK) != 0) {
        return unable("no /dev/fuse");
    }
    mnt.provider = argv[1];
    if (argc > 2) {
        cmocka_set_test_filter(argv[2]);
    }
    directories_make();
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1L);
    (void)pthread_create(&thread, NULL, watchdog_run, NULL);
    groups = dead_groups();
    failed = tests_run(argv[0], tests, count);
    watchdog_set(clock_deadline(MNT_TEST_SECONDS * 1000LL));
    if (mnt.pid > 0) {
        wrong = daemon_end();
    }
    if (!wrong && !groups_gone(groups)) {
        wrong = "a control group is left";
    }
    watchdog_set(0);
    if (failed != 0 || wrong) {
        (void)fprintf(stderr, "e2e: %d failed; at the end: %s\n", failed,
                      wrong ? wrong : "fine");
        log_show();
    }
    remove_all();
    return failed != 0 || wrong ? 1 : 0;
}
