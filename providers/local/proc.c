/* Files of /proc that set up a process. See keeper.h. */
#include "providers/local/keeper.h"

#include "core/cleanup.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

int proc_write(pid_t pid, const char *name, const char *text, struct err *err)
{
    char path[64];
    AUTO_FD int fd = -1;
    size_t size = strlen(text);

    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, size) != (ssize_t)size) {
        return err_errno(err, "cannot write %s", path);
    }
    return 0;
}
