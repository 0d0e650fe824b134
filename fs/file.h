/*
 * An open control file. Knows no FUSE.
 *
 * What a row's show makes is kept from the read at offset 0 on, so that a
 * reader in small pieces sees one text. Files that are no such text have
 * file_ops. Thread-safe.
 */
#ifndef SESSIONFS_FILE_H
#define SESSIONFS_FILE_H

#include "core/buf.h"
#include "core/exec.h"
#include "core/mutex.h"
#include "fs/held.h"
#include "fs/node.h"

#include <stdatomic.h>
#include <sys/types.h>

struct file {
    atomic_uint refs;
    struct held held; /* While the kernel has it. */
    const struct node_mount *mount;
    struct node node;  /* With references. */
    struct exec *exec; /* Of files below execs/N; a reference. */
    int flags;         /* Of open(2). */
    struct mutex lock;
    struct buf text GUARDED; /* by lock */
    bool shown GUARDED;      /* by lock: text has been made. */
    uint64_t place GUARDED;  /* by lock: how far was read; for poll. */
    uint64_t missed GUARDED; /* by lock: bytes that went before it read them. */
    void *own;               /* The ops'. */
};

/* Who calls, in a read, write or flush. */
struct file_call {
    struct caller caller;
    uint64_t owner; /* The process's table of files: `lock_owner`. */
};

/* A command that a close waits for: until exec_answered(). */
struct file_pending {
    struct list link;
    uint64_t owner;    /* Who wrote it. */
    struct exec *exec; /* A reference. */
};

/* What a flush has to wait for. */
struct file_wait {
    struct list pending; /* Of struct file_pending. */
    bool brief;          /* The caller is exiting: it can wait a second. */
};

/**
 * Adds to a list of commands that are waited for.
 *
 * @param list  of struct file_pending
 * @param owner who wrote it
 * @param exec  takes a reference
 * @param err   filled on failure
 * @return 0 or -ENOMEM
 */
MUST_USE int file_pending_add(struct list *list, uint64_t owner,
                              struct exec *exec, struct err *err);
/** @param from emptied @param to gets what it had */
void file_pending_move(struct list *from, struct list *to);
/** @param list emptied */
void file_pending_done(struct list *list);

/* Functions that a row may have; each may be NULL. */
struct file_ops {
    /* A read may take so long that it would hold up the loop. */
    bool slow;
    /* Where its content begins, of all that it ever had. */
    uint64_t (*begin)(const struct node_ctx *ctx);
    /* Whether there is such a file. */
    bool (*there)(const struct node_ctx *ctx);
    /* What a read from the start would give now. */
    uint64_t (*size)(const struct node_ctx *ctx);
    /* Makes file->own, or what else it needs from its opening on. */
    int (*init)(struct file *file, struct err *err);
    /* Frees file->own. */
    void (*done)(struct file *file);
    /* Calls done once, perhaps at once: then open(2) goes on. */
    void (*open)(struct file *file, const struct caller *caller, done_fn *done,
                 void *arg);
    /* Bytes, 0 at the end, or a negative errno; -EAGAIN, without words: wait
     * for what watch says, then ask again. */
    ssize_t (*read)(struct file *file, const struct file_call *call,
                    uint64_t offset, void *out, size_t size, struct err *err);
    /* The command that is watched now, a reference; NULL: ask again. */
    struct exec *(*watch)(struct file *file, struct exec_watch *watch);
    /* 0 or a negative errno; takes all. */
    int (*write)(struct file *file, const struct file_call *call,
                 const void *data, size_t size, struct err *err);
    int (*flush)(struct file *file, const struct file_call *call,
                 struct file_wait *out, struct err *err);
    /* Whether a read would give something new, or the end, without waiting. */
    bool (*readable)(struct file *file);
};

/**
 * Opens a file; ops->open is left to the caller.
 *
 * @param mount borrowed
 * @param node  which; references are taken
 * @param flags of open(2)
 * @param out   the file, on success: file_close()
 * @param err   filled on failure
 * @return 0, -EACCES for writing what cannot be written, -ENOENT, -ENOMEM
 */
MUST_USE int file_open(const struct node_mount *mount, const struct node *node,
                       int flags, struct file **out, struct err *err);

/** @param file one more reference @return file */
struct file *file_ref(struct file *file);
/** @param file one reference less; NULL is fine */
void file_close(struct file *file);

/** @param file a file @return whether it is open for writing */
bool file_writes(const struct file *file);

/**
 * Reads.
 *
 * @param file   the file
 * @param call   who
 * @param offset where
 * @param out    at most size bytes
 * @param size   of out
 * @param err    filled on failure, but for -EAGAIN
 * @return bytes, 0 at the end, or a negative errno; -EAGAIN as file_ops.read
 */
MUST_USE ssize_t file_read(struct file *file, const struct file_call *call,
                           uint64_t offset, void *out, size_t size,
                           struct err *err);

/**
 * Obeys one write(2) of a file that has a store function.
 *
 * @param file the file
 * @param call who
 * @param data what was written
 * @param size bytes
 * @param done called once, perhaps at once; -EINVAL for what is no text
 * @param arg  given to done
 */
void file_store(struct file *file, const struct file_call *call,
                const void *data, size_t size, done_fn *done, void *arg);

/** @param file a file @return whether poll(2) calls it readable */
bool file_readable(struct file *file);

#endif
