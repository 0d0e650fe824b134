/*
 * A direct tree comes to stand over another directory, which shows the same:
 * its nodes stay, each of the file that has its path there, with the number
 * under which it was shown.
 */
#include "core/workspace_direct.h"

#include "core/cleanup.h"

#include <errno.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    NODES_MOST = 32768 /* More would take too long. */
};

/* A node on its way. */
struct mover {
    struct direct_node *node;   /* Referenced. */
    struct direct_node *parent; /* Of those that move, or the root; or NULL. */
    char *path;
    bool found;            /* In the new directory, */
    int fd;                /* open where it has been open; or -1; */
    struct direct_key key; /* and as this one. */
};

struct moving {
    struct direct *d;
    struct mover *movers;
    size_t count;
    int root; /* The new directory, readable. */
};

bool direct_busy(struct workspace *ws)
{
    struct direct *d = direct_of(ws);
    bool many;

    mutex_lock(&ws->lock);
    many = d->n_nodes > NODES_MOST;
    mutex_unlock(&ws->lock);
    return many || atomic_load(&d->opens) > 0;
}

static int collect(struct moving *moving)
{
    struct direct *d = moving->d;
    int rc = 0;

    mutex_lock(&d->base.lock);
    moving->movers = calloc(d->n_nodes + 1, sizeof(*moving->movers));
    rc = moving->movers ? 0 : -ENOMEM;
    for (size_t i = 0; rc == 0 && i < d->n_buckets; i++) {
        struct direct_node *node = d->buckets[i];

        for (; node && rc == 0; node = node->next) {
            struct mover *mover = &moving->movers[moving->count];

            if (node == &d->root) {
                continue;
            }
            (void)ws_node_ref_locked(&node->base);
            *mover = (struct mover){.node = node, .fd = -1};
            mover->parent = direct_node_parent_locked(d, node);
            rc = direct_node_path_locked(d, node, &mover->path);
            rc = rc == -ESTALE ? 0 : rc;
            moving->count++;
        }
    }
    mutex_unlock(&d->base.lock);
    return rc;
}

static int open_path(int root, const char *path)
{
    struct open_how how = {.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
                                      RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};

    return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

/* A place may be another file's by now. */
static bool is_at_its_place(const struct mover *mover, int old)
{
    const struct direct_node *node = mover->node;
    AUTO_FD int fd = open_path(old, mover->path);
    struct stat attr;

    return fd >= 0 && fstat(fd, &attr) == 0 && attr.st_dev == node->key.dev &&
           attr.st_ino == node->key.ino &&
           (attr.st_mode & S_IFMT) == node->type;
}

static bool is_open(struct direct_node *node)
{
    bool open = direct_fd_try(node) >= 0;

    if (open) {
        direct_fd_put(node);
    }
    return open;
}

/* There may be more than may be open: the others are opened when used. */
static void find(struct mover *mover, int old, int root)
{
    AUTO_FD int fd = -1;
    struct stat attr;

    if (!mover->path || !is_at_its_place(mover, old)) {
        return;
    }
    fd = open_path(root, mover->path);
    if (fd >= 0 && fstat(fd, &attr) == 0 &&
        (attr.st_mode & S_IFMT) == mover->node->type) {
        mover->key = (struct direct_key){attr.st_dev, attr.st_ino};
        mover->found = true;
        mover->fd = is_open(mover->node) ? TAKE_FD(fd) : -1;
    }
}

static void keep_number(struct direct *d, const struct direct_node *node)
{
    const struct stat attr = {.st_dev = node->key.dev, .st_ino = node->key.ino};

    direct_ino_keep(d, &attr, node->base.ino);
}

/* One that is not found has a key that no file has. */
static void change_keys(struct moving *moving, const struct direct_key *root)
{
    struct direct *d = moving->d;

    mutex_lock(&d->base.lock);
    direct_node_unhash_locked(d, &d->root);
    d->root.key = *root;
    direct_node_hash_locked(d, &d->root);
    keep_number(d, &d->root);
    for (size_t i = 0; i < moving->count; i++) {
        direct_node_unhash_locked(d, moving->movers[i].node);
        moving->movers[i].node->key = moving->movers[i].key;
        /* What was copied up is a layer by now. */
        atomic_store(&moving->movers[i].node->lifted, false);
    }
    for (size_t i = 0; i < moving->count; i++) {
        const struct mover *mover = &moving->movers[i];

        if (mover->parent) {
            mover->node->parent = mover->parent->key;
        }
        if (mover->found) {
            direct_node_hash_locked(d, mover->node);
            keep_number(d, mover->node);
        }
    }
    mutex_unlock(&d->base.lock);
}

static int move(struct moving *moving, int root_fd, struct err *err)
{
    struct direct *d = moving->d;
    struct stat attr;

    if (fstat(root_fd, &attr) < 0) {
        return err_errno(err, "fstat of the workspace");
    }
    for (size_t i = 0; i < moving->count; i++) {
        find(&moving->movers[i], d->dir_fd, moving->root);
    }
    /* In one step: others may use it. */
    if (dup3(moving->root, d->dir_fd, O_CLOEXEC) < 0) {
        return err_errno(err, "the workspace");
    }
    change_keys(moving, &(struct direct_key){attr.st_dev, attr.st_ino});
    direct_fd_move(&d->root, root_fd);
    for (size_t i = 0; i < moving->count; i++) {
        direct_fd_move(moving->movers[i].node, TAKE_FD(moving->movers[i].fd));
    }
    return 0;
}

static void end(struct moving *moving)
{
    for (size_t i = 0; i < moving->count; i++) {
        cleanup_fd(&moving->movers[i].fd);
        free(moving->movers[i].path);
        ws_node_unref(&moving->movers[i].node->base);
    }
    free(moving->movers);
    cleanup_fd(&moving->root);
}

int direct_move(struct workspace *ws, int root, struct err *err)
{
    struct moving moving = {.d = direct_of(ws)};
    int rc;

    moving.root = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (moving.root < 0) {
        return err_errno(err, "open the workspace");
    }
    rc = collect(&moving);
    rc = rc < 0 ? err_no_memory(err) : move(&moving, root, err);
    direct_absent_make(moving.d); /* Directories may look different. */
    end(&moving);
    return rc;
}
