/*
 * The O_PATH fds of all direct trees: those without a user are kept in the
 * order of their last use, and the oldest are closed over a limit.
 */
#include "core/workspace_direct.h"

#include "core/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum {
    FDS_MOST = 4096,
    FDS_LEAST = 16,
    EVICT_BATCH = 8
};

static struct mutex lock = MUTEX_INIT;
static struct list idle GUARDED_BY(lock) = {&idle, &idle};
static unsigned n_idle GUARDED_BY(lock);
static unsigned n_fds GUARDED_BY(lock);
static unsigned limit GUARDED_BY(lock); /* 0: not yet known. */

static unsigned default_limit(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0 ||
        files.rlim_cur / 4 < FDS_LEAST) {
        return FDS_LEAST;
    }
    return files.rlim_cur / 4 > FDS_MOST ? FDS_MOST
                                         : (unsigned)(files.rlim_cur / 4);
}

/* Room for any handle that the kernel may give. */
struct handle_room {
    struct file_handle head;
    unsigned char bytes[MAX_HANDLE_SZ];
};

static int read_handle(int fd, struct handle_room *out)
{
    int mount;

    memset(out, 0, sizeof(*out));
    out->head.handle_bytes = MAX_HANDLE_SZ;
    return name_to_handle_at(fd, "", &out->head, &mount, AT_EMPTY_PATH);
}

/* Writes the handle of fd to memory of its own; NULL where it has none. */
static struct file_handle *new_handle(int fd)
{
    struct handle_room room;
    struct file_handle *handle;
    size_t size;

    if (read_handle(fd, &room) < 0) {
        return NULL;
    }
    size = sizeof(room.head) + room.head.handle_bytes;
    handle = malloc(size);
    if (handle) {
        memcpy(handle, &room, size);
    }
    return handle;
}

bool direct_fd_handles(int dir_fd)
{
    AUTO_FREE struct file_handle *handle = new_handle(dir_fd);
    AUTO_FD int fd = -1;

    if (handle) {
        fd = open_by_handle_at(dir_fd, handle, O_PATH | O_CLOEXEC);
    }
    return fd >= 0;
}

bool direct_fd_same(struct direct_node *node, int fd)
{
    struct handle_room room;
    const struct file_handle *handle;
    bool held;

    mutex_lock(&lock);
    held = node->fd >= 0; /* An open file's number is not used again. */
    handle = node->handle;
    mutex_unlock(&lock);
    if (held || !handle) {
        return true;
    }
    return read_handle(fd, &room) == 0 &&
           room.head.handle_bytes == handle->handle_bytes &&
           room.head.handle_type == handle->handle_type &&
           memcmp(room.head.f_handle, handle->f_handle, handle->handle_bytes) ==
               0;
}

static void pin(struct direct_node *node) REQUIRES(lock)
{
    if (node->users++ == 0) {
        list_remove(&node->lru);
        n_idle--;
    }
}

int direct_fd_try(struct direct_node *node)
{
    int fd;

    mutex_lock(&lock);
    fd = node->fd;
    if (fd >= 0) {
        pin(node);
    }
    mutex_unlock(&lock);
    return fd;
}

int direct_fd_give(struct direct_node *node, int fd)
{
    int mine;

    mutex_lock(&lock);
    if (node->fd < 0) {
        node->fd = fd;
        n_fds++;
        n_idle++;
        fd = -1;
    }
    pin(node);
    mine = node->fd;
    mutex_unlock(&lock);
    cleanup_fd(&fd);
    return mine;
}

