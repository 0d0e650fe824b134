/* Where directories come to lie. See spread.h. */
#include "core/spread.h"

#include "core/cleanup.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum {
    LINK_SIZE = 256
};

static const char no_journal[] = "<none>";

/* Whether the kernel says of the disk that its ext4 has none. */
static bool has_no_journal(int dir)
{
    char text[LINK_SIZE];
    char path[2 * LINK_SIZE];
    AUTO_FD int fd = -1;
    struct stat attr;
    const char *name;
    ssize_t n;

    if (fstat(dir, &attr) < 0) {
        return false;
    }
    (void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u",
                   major(attr.st_dev), minor(attr.st_dev));
    n = readlink(path, text, sizeof(text) - 1);
    text[n < 0 ? 0 : n] = '\0';
    name = strrchr(text, '/');
    (void)snprintf(path, sizeof(path), "/sys/fs/ext4/%s/journal_task",
                   name ? name + 1 : "");
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text));
    return n >= (ssize_t)strlen(no_journal) &&
           memcmp(text, no_journal, strlen(no_journal)) == 0;
}

void spread_below(int dir)
{
    int flags = 0;

    if (has_no_journal(dir) && ioctl(dir, FS_IOC_GETFLAGS, &flags) == 0 &&
        !(flags & FS_TOPDIR_FL)) {
        flags |= FS_TOPDIR_FL;
        (void)ioctl(dir, FS_IOC_SETFLAGS, &flags);
    }
}
