/* Trees of files in memory. The provider's lock is held throughout. */
#include "providers/mem/mem.h"

#include <errno.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct timespec now(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_REALTIME, &ts);
    return ts;
}

static void touch(struct mem_inode *inode)
{
    inode->attr.st_mtim = now();
    inode->attr.st_ctim = inode->attr.st_mtim;
}

static struct mem_inode *new_inode(struct mem_box *box, mode_t mode)
{
    struct mem_inode *inode = calloc(1, sizeof(*inode));

    if (inode) {
        list_init(&inode->names);
        inode->attr.st_mode = mode;
        inode->attr.st_ino = ++box->last_ino;
        inode->attr.st_nlink = S_ISDIR(mode) ? 2 : 1;
        inode->attr.st_blksize = 4096;
        touch(inode);
        inode->attr.st_atim = inode->attr.st_mtim;
    }
    return inode;
}

static void free_inode(struct mem_box *box, struct mem_inode *inode)
{
    box->bytes -= inode->room;
    free(inode->data);
    free(inode);
}

int mem_tree_init(struct mem_box *box)
{
    box->root = new_inode(box, S_IFDIR | 0755);
    return box->root ? 0 : -ENOMEM;
}

static bool is_dir(const struct mem_inode *inode)
{
    return S_ISDIR(inode->attr.st_mode);
}

static void drop_name(struct mem_box *box, struct mem_name *name)
{
    struct mem_inode *inode = name->inode;

    list_remove(&name->link);
    free(name->name);
    free(name);
    if (is_dir(inode) || --inode->attr.st_nlink == 0) {
        free_inode(box, inode);
    }
}

/* Empties a directory from its leaves on, as deep as it may be. */
void mem_tree_done(struct mem_box *box)
{
    struct list *names = &box->root->names;

    while (!list_empty(names)) {
        struct mem_name *name =
            container_of(names->next, struct mem_name, link);

        if (list_empty(&name->inode->names)) {
            drop_name(box, name);
            continue;
        }
        /* Lift the children up here. */
        while (!list_empty(&name->inode->names)) {
            list_add(names, list_pop(&name->inode->names));
        }
    }
    free_inode(box, box->root);
    box->root = NULL;
}

static struct mem_name *find_name(struct mem_inode *dir, const char *name,
                                  size_t len)
{
    list_each(node, &dir->names)
    {
        struct mem_name *entry = container_of(node, struct mem_name, link);

        if (strncmp(entry->name, name, len) == 0 && !entry->name[len]) {
            return entry;
        }
    }
    return NULL;
}

/* A path's directory and last name. */
struct place {
    struct mem_inode *dir;
    const char *name;
    struct mem_name *entry; /* NULL: it is not there. */
};

/* Walks to the directory of a path; `over` is passed on no way. */
static int find_place(struct mem_box *box, const char *path,
                      const struct mem_inode *over, struct place *out,
                      struct err *err)
{
    struct mem_inode *dir = box->root;
    const char *slash = strchr(path, '/');

    for (; slash; slash = strchr(path, '/')) {
        const struct mem_name *entry =
            find_name(dir, path, (size_t)(slash - path));

        if (!entry) {
            return err_set(err, ENOENT, "no such directory");
        }
        if (!is_dir(entry->inode)) {
            return err_set(err, ENOTDIR, "not a directory");
        }
        dir = entry->inode;
        if (dir == over) {
            return err_set(err, EINVAL, "a directory cannot go into itself");
        }
        path = slash + 1;
    }
    if (strlen(path) > NAME_MAX) {
        return err_set(err, ENAMETOOLONG, "a name over %d bytes", NAME_MAX);
    }
    out->dir = dir;
    out->name = path;
    out->entry = find_name(dir, path, strlen(path));
    return 0;
}

int mem_tree_find(struct mem_box *box, const char *path, struct mem_inode **out,
                  struct err *err)
{
    struct place place;
    int rc;

    if (!path[0]) {
        *out = box->root;
        return 0;
    }
    rc = find_place(box, path, NULL, &place, err);
    if (rc < 0) {
        return rc;
    }
    if (!place.entry) {
        return err_set(err, ENOENT, "no such file");
    }
    *out = place.entry->inode;
    return 0;
}

static int add_name(struct mem_inode *dir, const char *text,
                    struct mem_inode *inode)
{
    struct mem_name *name = calloc(1, sizeof(*name));

    if (name) {
        name->name = strdup(text);
    }
    if (!name || !name->name) {
        free(name);
        return -ENOMEM;
    }
    name->inode = inode;
    list_add(&dir->names, &name->link);
    dir->attr.st_nlink += is_dir(inode);
    touch(dir);
    return 0;
}

/* Finds where a new name goes. */
static int find_new(struct mem_box *box, const char *path, struct place *out,
                    struct err *err)
{
    int rc = path[0] ? find_place(box, path, NULL, out, err)
                     : err_set(err, EEXIST, "it is there");

    if (rc == 0 && out->entry) {
        return err_set(err, EEXIST, "it is there");
    }
    return rc;
}

int mem_tree_make(struct mem_box *box, const char *path, mode_t mode,
                  struct mem_inode **out, struct err *err)
{
    struct mem_inode *inode;
    struct place place;
    int rc = find_new(box, path, &place, err);

    box->version++;
    if (rc < 0) {
        return rc;
    }
    inode = new_inode(box, mode);
    if (!inode || add_name(place.dir, place.name, inode) < 0) {
        free(inode);
        return err_no_memory(err);
    }
    *out = inode;
    return 0;
}

