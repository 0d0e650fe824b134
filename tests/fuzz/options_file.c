/* The file of options. */
#include "tests/fuzz/fuzz.h"

#include "fs/options_table.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct options options;
    int fd = memfd_create("options", MFD_CLOEXEC);
    struct err err = ERR_INIT;
    char path[64];
    int rc;

    DEMAND(fd >= 0 && fchmod(fd, 0600) == 0);
    DEMAND(write(fd, data, size) == (ssize_t)size);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    option_defaults(&options);
    rc = option_file(&options, path, false, &err);
    DEMAND_ERR(rc, &err);
    if (rc < 0) { /* The line is named. */
        DEMAND(strncmp(err.msg, path, strlen(path)) == 0);
        DEMAND(strtoul(err.msg + strlen(path) + 1, NULL, 10) > 0);
    }
    DEMAND(memchr(options.state, '\0', sizeof(options.state)));
    DEMAND(memchr(options.without, '\0', sizeof(options.without)));
    (void)close(fd);
    return 0;
}
