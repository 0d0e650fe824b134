/*
 * Files of a sandbox that is not on this machine: one of the tables of
 * provider.h. Called by core/workspace_remote alone.
 */
#ifndef SESSIONFS_PROVIDER_FILES_H
#define SESSIONFS_PROVIDER_FILES_H

#include "core/provider.h"

/* One entry of a listing. */
struct provider_entry {
    const char *name; /* Bytes without '/' and NUL; borrowed. */
    struct stat attr; /* ino 0: the engine has none. */
};

/** @param arg the caller's @param entry borrowed @return 0, or an error that
 *  ends the listing */
typedef int provider_entry_fn(void *arg, const struct provider_entry *entry);

/** @param arg the caller's @param dir path of the directory that @param entry
 *  lies in; borrowed @return 0, or an error that ends the telling */
typedef int provider_tree_fn(void *arg, const char *dir,
                             const struct provider_entry *entry);

/* A look at a path. */
struct provider_look {
    provider_entry_fn *fn; /* For each entry, where it is a directory. */
    void *arg;
    size_t most; /* Of a larger one some entries are told, or none. */
    struct stat attr;
    bool whole; /* All its entries were told. */
};

/** @param arg the caller's @param i which of the files @param was its
 *  attributes with these bytes @param bytes its content, was->st_size of them;
 *  borrowed */
typedef void provider_content_fn(void *arg, size_t i, const struct stat *was,
                                 const void *bytes);

/* Small files that are wanted at once. */
struct provider_many {
    const char *const *paths;
    size_t n;
    size_t most; /* Bytes of all; of files that are larger by now some are not
                  * told. */
    provider_content_fn *fn;
    void *arg;
};

/* A file's new content. */
struct provider_put {
    int fd;                 /* Read from offset 0 to its end. */
    const struct stat *was; /* Size and mtime that it has now, mode 0: it is
                             * not there; NULL: any. */
    const char *half;       /* A name that nobody else has, for what is put
                             * together beside the file. */
    unsigned mask;          /* Of enum provider_attr: set with the content, */
    struct stat attr;       /* to this. */
};

/* What set_attr changes. */
enum provider_attr {
    PROVIDER_ATTR_MODE = 1 << 0,
    PROVIDER_ATTR_UID = 1 << 1,
    PROVIDER_ATTR_GID = 1 << 2,
    PROVIDER_ATTR_SIZE = 1 << 3,
    PROVIDER_ATTR_ATIME = 1 << 4,
    PROVIDER_ATTR_MTIME = 1 << 5,
};

/*
 * Files of a sandbox, by path. Paths are bytes, relative to the workspace,
 * without `.`, `..` and empty components; "" is the workspace itself. No call
 * follows a link in the last component. All slots as provider_life_fn for
 * limits and errors; those that change nothing are never NULL.
 */
struct provider_files {
    int (*stat)(struct provider *, const struct sandbox *, const char *path,
                const struct limits *, struct stat *out, struct err *);
    /* Names with attributes, `.` and `..` left out: one round trip. A long
     * listing may take several, each of which has the time of the first. */
    int (*list)(struct provider *, const struct sandbox *, const char *path,
                const struct limits *, provider_entry_fn *, void *arg,
                struct err *);
    /* Makes an empty file; -EEXIST. This and the next two tell what was made;
     * st_mode 0: they do not. */
    int (*create)(struct provider *, const struct sandbox *, const char *path,
                  mode_t mode, const struct limits *, struct stat *now,
                  struct err *);
    int (*make_dir)(struct provider *, const struct sandbox *, const char *path,
                    mode_t mode, const struct limits *, struct stat *now,
                    struct err *);
    int (*symlink)(struct provider *, const struct sandbox *,
                   const char *target, const char *path, const struct limits *,
                   struct stat *now, struct err *);
    /* A file or an empty directory, as `dir` says. */
    int (*remove)(struct provider *, const struct sandbox *, const char *path,
                  bool dir, const struct limits *, struct err *);
    /* flags: RENAME_NOREPLACE, RENAME_EXCHANGE or 0. */
    int (*rename)(struct provider *, const struct sandbox *, const char *from,
                  const char *to, unsigned flags, const struct limits *,
                  struct err *);
    /* At most size - 1 bytes and a NUL. */
    int (*read_link)(struct provider *, const struct sandbox *,
                     const char *path, const struct limits *, char *out,
                     size_t size, struct err *);
    /* `mask` of enum provider_attr; times to the nanosecond. */
    int (*set_attr)(struct provider *, const struct sandbox *, const char *path,
                    unsigned mask, const struct stat *, const struct limits *,
                    struct err *);
    /* Bytes read, 0 at the end. */
    ssize_t (*read_at)(struct provider *, const struct sandbox *,
                       const char *path, void *out, size_t size,
                       uint64_t offset, const struct limits *, struct err *);
    /* All bytes or an error. */
    int (*write_at)(struct provider *, const struct sandbox *, const char *path,
                    const void *data, size_t size, uint64_t offset,
                    const struct limits *, struct err *);
    int (*link)(struct provider *, const struct sandbox *, const char *from,
                const char *to, const struct limits *, struct err *);
    int (*statfs)(struct provider *, const struct sandbox *,
                  const struct limits *, struct statvfs *out, struct err *);

    /* ---- Optional: what saves round trips. ---- */

    /* Calls that may be under way at once; 0: one. */
    unsigned at_once;
    /* Attributes, with the entries of a directory. NULL: by stat. */
    int (*look)(struct provider *, const struct sandbox *, const char *path,
                const struct limits *, struct provider_look *, struct err *);
    /* All that lies below a directory, each directory after the one that it is
     * in: one round trip. -E2BIG when there is more than `most`; what was told
     * until then holds. NULL: a list each. */
    int (*tree)(struct provider *, const struct sandbox *, const char *path,
                size_t most, const struct limits *, provider_tree_fn *,
                void *arg, struct err *);
    /* The whole file into fd, from offset 0 on, with the attributes that it
     * had at that time. NULL: by read_at. */
    int (*get)(struct provider *, const struct sandbox *, const char *path,
               int fd, const struct limits *, struct stat *was, struct err *);
    /* Small files whole, as by get: one round trip. What is no file, or cannot
     * be read, is left out. NULL: a get each. */
    int (*get_many)(struct provider *, const struct sandbox *,
                    const struct provider_many *, const struct limits *,
                    struct err *);
    /* The whole of fd as the file's content; the file is made where there is
     * none. Readers see the old or the new content. -ESTALE, and nothing
     * changed, when it is not as put->was says. NULL: by create, write_at and
     * set_attr. */
    int (*put)(struct provider *, const struct sandbox *, const char *path,
               const struct provider_put *, const struct limits *,
               struct stat *now, struct err *);
};

/**
 * Counts a call of `struct provider_files`, made by core/workspace_remote
 * alone. Waits for its turn where the provider is serial.
 *
 * @param provider an open provider
 */
void provider_files_begin(struct provider *provider);
/**
 * Ends such a call and counts its failure; -ENOENT, the answer to a lookup, is
 * none.
 *
 * @param provider as given to provider_files_begin()
 * @param rc       what the slot returned
 * @param err      filled here where the slot forgot to
 * @return rc
 */
MUST_USE ssize_t provider_files_end(struct provider *provider, ssize_t rc,
                                    struct err *err);

#endif
