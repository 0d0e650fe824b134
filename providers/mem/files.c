/* The file calls of the provider `mem`: fault, lock, find, do, unlock. */
#include "providers/mem/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int mem_enter(struct provider *provider, const struct sandbox *sandbox,
              const char *op, const struct limits *limits, struct mem_box **out,
              struct err *err) NO_TSA
{
    static const char *const running[] = {
        "read",    "write",    "create_file", "make_dir", "remove", "rename",
        "symlink", "set_attr", "link",        "get",      "put"};
    struct mem *mem = mem_of(provider);
    struct mem_box *box;
    int rc = mem_fault(mem, op, sandbox, limits, err);

    if (rc < 0) {
        return rc;
    }
    mutex_lock(&mem->lock);
    box = mem_find(mem, sandbox);
    if (!box) {
        rc = err_set(err, ESTALE, "the sandbox is gone");
    }
    for (size_t i = 0; rc == 0 && box->paused && i < ARRAY_SIZE(running); i++) {
        if (strcmp(op, running[i]) == 0) {
            rc = err_set(err, EHOSTDOWN, "the sandbox is paused");
        }
    }
    if (rc < 0) {
        mutex_unlock(&mem->lock);
        return rc;
    }
    *out = box;
    return 0;
}

void mem_leave(struct provider *provider) NO_TSA
{
    mutex_unlock(&mem_of(provider)->lock);
}

static int mem_stat(struct provider *provider, const struct sandbox *sandbox,
                    const char *path, const struct limits *limits,
                    struct stat *out, struct err *err)
{
    struct mem_inode *inode = NULL;
    struct mem_box *box;
    int rc = mem_enter(provider, sandbox, "stat", limits, &box, err);

    if (rc < 0) {
        return rc;
    }
    rc = mem_tree_find(box, path, &inode, err);
    if (rc == 0) {
        *out = inode->attr;
    }
    mem_leave(provider);
    return rc;
}

void mem_free_entries(struct provider_entry *entries, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free((void *)(uintptr_t)entries[i].name);
    }
    free(entries);
}

int mem_copy_names(struct mem_box *box, const char *path,
                   struct provider_entry **out, size_t *n, struct err *err)
{
    struct mem_inode *dir = NULL;
    struct provider_entry *entries;
    size_t count = 0;
    int rc = mem_tree_find(box, path, &dir, err);

    if (rc < 0) {
        return rc;
    }
    if (!S_ISDIR(dir->attr.st_mode)) {
        return err_set(err, ENOTDIR, "not a directory");
    }
    list_each(node, &dir->names)
    {
        count++;
    }
    entries = calloc(count + 1, sizeof(*entries));
    if (!entries) {
        return err_no_memory(err);
    }
    count = 0;
    list_each(node, &dir->names)
    {
        const struct mem_name *name = container_of(node, struct mem_name, link);

        entries[count].name = strdup(name->name);
        entries[count].attr = name->inode->attr;
        if (!entries[count].name) {
            mem_free_entries(entries, count);
            return err_no_memory(err);
        }
        count++;
    }
    *out = entries;
    *n = count;
    return 0;
}

static int mem_list(struct provider *provider, const struct sandbox *sandbox,
                    const char *path, const struct limits *limits,
                    provider_entry_fn *fn, void *arg, struct err *err)
{
    struct provider_entry *entries = NULL;
    struct mem_box *box;
    size_t n = 0;
    int rc = mem_enter(provider, sandbox, "list", limits, &box, err);

    if (rc < 0) {
        return rc;
    }
    rc = mem_copy_names(box, path, &entries, &n, err);
    mem_leave(provider);
    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = fn(arg, &entries[i]);
    }
    mem_free_entries(entries, n);
    return rc < 0 ? err_set(err, -rc, "the listing was ended") : 0;
}

/* To tests it is a stat: they wedge or fail one by that name. */
static int mem_look(struct provider *provider, const struct sandbox *sandbox,
                    const char *path, const struct limits *limits,
                    struct provider_look *look, struct err *err)
{
    struct provider_entry *entries = NULL;
    struct mem_inode *inode = NULL;
    struct mem_box *box;
    size_t n = 0;
    int rc = mem_enter(provider, sandbox, "stat", limits, &box, err);

    if (rc < 0) {
        return rc;
    }
    rc = mem_tree_find(box, path, &inode, err);
    if (rc == 0) {
        look->attr = inode->attr;
    }
    if (rc == 0 && S_ISDIR(inode->attr.st_mode)) {
        rc = mem_copy_names(box, path, &entries, &n, err);
        look->whole = rc == 0 && n <= look->most;
    }
    mem_leave(provider);
    for (size_t i = 0; rc == 0 && look->whole && i < n; i++) {
        rc = look->fn(look->arg, &entries[i]);
    }
    mem_free_entries(entries, n);
    return rc < 0 && !err->code ? err_set(err, -rc, "the look was ended") : rc;
}

