/* The table of a direct tree's nodes, and where each was last seen. */
#include "core/workspace_direct.h"

#include "core/array.h"
#include "core/cleanup.h"
#include "core/path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUCKETS_FIRST = 64,
    DEPTH_MOST = 65536
};

static struct direct_node **bucket(const struct direct *d,
                                   const struct direct_key *key)
{
    uint64_t hash =
        ((uint64_t)key->ino ^ (uint64_t)key->dev << 32) * 0x9e3779b97f4a7c15;

    return &d->buckets[(hash >> 32) & (d->n_buckets - 1)];
}

static bool key_equal(const struct direct_key *a, const struct direct_key *b)
{
    return a->ino == b->ino && a->dev == b->dev;
}

static struct direct_node *find(const struct direct *d,
                                const struct direct_key *key)
{
    struct direct_node *node = *bucket(d, key);

    while (node && !key_equal(&node->key, key)) {
        node = node->next;
    }
    return node;
}

static void hash_node(struct direct *d, struct direct_node *node)
{
    struct direct_node **at = bucket(d, &node->key);

    node->next = *at;
    *at = node;
    node->hashed = true;
    d->n_nodes++;
}

static void unhash(struct direct *d, struct direct_node *node)
{
    struct direct_node **at = bucket(d, &node->key);

    if (!node->hashed) {
        return;
    }
    while (*at != node) {
        at = &(*at)->next;
    }
    *at = node->next;
    node->hashed = false;
    d->n_nodes--;
}

void direct_node_hash_locked(struct direct *d, struct direct_node *node)
{
    hash_node(d, node);
}

void direct_node_unhash_locked(struct direct *d, struct direct_node *node)
{
    unhash(d, node);
}

/* Doubles the table; without memory it goes on with longer chains. */
static void grow(struct direct *d)
{
    struct direct_node **old = d->buckets;
    size_t n = d->n_buckets;
    struct direct_node **wide = calloc(n * 2, sizeof(*wide));

    if (!wide) {
        return;
    }
    d->buckets = wide;
    d->n_buckets = n * 2;
    d->n_nodes = 0;
    for (size_t i = 0; i < n; i++) {
        while (old[i]) {
            struct direct_node *node = old[i];

            old[i] = node->next;
            hash_node(d, node);
        }
    }
    free(old);
}

int direct_nodes_init(struct direct *d)
{
    d->n_buckets = BUCKETS_FIRST;
    d->buckets = calloc(BUCKETS_FIRST, sizeof(struct direct_node *));
    if (!d->buckets) {
        return -ENOMEM;
    }
    hash_node(d, &d->root);
    return 0;
}

void direct_nodes_done(struct direct *d)
{
    free(d->buckets);
}

void direct_node_unhash(struct ws_node *node)
{
    unhash(direct_of(node->tree), direct_node_of(node));
}

void direct_node_free(struct ws_node *base)
{
    struct direct_node *node = direct_node_of(base);

    direct_fd_drop(node);
    free(node->name);
    free(node);
}

static bool is_in(const struct direct_node *node, const struct direct_node *dir)
{
    return node->parent_serial == dir->serial &&
           key_equal(&node->parent, &dir->key);
}

static bool is_named(const struct direct_node *node,
                     const struct direct_node *dir, const char *name)
{
    return node->name && is_in(node, dir) && strcmp(node->name, name) == 0;
}

/*
 * Whether the sandbox has moved a directory or a link out of the directory
 * where the kernel has met it. Where it comes to light it is another node: the
 * kernel would move the old one there, in the midst of following a link in it.
 */
static bool strays(const struct direct_node *node,
                   const struct direct_node *dir)
{
    return (S_ISDIR(node->type) || S_ISLNK(node->type)) && node->placed &&
           (node->wandered || !is_in(node, dir));
}

