/* What a program writes to stderr, on its way to the log. */
#ifndef SESSIONFS_PROVIDERS_JSONL_WORDS_H
#define SESSIONFS_PROVIDERS_JSONL_WORDS_H

#include <stddef.h>
#include <stdint.h>

enum {
    WORDS_LAST = 160 /* Bytes for errors. */
};

/* Zeroed: nothing was written yet. */
struct words {
    char line[512];
    size_t size;
    char last[WORDS_LAST]; /* The last line that was not blank: UTF-8. */
    int64_t since_ms;      /* Of the present span, */
    unsigned lines;        /* and its lines; beyond some they are dropped. */
};

/** @param words so far @param name of the program @param data borrowed
 *  @param size bytes */
void words_take(struct words *words, const char *name, const char *data,
                size_t size);

/** A line that has begun is one. @param words so far @param name of the
 *  program */
void words_end(struct words *words, const char *name);

#endif
