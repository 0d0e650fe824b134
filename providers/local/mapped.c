/* Files that a sandbox has mapped. See mapped.h. */
#include "providers/local/mapped.h"

#include "core/array.h"
#include "core/cleanup.h"
#include "providers/local/below.h"
#include "providers/local/note.h"
#include "providers/local/scan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define GONE " (deleted)"

/* The kernel's note of where a file was copied from: a handle. */
enum {
    HANDLE_SIZE = 256,
    HANDLE_TYPE = 4, /* Offsets: of the kind, */
    HANDLE_INO = 21, /* and of the number in the following kinds of them. */
    FILEID_INO32_GEN = 1,
    FILEID_INO32_GEN_PARENT = 2
};

static int add_path(struct mapped *mapped, const char *path)
{
    void *wide = array_grow((void *)mapped->paths, mapped->path_count + 1,
                            &mapped->path_room, sizeof(char *));

    if (!wide) {
        return -ENOMEM;
    }
    mapped->paths = wide;
    mapped->paths[mapped->path_count] = strdup(path);
    mapped->paths[mapped->path_count + 1] = NULL;
    return mapped->paths[mapped->path_count++] ? 0 : -ENOMEM;
}

static int add_ino(struct mapped *mapped, uint64_t ino)
{
    void *wide = array_grow(mapped->inos, mapped->ino_count, &mapped->ino_room,
                            sizeof(*mapped->inos));

    if (!wide) {
        return -ENOMEM;
    }
    mapped->inos = wide;
    mapped->inos[mapped->ino_count++] = ino;
    return 0;
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

/* A name that ends so need not be gone. */
static bool may_be_gone(const char *path)
{
    size_t len = strlen(path);

    return len > strlen(GONE) && strcmp(path + len - strlen(GONE), GONE) == 0;
}

static int take_path(struct mapped *mapped, char *path, uint64_t ino)
{
    int rc = add_path(mapped, path);

    if (rc == 0 && strstr(path, "\\012")) {
        unescape(path);
        rc = add_path(mapped, path);
    }
    return rc == 0 && may_be_gone(path) ? add_ino(mapped, ino) : rc;
}

/* Which device it is on tells nothing: before Linux 6.8 that is the one of the
 * file below the overlay. */
static int take_line(struct mapped *found, char *line)
{
    static const char top[] = WIRE_WORKSPACE "/";
    char rights[5];
    uint64_t ino = 0;
    int at = 0;

    line[strcspn(line, "\n")] = '\0';
    if (sscanf(line, "%*s %4s %*s %*s %" SCNu64 " %n", rights, &ino, &at) < 2 ||
        rights[3] != 's' || at == 0 ||
        strncmp(line + at, top, strlen(top)) != 0) {
        return 0;
    }
    return take_path(found, line + at + strlen(top), ino);
}

/* One that has just ended has nothing mapped. */
static int take_process(struct mapped *found, long pid)
{
    AUTO_FREE char *line = NULL;
    size_t room = 0;
    char path[64];
    FILE *file;
    int rc = 0;

    (void)snprintf(path, sizeof(path), "/proc/%ld/maps", pid);
    file = fopen(path, "re");
    while (file && rc == 0 && getline(&line, &room, file) > 0) {
        rc = take_line(found, line);
    }
    if (file) {
        (void)fclose(file);
    }
    return rc;
}

static int take_group(struct mapped *found, int group)
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
        rc = take_process(found, strtol(line, NULL, 10));
    }
    (void)fclose(file);
    return rc;
}

