/* Reads files in parts. See parts.h. */
#include "providers/local/parts_priv.h"

#include "core/array.h"
#include "core/cleanup.h"
#include "providers/local/below.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

enum {
    LEAST = 4 * 1024 * 1024,
    SOURCES_MOST = 4096, /* More are a circle. */
    FD_PATH = 32,
};

/* Where the record of a file lies. */
struct mark {
    uint64_t layer;
    uint64_t offset;
};

/* A record in memory. */
struct record {
    struct parts_record head;
    char *path;
    struct parts_span *spans;
};

static atomic_uint_fast64_t least = LEAST;

uint64_t parts_least(void)
{
    return atomic_load(&least);
}

void parts_from(uint64_t bytes)
{
    atomic_store(&least, bytes);
}

/* ---- Marks and records ---- */

static void name_fd(int fd, char out[FD_PATH])
{
    (void)snprintf(out, FD_PATH, "/proc/self/fd/%d", fd);
}

/* Says 1 when there is one. */
static int read_mark(int fd, struct mark *out)
{
    char path[FD_PATH];
    char text[PARTS_NAME_SIZE];
    ssize_t size;

    name_fd(fd, path);
    size = getxattr(path, PARTS_MARK, text, sizeof(text) - 1);
    if (size < 0) {
        return errno == ENODATA || errno == EOPNOTSUPP ? 0 : -errno;
    }
    text[size] = '\0';
    return sscanf(text, "%" SCNu64 ".%" SCNu64, &out->layer, &out->offset) == 2
               ? 1
               : -EIO;
}

bool parts_is(int fd)
{
    struct mark mark;
    struct stat attr;

    return fstat(fd, &attr) == 0 && S_ISREG(attr.st_mode) &&
           (uint64_t)attr.st_size >= parts_least() && read_mark(fd, &mark) != 0;
}

