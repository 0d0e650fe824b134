/* A look at a layer. See scan.h. */
#include "providers/local/scan.h"

#include "core/array.h"
#include "core/cleanup.h"
#include "providers/local/copy.h"
#include "providers/local/note.h"
#include "providers/local/shut.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

enum {
    REDIRECT_SIZE = 8192, /* Of the kernel's note, at most. */
    CHECK_EVERY = 512,    /* Names between looks at the clock. */
    NS = 1000000000,
};

struct look {
    const struct scan_ask *ask;
    const struct limits *limits;
    struct err *err;
    struct scan_node *top;
    struct scan_node **linked; /* Files with more names. */
    size_t linked_count;
    size_t linked_room;
    unsigned seen;
};

bool scan_is_whiteout(const struct stat *attr)
{
    return S_ISCHR(attr->st_mode) && attr->st_rdev == makedev(0, 0);
}

bool scan_is_tied(const struct scan_node *node)
{
    return node->links > 1 && !S_ISDIR(node->mode) && !node->whiteout;
}

/* ---- Nodes ---- */

static void free_one(struct scan_node *node)
{
    free(node->below);
    free(node);
}

void scan_free(struct scan_node *top)
{
    struct scan_node *node = top;

    /* Downwards by `count`, so that no stack is needed. */
    while (node) {
        struct scan_node *parent = node == top ? NULL : node->parent;

        if (node->count > 0) {
            node = node->below[--node->count];
            continue;
        }
        free_one(node);
        node = parent;
    }
}

static struct scan_node *new_node(struct scan_node *parent, const char *name,
                                  const struct stat *attr)
{
    size_t size = strlen(name) + 1;
    struct scan_node *node = calloc(1, sizeof(*node) + size);

    if (node) {
        memcpy(node->name, name, size);
        node->parent = parent;
        node->ino = attr->st_ino;
        node->ctime_ns = attr->st_ctim.tv_sec * NS + attr->st_ctim.tv_nsec;
        node->size = (uint64_t)attr->st_size;
        node->mode = attr->st_mode;
        node->links = (uint32_t)attr->st_nlink;
    }
    return node;
}

static int by_name(const void *a, const void *b)
{
    const struct scan_node *const *left = a;
    const struct scan_node *const *right = b;

    return strcmp((*left)->name, (*right)->name);
}

struct scan_node *scan_find(const struct scan_node *dir, const char *name)
{
    uint32_t low = 0;
    uint32_t high = dir ? dir->count : 0;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = strcmp(name, dir->below[middle]->name);

        if (order == 0) {
            return dir->below[middle];
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}

struct scan_node *scan_at(struct scan_node *top, const char *path)
{
    struct scan_node *node = top;
    char name[NAME_MAX + 1];

