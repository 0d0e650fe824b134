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
    TURNS_MOST = 16,
};

/* In a directory of its own; its tree is `tree`, its copies are beside it. */
struct way {
    const char *names[2]; /* With few files, and with many. */
    const char *make;     /* The tree, where it is to be filled; NULL: mkdir. */
    const char *start;    /* In the tree, as all below. */
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

static const struct way ways[] = {
    {.names = {"git stash, few files", "git stash, many files"},
     .start = "git init -q && git add -A && git commit -q -m start",
     .keep = git,
     .undo = "git stash drop -q"},
    {.names = {"cp -al, few files", "cp -al, many files"},
     .keep = cp,
     .undo = "rm -r ../copy"},
    {.names = {"btrfs snapshot, few files", "btrfs snapshot, many files"},
     .make = "btrfs subvolume create tree",
     .keep = btrfs,
     .undo = "btrfs subvolume delete ../copy"},
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

static int turn_all(const struct way *way, unsigned turns, double *out)
{
    double us[TURNS_MOST];
    int rc = 0;

    turns = turns < TURNS_MOST ? turns : TURNS_MOST;
    for (unsigned turn = 0; rc == 0 && turn < turns; turn++) {
        rc = turn_once(way, turn, &us[turn]);
    }
    if (rc == 0) {
        *out = median(us, turns);
    }
    return rc;
}

static int prepare(const struct way *way, const char *top, unsigned files)
{
    char script[512];
    int rc;

    if (chdir(top) < 0 || mkdir("way", 0755) < 0 || chdir("way") < 0) {
        return -errno;
    }
    rc = shell(way->make ? way->make : "mkdir tree");
    if (rc == 0 && chdir("tree") < 0) {
        rc = -errno;
    }
    if (rc == 0) {
        snapshots_script(script, sizeof(script), files);
        rc = shell(script);
    }
    return rc == 0 && way->start ? shell(way->start) : rc;
}

static double measure(const struct way *way, const char *top, unsigned files,
                      unsigned turns)
{
    double us = NAN;
    int rc = prepare(way, top, files);

    if (rc == 0) {
        rc = turn_all(way, turns, &us);
    }
    if (rc < 0) {
        (void)fprintf(stderr, "bench: %s: %s\n", way->names[0], strerror(-rc));
    }
    return chdir(top) == 0 && shell("rm -rf way") == 0 ? us : NAN;
}

void history_measure(struct report *report, const char *scratch,
                     const char *snapshots)
{
    const unsigned files[] = {FEW, report->scale->many};

    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        const char *top = ways[i].make ? snapshots : scratch;

        for (size_t k = 0; top && k < ARRAY_SIZE(files); k++) {
            report_latency(
                report, ways[i].names[k],
                measure(&ways[i], top, files[k], report->scale->snapshots), 0);
        }
    }
}
