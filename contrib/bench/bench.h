/*
 * The benchmark. A row is a piece of work; it is done in each target, which is
 * a directory, in turns, so that all meet the same machine. What counts is the
 * ratio of the medians to that of the first target, the base.
 *
 * Everything runs with the target's directory as the working directory. What
 * rows find there is made by fixture_make().
 */
#ifndef SESSIONFS_BENCH_H
#define SESSIONFS_BENCH_H

#include "core/compiler.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum {
    TARGETS_MAX = 12,
    ROUNDS_MAX = 64,
    TURNS_MAX = 8,
    ROWS_MAX = 64,
    NOTES_MAX = 16,
    BLOCK = 4096,
    PIECE = 1 << 20,
    TEXT = 1024, /* Bytes of a small file. */
};

/* How much is done. */
struct scale {
    unsigned rounds;
    unsigned beside;       /* Rounds with other programs. */
    unsigned turns;        /* In a round, where each takes no time. */
    bool settles;          /* The disk is at rest before it is measured. */
    unsigned files;        /* In a directory, of TEXT bytes each. */
    unsigned pieces;       /* In the large file, of PIECE bytes each. */
    unsigned blocks;       /* Read or written at random, of BLOCK bytes. */
    unsigned dirs;         /* In the source tree, 20 files each. */
    unsigned units;        /* C files to compile. */
    unsigned transactions; /* Of the database. */
    unsigned commands;     /* For the latency of one. */
    unsigned snapshots;    /* For the latency of one. */
    unsigned many;         /* Files in the larger workspace. */
};

enum kind {
    KIND_DATA,
    KIND_NAMES,
    KIND_TOOLS,
    KIND_DATABASE,
};

/* One step of a row. Returns 0 or a negative errno: a target may not be able
 * to do it. */
typedef int step_fn(const struct scale *scale);

struct row {
    const char *name;
    const char *what;
    enum kind kind;
    step_fn *prepare; /* Not timed; NULL: nothing to prepare. */
    step_fn *work;
    step_fn *after; /* As prepare: what would be in the way of others. */
};

extern const struct row rows_data[];
extern const struct row rows_names[];
extern const struct row rows_tools[];
extern const struct row rows_database[];

struct target {
    const char *name;
    int dir;
};

/* The medians of one row, in microseconds; NAN: it fails. */
struct result {
    const struct row *row;
    double us[TARGETS_MAX];
    unsigned samples[TARGETS_MAX]; /* Of which it is the median. */
};

/* One that is looked at as it is, and the same elsewhere. */
struct latency {
    const char *name;
    double us;
    double bound; /* 0: none. */
    bool bytes;   /* They are of this, and no time. */
};

struct report {
    const struct scale *scale;
    const struct target *targets;
    size_t target_count;
    struct result results[ROWS_MAX];
    size_t count;
    unsigned rounds; /* That were measured. */
    struct latency latencies[ROWS_MAX];
    size_t latency_count;
    const char *notes[NOTES_MAX]; /* KEY=VALUE, of the machine. */
    size_t note_count;
};

/* ---- bench.c ---- */

double now_us(void);
/* Sorts the values. */
double median(double *values, size_t count);

/* ---- fixture.c ---- */

/* Appends what programs say of their failures to a file, in place of telling
 * it: some fail a thousand times. */
MUST_USE int fixture_log(const char *path);
/* Makes what rows_tools start from, below `dir`, which $SOURCES names. */
MUST_USE int fixture_sources(const char *dir, const struct scale *scale);
/* Makes what rows find in the working directory. */
MUST_USE int fixture_make(const struct scale *scale);
/* Runs a shell command; its output is thrown away. */
MUST_USE int shell(const char *command);
/* Runs a program by its words; -ECHILD where that fails. */
MUST_USE int spawn(char *const argv[]);
/* What a negative errno says, of spawn() too. */
const char *why(int rc);
/* Makes `count` small files DIR/PREFIXn. */
MUST_USE int make_files(const char *dir, char prefix, unsigned count);
/* Has what was written to memory alone written to the disk, which would come in
 * the midst of other rows. */
int fixture_settle(const struct scale *scale);
/* The same numbers in each run. */
unsigned random_next(unsigned *seed);

/* ---- latency.c ---- */

/* Measures a command in a session. `beside`: NAME=COMMAND of other programs
 * that do as much as `exec true`. */
MUST_USE int latencies_measure(struct report *report, int session,
                               const char *const *beside, size_t count);

/* ---- snapshots.c ---- */

/* A script that fills a directory with small files. */
void snapshots_script(char *out, size_t size, unsigned files);
/* Changes some of them in ten directories, as a turn wants. */
MUST_USE int snapshots_change(const char *top, unsigned turn);
/* Measures checkpoints, restores and forks in new sessions. `sessions` is that
 * directory of a mount; `plain` one without a mount; `durable` where a power
 * cut is survived. */
MUST_USE int snapshots_measure(struct report *report, int sessions,
                               const char *plain, bool durable);

/* ---- history.c ---- */

/* Measures other ways, in an empty directory and in one of a btrfs, or NULL. */
void history_measure(struct report *report, const char *scratch,
                     const char *snapshots);

/* ---- report.c ---- */

/* Adds one; NAN: cannot; bound 0: none. The name is borrowed. */
void report_latency(struct report *report, const char *name, double us,
                    double bound);
/* The same of bytes. */
void report_bytes(struct report *report, const char *name, double bytes,
                  double bound);

/* The ratio of a target to the base; NAN: there is none. */
double ratio_of(const struct result *result, size_t target);
/* The geometric mean of a target's ratios. */
double mean_of(const struct report *report, size_t target);
void report_table(const struct report *report, FILE *out);
MUST_USE int report_json(const struct report *report, const char *path);

/* ---- chart.c ---- */

MUST_USE int report_chart(const struct report *report, const char *path);

#endif
