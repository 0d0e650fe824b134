/* The state directory and its lock. See store_dir.h. */
#include "core/store_dir.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/path.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    RETRY_MS = 20,
    GRACE_MS = 1000, /* A holder that just lost its mount says so soon. */
    HOLDER_SIZE = 64,
};

static const char closing_word[] = "unmounting";
static const char closed_word[] = "unmounting all-done";

/* Whether the directory holds nothing, or a state of ours. */
static bool looks_ours(int fd)
{
    int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = again < 0 ? NULL : fdopendir(again);
    const struct dirent *entry;
    bool empty = true;

    if (!dir) {
        cleanup_fd(&again);
        return false;
    }
    entry = readdir(dir);
    while (entry && empty) {
        empty =
            strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        entry = readdir(dir);
    }
    (void)closedir(dir);
    return empty || faccessat(fd, "state.db", F_OK, 0) == 0;
}

/* Whether a directory is ours to use. */
static int check_owner(int fd, const char *dir, struct stat *st,
                       struct err *err)
{
    if (fstat(fd, st) < 0) {
        return err_errno(err, "stat '%s'", dir);
    }
    if (st->st_uid != geteuid()) {
        return err_set(err, EPERM, "state directory '%s' is not ours", dir);
    }
    if ((st->st_mode & 07777) != 0700 && !looks_ours(fd)) {
        return err_set(err, EPERM,
                       "state directory '%s' holds other files and is not "
                       "of mode 0700",
                       dir);
    }
    return 0;
}

/* Nobody else may look into the directory: it holds output and files. */
static int close_to_others(int fd, const char *dir, struct err *err)
{
    struct stat st;
    int rc = check_owner(fd, dir, &st, err);

    if (rc == 0 && (st.st_mode & 07777) != 0700 && fchmod(fd, 0700) < 0) {
        rc = err_errno(err, "chmod '%s'", dir);
    }
    return rc;
}

/* Makes what is missing of a path, private like the directory itself. */
static int make_path(const char *dir, struct err *err)
{
    AUTO_FREE char *path = strdup(dir);

    if (!path) {
        return err_no_memory(err);
    }
    for (char *slash = strchr(path + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0700) < 0 && errno != EEXIST) {
            return err_errno(err, "make '%s'", path);
        }
        *slash = '/';
    }
    return mkdir(path, 0700) < 0 && errno != EEXIST
               ? err_errno(err, "make state directory '%s'", dir)
               : 0;
}

int store_dir_make(const char *dir, int *out, struct err *err)
{
    AUTO_FD int fd = -1;
    int rc;

    if (dir[0] != '/') {
        return err_set(err, EINVAL, "state directory '%s' is not absolute",
                       dir);
    }
    rc = make_path(dir, err);
    if (rc < 0) {
        return rc;
    }
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return err_errno(err, "open state directory '%s'", dir);
    }
    rc = close_to_others(fd, dir, err);
    if (rc == 0) {
        *out = TAKE_FD(fd);
    }
    return rc;
}

static void read_holder(int fd, char out[HOLDER_SIZE])
{
    ssize_t n = pread(fd, out, HOLDER_SIZE - 1, 0);

    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

static int in_use(const char *dir, char *holder, struct err *err)
{
    if (!strstr(holder, closing_word)) {
        holder[strcspn(holder, " ")] = '\0';
    }
    return err_set(err, EBUSY, "state directory '%s' is in use by process %s",
                   dir, holder);
}

static int write_holder(int fd, const char *what)
{
    char line[HOLDER_SIZE];
    int n = snprintf(line, sizeof(line), "%d%s%s\n", (int)getpid(),
                     *what ? " " : "", what);

    if (ftruncate(fd, 0) < 0 || pwrite(fd, line, (size_t)n, 0) != n) {
        return -1;
    }
    return 0;
}

/* Whether a mount namespace lacks a device that was mounted in it; false where
 * that cannot be seen. */
static bool lacks_mount(int pid, const char *device)
{
    char path[64];
    char seen[HOLDER_SIZE];
    char *line = NULL;
    size_t size = 0;
    bool found = false;
    FILE *table;

    (void)snprintf(path, sizeof(path), "/proc/%d/mountinfo", pid);
    table = fopen(path, "re");
    if (!table) {
        return false;
    }
    while (!found && getline(&line, &size, table) > 0) {
        found = sscanf(line, "%*s %*s %63s", seen) == 1 &&
                strcmp(seen, device) == 0;
    }
    found = found || ferror(table);
    free(line);
    (void)fclose(table);
    return !found;
}

/* Whether a holder says that it ends, or is about to say so: its mount is gone
 * from where it mounted it. */
static bool is_closing(const char *holder)
{
    char what[HOLDER_SIZE];
    int pid;

    if (sscanf(holder, "%d %63s", &pid, what) != 2) {
        return false;
    }
    return strcmp(what, closing_word) == 0 || lacks_mount(pid, what);
}

/* Takes the lock, waiting for a holder that is unmounting. */
static int wait_for_lock(int fd, const char *dir, int64_t wait_ms,
                         struct err *err)
{
    int64_t grace = clock_deadline(GRACE_MS);
    int64_t deadline = clock_deadline(wait_ms);
    char holder[HOLDER_SIZE];

    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return err_errno(err, "lock '%s'", dir);
        }
        read_holder(fd, holder);
        if (clock_ms() >= deadline ||
            (clock_ms() >= grace && !is_closing(holder))) {
            return in_use(dir, holder, err);
        }
        (void)poll(NULL, 0, RETRY_MS);
    }
    return 0;
}

