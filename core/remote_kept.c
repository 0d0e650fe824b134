/*
 * What is kept on the disk. UNSENT in the session's directory holds two files
 * for each: `N.data`, its bytes, and `N`, what they belong to. The second comes
 * last and goes first, so a crash leaves both, or bytes that are nobody's.
 * Neither is changed while it lies there.
 */
#include "core/remote_kept.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/crash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNSENT "unsent"
#define MAGIC  "unsent1"

enum {
    COPY = 256 * 1024,
};

/* The first part of what is told of a file; its path with the NUL and its map
 * of chunks follow. Read by this machine alone. */
struct head {
    char magic[8];
    uint64_t head_size;
    uint64_t path_size;
    uint64_t n_dirty;
    struct stat was, attr;
    int64_t base; /* Of a whole one that is of no use: what was tried. */
    uint32_t mask;
    bool fresh, whole, appended, written;
};

/* Guards the names in all UNSENT, for moments of this machine's disk. */
static struct mutex names_lock = MUTEX_INIT;

void remote_kept_name(uint64_t n, const char *suffix,
                      char out[REMOTE_KEPT_NAME])
{
    (void)snprintf(out, REMOTE_KEPT_NAME, "%020" PRIu64 "%s", n, suffix);
}

int remote_kept_open(const struct remote *r, bool make, struct err *err)
{
    return remote_private_dir(r->sandbox.dir, UNSENT, make, err);
}

/* ---- Keeping ---- */

static int write_all(int fd, const void *data, size_t size, off_t at,
                     struct err *err)
{
    const char *from = data;

    for (size_t done = 0; done < size;) {
        ssize_t n = pwrite(fd, from + done, size - done, at + (off_t)done);

        if (n <= 0) {
            errno = n < 0 ? errno : EIO;
            return err_errno(err, "cannot keep what is not sent");
        }
        done += (size_t)n;
    }
    return 0;
}

/* Copies what is no hole. */
static int copy_data(int from, int to, struct err *err)
{
    AUTO_FREE char *bytes = malloc(COPY);
    off_t at = lseek(from, 0, SEEK_DATA);
    off_t end = 0;
    int rc = bytes ? 0 : err_no_memory(err);

    while (rc == 0 && at >= 0) {
        ssize_t n;

        if (at >= end) {
            end = lseek(from, at, SEEK_HOLE);
        }
        n = pread(from, bytes, end - at < COPY ? (size_t)(end - at) : COPY, at);
        if (n <= 0) {
            errno = n < 0 ? errno : EIO;
            return err_errno(err, "cannot read what is not sent");
        }
        rc = write_all(to, bytes, (size_t)n, at, err);
        at += n;
        at = at < end ? at : lseek(from, at, SEEK_DATA);
    }
    /* Nothing but its end may have ended that. */
    return rc < 0 || errno == ENXIO
               ? rc
               : err_errno(err, "cannot read what is not sent");
}

static int fill_copy(int from, int to, struct err *err)
{
    struct stat attr;

    return fstat(from, &attr) < 0 || ftruncate(to, attr.st_size) < 0
               ? err_errno(err, "cannot keep what is not sent")
               : copy_data(from, to, err);
}

/* Gives the bytes a name; where a file without one cannot get any they are
 * copied. Of a name that is there nothing is changed. */
