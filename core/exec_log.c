/* Output on disk. See exec_log.h. */
#include "core/exec_log.h"

#include "core/cleanup.h"
#include "core/mutex.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

/* A run of bytes of one stream begins. The first run is of stdout, perhaps
 * empty, and has no record in the index. */
struct record {
    uint64_t place;  /* Offset in the log << 1 | enum command_stream. */
    uint64_t before; /* Bytes of stdout before it. */
};

enum {
    WINDOW = 64 /* Records read at once. */
};

/* Output leaves this much room on its disk, or a part of a smaller one: with
 * none at all no session could even be removed. */
#define ROOM_KEPT ((uint64_t)16 << 20)

enum {
    ROOM_PART = 16
};

/* What there is: later bytes do not change it. */
struct extent {
    uint64_t size; /* Of the log. */
    uint64_t out;  /* Bytes of stdout in it. */
    uint64_t runs;
};

static const struct extent empty = {.runs = 1};
static const struct record first_run = {0, 0};

struct exec_log {
    char *dir;
    uint64_t n;
    struct mutex lock; /* Of all GUARDED members below. */
    struct extent extent GUARDED;
    bool loaded GUARDED; /* extent is known. */
    /* By the thread that appends: */
    int log_fd; /* -1: not open yet. */
    int idx_fd;
    bool broken;
    enum command_stream last;
};

int exec_log_new(const char *dir, uint64_t n, struct exec_log **out,
                 struct err *err)
{
    struct exec_log *log = calloc(1, sizeof(*log));

    if (log) {
        log->dir = strdup(dir);
    }
    if (!log || !log->dir) {
        free(log);
        return err_no_memory(err);
    }
    log->n = n;
    mutex_init(&log->lock);
    log->log_fd = -1;
    log->idx_fd = -1;
    *out = log;
    return 0;
}

void exec_log_name(struct exec_log *log, uint64_t n)
{
    log->n = n;
}

void exec_log_free(struct exec_log *log)
{
    if (log) {
        exec_log_stop(log);
        mutex_done(&log->lock);
        free(log->dir);
        free(log);
    }
}

