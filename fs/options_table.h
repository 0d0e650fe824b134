/* The table of -o options, from which come the parser and the help. */
#ifndef SESSIONFS_OPTIONS_TABLE_H
#define SESSIONFS_OPTIONS_TABLE_H

#include "fs/options.h"

#include <stddef.h>

enum option_type {
    OPTION_TEXT,   /* NAME=VALUE into a char array. */
    OPTION_WORD,   /* NAME=VALUE, one of `words`: its place in an unsigned. */
    OPTION_NUMBER, /* NAME=VALUE, from `min` to `max`, in an unsigned. */
    OPTION_FLAG,   /* NAME into a bool. */
    OPTION_COUNT,  /* NAME counted in an unsigned. */
};

struct option_row {
    const char *name;
    const char *value; /* Its name in the help, or NULL. */
    enum option_type type;
    size_t offset;            /* In struct options. */
    size_t size;              /* Of the char array. */
    const char *const *words; /* OPTION_WORD: ends with NULL. */
    unsigned min;             /* OPTION_NUMBER */
    unsigned max;
    const char *fallback; /* As it would be given; NULL: none. */
    const char *text;     /* NULL: not in the help. */
    bool mounts;          /* Says nothing to `sessionfs serve`. */
};

/** Ends with a row without a name. */
extern const struct option_row option_rows[];

/** @param options gets the defaults of all rows */
void option_defaults(struct options *options);

/**
 * Sets one option.
 *
 * @param options changed on success
 * @param text    NAME or NAME=VALUE; cut
 * @param err     filled on failure
 * @return 0 or -EINVAL
 */
MUST_USE int option_set(struct options *options, char *text, struct err *err);

/**
 * Sets what a file says: an option a line, and `#` before comments.
 *
 * @param options changed, perhaps also on failure
 * @param path    of the file
 * @param may_lack a file that is not there, or in a place that is closed
 *                 to us, says nothing
 * @param err     filled on failure: the file, and the line
 * @return 0, -EINVAL for a bad line, -EPERM for a file that others may write
 */
MUST_USE int option_file(struct options *options, const char *path,
                         bool may_lack, struct err *err);

/**
 * Sets what the file says that the options name, or else the usual one.
 *
 * @param options changed, perhaps also on failure
 * @param err     filled on failure
 * @return as option_file()
 */
MUST_USE int option_config(struct options *options, struct err *err);

#endif
