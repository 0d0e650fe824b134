/*
 * What a layer holds, as a tree in memory, and how it differs from an earlier
 * look. Nothing changes in it meanwhile: the sandbox's processes stand still.
 * Names come from a workload: nothing follows a link, and the depth costs
 * neither stack nor descriptors.
 */
#ifndef SESSIONFS_LOCAL_SCAN_H
#define SESSIONFS_LOCAL_SCAN_H

#include "core/cancel.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct shut;

/* A name. */
struct scan_node {
    struct scan_node *parent;
    struct scan_node **below; /* Of a directory: sorted by name, */
    uint32_t count;           /* this many, */
    uint32_t at;              /* for walks: the next one. */
    uint64_t ino;
    int64_t ctime_ns;
    uint64_t size;
    uint32_t mode;
    uint32_t links;
    uint32_t source; /* What the asker says. */
    bool whiteout;   /* Hides what lies below. */
    bool opaque;     /* A directory that hides what lies below; */
    uint64_t moved;  /* Of one that shows another from below: which; 0. */
    bool copied;     /* A directory that the kernel has copied from below, */
    bool kept;       /* and that has the mode that it had there. */
    bool loose;      /* May change without a change of its times. */
    /* How it differs: */
    const struct scan_node *old; /* A directory as it was, in part. */
    bool changed;                /* Itself; */
    bool need;                   /* or something below it. */
    bool cover;  /* A directory in place of what was there: all is new. */
    bool expand; /* All that it shows is new, also from layers below. */
    char name[];
};

/* What is looked at. */
struct scan_ask {
    int dir;                      /* The layer, readable. */
    struct shut *shut;            /* Opens directories of it; or NULL. */
    const struct scan_node *old;  /* As it was; NULL: it was empty. */
    const struct scan_node *skip; /* Without the names in there; or NULL. */
    bool plain;                   /* No layer: nothing hides or moves. */
    uint32_t source;              /* Copied into all nodes. */
    const char *const *loose[2];  /* Paths of loose files; NULL-terminated, or
                                   * NULL. */
};

/**
 * Looks at a layer.
 *
 * @param ask    borrowed; `old` and `skip` for as long as it matters how the
 *               result differs
 * @param limits deadline and token
 * @param out    the top directory, on success; scan_free() ends it
 * @param err    filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int scan_take(const struct scan_ask *ask, const struct limits *limits,
                       struct scan_node **out, struct err *err);

/** @param top freed with all below; NULL is fine */
void scan_free(struct scan_node *top);

/** @param dir a directory @param name in it @return its node, or NULL */
struct scan_node *scan_find(const struct scan_node *dir, const char *name);

/** @param node a file that may change without a change of its times: counts as
 *  changed */
void scan_loosen(struct scan_node *node);

/** @param top a tree @param path in it @return its node, or NULL */
struct scan_node *scan_at(struct scan_node *top, const char *path);

/** @param node the top one at first @return the next of all nodes of a tree, a
 *  directory before what is in it; NULL at the end: then it may begin anew */
struct scan_node *scan_walk(struct scan_node *node);

/** @param node a node @return its path, relative to the top, to free(); NULL
 *  without memory */
char *scan_path(const struct scan_node *node);

/** @param dir a directory @return the next in it that has `need`; NULL at the
 *  end: the next call begins anew */
struct scan_node *scan_next(struct scan_node *dir);

/** @param node a name @return whether what it names, no directory, has more
 *  names: they stay names of one */
bool scan_is_tied(const struct scan_node *node);

/** @param attr of a name @return whether it hides what lies below */
bool scan_is_whiteout(const struct stat *attr);

#endif
