/*
 * What an open `exec` and an open `exec.json` have in common: what the
 * processes that share the handle gathered, the commands that they wait for
 * when they close it, and the command that the handle reads.
 *
 * A handle reads the newest command that was written through it, from its
 * start; one that never ran a command, the session's last.
 */
#ifndef SESSIONFS_EXEC_HANDLE_H
#define SESSIONFS_EXEC_HANDLE_H

#include "fs/file.h"
#include "fs/gather.h"

struct exec_handle {
    /* All by file->lock. */
    struct gather gather;
    struct list pending;  /* Commands that close waits for. */
    struct exec *current; /* A reference, or NULL. */
    bool ran;             /* current was written through this handle. */
    bool at_end;          /* Its end has been told. */
    struct buf answer;    /* The text that exec.json reads, */
    bool answered;        /* once it is made. */
};

/** @param file an open file @return its handle */
struct exec_handle *exec_handle_of(struct file *file);

/** Makes the handle. @param file gets it @param kind what is gathered
 *  @param err filled on failure @return 0 or -ENOMEM */
MUST_USE int exec_handle_init(struct file *file, const struct gather_kind *kind,
                              struct err *err);

/** As file_ops.done. @param file whose handle is freed */
void exec_handle_done(struct file *file);

/** As file_ops.open. @param file the file @param caller who asks @param done
 *  called once @param arg given to done */
void exec_handle_open(struct file *file, const struct caller *caller,
                      done_fn *done, void *arg);

/**
 * A reader is told that a command could not be run: shells hide the error that
 * its close gave.
 *
 * @param exec a command
 * @param err  filled on failure
 * @return 0, or why it failed
 */
MUST_USE int exec_handle_check(struct exec *exec, struct err *err);

/** A command was written through the handle: it is read from now on.
 *  @param file the file @param exec takes a reference */
void exec_handle_bind(struct file *file, struct exec *exec);

/**
 * Makes its writer's close wait for a command.
 *
 * @param file  the file
 * @param owner who wrote it
 * @param exec  takes a reference
 * @param err   filled on failure: it runs, but close will not wait
 * @return 0 or -ENOMEM
 */
MUST_USE int exec_handle_pend(struct file *file, uint64_t owner,
                              struct exec *exec, struct err *err);

/**
 * Whether what the closing process has gathered may run: a killed writer
 * leaves nothing; nor does one that exits and whose exit code we may not see.
 *
 * @param call    who closes
 * @param exiting written: whether the process is on its way out
 * @return whether it may
 */
bool exec_handle_may_run(const struct file_call *call, bool *exiting);

/**
 * Takes what a process that closes has to wait for.
 *
 * @param file  the file
 * @param owner who closes
 * @param out   its list gets them
 */
void exec_handle_take(struct file *file, uint64_t owner, struct file_wait *out);

/** Where the handle has no command of its own and has told the last one's end,
 *  it goes on with a newer one. @param file the file */
void exec_handle_follow(struct file *file);

/**
 * A handle keeps its own place, whatever the offsets of its reads, but for 0:
 * that reads the same command's output again.
 *
 * @param file   the file, after exec_handle_follow()
 * @param offset of a read
 */
void exec_handle_seek(struct file *file, uint64_t offset);

#endif
