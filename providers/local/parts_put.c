/* Writes files in parts. See parts.h. */
#include "providers/local/parts_priv.h"

#include "core/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

enum {
    GRAIN = 4096,       /* What differs in a byte differs in so many. */
    SOURCES_LIKED = 64, /* With more of them a file is better made whole. */
    BLOCK = 512,        /* Of st_blocks. */
};

/* ---- Writing ---- */

static int write_all(int fd, const void *data, size_t size, uint64_t at)
{
    size_t done = 0;

    while (done < size) {
        ssize_t n = pwrite(fd, (const char *)data + done, size - done,
                           (off_t)(at + done));

        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int check(const struct limits *limits)
{
    struct err err = ERR_INIT;

    return limits_check(limits, "", &err);
}

static int copy_span(const struct parts *parts, const struct parts_span *span,
                     int to, const struct limits *limits)
{
    static _Thread_local char data[PARTS_PIECE];
    int rc = 0;

    for (uint64_t at = span->at; rc == 0 && at < span->end; at += PARTS_PIECE) {
        size_t most = span->end - at < PARTS_PIECE ? (size_t)(span->end - at)
                                                   : PARTS_PIECE;
        ssize_t n = parts_read(parts, data, most, at);

        rc = n < 0 ? (int)n : write_all(to, data, (size_t)n, at);
        rc = rc == 0 ? check(limits) : rc;
    }
    return rc;
}

int parts_copy(const struct parts *parts, int to, const struct limits *limits)
{
    int rc = ftruncate(to, (off_t)parts->size) < 0 ? -errno : 0;

    for (size_t i = 0; rc == 0 && i < parts->count; i++) {
        rc = copy_span(parts, &parts->pieces[i].span, to, limits);
    }
    return rc;
}

static int set_mark(const struct parts_place *place, int to, uint64_t offset)
{
    char text[PARTS_NAME_SIZE];
    int size = snprintf(text, sizeof(text), "%" PRIu64 ".%" PRIu64,
                        place->layer, offset);

    return fsetxattr(to, PARTS_MARK, text, (size_t)size, 0) < 0 ? -errno : 0;
}

/* Adds a record, and has the file tell where it is. */
static int note(const struct parts_place *place, const char *path,
                uint64_t base, const struct parts_spans *spans, int to)
{
    const struct parts_record head = {.base = base,
                                      .spans = spans->count,
                                      .path_size = (uint32_t)strlen(path)};
    const size_t size = spans->count * sizeof(*spans->all);
    AUTO_FD int fd =
        parts_records(place->store, place->layer, O_RDWR | O_CREAT);
    struct stat before;
    struct stat after;
    uint64_t at;
    int rc = fd < 0 ? fd : (fstat(fd, &before) < 0 ? -errno : 0);

    if (rc < 0) {
        return rc;
    }
    at = (uint64_t)before.st_size;
    rc = write_all(fd, &head, sizeof(head), at);
    if (rc == 0) {
        rc = write_all(fd, path, head.path_size, at + sizeof(head));
    }
    if (rc == 0) {
        rc =
            write_all(fd, spans->all, size, at + sizeof(head) + head.path_size);
    }
    if (rc == 0 && fstat(fd, &after) == 0) {
        *place->bytes += (uint64_t)(after.st_blocks - before.st_blocks) * BLOCK;
    }
    return rc == 0 ? set_mark(place, to, at) : rc;
}

static int write_spans(const struct parts_place *place,
                       const struct parts *parts,
                       const struct parts_spans *spans, int to)
{
    int rc = ftruncate(to, (off_t)parts->size) < 0 ? -errno : 0;

    for (size_t i = 0; rc == 0 && i < spans->count; i++) {
        rc = copy_span(parts, &spans->all[i], to, place->limits);
    }
    return rc;
}

/* ---- What differs ---- */

static int compare_piece(const char *a, const char *b, size_t size, uint64_t at,
                         struct parts_spans *out)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < size; i += GRAIN) {
        size_t n = size - i < GRAIN ? size - i : GRAIN;

        if (memcmp(a + i, b + i, n) != 0) {
            rc = parts_span_add(out, at + i, at + i + n);
        }
    }
    return rc;
}

/* One that ends earlier has zeros behind. */
static ssize_t read_padded(const struct parts *parts, char *out, uint64_t at)
{
    ssize_t n = parts_read(parts, out, PARTS_PIECE, at);

    if (n >= 0) {
        memset(out + n, 0, PARTS_PIECE - (size_t)n);
    }
    return n;
}

