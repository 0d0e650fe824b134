/* Files in parts, as those that implement parts.h share them. */
#ifndef SESSIONFS_LOCAL_PARTS_PRIV_H
#define SESSIONFS_LOCAL_PARTS_PRIV_H

#include "providers/local/parts.h"

#define PARTS_SUFFIX ".parts" /* Behind the layer's name. */

enum {
    PARTS_PIECE = 128 * 1024, /* What is read at once. */
    PARTS_NAME_SIZE = 64,
};

/* A stretch of a file. */
struct parts_span {
    uint64_t at;
    uint64_t end;
};

/* Those of one file, in order, none touching the next. */
struct parts_spans {
    struct parts_span *all;
    size_t count;
    size_t room;
};

/* In STORE/ID.parts; the path follows, then the spans that lie here. */
struct parts_record {
    uint64_t base;      /* The layer that has the rest, under the same path. */
    uint64_t spans;     /* How many. */
    uint32_t path_size; /* Without a NUL. */
    uint32_t unused;
};

/* A stretch that one of the sources has. */
struct parts_piece {
    struct parts_span span;
    size_t source;
};

struct parts_source {
    int fd;
    uint64_t layer; /* 0: not known. */
};

struct parts {
    uint64_t size;
    struct parts_source *sources; /* Each after those that hide it. */
    size_t source_count;
    struct parts_piece *pieces; /* In order; between them there are zeros. */
    size_t count;
    size_t room;
};

/* Adds a stretch behind all others; may make the last one longer. */
MUST_USE int parts_span_add(struct parts_spans *spans, uint64_t at,
                            uint64_t end);
/* Opens the file of a path in a layer, O_PATH. */
MUST_USE int parts_find(int store, uint64_t layer, const char *path);
/* Opens the records of a layer. */
MUST_USE int parts_records(int store, uint64_t layer, int flags);

#endif
