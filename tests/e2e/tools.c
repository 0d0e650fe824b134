/* What end-to-end tests do over and over. */
#include "tests/e2e/tools.h"

#include "core/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    CHUNK = 128 * 1024
};

/* Where a child of child_start() says that it is ready. */
static int child_ready_fd = -1;

static void nap(void)
{
    const struct timespec ms = {0, 2L * 1000 * 1000};

    (void)nanosleep(&ms, NULL);
}

struct wrote put_bytes(const char *path, int flags, const void *data,
                       size_t size)
{
    struct wrote out = {0, 0, 0};
    int fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0644);

    if (fd < 0) {
        out.open = errno;
        return out;
    }
    if (size > 0) {
        ssize_t n = write(fd, data, size);

        if (n < 0) {
            out.write = errno;
        } else if ((size_t)n != size) {
            out.write = EIO;
        }
    }
    if (close(fd) != 0) {
        out.close = errno;
    }
    return out;
}

struct wrote put(const char *path, const char *text)
{
    return put_bytes(path, O_TRUNC, text, strlen(text));
}

void put_ok(const char *path, const char *text)
{
    struct wrote done = put_bytes(path, O_TRUNC | O_CREAT, text, strlen(text));

    if (done.open != 0 || done.write != 0 || done.close != 0) {
        fail_msg("write %s: open: %s, write: %s, close: %s", path,
                 strerror(done.open), strerror(done.write),
                 strerror(done.close));
    }
}

static int drain(int fd, struct buf *out)
{
    static char chunk[CHUNK];
    ssize_t n;

    do {
        n = read(fd, chunk, sizeof(chunk));
        if (n > 0 && buf_add(out, chunk, (size_t)n) != 0) {
            return EFBIG;
        }
    } while (n > 0);
    return n < 0 ? errno : 0;
}

const char *mnt_needs(void)
{
    const char *needs = getenv("NEEDS");

    return needs ? needs : "";
}

void configure(const char *fields)
{
    struct buf text = BUF_INIT(TOOLS_TEXT_MAX);

    assert_int_equal(buf_printf(&text, "{\"provider\": \"%s\", %s%s}",
                                mnt.provider, mnt_needs(), fields),
                     0);
    put_ok(in("config.json"), buf_str(&text));
    buf_done(&text);
}

int get(const char *path, struct buf *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc;

    buf_done(out);
    if (fd < 0) {
        return errno;
    }
    rc = drain(fd, out);
    (void)close(fd);
    return rc;
}

const char *text_of(const char *path)
{
    static struct buf text = BUF_INIT(TOOLS_TEXT_MAX);
    int rc = get(path, &text);

    if (rc != 0) {
        fail_msg("read %s: %s", path, strerror(rc));
    }
    return buf_str(&text);
}

void expect_text(const char *path, const char *want)
{
    const char *have = text_of(path);

    if (strcmp(have, want) != 0) {
        fail_msg("%s: '%.2000s', want '%.2000s'", path, have, want);
    }
}

void eventually_text(const char *path, const char *want)
{
    static struct buf text = BUF_INIT(TOOLS_TEXT_MAX);
    int64_t until = tools_soon();

    while (get(path, &text) != 0 || strcmp(buf_str(&text), want) != 0) {
        if (clock_ms() > until) {
            expect_text(path, want);
        }
        nap();
    }
}

