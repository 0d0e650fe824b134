/* Bytes of files. See remote_data.h. */
#include "core/remote_data.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/list.h"
#include "core/mutex.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BUCKETS = 4096,      /* A power of two. */
    PIECES_MOST = 32768, /* Of one tree; about 250 bytes of memory each. */
};

/* On disk, of all trees of this process. */
static atomic_uint_fast64_t all_bytes;
static const uint64_t all_bytes_most = (uint64_t)1 << 30;

/* What tells one content of a file from another. */
struct mark {
    off_t size;
    struct timespec mtime;
    struct timespec ctime;
    ino_t ino;
};

struct piece {
    struct piece *next; /* Of a bucket. */
    struct list link;   /* data->pieces, in order of their coming. */
    struct mark mark;
    int64_t until_ms;
    uint64_t chunk;
    uint64_t at; /* In the file. */
    size_t size;
    char path[];
};

struct remote_data {
    struct mutex lock; /* Of all below. */
    uint64_t most;
    int64_t keep_ms;
    int fd;         /* -1: not made yet. */
    uint64_t grown; /* The length of the file. */
    uint64_t head;  /* Where the next piece goes. */
    size_t n;
    struct list pieces;
    struct piece *buckets[BUCKETS];
    char dir[];
};

struct remote_data *remote_data_new(const char *dir, uint64_t most,
                                    int64_t keep_ms)
{
    size_t len = strlen(dir);
    struct remote_data *data = calloc(1, sizeof(*data) + len + 1);

    if (data) {
        mutex_init(&data->lock);
        list_init(&data->pieces);
        data->most = most;
        data->keep_ms = keep_ms;
        data->fd = -1;
        memcpy(data->dir, dir, len + 1);
    }
    return data;
}

static struct piece **bucket(struct remote_data *data, const char *path,
                             uint64_t chunk)
{
    uint64_t hash = 0xcbf29ce484222325 ^ chunk * 0x9e3779b97f4a7c15;

    for (; *path; path++) { /* FNV-1a */
        hash = (hash ^ (unsigned char)*path) * 0x100000001b3;
    }
    return &data->buckets[(hash ^ hash >> 29) & (BUCKETS - 1)];
}

static void drop(struct remote_data *data, struct piece *piece)
{
    struct piece **at = bucket(data, piece->path, piece->chunk);

    while (*at != piece) {
        at = &(*at)->next;
    }
    *at = piece->next;
    list_remove(&piece->link);
    data->n--;
    free(piece);
}

static struct piece *oldest(struct remote_data *data)
{
    return list_empty(&data->pieces)
               ? NULL
               : container_of(data->pieces.next, struct piece, link);
}

void remote_data_clear(struct remote_data *data)
{
    mutex_lock(&data->lock);
    while (oldest(data)) {
        drop(data, oldest(data));
    }
    cleanup_fd(&data->fd);
    (void)atomic_fetch_sub(&all_bytes, data->grown);
    data->grown = 0;
    data->head = 0;
    mutex_unlock(&data->lock);
}

void remote_data_free(struct remote_data *data)
{
    if (!data) {
        return;
    }
    remote_data_clear(data);
    mutex_done(&data->lock);
    free(data);
}

