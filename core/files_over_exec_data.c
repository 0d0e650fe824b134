/* What is in files, by scripts, and by whole files. See files_over_exec.h. */
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/files_over_exec_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum {
    BLOCK = 64 * 1024,
    PIECE = 8 * 1024 * 1024,  /* Of a large file in one script. */
    WHOLE = 32 * 1024 * 1024, /* Up to this read_file and write_file do it. */
    TRIES = 3,                /* For a file that others write meanwhile. */
};

/* One file, in the middle of a slot. */
struct work {
    struct over over; /* Of its path; the script changes. */
    struct over_path place;
    const char *path;
};

static int begin(struct work *work, struct provider *provider,
                 const struct sandbox *sandbox, const struct limits *limits,
                 const char *path, struct err *err)
{
    int rc = path[0] ? over_split(path, &work->place, err)
                     : err_set(err, EISDIR, "the workspace itself");

    work->path = path;
    work->over = (struct over){.provider = provider,
                               .sandbox = sandbox,
                               .limits = limits,
                               .args = {work->place.dir, work->place.name}};
    return rc;
}

static void print(char out[24], uint64_t number)
{
    (void)snprintf(out, 24, "%" PRIu64, number);
}

/* ---- Parts ---- */

/* Reads whole blocks around what is asked for. */
static ssize_t read_part(struct work *work, void *out, size_t size,
                         uint64_t offset, struct err *err)
{
    uint64_t first = offset / BLOCK;
    uint64_t blocks = (offset + size + BLOCK - 1) / BLOCK - first;
    size_t skip = (size_t)(offset - first * BLOCK);
    struct buf data = BUF_INIT((size_t)blocks * BLOCK);
    char numbers[2][24];
    size_t n = 0;
    int rc;

    print(numbers[0], first);
    print(numbers[1], blocks);
    work->over.script = over_read;
    work->over.args[2] = numbers[0];
    work->over.args[3] = numbers[1];
    rc = over_run(&work->over, &data, err);
    if (rc == 0 && data.size > skip) {
        n = data.size - skip < size ? data.size - skip : size;
        memcpy(out, data.data + skip, n);
    }
    buf_done(&data);
    return rc < 0 ? rc : (ssize_t)n;
}

ssize_t over_read_at(struct provider *provider, const struct sandbox *sandbox,
                     const char *path, void *out, size_t size, uint64_t offset,
                     const struct limits *limits, struct err *err)
{
    struct work work;
    int rc = begin(&work, provider, sandbox, limits, path, err);

    if (rc < 0 || !size) {
        return rc;
    }
    return read_part(&work, out, size < PIECE ? size : PIECE, offset, err);
}

static int write_part(struct work *work, const void *data, size_t size,
                      uint64_t offset, struct err *err)
{
    char numbers[3][24];

    print(numbers[0], offset / BLOCK);
    print(numbers[1], offset % BLOCK);
    print(numbers[2], size);
    work->over.script = over_write;
    work->over.args[2] = numbers[0];
    work->over.args[3] = numbers[1];
    work->over.args[4] = numbers[2];
    work->over.input = data;
    work->over.input_size = size;
    return over_do(&work->over, err);
}

int over_write_at(struct provider *provider, const struct sandbox *sandbox,
                  const char *path, const void *data, size_t size,
                  uint64_t offset, const struct limits *limits, struct err *err)
{
    const char *at = data;
    struct work work;
    int rc = begin(&work, provider, sandbox, limits, path, err);

    while (rc == 0 && size) {
        size_t n = size < PIECE ? size : PIECE;

        rc = write_part(&work, at, n, offset, err);
        at += n;
        offset += n;
        size -= n;
    }
    return rc;
}

/* ---- Whole files, out ---- */

static int put_at(int fd, const char *data, size_t size, uint64_t offset,
                  struct err *err)
{
    while (size) {
        ssize_t n = pwrite(fd, data, size, (off_t)offset);

        if (n < 0) {
            return err_errno(err, "write");
        }
        data += n;
        offset += (size_t)n;
        size -= (size_t)n;
    }
    return 0;
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_ino == b->st_ino &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static int read_pieces(struct work *work, int fd, uint64_t size,
                       struct err *err)
{
    AUTO_FREE char *piece = malloc(PIECE);
    uint64_t done = 0;
    int rc = piece ? 0 : err_no_memory(err);

