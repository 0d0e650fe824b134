/*
 * A `struct provider_files` for providers that can run scripts, and read and
 * write whole files, and no more: their run, read_file and write_file slots.
 *
 * Each call is one script for a POSIX shell with the usual tools, be they of
 * GNU, busybox or toybox; a whole directory, or a whole tree, with all
 * attributes is one. Names are any bytes and only ever arguments. A script
 * goes into a directory step by step and follows no link, and when something
 * fails it looks for the reason itself, so that no errno is guessed from the
 * words of a tool.
 */
#ifndef SESSIONFS_FILES_OVER_EXEC_H
#define SESSIONFS_FILES_OVER_EXEC_H

#include "core/provider_files.h"

extern const struct provider_files files_over_exec;

#endif
