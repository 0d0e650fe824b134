/*
 * A key of provider_config: a row of a provider's table, from which come the
 * check of its value, the file in `providers/` and the rules of trust.
 */
#ifndef SESSIONFS_CONFIG_KEY_H
#define SESSIONFS_CONFIG_KEY_H

#include <stdint.h>

enum config_type {
    CONFIG_TEXT,  /* A string. */
    CONFIG_WORD,  /* One of `words`. */
    CONFIG_PATH,  /* A string: an absolute path of this machine. */
    CONFIG_BOOL,  /* true or false. */
    CONFIG_INT,   /* An integer from `min` to `max`, in `unit`. */
    CONFIG_TEXTS, /* An array of strings. */
    CONFIG_MAP,   /* An object of strings. */
};

/* Who may set a key. */
enum config_trust {
    CONFIG_ANYONE,   /* Also whoever writes `new` and `config.json`. */
    CONFIG_UP_TO,    /* Up to the default anyone (words: the default alone);
                      * beyond it the operator. */
    CONFIG_OPERATOR, /* It reaches the host or the engine's account. */
};

/* What has to be on this machine for a value to be of use. */
enum config_there {
    CONFIG_ANYTHING,  /* That is not looked at. */
    CONFIG_DIRECTORY, /* A directory of that path. */
    CONFIG_PROGRAM,   /* A program: an absolute path, or a name in PATH. */
};

struct config_key {
    const char *name;
    enum config_type type;
    enum config_trust trust;
    enum config_there there;
    const char *fallback;     /* As JSON; NULL: none, the key is absent. */
    const char *const *words; /* CONFIG_WORD: ends with NULL. */
    int64_t min;              /* CONFIG_INT */
    int64_t max;
    const char *unit; /* "bytes", "ms" …, or NULL. */
    const char *text; /* One sentence for people, without its full stop. */
};

#endif