/* Whether the holder before did not come to its end. */
static bool was_cut_off(int fd)
{
    char holder[HOLDER_SIZE];

    read_holder(fd, holder);
    return holder[0] && !strstr(holder, closed_word);
}

int store_dir_lock(const char *dir, int64_t wait_ms, int *lock_fd,
                   bool *cut_off, struct err *err)
{
    AUTO_FD int dir_fd = -1;
    AUTO_FD int fd = -1;
    int rc = store_dir_make(dir, &dir_fd, err);

    if (rc < 0) {
        return rc;
    }
    fd =
        openat(dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fchmod(fd, 0600) < 0) {
        return err_errno(err, "open the lock of '%s'", dir);
    }
    rc = wait_for_lock(fd, dir, wait_ms, err);
    if (rc < 0) {
        return rc;
    }
    *cut_off = was_cut_off(fd);
    if (write_holder(fd, "") < 0) {
        return err_errno(err, "write the lock of '%s'", dir);
    }
    *lock_fd = TAKE_FD(fd);
    return 0;
}

/* Whether the directory could be made: in the nearest one that there is. */
static int check_above(const char *dir, struct err *err)
{
    AUTO_FREE char *path = strdup(dir);
    AUTO_FD int fd = -1;
    char *slash = path ? strrchr(path, '/') : NULL;

    if (!path) {
        return err_no_memory(err);
    }
    while (slash && access(path, F_OK) < 0 && errno == ENOENT) {
        slash[slash == path] = '\0';
        slash = slash == path ? NULL : strrchr(path, '/');
    }
    fd = open(path, O_PATH | O_CLOEXEC);
    if (path_is_kernels(fd)) { /* Whatever its mode says. */
        return err_set(err, ENOTSUP,
                       "make state directory '%s' below '%s': its file system "
                       "holds no files",
                       dir, path);
    }
    return faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) < 0
               ? err_errno(err, "make state directory '%s' below '%s'", dir,
                           path)
               : 0;
}

/* Shared, so that two that look do not see each other. */
static int check_lock(int dir_fd, const char *dir, struct err *err)
{
    AUTO_FD int fd = openat(dir_fd, "lock", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    char holder[HOLDER_SIZE];

    if (fd < 0) {
        return errno == ENOENT ? 0
                               : err_errno(err, "open the lock of '%s'", dir);
    }
    if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
        return 0;
    }
    read_holder(fd, holder);
    return in_use(dir, holder, err);
}

int store_dir_check(const char *dir, struct err *err)
{
    AUTO_FD int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;
    int rc;

    if (fd < 0) {
        return errno == ENOENT
                   ? check_above(dir, err)
                   : err_errno(err, "open state directory '%s'", dir);
    }
    rc = check_owner(fd, dir, &st, err);
    if (rc < 0) {
        return rc;
    }
    if (faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) < 0) {
        return err_errno(err, "write to state directory '%s'", dir);
    }
    return check_lock(fd, dir, err);
}

void store_dir_mounted(int lock_fd, unsigned major, unsigned minor)
{
    char device[HOLDER_SIZE / 2];

    (void)snprintf(device, sizeof(device), "%u:%u", major, minor);
    /* Without it only its own word says that it ends. */
    (void)write_holder(lock_fd, device);
}

void store_dir_closing(int lock_fd)
{
    /* Who then finds the lock taken only gives up sooner. */
    (void)write_holder(lock_fd, closing_word);
}

void store_dir_closed(int lock_fd)
{
    if (lock_fd >= 0) {
        (void)write_holder(lock_fd, closed_word);
    }
}
