/*
 * The daemon is killed, or ended, at random moments, again and again, while
 * sessions run commands, write files, pause, resume and lose their sandboxes,
 * and others come, get configs and names, and go. Whatever was reported is
 * there after each start.
 * usage: e2e_killed PROVIDER [ROUNDS [kill|end [SEED]]]
 */
#include "tests/e2e/killed.h"
#include "tests/e2e/tools.h"

#include "core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    WORKERS = 4,
    KILL_MS = 400,  /* A round ends at a random moment up to then, */
    SLOW_MS = 4000, /* where each call starts a program. */
    END_MS = 20000, /* How long a worker of a dead daemon may take to end. */
};

/* How a round ends. */
enum ending {
    END_KILL,
    END_TERM,
    END_UMOUNT, /* The next daemon waits for the end of this one. */
};

static unsigned rounds = 20;
static bool kills = true; /* Or ends. */
static uint64_t seed;
atomic_bool *ending;
static struct worker *workers;

/* Whether the record whose line ends at `at` is of a killed command. */
static bool is_killed(const char *records, const char *at)
{
    while (at > records && at[-1] != '\n') {
        at--;
    }
    return strncmp(at, "killed ", 7) == 0;
}

static void check_exec(const struct worker *worker, const struct entry *entry,
                       const char *records)
{
    char line[64];
    const char *at;

    (void)snprintf(line, sizeof(line), " tag-%u\n", entry->tag);
    at = strstr(records, line);
    if (at && strstr(at + 1, line)) {
        fail_msg("k%u:%s ran twice", worker->number, line);
    }
    if (entry->cut && !(at && is_killed(records, at))) {
        fail_msg("k%u: not cut: %s", worker->number, records);
    }
    (void)snprintf(line, sizeof(line), "exited 0 tag-%u tag-%u\n", entry->tag,
                   entry->tag);
    if (entry->done && !strstr(records, line)) {
        fail_msg("k%u: lost: %s", worker->number, line);
    }
}

static void check_file(const struct worker *worker, const struct entry *entry)
{
    char path[64];
    char text[64];

    /* The files of mem are in the daemon. */
    if (entry->done && mnt_sh()) {
        (void)snprintf(path, sizeof(path), "workspace/f%u", entry->tag);
        (void)snprintf(text, sizeof(text), "tag-%u\n", entry->tag);
        expect_text(mine(worker, path), text);
    }
}

/* The config is the last that was reported, or that which was being written. */
static void check_config(struct worker *worker, const struct entry *open)
{
    char path[2 * MNT_PATH_SIZE];
    const char *text;
    const char *at;
    unsigned limit;

    (void)snprintf(path, sizeof(path), "%s/config.json",
                   coming(worker, worker->moved));
    text = text_of(path);
    at = strstr(text, "exec_timeout_ms");
    limit =
        at ? (unsigned)strtoul(at + strcspn(at, "0123456789n"), NULL, 10) : 0;
    if (limit != worker->limit &&
        !(open && open->kind == KIND_CONFIG && limit == limit_of(open))) {
        fail_msg("k%u: not %u: %s", worker->number, worker->limit, text);
    }
    worker->limit = limit;
}

/* The session that comes and goes: as it was reported last, or as it was being
 * made when the daemon died. */
static void check_session(struct worker *worker)
{
    const struct entry *last =
        worker->count ? &worker->entries[worker->count - 1] : NULL;
    const struct entry *open = last && !last->done ? last : NULL;
    bool here = access(coming(worker, worker->moved), F_OK) == 0;
    bool there = access(coming(worker, !worker->moved), F_OK) == 0;

    if (there && (here || !open || open->kind != KIND_RENAME)) {
        fail_msg("%s is there", coming(worker, !worker->moved));
    }
    if (there) {
        worker->moved = !worker->moved;
    } else if (here != worker->made && !(open && (open->kind == KIND_MKDIR ||
                                                  open->kind == KIND_RMDIR))) {
        fail_msg("%s is %s", coming(worker, worker->moved),
                 here ? "there" : "gone");
    }
    if (here && !worker->made) {
        worker->limit = 0;
    }
    worker->made = here || there;
    if (worker->made) {
        check_config(worker, open);
    }
}

static const char *record_of(const struct worker *worker, unsigned n,
                             const char *file)
{
    return text_of(at("sessions/k%u/execs/%u/%s", worker->number, n, file));
}

/* Says a line for each new record, which is waited for where a daemon has found
 * it running: its status, exit code, output and what it was told to say. */
static void records_of(struct worker *worker, struct buf *out)
{
    static const char *const files[] = {"status", "exit_code", "output"};

    while (
        access(at("sessions/k%u/execs/%u", worker->number, worker->records + 1),
               F_OK) == 0) {
        unsigned n = ++worker->records;

        (void)record_of(worker, n, "wait");
        for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
            const char *text = record_of(worker, n, files[i]);

            assert_int_equal(
                buf_printf(out, "%.*s ", (int)strcspn(text, "\n"), text), 0);
        }
        /* Without `echo `; with its newline. */
        assert_int_equal(
            buf_printf(out, "%s", record_of(worker, n, "command") + 5), 0);
    }
    if (strstr(buf_str(out), "running") || strstr(buf_str(out), "queued")) {
        fail_msg("k%u: %s", worker->number, buf_str(out));
    }
}

/* The first entry whose file was in no sandbox that was deleted. */
static unsigned first_kept(const struct worker *worker)
{
    unsigned first = worker->count;

    while (first && worker->entries[first - 1].kind != KIND_DELETE) {
        first--;
    }
    return first;
}