/* The sandbox's group and those of its commands. */
static int take_groups(struct mapped *found, int group)
{
    int fd = openat(group, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    int rc = dir ? take_group(found, group) : -errno;

    entry = rc == 0 ? readdir(dir) : NULL;
    while (rc == 0 && entry) {
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
            AUTO_FD int below = openat(group, entry->d_name,
                                       O_RDONLY | O_DIRECTORY | O_CLOEXEC);

            rc = below < 0 ? 0 : take_group(found, below);
        }
        entry = readdir(dir);
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
    void *wide =
        array_grow(pids->pids, pids->count, &pids->room, sizeof(*pids->pids));

    if (!wide) {
        return -ENOMEM;
    }
    pids->pids = wide;
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
    entry = tasks ? readdir(tasks) : NULL;
    while (rc == 0 && entry) {
        if (entry->d_name[0] != '.') {
            rc = add_children(pids, dirfd(tasks), entry->d_name);
        }
        entry = readdir(tasks);
    }
    if (tasks) {
        (void)closedir(tasks);
    }
    return rc;
}

/* What runs in a sandbox comes from its process 1, or becomes its child. */
static int take_below(struct mapped *found, long init)
{
    struct pids pids = {.count = 0};
    int rc = add_pid(&pids, init);

    while (rc == 0 && pids.count > 0) {
        long pid = pids.pids[--pids.count];

        rc = take_process(found, pid);
        if (rc == 0) {
            rc = add_all_children(&pids, pid);
        }
    }
    free(pids.pids);
    return rc;
}

int mapped_find(const struct box *box, struct mapped *out, struct err *err)
{
    struct mapped found = {.paths = NULL};
    int rc = box->cgroup >= 0 ? take_groups(&found, box->cgroup)
                              : take_below(&found, pid_of(box));

    if (rc < 0) {
        mapped_done(&found);
        return err_set(err, -rc, "cannot look at the sandbox's memory");
    }
    *out = found;
    return 0;
}

void mapped_done(struct mapped *mapped)
{
    for (size_t i = 0; i < mapped->path_count; i++) {
        free(mapped->paths[i]);
    }
    free(mapped->paths);
    free(mapped->inos);
    *mapped = (struct mapped){.paths = NULL};
}

/* ---- Those whose name is gone ---- */

static bool has(const struct mapped *mapped, uint64_t ino)
{
    for (size_t i = 0; i < mapped->ino_count; i++) {
        if (mapped->inos[i] == ino) {
            return true;
        }
    }
    return false;
}

/* Whether a file that was copied from below was one of them there: it may be
 * mapped as that. Its note is a handle; where there is none in it, or one that
 * has the number elsewhere, it may be any. */
static bool was_one(const struct mapped *mapped, int fd)
{
    unsigned char note[HANDLE_SIZE];
    ssize_t size = note_get(fd, NOTE_ORIGIN, (char *)note, sizeof(note));
    uint32_t ino;

    if (size < HANDLE_INO + (ssize_t)sizeof(ino) ||
        (note[HANDLE_TYPE] != FILEID_INO32_GEN &&
         note[HANDLE_TYPE] != FILEID_INO32_GEN_PARENT)) {
        return size >= 0;
    }
    memcpy(&ino, note + HANDLE_INO, sizeof(ino));
    return has(mapped, ino);
}

/* By the number that the workspace shows at its place, or has shown; or by its
 * own, which older kernels tell of a mapping. */
static bool is_one(const struct mapped *mapped, const struct scan_node *node,
                   int workspace, int upper)
{
    AUTO_FREE char *path = scan_path(node);
    AUTO_FD int fd = path ? below_open(workspace, path, O_PATH) : -1;
    AUTO_FD int own =
        path ? below_open(upper, path, O_RDONLY | O_NONBLOCK) : -1;
    struct stat attr;

    return has(mapped, node->ino) ||
           (fd >= 0 && fstat(fd, &attr) == 0 && has(mapped, attr.st_ino)) ||
           (own >= 0 && was_one(mapped, own));
}

void mapped_mark(const struct mapped *mapped, int workspace, int upper,
                 struct scan_node *top)
{
    struct scan_node *node = mapped->ino_count > 0 ? scan_walk(top) : NULL;

    while (node) {
        if (S_ISREG(node->mode) && is_one(mapped, node, workspace, upper)) {
            scan_loosen(node);
        }
        node = scan_walk(node);
    }
}
