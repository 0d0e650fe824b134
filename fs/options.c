/* Options. See options.h. */
#include "fs/options.h"

#include "core/cleanup.h"
#include "core/provider.h"

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum option_type {
    OPTION_TEXT,  /* NAME=VALUE into a char array. */
    OPTION_FLAG,  /* NAME into a bool. */
    OPTION_COUNT, /* NAME counted in an unsigned. */
};

struct option_row {
    const char *name;
    const char *value; /* Its name in the help, or NULL. */
    enum option_type type;
    size_t offset; /* In struct options. */
    size_t size;   /* Of the char array. */
    const char *fallback;
    const char *text; /* NULL: not in the help. */
};

#define TEXT(name_, value_, member, fallback_, text_)                          \
    {                                                                          \
        .name = (name_), .value = (value_), .type = OPTION_TEXT,               \
        .offset = offsetof(struct options, member),                            \
        .size = sizeof(((struct options *)NULL)->member),                      \
        .fallback = (fallback_), .text = (text_)                               \
    }
#define FLAG(name_, member, text_)                                             \
    {                                                                          \
        .name = (name_), .type = OPTION_FLAG,                                  \
        .offset = offsetof(struct options, member), .text = (text_)            \
    }
#define COUNT(name_, member)                                                   \
    {                                                                          \
        .name = (name_), .type = OPTION_COUNT,                                 \
        .offset = offsetof(struct options, member)                             \
    }

/* The -o options. */
static const struct option_row rows[] = {
    TEXT("state", "DIR", state, NULL,
         "where sessions are kept (default: /var/lib/sessionfs for root, else "
         "sessionfs in $XDG_STATE_HOME or ~/.local/state)"),
    TEXT("provider", "NAME", provider, "local",
         "engine of new sessions, one of those below (default: local)"),
    FLAG("allow_other", allow_other, "let root into the mount of another user"),
    FLAG("ro", read_only, "mount read-only: nothing can be changed or run"),
    FLAG("noexec", no_exec, "the host runs no programs that lie in the mount"),
    COUNT("suid", suid),
    COUNT("dev", dev),
};

/* What is always so, and what mount(8) says to itself or to others. */
static const char *const ignored[] = {
    "_netdev",
    "async",
    "atime",
    "auto",
    "default_permissions",
    "defaults",
    "diratime",
    "exec",
    "group",
    "lazytime",
    "loud",
    "noatime",
    "noauto",
    "nodev",
    "nodiratime",
    "nofail",
    "nogroup",
    "nolazytime",
    "noowner",
    "norelatime",
    "nostrictatime",
    "nosuid",
    "nouser",
    "nousers",
    "owner",
    "relatime",
    "rw",
    "silent",
    "strictatime",
    "user",
    "users",
};

/* Options that stand alone. */
struct flag_row {
    int key; /* The letter, or of a row without one a number above them. */
    const char *name;  /* Behind --, or NULL. */
    const char *value; /* Its name in the help, or NULL. */
    const char *text;
};

enum {
    KEY_READY_FD = 256,
    KEY_CHECK,
};

static const struct flag_row flags[] = {
    {'f', NULL, NULL, "stay in the foreground"},
    {'d', NULL, NULL, "log each step to stderr; stay in the foreground"},
    {KEY_READY_FD, "ready-fd", "N",
     "write a byte to file descriptor N once mounted"},
    {KEY_CHECK, "check", NULL,
     "say what works here and what does not, and mount nothing"},
    {'h', "help", NULL, "print this text"},
    {'V', "version", NULL, "print the version"},
};

static const char usage[] = "Usage: sessionfs [options] [SOURCE] MOUNTPOINT";

static int parse_args(int argc, char **argv, struct options *out,
                      struct err *err);

int options_parse(int argc, char **argv, struct options *out, struct err *err)
{
    struct options options = {.ready_fd = -1};
    int rc;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (rows[i].fallback) {
            (void)snprintf((char *)&options + rows[i].offset, rows[i].size,
                           "%s", rows[i].fallback);
        }
    }
    rc = parse_args(argc, argv, &options, err);
    if (rc == 0 && !options.help && !options.version) {
        rc = options_check(&options, err);
    }
    if (rc == 0) {
        *out = options;
    }
    return rc;
}