    while (node && *path) {
        size_t len = strcspn(path, "/");

        if (len > NAME_MAX) {
            return NULL;
        }
        memcpy(name, path, len);
        name[len] = '\0';
        path += len + (path[len] == '/');
        node = len ? scan_find(node, name) : node;
    }
    return node;
}

struct scan_node *scan_walk(struct scan_node *node)
{
    while (node && node->at == node->count) {
        node->at = 0;
        node = node->parent;
    }
    return node ? node->below[node->at++] : NULL;
}

char *scan_path(const struct scan_node *node)
{
    size_t size = 0;
    char *path;

    for (const struct scan_node *up = node; up->parent; up = up->parent) {
        size += strlen(up->name) + 1;
    }
    path = malloc(size + 1);
    if (!path) {
        return NULL;
    }
    path[size ? size - 1 : 0] = '\0';
    for (const struct scan_node *up = node; up->parent; up = up->parent) {
        size_t len = strlen(up->name);

        size -= len + 1;
        memcpy(path + size, up->name, len);
        if (size > 0) {
            path[size - 1] = '/';
        }
    }
    return path;
}

struct scan_node *scan_next(struct scan_node *dir)
{
    while (dir->at < dir->count) {
        struct scan_node *node = dir->below[dir->at++];

        if (node->need) {
            return node;
        }
    }
    dir->at = 0;
    return NULL;
}

/* ---- Judging ---- */

static void need(struct scan_node *node)
{
    for (; node && !node->need; node = node->parent) {
        node->need = true;
    }
}

void scan_loosen(struct scan_node *node)
{
    node->loose = true;
    node->changed = true;
    need(node);
}

static bool is_same(const struct scan_node *old, const struct scan_node *node)
{
    return old && old->ino == node->ino && old->ctime_ns == node->ctime_ns &&
           old->size == node->size && old->mode == node->mode &&
           old->links == node->links && !old->loose;
}

static uint64_t hash(const char *data, ssize_t size)
{
    uint64_t sum = UINT64_C(14695981039346656037);

    for (ssize_t i = 0; i < size; i++) {
        sum = (sum ^ (unsigned char)data[i]) * UINT64_C(1099511628211);
    }
    return sum ? sum : 1;
}

/* The kernel's notes about a directory. */
static void read_notes(int fd, struct scan_node *node)
{
    char value[REDIRECT_SIZE];
    ssize_t size = note_get(fd, NOTE_OPAQUE, value, sizeof(value));

    node->opaque = size == 1 && value[0] == 'y';
    node->copied = note_get(fd, NOTE_ORIGIN, value, sizeof(value)) >= 0;
    size = note_get(fd, NOTE_REDIRECT, value, sizeof(value));
    node->moved = size > 0 ? hash(value, size) : 0;
}

/* What a directory is to what was there. Its notes have been read. */
static void judge_dir(struct scan_node *node, const struct scan_node *old)
{
    bool was_dir = old && S_ISDIR(old->mode);
    uint64_t was_moved = was_dir ? old->moved : 0;

    if (node->moved) {
        node->expand = node->moved != was_moved;
    } else if (node->opaque) {
        node->cover = !was_dir || !old->opaque;
    } else {
        node->expand = was_dir && (old->opaque || old->moved);
    }
    /* What shows through a directory that shows through. */
    if (node->parent && node->parent->expand && !node->opaque) {
        node->expand = true;
    }
    node->cover = node->cover || node->expand;
    node->old = was_dir && !node->cover ? old : NULL;
}

static void judge(struct look *look, struct scan_node *node,
                  const struct scan_node *old)
{
    if (node->whiteout) {
        node->changed = !old || !old->whiteout;
    } else {
        node->changed = !is_same(old, node) || node->cover;
    }
    if (node->changed || look->ask->plain) {
        node->changed = true;
        need(node);
    }
}

/* What was there and is not any more has to be hidden. */
static void judge_gone(struct scan_node *dir)
{
    const struct scan_node *old = dir->old;

    for (uint32_t i = 0; old && i < old->count && !dir->need; i++) {
        if (!old->below[i]->whiteout && !scan_find(dir, old->below[i]->name)) {
            need(dir);
        }
    }
}

/* ---- Looking ---- */

static int fail(struct look *look, int rc, const char *what)
{
    return err_set(look->err, -rc, "cannot look at the workspace: %s", what);
}

static int note_linked(struct look *look, struct scan_node *node)
{
    void *wide = array_grow(look->linked, look->linked_count,
                            &look->linked_room, sizeof(*look->linked));

    if (!wide) {
        return -ENOMEM;
    }
    look->linked = wide;
    look->linked[look->linked_count++] = node;
    return 0;
}

static int add(struct scan_node *dir, struct scan_node *node, uint32_t *room)
{
    if (dir->count == *room) {
        uint32_t more = *room ? *room * 2 : 8;
        void *wide = realloc(dir->below, more * sizeof(struct scan_node *));

        if (!wide) {
            return -ENOMEM;
        }
        dir->below = wide;
        *room = more;
    }
    dir->below[dir->count++] = node;
    return 0;
}

static int take_name(struct look *look, int fd, struct scan_node *dir,
                     const char *name, uint32_t *room)
{
    struct scan_node *node;
    struct stat attr;

    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
        (dir == look->top && scan_find(look->ask->skip, name))) {
        return 0;
    }
    if (++look->seen % CHECK_EVERY == 0 &&
        limits_check(look->limits, "looking at the workspace takes too long",
                     look->err) < 0) {
        return -look->err->code;
    }
    if (fstatat(fd, name, &attr, AT_SYMLINK_NOFOLLOW) < 0) {
        return fail(look, -errno, strerror(errno));
    }
    node = new_node(dir, name, &attr);
    if (!node || add(dir, node, room) < 0) {
        free(node);
        return fail(look, -ENOMEM, "out of memory");
    }
    node->source = look->ask->source;
    node->whiteout = !look->ask->plain && scan_is_whiteout(&attr);
    if (scan_is_tied(node) && note_linked(look, node) < 0) {
        return fail(look, -ENOMEM, "out of memory");
    }
    if (!S_ISDIR(node->mode)) {
        judge(look, node, dir->old ? scan_find(dir->old, name) : NULL);
    }
    return 0;
}

