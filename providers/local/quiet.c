/* Whether processes live in a sandbox between commands. */
#include "core/cleanup.h"
#include "providers/local/box.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The number of init, -1 once it has ended, 0 where it is not told. */
static long init_pid(const struct box *box)
{
    static const char key[] = "\nPid:";
    char path[48];
    char text[512];
    const char *line;
    ssize_t n;
    AUTO_FD int fd = -1;

    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", box->pidfd);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0) {
        return 0;
    }
    text[n] = '\0';
    line = strstr(text, key);
    return line ? strtol(line + sizeof(key) - 1, NULL, 10) : 0;
}

/* Whatever has lost its parent is a child of init. */
static bool has_children(long pid)
{
    char path[64];
    char byte;
    AUTO_FD int fd = -1;

    (void)snprintf(path, sizeof(path), "/proc/%ld/task/%ld/children", pid, pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 || read(fd, &byte, 1) != 0;
}

bool box_quiet(const struct box *box)
{
    long pid = init_pid(box);

    if (pid <= 0) {
        return pid < 0;
    }
    /* Its number may be another process's once it has ended. */
    return !has_children(pid) || init_pid(box) < 0;
}
