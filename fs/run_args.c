/* See run_args.h. */
#include "fs/run_args.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPT_CWD = 256,
    OPT_ENV,
    OPT_MOUNT,
    OPT_TIMEOUT,
    OPT_JSON,
};

static const struct option long_options[] = {
    {"cwd", required_argument, NULL, OPT_CWD},
    {"env", required_argument, NULL, OPT_ENV},
    {"mount", required_argument, NULL, OPT_MOUNT},
    {"timeout", required_argument, NULL, OPT_TIMEOUT},
    {"json", no_argument, NULL, OPT_JSON},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static const char help[] =
    "Usage: sessionfs run SESSION [options] [--] COMMAND [ARGUMENT...]\n"
    "       sessionfs run SESSION [options] -c SCRIPT\n"
    "Runs a command in a session; its output comes as it is written.\n"
    "SESSION is a session's directory, or its id.\n"
    "\n"
    "  -c SCRIPT          run a script of /bin/sh\n"
    "  --cwd DIR          where it runs: absolute in the sandbox, or below\n"
    "                     the workspace (default: the workspace)\n"
    "  --env NAME=VALUE   set a variable; may be given more than once\n"
    "  --timeout SECONDS  end it after that time, from its start\n"
    "  --json             print result.json at the end, and not the output\n"
    "  --mount DIR        where an id is looked up (default:\n"
    "                     $SESSIONFS_MOUNT, else your only mount)\n"
    "  -h, --help         print this text\n"
    "\n"
    "A standard input that is no terminal is read to its end, under 6 MiB,\n"
    "before the command starts, and is its input then. A terminal is not\n"
    "passed on: the command's input is empty then. INT, TERM, HUP and QUIT go\n"
    "to the command; a second one kills it. It is also ended when its output\n"
    "cannot be written any more.\n"
    "\n"
    "Exit status: the command's; 128 + n after signal n, or that signal\n"
    "itself where it came to this program; 124 after the timeout; 125 when it\n"
    "could not be run or followed, 126 when COMMAND is no program, 127 when\n"
    "it, or DIR, is not there.\n";

void run_args_help(void)
{
    (void)fputs(help, stdout);
}

void run_args_done(struct run_args *args)
{
    free(args->env);
}

static int parse_timeout(const char *text, int64_t *out, struct err *err)
{
    char *end = NULL;
    double seconds = strtod(text, &end);

    if (end == text || *end || !isfinite(seconds) || seconds < 0.001 ||
        seconds > 365.0 * 24 * 3600) {
        return err_set(err, EINVAL,
                       "'%.64s' is no timeout in seconds, 0.001 to a year",
                       text);
    }
    *out = (int64_t)(seconds * 1000);
    return 0;
}

static int add_env(struct run_args *args, const char *text, struct err *err)
{
    size_t count = 0;

    if (!strchr(text, '=') || text[0] == '=') {
        return err_set(err, EINVAL, "--env '%.64s' is not NAME=VALUE", text);
    }
    while (args->env[count]) {
        count++;
    }
    args->env[count] = text;
    return 0;
}

/* The option that was looked at last; a letter may stand among others. */
static int refuse(char **argv, const char *why, struct err *err)
{
    const char *word = argv[optind - 1];
    const char letter[] = {'-', (char)optopt, '\0'};
    bool is_letter =
        optopt > 0 && optopt < OPT_CWD && strncmp(word, "--", 2) != 0;

    return err_set(err, EINVAL, "%s '%.64s'; see --help", why,
                   is_letter ? letter : word);
}

static int take(struct run_args *args, int flag, char **argv, struct err *err)
{
    switch (flag) {
    case 'c':
        args->script = optarg;
        return 0;
    case 'h':
        args->help = true;
        return 0;
    case OPT_CWD:
        args->cwd = optarg;
        return 0;
    case OPT_ENV:
        return add_env(args, optarg, err);
    case OPT_MOUNT:
        args->mount = optarg;
        return 0;
    case OPT_TIMEOUT:
        return parse_timeout(optarg, &args->timeout_ms, err);
    case OPT_JSON:
        args->json = true;
        return 0;
    case ':':
        return refuse(argv, "no value for option", err);
    default:
        /* One that is known has a value that it does not take. */
        return refuse(
            argv, optopt < OPT_CWD ? "unknown option" : "no value is for", err);
    }
}

/* Up to the first word that is no option. */
static int take_options(int argc, char **argv, struct run_args *args,
                        struct err *err)
{
    int flag = getopt_long(argc, argv, "+:hc:", long_options, NULL);
    int rc = 0;

    while (flag != -1 && rc == 0) {
        rc = take(args, flag, argv, err);
        if (rc == 0) {
            flag = getopt_long(argc, argv, "+:hc:", long_options, NULL);
        }
    }
    return rc;
}

static int take_all(int argc, char **argv, struct run_args *args,
                    struct err *err)
{
    int rc = take_options(argc, argv, args, err);

    if (rc == 0 && optind < argc) {
        args->session = argv[optind++];
        rc = take_options(argc, argv, args, err);
    }
    if (rc < 0 || args->help) {
        return rc;
    }
    if (!args->session) {
        return err_set(err, EINVAL, "no session is named; see --help");
    }
    if ((optind < argc) == (args->script != NULL)) {
        return err_set(err, EINVAL, "either a command or -c; see --help");
    }
    args->argv = argv + optind;
    return 0;
}

int run_args_parse(int argc, char **argv, struct run_args *out, struct err *err)
{
    struct run_args args = {
        .env = calloc((size_t)argc + 1, sizeof(*args.env)),
    };
    int rc;

    if (!args.env) {
        return err_no_memory(err);
    }
    opterr = 0;
    rc = take_all(argc, argv, &args, err);
    if (rc < 0) {
        run_args_done(&args);
        return rc;
    }
    *out = args;
    return 0;
}