/* Lists a directory, whose fd stays the caller's. */
static int list(struct look *look, int fd, struct scan_node *dir)
{
    int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = own < 0 ? NULL : fdopendir(own);
    const struct dirent *entry;
    uint32_t room = 0;
    int rc = 0;

    if (!stream) {
        rc = fail(look, -errno, strerror(errno));
        cleanup_fd(&own);
        return rc;
    }
    errno = 0;
    entry = readdir(stream);
    while (rc == 0 && entry) {
        rc = take_name(look, fd, dir, entry->d_name, &room);
        errno = 0;
        entry = readdir(stream);
    }
    if (rc == 0 && errno) {
        rc = fail(look, -errno, strerror(errno));
    }
    (void)closedir(stream);
    if (rc == 0 && dir->count > 0) {
        qsort(dir->below, dir->count, sizeof(struct scan_node *), by_name);
    }
    return rc;
}

/* A directory that has been opened. */
static int enter(struct look *look, int fd, struct scan_node *dir)
{
    const struct scan_node *parent = dir->parent;
    const struct scan_node *old =
        parent ? scan_find(parent->old, dir->name) : look->ask->old;
    int rc;

    if (is_same(old, dir)) {
        dir->opaque = old->opaque;
        dir->moved = old->moved;
        dir->copied = old->copied;
    } else if (!look->ask->plain) {
        read_notes(fd, dir);
    }
    judge_dir(dir, old);
    judge(look, dir, old);
    rc = list(look, fd, dir);
    if (rc == 0) {
        judge_gone(dir);
    }
    return rc;
}

/* The next directory below one, or NULL. */
static struct scan_node *next_dir(struct scan_node *dir)
{
    while (dir->at < dir->count) {
        struct scan_node *node = dir->below[dir->at++];

        if (S_ISDIR(node->mode)) {
            return node;
        }
    }
    dir->at = 0;
    return NULL;
}

/* Inodes of an overlay may have other numbers each time. */
static int check_place(const struct look *look, int fd,
                       const struct scan_node *dir)
{
    struct stat attr;

    return look->ask->plain ||
                   (fstat(fd, &attr) == 0 && attr.st_ino == dir->ino)
               ? 0
               : -ESTALE;
}

static int step_in(const struct look *look, int *fd, struct scan_node *dir)
{
    int rc = look->ask->shut ? shut_open(look->ask->shut, dir) : 0;

    return rc == 0 ? copy_step_in(fd, dir->name) : rc;
}

static int walk(struct look *look)
{
    struct scan_node *dir = look->top;
    AUTO_FD int fd =
        openat(look->ask->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc =
        fd < 0 ? fail(look, -errno, strerror(errno)) : enter(look, fd, dir);

    while (rc == 0) {
        struct scan_node *next = next_dir(dir);

        if (!next && dir == look->top) {
            return 0;
        }
        rc = next ? step_in(look, &fd, next) : copy_step_out(&fd);
        if (rc == 0) {
            rc = check_place(look, fd, next ? next : dir->parent);
        }
        if (rc < 0) {
            return fail(look, rc, strerror(-rc));
        }
        dir = next ? next : dir->parent;
        rc = next ? enter(look, fd, dir) : 0;
    }
    return rc;
}

/* ---- Links and loose files ---- */

static int by_ino(const void *a, const void *b)
{
    const struct scan_node *const *left = a;
    const struct scan_node *const *right = b;

    return (*left)->ino < (*right)->ino ? -1 : (*left)->ino > (*right)->ino;
}

/* All names of a file go together. */
static void join_links(struct look *look)
{
    struct scan_node **all = look->linked;
    size_t next;

    if (look->linked_count > 0) {
        qsort(all, look->linked_count, sizeof(struct scan_node *), by_ino);
    }
    for (size_t i = 0; i < look->linked_count; i = next) {
        bool any = false;

        for (next = i;
             next < look->linked_count && all[next]->ino == all[i]->ino;
             next++) {
            any |= all[next]->changed;
        }
        for (size_t k = i; any && k < next; k++) {
            all[k]->changed = true;
            need(all[k]);
        }
    }
}

static void mark_loose(struct scan_node *top, const char *const *paths)
{
    for (; paths && *paths; paths++) {
        struct scan_node *node = scan_at(top, *paths);

        if (node && S_ISREG(node->mode)) {
            scan_loosen(node);
        }
    }
}

int scan_take(const struct scan_ask *ask, const struct limits *limits,
              struct scan_node **out, struct err *err)
{
    struct look look = {.ask = ask, .limits = limits, .err = err};
    struct stat attr;
    int rc;

    if (fstat(ask->dir, &attr) < 0) {
        return err_errno(err, "the workspace");
    }
    look.top = new_node(NULL, "", &attr);
    if (!look.top) {
        return err_no_memory(err);
    }
    look.top->source = ask->source;
    rc = walk(&look);
    if (rc == 0) {
        mark_loose(look.top, ask->loose[0]);
        mark_loose(look.top, ask->loose[1]);
        join_links(&look);
        *out = TAKE_PTR(look.top);
    }
    scan_free(look.top);
    free(look.linked);
    return rc;
}
