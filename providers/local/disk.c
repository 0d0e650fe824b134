/*
 * What a hostile tree takes on its disk. See disk.h.
 *
 * Directories that are still to be read wait as paths from the top, so that
 * one fd at a time is open, however deep the tree is.
 */
#include "providers/local/disk.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/list.h"
#include "providers/local/below.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum {
    BLOCK = 512,       /* What st_blocks counts in. */
    LOOK_EVERY = 1024, /* Entries between looks at the clock. */
};

struct dir {
    struct list link;
    size_t len;
    char path[]; /* Relative to the top, with a NUL; "" is the top. */
};

struct sum {
    int top;
    int64_t deadline_ms;
    struct list waiting; /* The newest last: it is taken first. */
    int64_t bytes;
    unsigned looked;
    bool whole;
};

static bool add_waiting(struct sum *sum, const struct dir *parent,
                        const char *name)
{
    size_t name_len = strlen(name);
    size_t before = parent && parent->len ? parent->len + 1 : 0;
    struct dir *dir = malloc(sizeof(*dir) + before + name_len + 1);

    if (!dir) {
        return false;
    }
    if (before) {
        memcpy(dir->path, parent->path, parent->len);
        dir->path[parent->len] = '/';
    }
    memcpy(dir->path + before, name, name_len + 1);
    dir->len = before + name_len;
    list_init(&dir->link);
    list_add(&sum->waiting, &dir->link);
    return true;
}

static void add_entry(struct sum *sum, const struct dir *dir, int fd,
                      const struct dirent *entry)
{
    struct stat st;

    if (fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return;
    }
    if (S_ISDIR(st.st_mode)) {
        sum->bytes += (int64_t)st.st_blocks * BLOCK;
        sum->whole = add_waiting(sum, dir, entry->d_name) && sum->whole;
    } else {
        sum->bytes += (int64_t)st.st_blocks * BLOCK /
                      (int64_t)(st.st_nlink ? st.st_nlink : 1);
    }
}

/* Tells whether there is time for more. */
static bool in_time(struct sum *sum)
{
    if (++sum->looked % LOOK_EVERY == 0 && clock_ms() >= sum->deadline_ms) {
        sum->whole = false;
    }
    return sum->whole;
}

static void read_dir(struct sum *sum, const struct dir *dir)
{
    int fd =
        below_open(sum->top, dir->path, O_RDONLY | O_NONBLOCK | O_DIRECTORY);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;

    if (!stream) {
        cleanup_fd(&fd);
        return;
    }
    entry = readdir(stream);
    while (entry && in_time(sum)) {
        if (strcmp(entry->d_name, ".") != 0 &&
            strcmp(entry->d_name, "..") != 0) {
            add_entry(sum, dir, fd, entry);
        }
        entry = readdir(stream);
    }
    (void)closedir(stream);
}

bool disk_sum(int top, int64_t deadline_ms, int64_t *out)
{
    struct sum sum = {.top = top, .deadline_ms = deadline_ms, .whole = true};

    list_init(&sum.waiting);
    sum.whole = add_waiting(&sum, NULL, "");
    while (!list_empty(&sum.waiting)) {
        struct dir *dir = container_of(sum.waiting.prev, struct dir, link);

        list_remove(&dir->link);
        if (in_time(&sum)) {
            read_dir(&sum, dir);
        }
        free(dir);
    }
    *out = sum.bytes;
    return sum.whole;
}