/* What is to be made. */
struct making {
    const char *op;
    const char *path;
    mode_t mode;
    const char *target; /* Of a link; else NULL. */
};

static int make(struct provider *provider, const struct sandbox *sandbox,
                const struct making *what, const struct limits *limits,
                struct stat *now, struct err *err)
{
    struct mem_inode *inode = NULL;
    struct mem_box *box;
    int rc = mem_enter(provider, sandbox, what->op, limits, &box, err);

    if (rc < 0) {
        return rc;
    }
    rc = mem_tree_make(box, what->path, what->mode, &inode, err);
    if (rc == 0 && what->target) {
        rc = mem_tree_write(box, inode, what->target, strlen(what->target), 0,
                            err);
    }
    if (rc == 0) {
        *now = inode->attr;
    }
    mem_leave(provider);
    return rc;
}

static int mem_create_file(struct provider *provider,
                           const struct sandbox *sandbox, const char *path,
                           mode_t mode, const struct limits *limits,
                           struct stat *now, struct err *err)
{
    const struct making what = {
        .op = "create_file", .path = path, .mode = S_IFREG | (mode & 07777)};

    return make(provider, sandbox, &what, limits, now, err);
}

static int mem_make_dir(struct provider *provider,
                        const struct sandbox *sandbox, const char *path,
                        mode_t mode, const struct limits *limits,
                        struct stat *now, struct err *err)
{
    const struct making what = {
        .op = "make_dir", .path = path, .mode = S_IFDIR | (mode & 07777)};

    return make(provider, sandbox, &what, limits, now, err);
}

static int mem_symlink(struct provider *provider, const struct sandbox *sandbox,
                       const char *target, const char *path,
                       const struct limits *limits, struct stat *now,
                       struct err *err)
{
    const struct making what = {.op = "symlink",
                                .path = path,
                                .mode = S_IFLNK | 0777,
                                .target = target};

    return make(provider, sandbox, &what, limits, now, err);
}

static int mem_remove(struct provider *provider, const struct sandbox *sandbox,
                      const char *path, bool dir, const struct limits *limits,
                      struct err *err)
{
    struct mem_box *box;
    int rc = mem_enter(provider, sandbox, "remove", limits, &box, err);

    if (rc == 0) {
        rc = mem_tree_remove(box, path, dir, err);
        mem_leave(provider);
    }
    return rc;
}

static int mem_rename(struct provider *provider, const struct sandbox *sandbox,
                      const char *from, const char *to, unsigned flags,
                      const struct limits *limits, struct err *err)
{
    struct mem_box *box;
    int rc = mem_enter(provider, sandbox, "rename", limits, &box, err);

    if (rc == 0) {
        rc = mem_tree_rename(box, from, to, flags, err);
        mem_leave(provider);
    }
    return rc;
}

static int mem_link(struct provider *provider, const struct sandbox *sandbox,
                    const char *from, const char *to,
                    const struct limits *limits, struct err *err)
{
    struct mem_box *box;
    int rc = mem_enter(provider, sandbox, "link", limits, &box, err);

    if (rc == 0) {
        rc = mem_tree_link(box, from, to, err);
        mem_leave(provider);
    }
    return rc;
}

static int mem_read_link(struct provider *provider,
                         const struct sandbox *sandbox, const char *path,
                         const struct limits *limits, char *out, size_t size,
                         struct err *err)
{
    struct mem_inode *inode = NULL;
    struct mem_box *box;
    int rc = mem_enter(provider, sandbox, "read_link", limits, &box, err);

    if (rc < 0) {
        return rc;
    }
    rc = mem_tree_find(box, path, &inode, err);
    if (rc == 0 && !S_ISLNK(inode->attr.st_mode)) {
        rc = err_set(err, EINVAL, "not a link");
    }
    if (rc == 0 && (size_t)inode->attr.st_size >= size) {
        rc = err_set(err, ENAMETOOLONG, "the target is too long");
    }
    if (rc == 0) {
        memcpy(out, inode->data, (size_t)inode->attr.st_size);
        out[inode->attr.st_size] = '\0';
    }
    mem_leave(provider);
    return rc;
}

