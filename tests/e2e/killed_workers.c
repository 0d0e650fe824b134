/* What workers do. See killed.h. */
#include "tests/e2e/killed.h"

#include "tests/e2e/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

unsigned choose(uint64_t *random, unsigned most)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return (unsigned)(*random >> 32) % most;
}

const char *mine(const struct worker *worker, const char *file)
{
    return at("sessions/k%u/%s", worker->number, file);
}

/* Reads a command's output to its end, by which it is recorded; it comes in
 * pieces. */
static int read_all(int fd, char *out, size_t size)
{
    size_t got = 0;
    ssize_t n = 1;

    while (n > 0 && got < size - 1) {
        n = read(fd, out + got, size - 1 - got);
        got += n > 0 ? (size_t)n : 0;
    }
    out[got] = '\0';
    return n < 0 ? errno : 0;
}

/* Runs a command and reads its output on the same handle. ENODATA: it was cut
 * short. */
static int do_exec(const struct worker *worker, unsigned tag)
{
    int fd = open(mine(worker, "exec"), O_RDWR | O_CLOEXEC);
    char text[64];
    char got[64];
    int size = snprintf(text, sizeof(text), "echo tag-%u\n", tag);
    int rc;

    if (fd < 0) {
        return errno;
    }
    rc = write(fd, text, (size_t)size) == size ? 0 : errno;
    if (rc == 0) {
        rc = read_all(fd, got, sizeof(got));
    }
    if (rc == 0 && strcmp(got, text + 5) != 0) {
        rc = strncmp(got, text + 5, strlen(got)) == 0 ? ENODATA : EBADMSG;
    }
    return close(fd) != 0 && rc == 0 ? errno : rc;
}

static int do_file(const struct worker *worker, unsigned tag)
{
    char name[64];
    char text[64];
    int size = snprintf(text, sizeof(text), "tag-%u\n", tag);
    int rc = 0;
    int fd;

    (void)snprintf(name, sizeof(name), "workspace/f%u", tag);
    fd = open(mine(worker, name), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
        return errno;
    }
    if (write(fd, text, (size_t)size) != size || fsync(fd) != 0) {
        rc = errno;
    }
    (void)close(fd);
    return rc;
}

static int do_status(const struct worker *worker, const char *word)
{
    struct wrote done = put(mine(worker, "status"), word);

    return done.open ? done.open : done.write ? done.write : done.close;
}

const char *coming(const struct worker *worker, bool moved)
{
    return at("sessions/k%u-%s", worker->number, moved ? "moved" : "comes");
}

static int do_rename(const struct worker *worker)
{
    const char *from = coming(worker, worker->moved);

    return rename(from, coming(worker, !worker->moved)) == 0 ? 0 : errno;
}

static int do_config(const struct worker *worker, unsigned limit)
{
    char path[2 * MNT_PATH_SIZE];
    char text[1024];
    struct wrote done;

    (void)snprintf(path, sizeof(path), "%s/config.json",
                   coming(worker, worker->moved));
    (void)snprintf(text, sizeof(text),
                   "{\"provider\": \"%s\", %s\"exec_timeout_ms\": %u}",
                   mnt.provider, mnt_needs(), limit);
    done = put(path, text);
    return done.open ? done.open : done.write ? done.write : done.close;
}

unsigned limit_of(const struct entry *entry)
{
    return 1000000 + entry->tag;
}

static int do_one(struct worker *worker, const struct entry *entry)
{
    switch (entry->kind) {
    case KIND_EXEC:
        return do_exec(worker, entry->tag);
    case KIND_FILE:
        return do_file(worker, entry->tag);
    case KIND_MKDIR:
        return mkdir(coming(worker, worker->moved), 0700) == 0 ? 0 : errno;
    case KIND_RMDIR:
        return rmdir(coming(worker, worker->moved)) == 0 ? 0 : errno;
    case KIND_RENAME:
        return do_rename(worker);
    case KIND_CONFIG:
        return do_config(worker, limit_of(entry));
    case KIND_PAUSE:
        return do_status(worker, "paused");
    case KIND_RESUME:
        return do_status(worker, "running");
    case KIND_DELETE:
        return do_status(worker, "absent");
    case KINDS:
        break;
    }
    return EINVAL;
}

static enum kind choose_kind(struct worker *worker)
{
    static const enum kind of_sandbox[] = {
        KIND_EXEC, KIND_EXEC, KIND_EXEC,  KIND_EXEC,   KIND_FILE,
        KIND_FILE, KIND_FILE, KIND_PAUSE, KIND_RESUME, KIND_DELETE};
    static const enum kind of_coming[] = {KIND_RENAME, KIND_CONFIG, KIND_CONFIG,
                                          KIND_RMDIR};
    unsigned number = choose(&worker->random, 14);

    if (number < ARRAY_SIZE(of_sandbox)) {
        return of_sandbox[number] == KIND_PAUSE && mnt_scripts()
                   ? KIND_FILE /* It cannot pause. */
                   : of_sandbox[number];
    }
    return worker->made ? of_coming[number - ARRAY_SIZE(of_sandbox)]
                        : KIND_MKDIR;
}

/* It was told that this succeeded. */
static void note_done(struct worker *worker, const struct entry *entry)
{
    switch (entry->kind) {
    case KIND_MKDIR:
        worker->made = true;
        worker->limit = 0;
        break;
    case KIND_RMDIR:
        worker->made = false;
        break;
    case KIND_RENAME:
        worker->moved = !worker->moved;
        break;
    case KIND_CONFIG:
        worker->limit = limit_of(entry);
        break;
    case KIND_EXEC:
    case KIND_FILE:
    case KIND_PAUSE:
    case KIND_RESUME:
    case KIND_DELETE:
    case KINDS:
        break;
    }
}

/* Whether an error is one of a dead daemon, or of one that ends: then the path
 * leads nowhere at times, and what was running is cut short. */
static bool daemon_died(int rc)
{
    if (atomic_load(ending) &&
        (rc == ENOENT || rc == ECANCELED || rc == ENODATA)) {
        return true;
    }
    if (rc == EIO) {
        return access(at("sessions"), F_OK) < 0 && errno == ENOTCONN;
    }
    return rc == ENOTCONN || rc == ECONNABORTED || rc == ECANCELED;
}

int work(void *arg)
{
    struct worker *worker = arg;
    int rc = do_status(worker, "running");

    while (rc == 0 && worker->count < ENTRIES && !atomic_load(ending)) {
        struct entry *entry = &worker->entries[worker->count];

        entry->kind = choose_kind(worker);
        entry->tag = worker->tags++;
        entry->done = false;
        worker->count++;
        rc = do_one(worker, entry);
        entry->done = rc == 0;
        entry->cut = rc == ENODATA;
        if (rc == 0) {
            note_done(worker, entry);
            if (entry->kind == KIND_DELETE) {
                rc = do_status(worker, "running");
            }
        }
    }
    worker->failed = daemon_died(rc) ? 0 : rc;
    return 0;
}
