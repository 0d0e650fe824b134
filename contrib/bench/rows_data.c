/* Reading and writing of one large file. See bench.h. */
#include "contrib/bench/bench.h"

#include "core/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char piece[PIECE];

static int remove_out(const struct scale *scale)
{
    (void)scale;
    return unlink("out") < 0 && errno != ENOENT ? -errno : 0;
}

static int write_pieces(const struct scale *scale)
{
    int fd = open("out", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    if (fd < 0) {
        return -errno;
    }
    memset(piece, 'x', sizeof(piece));
    for (unsigned i = 0; i < scale->pieces; i++) {
        if (write(fd, piece, sizeof(piece)) != (ssize_t)sizeof(piece)) {
            int rc = errno ? -errno : -EIO;

            (void)close(fd);
            return rc;
        }
    }
    return close(fd) < 0 ? -errno : 0;
}

static int read_pieces(const struct scale *scale)
{
    AUTO_FD int fd = open("data", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, piece, sizeof(piece));
    size_t left = (size_t)scale->pieces * PIECE;

    while (n > 0) {
        left -= (size_t)n;
        n = read(fd, piece, sizeof(piece));
    }
    if (n < 0) {
        return -errno;
    }
    return left ? -EIO : 0;
}

static off_t random_place(const struct scale *scale, unsigned *seed)
{
    unsigned blocks = scale->pieces * (PIECE / BLOCK);

    return (off_t)(random_next(seed) % blocks) * BLOCK;
}

static int read_blocks(const struct scale *scale)
{
    AUTO_FD int fd = open("data", O_RDONLY | O_CLOEXEC);
    unsigned seed = 1;

    for (unsigned i = 0; i < scale->blocks; i++) {
        if (pread(fd, piece, BLOCK, random_place(scale, &seed)) != BLOCK) {
            return errno ? -errno : -EIO;
        }
    }
    return 0;
}

static int write_blocks(const struct scale *scale)
{
    int fd = open("data", O_WRONLY | O_CLOEXEC);
    unsigned seed = 2;

    for (unsigned i = 0; i < scale->blocks; i++) {
        if (pwrite(fd, piece, BLOCK, random_place(scale, &seed)) != BLOCK) {
            int rc = errno ? -errno : -EIO;

            (void)close(fd);
            return rc;
        }
    }
    return close(fd) < 0 ? -errno : 0;
}

/* Touches each page of the file. */
static int touch_pages(const struct scale *scale, bool writing)
{
    size_t size = (size_t)scale->pieces * PIECE;
    AUTO_FD int fd = open("data", O_RDWR | O_CLOEXEC);
    char *map =
        fd < 0 ? MAP_FAILED
               : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    volatile char *page = map; /* So that what is read is not left out. */

    if (map == MAP_FAILED) {
        return -errno;
    }
    for (size_t at = 0; at < size; at += BLOCK) {
        if (writing) {
            page[at] = (char)at;
        } else {
            (void)page[at];
        }
    }
    return munmap(map, size) < 0 ? -errno : 0;
}

static int map_and_read(const struct scale *scale)
{
    return touch_pages(scale, false);
}

static int map_and_write(const struct scale *scale)
{
    return touch_pages(scale, true);
}

const struct row rows_data[] = {
    {"write", "a new file, 1 MiB at a time", KIND_DATA, remove_out,
     write_pieces, remove_out},
    {"read", "a file, 1 MiB at a time", KIND_DATA, NULL, read_pieces, NULL},
    {"random read", "4 KiB at a time", KIND_DATA, NULL, read_blocks, NULL},
    {"random write", "4 KiB at a time", KIND_DATA, NULL, write_blocks,
     fixture_settle},
    {"mmap read", "each page of a mapping", KIND_DATA, NULL, map_and_read,
     NULL},
    {"mmap write", "each page of a mapping", KIND_DATA, NULL, map_and_write,
     fixture_settle},
    {NULL, NULL, KIND_DATA, NULL, NULL, NULL},
};
