/*
 * Content of a sandbox's files: chunks that are kept, or fetched now; more of
 * them at once where somebody reads on and on.
 */
#include "core/workspace_remote.h"

#include "core/cleanup.h"

#include <errno.h>
#include <string.h>

/* The bytes of a run that was fetched. */
struct run {
    char *data;
    size_t size;
    struct stat was; /* The file's attributes with these bytes, */
    bool certain;    /* and whether they are so for sure. */
};

static bool is_coming(struct remote *r, const char *path, uint64_t chunk)
    REQUIRES(r->base.lock)
{
    list_each(node, &r->fetches)
    {
        const struct remote_fetch *fetch =
            container_of(node, struct remote_fetch, link);

        if (chunk >= fetch->first && chunk - fetch->first < fetch->n &&
            strcmp(fetch->path, path) == 0) {
            return true;
        }
    }
    return false;
}

/* Waits while somebody else fetches a chunk: 1; or begins to fetch it: 0. */
static int begin_fetch(struct remote *r, struct remote_fetch *fetch,
                       const struct limits *limits, struct err *err)
{
    bool waited = false;
    int rc = 0;

    mutex_lock(&r->base.lock);
    while (rc == 0 && is_coming(r, fetch->path, fetch->first)) {
        waited = true;
        rc = remote_wait(r, limits, err);
    }
    if (rc == 0 && !waited) {
        list_add(&r->fetches, &fetch->link);
    }
    mutex_unlock(&r->base.lock);
    return rc < 0 ? rc : waited;
}

static void end_fetch(struct remote *r, struct remote_fetch *fetch)
{
    mutex_lock(&r->base.lock);
    list_remove(&fetch->link);
    cond_broadcast(&r->turn);
    mutex_unlock(&r->base.lock);
}

/* Reads what a whole file holds that was fetched into fd. */
static int read_back(int fd, struct run *run, struct err *err)
{
    size_t size = (size_t)run->was.st_size;

    if (run->was.st_size < 0 || size > REMOTE_CHUNK) {
        return 1; /* It has grown meanwhile: by chunks, then. */
    }
    run->data = malloc(size + 1);
    if (!run->data) {
        return err_no_memory(err);
    }
    if (pread(fd, run->data, size, 0) != (ssize_t)size) {
        return err_set(err, EIO, "the engine sent less than the file holds");
    }
    run->size = size;
    run->certain = true;
    return 0;
}

/* Fetches a small file at once; 1 where it is not small any more. */
static int fetch_whole(struct remote *r, const char *path,
                       const struct limits *limits, struct run *run,
                       struct err *err)
{
    AUTO_FD int fd = remote_private_file(r->sandbox.dir, err);
    struct remote_moment moment;
    int rc = fd < 0 ? fd : remote_begin(r, limits, err);

    if (rc < 0) {
        return rc;
    }
    moment = remote_cache_moment(r->cache);
    rc = r->files->get(r->provider, &r->sandbox, path, fd, limits, &run->was,
                       err);
    rc = (int)remote_end(r, rc, err);
    if (rc < 0) {
        return rc;
    }
    remote_cache_learn(r->cache, &moment, path, &run->was);
    return read_back(fd, run, err);
}

ssize_t remote_read_at(struct remote *r, const char *path, void *out,
                       size_t size, uint64_t offset,
                       const struct limits *limits, struct err *err)
{
    size_t done = 0;
    ssize_t n;

    do {
        n = remote_begin(r, limits, err);
        if (n < 0) {
            return n;
        }
        n = r->files->read_at(r->provider, &r->sandbox, path,
                              (char *)out + done, size - done, offset + done,
                              limits, err);
        n = remote_end(r, n, err);
        if (n > (ssize_t)(size - done)) {
            return err_set(err, EIO, "the engine sent more than was asked");
        }
        done += n > 0 ? (size_t)n : 0;
    } while (n > 0 && done < size);
    return n < 0 ? n : (ssize_t)done;
}

