/* The -o options. See options_table.h. */
#include "fs/options_table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROW(name_, value_, type_, member, fallback_, text_)                    \
    .name = (name_), .value = (value_), .type = (type_),                       \
    .offset = offsetof(struct options, member),                                \
    .size = sizeof(((struct options *)NULL)->member), .fallback = (fallback_), \
    .text = (text_)
#define TEXT(name_, value_, member, fallback_, text_)                          \
    {                                                                          \
        ROW(name_, value_, OPTION_TEXT, member, fallback_, text_)              \
    }
#define MOUNT_TEXT(name_, value_, member, text_)                               \
    {                                                                          \
        ROW(name_, value_, OPTION_TEXT, member, NULL, text_), .mounts = true   \
    }
#define MOUNT_FLAG(name_, member, text_)                                       \
    {                                                                          \
        ROW(name_, NULL, OPTION_FLAG, member, NULL, text_), .mounts = true     \
    }
#define WORD(name_, value_, member, words_, fallback_, text_)                  \
    {                                                                          \
        ROW(name_, value_, OPTION_WORD, member, fallback_, text_),             \
            .words = (words_)                                                  \
    }
#define NUMBER(name_, value_, member, min_, max_, fallback_, text_)            \
    {                                                                          \
        ROW(name_, value_, OPTION_NUMBER, member, fallback_, text_),           \
            .min = (min_), .max = (max_)                                       \
    }
#define COUNT(name_, member)                                                   \
    {                                                                          \
        ROW(name_, NULL, OPTION_COUNT, member, NULL, NULL)                     \
    }

/* In the order of their enums. */
static const char *const end_words[] = {"pause", "keep", "delete", NULL};
static const char *const log_words[] = {"auto", "stderr", "syslog", "journal",
                                        NULL};
static const char *const link_words[] = {"safe", "raw", NULL};
static const char *const trust_words[] = {"operator", "config", NULL};
static const char *const durable_words[] = {"process", "power", NULL};