/* Notes where a node is. The old name stays where there is no memory. */
static void place_locked(struct direct *d, struct direct_node *node,
                         const struct direct_node *dir, const char *name)
{
    if (node == &d->root) {
        return;
    }
    if (!node->name || strcmp(node->name, name) != 0) {
        char *copy = strdup(name);

        if (copy) {
            free(node->name);
            node->name = copy;
        }
    }
    node->placed = true;
    node->parent = dir->key;
    node->parent_serial = dir->serial;
}

static struct direct_node *new_node(struct direct *d, const struct stat *attr)
{
    struct direct_node *node = calloc(1, sizeof(*node));

    if (!node) {
        return NULL;
    }
    ws_node_init(&node->base, &d->base, direct_ino(d, attr));
    node->key = (struct direct_key){attr->st_dev, attr->st_ino};
    node->type = attr->st_mode & S_IFMT;
    node->serial = ++d->serials;
    node->fd = -1;
    list_init(&node->lru);
    if (d->n_nodes >= d->n_buckets) {
        grow(d);
    }
    hash_node(d, node);
    return node;
}

/* Takes the node of a key out where it stands for another file by now. */
static void expel_other(struct direct *d, const struct stat *attr, int fd)
{
    const struct direct_key key = {attr->st_dev, attr->st_ino};
    struct direct_node *node;
    bool same;

    mutex_lock(&d->base.lock);
    node = find(d, &key);
    if (node) {
        (void)ws_node_ref_locked(&node->base);
    }
    mutex_unlock(&d->base.lock);
    if (!node) {
        return;
    }
    same = node->type == (attr->st_mode & S_IFMT) && direct_fd_same(node, fd);
    if (!same) {
        mutex_lock(&d->base.lock);
        unhash(d, node);
        mutex_unlock(&d->base.lock);
    }
    ws_node_unref(&node->base);
}

/* The next node of a key after one, in the order of their making. */
static struct direct_node *next_ref(struct direct *d, const struct stat *attr,
                                    uint64_t after)
{
    const struct direct_key key = {attr->st_dev, attr->st_ino};
    struct direct_node *next = NULL;

    mutex_lock(&d->base.lock);
    for (struct direct_node *node = *bucket(d, &key); node; node = node->next) {
        if (key_equal(&node->key, &key) && node->serial > after &&
            (!next || node->serial < next->serial)) {
            next = node;
        }
    }
    if (next) {
        (void)ws_node_ref_locked(&next->base);
    }
    mutex_unlock(&d->base.lock);
    return next;
}

/* Trees that never change part no names. */
static bool has_names(const struct direct *d, const struct stat *attr)
{
    return !S_ISDIR(attr->st_mode) && attr->st_nlink > 1 && !d->base.fixed;
}

void direct_node_saw(struct direct_node *node, const struct stat *attr)
{
    if (has_names(direct_tree(node), attr)) {
        atomic_store(&node->base.shared, true);
    }
}

static bool is_file_of(struct direct_node *node, int fd)
{
    struct err ignored = ERR_INIT;
    int own = direct_fd_get(node, &ignored);
    bool one = own >= 0 && direct_fd_one(own, fd);

    if (own >= 0) {
        direct_fd_put(node);
    }
    return one;
}

/* Of files that have one number here, the one that is meant. */
static struct direct_node *find_one_ref(struct direct *d,
                                        const struct stat *attr, int fd)
{
    struct direct_node *node = next_ref(d, attr, 0);

    while (node && !is_file_of(node, fd)) {
        uint64_t after = node->serial;

        ws_node_unref(&node->base);
        node = next_ref(d, attr, after);
    }
    return node;
}

/* Finds or makes a node, with a reference; NULL without memory. */
static struct direct_node *take_node(struct direct_node *dir, const char *name,
                                     int fd, const struct stat *attr)
{
    struct direct *d = direct_tree(dir);
    const bool names = has_names(d, attr);
    struct direct_node *node = names ? find_one_ref(d, attr, fd) : NULL;

    mutex_lock(&d->base.lock);
    if (!names) {
        node = find(d, &(struct direct_key){attr->st_dev, attr->st_ino});
        if (node && strays(node, dir)) {
            unhash(d, node);
            node = NULL;
        } else if (node) {
            (void)ws_node_ref_locked(&node->base);
        }
    }
    node = node ? node : new_node(d, attr);
    if (node) {
        place_locked(d, node, dir, name);
    }
    mutex_unlock(&d->base.lock);
    return node;
}

