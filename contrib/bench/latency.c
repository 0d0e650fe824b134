/* What only a session does, beside what does as much. See bench.h. */
#include "contrib/bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    WARM_UP = 10,
    GETATTRS = 8,
    WORDS = 32,
    COMMANDS_MAX = 1000,
    BESIDE_PART = 4, /* A slow program is not run as often. */
    EXEC_BOUND = 4,
};

/* Runs it in the session, or here. */
typedef int piece_fn(int session, char *const argv[]);

struct piece {
    const char *name;
    piece_fn *run;
    char *const *argv;
    unsigned times;
    double us[COMMANDS_MAX];
};

/* ---- The pieces of work ---- */

static int exec_true(int session, char *const argv[])
{
    static const char script[] = "true\n";
    ssize_t size = (ssize_t)strlen(script);
    int fd = openat(session, "exec", O_WRONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : write(fd, script, (size_t)size);

    (void)argv;
    return fd < 0 || close(fd) < 0 || n != size ? -errno : 0;
}

static int spawn_it(int session, char *const argv[])
{
    (void)session;
    return spawn(argv);
}

/* By an open file, so that each is one request, of its attributes alone. */
static int get_attributes(int session)
{
    static int fd = -1;
    struct statx attr;

    if (fd < 0) {
        fd = openat(session, "status", O_PATH | O_CLOEXEC);
    }
    for (int i = 0; i < GETATTRS; i++) {
        if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_ALL,
                  &attr) < 0) {
            return -errno;
        }
    }
    return 0;
}

static int spawn_and_get_attributes(int session, char *const argv[])
{
    int rc = spawn(argv);

    return rc < 0 ? rc : get_attributes(session);
}

/* ---- Measuring ---- */

static int measure_once(struct piece *piece, int session, double *us)
{
    double before = now_us();
    int rc = piece->run(session, piece->argv);

    *us = now_us() - before;
    return rc;
}

/* In turns; a program beside that cannot do it is left out. */
static int measure_all(struct piece *pieces, size_t count, int session,
                       unsigned times)
{
    for (unsigned i = 0; i < WARM_UP + times; i++) {
        for (size_t k = 0; k < count; k++) {
            struct piece *piece = &pieces[k];
            unsigned at = i < WARM_UP ? 0 : i - WARM_UP;
            int rc = at < piece->times
                         ? measure_once(piece, session, &piece->us[at])
                         : 0;

            if (rc < 0 && piece->run != spawn_it) {
                return rc;
            }
            if (rc < 0) {
                piece->times = 0;
            }
        }
    }
    return 0;
}

/* Splits NAME=WORD WORD… in place. */
static void split(char *text, const char **name, char *argv[WORDS])
{
    char *rest = strchr(text, '=');
    size_t count = 0;
    char *word;

    *name = text;
    *rest++ = '\0';
    word = strtok_r(rest, " ", &rest);
    while (word && count < WORDS - 1) {
        argv[count++] = word;
        word = strtok_r(NULL, " ", &rest);
    }
    argv[count] = NULL;
}

int latencies_measure(struct report *report, int session,
                      const char *const *beside, size_t count)
{
    static char sh[] = "sh";
    static char option[] = "-c";
    static char script[] = "true";
    static char *const sh_true[] = {sh, option, script, NULL};
    static struct piece pieces[TARGETS_MAX + 3] = {
        {.name = "exec true", .run = exec_true},
        {.name = "sh -c true, 8 getattr", .run = spawn_and_get_attributes},
        {.name = "sh -c true", .run = spawn_it},
    };
    static char *argv[TARGETS_MAX][WORDS];
    unsigned times = report->scale->commands;
    size_t all = 3;
    int rc;

    for (size_t i = 0; i < all; i++) {
        pieces[i].argv = sh_true;
        pieces[i].times = times;
    }
    for (size_t i = 0; i < count && i < TARGETS_MAX; i++) {
        struct piece *piece = &pieces[all++];

        split(strdup(beside[i]), &piece->name, argv[i]);
        piece->run = spawn_it;
        piece->argv = argv[i];
        piece->times = times / BESIDE_PART;
    }
    rc = measure_all(pieces, all, session, times);
    for (size_t i = 0; i < all && rc == 0; i++) {
        unsigned n = pieces[i].times;

        report_latency(report, pieces[i].name,
                       n ? median(pieces[i].us, n) : NAN, 0);
    }
    if (rc == 0) {
        report->latencies[0].bound = EXEC_BOUND * report->latencies[1].us;
    }
    return rc;
}
