/*
 * Does pieces of work in several directories in turns, and tells how long each
 * took, as a table, JSON and a chart. contrib/bench/run makes the directories.
 *
 * usage: bench [--quick] [--rounds N] [--only NAME] [--json FILE]
 *              [--chart FILE] [--log FILE] [--note KEY=VALUE]...
 *              [--sessions DIR] [--beside NAME=COMMAND]...
 *              [--btrfs DIR] [--durable]
 *              SCRATCH TARGET=DIR...
 *
 * SCRATCH is an empty directory for what is worked on. The first target is what
 * the others are compared with. Work that fails in a target is not done there
 * again, nor what takes another program seconds and ten times as long as the
 * base; what programs said is in the log. The exit status is 1 where something
 * failed in the first two.
 */
#include "contrib/bench/bench.h"

#include "core/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    SURE = 2,     /* Targets that can do everything, */
    OURS = 3,     /* and those that no other program serves. */
    MOST_S = 420, /* After the start no round begins that would end later. */
    SAMPLES_MAX = ROUNDS_MAX * TURNS_MAX,
    FAR = 10, /* Times the base. */
};

static const double short_us = 5e4; /* In a round, to be measured again. */
static const double far_us = 1e6;

static const struct scale scale_full = {
    .rounds = 7,
    .beside = 5,
    .turns = TURNS_MAX,
    .settles = true,
    .files = 1000,
    .pieces = 256,
    .blocks = 10000,
    .dirs = 50,
    .units = 12,
    .transactions = 100,
    .commands = 400,
    .snapshots = 20,
    .many = 100000,
};

static const struct scale scale_quick = {
    .rounds = 2,
    .beside = 2,
    .turns = 1,
    .files = 200,
    .pieces = 8,
    .blocks = 2000,
    .dirs = 10,
    .units = 2,
    .transactions = 20,
    .commands = 40,
    .snapshots = 3,
    .many = 2000,
};

struct options {
    struct scale scale;
    const char *only;
    const char *json;
    const char *chart;
    const char *log;
    const char *sessions;
    const char *btrfs; /* A directory; NULL: there is none. */
    bool durable;      /* The mount survives a power cut. */
    const char *beside[TARGETS_MAX];
    size_t beside_count;
};

NORETURN static void fail(const char *what, int rc)
{
    (void)fprintf(stderr, "bench: %s: %s\n", what, why(rc));
    exit(2);
}

/* ---- Measuring ---- */

double now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

double median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare);
    return count % 2 ? values[count / 2]
                     : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* Samples of one row in each target. */
struct samples {
    double us[TARGETS_MAX][SAMPLES_MAX];
    unsigned n[TARGETS_MAX];
    bool cannot[TARGETS_MAX];
    unsigned turns;
};

/* What a round has taken, in each target. */
struct spent {
    double us[TARGETS_MAX];
};

/* Does the row once. Nothing is told of one that fails. */
static int do_row(const struct row *row, const struct scale *scale,
                  const struct target *target, double *us)
{
    int rc = fchdir(target->dir) < 0 ? -errno : 0;
    double before;

    if (rc == 0 && row->prepare) {
        rc = row->prepare(scale);
    }
    before = now_us();
    if (rc == 0) {
        rc = row->work(scale);
    }
    *us = now_us() - before;
    return rc == 0 && row->after ? row->after(scale) : rc;
}

static void measure(const struct report *report, const struct row *row,
                    size_t t, struct samples *samples, struct spent *spent)
{
    const struct target *target = &report->targets[t];
    double before = now_us();
    double us;
    int rc = do_row(row, report->scale, target, &us);

    spent->us[t] += now_us() - before;
    if (rc < 0) {
        (void)fprintf(stderr, "bench: %s in %s: %s\n", row->name, target->name,
                      why(rc));
        samples->cannot[t] = true;
        return;
    }
    samples->us[t][samples->n[t]++] = us;
}

/* What takes another program seconds, and so many times as long as the base,
 * is known well enough by one sample. */
static bool is_far(const struct samples *samples, size_t t)
{
    return t >= OURS && samples->n[t] && samples->n[0] &&
           samples->us[t][0] > far_us &&
           samples->us[t][0] > FAR * samples->us[0][0];
}