static unsigned check_worker(struct worker *worker)
{
    struct buf records = BUF_INIT(TOOLS_TEXT_MAX);
    unsigned first = first_kept(worker);
    unsigned done = 0;

    if (worker->failed) {
        fail_msg("k%u: %s", worker->number, strerror(worker->failed));
    }
    records_of(worker, &records);
    for (unsigned i = 0; i < worker->count; i++) {
        const struct entry *entry = &worker->entries[i];

        done += entry->done;
        if (entry->kind == KIND_EXEC) {
            check_exec(worker, entry, buf_str(&records));
        } else if (entry->kind == KIND_FILE && i >= first) {
            check_file(worker, entry);
        }
    }
    check_session(worker);
    worker->count = 0;
    buf_done(&records);
    return done;
}

/* In a child: a command that does not end by itself. Who waits for one holds a
 * file open, and with it a mount that is unmounted otherwise. */
static int linger(void *arg)
{
    const enum ending *how = arg;

    (void)put(at("sessions/linger/status"), "running");
    if (*how == END_UMOUNT) {
        (void)put(at("sessions/linger/exec.json"),
                  "{\"command\": \"sleep 100000\", \"background\": true}");
    } else {
        (void)put(at("sessions/linger/exec"), "sleep 100000\n");
    }
    return 0;
}

/* In a child: follows a file until it goes away. */
static int follow(void *arg)
{
    int fd = open(at("sessions/linger/events"), O_RDONLY | O_CLOEXEC);
    char text[4096];

    (void)arg;
    while (!atomic_load(ending) && read(fd, text, sizeof(text)) >= 0) {
        (void)usleep(10 * 1000);
    }
    (void)close(fd);
    return 0;
}

/* Waits for a daemon whose mount is gone. */
static void await_end(pid_t pid)
{
    int64_t deadline = clock_deadline(END_MS);
    int status = -1;

    while (waitpid(pid, &status, WNOHANG) == 0 && clock_ms() < deadline) {
        (void)usleep(5 * 1000);
    }
    assert_int_equal(status, 0);
}

static void change_daemons(enum ending how)
{
    pid_t old = mnt.pid;
    const char *log;

    switch (how) {
    case END_KILL:
        expect_ok(kill(old, SIGKILL));
        assert_int_equal(waitpid(old, NULL, 0), old);
        expect_sound_database();
        mnt_start();
        break;
    case END_TERM:
        expect_ok(kill(old, SIGTERM));
        mnt_stopped();
        expect_sound_database();
        mnt_start();
        break;
    case END_UMOUNT:
        expect_ok(mnt_unmount(0));
        mnt_start();
        await_end(old);
        break;
    }
    /* Nothing hinders a pause: no sandbox may be left running. */
    log = text_of(mnt.log);
    if (strstr(log, "left behind") && !mnt_scripts()) {
        fail_msg("%s", log);
    }
}

static void end_all(struct child *children, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(child_end(&children[i], END_MS), 0);
    }
}

/* Lets them work until a random moment; what they were told comes to be
 * checked. */
static unsigned round_run(uint64_t *random)
{
    struct timespec until = {0, 0};
    struct child children[WORKERS + 2];
    enum ending how = END_KILL;
    unsigned done = 0;
    unsigned ms;

    if (!kills) {
        how = choose(random, 2) ? END_TERM : END_UMOUNT;
    }
    atomic_store(ending, false);
    for (unsigned i = 0; i < WORKERS; i++) {
        children[i] = child_start(work, &workers[i]);
    }
    children[WORKERS] = child_start(linger, &how);
    children[WORKERS + 1] = child_start(follow, NULL);
    ms = choose(random, mnt_scripts() ? SLOW_MS : KILL_MS);
    until.tv_sec = ms / 1000;
    until.tv_nsec = (long)(ms % 1000) * 1000 * 1000;
    (void)nanosleep(&until, NULL);
    atomic_store(ending, !kills);
    if (how == END_UMOUNT) {
        /* Files that are open would be in the way. */
        end_all(children, ARRAY_SIZE(children));
        change_daemons(how);
    } else {
        change_daemons(how);
        end_all(children, ARRAY_SIZE(children));
    }
    expect_nothing_left();
    for (unsigned i = 0; i < WORKERS; i++) {
        done += check_worker(&workers[i]);
    }
    return done;
}

static void what_was_reported_outlives_any_end(void **state)
{
    uint64_t random = seed;
    unsigned done = 0;

    workers = mmap(NULL, WORKERS * sizeof(*workers), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(workers != MAP_FAILED);
    ending = mmap(NULL, sizeof(*ending), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(ending != MAP_FAILED);
    mnt_session("linger");
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i].number = i;
        workers[i].random = seed + i + 1;
        mnt_session(mine(&workers[i], "") + strlen(at("sessions/")));
    }
    for (unsigned i = 0; i < rounds; i++) {
        /* A new deadline. */
        (void)e2e_setup(state);
        done += round_run(&random);
        expect_ok(rmdir(mnt.session));
    }
    print_message("%u rounds, %u successes, seed %llu\n", rounds, done,
                  (unsigned long long)seed);
    assert_true(done > rounds);
    expect_ok(munmap(ending, sizeof(*ending)));
    expect_ok(munmap(workers, WORKERS * sizeof(*workers)));
}

static const struct CMUnitTest tests[] = {
    e2e_test(what_was_reported_outlives_any_end),
};

int main(int argc, char **argv)
{
    if (argc > 2) {
        rounds = (unsigned)strtoul(argv[2], NULL, 10);
    }
    kills = argc < 4 || strcmp(argv[3], "end") != 0;
    seed = argc > 4 ? strtoull(argv[4], NULL, 10) : (uint64_t)clock_wall_us();
    return e2e_run(argc < 2 ? argc : 2, argv, tests, ARRAY_SIZE(tests));
}
