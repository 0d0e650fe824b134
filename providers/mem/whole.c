/* The file calls of the provider `mem` that save round trips. */
#include "providers/mem/mem.h"

#include "core/array.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A copy of all that lies below a directory. */
struct copied_tree {
    struct copied_dir {
        char *path;
        struct provider_entry *entries;
        size_t n;
    } * dirs;
    size_t n, room;
    size_t left; /* Entries that may still be told. */
};

static void free_copy(struct copied_tree *copy)
{
    for (size_t i = 0; i < copy->n; i++) {
        free(copy->dirs[i].path);
        mem_free_entries(copy->dirs[i].entries, copy->dirs[i].n);
    }
    free(copy->dirs);
}

static int add_dir(struct copied_tree *copy, const char *parent,
                   const char *name)
{
    struct copied_dir *dir;
    void *wide =
        array_grow(copy->dirs, copy->n, &copy->room, sizeof(*copy->dirs));

    if (!wide) {
        return -ENOMEM;
    }
    copy->dirs = wide;
    dir = &copy->dirs[copy->n];
    *dir = (struct copied_dir){.path = NULL};
    if (asprintf(&dir->path, "%s%s%s", parent, parent[0] ? "/" : "", name) <
        0) {
        return -ENOMEM;
    }
    copy->n++;
    return 0;
}

/* Copies a directory's entries and notes the directories among them, for
 * later: so each comes after the one that it is in. */
static int copy_dir(struct mem_box *box, struct copied_tree *copy, size_t at,
                    struct err *err)
{
    struct copied_dir *dir = &copy->dirs[at];
    int rc = mem_copy_names(box, dir->path, &dir->entries, &dir->n, err);
    const struct provider_entry *entries = dir->entries;
    const char *path = dir->path;
    size_t n = dir->n;

    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; i < n; i++) {
        if (S_ISDIR(entries[i].attr.st_mode) &&
            add_dir(copy, path, entries[i].name) < 0) {
            return err_no_memory(err);
        }
    }
    copy->left -= n < copy->left ? n : copy->left;
    return 0;
}

static int tell_copy(const struct copied_tree *copy, size_t most,
                     provider_tree_fn *fn, void *arg, struct err *err)
{
    int rc = 0;

    for (size_t d = 0; d < copy->n && rc == 0; d++) {
        const struct copied_dir *dir = &copy->dirs[d];

        for (size_t i = 0; i < dir->n && rc == 0; i++) {
            if (!most) {
                return err_set(err, E2BIG, "more entries than asked for");
            }
            most--;
            rc = fn(arg, dir->path, &dir->entries[i]);
        }
    }
    return rc < 0 ? err_set(err, -rc, "the telling was ended") : 0;
}

int mem_tell_tree(struct provider *provider, const struct sandbox *sandbox,
                  const char *path, size_t most, const struct limits *limits,
                  provider_tree_fn *fn, void *arg, struct err *err)
{
    struct copied_tree copy = {.left = most + 1};
    struct mem_box *box;
    int rc = mem_enter(provider, sandbox, "tree", limits, &box, err);

    if (rc < 0) {
        return rc;
    }
    if (add_dir(&copy, "", path) < 0) {
        rc = err_no_memory(err);
    }
    for (size_t i = 0; rc == 0 && i < copy.n && copy.left; i++) {
        rc = copy_dir(box, &copy, i, err);
    }
    mem_leave(provider);
    if (rc == 0) {
        rc = tell_copy(&copy, most, fn, arg, err);
    }
    free_copy(&copy);
    return rc;
}

static int write_all(int fd, const char *data, size_t size, struct err *err)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = pwrite(fd, data + done, size - done, (off_t)done);

        if (n <= 0) {
            return err_set(err, n < 0 ? errno : EIO, "cannot hand a file on");
        }
        done += (size_t)n;
    }
    return 0;
}

int mem_get_file(struct provider *provider, const struct sandbox *sandbox,
                 const char *path, int fd, const struct limits *limits,
                 struct stat *was, struct err *err)
{
    struct mem_inode *inode = NULL;
    struct mem_box *box;
    int rc = mem_enter(provider, sandbox, "get", limits, &box, err);

    if (rc < 0) {
        return rc;
    }
    rc = mem_find_file(box, path, &inode, err);
    if (rc == 0) {
        rc = write_all(fd, inode->data, (size_t)inode->attr.st_size, err);
    }
    if (rc == 0) {
        *was = inode->attr;
    }
    mem_leave(provider);
    return rc;
}

/* A copy of a file. */
struct copied_file {
    struct stat attr;
    char *data;
    bool there;
};

