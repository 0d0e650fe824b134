/* What the beasts of fakes/zoo.py do to calls. */
#ifndef SESSIONFS_TESTS_ZOO_H
#define SESSIONFS_TESTS_ZOO_H

#include "tests/contract/bench.h"

enum {
    ZOO_SHORT_MS = 700, /* For calls that will not be answered. */
    ZOO_LONG_MS = 40000,
    ZOO_SLACK_MS = 3000, /* For a busy machine. */
};

struct zoo_row {
    const char *beast;
    const char *method; /* At which it shows itself. */
    int rc;             /* Of the call, or of a command's `why`; */
    const char *says;   /* words in its error, or the output. */
};

/* Short calls: scripts. */
extern const struct zoo_row zoo_quick[];
extern const size_t zoo_quick_count;
/* Commands. */
extern const struct zoo_row zoo_command[];
extern const size_t zoo_command_count;
/* Whole files. */
extern const struct zoo_row zoo_file[];
extern const size_t zoo_file_count;
/* Sandboxes that are made, */
extern const struct zoo_row zoo_open[];
extern const size_t zoo_open_count;
/* and that are ended. */
extern const struct zoo_row zoo_close[];
extern const size_t zoo_close_count;

/** @param row the beast to come next */
void zoo_arm(const struct zoo_row *row);
/** @return whether it has not come yet */
bool zoo_is_armed(void);
/** @param row what was armed; NULL: whatever it was */
void zoo_disarm(const struct zoo_row *row);
/** Holds a call's end against the row. @param row what was armed @param rc of
 *  the call @param err of it */
void zoo_check(const struct zoo_row *row, int rc, const struct err *err);
/** @param room whose token never fires @param ms from now @return limits */
struct limits zoo_within(struct bench_room *room, int64_t ms);
/** Demands that all is well with the session. @param room whose it is */
void zoo_works(struct bench_room *room);

/** The group of tests of commands. @return how many failed */
int zoo_commands(void);

#endif
