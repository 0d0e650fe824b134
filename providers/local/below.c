/* Files below a directory. See below.h. */
#include "providers/local/below.h"

#include "core/cleanup.h"
#include "core/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

enum {
    /* One call takes a path that is shorter than PATH_MAX. */
    STEP_MOST = PATH_MAX - 1,
};

/* Cuts as much of a long path off as one call takes. */
static size_t cut(const char *path, char out[PATH_MAX])
{
    size_t size = STEP_MOST - 1;

    while (size > 0 && path[size] != '/') {
        size--;
    }
    memcpy(out, path, size);
    out[size] = '\0';
    return size ? size + 1 : 0;
}

int below_open(int top, const char *path, int flags)
{
    AUTO_FD int dir = -1;

    while (strlen(path) >= STEP_MOST) {
        char part[PATH_MAX];
        size_t size = cut(path, part);
        int next =
            size ? path_step(dir < 0 ? top : dir, part, O_PATH | O_DIRECTORY)
                 : -ENAMETOOLONG;

        if (next < 0) {
            return next;
        }
        cleanup_fd(&dir);
        dir = next;
        path += size;
    }
    return path_step(dir < 0 ? top : dir, *path ? path : ".", flags);
}
