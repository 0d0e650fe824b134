/* Trees as directories on the disk: how checkpoints outlive the daemon. */
#include "providers/mem/mem.h"

#include "core/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MOST_FDS = 16
};

/* A directory that is being written or read. */
struct walk {
    struct mem_box *box;
    int top;             /* Of the tree. */
    char path[PATH_MAX]; /* Where in it; "": the top. */
    struct list linked;  /* Of struct linked: files of several names. */
};

struct linked {
    struct list link;
    const struct mem_inode *inode; /* Writing. */
    ino_t ino;                     /* Reading. */
    char path[];
};

static int add_linked(struct walk *walk, const struct mem_inode *inode,
                      ino_t ino)
{
    size_t size = strlen(walk->path) + 1;
    struct linked *linked = malloc(sizeof(*linked) + size);

    if (!linked) {
        return -ENOMEM;
    }
    linked->inode = inode;
    linked->ino = ino;
    memcpy(linked->path, walk->path, size);
    list_add(&walk->linked, &linked->link);
    return 0;
}

static const char *find_linked(const struct walk *walk,
                               const struct mem_inode *inode, ino_t ino)
{
    list_each(node, &walk->linked)
    {
        const struct linked *linked = container_of(node, struct linked, link);

        if (linked->inode == inode && linked->ino == ino) {
            return linked->path;
        }
    }
    return NULL;
}

static void walk_done(struct walk *walk)
{
    struct list *node = list_pop(&walk->linked);

    while (node) {
        free(container_of(node, struct linked, link));
        node = list_pop(&walk->linked);
    }
    if (walk->top >= 0) {
        (void)close(walk->top);
    }
}

/* Goes to a name below; returns where to come back to, or -ENAMETOOLONG. */
static ssize_t enter(struct walk *walk, const char *name)
{
    size_t at = strlen(walk->path);
    int n = snprintf(walk->path + at, sizeof(walk->path) - at, "%s%s",
                     at ? "/" : "", name);

    if (n < 0 || (size_t)n >= sizeof(walk->path) - at) {
        walk->path[at] = '\0';
        return -ENAMETOOLONG;
    }
    return (ssize_t)at;
}

static void leave(struct walk *walk, ssize_t at)
{
    walk->path[at] = '\0';
}

static const char *here(const struct walk *walk)
{
    return walk->path[0] ? walk->path : ".";
}

/* ---- Writing ---- */

static int write_data(const struct walk *walk, const struct mem_inode *inode)
{
    AUTO_FD int fd = openat(walk->top, here(walk),
                            O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    size_t done = 0;
    size_t size = (size_t)inode->attr.st_size;

    if (fd < 0) {
        return -errno;
    }
    while (done < size) {
        ssize_t n = write(fd, inode->data + done, size - done);

        if (n < 0) {
            return -errno;
        }
        done += (size_t)n;
    }
    return 0;
}

static int write_link(const struct walk *walk, const struct mem_inode *inode)
{
    AUTO_FREE char *target =
        strndup(inode->data ? inode->data : "", (size_t)inode->attr.st_size);

    if (!target) {
        return -ENOMEM;
    }
    return symlinkat(target, walk->top, here(walk)) < 0 ? -errno : 0;
}

/* Only root may give files away. */
static int write_attr(const struct walk *walk, const struct mem_inode *inode)
{
    const struct stat *attr = &inode->attr;
    const struct timespec times[] = {attr->st_atim, attr->st_mtim};

    if (geteuid() == 0 && fchownat(walk->top, here(walk), attr->st_uid,
                                   attr->st_gid, AT_SYMLINK_NOFOLLOW) < 0) {
        return -errno;
    }
    if (!S_ISLNK(attr->st_mode) &&
        fchmodat(walk->top, here(walk), attr->st_mode & 07777, 0) < 0) {
        return -errno;
    }
    return utimensat(walk->top, here(walk), times, AT_SYMLINK_NOFOLLOW) < 0
               ? -errno
               : 0;
}

static int write_one(struct walk *walk, const struct mem_inode *inode);

static int write_dir(struct walk *walk, const struct mem_inode *dir)
{
    int rc = 0;

    if (walk->path[0] && mkdirat(walk->top, walk->path, 0700) < 0) {
        return -errno;
    }
    list_each(node, &dir->names)
    {
        const struct mem_name *name = container_of(node, struct mem_name, link);
        ssize_t at = rc < 0 ? rc : enter(walk, name->name);

        rc = at < 0 ? (int)at : write_one(walk, name->inode);
        if (at >= 0) {
            leave(walk, at);
        }
    }
    return rc;
}

static int write_content(struct walk *walk, const struct mem_inode *inode)
{
    switch (inode->attr.st_mode & S_IFMT) {
    case S_IFDIR:
        return write_dir(walk, inode);
    case S_IFLNK:
        return write_link(walk, inode);
    case S_IFREG:
        return write_data(walk, inode);
    default:
        return mknodat(walk->top, here(walk), inode->attr.st_mode, 0) < 0
                   ? -errno
                   : 0;
    }
}

static int write_one(struct walk *walk, const struct mem_inode *inode)
{
    bool several = !S_ISDIR(inode->attr.st_mode) && inode->attr.st_nlink > 1;
    const char *first = several ? find_linked(walk, inode, 0) : NULL;
    int rc;

    if (first) {
        return linkat(walk->top, first, walk->top, here(walk), 0) < 0 ? -errno
                                                                      : 0;
    }
    rc = write_content(walk, inode);
    if (rc == 0) {
        rc = write_attr(walk, inode);
    }
    return rc < 0 || !several ? rc : add_linked(walk, inode, 0);
}

int mem_save(struct mem_box *box, const char *dir, struct err *err)
{
    struct walk walk = {.box = box, .top = -1};
    int rc;

    list_init(&walk.linked);
    rc = mkdir(dir, 0700) < 0 ? -errno : 0;
    if (rc == 0) {
        walk.top = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        rc = walk.top < 0 ? -errno : write_one(&walk, box->root);
    }
    walk_done(&walk);
    return rc < 0 ? err_set(err, -rc, "cannot keep the tree in '%s'", dir) : 0;
}

/* ---- Reading ---- */

static int read_data(struct walk *walk, struct mem_inode *inode,
                     struct err *err)
{
    AUTO_FD int fd = openat(walk->top, here(walk), O_RDONLY | O_CLOEXEC);
    char piece[64 * 1024];
    uint64_t at = 0;
    ssize_t n = fd < 0 ? -1 : read(fd, piece, sizeof(piece));
    int rc = 0;

    while (n > 0 && rc == 0) {
        rc = mem_tree_write(walk->box, inode, piece, (size_t)n, at, err);
        at += (uint64_t)n;
        n = read(fd, piece, sizeof(piece));
    }
    return n < 0 ? err_errno(err, "read '%.128s'", here(walk)) : rc;
}

static int read_target(struct walk *walk, struct mem_inode *inode,
                       struct err *err)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(walk->top, here(walk), target, sizeof(target));

    return n < 0 ? err_errno(err, "read '%.128s'", here(walk))
                 : mem_tree_write(walk->box, inode, target, (size_t)n, 0, err);
}

