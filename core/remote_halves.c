/* What is half made. HALVES in the session's directory holds a file for each:
 * its name is that of the half, its content the path. */
#include "core/remote_halves.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/crash.h"
#include "core/remote_kept.h"
#include "core/workers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define HALVES "halves"
#define PREFIX ".sessionfs-"

enum {
    ID_LEN = 8, /* Digits of this process, in front of those of the half. */
    CALL_MS = 10 * 1000,
};

static uint32_t process_id;

static uint32_t random_id(void)
{
    uint32_t id = 0;

    return getrandom(&id, sizeof(id), 0) == sizeof(id)
               ? id
               : (uint32_t)clock_wall_us();
}

static void make_id(void)
{
    process_id = random_id();
}

static uint32_t id_of_process(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, make_id);
    return process_id + (uint32_t)getpid(); /* Also a child has its own. */
}

static int open_dir(const struct remote *r, bool make)
{
    struct err unused = ERR_INIT;

    return remote_private_dir(r->sandbox.dir, HALVES, make, &unused);
}

static const char *note_of(const struct remote_half *half)
{
    return half->name + sizeof(PREFIX) - 1;
}

static bool note(const struct remote *r, const char *path,
                 const struct remote_half *half)
{
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash + 1 - path) : 0;
    AUTO_FD int dir = open_dir(r, true);
    AUTO_FREE char *text = NULL;
    AUTO_FD int fd = -1;
    int size = asprintf(&text, "%.*s%s", (int)len, path, half->name);

    if (dir < 0 || size < 0) {
        text = size < 0 ? NULL : text;
        return false;
    }
    fd = openat(dir, note_of(half), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                0600);
    if (fd < 0) {
        return false;
    }
    if (write(fd, text, (size_t)size) != size) {
        (void)unlinkat(dir, note_of(half), 0);
        return false;
    }
    return true;
}

void remote_half_begin(struct remote *r, const char *path,
                       struct remote_half *out)
{
    (void)snprintf(out->name, sizeof(out->name),
                   PREFIX "%08" PRIx32 "%08" PRIx32, id_of_process(),
                   random_id());
    out->noted = note(r, path, out);
    crash_point("half-noted");
}

void remote_half_end(struct remote *r, const struct remote_half *half, int rc)
{
    bool certain = rc != -EIO && !remote_is_of_all(rc);
    AUTO_FD int dir = half->noted && certain ? open_dir(r, false) : -1;

    if (dir >= 0) {
        (void)unlinkat(dir, note_of(half), 0);
    }
}

/* ---- What others have left ---- */

/* Whether a note is one, and of a process that is gone. */
static bool is_left(const char *name)
{
    char mine[ID_LEN + 1];

    (void)snprintf(mine, sizeof(mine), "%08" PRIx32, id_of_process());
    return strspn(name, "0123456789abcdef") == 2 * (size_t)ID_LEN &&
           !name[2 * (size_t)ID_LEN] && strncmp(name, mine, ID_LEN) != 0;
}

/* Reads a note; false where it does not name the half that it is called by. */
static bool read_note(int dir, const char *name, struct remote_path *out)
{
    AUTO_FD int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out->text, sizeof(out->text) - 1);
    const char *last;

    if (n <= 0) {
        return false;
    }
    out->text[n] = '\0';
    last = strrchr(out->text, '/');
    last = last ? last + 1 : out->text;
    return strncmp(last, PREFIX, sizeof(PREFIX) - 1) == 0 &&
           strcmp(last + sizeof(PREFIX) - 1, name) == 0;
}

static int remove_half(struct remote *r, const char *path,
                       const struct limits *limits)
{
    struct err unused = ERR_INIT;
    int rc = r->files->remove ? remote_begin(r, limits, &unused) : 0;

    if (rc < 0 || !r->files->remove) {
        return rc;
    }
    rc = r->files->remove(r->provider, &r->sandbox, path, false, limits,
                          &unused);
    rc = (int)remote_end(r, rc, &unused);
    remote_forget(r, path);
    return rc;
}

static void clean(struct remote *r, DIR *dir, const struct limits *limits)
{
    int rc = 0;

    for (const struct dirent *entry = readdir(dir);
         entry && !remote_is_of_all(rc); entry = readdir(dir)) {
        struct remote_path path;

        if (!is_left(entry->d_name)) {
            continue;
        }
        rc = read_note(dirfd(dir), entry->d_name, &path)
                 ? remove_half(r, path.text, limits)
                 : 0;
        if (rc == 0 || rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP) {
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
}

void remote_halves_clean(struct remote *r, const struct limits *limits)
{
    int fd = atomic_exchange(&r->halves_clean, true) ? -1 : open_dir(r, false);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (dir) {
        clean(r, dir, limits);
        (void)closedir(dir);
    } else {
        cleanup_fd(&fd);
    }
}

static void clean_soon(void *arg)
{
    struct remote *r = arg;
    const struct limits limits = {.deadline_ms = clock_deadline(CALL_MS),
                                  .cancel = &r->end};

    remote_halves_clean(r, &limits);
}

void remote_halves_start(struct remote *r)
{
    AUTO_FD int dir = open_dir(r, false);

    if (dir >= 0) {
        (void)!workers_run(r->ahead, clean_soon, r);
    }
}