static int meet(struct direct_node *dir, const char *name, int fd,
                const struct stat *attr, struct ws_node **out, struct err *err)
{
    struct direct_node *node = take_node(dir, name, fd, attr);

    if (!node) {
        (void)close(fd);
        return err_no_memory(err);
    }
    (void)direct_fd_give(node, fd);
    direct_fd_put(node);
    direct_node_saw(node, attr);
    *out = &node->base;
    return 0;
}

int direct_node_meet(struct direct_node *dir, const char *name, int fd,
                     const struct stat *attr, struct ws_node **out,
                     struct err *err)
{
    struct direct *d = direct_tree(dir);
    int rc;

    expel_other(d, attr, fd);
    if (!has_names(d, attr)) {
        return meet(dir, name, fd, attr, out, err);
    }
    mutex_lock(&d->meeting);
    rc = meet(dir, name, fd, attr, out, err);
    mutex_unlock(&d->meeting);
    return rc;
}

static bool stat_key(int dir_fd, const char *name, struct direct_key *out)
{
    struct stat attr;

    if (fstatat(dir_fd, name, &attr, AT_SYMLINK_NOFOLLOW) < 0) {
        return false;
    }
    *out = (struct direct_key){attr.st_dev, attr.st_ino};
    return true;
}

struct ws_node *direct_node_at(struct direct_node *dir, int dir_fd,
                               const char *name)
{
    struct direct *d = direct_tree(dir);
    struct direct_node *node = NULL;
    struct direct_key key;

    if (!stat_key(dir_fd, name, &key)) {
        return NULL;
    }
    mutex_lock(&d->base.lock);
    node = find(d, &key);
    if (node && is_named(node, dir, name)) {
        (void)ws_node_ref_locked(&node->base);
    } else {
        node = NULL;
    }
    mutex_unlock(&d->base.lock);
    return node ? &node->base : NULL;
}

/* Whatever was last seen under a name is where nobody knows. */
static void lose_locked(const struct direct *d, const struct direct_node *dir,
                        const char *name)
{
    for (size_t i = 0; i < d->n_buckets; i++) {
        for (struct direct_node *node = d->buckets[i]; node;
             node = node->next) {
            node->wandered |= is_named(node, dir, name);
        }
    }
}

void direct_node_moved(const struct ws_move *move, struct ws_node *base,
                       int to_fd)
{
    struct direct_node *to = direct_node_of(move->to);
    struct direct_node *node = base ? direct_node_of(base) : NULL;
    struct direct *d = direct_tree(to);
    struct direct_key key;
    bool there = node && stat_key(to_fd, move->new_name, &key) &&
                 key_equal(&node->key, &key);

    mutex_lock(&d->base.lock);
    if (there) {
        place_locked(d, node, to, move->new_name);
    } else {
        /* The sandbox has put another one in its place, before or after. For
         * the kernel what it knew by that name has moved. */
        lose_locked(d, direct_node_of(move->from), move->name);
        if (node) {
            node->wandered = true;
        }
    }
    mutex_unlock(&d->base.lock);
}

void direct_node_linked(struct direct_node *node, struct direct_node *dir,
                        const char *name)
{
    struct direct *d = direct_tree(node);

    mutex_lock(&d->base.lock);
    node->wandered |= !is_in(node, dir);
    /* A file that this has changed first was copied up where it was. */
    if (atomic_load(&node->lifted)) {
        place_locked(d, node, dir, name);
    }
    mutex_unlock(&d->base.lock);
}

/* The directory in which a node was seen last, while it is the same one. */
struct direct_node *direct_node_parent_locked(const struct direct *d,
                                              const struct direct_node *node)
{
    struct direct_node *dir = find(d, &node->parent);

    return dir && is_in(node, dir) ? dir : NULL;
}

