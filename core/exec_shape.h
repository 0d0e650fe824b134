/*
 * Shortens a command's output for the answer of `exec.json`.
 *
 * A stream is cleaned first: escape sequences go, and of each line only the
 * text after its last carriage return stays. What is over the budget of the
 * mode is cut out in the middle or, where the command failed and always in
 * stderr, round lines that look like errors. A stream is read in pieces, twice
 * at most, and nothing of it is kept but what is shown. A stream that is not
 * UTF-8 is not cleaned: its first bytes are shown, as base64, and then so is
 * the other.
 */
#ifndef SESSIONFS_EXEC_SHAPE_H
#define SESSIONFS_EXEC_SHAPE_H

#include "core/buf.h"
#include "core/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum shape_mode {
    SHAPE_AUTO, /* A success briefly, a failure as normal. */
    SHAPE_SILENT,
    SHAPE_CONCISE,
    SHAPE_NORMAL,
    SHAPE_VERBOSE,
    SHAPE_FULL,
};

/** @param mode a mode @return its word */
const char *shape_mode_name(enum shape_mode mode);

/**
 * Finds a mode by its word.
 *
 * @param name any bytes
 * @param out  written on success
 * @return whether there is such a mode
 */
bool shape_mode_find(const char *name, enum shape_mode *out);

/* Where a stream comes from; read as exec_read(). */
struct shape_source {
    ssize_t (*read)(void *arg, uint64_t offset, void *out, size_t size,
                    struct err *err);
    void *arg;
};

/* Of which stdout and stderr are text, or base64 of bytes. */
struct shape {
    struct buf out;
    struct buf err;
    bool base64;
    bool truncated;       /* Not all of both is there. */
    uint64_t total_lines; /* Of the cleaned stdout. */
};

/**
 * Makes the texts.
 *
 * @param out    stdout
 * @param errs   stderr
 * @param mode   how much of it
 * @param failed whether the command's exit code is not 0
 * @param shape  filled on success; shape_done() frees it
 * @param err    filled on failure
 * @return 0, -ENOMEM, or what a source said
 */
MUST_USE int shape_make(const struct shape_source *out,
                        const struct shape_source *errs, enum shape_mode mode,
                        bool failed, struct shape *shape, struct err *err);

/** @param shape its texts are freed */
void shape_done(struct shape *shape);

/** @param exit_code of a command that failed @return words for people, static,
 *  or NULL */
const char *shape_hint(int exit_code);

#endif