int mem_apply_attr(struct mem_box *box, struct mem_inode *inode, unsigned mask,
                   const struct stat *want, struct err *err)
{
    struct stat *attr = &inode->attr;
    int rc = 0;

    box->version++;
    if (mask & PROVIDER_ATTR_SIZE) {
        if (!S_ISREG(attr->st_mode)) {
            return err_set(err, S_ISDIR(attr->st_mode) ? EISDIR : EINVAL,
                           "only files have a length");
        }
        rc = mem_tree_resize(box, inode, (uint64_t)want->st_size, err);
    }
    if (rc < 0) {
        return rc;
    }
    if (mask & PROVIDER_ATTR_MODE) {
        attr->st_mode = (attr->st_mode & S_IFMT) | (want->st_mode & 07777);
    }
    if (mask & PROVIDER_ATTR_UID) {
        attr->st_uid = want->st_uid;
    }
    if (mask & PROVIDER_ATTR_GID) {
        attr->st_gid = want->st_gid;
    }
    if (mask & PROVIDER_ATTR_ATIME) {
        attr->st_atim = want->st_atim;
    }
    if (mask & PROVIDER_ATTR_MTIME) {
        attr->st_mtim = want->st_mtim;
    }
    (void)clock_gettime(CLOCK_REALTIME, &attr->st_ctim);
    return 0;
}

static int mem_set_attr(struct provider *provider,
                        const struct sandbox *sandbox, const char *path,
                        unsigned mask, const struct stat *want,
                        const struct limits *limits, struct err *err)
{
    struct mem_inode *inode = NULL;
    struct mem_box *box;
    int rc = mem_enter(provider, sandbox, "set_attr", limits, &box, err);

    if (rc < 0) {
        return rc;
    }
    rc = mem_tree_find(box, path, &inode, err);
    if (rc == 0) {
        rc = mem_apply_attr(box, inode, mask, want, err);
    }
    mem_leave(provider);
    return rc;
}

int mem_find_file(struct mem_box *box, const char *path, struct mem_inode **out,
                  struct err *err)
{
    int rc = mem_tree_find(box, path, out, err);

    if (rc < 0) {
        return rc;
    }
    if (S_ISDIR((*out)->attr.st_mode)) {
        return err_set(err, EISDIR, "a directory");
    }
    if (S_ISLNK((*out)->attr.st_mode)) {
        return err_set(err, ELOOP, "a link");
    }
    return 0;
}

static ssize_t mem_read_at(struct provider *provider,
                           const struct sandbox *sandbox, const char *path,
                           void *out, size_t size, uint64_t offset,
                           const struct limits *limits, struct err *err)
{
    struct mem_inode *inode = NULL;
    struct mem_box *box;
    size_t n = 0;
    int rc = mem_enter(provider, sandbox, "read", limits, &box, err);

    if (rc < 0) {
        return rc;
    }
    rc = mem_find_file(box, path, &inode, err);
    if (rc == 0 && offset < (uint64_t)inode->attr.st_size) {
        n = (size_t)((uint64_t)inode->attr.st_size - offset);
        n = n < size ? n : size;
        memcpy(out, inode->data + offset, n);
    }
    mem_leave(provider);
    return rc < 0 ? rc : (ssize_t)n;
}

static int mem_write_at(struct provider *provider,
                        const struct sandbox *sandbox, const char *path,
                        const void *data, size_t size, uint64_t offset,
                        const struct limits *limits, struct err *err)
{
    struct mem_inode *inode = NULL;
    struct mem_box *box;
    int rc = mem_enter(provider, sandbox, "write", limits, &box, err);

    if (rc < 0) {
        return rc;
    }
    rc = mem_find_file(box, path, &inode, err);
    if (rc == 0) {
        rc = mem_tree_write(box, inode, data, size, offset, err);
    }
    mem_leave(provider);
    return rc;
}

static int mem_statfs(struct provider *provider, const struct sandbox *sandbox,
                      const struct limits *limits, struct statvfs *out,
                      struct err *err)
{
    struct mem_box *box;
    int rc = mem_enter(provider, sandbox, "statfs", limits, &box, err);

    if (rc < 0) {
        return rc;
    }
    memset(out, 0, sizeof(*out));
    out->f_bsize = out->f_frsize = 4096;
    out->f_blocks = MEM_DATA_MOST / 4096;
    out->f_bfree =
        box->bytes < MEM_DATA_MOST ? (MEM_DATA_MOST - box->bytes) / 4096 : 0;
    out->f_bavail = out->f_bfree;
    out->f_files = 1000000;
    out->f_ffree = out->f_files - box->last_ino % out->f_files;
    out->f_favail = out->f_ffree;
    out->f_namemax = 255;
    mem_leave(provider);
    return 0;
}

const struct provider_files mem_files = {
    .stat = mem_stat,
    .list = mem_list,
    .create = mem_create_file,
    .make_dir = mem_make_dir,
    .remove = mem_remove,
    .rename = mem_rename,
    .symlink = mem_symlink,
    .read_link = mem_read_link,
    .set_attr = mem_set_attr,
    .read_at = mem_read_at,
    .write_at = mem_write_at,
    .link = mem_link,
    .statfs = mem_statfs,
    .at_once = 16,
    .look = mem_look,
    .tree = mem_tell_tree,
    .get = mem_get_file,
    .get_many = mem_get_many,
    .put = mem_put_file,
};
