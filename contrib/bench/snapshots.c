/*
 * Checkpoints, restores and forks of a workspace in which few files of few or
 * of many have changed. See bench.h.
 */
#include "contrib/bench/bench.h"

#include "core/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    NAME = 32,
    CHANGED = 10,
    FEW = 1000,
    DIR_FILES = 100,
    SAMPLES_MAX = 64,
    LINE = 4096,
    LOG_SIZE = 1 << 20,
    INSTALL_PART = 10, /* Of the larger workspace. */
    WALK_TURNS = 5,
    MORE_ROOM = 16 * 1024,
    FD_MOST = 16,
    TAKE_US = 5000, /* What is promised, */
    RESTORE_US = 15000,
    FORK_US = 8000,
    WALKS = 5,          /* and so many walks for an install, */
    WALKS_DURABLE = 20, /* also of what is on the disk then. */
};

#define DURATION "\"duration_ms\":"

static const double more_files = 1.5; /* What many files cost more. */

enum piece {
    CHECKPOINT,
    RESTORE,
    FORK,
    PIECES,
};

static const char *const names_few[PIECES] = {
    "checkpoint, few files", "restore, few files", "fork, few files"};
static const char *const names_many[PIECES] = {
    "checkpoint, many files", "restore, many files", "fork, many files"};

/* The latencies of one workspace. */
struct subject {
    const char *session;
    unsigned files;
    double us[PIECES][SAMPLES_MAX];
    unsigned counts[PIECES];
};

static int write_file(const char *path, int flags, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0644);
    ssize_t size = (ssize_t)strlen(text);
    int rc;

    if (fd < 0) {
        return -errno;
    }
    rc = write(fd, text, (size_t)size) == size ? 0 : -errno;
    return close(fd) < 0 && rc == 0 ? -errno : rc;
}

static int change_one(const char *top, unsigned dir, unsigned file,
                      unsigned turn)
{
    char path[2 * NAME];
    char text[BLOCK + 1];

    (void)snprintf(path, sizeof(path), "%s/d%u/f%u", top, dir, file);
    (void)snprintf(text, sizeof(text), "%*u\n", BLOCK - 1, turn);
    return write_file(path, O_TRUNC, text);
}

int snapshots_change(const char *top, unsigned turn)
{
    int rc = 0;

    for (unsigned i = 0; i < CHANGED && rc == 0; i++) {
        rc = change_one(top, i, turn % 10, turn);
    }
    return rc;
}

/* In the session's directory. */
static int change_files(unsigned turn)
{
    return snapshots_change("workspace", turn);
}

static int change_near(unsigned turn)
{
    int rc = 0;

    for (unsigned i = 0; i < CHANGED && rc == 0; i++) {
        rc = change_one("workspace", turn % 10, i, turn);
    }
    return rc;
}

void snapshots_script(char *out, size_t size, unsigned files)
{
    (void)snprintf(out, size,
                   "d=0; while [ $d -lt %u ]; do mkdir d$d; f=0;"
                   " while [ $f -lt %d ]; do echo $f >d$d/f$f;"
                   " f=$((f + 1)); done; d=$((d + 1)); done\n",
                   files / DIR_FILES, DIR_FILES);
}

/* By a command, after which there is a checkpoint that has all of them. */
static int fill(unsigned files)
{
    char script[512];

    snapshots_script(script, sizeof(script), files);
    return write_file("exec", 0, script);
}

static int take(unsigned turn)
{
    char path[NAME];

    (void)snprintf(path, sizeof(path), "checkpoints/turn.%u", turn);
    return mkdir(path, 0755) < 0 ? -errno : 0;
}

static int restore(unsigned turn)
{
    char text[NAME];

    (void)snprintf(text, sizeof(text), "turn.%u\n", turn);
    return write_file("restore", 0, text);
}

static int fork_it(unsigned turn)
{
    char text[NAME];

    (void)snprintf(text, sizeof(text), "fork.%u\n", turn);
    return write_file("fork", 0, text);
}