int direct_node_link_depth(struct direct_node *node, unsigned *depth,
                           unsigned *ups)
{
    struct direct *d = direct_tree(node);
    const struct direct_node *at;
    unsigned n = 0, sure = 0;
    bool fixed;

    mutex_lock(&d->base.lock);
    fixed = !node->wandered;
    at = direct_node_parent_locked(d, node);
    while (at && at != &d->root && n < DEPTH_MOST) {
        fixed = fixed && !at->wandered;
        sure += fixed;
        n++;
        at = direct_node_parent_locked(d, at);
    }
    mutex_unlock(&d->base.lock);
    if (at != &d->root) {
        return -ESTALE;
    }
    *depth = n;
    *ups = sure;
    return 0;
}

/* Puts a name before a path. */
static int prepend(char **path, const char *name)
{
    char *longer = NULL;

    if (!name) {
        return -ESTALE;
    }
    if (asprintf(&longer, "%s%s%s", name, *path ? "/" : "",
                 *path ? *path : "") < 0) {
        return -ENOMEM;
    }
    free(*path);
    *path = longer;
    return 0;
}

int direct_node_path_locked(const struct direct *d,
                            const struct direct_node *node, char **out)
{
    AUTO_FREE char *path = NULL;
    int rc = 0;

    for (unsigned n = 0; rc == 0 && node && node != &d->root; n++) {
        rc = n < DEPTH_MOST ? prepend(&path, node->name) : -ESTALE;
        node = direct_node_parent_locked(d, node);
    }
    if (rc == 0 && (!node || !path)) {
        rc = -ESTALE;
    }
    if (rc == 0) {
        *out = TAKE_PTR(path);
    }
    return rc;
}

/* The names on the way to a node from the nearest one that has an fd. */
struct way {
    struct direct_node *from; /* Referenced, its fd got. */
    int from_fd;
    char **names; /* The last one first. */
    size_t n, room;
};

static void free_way(struct way *way)
{
    for (size_t i = 0; i < way->n; i++) {
        free(way->names[i]);
    }
    free(way->names);
    if (way->from) {
        direct_fd_put(way->from);
        ws_node_unref(&way->from->base);
    }
}

static int way_add(struct way *way, const char *name)
{
    void *wide;

    if (!name || way->n == DEPTH_MOST) {
        return -ESTALE;
    }
    wide =
        array_grow((void *)way->names, way->n, &way->room, sizeof(*way->names));
    if (!wide) {
        return -ENOMEM;
    }
    way->names = wide;
    way->names[way->n] = strdup(name);
    if (!way->names[way->n]) {
        return -ENOMEM;
    }
    way->n++;
    return 0;
}

static int find_way_locked(const struct direct *d, struct direct_node *node,
                           struct way *way)
{
    int rc = 0;

    way->from_fd = -1;
    while (rc == 0 && way->from_fd < 0) {
        rc = way_add(way, node->name);
        node = find(d, &node->parent);
        if (rc == 0 && !node) {
            rc = -ESTALE;
        }
        if (rc == 0) {
            way->from_fd = direct_fd_try(node);
        }
    }
    if (rc == 0) {
        way->from = direct_node_of(ws_node_ref_locked(&node->base));
    }
    return rc;
}

static int follow_way(const struct way *way)
{
    AUTO_FD int fd = -1;
    int at = way->from_fd;

    for (size_t i = way->n; i > 0; i--) {
        int next = path_step(at, way->names[i - 1], O_PATH);

        if (next < 0) {
            return next;
        }
        cleanup_fd(&fd);
        fd = next;
        at = fd;
    }
    return TAKE_FD(fd);
}

int direct_node_open_place(struct direct_node *node)
{
    struct direct *d = direct_tree(node);
    struct way way = {.from = NULL};
    int rc;

    mutex_lock(&d->base.lock);
    rc = find_way_locked(d, node, &way);
    mutex_unlock(&d->base.lock);
    if (rc == 0) {
        rc = follow_way(&way);
    }
    free_way(&way);
    return rc;
}
