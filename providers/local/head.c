/* What a session's workspace is made of. See head.h. */
#include "providers/local/head.h"

#include "core/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD     "head"
#define HEAD_NEW "head.new"

enum {
    LINK_SIZE = 96,
    PLACE_SIZE = 48
};

struct place {
    char name[PLACE_SIZE];
};

static struct place place_of(uint64_t key)
{
    struct place place;

    (void)snprintf(place.name, sizeof(place.name), HEAD_KEYS "/%" PRIu64, key);
    return place;
}

int head_read(int dir, uint64_t number, struct head *out, struct err *err)
{
    struct head head = {.ids = number};
    char text[LINK_SIZE];
    ssize_t size = readlinkat(dir, HEAD, text, sizeof(text) - 1);

    if (size < 0 && errno != ENOENT) {
        return err_errno(err, "the workspace's '" HEAD "'");
    }
    text[size < 0 ? 0 : size] = '\0';
    if (size >= 0 &&
        sscanf(text, "%" SCNu64 ".%" SCNu64 ".%" SCNu64 ".%" SCNu64,
               &head.upper, &head.top, &head.ids, &head.seal) < 3) {
        return err_set(err, EIO, "the workspace's '" HEAD "' is damaged");
    }
    *out = head;
    return 0;
}

int head_write(int dir, const struct head *head, struct err *err)
{
    char text[LINK_SIZE];

    (void)snprintf(text, sizeof(text),
                   "%" PRIu64 ".%" PRIu64 ".%" PRIu64 ".%" PRIu64, head->upper,
                   head->top, head->ids, head->seal);
    if ((unlinkat(dir, HEAD_NEW, 0) < 0 && errno != ENOENT) ||
        symlinkat(text, dir, HEAD_NEW) < 0 ||
        renameat(dir, HEAD_NEW, dir, HEAD) < 0) {
        return err_errno(err, "the workspace's '" HEAD "'");
    }
    return 0;
}

int head_drop(int dir, struct err *err)
{
    return unlinkat(dir, HEAD, 0) < 0 && errno != ENOENT
               ? err_errno(err, "the workspace's '" HEAD "'")
               : 0;
}

void head_upper(const struct head *head, char out[HEAD_NAME_SIZE])
{
    if (head->upper) {
        (void)snprintf(out, HEAD_NAME_SIZE, "upper.%" PRIu64, head->upper);
    } else {
        (void)snprintf(out, HEAD_NAME_SIZE, "upper");
    }
}

/* ---- Keys ---- */

static int read_key(int dir, const char *name, uint64_t *out)
{
    char text[LINK_SIZE];
    ssize_t size = readlinkat(dir, name, text, sizeof(text) - 1);

    if (size < 0) {
        return -errno;
    }
    text[size] = '\0';
    *out = strtoull(text, NULL, 10);
    return 0;
}

int head_find_key(int dir, uint64_t key, uint64_t *out, struct err *err)
{
    const struct place place = place_of(key);
    int rc = read_key(dir, place.name, out);

    return rc < 0 ? err_set(err, -rc, "there is no such checkpoint") : 0;
}

/* Another name of a link that is there costs the disk less than another link.
 */
int head_add_key(int dir, uint64_t key, uint64_t layer, uint64_t like,
                 struct err *err)
{
    const struct place place = place_of(key);
    const struct place other = place_of(like);
    char text[LINK_SIZE];

    if (like && linkat(dir, other.name, dir, place.name, 0) == 0) {
        return 0;
    }
    (void)snprintf(text, sizeof(text), "%" PRIu64, layer);
    if (symlinkat(text, dir, place.name) == 0) {
        return 0;
    }
    if (errno == ENOENT && mkdirat(dir, HEAD_KEYS, 0700) == 0 &&
        symlinkat(text, dir, place.name) == 0) {
        return 0;
    }
    return err_errno(err, "cannot note a checkpoint");
}

int head_drop_key(int dir, uint64_t key, struct err *err)
{
    const struct place place = place_of(key);

    return unlinkat(dir, place.name, 0) < 0 && errno != ENOENT
               ? err_errno(err, "cannot drop a checkpoint")
               : 0;
}

int head_each_key(int dir, head_key_fn *fn, void *arg, struct err *err)
{
    int fd =
        openat(dir, HEAD_KEYS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *keys = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    int rc = 0;

    if (!keys) {
        rc = fd < 0 && errno == ENOENT ? 0 : err_errno(err, "the checkpoints");
        cleanup_fd(&fd);
        return rc;
    }
    entry = readdir(keys);
    while (rc == 0 && entry) {
        uint64_t layer = 0;

        if (entry->d_name[0] != '.' &&
            read_key(dirfd(keys), entry->d_name, &layer) == 0) {
            rc = fn(arg, strtoull(entry->d_name, NULL, 10), layer);
        }
        entry = readdir(keys);
    }
    (void)closedir(keys);
    return rc;
}

int head_sync(int dir, struct err *err)
{
    AUTO_FD int keys =
        openat(dir, HEAD_KEYS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    AUTO_FD int own = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return own < 0 || fsync(own) < 0 || (keys >= 0 && fsync(keys) < 0)
               ? err_errno(err, "cannot sync the checkpoints")
               : 0;
}