static int remove_fork(unsigned turn)
{
    char path[NAME];
    int rc;

    (void)snprintf(path, sizeof(path), "../fork.%u/status", turn);
    rc = write_file(path, 0, "absent\n");
    (void)snprintf(path, sizeof(path), "../fork.%u", turn);
    return rc == 0 && rmdir(path) < 0 ? -errno : rc;
}

static int time_it(struct subject *subject, enum piece piece,
                   int (*work)(unsigned turn), unsigned turn)
{
    double before = now_us();
    int rc = work(turn);

    if (rc == 0 && subject->counts[piece] < SAMPLES_MAX) {
        subject->us[piece][subject->counts[piece]++] = now_us() - before;
    }
    return rc;
}

static int one_turn(struct subject *subject, unsigned turn)
{
    int rc = change_files(turn);

    if (rc == 0) {
        rc = time_it(subject, CHECKPOINT, take, turn);
    }
    if (rc == 0) {
        rc = change_files(turn + 1);
    }
    if (rc == 0) {
        rc = time_it(subject, RESTORE, restore, turn);
    }
    if (rc == 0) {
        rc = time_it(subject, FORK, fork_it, turn);
    }
    return rc < 0 ? rc : remove_fork(turn);
}

/* Makes a session, which is the working directory then; the disk is at rest. */
static int begin(const char *name, int sessions, unsigned files)
{
    int rc = 0;

    if (fchdir(sessions) < 0 || mkdir(name, 0755) < 0 || chdir(name) < 0) {
        return -errno;
    }
    if (files) {
        rc = fill(files);
        sync();
    }
    return rc;
}

/* What has been measured is told; what has not is told to be so. Its files stay
 * until all is over: to remove many takes long, and others would meet it. */
static int end(const char *name, int sessions, int rc)
{
    if (rc < 0) {
        (void)fprintf(stderr, "bench: session %s: %s\n", name, why(rc));
    }
    return fchdir(sessions) < 0 ? -errno : 0;
}

static int measure(struct subject *subject, int sessions, unsigned turns)
{
    int rc = begin(subject->session, sessions, subject->files);

    for (unsigned turn = 0; turn < turns && rc == 0; turn++) {
        rc = one_turn(subject, turn);
    }
    return end(subject->session, sessions, rc);
}

/* ---- Room ---- */

static int read_file(const char *path, char *out, size_t size)
{
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t done = 0;
    ssize_t n = 1;

    while (fd >= 0 && n > 0 && done < size - 1) {
        n = read(fd, out + done, size - 1 - done);
        done += n > 0 ? (size_t)n : 0;
    }
    out[done] = '\0';
    return fd < 0 || n < 0 ? -errno : 0;
}

/* The last number of the last line, which is of what was just taken. */
static int read_room(double *out)
{
    AUTO_FREE char *log = malloc(LOG_SIZE);
    int rc = log ? read_file("checkpoints.log", log, LOG_SIZE) : -ENOMEM;
    const char *last = rc == 0 ? strrchr(log, ' ') : NULL;

    if (last) {
        *out = strtod(last, NULL);
    }
    return rc == 0 && !last ? -ENODATA : rc;
}

static int measure_room(const char *name, int (*change)(unsigned turn),
                        double *out)
{
    char path[2 * NAME];
    int rc = change(0);

    (void)snprintf(path, sizeof(path), "checkpoints/%s", name);
    if (rc == 0 && mkdir(path, 0755) < 0) {
        rc = -errno;
    }
    return rc == 0 ? read_room(out) : rc;
}

static int report_room(struct report *report, int sessions)
{
    const double most = CHANGED * BLOCK + MORE_ROOM;
    double near = NAN;
    double apart = NAN;
    int rc = begin("room", sessions, FEW);

    if (rc == 0) {
        rc = measure_room("near", change_near, &near);
    }
    if (rc == 0) {
        rc = measure_room("apart", change_files, &apart);
    }
    report_bytes(report, "stored, 10 files of 4 KiB", near, most);
    report_bytes(report, "stored, 10 files in 10 dirs", apart, most);
    return end("room", sessions, rc);
}