int parts_records(int store, uint64_t layer, int flags)
{
    char name[PARTS_NAME_SIZE];
    int fd;

    (void)snprintf(name, sizeof(name), "%" PRIu64 PARTS_SUFFIX, layer);
    fd = openat(store, name, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? -errno : fd;
}

bool parts_any(int store, uint64_t layer)
{
    char name[PARTS_NAME_SIZE];

    (void)snprintf(name, sizeof(name), "%" PRIu64 PARTS_SUFFIX, layer);
    return faccessat(store, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void parts_remove(int store, uint64_t layer)
{
    char name[PARTS_NAME_SIZE];

    (void)snprintf(name, sizeof(name), "%" PRIu64 PARTS_SUFFIX, layer);
    (void)unlinkat(store, name, 0);
}

static void free_record(struct record *record)
{
    free(record->path);
    free(record->spans);
}

static int read_all(int fd, void *out, size_t size, uint64_t at)
{
    size_t done = 0;

    while (done < size) {
        ssize_t n =
            pread(fd, (char *)out + done, size - done, (off_t)(at + done));

        if (n == 0) {
            return -EIO;
        }
        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Reads one; tells where the next would begin. */
static int read_record(int fd, uint64_t at, struct record *out, uint64_t *next)
{
    struct record record = {.path = NULL};
    struct stat attr;
    uint64_t left;
    int rc = fstat(fd, &attr) < 0
                 ? -errno
                 : read_all(fd, &record.head, sizeof(record.head), at);

    if (rc < 0) {
        return rc;
    }
    at += sizeof(record.head);
    left = (uint64_t)attr.st_size - at;
    if (record.head.path_size > left ||
        record.head.spans > left / sizeof(struct parts_span)) {
        return -EIO;
    }
    record.path = calloc(record.head.path_size + 1U, 1);
    record.spans = calloc(record.head.spans + 1, sizeof(struct parts_span));
    rc = record.path && record.spans
             ? read_all(fd, record.path, record.head.path_size, at)
             : -ENOMEM;
    at += record.head.path_size;
    if (rc == 0) {
        rc = read_all(fd, record.spans,
                      record.head.spans * sizeof(struct parts_span), at);
    }
    if (rc < 0) {
        free_record(&record);
        return rc;
    }
    *next = at + record.head.spans * sizeof(struct parts_span);
    *out = record;
    return 0;
}

static int find_record(int store, const struct mark *mark, struct record *out)
{
    AUTO_FD int fd = parts_records(store, mark->layer, O_RDONLY);
    uint64_t next;

    return fd < 0 ? fd : read_record(fd, mark->offset, out, &next);
}

int parts_each(int store, uint64_t layer, parts_path_fn *fn, void *arg)
{
    AUTO_FD int fd = parts_records(store, layer, O_RDONLY);
    uint64_t at = 0;
    struct stat attr;
    int rc = 0;

    if (fd < 0) {
        return fd == -ENOENT ? 0 : fd;
    }
    if (fstat(fd, &attr) < 0) {
        return -errno;
    }
    while (rc == 0 && at < (uint64_t)attr.st_size) {
        struct record record;

        rc = read_record(fd, at, &record, &at);
        if (rc == 0) {
            rc = fn(arg, record.path);
            free_record(&record);
        }
    }
    return rc;
}

int parts_find(int store, uint64_t layer, const char *path)
{
    char name[PARTS_NAME_SIZE];
    AUTO_FD int dir = -1;

    (void)snprintf(name, sizeof(name), "%" PRIu64, layer);
    dir = openat(store, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return dir < 0 ? -errno : below_open(dir, path, O_PATH);
}

/* ---- Opening ---- */

int parts_span_add(struct parts_spans *spans, uint64_t at, uint64_t end)
{
    void *wide;

    if (spans->count > 0 && spans->all[spans->count - 1].end == at) {
        spans->all[spans->count - 1].end = end;
        return 0;
    }
    wide =
        array_grow(spans->all, spans->count, &spans->room, sizeof(*spans->all));
    if (!wide) {
        return -ENOMEM;
    }
    spans->all = wide;
    spans->all[spans->count++] = (struct parts_span){at, end};
    return 0;
}

static int add_piece(struct parts *parts, uint64_t at, uint64_t end)
{
    void *wide = array_grow(parts->pieces, parts->count, &parts->room,
                            sizeof(*parts->pieces));

    if (!wide) {
        return -ENOMEM;
    }
    parts->pieces = wide;
    parts->pieces[parts->count++] = (struct parts_piece){
        .span = {at, end}, .source = parts->source_count - 1};
    return 0;
}

/* Opens what has been found to be read. */
static int add_source(struct parts *parts, int fd, uint64_t layer,
                      struct stat *attr)
{
    struct parts_source *wide;
    char path[FD_PATH];
    int own;

    if (fstat(fd, attr) < 0) {
        return -errno;
    }
    if (!S_ISREG(attr->st_mode) || parts->source_count == SOURCES_MOST) {
        return -EIO;
    }
    wide = realloc(parts->sources, (parts->source_count + 1) * sizeof(*wide));
    if (!wide) {
        return -ENOMEM;
    }
    parts->sources = wide;
    name_fd(fd, path);
    own = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (own < 0) {
        return -errno;
    }
    wide[parts->source_count++] = (struct parts_source){own, layer};
    return 0;
}

/* What of a stretch the last source has; the rest is left over. */
static int split(struct parts *parts, const struct parts_span *span,
                 const struct record *record, struct parts_spans *left)
{
    uint64_t at = span->at;
    int rc = 0;

    for (uint64_t i = 0; rc == 0 && i < record->head.spans; i++) {
        const struct parts_span *own = &record->spans[i];
        uint64_t from = own->at > at ? own->at : at;
        uint64_t to = own->end < span->end ? own->end : span->end;

        if (from < to) {
            rc = from > at ? parts_span_add(left, at, from) : 0;
            rc = rc == 0 ? add_piece(parts, from, to) : rc;
            at = to;
        }
    }
    return rc == 0 && at < span->end ? parts_span_add(left, at, span->end) : rc;
}

/* What is beyond the end of a file is zeros. */
static void cut(struct parts_spans *spans, uint64_t size)
{
    while (spans->count > 0 && spans->all[spans->count - 1].at >= size) {
        spans->count--;
    }
    if (spans->count > 0 && spans->all[spans->count - 1].end > size) {
        spans->all[spans->count - 1].end = size;
    }
}

/* Gives the last source what it has of what is wanted, and leaves the rest. */
static int take_spans(struct parts *parts, const struct record *record,
                      struct parts_spans *wanted)
{
    struct parts_spans left = {.all = NULL};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < wanted->count; i++) {
        const struct parts_span *span = &wanted->all[i];

        rc = record ? split(parts, span, record, &left)
                    : add_piece(parts, span->at, span->end);
    }
    free(wanted->all);
    *wanted = left;
    return rc;
}

/* One source; says 1 when there is another below: `fd` and `layer` then. */
static int take_source(struct parts *parts, int store, int *fd, uint64_t *layer,
                       struct parts_spans *wanted)
{
    struct record record = {.path = NULL};
    struct mark mark = {.layer = *layer};
    struct stat attr;
    int marked = read_mark(*fd, &mark);
    int rc = marked < 0 ? marked : add_source(parts, *fd, mark.layer, &attr);

    if (rc == 0 && parts->source_count == 1) {
        parts->size = (uint64_t)attr.st_size;
        rc = parts_span_add(wanted, 0, parts->size);
    }
    if (rc == 0 && marked) {
        rc = find_record(store, &mark, &record);
    }
    if (rc == 0) {
        cut(wanted, (uint64_t)attr.st_size);
        rc = take_spans(parts, marked ? &record : NULL, wanted);
    }
    cleanup_fd(fd);
    if (rc == 0 && marked && wanted->count > 0) {
        *layer = record.head.base;
        *fd = parts_find(store, *layer, record.path);
        rc = *fd < 0 ? *fd : 1;
    }
    free_record(&record);
    return rc;
}

static int by_place(const void *a, const void *b)
{
    const struct parts_piece *left = a;
    const struct parts_piece *right = b;

    return left->span.at < right->span.at ? -1 : left->span.at > right->span.at;
}

int parts_open(int store, int fd, struct parts **out)
{
    struct parts *parts = calloc(1, sizeof(*parts));
    struct parts_spans wanted = {.all = NULL};
    AUTO_FD int next = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    uint64_t layer = 0;
    int rc = next < 0 ? -errno : 1;

    if (!parts) {
        return -ENOMEM;
    }
    while (rc == 1) {
        rc = take_source(parts, store, &next, &layer, &wanted);
    }
    free(wanted.all);
    if (rc < 0) {
        parts_close(parts);
        return rc;
    }
    if (parts->count > 0) {
        qsort(parts->pieces, parts->count, sizeof(*parts->pieces), by_place);
    }
    *out = parts;
    return 0;
}

void parts_close(struct parts *parts)
{
    if (parts) {
        for (size_t i = 0; i < parts->source_count; i++) {
            cleanup_fd(&parts->sources[i].fd);
        }
        free(parts->sources);
        free(parts->pieces);
        free(parts);
    }
}

/* ---- Reading ---- */

/* The first piece that ends behind a place. */
static size_t find_piece(const struct parts *parts, uint64_t at)
{
    size_t low = 0;
    size_t high = parts->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (parts->pieces[middle].span.end <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

ssize_t parts_read(const struct parts *parts, void *out, size_t size,
                   uint64_t offset)
{
    uint64_t end = offset + size < parts->size ? offset + size : parts->size;
    size_t i = find_piece(parts, offset);
    uint64_t at = offset;
    int rc = 0;

    if (offset >= parts->size) {
        return 0;
    }
    memset(out, 0, (size_t)(end - offset));
    for (; rc == 0 && i < parts->count && parts->pieces[i].span.at < end; i++) {
        const struct parts_piece *piece = &parts->pieces[i];
        uint64_t to = piece->span.end < end ? piece->span.end : end;

        at = piece->span.at > at ? piece->span.at : at;
        rc = read_all(parts->sources[piece->source].fd,
                      (char *)out + (at - offset), (size_t)(to - at), at);
        at = to;
    }
    return rc < 0 ? rc : (ssize_t)(end - offset);
}
