/*
 * Checkpoints, restores and forks of a workspace in which few files of few or
 * of many have changed. See bench.h.
 */
#include "contrib/bench/bench.h"

#include "core/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    NAME = 32,
    CHANGED = 10,
    FEW = 1000,
    DIR_FILES = 100,
    SAMPLES_MAX = 64,
};

enum piece {
    CHECKPOINT,
    RESTORE,
    FORK,
    PIECES,
};

/* The latencies of one workspace, and what they are called. */
struct subject {
    const char *session;
    unsigned files;
    const char *names[PIECES];
    double us[PIECES][SAMPLES_MAX];
    unsigned counts[PIECES];
    int error; /* A negative errno: the engine cannot. */
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

/* In the session's directory. */
static int change_files(unsigned turn)
{
    int rc = 0;

    for (unsigned i = 0; i < CHANGED && rc == 0; i++) {
        char path[NAME];
        char text[NAME];

        (void)snprintf(path, sizeof(path), "workspace/d%u/f%u", i, turn % 10);
        (void)snprintf(text, sizeof(text), "%u\n", turn);
        rc = write_file(path, O_TRUNC, text);
    }
    return rc;
}

/* By a command, after which there is a checkpoint that has all of them. */
static int fill(unsigned files)
{
    char script[256];

    (void)snprintf(script, sizeof(script),
                   "d=0; while [ $d -lt %u ]; do mkdir d$d; f=0;"
                   " while [ $f -lt %d ]; do echo $f >d$d/f$f;"
                   " f=$((f + 1)); done; d=$((d + 1)); done\n",
                   files / DIR_FILES, DIR_FILES);
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

static int measure(struct subject *subject, int sessions, unsigned turns)
{
    int rc = 0;

    if (fchdir(sessions) < 0 || mkdir(subject->session, 0755) < 0 ||
        chdir(subject->session) < 0) {
        return -errno;
    }
    rc = fill(subject->files);
    if (rc < 0) {
        return rc;
    }
    for (unsigned turn = 0; turn < turns && rc == 0; turn++) {
        rc = one_turn(subject, turn);
    }
    subject->error = rc;
    rc = write_file("status", 0, "absent\n");
    return rc < 0 || fchdir(sessions) < 0 ? -errno : 0;
}

int snapshots_measure(struct report *report, int sessions)
{
    static struct subject subjects[] = {
        {.session = "few",
         .files = FEW,
         .names = {"checkpoint, few files", "restore, few files",
                   "fork, few files"}},
        {.session = "many",
         .names = {"checkpoint, many files", "restore, many files",
                   "fork, many files"}},
    };
    int rc = 0;

    subjects[1].files = report->scale->many;
    for (size_t i = 0; i < ARRAY_SIZE(subjects) && rc == 0; i++) {
        rc = measure(&subjects[i], sessions, report->scale->snapshots);
    }
    for (size_t k = 0; k < PIECES && rc == 0; k++) {
        for (size_t i = 0; i < ARRAY_SIZE(subjects); i++) {
            struct subject *subject = &subjects[i];
            unsigned n = subject->counts[k];

            report_latency(report, subject->names[k],
                           n ? median(subject->us[k], n) : NAN);
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(subjects); i++) {
        if (subjects[i].error < 0) {
            (void)fprintf(stderr, "bench: session %s: %s\n",
                          subjects[i].session, strerror(-subjects[i].error));
        }
    }
    return rc;
}
