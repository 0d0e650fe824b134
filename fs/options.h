/* The command line: one table for the parser and for --help. */
#ifndef SESSIONFS_OPTIONS_H
#define SESSIONFS_OPTIONS_H

#include "core/err.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct provider_ops;

enum options_log {
    OPTIONS_LOG_AUTO, /* As the place where we run suggests. */
    OPTIONS_LOG_STDERR,
    OPTIONS_LOG_SYSLOG,
    OPTIONS_LOG_JOURNAL,
};

enum options_links {
    OPTIONS_LINKS_SAFE,
    OPTIONS_LINKS_RAW,
};

enum options_trust {
    OPTIONS_TRUST_OPERATOR,
    OPTIONS_TRUST_CONFIG,
};

enum options_durable {
    OPTIONS_DURABLE_PROCESS,
    OPTIONS_DURABLE_POWER,
};

struct options {
    char mount_point[PATH_MAX]; /* Absolute, without links. */
    char source[256];           /* What the mount table shows. */
    char state[PATH_MAX];       /* Absolute. */
    char config[PATH_MAX];      /* --config; empty: the usual file. */
    char provider[64];
    unsigned on_unmount;      /* enum registry_end */
    unsigned adopt_timeout;   /* Seconds. */
    unsigned unmount_timeout; /* Seconds. */
    unsigned events_keep;
    unsigned execs_keep;
    unsigned cache_mib;
    unsigned stage_mib;
    char profiles[PATH_MAX]; /* Absolute; empty: none, like these. */
    char base[PATH_MAX];
    unsigned trust;   /* enum options_trust */
    unsigned durable; /* enum options_durable */
    unsigned log;     /* enum options_log */
    unsigned links;   /* enum options_links */
    unsigned suid;    /* How often these were asked for. */
    unsigned dev;
    char without[256]; /* Names of kernel features, as given, */
    unsigned features; /* and a bit for each of them. */
    char group[64];    /* -o gid, as given; empty: none. */
    gid_t gid;         /* It, or the mounting user's. */
    bool allow_other;  /* Also implied by a group. */
    bool read_only;
    bool no_exec;
    bool foreground; /* -f */
    bool debug;      /* -d; implies foreground. */
    bool serve;      /* sessionfs serve: there is no mount point. */
    bool check;      /* --check: then the mount point may be missing. */
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
 * Parses the arguments of `sessionfs serve`, as options_parse().
 *
 * @param argc that of main() without the program's name
 * @param argv likewise
 * @param out  written on success
 * @param err  filled on failure
 * @return 0 or -EINVAL, -ENOENT … with words for the user
 */
MUST_USE int options_parse_serve(int argc, char **argv, struct options *out,
                                 struct err *err);

/**
 * Checks the directories that were named, and fills in defaults; a part of
 * options_parse().
 *
 * @param options as parsed; paths are made absolute
 * @param err     filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int options_check(struct options *options, struct err *err);

/**
 * Prints the help text to standard output.
 *
 * @param serve     that of `sessionfs serve`
 * @param providers the table, which ends with NULL
 */
void options_help(bool serve, const struct provider_ops *const *providers);

#endif
