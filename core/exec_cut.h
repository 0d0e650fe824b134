/*
 * Which parts of a clean text are shown when not all of it fits: its head and
 * its tail, and the surroundings of lines that look like errors.
 */
#ifndef SESSIONFS_EXEC_CUT_H
#define SESSIONFS_EXEC_CUT_H

#include "core/buf.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    CUT_REGIONS = 8, /* The most places that are shown besides. */
    CUT_AROUND = 5,  /* Lines before and behind an error. */
    CUT_LINE = 512,  /* Bytes of a line that are looked at. */
};

/* From byte `from` up to `to` of the text. */
struct cut_range {
    uint64_t from;
    uint64_t to;
};

/* Looks for errors while the text comes. Zeroed: nothing has come. */
struct cut_finder {
    struct cut_range regions[CUT_REGIONS];
    uint64_t errors[CUT_REGIONS];    /* Where the first error of each is. */
    unsigned count;                  /* Of regions. */
    unsigned after;                  /* Lines that the last one still takes. */
    uint64_t starts[CUT_AROUND + 1]; /* Of the last lines, in a ring; */
    unsigned next;                   /* the place of the next line's start. */
    unsigned known;                  /* How many are in it. */
    uint64_t start;                  /* Of the present line. */
    size_t size;                     /* Of its begin: */
    char line[CUT_LINE];
};

/** @param finder the text so far @param data the next bytes @param size of it
 */
void cut_text(struct cut_finder *finder, const char *data, size_t size);
/** @param finder the text so far, of which the present line is void */
void cut_back(struct cut_finder *finder);
/** @param finder the text so far @param pos a line has ended there */
void cut_line(struct cut_finder *finder, uint64_t pos);

/** @param line bytes @param size of it @return whether it looks like one */
bool cut_is_error(const char *line, size_t size);

struct cut_piece {
    struct cut_range range;
    struct buf text;
};

/* What is shown of a text, in order, without overlaps. */
struct cut {
    struct cut_piece pieces[CUT_REGIONS + 2];
    unsigned count;
    uint64_t size; /* Of the whole text. */
};

/**
 * Chooses.
 *
 * @param finder  that has seen the whole text, or NULL: head and tail only
 * @param size    of the text, more than budget
 * @param budget  bytes that the result may have, marks included
 * @param cut     written; cut_done() frees it
 */
void cut_choose(struct cut_finder *finder, uint64_t size, uint64_t budget,
                struct cut *cut);

/** Shows all. @param size of the text @param cut written */
void cut_nothing(uint64_t size, struct cut *cut);

/** @param cut the pieces so far @param pos where @param data the next bytes
 *  @param size of data @return 0 or -ENOMEM */
MUST_USE int cut_add(struct cut *cut, uint64_t pos, const char *data,
                     size_t size);
/** @param cut the pieces so far @param pos the text goes on from there */
void cut_drop(struct cut *cut, uint64_t pos);

/**
 * Puts the pieces together, with a mark where something is left out. No
 * character is cut in two.
 *
 * @param cut all pieces are whole
 * @param out appended to
 * @return 0, -EFBIG or -ENOMEM
 */
MUST_USE int cut_join(struct cut *cut, struct buf *out);

/** @param cut freed */
void cut_done(struct cut *cut);

#endif
