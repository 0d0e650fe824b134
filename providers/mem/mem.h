/*
 * The provider `mem`, for tests: sandboxes that live in this process, with a
 * real tree of files and commands in a tiny language (exec.c). Faults are
 * injected through a directory (faults.c). A sandbox dies with the daemon; its
 * checkpoints are kept on the disk.
 *
 * Private to providers/mem/. One lock guards everything but the fields of a
 * running command, which belong to the loop's thread.
 */
#ifndef SESSIONFS_PROVIDERS_MEM_H
#define SESSIONFS_PROVIDERS_MEM_H

#include "core/list.h"
#include "core/mutex.h"
#include "core/provider_files.h"
#include "core/provider_snapshots.h"

enum {
    MEM_DATA_MOST = 256 * 1024 * 1024 /* Bytes of files in a sandbox. */
};

struct mem_inode;

struct mem {
    struct provider base; /* First. */
    struct loop *loop;
    char *control; /* Directory of faults, or NULL. */
    struct mutex lock;
    struct list boxes;    /* By lock, like all below. */
    struct list commands; /* Until they are closed. */
    struct cond closed;   /* A command is closed, or obeyed is set. */
    bool obeyed;          /* No order to end commands is on its way. */
    uint64_t made;        /* Sandboxes so far. */
};

/* By mem->lock. */
struct mem_box {
    struct list link;
    uint64_t number; /* Of its session. */
    char *external_id;
    bool paused;
    struct mem_inode *root;
    uint64_t last_ino;
    size_t bytes;
    uint64_t version;       /* Moves with whatever changes in the tree. */
    uint64_t saved;         /* The key of the newest checkpoint, 0: none, */
    uint64_t saved_version; /* and the version that it holds. */
};

/** @param provider a mem @return its object */
struct mem *mem_of(struct provider *provider);

/**
 * Finds a sandbox; the lock is held.
 *
 * @param mem     the provider
 * @param sandbox which; its external_id must be that of the one that is there
 * @return it, or NULL: lost
 */
struct mem_box *mem_find(struct mem *mem, const struct sandbox *sandbox)
    REQUIRES(mem->lock);

/** @param mem the provider @param box out of its list, freed; the lock is held
 */
void mem_box_drop(struct mem *mem, struct mem_box *box) REQUIRES(mem->lock);

/**
 * Makes a sandbox with an empty tree; the lock is held.
 *
 * @param mem     the provider
 * @param sandbox its instance is filled
 * @param out     the box, on success
 * @param err     filled on failure
 * @return 0 or -ENOMEM
 */
MUST_USE int mem_make_box(struct mem *mem, struct sandbox *sandbox,
                          struct mem_box **out, struct err *err)
    REQUIRES(mem->lock);

/* ---- Faults: faults.c ---- */

/**
 * Does what the control directory says about an operation, before it is done.
 *
 * @param mem     the provider
 * @param op      its name
 * @param sandbox which it is about
 * @param limits  deadline and token of the call
 * @param err     filled on failure
 * @return 0, or the failure that the operation shall have
 */
MUST_USE int mem_fault(struct mem *mem, const char *op,
                       const struct sandbox *sandbox,
                       const struct limits *limits, struct err *err);

/* ---- Trees: tree.c; the lock is held ---- */

struct mem_inode {
    struct stat attr; /* Its size is that of data, too. */
    char *data;       /* Of a file, or the target of a link. */
    size_t room;
    struct list names; /* Of a directory: struct mem_name, in order. */
};

struct mem_name {
    struct list link;
    struct mem_inode *inode;
    char *name;
};

/** @param box gets an empty root @return 0 or -ENOMEM */
MUST_USE int mem_tree_init(struct mem_box *box);
/** @param box its tree is freed */
void mem_tree_done(struct mem_box *box);

/**
 * Finds a file without following links.
 *
 * @param box  the sandbox
 * @param path as in struct provider_files
 * @param out  the file, on success
 * @param err  filled on failure
 * @return 0, -ENOENT, -ENOTDIR
 */
MUST_USE int mem_tree_find(struct mem_box *box, const char *path,
                           struct mem_inode **out, struct err *err);

/**
 * Makes a file, a directory or a link.
 *
 * @param box  the sandbox
 * @param path its path
 * @param mode with its type
 * @param out  the file, on success
 * @param err  filled on failure
 * @return 0, -EEXIST, -ENOENT, -ENOTDIR, -ENOMEM
 */
MUST_USE int mem_tree_make(struct mem_box *box, const char *path, mode_t mode,
                           struct mem_inode **out, struct err *err);

/** @param box the sandbox @param path a name that goes @param dir a directory
 *  @param err filled on failure @return 0 or as unlink(2) and rmdir(2) */
MUST_USE int mem_tree_remove(struct mem_box *box, const char *path, bool dir,
                             struct err *err);

/** @param box the sandbox @param from a path @param to a path @param flags of
 *  renameat2(2) @param err filled on failure @return 0 or as renameat2(2) */
MUST_USE int mem_tree_rename(struct mem_box *box, const char *from,
                             const char *to, unsigned flags, struct err *err);

/** @param box the sandbox @param from a file @param to a new name
 *  @param err filled on failure @return 0 or as link(2) */
MUST_USE int mem_tree_link(struct mem_box *box, const char *from,
                           const char *to, struct err *err);

/** @param box the sandbox @param inode a file @param size its new length
 *  @param err filled on failure @return 0, -ENOSPC, -ENOMEM */
MUST_USE int mem_tree_resize(struct mem_box *box, struct mem_inode *inode,
                             uint64_t size, struct err *err);