static void remove_entry(struct mem_box *box, const struct place *place)
{
    place->dir->attr.st_nlink -= is_dir(place->entry->inode);
    touch(place->dir);
    place->entry->inode->attr.st_ctim = now();
    drop_name(box, place->entry);
}

/* Whether the name may go, as a directory or as anything else. */
static int check_removal(const struct mem_inode *inode, bool dir,
                         struct err *err)
{
    if (dir && !is_dir(inode)) {
        return err_set(err, ENOTDIR, "not a directory");
    }
    if (!dir && is_dir(inode)) {
        return err_set(err, EISDIR, "a directory");
    }
    if (dir && !list_empty(&inode->names)) {
        return err_set(err, ENOTEMPTY, "the directory is not empty");
    }
    return 0;
}

int mem_tree_remove(struct mem_box *box, const char *path, bool dir,
                    struct err *err)
{
    struct place place;
    int rc = find_place(box, path, NULL, &place, err);

    box->version++;
    if (rc < 0) {
        return rc;
    }
    if (!place.entry) {
        return err_set(err, ENOENT, "no such file");
    }
    rc = check_removal(place.entry->inode, dir, err);
    if (rc == 0) {
        remove_entry(box, &place);
    }
    return rc;
}

static void swap(const struct place *a, const struct place *b)
{
    struct mem_inode *inode = a->entry->inode;

    a->dir->attr.st_nlink += is_dir(b->entry->inode);
    a->dir->attr.st_nlink -= is_dir(inode);
    b->dir->attr.st_nlink += is_dir(inode);
    b->dir->attr.st_nlink -= is_dir(b->entry->inode);
    a->entry->inode = b->entry->inode;
    b->entry->inode = inode;
    touch(a->dir);
    touch(b->dir);
}

static int move_over(struct mem_box *box, const struct place *a,
                     const struct place *b, struct err *err)
{
    struct mem_inode *inode = a->entry->inode;
    int rc = 0;

    if (b->entry && b->entry->inode == inode) {
        return 0; /* As rename(2) has it for two names of one file. */
    }
    if (b->entry) {
        rc = check_removal(b->entry->inode, is_dir(inode), err);
    }
    if (rc < 0) {
        return rc;
    }
    if (add_name(b->dir, b->name, inode) < 0) {
        return err_no_memory(err);
    }
    if (b->entry) {
        remove_entry(box, b);
    }
    a->dir->attr.st_nlink -= is_dir(inode);
    touch(a->dir);
    list_remove(&a->entry->link);
    free(a->entry->name);
    free(a->entry);
    return 0;
}

int mem_tree_rename(struct mem_box *box, const char *from, const char *to,
                    unsigned flags, struct err *err)
{
    struct place a, b;
    int rc = find_place(box, from, NULL, &a, err);

    box->version++;
    if (rc == 0 && !a.entry) {
        rc = err_set(err, ENOENT, "no such file");
    }
    if (rc == 0) {
        rc = find_place(box, to, a.entry->inode, &b, err);
    }
    if (rc < 0) {
        return rc;
    }
    if (flags == RENAME_NOREPLACE && b.entry) {
        return err_set(err, EEXIST, "it is there");
    }
    if (flags != RENAME_EXCHANGE) {
        return move_over(box, &a, &b, err);
    }
    if (!b.entry) {
        return err_set(err, ENOENT, "no such file");
    }
    rc = find_place(box, from, b.entry->inode, &a, err);
    if (rc == 0) {
        swap(&a, &b);
    }
    return rc;
}

int mem_tree_link(struct mem_box *box, const char *from, const char *to,
                  struct err *err)
{
    struct mem_inode *inode;
    struct place place;
    int rc = mem_tree_find(box, from, &inode, err);

    box->version++;
    if (rc == 0 && is_dir(inode)) {
        rc = err_set(err, EPERM, "a directory has one name");
    }
    if (rc == 0) {
        rc = find_new(box, to, &place, err);
    }
    if (rc < 0) {
        return rc;
    }
    if (add_name(place.dir, place.name, inode) < 0) {
        return err_no_memory(err);
    }
    inode->attr.st_nlink++;
    inode->attr.st_ctim = now();
    return 0;
}

int mem_tree_resize(struct mem_box *box, struct mem_inode *inode, uint64_t size,
                    struct err *err)
{
    size_t had = (size_t)inode->attr.st_size;
    size_t room = inode->room;
    char *data;

    box->version++;
    if (size > MEM_DATA_MOST ||
        (size > room && box->bytes - room + size > MEM_DATA_MOST)) {
        return err_set(err, ENOSPC, "the sandbox is full");
    }
    if (size > room) {
        room = size > room * 2 ? size : room * 2;
        data = realloc(inode->data, room);
        if (!data) {
            return err_no_memory(err);
        }
        box->bytes += room - inode->room;
        inode->data = data;
        inode->room = room;
    }
    if (size > had) {
        memset(inode->data + had, 0, size - had);
    }
    inode->attr.st_size = (off_t)size;
    inode->attr.st_blocks = (blkcnt_t)((size + 511) / 512);
    touch(inode);
    return 0;
}

int mem_tree_write(struct mem_box *box, struct mem_inode *inode,
                   const void *data, size_t size, uint64_t offset,
                   struct err *err)
{
    int rc = 0;

    box->version++;
    if (offset > MEM_DATA_MOST || size > MEM_DATA_MOST) {
        return err_set(err, ENOSPC, "the sandbox is full");
    }
    if (offset + size > (uint64_t)inode->attr.st_size) {
        rc = mem_tree_resize(box, inode, offset + size, err);
    }
    if (rc == 0 && size) {
        memcpy(inode->data + offset, data, size);
        touch(inode);
    }
    return rc;
}
