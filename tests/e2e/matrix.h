/*
 * Programs that write commands to `exec`: rows of the matrix whose columns are
 * the ways in which that goes well or wrong. A row tells how its program does
 * each, and what it makes of an error; what then has run follows from the
 * column alone.
 */
#ifndef SESSIONFS_TESTS_E2E_MATRIX_H
#define SESSIONFS_TESTS_E2E_MATRIX_H

#include <stdbool.h>
#include <stddef.h>

enum {
    WAY_PLAIN,  /* Opened as by `>`, */
    WAY_APPEND, /* `>>`, */
    WAY_BOTH,   /* and `<>`. */
    WAYS,
};

/*
 * The scripts are bash's, in the session's directory, and write the text that
 * is in the file $T/text and, as a format of printf and `echo -e` without its
 * last newline, in $F: two lines of echo, or what a column has in place of it.
 */
struct writer {
    const char *name;
    const char *write[WAYS];
    /* Writes the text and gets $SIG before it closes; NULL: its one call that
     * writes is also its last. `feed PROGRAM` gives it the text as input
     * without an end. */
    const char *killed;
    /* The handle is in another process, too, which ends before the second
     * line is written. */
    const char *inherited;
    const char *left; /* Ends without closing a handle that it has. */
    int at_open;      /* Its exit status when open fails, */
    int at_write;     /* when write does, */
    int at_close;     /* and close. */
    bool two;         /* `inherited` is a program for each line. */
    bool write_mute;  /* It does not say why write failed. */
    bool close_mute;
    bool no_nul; /* It cannot write one. */
    bool blind;  /* It does not look at how much one write took of a text that
                  * is too long: the kernel cuts that into two requests. */
    bool slow;   /* A system call for each few bytes. */
};

extern const struct writer matrix_writers[];
extern const size_t matrix_writers_count;

#endif
