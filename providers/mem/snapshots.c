/*
 * Checkpoints: trees on the disk, DIR/checkpoints/T-N, and what stands for
 * them, links of the keys' names. Keys of one state share a tree. They outlive
 * the daemon, as the sandboxes do not. The provider's lock is held.
 */
#include "providers/mem/mem.h"

#include "core/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MOST_IDS = 65536
};

/* Of a name among the checkpoints; "": of their directory. */
static void path_of(const struct sandbox *sandbox, const char *name,
                    char out[PATH_MAX])
{
    (void)snprintf(out, PATH_MAX, "%.3000s/checkpoints%s%.900s", sandbox->dir,
                   *name ? "/" : "", name);
}

static void key_path(const struct sandbox *sandbox, uint64_t key,
                     char out[PATH_MAX])
{
    char name[24];

    (void)snprintf(name, sizeof(name), "%" PRIu64, key);
    path_of(sandbox, name, out);
}

/* The name of a key's tree; -ENOENT where there is none. */
static int tree_of(const struct sandbox *sandbox, uint64_t key,
                   char out[NAME_MAX], struct err *err)
{
    char path[PATH_MAX];
    ssize_t n;

    key_path(sandbox, key, path);
    n = readlink(path, out, NAME_MAX - 1);
    if (n < 0) {
        return err_set(err, errno == EINVAL ? EIO : errno,
                       "no checkpoint %" PRIu64, key);
    }
    out[n] = '\0';
    return 0;
}

static int load(const struct sandbox *sandbox, uint64_t key,
                struct mem_box *out, struct err *err)
{
    char name[NAME_MAX];
    char path[PATH_MAX];
    int rc = tree_of(sandbox, key, name, err);

    *out = (struct mem_box){.root = NULL};
    if (rc < 0) {
        return rc;
    }
    path_of(sandbox, name, path);
    return mem_load(out, path, err);
}

static void unload(struct mem_box *box)
{
    if (box->root) {
        mem_tree_done(box);
    }
}

/* ---- take ---- */

static int count_one(void *arg, char kind, const char *path)
{
    uint64_t *count = arg;

    (void)kind;
    (void)path;
    (*count)++;
    return 0;
}

static int count_changes(const struct sandbox *sandbox,
                         const struct mem_box *box, uint64_t *out,
                         struct err *err)
{
    struct mem_box before = {.root = NULL};
    int rc = box->saved ? load(sandbox, box->saved, &before, err) : 0;

    if (rc == -ENOENT) { /* It was dropped. */
        err_clear(err);
        rc = 0;
    }
    if (rc == 0) {
        rc = mem_differ(&before, box, count_one, out);
        rc = rc < 0 ? err_set(err, -rc, "cannot compare") : 0;
    }
    unload(&before);
    return rc;
}

/* Writes a new tree, whole or not at all. */
static int save_tree(const struct sandbox *sandbox, struct mem_box *box,
                     uint64_t key, char name[NAME_MAX], struct err *err)
{
    char half[PATH_MAX];
    char path[PATH_MAX];
    int rc;

    path_of(sandbox, "", path);
    if (mkdir(path, 0700) < 0 && errno != EEXIST) {
        return err_errno(err, "make '%s'", path);
    }
    (void)snprintf(name, NAME_MAX, "T-%" PRIu64, key);
    path_of(sandbox, "half", half);
    path_of(sandbox, name, path);
    mem_unsave(half);
    mem_unsave(path);
    rc = mem_save(box, half, err);
    return rc == 0 && rename(half, path) < 0 ? err_errno(err, "rename") : rc;
}

static int take_locked(const struct sandbox *sandbox, struct mem_box *box,
                       uint64_t key, struct snapshot_made *out, struct err *err)
{
    struct err none = ERR_INIT;
    bool kept = box->saved && box->saved_version == box->version;
    struct snapshot_made made = {.bytes = 0};
    char name[NAME_MAX];
    char path[PATH_MAX];
    int rc = kept ? tree_of(sandbox, box->saved, name, &none) : -ENOENT;

    if (rc < 0) {
        rc = count_changes(sandbox, box, &made.changed, err);
        made.bytes = box->bytes;
        if (rc == 0) {
            rc = save_tree(sandbox, box, key, name, err);
        }
    }
    if (rc < 0) {
        return rc;
    }
    key_path(sandbox, key, path);
    if (symlink(name, path) < 0) {
        return err_errno(err, "checkpoint %" PRIu64, key);
    }
    box->saved = key;
    box->saved_version = box->version;
    *out = made;
    return 0;
}