    while (rc == 0 && done < size) {
        ssize_t n = read_part(work, piece, PIECE, done, err);

        if (n <= 0) {
            return n < 0 ? (int)n : 0; /* Shorter by now: seen by its end. */
        }
        rc = put_at(fd, piece, (size_t)n, done, err);
        done += (size_t)n;
    }
    return rc;
}

/* Takes a file that did not come along. */
static int read_large(struct work *work, int fd, const struct stat *was,
                      struct err *err)
{
    const struct over *over = &work->over;
    int rc;

    if (was->st_size > WHOLE) {
        return read_pieces(work, fd, (uint64_t)was->st_size, err);
    }
    if (lseek(fd, 0, SEEK_SET) < 0) {
        return err_errno(err, "lseek");
    }
    rc = over->provider->ops->read_file(over->provider, over->sandbox,
                                        work->path, fd, over->limits, err);
    if (rc < 0) {
        struct stat now;
        struct err why = ERR_INIT;

        /* What went wrong is for the sandbox to say. */
        if (files_over_exec.stat(over->provider, over->sandbox, work->path,
                                 over->limits, &now, &why) < 0) {
            *err = why;
        }
    }
    return rc < 0 ? -err->code : 0;
}

/* Reads the answer of the script: attributes, bytes, attributes.
 * 1: all is well; 0: the file was changed meanwhile. */
static int take_small(struct buf *text, int fd, struct stat *was,
                      struct err *err)
{
    char *at = text->data;
    const char *end = at ? at + text->size : NULL;
    const char *name;
    struct stat now;
    int rc;

    if (!at || !over_record(&at, end, &name, was)) {
        return err_set(err, EIO, "the sandbox's stat makes no sense");
    }
    if (was->st_size > OVER_SMALL) {
        return 1;
    }
    if (end - at < was->st_size) {
        return 0;
    }
    rc = put_at(fd, at, (size_t)was->st_size, 0, err);
    at += was->st_size;
    if (rc < 0) {
        return rc;
    }
    return over_record(&at, end, &name, &now) && same(was, &now) && at == end;
}

static int get_once(struct work *work, int fd, struct stat *was,
                    struct err *err)
{
    const struct over *over = &work->over;
    struct buf text = BUF_INIT(2 * (size_t)(OVER_SMALL + OVER_RECORD));
    char most[24];
    struct stat now;
    int rc;

    print(most, OVER_SMALL);
    work->over.script = over_get;
    work->over.args[2] = most;
    work->over.args[3] = NULL;
    rc = over_run(&work->over, &text, err);
    if (rc == 0) {
        rc = take_small(&text, fd, was, err);
    }
    buf_done(&text);
    if (rc <= 0 || was->st_size <= OVER_SMALL) {
        return rc;
    }
    rc = read_large(work, fd, was, err);
    if (rc == 0) {
        rc = files_over_exec.stat(over->provider, over->sandbox, work->path,
                                  over->limits, &now, err);
    }
    return rc < 0 ? rc : same(was, &now);
}

int over_get_file(struct provider *provider, const struct sandbox *sandbox,
                  const char *path, int fd, const struct limits *limits,
                  struct stat *was, struct err *err)
{
    struct stat found;
    struct work work;
    int rc = begin(&work, provider, sandbox, limits, path, err);

    for (int i = 0; rc == 0 && i < TRIES; i++) {
        if (ftruncate(fd, 0) < 0) {
            return err_errno(err, "truncate");
        }
        rc = get_once(&work, fd, &found, err);
    }
    if (rc == 0) {
        return err_set(err, EAGAIN, "the file changes while it is read");
    }
    if (rc > 0 && ftruncate(fd, found.st_size) < 0) {
        return err_errno(err, "truncate");
    }
    if (rc > 0) {
        *was = found;
    }
    return rc < 0 ? rc : 0;
}

/* ---- Many small files ---- */

/* What a script has told of many files. */
struct told {
    struct stat *attrs; /* Of each path; mode 0: nothing. */
    size_t *at;         /* Where its bytes are. */
    size_t size;        /* Of all bytes. */
};

/* Reads the attributes in front; they are in the order of the paths. */
static bool take_attrs(char **at, const char *end,
                       const struct provider_many *many, struct told *out)
{
    const char *path;
    struct stat attr;

    for (size_t i = 0; *at < end && **at != '\n'; i++) {
        if (!over_record(at, end, &path, &attr) || !S_ISREG(attr.st_mode) ||
            (uint64_t)attr.st_size > many->most) {
            return false;
        }
        while (i < many->n && strcmp(many->paths[i], path) != 0) {
            i++;
        }
        if (i == many->n) {
            return false;
        }
        out->attrs[i] = attr;
        out->at[i] = out->size;
        out->size += (size_t)attr.st_size;
    }
    return *at < end;
}

/* Whether the attributes behind are those in front: else nobody knows which
 * bytes are whose. */
static bool are_same(char *at, const char *end,
                     const struct provider_many *many, const struct told *told)
{
    const char *path;
    struct stat now;

    for (size_t i = 0; i < many->n; i++) {
        if (told->attrs[i].st_mode && (!over_record(&at, end, &path, &now) ||
                                       strcmp(path, many->paths[i]) != 0 ||
                                       !same(&told->attrs[i], &now))) {
            return false;
        }
    }
    return at == end;
}

static void tell_many(struct buf *text, const struct provider_many *many,
                      struct told *told)
{
    char *at = text->data;
    char *end = at ? at + text->size : NULL;