/* Fetches a run of chunks by its range. */
static int fetch_range(struct remote *r, const struct remote_fetch *fetch,
                       const struct stat *attr, const struct limits *limits,
                       struct run *run, struct err *err)
{
    uint64_t offset = fetch->first * REMOTE_CHUNK;
    uint64_t left = (uint64_t)attr->st_size - offset;
    size_t size = (size_t)(fetch->n * REMOTE_CHUNK);
    ssize_t n;

    size = left < size ? (size_t)left : size;
    run->data = malloc(size + 1);
    if (!run->data) {
        return err_no_memory(err);
    }
    n = remote_read_at(r, fetch->path, run->data, size, offset, limits, err);
    if (n < 0) {
        return (int)n;
    }
    run->size = (size_t)n;
    run->was = *attr;
    run->certain = run->size == size;
    return 0;
}

/* It ended before its end: it is shorter by now, or something went wrong. */
static int check_end(struct remote *r, const char *path, uint64_t end,
                     const struct limits *limits, struct err *err)
{
    struct stat now;
    int rc;

    remote_cache_forget(r->cache, path);
    rc = remote_attr(r, path, limits, &now, err);
    if (rc == 0 && (uint64_t)now.st_size > end) {
        return err_set(err, EIO, "the engine sent less than the file holds");
    }
    return rc;
}

static void keep(struct remote *r, const struct remote_fetch *fetch,
                 const struct run *run)
{
    for (size_t at = 0; at < run->size || at == 0; at += REMOTE_CHUNK) {
        size_t left = run->size - at;

        remote_data_keep(r->data, fetch->path, &run->was,
                         fetch->first + at / REMOTE_CHUNK, run->data + at,
                         left < REMOTE_CHUNK ? left : REMOTE_CHUNK);
    }
}

static int fetch_run(struct remote *r, const struct remote_fetch *fetch,
                     const struct stat *attr, const struct limits *limits,
                     struct run *run, struct err *err)
{
    int rc = 1;

    if (r->files->get && attr->st_size <= REMOTE_CHUNK) {
        rc = fetch_whole(r, fetch->path, limits, run, err);
    }
    if (rc > 0) {
        rc = fetch_range(r, fetch, attr, limits, run, err);
    }
    if (rc == 0 && run->certain) {
        keep(r, fetch, run);
    } else if (rc == 0) {
        rc = check_end(r, fetch->path, fetch->first * REMOTE_CHUNK + run->size,
                       limits, err);
    }
    return rc;
}

/* Fetches chunks from the one that is read on, and copies what is wanted of
 * it; -EAGAIN: somebody else has fetched it. */
static ssize_t fetch(struct remote *r, const struct remote_range *range,
                     uint64_t chunk, size_t at, char *out, size_t size,
                     const struct limits *limits, struct err *err)
{
    uint64_t chunks =
        ((uint64_t)range->attr->st_size + REMOTE_CHUNK - 1) / REMOTE_CHUNK;
    struct remote_fetch mine = {.path = range->path, .first = chunk};
    struct run run = {.data = NULL};
    ssize_t rc;

    mine.n =
        range->ahead + 1 < chunks - chunk ? range->ahead + 1 : chunks - chunk;
    rc = begin_fetch(r, &mine, limits, err);
    if (rc != 0) {
        return rc < 0 ? rc : -EAGAIN;
    }
    rc = fetch_run(r, &mine, range->attr, limits, &run, err);
    end_fetch(r, &mine);
    if (rc == 0 && at < run.size) {
        size = size < run.size - at ? size : run.size - at;
        memcpy(out, run.data + at, size);
        rc = (ssize_t)size;
    }
    free(run.data);
    return rc;
}

