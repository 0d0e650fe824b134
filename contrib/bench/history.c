/*
 * Other ways to keep what a tree of files is, where few of few or of many have
 * changed. See bench.h.
 */
#include "contrib/bench/bench.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FEW = 1000,
    TURNS_FEW = 16,
    TURNS_MANY = 4, /* A second each, where all files are looked at. */
};

/* In a tree that it finds filled; its copies are beside it. */
struct way {
    const char *names[2]; /* With few files, and with many. */
    const char *start;    /* NULL: nothing. */
    char *const *keep;    /* What is timed. */
    const char *undo;     /* Some files have changed before. */
};

static char *const git[] = {(char[]){"git"}, (char[]){"stash"}, (char[]){"-q"},
                            NULL};
static char *const cp[] = {(char[]){"cp"}, (char[]){"-al"}, (char[]){"."},
                           (char[]){"../copy"}, NULL};
static char *const btrfs[] = {(char[]){"btrfs"},
                              (char[]){"subvolume"},
                              (char[]){"snapshot"},
                              (char[]){"-r"},
                              (char[]){"."},
                              (char[]){"../copy"},
                              NULL};

/* One after another in the same tree: what one leaves is the next one's too. */
static const struct way ways_anywhere[] = {
    {.names = {"cp -al, few files", "cp -al, many files"},
     .keep = cp,
     .undo = "rm -r ../copy"},
    {.names = {"git stash, few files", "git stash, many files"},
     .start = "git init -q && git add -A && git commit -q -m start",
     .keep = git,
     .undo = "git stash drop -q"},
    {.names = {NULL}},
};

static const struct way ways_btrfs[] = {
    {.names = {"btrfs snapshot, few files", "btrfs snapshot, many files"},
     .keep = btrfs,
     .undo = "btrfs subvolume delete ../copy"},
    {.names = {NULL}},
};

static int turn_once(const struct way *way, unsigned turn, double *us)
{
    int rc = snapshots_change(".", turn);
    double before = now_us();

    if (rc == 0) {
        rc = spawn(way->keep);
    }
    *us = now_us() - before;
    return rc == 0 ? shell(way->undo) : rc;
}

/* From a turn on that the tree had not: what was written in one may stay, and
 * the same once more is no change. */
static int turn_all(const struct way *way, unsigned first, unsigned turns,
                    double *out)
{
    double us[TURNS_FEW];
    int rc = way->start ? shell(way->start) : 0;

    for (unsigned i = 0; rc == 0 && i < turns; i++) {
        rc = turn_once(way, first + i, &us[i]);
    }
    if (rc == 0) {
        *out = median(us, turns);
    }
    return rc;
}

/* Makes a tree, which is the working directory then. */
static int prepare(const char *top, const char *make, unsigned files)
{
    char script[512];
    int rc;

    if (chdir(top) < 0 || mkdir("way", 0755) < 0 || chdir("way") < 0) {
        return -errno;
    }
    rc = shell(make);
    if (rc == 0 && chdir("tree") < 0) {
        rc = -errno;
    }
    if (rc < 0) {
        return rc;
    }
    snapshots_script(script, sizeof(script), files);
    return shell(script);
}

static double measure(const struct way *way, unsigned first, unsigned turns,
                      int rc)
{
    double us = NAN;

    if (rc == 0) {
        rc = turn_all(way, first, turns, &us);
    }
    if (rc < 0) {
        (void)fprintf(stderr, "bench: %s: %s\n", way->names[0], why(rc));
    }
    return us;
}

/* In a tree of few files, and in one of many. */
static void measure_ways(struct report *report, const struct way *ways,
                         const char *top, const char *make)
{
    const unsigned files[] = {FEW, report->scale->many};
    const unsigned most[] = {TURNS_FEW, TURNS_MANY};

    for (size_t k = 0; k < ARRAY_SIZE(files); k++) {
        const unsigned turns = report->scale->snapshots < most[k]
                                   ? report->scale->snapshots
                                   : most[k];
        unsigned turn = 0;
        int rc = prepare(top, make, files[k]);

        for (const struct way *way = ways; way->names[0]; way++) {
            report_latency(report, way->names[k], measure(way, turn, turns, rc),
                           0);
            turn += turns;
        }
        if (chdir(top) < 0 || shell("rm -rf way") < 0) {
            return;
        }
    }
}

void history_measure(struct report *report, const char *scratch,
                     const char *snapshots)
{
    measure_ways(report, ways_anywhere, scratch, "mkdir tree");
    if (snapshots) {
        measure_ways(report, ways_btrfs, snapshots,
                     "btrfs subvolume create tree");
    }
}