static int compare(const struct parts *now, const struct parts *then,
                   const struct limits *limits, struct parts_spans *out)
{
    AUTO_FREE char *data = malloc((size_t)PARTS_PIECE * 2);
    int rc = data ? 0 : -ENOMEM;

    for (uint64_t at = 0; rc == 0 && at < now->size; at += PARTS_PIECE) {
        ssize_t n = read_padded(now, data, at);
        ssize_t m = n < 0 ? n : read_padded(then, data + PARTS_PIECE, at);

        rc = m < 0
                 ? (int)m
                 : compare_piece(data, data + PARTS_PIECE, (size_t)n, at, out);
        rc = rc == 0 ? check(limits) : rc;
    }
    return rc;
}

static uint64_t sum(const struct parts_spans *spans)
{
    uint64_t all = 0;

    for (size_t i = 0; i < spans->count; i++) {
        all += spans->all[i].end - spans->all[i].at;
    }
    return all;
}

/* ---- From a layer below ---- */

/* The file of that path in the topmost layer that has one, or 1. */
static int open_base(const struct parts_place *place, const char *path,
                     uint64_t *layer, struct parts **out)
{
    AUTO_FD int fd = -ENOENT;
    struct stat attr;

    for (size_t i = 0; fd == -ENOENT && i < place->count; i++) {
        *layer = place->others[i];
        fd = parts_find(place->store, *layer, path);
    }
    if (fd < 0 || fstat(fd, &attr) < 0 || !S_ISREG(attr.st_mode)) {
        return 1;
    }
    return parts_open(place->store, fd, out);
}

/* Writes what differs, where that is little. */
static int put(const struct parts_place *place, const char *path,
               const struct parts *now, const struct parts *then,
               uint64_t layer, int to)
{
    struct parts_spans spans = {.all = NULL};
    int rc = compare(now, then, place->limits, &spans);

    if (rc == 0 && sum(&spans) > now->size / 2) {
        rc = 1;
    }
    if (rc == 0) {
        rc = write_spans(place, now, &spans, to);
    }
    if (rc == 0) {
        rc = note(place, path, layer, &spans, to);
    }
    free(spans.all);
    return rc == -EOPNOTSUPP ? 1 : rc; /* No such attributes there. */
}

int parts_put(const struct parts_place *place, const char *path, int from,
              int to)
{
    struct parts *now = NULL;
    struct parts *then = NULL;
    uint64_t layer = 0;
    struct stat attr;
    int rc = fstat(from, &attr) < 0 ? -errno : 0;

    /* Of sparse ones the holes would have to be told as well. */
    if (rc == 0 && ((uint64_t)attr.st_size < parts_least() ||
                    attr.st_blocks * BLOCK < attr.st_size)) {
        rc = 1;
    }
    if (rc == 0) {
        rc = open_base(place, path, &layer, &then);
    }
    if (rc == 0 && (then->size < (uint64_t)attr.st_size / 2 ||
                    then->source_count > SOURCES_LIKED)) {
        rc = 1;
    }
    if (rc == 0) {
        rc = parts_open(place->store, from, &now);
    }
    if (rc == 0) {
        rc = put(place, path, now, then, layer, to);
    }
    parts_close(now);
    parts_close(then);
    return rc;
}

/* ---- From several layers ---- */

static bool is_other(const struct parts_place *place, uint64_t layer)
{
    for (size_t i = 0; i < place->count; i++) {
        if (place->others[i] == layer) {
            return true;
        }
    }
    return false;
}

/* All that does not come from a source, or one below it. */
static int find_own(const struct parts *parts, size_t base,
                    struct parts_spans *out)
{
    uint64_t at = 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < parts->count; i++) {
        const struct parts_piece *piece = &parts->pieces[i];

        if (piece->source >= base) {
            rc = at < piece->span.at ? parts_span_add(out, at, piece->span.at)
                                     : 0;
            at = piece->span.end;
        }
    }
    return rc == 0 && at < parts->size ? parts_span_add(out, at, parts->size)
                                       : rc;
}

int parts_join(const struct parts_place *place, const char *path,
               const struct parts *parts, int to)
{
    struct parts_spans spans = {.all = NULL};
    size_t base = 0;
    int rc;

    while (base < parts->source_count &&
           is_other(place, parts->sources[base].layer)) {
        base++;
    }
    if (base == parts->source_count) {
        return parts_copy(parts, to, place->limits);
    }
    rc = find_own(parts, base, &spans);
    if (rc == 0) {
        rc = write_spans(place, parts, &spans, to);
    }
    if (rc == 0) {
        rc = note(place, path, parts->sources[base].layer, &spans, to);
    }
    free(spans.all);
    return rc;
}