static int reopen(struct direct_node *node, const struct file_handle *handle)
{
    const struct direct *d = direct_tree(node);
    AUTO_FREE struct file_handle *copy = NULL;
    size_t size;
    int fd;

    if (!handle) {
        return direct_node_open_place(node);
    }
    size = sizeof(*handle) + handle->handle_bytes;
    copy = malloc(size);
    if (!copy) {
        return -ENOMEM;
    }
    memcpy(copy, handle, size);
    fd = open_by_handle_at(d->dir_fd, copy, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int direct_fd_get(struct direct_node *node, struct err *err)
{
    const struct file_handle *handle;
    struct stat attr;
    int fd = direct_fd_try(node);
    bool left;

    if (fd >= 0) {
        return fd;
    }
    mutex_lock(&lock);
    handle = node->handle; /* Once made it lives as long as the node. */
    left = node->left;
    mutex_unlock(&lock);
    fd = left ? -ESTALE : reopen(node, handle);
    if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM) {
        return err_set(err, -fd, "cannot open the file again");
    }
    if (fd < 0 || fstat(fd, &attr) < 0 || attr.st_dev != node->key.dev ||
        attr.st_ino != node->key.ino || (attr.st_mode & S_IFMT) != node->type) {
        cleanup_fd(&fd);
        return err_set(err, ESTALE, "the file is no longer there");
    }
    return direct_fd_give(node, fd);
}

/* Takes the oldest fds over the limit; the caller closes them. */
static size_t evict_locked(int out[EVICT_BATCH]) REQUIRES(lock)
{
    size_t n = 0;

    limit = limit ? limit : default_limit();
    while (n_idle > limit && n < EVICT_BATCH) {
        struct direct_node *node =
            container_of(idle.next, struct direct_node, lru);

        list_remove(&node->lru);
        n_idle--;
        if (!node->handle && direct_tree(node)->handles) {
            node->handle = new_handle(node->fd);
        }
        out[n] = TAKE_FD(node->fd);
        n++;
        n_fds--;
    }
    return n;
}

void direct_fd_put(struct direct_node *node)
{
    int old[EVICT_BATCH];
    size_t n = 0;

    mutex_lock(&lock);
    if (--node->users == 0) {
        list_add(&idle, &node->lru);
        n_idle++;
        n = evict_locked(old);
    }
    mutex_unlock(&lock);
    for (size_t i = 0; i < n; i++) {
        (void)close(old[i]);
    }
}

void direct_fd_drop(struct direct_node *node)
{
    int fd;

    mutex_lock(&lock);
    fd = TAKE_FD(node->fd);
    if (fd >= 0) {
        n_fds--;
        if (node->users == 0) {
            list_remove(&node->lru);
            n_idle--;
        }
    }
    mutex_unlock(&lock);
    cleanup_fd(&fd);
    free(node->handle);
}

bool direct_fd_leave(struct direct_node *node)
{
    int fd = -1;

    mutex_lock(&lock);
    if (node->users == 0 && node->fd >= 0) {
        list_remove(&node->lru);
        n_idle--;
        n_fds--;
        node->left = true;
        fd = TAKE_FD(node->fd);
    }
    mutex_unlock(&lock);
    if (fd < 0) {
        return false;
    }
    (void)close(fd);
    return true;
}

void direct_fd_move(struct direct_node *node, int fd)
{
    struct file_handle *handle;
    int old;

    mutex_lock(&lock);
    if (node->users == 0 && node->fd >= 0) {
        list_remove(&node->lru);
        n_idle--;
    }
    n_fds -= node->fd >= 0;
    old = node->fd;
    node->fd = fd;
    handle = TAKE_PTR(node->handle);
    n_fds += fd >= 0;
    if (node->users == 0 && fd >= 0) {
        n_idle++;
        list_add(&idle, &node->lru);
    }
    mutex_unlock(&lock);
    cleanup_fd(&old);
    free(handle);
    if (fd >= 0 && direct_fd_try(node) >= 0) {
        direct_fd_put(node); /* There may be too many. */
    }
}

void direct_fd_limit(unsigned most)
{
    mutex_lock(&lock);
    limit = most;
    mutex_unlock(&lock);
}

unsigned direct_fd_count(void)
{
    unsigned n;

    mutex_lock(&lock);
    n = n_fds;
    mutex_unlock(&lock);
    return n;
}