/* Whether a target is measured in a round. */
static bool is_in(const struct report *report, size_t t,
                  const struct samples *samples)
{
    return !samples->cannot[t] && !is_far(samples, t) &&
           (t < OURS || report->rounds < report->scale->beside);
}

/* Whose turn it is. Who begins changes, and so does who comes after whom. */
static size_t in_turn(const struct report *report, unsigned turn, size_t k)
{
    size_t t = (k + turn / 2) % report->target_count;

    return turn % 2 ? report->target_count - 1 - t : t;
}

/* One round of a row: several turns of targets in which it is short. */
static void measure_round(const struct report *report, const struct row *row,
                          struct samples *samples)
{
    struct spent spent = {{0}};

    for (unsigned i = 0; i < report->scale->turns; i++) {
        unsigned turn = samples->turns++;

        for (size_t k = 0; k < report->target_count; k++) {
            size_t t = in_turn(report, turn, k);

            if (is_in(report, t, samples) && spent.us[t] < short_us) {
                measure(report, row, t, samples, &spent);
            }
        }
    }
}

static const struct row *const tables[] = {rows_data, rows_names, rows_tools,
                                           rows_database};

static size_t choose_rows(const char *only, struct result results[ROWS_MAX])
{
    size_t count = 0;

    for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
        for (const struct row *row = tables[i]; row->name; row++) {
            if (!only || strstr(row->name, only)) {
                results[count++].row = row;
            }
        }
    }
    return count;
}

static bool summarize(struct report *report, struct samples *all)
{
    bool good = true;

    for (size_t i = 0; i < report->count; i++) {
        struct result *result = &report->results[i];

        for (size_t t = 0; t < report->target_count; t++) {
            bool cannot = all[i].cannot[t];

            result->samples[t] = cannot ? 0 : all[i].n[t];
            result->us[t] = cannot ? NAN : median(all[i].us[t], all[i].n[t]);
            good = good && !(cannot && t < SURE);
        }
    }
    return good;
}

/* Round by round over all rows: what changes slowly meets all of them. */
static bool measure_all(struct report *report, double start)
{
    static struct samples samples[ROWS_MAX];
    double last = 0;

    while (report->rounds < report->scale->rounds &&
           (report->rounds == 0 || now_us() + last < start + MOST_S * 1e6)) {
        double before = now_us();

        for (size_t i = 0; i < report->count; i++) {
            measure_round(report, report->results[i].row, &samples[i]);
        }
        report->rounds++;
        last = now_us() - before;
    }
    return summarize(report, samples);
}

/* ---- Arguments ---- */

static struct target read_target(char *text)
{
    char *dir = strchr(text, '=');
    struct target target = {.name = text, .dir = -1};

    if (dir) {
        *dir++ = '\0';
        target.dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (target.dir < 0) {
        fail(text, -errno);
    }
    return target;
}

static void set_rounds(struct scale *scale, const char *text)
{
    unsigned long rounds = strtoul(text, NULL, 10);

    scale->rounds = rounds < 1            ? 1
                    : rounds > ROUNDS_MAX ? ROUNDS_MAX
                                          : (unsigned)rounds;
}

static void set_option(struct options *options, struct report *report, int flag,
                       char *text)
{
    switch (flag) {
    case 'q':
        options->scale = scale_quick;
        break;
    case 'r':
        set_rounds(&options->scale, text);
        break;
    case 'o':
        options->only = text;
        break;
    case 'j':
        options->json = text;
        break;
    case 'c':
        options->chart = text;
        break;
    case 'l':
        options->log = text;
        break;
    case 'f':
        options->btrfs = text;
        break;
    case 'd':
        options->durable = true;
        break;
    case 's':
        options->sessions = text;
        break;
    case 'b':
        if (options->beside_count < TARGETS_MAX && strchr(text, '=')) {
            options->beside[options->beside_count++] = text;
        }
        break;
    case 'n':
        if (report->note_count < NOTES_MAX && strchr(text, '=')) {
            report->notes[report->note_count++] = text;
        }
        break;
    default:
        exit(2);
    }
}

static int read_options(int argc, char **argv, struct options *options,
                        struct report *report)
{
    static const struct option names[] = {
        {"quick", no_argument, NULL, 'q'},
        {"rounds", required_argument, NULL, 'r'},
        {"only", required_argument, NULL, 'o'},
        {"json", required_argument, NULL, 'j'},
        {"chart", required_argument, NULL, 'c'},
        {"log", required_argument, NULL, 'l'},
        {"note", required_argument, NULL, 'n'},
        {"sessions", required_argument, NULL, 's'},
        {"beside", required_argument, NULL, 'b'},
        {"btrfs", required_argument, NULL, 'f'},
        {"durable", no_argument, NULL, 'd'},
        {NULL, 0, NULL, 0},
    };
    int flag = getopt_long(argc, argv, "", names, NULL);