/**
 * Writes into a file, which grows as needed.
 *
 * @param box    the sandbox
 * @param inode  a file or a new link
 * @param data   borrowed
 * @param size   bytes
 * @param offset in the file
 * @param err    filled on failure
 * @return 0, -ENOSPC, -ENOMEM
 */
MUST_USE int mem_tree_write(struct mem_box *box, struct mem_inode *inode,
                            const void *data, size_t size, uint64_t offset,
                            struct err *err);

extern const struct provider_files mem_files;

/* ---- Steps of file calls: files.c, for whole.c ---- */

/**
 * Begins a call: on success the lock is held and the sandbox is there. Names
 * and attributes are known of a paused one, too; its data is not.
 *
 * @param provider a mem
 * @param sandbox  which
 * @param op       as faults.c names it
 * @param limits   deadline and token
 * @param out      the sandbox, on success
 * @param err      filled on failure
 * @return 0, or what the fault said, -ESTALE, -EHOSTDOWN
 */
MUST_USE int mem_enter(struct provider *provider, const struct sandbox *sandbox,
                       const char *op, const struct limits *limits,
                       struct mem_box **out, struct err *err) NO_TSA;
/** @param provider whose lock is given back */
void mem_leave(struct provider *provider) NO_TSA;

/**
 * Copies a directory's entries, so that no lock is held while they are told.
 *
 * @param box  the sandbox
 * @param path a directory
 * @param out  the entries, for mem_free_entries(), on success
 * @param n    how many
 * @param err  filled on failure
 * @return 0, -ENOENT, -ENOTDIR, -ENOMEM
 */
MUST_USE int mem_copy_names(struct mem_box *box, const char *path,
                            struct provider_entry **out, size_t *n,
                            struct err *err);
/** @param entries freed with their names @param n how many */
void mem_free_entries(struct provider_entry *entries, size_t n);

/** @param box the sandbox @param path of a file that has data @param out the
 *  file @param err filled on failure @return 0, -EISDIR, -ELOOP, -ENOENT */
MUST_USE int mem_find_file(struct mem_box *box, const char *path,
                           struct mem_inode **out, struct err *err);

/** @param box the sandbox @param inode changed @param mask which attributes
 *  @param want their values @param err filled on failure @return 0, -EISDIR …
 */
MUST_USE int mem_apply_attr(struct mem_box *box, struct mem_inode *inode,
                            unsigned mask, const struct stat *want,
                            struct err *err);

/* ---- Calls that save round trips: whole.c, as struct provider_files ---- */

int mem_tell_tree(struct provider *provider, const struct sandbox *sandbox,
                  const char *path, size_t most, const struct limits *limits,
                  provider_tree_fn *fn, void *arg, struct err *err);
int mem_get_file(struct provider *provider, const struct sandbox *sandbox,
                 const char *path, int fd, const struct limits *limits,
                 struct stat *was, struct err *err);
int mem_get_many(struct provider *provider, const struct sandbox *sandbox,
                 const struct provider_many *many, const struct limits *limits,
                 struct err *err);
int mem_put_file(struct provider *provider, const struct sandbox *sandbox,
                 const char *path, const struct provider_put *put,
                 const struct limits *limits, struct stat *now,
                 struct err *err);

/* ---- Checkpoints: snapshots.c, differ.c, saved.c; the lock is held ---- */

extern const struct provider_snapshots mem_snapshots;
provider_changes_fn mem_changes;

/** @param sandbox all its checkpoints are removed */
void mem_drop_all(const struct sandbox *sandbox);

/** @param from a tree; NULL: an empty one @param to another
 *  @param fn called for each change @param arg given to fn
 *  @return 0, what fn said, or -ENOMEM */
MUST_USE int mem_differ(const struct mem_box *from, const struct mem_box *to,
                        provider_change_fn *fn, void *arg);

/** @param box its tree is written @param dir into this new directory
 *  @param err filled on failure @return 0 or a negative errno */
MUST_USE int mem_save(struct mem_box *box, const char *dir, struct err *err);
/** @param box without a tree; gets one @param dir as mem_save() wrote it
 *  @param err filled on failure @return 0, -ENOENT, or another negative errno
 */
MUST_USE int mem_load(struct mem_box *box, const char *dir, struct err *err);
/** @param dir removed with all that is in it, where it is there */
void mem_unsave(const char *dir);

/* ---- Words of commands about files: verbs.c; the lock is held ---- */

/** @param word of a command @return whether mem_run_verb() knows it */
bool mem_is_verb(const char *word);

/**
 * Does what a word says.
 *
 * @param box  the sandbox; NULL: it is gone
 * @param word which
 * @param path a path, also one that begins with /workspace
 * @param text what to write
 * @param data what was read, the caller's to free, on success
 * @param size of data, on success
 * @param err  filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int mem_run_verb(struct mem_box *box, const char *word,
                          const char *path, const char *text, char **data,
                          size_t *size, struct err *err);

/* ---- Commands: exec.c ---- */

provider_exec_fn mem_exec;
provider_signal_fn mem_signal;

/**
 * Ends all commands of a sandbox, soon. The lock is not needed.
 *
 * @param mem    the provider
 * @param number of the session; 0: all sessions'
 * @param end    how they end
 */
void mem_end_commands(struct mem *mem, uint64_t number, enum command_end end);

/**
 * Ends all commands and waits until nothing of them is left in the loop.
 *
 * @param mem the provider; no other call is made any more
 */
void mem_settle(struct mem *mem);

#endif
