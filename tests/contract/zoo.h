/* What the beasts of fakes/zoo.py do to calls. */
#ifndef SESSIONFS_TESTS_ZOO_H
#define SESSIONFS_TESTS_ZOO_H

#include <stddef.h>

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

#endif
