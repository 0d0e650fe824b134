/* Options. See options.h. */
#include "fs/options_table.h"

#include "core/cleanup.h"
#include "core/provider.h"

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Options that stand alone. */
struct flag_row {
    int key; /* The letter, or of a row without one a number above them. */
    const char *name;  /* Behind --, or NULL. */
    const char *value; /* Its name in the help, or NULL. */
    const char *text;
    bool mounts; /* Not for `sessionfs serve`. */
};

enum {
    KEY_READY_FD = 256,
    KEY_CHECK,
    KEY_CONFIG,
};

static const struct flag_row flags[] = {
    {'f', NULL, NULL, "stay in the foreground", false},
    {'d', NULL, NULL, "log usual failures as well; stay in the foreground",
     false},
    {KEY_READY_FD, "ready-fd", "N",
     "write a byte to file descriptor N once mounted", true},
    {KEY_CHECK, "check", NULL,
     "say what works here and what does not, and mount nothing", false},
    {KEY_CONFIG, "config", "FILE",
     "read options from FILE and not from /etc/sessionfs.conf (root) or "
     "~/.config/sessionfs/sessionfs.conf",
     false},
    {'h', "help", NULL, "print this text", false},
    {'V', "version", NULL, "print the version", false},
};

static const char mount_usage[] =
    "Usage: sessionfs [options] [SOURCE] MOUNTPOINT";
static const char serve_usage[] = "Usage: sessionfs serve [options]";

static const char *usage(const struct options *options)
{
    return options->serve ? serve_usage : mount_usage;
}

static int parse_args(int argc, char **argv, struct options *out,
                      struct err *err);

/* The file comes first, so that the command line wins; which file it is, the
 * command line says. */
static int parse_all(int argc, char **argv, bool serve, struct options *out,
                     struct err *err)
{
    struct options named = {.ready_fd = -1, .serve = serve};
    int rc = parse_args(argc, argv, &named, err);

    if (rc < 0 || named.help || named.version) {
        *out = named;
        return rc;
    }
    option_defaults(out);
    out->serve = serve;
    memcpy(out->config, named.config, sizeof(out->config));
    rc = option_config(out, err);
    optind = 0; /* getopt() begins anew. */
    return rc < 0 ? rc : parse_args(argc, argv, out, err);
}

static int parse(int argc, char **argv, bool serve, struct options *out,
                 struct err *err)
{
    struct options options = {.ready_fd = -1};
    int rc = parse_all(argc, argv, serve, &options, err);

    if (rc == 0 && !options.help && !options.version) {
        rc = options_check(&options, err);
    }
    if (rc == 0) {
        *out = options;
    }
    return rc;
}

int options_parse(int argc, char **argv, struct options *out, struct err *err)
{
    return parse(argc, argv, false, out, err);
}

int options_parse_serve(int argc, char **argv, struct options *out,
                        struct err *err)
{
    return parse(argc, argv, true, out, err);
}

enum {
    INDENT = 21, /* Where the texts of the help begin. */
};

/* Prints a text in lines that end before column 80. */
static void print_folded(const char *text)
{
    int column = INDENT;

    while (*text) {
        int len = (int)strcspn(text, " ");

        if (column > INDENT && column + 1 + len > 79) {
            (void)printf("\n%*s", INDENT, "");
            column = INDENT;
        } else if (column > INDENT) {
            (void)putchar(' ');
            column++;
        }
        (void)printf("%.*s", len, text);
        column += len;
        text += len;
        text += *text == ' ';
    }
    (void)putchar('\n');
}

/* Prints a row of the help: a head in a column of its own, or on a line where
 * it is too long, and a text. */
static void print_row(const char *head, const char *text)
{
    if (strlen(head) > INDENT - 2) {
        (void)printf("%s\n%*s", head, INDENT, "");
    } else {
        (void)printf("%-*s", INDENT, head);
    }
    print_folded(text);
}

static void print_flag(const struct flag_row *row)
{
    char head[64] = "  ";
    size_t len = 2;

    if (row->key < KEY_READY_FD) {
        head[len++] = '-';
        head[len++] = (char)row->key;
    }
    if (row->name) {
        (void)snprintf(head + len, sizeof(head) - len, "%s--%s%s%s",
                       len > 2 ? ", " : "", row->name, row->value ? " " : "",
                       row->value ? row->value : "");
    }
    print_row(head, row->text);
}

static void print_option(const struct option_row *row)
{
    char head[64];

    (void)snprintf(head, sizeof(head), "  -o %s%s%s", row->name,
                   row->value ? "=" : "", row->value ? row->value : "");
    print_row(head, row->text);
}

static void print_head(bool serve)
{
    if (serve) {
        (void)printf(
            "%s\n"
            "Makes sandboxes for a client: the protocol sandbox.v1, JSON lines "
            "on standard\n"
            "input and output; see sessionfs-serve(1). In the foreground it is "
            "the daemon\n"
            "itself, and serves no client of its own.\n\n",
            serve_usage);
        return;
    }
    (void)printf("%s\n"
                 "       sessionfs run SESSION COMMAND...   (see run --help)\n"
                 "       sessionfs serve [options]   (see serve --help)\n"
                 "Shows sandboxes as files; MOUNTPOINT/README tells how."
                 "\n\n",
                 mount_usage);
}

void options_help(bool serve, const struct provider_ops *const *providers)
{
    char head[64];

    print_head(serve);
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
        if (!serve || !flags[i].mounts) {
            print_flag(&flags[i]);
        }
    }
    (void)putchar('\n');
    for (const struct option_row *row = option_rows; row->name; row++) {
        if (row->text && (!serve || !row->mounts)) {
            print_option(row);
        }
    }
    (void)printf("\nProviders:\n");
    for (; *providers; providers++) {
        (void)snprintf(head, sizeof(head), "  %s", (*providers)->name);
        print_row(head, (*providers)->summary);
    }
}