    while (flag != -1) {
        set_option(options, report, flag, optarg);
        flag = getopt_long(argc, argv, "", names, NULL);
    }
    if (argc - optind < 2 || argc - optind > TARGETS_MAX + 1) {
        (void)fprintf(stderr,
                      "usage: bench [OPTION]... SCRATCH TARGET=DIR...\n");
        exit(2);
    }
    return optind;
}

/* The machine's own settings change nothing. */
static void set_environment(const char *scratch)
{
    static const char *const pairs[][2] = {
        {"LC_ALL", "C"},
        {"GIT_CONFIG_NOSYSTEM", "1"},
        {"GIT_CONFIG_GLOBAL", "/dev/null"},
        {"GIT_AUTHOR_NAME", "bench"},
        {"GIT_AUTHOR_EMAIL", "bench@localhost"},
        {"GIT_COMMITTER_NAME", "bench"},
        {"GIT_COMMITTER_EMAIL", "bench@localhost"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
        (void)setenv(pairs[i][0], pairs[i][1], 1);
    }
    (void)setenv("SOURCES", scratch, 1);
}

static void prepare(const struct report *report, const char *scratch)
{
    int rc = fixture_sources(scratch, report->scale);

    if (rc < 0) {
        fail("the sources", rc);
    }
    for (size_t i = 0; i < report->target_count; i++) {
        rc = fchdir(report->targets[i].dir) < 0 ? -errno
                                                : fixture_make(report->scale);
        if (rc < 0) {
            (void)fprintf(stderr, "bench: the files in %s: %s\n",
                          report->targets[i].name, why(rc));
        }
    }
    (void)fixture_settle(report->scale);
}

static int tell(const struct report *report, const struct options *options)
{
    int rc = 0;

    report_table(report, stdout);
    if (options->json) {
        rc = report_json(report, options->json);
    }
    if (rc == 0 && options->chart) {
        rc = report_chart(report, options->chart);
    }
    return rc;
}

static int measure_sessions(struct report *report,
                            const struct options *options, const char *scratch)
{
    AUTO_FD int sessions =
        open(options->sessions, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_FD int session = -1;
    int rc;

    if (sessions < 0 || mkdirat(sessions, "command", 0755) < 0) {
        return -errno;
    }
    session = openat(sessions, "command", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (session < 0) {
        return -errno;
    }
    rc = latencies_measure(report, session, options->beside,
                           options->beside_count);
    if (rc == 0) {
        rc = snapshots_measure(report, sessions, scratch, options->durable);
    }
    if (rc == 0) {
        history_measure(report, scratch, options->btrfs);
    }
    return rc;
}

int main(int argc, char **argv)
{
    static struct report report;
    static struct target targets[TARGETS_MAX];
    struct options options = {.scale = scale_full};
    double start = now_us();
    int first = read_options(argc, argv, &options, &report);
    AUTO_FREE char *scratch = realpath(argv[first], NULL);
    bool good;
    int rc = 0;

    if (!scratch) {
        fail("the scratch directory", -errno);
    }
    report.scale = &options.scale;
    report.targets = targets;
    for (int i = first + 1; i < argc; i++) {
        targets[report.target_count++] = read_target(argv[i]);
    }
    report.count = choose_rows(options.only, report.results);
    set_environment(scratch);
    if (options.log) {
        rc = fixture_log(options.log);
    }
    if (rc < 0) {
        fail(options.log, rc);
    }
    if (options.sessions) {
        rc = measure_sessions(&report, &options, scratch);
    }
    if (rc < 0) {
        fail("a session", rc);
    }
    prepare(&report, scratch);
    good = measure_all(&report, start);
    rc = tell(&report, &options);
    if (rc < 0) {
        fail("the result", rc);
    }
    return good ? 0 : 1;
}
