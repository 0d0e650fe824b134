/* The command line: one table for the parser and for --help. */
#ifndef SESSIONFS_OPTIONS_H
#define SESSIONFS_OPTIONS_H

#include "core/err.h"

#include <limits.h>
#include <stdbool.h>

struct provider_ops;

struct options {
    char mount_point[PATH_MAX]; /* Absolute, without links. */
    char state[PATH_MAX];       /* Absolute. */
    char provider[64];
    bool allow_other;
    bool foreground; /* -f */
    bool debug;      /* -d; implies foreground. */
    bool help;       /* -h: nothing else is checked then, */
    bool version;    /* nor with -V. */
    int ready_fd;    /* A byte is written to it when mounted; -1: none. */
};

/**
 * Parses and checks the arguments, and fills in defaults.
 *
 * @param argc of main()
 * @param argv of main()
 * @param out  written on success
 * @param err  filled on failure
 * @return 0 or -EINVAL, -ENOENT … with words for the user
 */
MUST_USE int options_parse(int argc, char **argv, struct options *out,
                           struct err *err);

/**
 * Prints the help text to standard output.
 *
 * @param providers the table, which ends with NULL
 */
void options_help(const struct provider_ops *const *providers);

#endif