static int name_part(const struct exec_log *log, const char *ending,
                     char out[PATH_MAX])
{
    int n = snprintf(out, PATH_MAX, "%s/%llu%s", log->dir,
                     (unsigned long long)log->n, ending);

    if (n < 0 || n >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return 0;
}

static int open_part(const struct exec_log *log, const char *ending, int flags)
{
    char path[PATH_MAX];

    return name_part(log, ending, path) < 0
               ? -1
               : open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* Opens one for appending, and makes it at its first use. */
static int need_part(const struct exec_log *log, const char *ending, int *fd)
{
    if (*fd < 0) {
        *fd = open_part(log, ending, O_RDWR | O_CREAT);
    }
    return *fd < 0 ? -errno : 0;
}

static int remove_part(const struct exec_log *log, const char *ending)
{
    char path[PATH_MAX];

    return name_part(log, ending, path) < 0 ||
                   (unlink(path) < 0 && errno != ENOENT)
               ? -1
               : 0;
}

static void set_extent(struct exec_log *log, const struct extent *extent)
{
    mutex_lock(&log->lock);
    log->extent = *extent;
    log->loaded = true;
    mutex_unlock(&log->lock);
}

int exec_log_start(struct exec_log *log, struct err *err)
{
    if (remove_part(log, ".log") < 0 || remove_part(log, ".idx") < 0) {
        return err_errno(err, "make room for the output");
    }
    set_extent(log, &empty);
    return 0;
}

void exec_log_stop(struct exec_log *log)
{
    cleanup_fd(&log->log_fd);
    cleanup_fd(&log->idx_fd);
}

static int sync_part(const struct exec_log *log, const char *ending)
{
    AUTO_FD int fd = open_part(log, ending, O_RDONLY);

    if (fd < 0 && errno == ENOENT) { /* There was nothing for it. */
        return 0;
    }
    return fd < 0 ? -1 : fsync(fd);
}

int exec_log_sync(const struct exec_log *log, struct err *err)
{
    AUTO_FD int dir = open(log->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (dir < 0 && errno == ENOENT) {
        return 0;
    }
    return dir < 0 || sync_part(log, ".log") < 0 ||
                   sync_part(log, ".idx") < 0 || fsync(dir) < 0
               ? err_errno(err, "cannot keep the output")
               : 0;
}

/* Writes all it can; the bytes that were written are counted on failure too. */
static int write_at(int fd, const void *data, size_t size, uint64_t offset,
                    size_t *done)
{
    const char *at = data;

    *done = 0;
    while (*done < size) {
        ssize_t n =
            pwrite(fd, at + *done, size - *done, (off_t)(offset + *done));

        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        *done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static bool has_room(int fd, size_t size)
{
    struct statvfs disk;
    uint64_t part;

    if (fstatvfs(fd, &disk) < 0) {
        return true; /* The write tells. */
    }
    part = (uint64_t)disk.f_blocks * disk.f_frsize / ROOM_PART;
    return (uint64_t)disk.f_bavail * disk.f_frsize >=
           size + (part < ROOM_KEPT ? part : ROOM_KEPT);
}

/* Announces a run where the stream changes. */
static int announce(struct exec_log *log, enum command_stream stream,
                    struct extent *extent)
{
    struct record record = {
        .place = extent->size << 1 | stream,
        .before = extent->out,
    };
    size_t done;
    int rc;

    if (log->last == stream) {
        return 0;
    }
    rc = need_part(log, ".idx", &log->idx_fd);
    if (rc == 0) {
        rc = write_at(log->idx_fd, &record, sizeof(record),
                      (extent->runs - 1) * sizeof(record), &done);
    }
    if (rc == 0) {
        extent->runs++;
        log->last = stream;
    }
    return rc;
}

/* Looks whether `size` bytes of a stream can be appended to what there is. */
static int prepare(struct exec_log *log, enum command_stream stream,
                   size_t size, struct extent *out)
{
    int rc = need_part(log, ".log", &log->log_fd);

    mutex_lock(&log->lock);
    *out = log->extent;
    mutex_unlock(&log->lock);
    if (rc == 0 && !has_room(log->log_fd, size)) {
        rc = -ENOSPC;
    }
    return rc < 0 ? rc : announce(log, stream, out);
}

static void count(struct extent *extent, enum command_stream stream,
                  size_t size)
{
    extent->size += size;
    extent->out += stream == COMMAND_STDOUT ? size : 0;
}

int exec_log_append(struct exec_log *log, enum command_stream stream,
                    const void *data, size_t size, struct err *err)
{
    struct extent extent;
    size_t done = 0;
    int rc;

    if (log->broken) {
        return err_set(err, EIO, "the output is cut off");
    }
    rc = prepare(log, stream, size, &extent);
    if (rc == 0) {
        rc = write_at(log->log_fd, data, size, extent.size, &done);
        count(&extent, stream, done);
    }
    set_extent(log, &extent);
    if (rc < 0) {
        log->broken = true;
        errno = -rc;
        return err_errno(err, "cannot keep the output, which is cut off");
    }
    return 0;
}

ssize_t exec_log_take(struct exec_log *log, enum command_stream stream,
                      int pipe, size_t most)
{
    struct extent extent;
    off_t at;
    ssize_t n;

    if (log->broken || prepare(log, stream, most, &extent) < 0) {
        return -EINVAL; /* Appending says what is wrong. */
    }
    at = (off_t)extent.size;
    n = splice(pipe, NULL, log->log_fd, &at, most, SPLICE_F_NONBLOCK);
    if (n > 0) {
        count(&extent, stream, (size_t)n);
    } else if (n < 0) {
        n = errno == EAGAIN || errno == EINTR ? -EAGAIN : -EINVAL;
    }
    set_extent(log, &extent);
    return n;
}

static uint64_t place_of(const struct record *record)
{
    return record->place >> 1;
}

static enum command_stream stream_of(const struct record *record)
{
    return record->place & 1 ? COMMAND_STDERR : COMMAND_STDOUT;
}

/* Reads `count` records from `first` on, or fails. */
static int read_records(int fd, uint64_t first, size_t count,
                        struct record *out)
{
    size_t size;
    ssize_t n;

    if (first == 0 && count) {
        *out++ = first_run;
        count--;
        first++;
    }
    size = count * sizeof(*out);
    n = size ? pread(fd, out, size, (off_t)((first - 1) * sizeof(*out))) : 0;
    if (n < 0) {
        return -errno;
    }
    return (size_t)n == size ? 0 : -EIO;
}

/* Of what an earlier daemon left: 0 where there is no file. */
static int open_left(const struct exec_log *log, const char *ending, int *fd,
                     uint64_t *size)
{
    struct stat st;

    *size = 0;
    *fd = open_part(log, ending, O_RDONLY);
    if (*fd < 0) {
        return errno == ENOENT ? 0 : -errno;
    }
    if (fstat(*fd, &st) < 0) {
        return -errno;
    }
    *size = (uint64_t)st.st_size;
    return 0;
}

/* Finds what an earlier daemon left. Missing files are an empty output. */
static int find_extent(const struct exec_log *log, struct extent *out,
                       enum command_stream *stream)
{
    AUTO_FD int log_fd = -1;
    AUTO_FD int idx_fd = -1;
    struct extent extent = empty;
    struct record last = first_run;
    uint64_t size;
    int rc = open_left(log, ".log", &log_fd, &extent.size);

    if (rc == 0) {
        rc = open_left(log, ".idx", &idx_fd, &size);
    }
    if (rc < 0) {
        return rc;
    }
    extent.runs += size / sizeof(last);
    /* After a crash of the machine the index may be ahead of the log. */
    while (extent.runs > 1 &&
           (read_records(idx_fd, extent.runs - 1, 1, &last) < 0 ||
            place_of(&last) > extent.size)) {
        extent.runs--;
        last = first_run;
    }
    extent.out = last.before;
    *stream = stream_of(&last);
    if (*stream == COMMAND_STDOUT) {
        extent.out += extent.size - place_of(&last);
    }
    *out = extent;
    return 0;
}

int exec_log_continue(struct exec_log *log, struct err *err)
{
    struct extent extent;
    int rc = find_extent(log, &extent, &log->last);

    if (rc < 0) {
        errno = -rc;
        return err_errno(err, "open the output files");
    }
    set_extent(log, &extent);
    return 0;
}

static struct extent extent_locked(struct exec_log *log) REQUIRES(log->lock)
{
    enum command_stream ignored;

    if (!log->loaded) {
        log->loaded = find_extent(log, &log->extent, &ignored) == 0;
    }
    return log->loaded ? log->extent : empty;
}

static struct extent extent_of(struct exec_log *log)
{
    struct extent extent;

    mutex_lock(&log->lock);
    extent = extent_locked(log);
    mutex_unlock(&log->lock);
    return extent;
}

static uint64_t view_size(const struct extent *extent, enum exec_view view)
{
    if (view == EXEC_OUTPUT) {
        return extent->size;
    }
    return view == EXEC_STDOUT ? extent->out : extent->size - extent->out;
}

uint64_t exec_log_size(struct exec_log *log, enum exec_view view)
{
    struct extent extent = extent_of(log);

    return view_size(&extent, view);
}

/* Offset in the view at which a run begins, or would begin. */
static uint64_t key_of(const struct record *record, enum exec_view view)
{
    return view == EXEC_STDOUT ? record->before
                               : place_of(record) - record->before;
}

/* Finds the last run whose key is not above the offset. */
static int find_run(int fd, const struct extent *extent, enum exec_view view,
                    uint64_t offset, uint64_t *out)
{
    uint64_t low = 0;
    uint64_t high = extent->runs;

    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        struct record record;
        int rc = read_records(fd, middle, 1, &record);

        if (rc < 0) {
            return rc;
        }
        if (key_of(&record, view) <= offset) {
            low = middle;
        } else {
            high = middle;
        }
    }
    *out = low;
    return 0;
}

/* One read of a view, on its way through the runs. */
struct walk {
    int log_fd;
    int idx_fd;
    struct extent extent;
    enum exec_view view;
    uint64_t offset;
    char *out;
    size_t size;
    size_t done;
};

/* Copies of the bytes from `from` to `end` of the log what is wanted. */
static int copy_run(struct walk *walk, const struct record *run, uint64_t end)
{
    uint64_t at = walk->offset + walk->done;
    uint64_t from = place_of(run) + (at - key_of(run, walk->view));
    size_t want = walk->size - walk->done;
    ssize_t n;

    if (from >= end) {
        return 0;
    }
    if (want > end - from) {
        want = (size_t)(end - from);
    }
    n = pread(walk->log_fd, walk->out + walk->done, want, (off_t)from);
    if (n < 0) {
        return -errno;
    }
    walk->done += (size_t)n;
    return (size_t)n == want ? 0 : -EIO;
}

/* Goes through up to WINDOW runs from `first` on. */
static int walk_window(struct walk *walk, uint64_t first, size_t count)
{
    struct record records[WINDOW + 1];
    bool more = first + count < walk->extent.runs;
    enum command_stream stream =
        walk->view == EXEC_STDOUT ? COMMAND_STDOUT : COMMAND_STDERR;
    int rc = read_records(walk->idx_fd, first, count + more, records);

    for (size_t i = 0; i < count && rc == 0 && walk->done < walk->size; i++) {
        uint64_t end = i + 1 < count + more ? place_of(&records[i + 1])
                                            : walk->extent.size;

        if (stream_of(&records[i]) == stream) {
            rc = copy_run(walk, &records[i], end);
        }
    }
    return rc;
}

static int walk_runs(struct walk *walk)
{
    uint64_t at = 0;
    int rc =
        find_run(walk->idx_fd, &walk->extent, walk->view, walk->offset, &at);

    while (rc == 0 && walk->done < walk->size && at < walk->extent.runs) {
        uint64_t left = walk->extent.runs - at;
        size_t count = left < WINDOW ? (size_t)left : WINDOW;

        rc = walk_window(walk, at, count);
        at += count;
    }
    return rc;
}

static int walk_view(struct walk *walk)
{
    return walk->view == EXEC_OUTPUT
               ? copy_run(walk, &first_run, walk->extent.size)
               : walk_runs(walk);
}

ssize_t exec_log_read(struct exec_log *log, enum exec_view view,
                      uint64_t offset, void *out, size_t size, struct err *err)
{
    struct walk walk = {
        .extent = extent_of(log),
        .view = view,
        .offset = offset,
        .out = out,
        .size = size,
    };
    AUTO_FD int log_fd = -1;
    AUTO_FD int idx_fd = -1;
    int rc;

    if (offset >= view_size(&walk.extent, view) || !size) {
        return 0;
    }
    log_fd = open_part(log, ".log", O_RDONLY);
    if (log_fd >= 0 && walk.extent.runs > 1) {
        idx_fd = open_part(log, ".idx", O_RDONLY);
    }
    if (log_fd < 0 || (idx_fd < 0 && walk.extent.runs > 1)) {
        return err_errno(err, "open the output");
    }
    walk.log_fd = log_fd;
    walk.idx_fd = idx_fd;
    rc = walk_view(&walk);
    if (rc < 0 && !walk.done) {
        errno = -rc;
        return err_errno(err, "read the output");
    }
    return (ssize_t)walk.done;
}