/* Prints a text in lines that end before column 80. */
static void print_folded(const char *text)
{
    static const int indent = 21;
    int column = indent;

    while (*text) {
        int len = (int)strcspn(text, " ");

        if (column > indent && column + 1 + len > 79) {
            (void)printf("\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
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

/* Prints a row of the help: a head in a column of its own, and a text. */
static void print_row(const char *head, const char *text)
{
    (void)printf("%-20s ", head);
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

void options_help(const struct provider_ops *const *providers)
{
    char head[64];

    (void)printf("%s\n"
                 "       sessionfs run SESSION COMMAND...   (see run --help)\n"
                 "Shows sandboxes as files; MOUNTPOINT/README tells how."
                 "\n\n",
                 usage);
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
        print_flag(&flags[i]);
    }
    (void)putchar('\n');
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (rows[i].text) {
            print_option(&rows[i]);
        }
    }
    (void)printf("\nProviders:\n");
    for (; *providers; providers++) {
        (void)snprintf(head, sizeof(head), "  %s", (*providers)->name);
        print_row(head, (*providers)->summary);
    }
}

static int set_text(char *at, const struct option_row *row, const char *value,
                    struct err *err)
{
    if (!value || !*value) {
        return err_set(err, EINVAL, "option '%s' needs a value", row->name);
    }
    if (strlen(value) >= row->size) {
        return err_set(err, EINVAL, "option '%s' is too long", row->name);
    }
    memcpy(at, value, strlen(value) + 1);
    return 0;
}

static int set_option(struct options *options, const struct option_row *row,
                      const char *value, struct err *err)
{
    char *at = (char *)options + row->offset;

    if (row->type != OPTION_TEXT && value) {
        return err_set(err, EINVAL, "option '%s' takes no value", row->name);
    }
    switch (row->type) {
    case OPTION_TEXT:
        return set_text(at, row, value, err);
    case OPTION_FLAG:
        *(bool *)(void *)at = true;
        break;
    case OPTION_COUNT:
        ++*(unsigned *)(void *)at;
        break;
    }
    return 0;
}

/* Comments for others, as x-systemd.automount, included. */
static bool is_ignored(const char *name)
{
    if (strncmp(name, "x-", 2) == 0 || strncmp(name, "X-", 2) == 0) {
        return true;
    }
    for (size_t i = 0; i < ARRAY_SIZE(ignored); i++) {
        if (strcmp(ignored[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static int parse_option(struct options *options, char *text, struct err *err)
{
    char *value = strchr(text, '=');

    if (value) {
        *value++ = '\0';
    }
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (strcmp(rows[i].name, text) == 0) {
            return set_option(options, &rows[i], value, err);
        }
    }
    if (is_ignored(text)) {
        return 0;
    }
    return err_set(err, EINVAL, "unknown option '%s'", text);
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
    int rc = copy ? 0 : err_set(err, ENOMEM, "out of memory");

    while (left && rc == 0) {
        char *text = next_option(&left);

        if (*text) {
            rc = parse_option(options, text, err);
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

static int parse_flag(struct options *options, int flag, struct err *err)
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
    case KEY_READY_FD:
        return parse_fd(optarg, &options->ready_fd, err);
    case ':':
        return err_set(err, EINVAL, "an option lacks its value\n%s", usage);
    default:
        return err_set(err, EINVAL, "unknown option\n%s", usage);
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

    if (count == 0 && options->check) {
        return 0;
    }
    if (count != 1 && count != 2) {
        return err_set(err, EINVAL, "give one mount point\n%s", usage);
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
        rc = flag == -1 ? 0 : parse_flag(options, flag, err);
    } while (flag != -1 && rc == 0);
    if (rc < 0 || options->help || options->version) {
        return rc;
    }
    return parse_places(argv + optind, argc - optind, options, err);
}
