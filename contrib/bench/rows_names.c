/* Many small files in one directory. See bench.h. */
#include "contrib/bench/bench.h"

#include "core/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    NAME = 32,
    PASSES = 3,         /* Over all files, where each is quick. */
    MISSING_PASSES = 8, /* A compiler asks for the same ones again. */
};

struct name {
    char text[NAME];
};

static struct name name_of(const char *dir, char prefix, unsigned i)
{
    struct name name;

    (void)snprintf(name.text, sizeof(name.text), "%s/%c%u", dir, prefix, i);
    return name;
}

/* ---- What is there before ---- */

static int forget_names(const struct scale *scale)
{
    AUTO_FD int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);

    (void)scale;
    return fd < 0 || write(fd, "2", 1) != 1 ? -errno : 0;
}

/*
 * Where files are made. It is another directory each time, and those before
 * stay: an ext4 without a journal looks, for each inode, at all that were freed
 * just before.
 */
static struct name made;

static int empty_made(const struct scale *scale)
{
    static unsigned count;

    (void)scale;
    (void)snprintf(made.text, sizeof(made.text), "made%u", count++);
    return mkdir(made.text, 0755) < 0 ? -errno : 0;
}

static int fill_made(const struct scale *scale)
{
    int rc = empty_made(scale);

    return rc < 0 ? rc : make_files(made.text, 'f', scale->files);
}

/* ---- The work ---- */

static int create(const struct scale *scale)
{
    return make_files(made.text, 'f', scale->files);
}

static int stat_once(const struct scale *scale)
{
    struct stat st;

    for (unsigned i = 0; i < scale->files; i++) {
        if (stat(name_of("flat", 'f', i).text, &st) < 0) {
            return -errno;
        }
    }
    return 0;
}

static int stat_often(const struct scale *scale)
{
    int rc = 0;

    for (unsigned i = 0; i < PASSES && rc == 0; i++) {
        rc = stat_once(scale);
    }
    return rc;
}

/* As `ls -l`. */
static int list(const struct scale *scale)
{
    DIR *dir = opendir("flat");
    const struct dirent *entry = dir ? readdir(dir) : NULL;
    unsigned count = 0;
    struct stat st;
    int rc = dir ? 0 : -errno;

    while (entry && rc == 0) {
        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            rc = -errno;
        }
        count++;
        entry = readdir(dir);
    }
    if (dir) {
        (void)closedir(dir);
    }
    return rc == 0 && count != scale->files + 2 ? -EIO : rc;
}

static int read_each(const struct scale *scale)
{
    char text[TEXT];

    for (unsigned i = 0; i < scale->files; i++) {
        AUTO_FD int fd =
            open(name_of("flat", 'f', i).text, O_RDONLY | O_CLOEXEC);

        if (fd < 0 || read(fd, text, sizeof(text)) != (ssize_t)sizeof(text)) {
            return errno ? -errno : -EIO;
        }
    }
    return 0;
}

static int rename_each(const struct scale *scale)
{
    for (unsigned i = 0; i < scale->files; i++) {
        if (rename(name_of(made.text, 'f', i).text,
                   name_of(made.text, 'g', i).text) < 0) {
            return -errno;
        }
    }
    return 0;
}

static int miss_each(const struct scale *scale)
{
    struct stat st;

    for (unsigned i = 0; i < MISSING_PASSES * scale->files; i++) {
        if (stat(name_of("flat", 'n', i / MISSING_PASSES).text, &st) == 0 ||
            errno != ENOENT) {
            return -EIO;
        }
    }
    return 0;
}

static int unlink_each(const struct scale *scale)
{
    for (unsigned i = 0; i < scale->files; i++) {
        if (unlink(name_of(made.text, 'f', i).text) < 0) {
            return -errno;
        }
    }
    return 0;
}

static int make_dirs(const struct scale *scale)
{
    for (unsigned i = 0; i < scale->files; i++) {
        if (mkdir(name_of(made.text, 'd', i).text, 0755) < 0) {
            return -errno;
        }
    }
    return 0;
}

const struct row rows_names[] = {
    {"create", "files of 1 KiB", KIND_NAMES, empty_made, create, NULL},
    {"mkdir", "directories", KIND_NAMES, empty_made, make_dirs, NULL},
    {"stat", "each file, three times", KIND_NAMES, stat_once, stat_often, NULL},
    {"stat cold", "each file, names forgotten", KIND_NAMES, forget_names,
     stat_once, NULL},
    {"list", "as ls -l", KIND_NAMES, list, list, NULL},
    {"list cold", "as ls -l, names forgotten", KIND_NAMES, forget_names, list,
     NULL},
    {"open+read", "each file of 1 KiB", KIND_NAMES, read_each, read_each, NULL},
    {"rename", "each file", KIND_NAMES, fill_made, rename_each, NULL},
    {"missing", "names that are not there, eight times", KIND_NAMES,
     forget_names, miss_each, NULL},
    {"unlink", "each file", KIND_NAMES, fill_made, unlink_each, NULL},
    {NULL, NULL, KIND_NAMES, NULL, NULL, NULL},
};