uint64_t mnt_counter(const char *part)
{
    struct buf stats = BUF_INIT(TOOLS_TEXT_MAX);
    uint64_t sum = 0;
    char *save = NULL;
    char *line;

    if (get(at("stats"), &stats) != 0 || stats.size == 0) {
        fail_msg("stats cannot be read");
    }
    for (line = strtok_r(stats.data, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        const char *blank = strrchr(line, ' ');

        if (line[0] != '#' && blank && strstr(line, part)) {
            sum += strtoull(blank + 1, NULL, 10);
        }
    }
    buf_done(&stats);
    return sum;
}

int64_t tools_soon(void)
{
    return clock_deadline(TOOLS_SOON_MS);
}

void tools_poll(int64_t until, const char *what, const char *file, int line)
{
    if (clock_ms() > until) {
        fail_msg("%s:%d: never came true: %s", file, line, what);
    }
    nap();
}

static int exit_status(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* In the child: becomes the shell, in a process group of its own. */
static NORETURN void shell_exec(const char *script, int out)
{
    char dir[2 * MNT_PATH_SIZE];

    (void)snprintf(dir, sizeof(dir), "%s/T-%s", mnt.dir, mnt.id);
    (void)mkdir(dir, 0700);
    (void)setpgid(0, 0);
    (void)setenv("M", mnt.path, 1);
    (void)setenv("S", mnt.session, 1);
    (void)setenv("T", dir, 1);
    (void)setenv("STATE", mnt.state, 1);
    (void)setenv("CONTROL", mnt.control, 1);
    (void)setenv("NAP", mnt_sh() ? "sleep 0.7\n" : "sleep 700\n", 1);
    (void)setenv("HOME", mnt.dir, 1);
    (void)setenv("LC_ALL", "C.UTF-8", 1);
    /* Version managers' wrappers in PATH would be what is measured. */
    (void)setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
    (void)dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    (void)dup2(out, STDOUT_FILENO);
    (void)dup2(out, STDERR_FILENO);
    if (chdir(mnt.session) != 0) {
        _exit(126);
    }
    (void)setenv("NEEDS", mnt_needs(), 1);
    (void)setenv("KILL9", mnt_sh() ? "kill -9 $$\n" : "kill 9\n", 1);
    (void)setenv("ERR", mnt_sh() ? "echo err >&2\n" : "err err\n", 1);
    (void)setenv("BASH_ENV", mnt.words, 1);
    (void)execl("/bin/bash", "bash", "-c", script, (char *)NULL);
    _exit(127);
}

/* Reads what the script prints until it and all that it started are done. */
static bool shell_drain(int fd, int64_t deadline, struct buf *out)
{
    static char chunk[CHUNK];
    struct pollfd in_fd = {.fd = fd, .events = POLLIN};

    for (;;) {
        int64_t left = deadline - clock_ms();
        ssize_t n;

        if (left <= 0 || poll(&in_fd, 1, (int)left) <= 0) {
            return false;
        }
        n = read(fd, chunk, sizeof(chunk));
        if (n <= 0) {
            return true;
        }
        if (buf_add(out, chunk, (size_t)n) != 0) {
            return false;
        }
    }
}

int shell(const char *script, int timeout_ms, struct buf *out)
{
    int ends[2];
    bool done;
    int status = 0;
    pid_t pid;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        shell_exec(script, ends[1]);
    }
    (void)close(ends[1]);
    buf_done(out);
    done = shell_drain(ends[0], clock_deadline(timeout_ms), out);
    (void)close(ends[0]);
    if (!done) {
        (void)kill(-pid, SIGKILL);
    }
    (void)waitpid(pid, &status, 0);
    if (!done) {
        fail_msg("not done after %d ms: %s\nso far: %.2000s", timeout_ms,
                 script, buf_str(out));
    }
    return exit_status(status);
}

/* Whether a script ended with 0 and printed this; says what is wrong. */
static bool shell_prints(const char *name, const char *script, const char *want)
{
    struct buf out = BUF_INIT(TOOLS_TEXT_MAX);
    int status = shell(script, TOOLS_SHELL_MS, &out);
    bool same = status == 0 && strcmp(buf_str(&out), want) == 0;

    if (!same) {
        /* Not print_error(), which cuts after 1 KiB. */
        (void)fprintf(stderr,
                      "%s%s%s\n---- exit status %d, output:\n%.2000s---- "
                      "want:\n%.2000s----\n",
                      name, name[0] ? ":\n" : "", script, status, buf_str(&out),
                      want);
    }
    buf_done(&out);
    return same;
}

void expect_shell(const char *script, const char *want)
{
    if (!shell_prints("", script, want)) {
        fail_msg("a script did not print what it should");
    }
}

void expect_scripts(const struct script *rows, size_t count)
{
    unsigned failed = 0;
    size_t i;

    for (i = 0; i < count; i++) {
        (void)e2e_setup(NULL);
        if (!shell_prints(rows[i].name, rows[i].text, rows[i].want)) {
            failed++;
        }
    }
    if (failed > 0) {
        fail_msg("%u of %zu scripts failed", failed, count);
    }
}

void expect_sound_database(void)
{
    char script[2 * MNT_PATH_SIZE];

    (void)snprintf(script, sizeof(script),
                   "d=%s/copy; mkdir $d && cp %s/state.db* $d && python3 -c '\n"
                   "import sqlite3, sys\n"
                   "c = sqlite3.connect(sys.argv[1])\n"
                   "said = c.execute(\"pragma integrity_check\").fetchall()\n"
                   "assert said == [(\"ok\",)], said' $d/state.db && rm -r $d",
                   mnt.dir, mnt.state);
    assert_int_equal(system(script), 0);
}

static unsigned mounts(void)
{
    struct buf table = BUF_INIT(TOOLS_TEXT_MAX);
    unsigned count = 0;
    const char *at;

    assert_int_equal(get("/proc/self/mountinfo", &table), 0);
    for (at = strstr(buf_str(&table), mnt.path); at;
         at = strstr(at + 1, mnt.path)) {
        count++;
    }
    buf_done(&table);
    return count;
}

/* We adopt what a dead daemon leaves. */
static bool alone(void)
{
    char path[64];
    char own[32];
    pid_t pid;

    do {
        pid = waitpid(-1, NULL, WNOHANG);
    } while (pid > 0);
    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/children",
                   (int)getpid());
    (void)snprintf(own, sizeof(own), "%d ", (int)mnt.pid);
    return strcmp(text_of(path), own) == 0;
}