/* Cuts the first option off a list and takes the backslashes out of it: one
 * makes the character behind it, a comma most of all, part of the option. */
static char *next_option(char **left)
{
    char *text = *left;
    char *from = text;
    char *to = text;

    while (*from && *from != ',') {
        from += *from == '\\' && from[1];
        *to++ = *from++;
    }
    *left = *from ? from + 1 : NULL;
    *to = '\0';
    return text;
}

/* NAME[=VALUE],… as mount(8) gives them. Cuts a copy: `ps` shows argv. */
static int parse_list(struct options *options, const char *list,
                      struct err *err)
{
    AUTO_FREE char *copy = strdup(list);
    char *left = copy;
    int rc = copy ? 0 : err_no_memory(err);

    while (left && rc == 0) {
        char *text = next_option(&left);

        if (*text) {
            rc = option_set(options, text, err);
        }
    }
    return rc;
}

static int parse_fd(const char *text, int *out, struct err *err)
{
    char *end = NULL;
    long n;

    errno = 0;
    n = strtol(text, &end, 10);
    if (errno || *end || end == text || n < 0 || n > INT_MAX) {
        return err_set(err, EINVAL, "'%s' is not a file descriptor", text);
    }
    *out = (int)n;
    return 0;
}

static int parse_path(const char *text, char out[PATH_MAX], struct err *err)
{
    if (!*text || strlen(text) >= PATH_MAX) {
        return err_set(err, EINVAL, "'%.64s' is no file", text);
    }
    memcpy(out, text, strlen(text) + 1);
    return 0;
}

/* A letter may stand among others, before or behind the word. */
static int tell_unknown(const struct options *options, char **argv,
                        struct err *err)
{
    const char *word = argv[optind - 1];
    char letter[] = {'-', (char)optopt, '\0'};

    return err_set(err, EINVAL, "unknown option '%.64s'\n%s",
                   optopt && strncmp(word, "--", 2) != 0 ? letter : word,
                   usage(options));
}

static int parse_flag(struct options *options, int flag, char **argv,
                      struct err *err)
{
    switch (flag) {
    case 'f':
        options->foreground = true;
        return 0;
    case 'd':
        options->debug = true;
        options->foreground = true;
        return 0;
    case KEY_CHECK:
        options->check = true;
        return 0;
    case 'h':
        options->help = true;
        return 0;
    case 'V':
        options->version = true;
        return 0;
    case 'o':
        return parse_list(options, optarg, err);
    case KEY_CONFIG:
        return parse_path(optarg, options->config, err);
    case KEY_READY_FD:
        return parse_fd(optarg, &options->ready_fd, err);
    case ':':
        return err_set(err, EINVAL, "an option lacks its value\n%s",
                       usage(options));
    default:
        return tell_unknown(options, argv, err);
    }
}

/* What getopt_long() takes, made of the table. */
struct spelling {
    char letters[2 * ARRAY_SIZE(flags) + 4];
    struct option names[ARRAY_SIZE(flags) + 1];
};

static void spell(struct spelling *out)
{
    size_t letters = 0;
    size_t names = 0;

    memset(out, 0, sizeof(*out));
    out->letters[letters++] = ':';
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
        const struct flag_row *row = &flags[i];

        if (row->key < KEY_READY_FD) {
            out->letters[letters++] = (char)row->key;
        }
        if (row->name) {
            out->names[names++] = (struct option){
                row->name, row->value ? required_argument : no_argument, NULL,
                row->key};
        }
    }
    memcpy(out->letters + letters, "o:", 2);
}

/* MOUNTPOINT, or SOURCE MOUNTPOINT as mount(8) has it. */
static int parse_places(char **words, int count, struct options *options,
                        struct err *err)
{
    /* For mount(8), mount.fuse3 adds both where nobody said no. */
    unsigned most = count == 2;

    if (count == 0 && (options->check || options->serve)) {
        return 0;
    }
    if (options->serve) {
        return err_set(err, EINVAL, "serve takes options alone\n%s",
                       usage(options));
    }
    if (count != 1 && count != 2) {
        return err_set(err, EINVAL, "give one mount point\n%s", usage(options));
    }
    if (options->suid > most || options->dev > most) {
        return err_set(err, EINVAL,
                       "option '%s' is refused: nosuid and nodev always hold",
                       options->suid > most ? "suid" : "dev");
    }
    if (strlen(words[count - 1]) >= sizeof(options->mount_point)) {
        return err_set(err, ENAMETOOLONG, "the mount point is too long");
    }
    memcpy(options->mount_point, words[count - 1],
           strlen(words[count - 1]) + 1);
    if (count == 2 && strlen(words[0]) >= sizeof(options->source)) {
        return err_set(err, ENAMETOOLONG, "the source is too long");
    }
    (void)snprintf(options->source, sizeof(options->source), "%s",
                   count == 2 ? words[0] : "sessionfs");
    return 0;
}

static int parse_args(int argc, char **argv, struct options *options,
                      struct err *err)
{
    struct spelling spelling;
    int flag;
    int rc = 0;

    spell(&spelling);
    opterr = 0;
    do {
        flag = getopt_long(argc, argv, spelling.letters, spelling.names, NULL);
        rc = flag == -1 ? 0 : parse_flag(options, flag, argv, err);
    } while (flag != -1 && rc == 0);
    if (rc < 0 || options->help || options->version) {
        return rc;
    }
    return parse_places(argv + optind, argc - optind, options, err);
}