static int mem_take(struct provider *provider, const struct sandbox *sandbox,
                    const struct snapshot_ask *ask, const struct limits *limits,
                    struct snapshot_made *out, struct err *err)
{
    struct mem *mem = mem_of(provider);
    struct mem_box *box;
    int rc = mem_fault(mem, "checkpoint", sandbox, limits, err);

    if (rc < 0) {
        return rc;
    }
    mutex_lock(&mem->lock);
    box = mem_find(mem, sandbox);
    rc = box ? take_locked(sandbox, box, ask->key, out, err)
             : err_set(err, ESTALE, "the sandbox is gone");
    mutex_unlock(&mem->lock);
    return rc;
}

/* ---- restore and fork ---- */

/* The box of a sandbox becomes what was loaded, which is taken. */
static int become(struct mem *mem, struct sandbox *sandbox,
                  struct mem_box *loaded, struct mem_box **out, struct err *err)
    REQUIRES(mem->lock)
{
    struct mem_box *box = mem_find(mem, sandbox);
    struct mem_box old;

    if (!box) {
        int rc = mem_make_box(mem, sandbox, &box, err);

        if (rc < 0) {
            return rc;
        }
    }
    old = *box;
    box->root = loaded->root;
    box->bytes = loaded->bytes;
    box->last_ino = loaded->last_ino;
    box->version++;
    box->paused = true;
    loaded->root = old.root;
    loaded->bytes = old.bytes;
    *out = box;
    return 0;
}

static int mem_restore(struct provider *provider, struct sandbox *sandbox,
                       uint64_t key, const struct limits *limits,
                       struct err *err)
{
    struct mem *mem = mem_of(provider);
    struct mem_box loaded;
    struct mem_box *box;
    int rc = mem_fault(mem, "restore", sandbox, limits, err);

    if (rc < 0) {
        return rc;
    }
    mutex_lock(&mem->lock);
    rc = load(sandbox, key, &loaded, err);
    if (rc == 0) {
        rc = become(mem, sandbox, &loaded, &box, err);
    }
    if (rc == 0) {
        box->saved = key;
        box->saved_version = box->version;
    }
    unload(&loaded);
    mutex_unlock(&mem->lock);
    if (rc == 0) {
        mem_end_commands(mem, sandbox->number, COMMAND_KILLED);
    }
    return rc;
}

static int mem_fork(struct provider *provider, const struct sandbox *from,
                    uint64_t key, struct sandbox *to,
                    const struct limits *limits, struct err *err)
{
    struct mem *mem = mem_of(provider);
    struct mem_box loaded;
    struct mem_box *box;
    int rc = mem_fault(mem, "fork", from, limits, err);

    if (rc < 0) {
        return rc;
    }
    mutex_lock(&mem->lock);
    rc = load(from, key, &loaded, err);
    if (rc == 0) {
        rc = become(mem, to, &loaded, &box, err);
    }
    unload(&loaded);
    mutex_unlock(&mem->lock);
    return rc;
}

/* ---- drop, open, list ---- */

/* Calls fn with each key and the name of its tree, until it says false. */
static void each_key(const struct sandbox *sandbox,
                     bool (*fn)(void *arg, uint64_t key, const char *tree),
                     void *arg)
{
    char path[PATH_MAX];
    const struct dirent *entry;
    bool more = true;
    DIR *dir;

    path_of(sandbox, "", path);
    dir = opendir(path);
    entry = dir ? readdir(dir) : NULL;
    while (entry && more) {
        uint64_t key = strtoull(entry->d_name, NULL, 10);
        struct err none = ERR_INIT;
        char tree[NAME_MAX];

        if (key && tree_of(sandbox, key, tree, &none) == 0) {
            more = fn(arg, key, tree);
        }
        entry = readdir(dir);
    }
    if (dir) {
        (void)closedir(dir);
    }
}

static bool is_other(void *arg, uint64_t key, const char *tree)
{
    (void)key;
    return strcmp(tree, *(const char **)arg) != 0;
}

static bool still_used(void *arg, uint64_t key, const char *tree)
{
    const char **wanted = arg;

    if (is_other((void *)wanted, key, tree)) {
        return true;
    }
    *wanted = NULL;
    return false;
}