ssize_t remote_content(struct remote *r, const struct remote_range *range,
                       void *out, size_t size, uint64_t offset,
                       const struct limits *limits, struct err *err)
{
    uint64_t end = (uint64_t)range->attr->st_size;
    bool waited = false;
    size_t done = 0;

    while (done < size && offset + done < end) {
        uint64_t chunk = (offset + done) / REMOTE_CHUNK;
        size_t at = (size_t)((offset + done) % REMOTE_CHUNK);
        char *to = (char *)out + done;
        size_t part = size - done;
        ssize_t n;

        part = part < REMOTE_CHUNK - at ? part : REMOTE_CHUNK - at;
        n = remote_data_read(r->data, range->path, range->attr, chunk, at, to,
                             part);
        if (n < 0 && !waited) {
            n = fetch(r, range, chunk, at, to, part, limits, err);
        } else if (n < 0) { /* Fetched by somebody, but it was not kept. */
            n = remote_read_at(r, range->path, to, part, offset + done, limits,
                               err);
        }
        if (n == 0 || (n < 0 && n != -EAGAIN)) {
            return n < 0 ? n : (ssize_t)done;
        }
        waited = n == -EAGAIN;
        done += n > 0 ? (size_t)n : 0;
    }
    return (ssize_t)done;
}

/* ---- Many at once ---- */

bool remote_batch_add(struct remote_batch *batch, char *path,
                      const struct stat *attr)
{
    struct remote *r = batch->r;
    struct remote_fetch *fetch = &batch->fetches[batch->n];
    bool comes;

    if (remote_data_read(r->data, path, attr, 0, 0, NULL, 0) >= 0) {
        return false;
    }
    *fetch = (struct remote_fetch){.path = path, .n = 1};
    mutex_lock(&r->base.lock);
    comes = is_coming(r, path, 0);
    if (!comes) {
        list_add(&r->fetches, &fetch->link);
    }
    mutex_unlock(&r->base.lock);
    if (!comes) {
        batch->paths[batch->n] = path;
        batch->bytes += (uint64_t)attr->st_size;
        batch->n++;
    }
    return !comes;
}

void remote_batch_free(struct remote_batch *batch)
{
    struct remote *r = batch->r;

    mutex_lock(&r->base.lock);
    for (size_t i = 0; i < batch->n; i++) {
        list_remove(&batch->fetches[i].link);
    }
    cond_broadcast(&r->turn);
    mutex_unlock(&r->base.lock);
    for (size_t i = 0; i < batch->n; i++) {
        free(batch->paths[i]);
    }
    free(batch);
}

static void take_whole(void *arg, size_t i, const struct stat *was,
                       const void *bytes)
{
    const struct remote_batch *batch = arg;

    if (i < batch->n && S_ISREG(was->st_mode) && was->st_size >= 0 &&
        was->st_size <= REMOTE_CHUNK) {
        remote_data_keep(batch->r->data, batch->paths[i], was, 0, bytes,
                         (size_t)was->st_size);
    }
}

/* Without such a call there is one file. */
static int fetch_one(struct remote *r, const struct remote_fetch *one,
                     const struct limits *limits, struct err *err)
{
    struct run run = {.data = NULL};
    struct stat attr;
    int rc = 0;

    if (remote_cache_find(r->cache, one->path, &attr) == REMOTE_THERE) {
        rc = fetch_run(r, one, &attr, limits, &run, err);
    }
    free(run.data);
    return rc;
}

void remote_batch_fetch(struct remote_batch *batch, const struct limits *limits)
{
    struct remote *r = batch->r;
    const struct provider_many many = {.paths =
                                           (const char *const *)batch->paths,
                                       .n = batch->n,
                                       .most = batch->bytes + REMOTE_CHUNK,
                                       .fn = take_whole,
                                       .arg = batch};
    struct err unused = ERR_INIT;

    if (!r->files->get_many) {
        for (size_t i = 0; i < batch->n; i++) {
            (void)!fetch_one(r, &batch->fetches[i], limits, &unused);
        }
    } else if (batch->n && remote_begin(r, limits, &unused) == 0) {
        (void)!remote_end(r,
                          r->files->get_many(r->provider, &r->sandbox, &many,
                                             limits, &unused),
                          &unused);
    }
    remote_batch_free(batch);
}
