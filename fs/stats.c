/* Counters of the daemon. See stats.h. */
#include "fs/stats.h"

#include "core/metrics.h"
#include "fs/fs.h"
#include "fs/inode.h"
#include "fs/kernel.h"
#include "fs/park.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static int tell_failures(struct fs *fs, struct buf *out)
{
    static const char name[] = "sessionfs_failed_operations_total";
    int rc = metrics_begin(out, "counter", name,
                           "Requests of the kernel answered with an error.");

    for (int i = 1; i < FS_ERRNOS && rc == 0; i++) {
        unsigned long count = atomic_load(&fs->failures[i]);
        const char *code = strerrorname_np(i);

        if (count && code) {
            rc = metrics_labelled(out, name, "errno", code, count);
        }
    }
    return rc;
}

static int tell_fuse(struct fs *fs, struct buf *out)
{
    static const char name[] = "sessionfs_fuse_feature";
    char version[32];
    int rc = metrics_one(out, "gauge", "sessionfs_parked_requests",
                         "Requests that wait for an engine or a command.",
                         parks_count(fs->parks));

    if (rc == 0) {
        rc = metrics_one(out, "gauge", "sessionfs_inodes",
                         "Files that the kernel knows.",
                         inode_count(fs->inodes));
    }
    if (rc == 0) {
        rc = metrics_begin(out, "gauge", "sessionfs_fuse_protocol",
                           "1 for the protocol's version that is spoken.");
    }
    if (rc == 0) {
        kernel_version(fs->kernel, version, sizeof(version));
        rc = metrics_labelled(out, "sessionfs_fuse_protocol", "version",
                              version, 1);
    }
    if (rc == 0) {
        rc = metrics_one(out, "gauge", "sessionfs_fuse_backing_files",
                         "Files whose data the kernel reaches by itself.",
                         kernel_pass_count(fs->kernel));
    }
    if (rc == 0) {
        rc = metrics_begin(out, "gauge", name,
                           "1 where a feature of the kernel is in use.");
    }
    for (int i = 0; i < KERNEL_FEATURES && rc == 0; i++) {
        rc = metrics_labelled(out, name, "feature",
                              kernel_feature_name((enum kernel_feature)i),
                              kernel_uses(fs->kernel, (enum kernel_feature)i));
    }
    return rc;
}

/* Pages in use, and threads; 0 where they are not told. */
static void read_process(uint64_t *bytes, uint64_t *threads)
{
    FILE *stream = fopen("/proc/self/status", "re");
    unsigned long long n;
    char line[128];

    while (stream && fgets(line, sizeof(line), stream)) {
        if (sscanf(line, "VmRSS: %llu kB", &n) == 1) {
            *bytes = n * 1024;
        } else if (sscanf(line, "Threads: %llu", &n) == 1) {
            *threads = n;
        }
    }
    if (stream) {
        (void)fclose(stream);
    }
}

static uint64_t count_fds(void)
{
    struct stat st;
    uint64_t count = 0;
    DIR *dir;

    /* Linux tells since 6.2; 0 before that. */
    if (stat("/proc/self/fd", &st) == 0 && st.st_size > 0) {
        return (uint64_t)st.st_size;
    }
    dir = opendir("/proc/self/fd");
    while (dir && readdir(dir)) {
        count++;
    }
    if (dir) {
        (void)closedir(dir);
    }
    return count > 3 ? count - 3 : 0; /* The dots, and the directory. */
}

static int tell_process(const struct fs *fs, struct buf *out)
{
    struct rlimit limit = {0, 0};
    uint64_t bytes = 0;
    uint64_t threads = 0;
    int rc;

    read_process(&bytes, &threads);
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    rc = metrics_one(out, "gauge", "process_resident_memory_bytes",
                     "Memory of the daemon.", bytes);
    if (rc == 0) {
        rc = metrics_one(out, "gauge", "process_threads",
                         "Threads of the daemon.", threads);
    }
    if (rc == 0) {
        rc = metrics_one(out, "gauge", "process_open_fds",
                         "File descriptors in use.", count_fds());
    }
    if (rc == 0) {
        rc = metrics_one(out, "gauge", "process_max_fds",
                         "The most file descriptors.", limit.rlim_cur);
    }
    return rc < 0 ? rc
                  : metrics_one(out, "gauge", "process_start_time_seconds",
                                "When the daemon started, since 1970.",
                                (uint64_t)fs->mount.started_us / 1000000);
}

int stats_write(void *arg, struct buf *out, struct err *err)
{
    struct fs *fs = arg;
    int rc = registry_stats(fs->mount.registry, out, err);

    if (rc < 0) {
        return rc;
    }
    rc = tell_failures(fs, out);
    if (rc == 0) {
        rc = tell_fuse(fs, out);
    }
    if (rc == 0) {
        rc = tell_process(fs, out);
    }
    return rc < 0 ? err_set(err, -rc, "cannot write the counters") : 0;
}