static int copy_file(struct mem_box *box, const char *path,
                     struct copied_file *out, size_t *left)
{
    struct mem_inode *inode = NULL;
    struct err unused = ERR_INIT;
    size_t size;

    if (mem_find_file(box, path, &inode, &unused) < 0) {
        return 0;
    }
    size = (size_t)inode->attr.st_size;
    if (size > *left) {
        return 0;
    }
    out->data = malloc(size + 1);
    if (!out->data) {
        return -ENOMEM;
    }
    memcpy(out->data, inode->data ? inode->data : "", size);
    out->attr = inode->attr;
    out->there = true;
    *left -= size;
    return 0;
}

int mem_get_many(struct provider *provider, const struct sandbox *sandbox,
                 const struct provider_many *many, const struct limits *limits,
                 struct err *err)
{
    struct copied_file *copies = calloc(many->n + 1, sizeof(*copies));
    struct mem_box *box;
    size_t left = many->most;
    int rc = copies ? mem_enter(provider, sandbox, "get", limits, &box, err)
                    : err_no_memory(err);

    if (rc < 0) {
        free(copies);
        return rc;
    }
    for (size_t i = 0; rc == 0 && i < many->n; i++) {
        rc = copy_file(box, many->paths[i], &copies[i], &left);
    }
    mem_leave(provider);
    for (size_t i = 0; i < many->n; i++) {
        if (rc == 0 && copies[i].there) {
            many->fn(many->arg, i, &copies[i].attr, copies[i].data);
        }
        free(copies[i].data);
    }
    free(copies);
    return rc < 0 ? err_no_memory(err) : 0;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* Finds what a put replaces, or makes it. */
static int find_put(struct mem_box *box, const char *path,
                    const struct stat *was, struct mem_inode **out,
                    struct err *err)
{
    int rc = mem_find_file(box, path, out, err);

    if (rc == -ENOENT && (!was || !was->st_mode)) {
        err_clear(err);
        return mem_tree_make(box, path, S_IFREG | 0644, out, err);
    }
    if (rc == -ENOENT) {
        return err_set(err, ESTALE, "the file is gone");
    }
    if (rc < 0 || !was) {
        return rc;
    }
    if (!was->st_mode) {
        return err_set(err, ESTALE, "there is such a file by now");
    }
    if (was->st_size != (*out)->attr.st_size ||
        !same_time(&was->st_mtim, &(*out)->attr.st_mtim)) {
        return err_set(err, ESTALE, "the file has changed");
    }
    return 0;
}

/* Takes new content that was read already; all of it or nothing. */
static int replace(struct mem_box *box, struct mem_inode *inode, char *data,
                   size_t size, struct err *err)
{
    if (box->bytes - inode->room + size > MEM_DATA_MOST) {
        free(data);
        return err_set(err, ENOSPC, "the sandbox is full");
    }
    box->bytes += size;
    box->bytes -= inode->room;
    free(inode->data);
    inode->data = data;
    inode->room = size;
    inode->attr.st_size = (off_t)size;
    return mem_tree_resize(box, inode, size, err); /* Its times, too. */
}

static int read_all(int fd, char **out, size_t *size, struct err *err)
{
    off_t end = lseek(fd, 0, SEEK_END);
    char *data;

    if (end < 0 || end > MEM_DATA_MOST) {
        return err_set(err, ENOSPC, "the sandbox is full");
    }
    data = malloc((size_t)end + 1);
    if (!data) {
        return err_no_memory(err);
    }
    if (pread(fd, data, (size_t)end, 0) != end) {
        free(data);
        return err_set(err, EIO, "cannot read what is to be put");
    }
    *out = data;
    *size = (size_t)end;
    return 0;
}

int mem_put_file(struct provider *provider, const struct sandbox *sandbox,
                 const char *path, const struct provider_put *put,
                 const struct limits *limits, struct stat *now, struct err *err)
{
    struct mem_inode *inode = NULL;
    struct mem_box *box;
    char *data = NULL;
    size_t size = 0;
    int rc = read_all(put->fd, &data, &size, err);

    if (rc < 0) {
        return rc;
    }
    rc = mem_enter(provider, sandbox, "put", limits, &box, err);
    if (rc < 0) {
        free(data);
        return rc;
    }
    rc = find_put(box, path, put->was, &inode, err);
    if (rc == 0) {
        rc = replace(box, inode, data, size, err);
    } else {
        free(data);
    }
    if (rc == 0) {
        rc = mem_apply_attr(box, inode, put->mask, &put->attr, err);
    }
    if (rc == 0) {
        *now = inode->attr;
    }
    mem_leave(provider);
    return rc;
}