static struct mark mark_of(const struct stat *attr)
{
    return (struct mark){.size = attr->st_size,
                         .mtime = attr->st_mtim,
                         .ctime = attr->st_ctim,
                         .ino = attr->st_ino};
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool same_mark(const struct mark *a, const struct mark *b)
{
    return a->size == b->size && a->ino == b->ino &&
           same_time(&a->mtime, &b->mtime) && same_time(&a->ctime, &b->ctime);
}

static struct piece *find(struct remote_data *data, const char *path,
                          uint64_t chunk)
{
    struct piece *piece = *bucket(data, path, chunk);

    while (piece && (piece->chunk != chunk || strcmp(piece->path, path) != 0)) {
        piece = piece->next;
    }
    return piece;
}

static ssize_t read_locked(struct remote_data *data, const char *path,
                           const struct mark *mark, uint64_t chunk, size_t at,
                           void *out, size_t size)
{
    struct piece *piece = find(data, path, chunk);
    ssize_t n;

    if (!piece) {
        return -ENOENT;
    }
    if (!same_mark(&piece->mark, mark) || piece->until_ms <= clock_ms()) {
        drop(data, piece);
        return -ENOENT;
    }
    if (at >= piece->size) {
        return 0;
    }
    size = size < piece->size - at ? size : piece->size - at;
    n = pread(data->fd, out, size, (off_t)(piece->at + at));
    return n == (ssize_t)size ? n : -ENOENT;
}

ssize_t remote_data_read(struct remote_data *data, const char *path,
                         const struct stat *attr, uint64_t chunk, size_t at,
                         void *out, size_t size)
{
    const struct mark mark = mark_of(attr);
    ssize_t n;

    mutex_lock(&data->lock);
    n = read_locked(data, path, &mark, chunk, at, out, size);
    mutex_unlock(&data->lock);
    return n;
}

/* Takes a place in the file, and drops what lies there. */
static bool take_place(struct remote_data *data, size_t size, uint64_t *at)
{
    bool grows = atomic_load(&all_bytes) + size <= all_bytes_most;
    uint64_t end = grows ? data->most : data->grown;
    struct piece *first = oldest(data);

    if (size > end) {
        return false;
    }
    if (data->head + size > end) {
        while (first && first->at >= data->head) {
            drop(data, first);
            first = oldest(data);
        }
        data->head = 0;
    }
    while (first &&
           (data->n >= PIECES_MOST ||
            (first->at >= data->head && first->at < data->head + size))) {
        drop(data, first);
        first = oldest(data);
    }
    *at = data->head;
    return true;
}

static void keep_locked(struct remote_data *data, struct piece *piece,
                        const void *bytes)
{
    struct piece *old = find(data, piece->path, piece->chunk);
    struct piece **at = bucket(data, piece->path, piece->chunk);
    struct err err = ERR_INIT;

    if (old) {
        drop(data, old);
    }
    if (data->fd < 0) {
        data->fd = remote_private_file(data->dir, &err);
    }
    if (data->fd < 0 || !take_place(data, piece->size, &piece->at) ||
        pwrite(data->fd, bytes, piece->size, (off_t)piece->at) !=
            (ssize_t)piece->size) {
        free(piece);
        return;
    }
    data->head += piece->size;
    if (data->head > data->grown) {
        (void)atomic_fetch_add(&all_bytes, data->head - data->grown);
        data->grown = data->head;
    }
    piece->next = *at;
    *at = piece;
    list_add(&data->pieces, &piece->link);
    data->n++;
}

void remote_data_keep(struct remote_data *data, const char *path,
                      const struct stat *attr, uint64_t chunk,
                      const void *bytes, size_t size)
{
    size_t len = strlen(path);
    struct piece *piece = calloc(1, sizeof(*piece) + len + 1);
    bool coarse = !attr->st_mtim.tv_nsec && !attr->st_ctim.tv_nsec;

    if (!piece) {
        return;
    }
    memcpy(piece->path, path, len + 1);
    list_init(&piece->link);
    piece->mark = mark_of(attr);
    piece->until_ms = coarse ? clock_deadline(data->keep_ms) : INT64_MAX;
    piece->chunk = chunk;
    piece->size = size;
    mutex_lock(&data->lock);
    keep_locked(data, piece, bytes);
    mutex_unlock(&data->lock);
}

int remote_private_file(const char *dir, struct err *err)
{
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    char *path = NULL;

    if (fd >= 0) {
        return fd;
    }
    if (asprintf(&path, "%s/private-XXXXXX", dir) < 0) {
        return err_no_memory(err);
    }
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) {
        fd = err_errno(err, "cannot make a file in '%s'", dir);
    } else {
        (void)unlink(path);
    }
    free(path);
    return fd;
}

int remote_private_dir(const char *dir, const char *name, bool make,
                       struct err *err)
{
    AUTO_FREE char *path = NULL;
    int fd;

    if (asprintf(&path, "%s/%s", dir, name) < 0) {
        path = NULL;
        return err_no_memory(err);
    }
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && make) {
        if (mkdir(path, 0700) < 0 && errno != EEXIST) {
            return err_errno(err, "make '%s'", path);
        }
        fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    return fd < 0 ? err_errno(err, "open '%s'", path) : fd;
}
