/*
 * The kernel's notes about the directories of an overlay: extended attributes
 * of its layers. They have one prefix for the machine's root and another one
 * for all others, and only what has the right one is a note: the other is a
 * workload's to use. What it sets itself under the right one the kernel keeps
 * under a name that is none.
 */
#ifndef SESSIONFS_LOCAL_NOTE_H
#define SESSIONFS_LOCAL_NOTE_H

#include "core/compiler.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* What notes say. */
#define NOTE_OPAQUE   "opaque"   /* "y": hides what lies below. */
#define NOTE_ORIGIN   "origin"   /* It was copied from there. */
#define NOTE_REDIRECT "redirect" /* Shows another directory from below. */

/** @return whether the kernel's notes are those of the machine's root */
bool note_trusted(void);

/** @param name of an attribute of a file in a layer @return whether it is one
 *  of the kernel's notes */
bool note_is(const char *name);

/** @param fd of a directory in a layer @param what NOTE_… @param out its value
 *  @param size room in it; 0 asks for the length @return the value's length,
 *  or a negative errno: -ENODATA without such a note */
ssize_t note_get(int fd, const char *what, char *out, size_t size);

/** Has a directory of a layer hide what lies below. @param fd of it @return 0
 *  or a negative errno */
MUST_USE int note_set_opaque(int fd);

#endif
