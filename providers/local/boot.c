/* Which start of the machine this is. See boot.h. */
#include "providers/local/boot.h"

#include "core/cleanup.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

void boot_read(char out[BOOT_SIZE])
{
    AUTO_FD int fd =
        open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n;

    memset(out, 0, BOOT_SIZE);
    n = fd < 0 ? -1 : read(fd, out, BOOT_SIZE - 1);
    out[n < 0 ? 0 : n] = '\0';
    out[strcspn(out, "\n")] = '\0';
}
