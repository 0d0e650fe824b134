/* What the files of core/files_over_exec share: scripts and their answers. */
#ifndef SESSIONFS_FILES_OVER_EXEC_PRIV_H
#define SESSIONFS_FILES_OVER_EXEC_PRIV_H

#include "core/buf.h"
#include "core/files_over_exec.h"

#include <limits.h>

enum {
    OVER_ARGS = 12,                  /* Of a script, with the NULL. */
    OVER_SMALL = 1024 * 1024,        /* Bytes that go along with a script. */
    OVER_LISTING = 32 * 1024 * 1024, /* Bytes of the longest listing. */
    OVER_RECORD = 3 * PATH_MAX, /* Bytes of attributes and a path, at most. */
};

/* One script for one path. Borrowed. */
struct over {
    struct provider *provider;
    const struct sandbox *sandbox;
    const struct limits *limits;
    const char *script; /* Of those below. */
    const char *args[OVER_ARGS];
    const char *const *list; /* Its arguments where there may be more. */
    const void *input;
    size_t input_size;
};

/* A path as its directory and its last name, as scripts want them. */
struct over_path {
    char dir[PATH_MAX];
    char name[PATH_MAX];
};

/** @param path as in struct provider_files @param out filled on success
 *  @param err filled on failure @return 0 or -ENAMETOOLONG */
MUST_USE int over_split(const char *path, struct over_path *out,
                        struct err *err);

/**
 * Runs a script.
 *
 * @param over what to run
 * @param out  its output, appended up to its cap
 * @param err  filled on failure
 * @return 0, the errno that the script has found out, or that of the engine
 */
MUST_USE int over_run(const struct over *over, struct buf *out,
                      struct err *err);

/** As over_run(), of a script that says nothing. @param over what to run
 *  @param err filled on failure @return 0 or a negative errno */
MUST_USE int over_do(const struct over *over, struct err *err);

/**
 * Reads a record of attributes.
 *
 * @param at   in a script's output; moved behind the record
 * @param end  of the output
 * @param path the path in it, in the output: its end becomes a NUL; without a
 *             leading `./`
 * @param out  the attributes
 * @return 1, 0: there is none or no whole one
 */
int over_record(char **at, const char *end, const char **path,
                struct stat *out);

/** @param time which @param out "seconds.nanoseconds" as touch takes it */
void over_time(const struct timespec *time, char out[48]);

/* The scripts. Each begins with the directory and the name of its path. */
extern const char over_stat[];
/* And the most bytes of entries, which follow in a directory: `d` before them
 * and `e` behind them. */
extern const char over_look[];
extern const char over_list[];  /* The directory, and the most bytes. */
extern const char over_names[]; /* The directory. */
extern const char over_named[]; /* The same; its input is names. */
extern const char over_tree[];  /* The directory, and the most bytes. */
extern const char over_create[];
extern const char over_make_dir[];
extern const char over_remove[];
extern const char over_rename[];
extern const char over_symlink[];
extern const char over_read_link[];
extern const char over_set_attr[];
extern const char over_link[];
extern const char over_statfs[];
extern const char over_read[];
extern const char over_write[];
extern const char over_get[];
extern const char over_get_many[]; /* The most bytes, and then paths. */
extern const char over_put[];
extern const char over_append[];

/* ---- Listings: files_over_exec_list.c ---- */

/* How a long listing is told. Changed by tests alone. */
struct over_pieces {
    size_t bytes; /* More of them come in pieces, */
    size_t names; /* of so many names each. */
};
extern struct over_pieces over_pieces;

int over_list_path(struct provider *provider, const struct sandbox *sandbox,
                   const char *path, const struct limits *limits,
                   provider_entry_fn *fn, void *arg, struct err *err);
int over_look_path(struct provider *provider, const struct sandbox *sandbox,
                   const char *path, const struct limits *limits,
                   struct provider_look *look, struct err *err);
int over_tree_path(struct provider *provider, const struct sandbox *sandbox,
                   const char *path, size_t most, const struct limits *limits,
                   provider_tree_fn *fn, void *arg, struct err *err);

/* ---- Data: files_over_exec_data.c ---- */

ssize_t over_read_at(struct provider *provider, const struct sandbox *sandbox,
                     const char *path, void *out, size_t size, uint64_t offset,
                     const struct limits *limits, struct err *err);
int over_write_at(struct provider *provider, const struct sandbox *sandbox,
                  const char *path, const void *data, size_t size,
                  uint64_t offset, const struct limits *limits,
                  struct err *err);
int over_get_file(struct provider *provider, const struct sandbox *sandbox,
                  const char *path, int fd, const struct limits *limits,
                  struct stat *was, struct err *err);
int over_get_files(struct provider *provider, const struct sandbox *sandbox,
                   const struct provider_many *many,
                   const struct limits *limits, struct err *err);
int over_put_file(struct provider *provider, const struct sandbox *sandbox,
                  const char *path, const struct provider_put *put,
                  const struct limits *limits, struct stat *now,
                  struct err *err);

#endif
