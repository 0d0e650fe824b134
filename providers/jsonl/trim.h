/*
 * The bytes of a program's lines on their way into memory. The last line of a
 * command repeats all that it wrote, which by then has been told: there the
 * two long strings are cut, so that output of any size costs no memory.
 */
#ifndef SESSIONFS_PROVIDERS_JSONL_TRIM_H
#define SESSIONFS_PROVIDERS_JSONL_TRIM_H

#include "core/buf.h"

#include <stdint.h>

enum {
    TRIM_KEEP = 1024 * 1024 /* Of each string; divides into base64's fours. */
};

/* Zeroed: at the start of a line. Strings by enum command_stream. */
struct trim {
    bool in_text; /* Inside of a string, */
    bool escape;  /* behind its backslash. */
    bool colon;   /* Behind the colon of a member. */
    int watched;  /* The stream of the present string + 1, or 0. */
    unsigned char key_size;
    char key[16];       /* The last string's first bytes. */
    uint64_t length[2]; /* Characters of each string that is watched, */
    unsigned pads[2];   /* `=` among them, */
    bool cut[2];        /* and whether not all were let through. */
};

/**
 * Takes bytes of a line.
 *
 * @param trim the line so far
 * @param data borrowed, without a line end
 * @param size bytes
 * @param cut  whether to cut
 * @param out  appended to
 * @return 0, -EFBIG or -ENOMEM
 */
MUST_USE int trim_feed(struct trim *trim, const char *data, size_t size,
                       bool cut, struct buf *out);

/** @param trim of a whole line @param stream which @return the bytes that the
 *  string stands for, cut or not */
uint64_t trim_bytes(const struct trim *trim, int stream);

#endif