/* ---- An install ---- */

static int look(const char *path, const struct stat *attr, int kind,
                struct FTW *at)
{
    (void)path;
    (void)attr;
    (void)kind;
    (void)at;
    return 0;
}

static int walk(const char *plain, unsigned files, double *out)
{
    char script[512];
    double us[WALK_TURNS];
    int rc = chdir(plain) < 0 ? -errno : shell("mkdir install");

    if (rc == 0 && chdir("install") < 0) {
        rc = -errno;
    }
    if (rc == 0) {
        snapshots_script(script, sizeof(script), files);
        rc = shell(script);
    }
    for (unsigned i = 0; rc == 0 && i < WALK_TURNS; i++) {
        us[i] = now_us();
        rc = nftw(".", look, FD_MOST, FTW_PHYS) < 0 ? -errno : 0;
        us[i] = now_us() - us[i];
    }
    if (rc == 0) {
        *out = median(us, WALK_TURNS);
    }
    return rc;
}

/* A command's checkpoint comes after it, and before its close returns. */
static int install(unsigned files, double *out)
{
    char result[LINE];
    const char *took = NULL;
    double before = now_us();
    int rc = fill(files);
    double all = now_us() - before;

    if (rc == 0) {
        rc = read_file("execs/last/result.json", result, sizeof(result));
    }
    if (rc == 0) {
        took = strstr(result, DURATION);
        rc = took ? 0 : -ENODATA;
    }
    if (took) {
        *out = all - 1e3 * strtod(took + strlen(DURATION), NULL);
    }
    return rc;
}

static int report_install(struct report *report, int sessions,
                          const char *plain, bool durable)
{
    const unsigned files = report->scale->many / INSTALL_PART;
    double bare = NAN;
    double kept = NAN;
    int rc = walk(plain, files, &bare);

    if (rc == 0) {
        rc = begin("install", sessions, 0);
    }
    if (rc == 0) {
        rc = write_file("exec", 0, "true\n"); /* It runs then. */
    }
    if (rc == 0) {
        rc = end("install", sessions, install(files, &kept));
    }
    report_latency(report, "a walk of an install", bare, 0);
    report_latency(report, "checkpoint of an install", kept,
                   (durable ? WALKS_DURABLE : WALKS) * bare);
    return rc;
}

/* ---- All ---- */

/* With many files: beside that with few. */
static double bound_of(enum piece piece, double few_us)
{
    static const double most[PIECES] = {TAKE_US, RESTORE_US, FORK_US};

    return piece == CHECKPOINT && !isnan(few_us)
               ? fmin(most[piece], more_files * few_us)
               : most[piece];
}

static void report_piece(struct report *report, enum piece piece,
                         struct subject subjects[2])
{
    double us[2];

    for (size_t i = 0; i < 2; i++) {
        unsigned n = subjects[i].counts[piece];

        us[i] = n ? median(subjects[i].us[piece], n) : NAN;
    }
    report_latency(report, names_few[piece], us[0], bound_of(piece, NAN));
    report_latency(report, names_many[piece], us[1], bound_of(piece, us[0]));
}

static int report_pieces(struct report *report, int sessions)
{
    static struct subject subjects[] = {{.session = "few", .files = FEW},
                                        {.session = "many"}};
    int rc = 0;

    subjects[1].files = report->scale->many;
    for (size_t i = 0; i < ARRAY_SIZE(subjects) && rc == 0; i++) {
        rc = measure(&subjects[i], sessions, report->scale->snapshots);
    }
    for (enum piece k = 0; k < PIECES && rc == 0; k++) {
        report_piece(report, k, subjects);
    }
    return rc;
}

int snapshots_measure(struct report *report, int sessions, const char *plain,
                      bool durable)
{
    int rc = report_pieces(report, sessions);

    if (rc == 0) {
        rc = report_room(report, sessions);
    }
    return rc == 0 ? report_install(report, sessions, plain, durable) : rc;
}