const struct option_row option_rows[] = {
    TEXT("state", "DIR", state, NULL,
         "where sessions are kept (default: /var/lib/sessionfs for root, else "
         "sessionfs in $XDG_STATE_HOME or ~/.local/state)"),
    TEXT("provider", "NAME", provider, "local",
         "engine of new sessions, one of those below (default: local)"),
    TEXT("profiles", "DIR", profiles, NULL,
         "where configs of sessions lie, by name, as NAME.json; default.json "
         "is that of mkdir"),
    WORD("trust", "operator|config", trust, trust_words, "operator",
         "who may say what reaches this machine or an engine's account: "
         "profiles alone, or also configs that are written to the mount "
         "(default: operator)"),
    TEXT("base", "DIR", base, NULL,
         "the key 'base' of a config may name a directory below DIR, whoever "
         "writes it"),
    MOUNT_FLAG("allow_other", allow_other,
               "let root into the mount of another user"),
    MOUNT_TEXT("gid", "GROUP", group,
               "let this group, a name or a number, into the mount"),
    WORD("links", "safe|raw", links, link_words, "safe",
         "what a symbolic link in a workspace says that leads out of it: "
         "nothing, or as stored (default: safe)"),
    MOUNT_TEXT(
        "without", "LIST", without,
        "use none of these features of the kernel, with colons between them: "
        "epoch, negative, listings, readdirplus, parallel_dirs, killpriv, "
        "noflush, passthrough, io_uring, near, yield; stats tells which are "
        "used"),
    WORD("on_unmount", "pause|keep|delete", on_unmount, end_words, "pause",
         "what becomes of running sandboxes at the end (default: pause)"),
    NUMBER("adopt_timeout", "SECONDS", adopt_timeout, 0, 86400, "600",
           "how long sandboxes of local wait for the next daemon when this one "
           "is killed, or ends and keeps them (default: 600)"),
    NUMBER("unmount_timeout", "SECONDS", unmount_timeout, 1, 3600, "30",
           "how long the end may take, and a start waits for the end of "
           "another daemon on the same state (default: 30)"),
    WORD("durable", "process|power", durable, durable_words, "process",
         "what is reported as done survives the end of this program, or a "
         "power cut, too (default: process)"),
    NUMBER("events_keep", "N", events_keep, 1, 10000000, "10000",
           "how many events of each session stay at least (default: 10000)"),
    NUMBER("execs_keep", "N", execs_keep, 1, 1000000, "1000",
           "how many commands of each session stay (default: 1000)"),
    NUMBER("cache_size", "MIB", cache_mib, 1, 1048576, "256",
           "how much content of each workspace on another machine is kept on "
           "this disk (default: 256)"),
    NUMBER("unsent_size", "MIB", stage_mib, 1, 1048576, "4096",
           "how much may be written to each such workspace and not be sent "
           "yet, as long as its files are open (default: 4096)"),
    WORD("log", "auto|stderr|syslog|journal", log, log_words, "auto",
         "where failures are told (default: auto, stderr in the foreground, "
         "else the journal or, without one, syslog)"),
    MOUNT_FLAG("ro", read_only,
               "mount read-only: nothing can be changed or run"),
    MOUNT_FLAG("noexec", no_exec,
               "the host runs no programs that lie in the mount"),
    COUNT("suid", suid),
    COUNT("dev", dev),
    {.name = NULL},
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

static int set_text(char *at, const struct option_row *row, const char *value,
                    struct err *err)
{
    if (strlen(value) >= row->size) {
        return err_set(err, EINVAL, "option '%s' is too long", row->name);
    }
    memcpy(at, value, strlen(value) + 1);
    return 0;
}

static int set_word(unsigned *at, const struct option_row *row,
                    const char *value, struct err *err)
{
    for (unsigned i = 0; row->words[i]; i++) {
        if (strcmp(row->words[i], value) == 0) {
            *at = i;
            return 0;
        }
    }
    return err_set(err, EINVAL, "option '%s' cannot be '%s', but %s", row->name,
                   value, row->value);
}

static int set_number(unsigned *at, const struct option_row *row,
                      const char *value, struct err *err)
{
    size_t digits = strspn(value, "0123456789");
    unsigned long long n;

    errno = 0;
    n = strtoull(value, NULL, 10);
    if (!digits || value[digits] || errno || n < row->min || n > row->max) {
        return err_set(err, EINVAL, "option '%s' is a number from %u to %u",
                       row->name, row->min, row->max);
    }
    *at = (unsigned)n;
    return 0;
}

static int set_value(struct options *options, const struct option_row *row,
                     const char *value, struct err *err)
{
    void *at = (char *)options + row->offset;

    switch (row->type) {
    case OPTION_TEXT:
        return set_text(at, row, value, err);
    case OPTION_WORD:
        return set_word(at, row, value, err);
    case OPTION_NUMBER:
        return set_number(at, row, value, err);
    case OPTION_FLAG:
        *(bool *)at = true;
        break;
    case OPTION_COUNT:
        ++*(unsigned *)at;
        break;
    }
    return 0;
}

static int set_row(struct options *options, const struct option_row *row,
                   const char *value, struct err *err)
{
    bool bare = row->type == OPTION_FLAG || row->type == OPTION_COUNT;

    if (bare && value) {
        return err_set(err, EINVAL, "option '%s' takes no value", row->name);
    }
    if (!bare && (!value || !*value)) {
        return err_set(err, EINVAL, "option '%s' needs a value", row->name);
    }
    return set_value(options, row, value, err);
}

void option_defaults(struct options *options)
{
    for (const struct option_row *row = option_rows; row->name; row++) {
        struct err err = ERR_INIT;

        if (row->fallback && set_value(options, row, row->fallback, &err) < 0) {
            abort(); /* The table is wrong. */
        }
    }
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

int option_set(struct options *options, char *text, struct err *err)
{
    char *value = strchr(text, '=');

    if (value) {
        *value++ = '\0';
    }
    for (const struct option_row *row = option_rows; row->name; row++) {
        if (strcmp(row->name, text) == 0) {
            return set_row(options, row, value, err);
        }
    }
    if (is_ignored(text)) {
        return 0;
    }
    return err_set(err, EINVAL, "unknown option '%s'", text);
}