int remote_keep_data(int dir, const char *name, int fd, struct err *err)
{
    char proc[REMOTE_KEPT_NAME];
    AUTO_FD int copy = -1;
    int rc = 0;

    (void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
    if (linkat(AT_FDCWD, proc, dir, name, AT_SYMLINK_FOLLOW) < 0) {
        copy = openat(dir, name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
        if (copy < 0) {
            return err_errno(err, "cannot keep what is not sent");
        }
        rc = fill_copy(fd, copy, err);
    }
    if (rc == 0 && fdatasync(copy < 0 ? fd : copy) < 0) {
        rc = err_errno(err, "cannot keep what is not sent");
    }
    if (rc < 0) {
        (void)unlinkat(dir, name, 0);
    }
    return rc;
}

static int write_about(int dir, const char *name,
                       const struct remote_stage *stage, const char *path,
                       struct err *err)
{
    AUTO_FD int fd =
        openat(dir, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    size_t size = strlen(path) + 1;
    struct head head;
    int rc;

    if (fd < 0) {
        return err_errno(err, "cannot keep what is not sent");
    }
    memset(&head, 0, sizeof(head));
    memcpy(head.magic, MAGIC, sizeof(head.magic));
    head.head_size = sizeof(head);
    head.path_size = size;
    head.n_dirty = stage->whole ? 0 : stage->n_dirty;
    head.was = stage->was;
    head.attr = stage->attr;
    head.base = stage->whole ? stage->tried : stage->base;
    head.mask = stage->mask;
    head.fresh = stage->fresh;
    head.whole = stage->whole;
    head.appended = stage->appended;
    head.written = stage->written;
    rc = write_all(fd, &head, sizeof(head), 0, err);
    if (rc == 0) {
        rc = write_all(fd, path, size, sizeof(head), err);
    }
    if (rc == 0) {
        rc = write_all(fd, stage->dirty, head.n_dirty * sizeof(*stage->dirty),
                       (off_t)(sizeof(head) + size), err);
    }
    if (rc == 0 && fsync(fd) < 0) {
        rc = err_errno(err, "cannot keep what is not sent");
    }
    return rc;
}

/* Numbers grow, so that what came first is sent first. */
static uint64_t next_number(void)
{
    static uint64_t last;
    uint64_t now = (uint64_t)clock_wall_us();

    last = now > last ? now : last + 1;
    return last;
}

static int keep_locked(int dir, const struct remote_stage *stage,
                       const char *path, struct err *err) REQUIRES(names_lock)
{
    uint64_t n = next_number();
    char data[REMOTE_KEPT_NAME], about[REMOTE_KEPT_NAME],
        half[REMOTE_KEPT_NAME];
    int rc;

    remote_kept_name(n, ".data", data);
    remote_kept_name(n, ".half", half);
    remote_kept_name(n, "", about);
    rc = remote_keep_data(dir, data, stage->fd, err);
    if (rc == 0) {
        crash_point("unsent-data");
        rc = write_about(dir, half, stage, path, err);
    }
    if (rc == 0 && (renameat(dir, half, dir, about) < 0 || fsync(dir) < 0)) {
        rc = err_errno(err, "cannot keep what is not sent");
    }
    if (rc < 0) {
        (void)unlinkat(dir, about, 0);
        (void)unlinkat(dir, half, 0);
        (void)unlinkat(dir, data, 0);
        return rc;
    }
    crash_point("unsent-kept");
    return 0;
}

int remote_stage_keep(struct remote_stage *stage, struct err *err)
{
    const struct remote *r = remote_tree(stage->node);
    struct remote_path path;
    int rc = remote_stage_path(stage, &path, err);
    AUTO_FD int dir = rc < 0 ? rc : remote_kept_open(r, true, err);

    if (dir < 0) {
        return dir;
    }
    mutex_lock(&names_lock);
    rc = keep_locked(dir, stage, path.text, err);
    mutex_unlock(&names_lock);
    if (rc == -ENOSPC || rc == -EDQUOT) { /* Bytes that can be had again. */
        remote_data_clear(r->data);
        err_clear(err);
        mutex_lock(&names_lock);
        rc = keep_locked(dir, stage, path.text, err);
        mutex_unlock(&names_lock);
    }
    if (rc == 0) {
        stage->changed = false;
    }
    return rc;
}

/* ---- Reading it back ---- */

/* A path as an engine is given it. */
static bool is_path(const char *path, size_t size)
{
    bool good =
        size > 1 && size <= REMOTE_PATH_SIZE && strnlen(path, size) == size - 1;
    const char *name = path;

    while (good && name) {
        const char *slash = strchr(name, '/');
        size_t len = slash ? (size_t)(slash - name) : strlen(name);

        good = len && !(len == 1 && name[0] == '.') &&
               !(len == 2 && memcmp(name, "..", 2) == 0);
        name = slash ? slash + 1 : NULL;
    }
    return good;
}

static bool makes_sense(const struct head *head, uint64_t size)
{
    return memcmp(head->magic, MAGIC, sizeof(head->magic)) == 0 &&
           head->head_size == sizeof(*head) &&
           head->path_size <= REMOTE_PATH_SIZE &&
           head->n_dirty <= REMOTE_CHUNKS_MOST &&
           size == sizeof(*head) + head->path_size + head->n_dirty &&
           head->attr.st_size >= 0 && head->base >= 0 &&
           (!head->whole || !head->n_dirty);
}

static bool read_all(int fd, void *out, size_t size, off_t at)
{
    return pread(fd, out, size, at) == (ssize_t)size;
}

static int read_about(int fd, struct remote_kept *kept, struct err *err)
{
    struct remote_stage *stage = &kept->stage;
    struct head head;
    struct stat attr;
    off_t at = sizeof(head);

    if (fstat(fd, &attr) < 0 || !read_all(fd, &head, sizeof(head), 0) ||
        !makes_sense(&head, (uint64_t)attr.st_size) ||
        !read_all(fd, kept->path, head.path_size, at) ||
        !is_path(kept->path, head.path_size)) {
        return err_set(err, EIO, "what is kept makes no sense");
    }
    stage->dirty = calloc(head.n_dirty + 1, sizeof(*stage->dirty));
    if (!stage->dirty) {
        return err_no_memory(err);
    }
    at += (off_t)head.path_size;
    if (!read_all(fd, stage->dirty, head.n_dirty, at)) {
        return err_set(err, EIO, "what is kept makes no sense");
    }
    stage->n_dirty = head.n_dirty;
    stage->was = head.was;
    stage->attr = head.attr;
    *(head.whole ? &stage->tried : &stage->base) = head.base;
    stage->mask = head.mask;
    stage->fresh = head.fresh;
    stage->whole = head.whole;
    stage->appended = head.appended;
    stage->written = head.written;
    stage->changed = true;
    return 0;
}

/* What may be changed while it is sent is a copy. */
static int open_data(const struct remote *r, int dir, const char *name,
                     struct remote_stage *stage, struct err *err)
{
    AUTO_FD int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat attr;
    int rc;

    if (fd < 0 || fstat(fd, &attr) < 0) {
        return err_errno(err, "cannot read what is kept");
    }
    if (stage->whole && !stage->appended) {
        stage->fd = TAKE_FD(fd);
        return 0;
    }
    stage->fd = remote_private_file(r->sandbox.dir, err);
    if (stage->fd < 0) {
        return stage->fd;
    }
    rc = ftruncate(stage->fd, attr.st_size) < 0
             ? err_errno(err, "cannot copy what is kept")
             : 0;
    return rc < 0 ? rc : copy_data(fd, stage->fd, err);
}

void remote_kept_free(struct remote_kept *kept)
{
    struct remote *r = remote_tree(kept->stage.node);

    mutex_lock(&r->base.lock);
    r->staged_bytes -= kept->stage.bytes;
    mutex_unlock(&r->base.lock);
    if (kept->stage.fd >= 0) {
        (void)close(kept->stage.fd);
    }
    free(kept->stage.dirty);
    free(kept);
}

int remote_kept_load(struct remote *r, int dir, uint64_t n,
                     struct remote_kept **out, struct err *err)
{
    char about[REMOTE_KEPT_NAME], data[REMOTE_KEPT_NAME];
    struct remote_kept *kept = calloc(1, sizeof(*kept));
    AUTO_FD int fd = -1;
    int rc;

    if (!kept) {
        return err_no_memory(err);
    }
    remote_kept_name(n, "", about);
    remote_kept_name(n, ".data", data);
    list_init(&kept->stage.link);
    kept->stage.node = &r->root;
    kept->stage.path = kept->path;
    kept->stage.fd = -1;
    kept->n = n;
    fd = openat(dir, about, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    rc = fd < 0 ? err_errno(err, "cannot read what is kept")
                : read_about(fd, kept, err);
    if (rc == 0) {
        rc = open_data(r, dir, data, &kept->stage, err);
    }
    if (rc < 0) {
        remote_kept_free(kept);
        return err_wrap(err, rc, "%s/" UNSENT "/%s", r->sandbox.dir, about);
    }
    *out = kept;
    return 0;
}

void remote_kept_forget(int dir, uint64_t n)
{
    char name[REMOTE_KEPT_NAME];

    crash_point("unsent-sent");
    remote_kept_name(n, "", name);
    (void)unlinkat(dir, name, 0);
    crash_point("unsent-forgotten");
    remote_kept_name(n, ".data", name);
    (void)unlinkat(dir, name, 0);
}

/* ---- Which there are ---- */

/* What a crash has left half done goes. */
static void clean(int dir, const char *name) REQUIRES(names_lock)
{
    char about[REMOTE_KEPT_NAME];

    (void)snprintf(about, sizeof(about), "%.20s", name);
    if (strcmp(about, name) != 0 && faccessat(dir, about, F_OK, 0) < 0 &&
        errno == ENOENT) {
        (void)unlinkat(dir, name, 0);
    }
}

static int by_number(const void *a, const void *b)
{
    const uint64_t *x = a;
    const uint64_t *y = b;

    return *x < *y ? -1 : *x > *y;
}

/* Adds the number of a name that is one. */
static int add_number(const char *name, struct remote_numbers *all)
{
    char *end = NULL;
    uint64_t n = strtoull(name, &end, 10);

    if (*end || end == name) {
        return 0;
    }
    if (all->n == all->room) {
        size_t room = all->room ? 2 * all->room : 64;
        uint64_t *wide = realloc(all->of, room * sizeof(*wide));

        if (!wide) {
            return -ENOMEM;
        }
        all->of = wide;
        all->room = room;
    }
    all->of[all->n] = n;
    all->n++;
    return 0;
}

static int list_locked(int fd, struct remote_numbers *all) REQUIRES(names_lock)
{
    int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = own < 0 ? NULL : fdopendir(own);
    const struct dirent *entry = dir ? readdir(dir) : NULL;
    int rc = dir ? 0 : -errno;

    while (entry && rc == 0) {
        clean(fd, entry->d_name);
        rc = add_number(entry->d_name, all);
        entry = readdir(dir);
    }
    if (dir) {
        (void)closedir(dir);
    } else if (own >= 0) {
        (void)close(own);
    }
    if (all->n) {
        qsort(all->of, all->n, sizeof(*all->of), by_number);
    }
    return rc;
}

int remote_kept_list(int dir, struct remote_numbers *out)
{
    int rc;

    mutex_lock(&names_lock);
    rc = list_locked(dir, out);
    mutex_unlock(&names_lock);
    return rc;
}
