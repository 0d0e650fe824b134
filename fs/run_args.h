/* The command line of `sessionfs run`. */
#ifndef SESSIONFS_RUN_ARGS_H
#define SESSIONFS_RUN_ARGS_H

#include "core/err.h"

#include <stdbool.h>
#include <stdint.h>

struct run_args {
    const char *session; /* A path, or an id. */
    const char *mount;   /* Where the id is looked up; NULL: find it. */
    const char *cwd;     /* NULL: the workspace. */
    const char *script;  /* For /bin/sh; NULL: argv is what runs. */
    char **argv;         /* NULL-terminated; of main(). */
    const char **env;    /* "K=V", NULL-terminated; owned. */
    int64_t timeout_ms;  /* 0: none. */
    bool json;           /* The result in place of the output. */
    bool help;           /* Nothing else is checked then. */
};

/**
 * Parses the arguments.
 *
 * @param argc that of main() without the program's name
 * @param argv likewise: argv[0] is "run"; borrowed for ever
 * @param out  written on success; run_args_done() frees it
 * @param err  filled on failure, with words for the user
 * @return 0, -EINVAL or -ENOMEM
 */
MUST_USE int run_args_parse(int argc, char **argv, struct run_args *out,
                            struct err *err);

/** @param args freed */
void run_args_done(struct run_args *args);

/** Prints the help text to standard output. */
void run_args_help(void);

#endif