void expect_nothing_left(void)
{
    assert_int_equal(mounts(), 1);
    /* What lives on in sandboxes of `local` is looked for at the end; those of
     * `jsonl` are its program's. */
    if (!mnt_sh()) {
        eventually(alone());
    }
}

bool tools_have_node(void)
{
    if (access("/usr/bin/node", X_OK) == 0) {
        return true;
    }
    print_message("left out: there is no node\n");
    assert_null(getenv("CI"));
    return false;
}

struct child child_start(int (*fn)(void *arg), void *arg)
{
    struct child child;
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    child.pid = fork();
    assert_true(child.pid >= 0);
    if (child.pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)close(ends[0]);
        child_ready_fd = ends[1];
        _exit(fn(arg));
    }
    (void)close(ends[1]);
    child.ready = ends[0];
    return child;
}

void child_ready(void)
{
    (void)!write(child_ready_fd, "r", 1);
}

int child_write_exec(void *arg)
{
    const char *script = arg;
    int fd = open(in("exec"), O_WRONLY);

    if (fd < 0 || write(fd, script, strlen(script)) < 0) {
        return errno;
    }
    child_ready();
    return close(fd) == 0 ? 0 : errno;
}

int child_write_running(void *arg)
{
    struct wrote done;

    (void)arg;
    child_ready();
    done = put(in("status"), "running");
    return done.write;
}

void child_await(const struct child *child)
{
    struct pollfd ready = {.fd = child->ready, .events = POLLIN};
    char byte;

    assert_int_equal(poll(&ready, 1, TOOLS_SHELL_MS), 1);
    assert_int_equal(read(child->ready, &byte, 1), 1);
}

int child_end(struct child *child, int timeout_ms)
{
    int64_t deadline = clock_deadline(timeout_ms);
    bool late = false;
    int status = 0;

    while (waitpid(child->pid, &status, WNOHANG) == 0) {
        if (!late && clock_ms() > deadline) {
            (void)kill(child->pid, SIGKILL);
            late = true;
        }
        nap();
    }
    (void)close(child->ready);
    if (late) {
        fail_msg("a child did not end within %d ms", timeout_ms);
    }
    return exit_status(status);
}

/* `?` and 0 where it is gone. */
static char process_stat(pid_t pid, int *parent)
{
    char path[64];
    struct buf text = BUF_INIT(TOOLS_TEXT_MAX);
    const char *paren;
    char state = '?';

    *parent = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (get(path, &text) == 0) {
        paren = strrchr(buf_str(&text), ')');
        if (!paren || sscanf(paren, ") %c %d", &state, parent) != 2) {
            state = '?';
        }
    }
    buf_done(&text);
    return state;
}

void process_asleep(pid_t pid)
{
    int in_a_row = 0;
    int64_t until = tools_soon();

    /* Twenty times in a row: not the sleep of a moment. */
    while (in_a_row < 20) {
        int parent;
        char state = process_stat(pid, &parent);

        in_a_row = state == 'S' || state == 'D' ? in_a_row + 1 : 0;
        tools_poll(until, "the process sleeps", __FILE__, __LINE__);
    }
}

static bool command_has(pid_t pid, const char *command)
{
    struct buf text = BUF_INIT(TOOLS_TEXT_MAX);
    char path[64];
    bool found;
    size_t i;

    (void)snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    if (get(path, &text) != 0 || text.size == 0) {
        buf_done(&text);
        return false;
    }
    for (i = 0; i < text.size; i++) {
        text.data[i] = text.data[i] ? text.data[i] : ' ';
    }
    found = strstr(text.data, command) != NULL;
    buf_done(&text);
    return found;
}

/* What lost its parent is a child of ours, as we are the subreaper. */
static bool descends_from_us(pid_t pid)
{
    int parent = (int)pid;

    while (parent > 0 && parent != getpid()) {
        (void)process_stat(parent, &parent);
    }
    return parent > 0;
}

bool process_exists(const char *command)
{
    DIR *proc = opendir("/proc");
    const struct dirent *entry;
    bool found = false;

    assert_non_null(proc);
    while (!found && (entry = readdir(proc)) != NULL) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

        found = pid > 0 && pid != getpid() && command_has(pid, command) &&
                descends_from_us(pid);
    }
    (void)closedir(proc);
    return found;
}
