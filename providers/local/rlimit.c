/* Limits of each process. See keeper.h. */
#include "providers/local/keeper.h"

#include "core/cleanup.h"

#include <stdio.h>
#include <sys/resource.h>

enum {
    FILES_SOFT = 1024, /* What old programs can cope with. */
    QUEUED = 8192,
    LOCKED = 1024 * 1024,
    SPARE_PIDS = 64, /* So that the better limit is the one that is met. */
};

struct limit {
    __rlimit_resource_t what;
    const char *name;
    rlim_t soft;
    rlim_t hard;
};

/* A machine's own, lower limit stays. */
static int set_one(const struct limit *limit, struct err *err)
{
    struct rlimit now;
    struct rlimit next = {limit->soft, limit->hard};

    if (getrlimit(limit->what, &now) < 0) {
        return err_errno(err, "%s", limit->name);
    }
    if (next.rlim_max > now.rlim_max) {
        next.rlim_max = now.rlim_max;
    }
    if (next.rlim_cur > next.rlim_max) {
        next.rlim_cur = next.rlim_max;
    }
    return setrlimit(limit->what, &next) < 0 ? err_errno(err, "%s", limit->name)
                                             : 0;
}

int rlimit_set_all(const struct wire_quota *quota, bool counts_pids,
                   struct err *err)
{
    const rlim_t pids = (rlim_t)quota->pids + (counts_pids ? SPARE_PIDS : 0);
    const rlim_t files = (rlim_t)quota->open_files;
    const rlim_t size = (rlim_t)quota->file_size_bytes;
    const struct limit limits[] = {
        {RLIMIT_CORE, "RLIMIT_CORE", 1, 1},
        {RLIMIT_NPROC, "RLIMIT_NPROC", pids, pids},
        {RLIMIT_NOFILE, "RLIMIT_NOFILE",
         files < FILES_SOFT ? files : FILES_SOFT, files},
        {RLIMIT_FSIZE, "RLIMIT_FSIZE", size, size},
        {RLIMIT_MEMLOCK, "RLIMIT_MEMLOCK", LOCKED, LOCKED},
        {RLIMIT_NICE, "RLIMIT_NICE", 0, 0},
        {RLIMIT_RTPRIO, "RLIMIT_RTPRIO", 0, 0},
        {RLIMIT_SIGPENDING, "RLIMIT_SIGPENDING", QUEUED, QUEUED},
        {RLIMIT_MSGQUEUE, "RLIMIT_MSGQUEUE", LOCKED, LOCKED},
    };
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(limits); i++) {
        rc = set_one(&limits[i], err);
    }
    return rc;
}
