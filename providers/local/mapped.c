/* Files that a sandbox has mapped. See mapped.h. */
#include "providers/local/mapped.h"

#include "core/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

struct mapped {
    dev_t dev; /* Of the workspace. */
    char **paths;
    size_t count;
    size_t room;
};

static int add(struct mapped *mapped, const char *path)
{
    if (mapped->count + 1 >= mapped->room) {
        size_t room = mapped->room ? mapped->room * 2 : 16;
        void *wide = realloc(mapped->paths, room * sizeof(char *));

        if (!wide) {
            return -ENOMEM;
        }
        mapped->paths = wide;
        mapped->room = room;
    }
    mapped->paths[mapped->count] = strdup(path);
    mapped->paths[mapped->count + 1] = NULL;
    return mapped->paths[mapped->count++] ? 0 : -ENOMEM;
}

/* The kernel writes a newline in a name as \012. */
static void unescape(char *path)
{
    char *found = strstr(path, "\\012");

    while (found) {
        *found = '\n';
        memmove(found + 1, found + 4, strlen(found + 4) + 1);
        found = strstr(found, "\\012");
    }
}

static int take_line(struct mapped *mapped, char *line)
{
    static const char top[] = WIRE_WORKSPACE "/";
    char rights[5];
    unsigned major = 0;
    unsigned minor = 0;
    int at = 0;
    char *path;
    int rc;

    line[strcspn(line, "\n")] = '\0';
    if (sscanf(line, "%*s %4s %*s %x:%x %*s %n", rights, &major, &minor, &at) <
            3 ||
        rights[3] != 's' || makedev(major, minor) != mapped->dev || at == 0) {
        return 0;
    }
    path = line + at;
    if (strncmp(path, top, strlen(top)) != 0) {
        return 0;
    }
    path += strlen(top);
    rc = add(mapped, path);
    if (rc == 0 && strstr(path, "\\012")) {
        unescape(path);
        rc = add(mapped, path);
    }
    return rc;
}

/* One that has just ended has nothing mapped. */
static int take_process(struct mapped *mapped, long pid)
{
    AUTO_FREE char *line = NULL;
    size_t room = 0;
    char path[64];
    FILE *file;
    int rc = 0;

    (void)snprintf(path, sizeof(path), "/proc/%ld/maps", pid);
    file = fopen(path, "re");
    while (file && rc == 0 && getline(&line, &room, file) > 0) {
        rc = take_line(mapped, line);
    }
    if (file) {
        (void)fclose(file);
    }
    return rc;
}

static int take_group(struct mapped *mapped, int group)
{
    int fd = openat(group, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    char line[32];
    int rc = 0;

    if (!file) {
        cleanup_fd(&fd);
        return 0;
    }
    while (rc == 0 && fgets(line, sizeof(line), file)) {
        rc = take_process(mapped, strtol(line, NULL, 10));
    }
    (void)fclose(file);
    return rc;
}

/* The sandbox's group and those of its commands. */
static int take_groups(struct mapped *mapped, int group)
{
    int fd = openat(group, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    int rc = dir ? take_group(mapped, group) : -errno;

    while (rc == 0 && (entry = readdir(dir))) {
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
            AUTO_FD int below = openat(group, entry->d_name,
                                       O_RDONLY | O_DIRECTORY | O_CLOEXEC);

            rc = below < 0 ? 0 : take_group(mapped, below);
        }
    }
    if (dir) {
        (void)closedir(dir);
    } else {
        cleanup_fd(&fd);
    }
    return rc;
}

/* ---- Where there are no groups ---- */

static long pid_of(const struct box *box)
{
    char path[64];
    char line[128];
    long pid = -1;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", box->pidfd);
    file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, "Pid:", 4) == 0) {
            pid = strtol(line + 4, NULL, 10);
        }
    }
    if (file) {
        (void)fclose(file);
    }
    return pid;
}

/* Processes that are still to be looked at. */
struct pids {
    long *pids;
    size_t count;
    size_t room;
};

static int add_pid(struct pids *pids, long pid)
{
    if (pids->count == pids->room) {
        size_t room = pids->room ? pids->room * 2 : 16;
        long *wide = reallocarray(pids->pids, room, sizeof(*wide));

        if (!wide) {
            return -ENOMEM;
        }
        pids->pids = wide;
        pids->room = room;
    }
    pids->pids[pids->count++] = pid;
    return 0;
}

static int add_children(struct pids *pids, int tasks, const char *thread)
{
    char path[48];
    long pid = 0;
    int fd;
    FILE *file;
    int rc = 0;

    (void)snprintf(path, sizeof(path), "%.20s/children", thread);
    fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
    file = fd < 0 ? NULL : fdopen(fd, "r");
    if (!file) {
        cleanup_fd(&fd);
        return 0;
    }
    while (rc == 0 && fscanf(file, "%ld", &pid) == 1) {
        rc = add_pid(pids, pid);
    }
    (void)fclose(file);
    return rc;
}

static int add_all_children(struct pids *pids, long pid)
{
    char path[48];
    const struct dirent *entry;
    DIR *tasks;
    int rc = 0;

    (void)snprintf(path, sizeof(path), "/proc/%ld/task", pid);
    tasks = opendir(path);
    while (rc == 0 && tasks && (entry = readdir(tasks))) {
        if (entry->d_name[0] != '.') {
            rc = add_children(pids, dirfd(tasks), entry->d_name);
        }
    }
    if (tasks) {
        (void)closedir(tasks);
    }
    return rc;
}

/* What runs in a sandbox comes from its process 1, or becomes its child. */
static int take_below(struct mapped *mapped, long init)
{
    struct pids pids = {.count = 0};
    int rc = add_pid(&pids, init);

    while (rc == 0 && pids.count > 0) {
        long pid = pids.pids[--pids.count];

        rc = take_process(mapped, pid);
        if (rc == 0) {
            rc = add_all_children(&pids, pid);
        }
    }
    free(pids.pids);
    return rc;
}

int mapped_find(const struct box *box, int workspace, char ***out,
                struct err *err)
{
    struct mapped mapped = {0};
    struct stat attr;
    int rc = fstat(workspace, &attr) < 0 ? -errno : 0;

    mapped.dev = attr.st_dev;
    if (rc == 0) {
        rc = box->cgroup >= 0 ? take_groups(&mapped, box->cgroup)
                              : take_below(&mapped, pid_of(box));
    }
    if (rc < 0) {
        mapped_free(mapped.paths);
        return err_set(err, -rc, "cannot look at the sandbox's memory");
    }
    *out = mapped.paths;
    return 0;
}

void mapped_free(char **paths)
{
    for (size_t i = 0; paths && paths[i]; i++) {
        free(paths[i]);
    }
    free(paths);
}