static int read_one(struct walk *walk, struct err *err);

static int read_dir(struct walk *walk, struct err *err)
{
    int fd = openat(walk->top, here(walk), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry = dir ? readdir(dir) : NULL;
    int rc = dir ? 0 : err_errno(err, "read '%.128s'", here(walk));

    while (entry && rc == 0) {
        bool dots =
            strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        ssize_t at = dots ? -1 : enter(walk, entry->d_name);

        if (at >= 0) {
            rc = read_one(walk, err);
            leave(walk, at);
        }
        entry = readdir(dir);
    }
    if (dir) {
        (void)closedir(dir);
    }
    return rc;
}

static int read_content(struct walk *walk, struct mem_inode *inode,
                        struct err *err)
{
    switch (inode->attr.st_mode & S_IFMT) {
    case S_IFDIR:
        return read_dir(walk, err);
    case S_IFLNK:
        return read_target(walk, inode, err);
    case S_IFREG:
        return read_data(walk, inode, err);
    default:
        return 0;
    }
}

static void take_attr(struct mem_inode *inode, const struct stat *attr)
{
    inode->attr.st_mode = attr->st_mode;
    inode->attr.st_atim = attr->st_atim;
    inode->attr.st_mtim = attr->st_mtim;
    if (geteuid() == 0) {
        inode->attr.st_uid = attr->st_uid;
        inode->attr.st_gid = attr->st_gid;
    }
}

static int read_new(struct walk *walk, const struct stat *attr, struct err *err)
{
    struct mem_inode *inode = walk->box->root;
    int rc = 0;

    if (walk->path[0]) {
        rc = mem_tree_make(walk->box, walk->path, attr->st_mode, &inode, err);
    }
    if (rc == 0) {
        rc = read_content(walk, inode, err);
        take_attr(inode, attr);
    }
    return rc;
}

static int read_one(struct walk *walk, struct err *err)
{
    const char *first = NULL;
    struct stat attr;
    bool several;
    int rc;

    if (fstatat(walk->top, here(walk), &attr, AT_SYMLINK_NOFOLLOW) < 0) {
        return err_errno(err, "read '%.128s'", here(walk));
    }
    several = !S_ISDIR(attr.st_mode) && attr.st_nlink > 1;
    first = several ? find_linked(walk, NULL, attr.st_ino) : NULL;
    if (first) {
        return mem_tree_link(walk->box, first, walk->path, err);
    }
    rc = read_new(walk, &attr, err);
    if (rc == 0 && several && add_linked(walk, NULL, attr.st_ino) < 0) {
        rc = err_no_memory(err);
    }
    return rc;
}

int mem_load(struct mem_box *box, const char *dir, struct err *err)
{
    struct walk walk = {.box = box, .top = -1};
    int rc;

    list_init(&walk.linked);
    walk.top = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (walk.top < 0) {
        return errno == ENOENT ? err_set(err, ENOENT, "no such checkpoint")
                               : err_errno(err, "open '%s'", dir);
    }
    rc = mem_tree_init(box) < 0 ? err_no_memory(err) : read_one(&walk, err);
    if (rc < 0 && box->root) {
        mem_tree_done(box);
    }
    walk_done(&walk);
    return rc;
}

/* ---- Removing ---- */

static int remove_entry(const char *path, const struct stat *attr, int type,
                        struct FTW *where)
{
    (void)where;
    if (type == FTW_D || type == FTW_DNR) {
        (void)chmod(path, attr->st_mode | 0700);
    }
    (void)remove(path);
    return 0;
}

/* Directories may be closed to us, if we are not root. */
static int open_up(const char *path, const struct stat *attr, int type,
                   struct FTW *where)
{
    (void)where;
    if (type == FTW_D || type == FTW_DNR) {
        (void)chmod(path, (attr->st_mode & 07777) | 0700);
    }
    return 0;
}

void mem_unsave(const char *dir)
{
    (void)nftw(dir, open_up, MOST_FDS, FTW_PHYS);
    (void)nftw(dir, remove_entry, MOST_FDS, FTW_DEPTH | FTW_PHYS);
}