static int mem_drop(struct provider *provider, const struct sandbox *sandbox,
                    uint64_t key, const struct limits *limits, struct err *err)
{
    struct mem *mem = mem_of(provider);
    struct err none = ERR_INIT;
    char tree[NAME_MAX];
    char path[PATH_MAX];
    const char *unused = tree;
    int rc = mem_fault(mem, "drop", sandbox, limits, err);

    if (rc < 0) {
        return rc;
    }
    mutex_lock(&mem->lock);
    if (tree_of(sandbox, key, tree, &none) == 0) {
        key_path(sandbox, key, path);
        (void)unlink(path);
        each_key(sandbox, still_used, (void *)&unused);
        if (unused) {
            path_of(sandbox, tree, path);
            mem_unsave(path);
        }
    }
    mutex_unlock(&mem->lock);
    return 0;
}

void mem_drop_all(const struct sandbox *sandbox)
{
    char path[PATH_MAX];

    path_of(sandbox, "", path);
    mem_unsave(path);
}

static int mem_open_one(struct provider *provider,
                        const struct sandbox *sandbox, uint64_t key,
                        const struct limits *limits, struct provider_root *out,
                        struct err *err)
{
    struct mem *mem = mem_of(provider);
    char tree[NAME_MAX];
    char path[PATH_MAX];
    int rc = mem_fault(mem, "open", sandbox, limits, err);
    int fd;

    if (rc == 0) {
        rc = tree_of(sandbox, key, tree, err);
    }
    if (rc < 0) {
        return rc;
    }
    path_of(sandbox, tree, path);
    fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return err_errno(err, "open '%s'", path);
    }
    *out = (struct provider_root){
        .fd = fd,
        .base = geteuid(),
        .gid_base = getegid(),
        .count = geteuid() == 0 ? MOST_IDS : 1,
        .path = "/workspace",
    };
    return 0;
}

struct listing {
    int (*fn)(void *arg, uint64_t key);
    void *arg;
    int rc;
};

static bool list_one(void *arg, uint64_t key, const char *tree)
{
    struct listing *listing = arg;

    (void)tree;
    listing->rc = listing->fn(listing->arg, key);
    return listing->rc == 0;
}

static int mem_list_all(struct provider *provider,
                        const struct sandbox *sandbox,
                        const struct limits *limits,
                        int (*fn)(void *arg, uint64_t key), void *arg,
                        struct err *err)
{
    struct listing listing = {fn, arg, 0};
    int rc =
        mem_fault(mem_of(provider), "list_checkpoints", sandbox, limits, err);

    if (rc < 0) {
        return rc;
    }
    each_key(sandbox, list_one, &listing);
    return listing.rc < 0
               ? err_set(err, -listing.rc, "cannot list the checkpoints")
               : 0;
}

const struct provider_snapshots mem_snapshots = {
    .take = mem_take,
    .restore = mem_restore,
    .fork = mem_fork,
    .drop = mem_drop,
    .open = mem_open_one,
    .list = mem_list_all,
};

/* ---- changes ---- */

/* The state that a key of a span stands for; *out is the box itself or
 * `room`, which unload() ends. */
static int find_state(const struct sandbox *sandbox, uint64_t key,
                      struct mem_box *now, struct mem_box *room,
                      const struct mem_box **out, struct err *err)
{
    int rc = 0;

    *room = (struct mem_box){.root = NULL};
    if (key) {
        rc = load(sandbox, key, room, err);
    }
    *out = key || !now ? room : now;
    return rc;
}

int mem_changes(struct provider *provider, const struct sandbox *sandbox,
                const struct provider_span *span, const struct limits *limits,
                provider_change_fn *fn, void *arg, struct err *err)
{
    struct mem *mem = mem_of(provider);
    struct mem_box first, second;
    const struct mem_box *from, *to;
    int rc = mem_fault(mem, "changes", sandbox, limits, err);

    if (rc < 0) {
        return rc;
    }
    mutex_lock(&mem->lock);
    rc = find_state(sandbox, span->from, NULL, &first, &from, err);
    if (rc == 0) {
        rc = find_state(sandbox, span->to, mem_find(mem, sandbox), &second, &to,
                        err);
        if (rc == 0) {
            rc = mem_differ(from, to, fn, arg);
            rc = rc < 0 ? err_set(err, -rc, "cannot tell the changes") : 0;
        }
        unload(&second);
    }
    unload(&first);
    mutex_unlock(&mem->lock);
    return rc;
}