    if (!at || !take_attrs(&at, end, many, told) ||
        (size_t)(end - at) - 1 < told->size ||
        !are_same(at + 1 + told->size, end, many, told)) {
        return;
    }
    for (size_t i = 0; i < many->n; i++) {
        if (told->attrs[i].st_mode) {
            many->fn(many->arg, i, &told->attrs[i], at + 1 + told->at[i]);
        }
    }
}

int over_get_files(struct provider *provider, const struct sandbox *sandbox,
                   const struct provider_many *many,
                   const struct limits *limits, struct err *err)
{
    AUTO_FREE const char **args = calloc(many->n + 2, sizeof(*args));
    AUTO_FREE struct stat *attrs = calloc(many->n + 1, sizeof(*attrs));
    AUTO_FREE size_t *at = calloc(many->n + 1, sizeof(*at));
    struct told told = {.attrs = attrs, .at = at};
    struct buf text = BUF_INIT(many->most + (2 * many->n + 1) * OVER_RECORD);
    struct over over = {.provider = provider,
                        .sandbox = sandbox,
                        .limits = limits,
                        .script = over_get_many,
                        .list = args};
    char most[24];
    int rc = args && attrs && at ? 0 : err_no_memory(err);

    if (rc == 0) {
        print(most, many->most);
        args[0] = most;
        memcpy(args + 1, many->paths, many->n * sizeof(*args));
        rc = over_run(&over, &text, err);
    }
    if (rc == 0) {
        tell_many(&text, many, &told);
    }
    buf_done(&text);
    return rc;
}

/* ---- Whole files, in ---- */

/* Reads a part of the new content; less than asked is its end. */
static int take_at(int fd, char *out, size_t size, uint64_t offset, size_t *n,
                   struct err *err)
{
    *n = 0;
    while (*n < size) {
        ssize_t got = pread(fd, out + *n, size - *n, (off_t)(offset + *n));

        if (got <= 0) {
            return got < 0 ? err_errno(err, "read") : 0;
        }
        *n += (size_t)got;
    }
    return 0;
}

/* A new file that a save goes through. */
struct save {
    char name[48]; /* Beside the old one. */
    char mode[8];
    char atime[48];
    char mtime[48];
    char was[72];
    char size[24];
    struct buf data; /* Of a small one. */
};

static int append_pieces(struct work *work, const struct save *save, int fd,
                         uint64_t size, struct err *err)
{
    AUTO_FREE char *piece = malloc(PIECE);
    struct over over = work->over;
    uint64_t done = 0;
    size_t n = PIECE;
    int rc = piece ? 0 : err_no_memory(err);

    over.script = over_append;
    over.args[1] = save->name;
    over.args[2] = "8192";
    over.args[3] = NULL;
    while (rc == 0 && done < size && n == PIECE) {
        rc = take_at(fd, piece, PIECE, done, &n, err);
        over.input = piece;
        over.input_size = n;
        if (rc == 0 && n) {
            rc = over_do(&over, err);
        }
        done += n;
    }
    return rc;
}

/* Brings the bytes of a large one to the new file. */
static int send_large(struct work *work, const struct save *save, int fd,
                      uint64_t size, struct err *err)
{
    const struct over *over = &work->over;
    char path[2 * PATH_MAX];
    int rc;

    if (size > WHOLE) {
        return append_pieces(work, save, fd, size, err);
    }
    if (lseek(fd, 0, SEEK_SET) < 0) {
        return err_errno(err, "lseek");
    }
    (void)snprintf(path, sizeof(path), "%s%s%s", work->place.dir,
                   work->place.dir[0] ? "/" : "", save->name);
    rc = over->provider->ops->write_file(over->provider, over->sandbox, path,
                                         fd, over->limits, err);
    /* Why, only the sandbox can say, by what it says of the same in pieces. */
    if (rc == -EIO) {
        err_clear(err);
        rc = append_pieces(work, save, fd, size, err);
    }
    return rc;
}

static void drop_new(struct work *work, const struct save *save)
{
    struct over over = work->over;
    struct err ignored = ERR_INIT;

    over.script = over_remove;
    over.args[1] = save->name;
    over.args[2] = "";
    over.args[3] = NULL;
    (void)!over_do(&over, &ignored);
}

static void describe(const struct provider_put *put, uint64_t size,
                     struct save *out)
{
    char mtime[48];

    *out = (struct save){.was = "any"};
    buf_init(&out->data, OVER_SMALL + 1);
    (void)snprintf(out->name, sizeof(out->name), "%s", put->half);
    print(out->size, size);
    if (put->mask & PROVIDER_ATTR_MODE) {
        (void)snprintf(out->mode, sizeof(out->mode), "%o",
                       put->attr.st_mode & 07777U);
    }
    if (put->mask & PROVIDER_ATTR_ATIME) {
        over_time(&put->attr.st_atim, out->atime);
    }
    if (put->mask & PROVIDER_ATTR_MTIME) {
        over_time(&put->attr.st_mtim, out->mtime);
    }
    if (put->was && !put->was->st_mode) {
        (void)snprintf(out->was, sizeof(out->was), "none");
    } else if (put->was) {
        (void)snprintf(mtime, sizeof(mtime), "%" PRId64 ".%09ld",
                       (int64_t)put->was->st_mtim.tv_sec,
                       put->was->st_mtim.tv_nsec);
        (void)snprintf(out->was, sizeof(out->was), "%" PRId64 " %.40s",
                       (int64_t)put->was->st_size, mtime);
    }
}

/* Reads a small one into memory, and sends any other. */
static int bring(struct work *work, struct save *save, int fd, uint64_t size,
                 struct err *err)
{
    AUTO_FREE char *data = NULL;
    size_t n = 0;
    int rc;

    if (size > OVER_SMALL) {
        return send_large(work, save, fd, size, err);
    }
    data = malloc(OVER_SMALL);
    rc = data ? take_at(fd, data, OVER_SMALL, 0, &n, err) : err_no_memory(err);
    if (rc == 0 && buf_add(&save->data, data, n) < 0) {
        rc = err_no_memory(err);
    }
    return rc;
}

static int commit(struct work *work, const struct save *save, bool along,
                  struct stat *now, struct err *err)
{
    const char *const more[] = {save->name,  along ? "along" : "", save->mode,
                                save->atime, save->mtime,          save->was,
                                save->size};
    struct buf text = BUF_INIT(OVER_RECORD);
    struct over *over = &work->over;
    const char *name;
    char *at;
    int rc;

    over->script = over_put;
    for (size_t i = 0; i < ARRAY_SIZE(more); i++) {
        over->args[2 + i] = more[i];
    }
    over->input = along ? buf_str(&save->data) : NULL;
    over->input_size = along ? save->data.size : 0;
    rc = over_run(over, &text, err);
    at = text.data;
    if (rc == 0 &&
        (!at || !over_record(&at, text.data + text.size, &name, now))) {
        rc = err_set(err, EIO, "the sandbox's stat makes no sense");
    }
    buf_done(&text);
    return rc;
}

int over_put_file(struct provider *provider, const struct sandbox *sandbox,
                  const char *path, const struct provider_put *put,
                  const struct limits *limits, struct stat *now,
                  struct err *err)
{
    struct save save;
    struct work work;
    struct stat content;
    bool along;
    int rc = begin(&work, provider, sandbox, limits, path, err);

    if (rc < 0) {
        return rc;
    }
    if (fstat(put->fd, &content) < 0) {
        return err_errno(err, "stat");
    }
    describe(put, (uint64_t)content.st_size, &save);
    along = content.st_size <= OVER_SMALL;
    rc = bring(&work, &save, put->fd, (uint64_t)content.st_size, err);
    if (rc == 0) {
        rc = commit(&work, &save, along, now, err);
    }
    buf_done(&save.data);
    if (rc < 0 && !along) {
        drop_new(&work, &save);
    }
    return rc;
}
