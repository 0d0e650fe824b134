/* The nodes of a remote tree: paths, and the numbers that they show. */
#include "core/workspace_remote.h"

#include "core/cleanup.h"

#include <errno.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUCKETS_FIRST = 64
};

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++) { /* FNV-1a */
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3;
    }
    return hash;
}

static struct remote_node **
bucket(const struct remote *r, const struct remote_node *dir, const char *name)
{
    uint64_t hash = hash_text((uintptr_t)dir ^ 0xcbf29ce484222325, name);

    return &r->buckets[(hash ^ hash >> 32) & (r->n_buckets - 1)];
}

static struct remote_node *find(const struct remote *r,
                                const struct remote_node *dir, const char *name)
{
    struct remote_node *node = *bucket(r, dir, name);

    while (node && (node->parent != dir || strcmp(node->name, name) != 0)) {
        node = node->next;
    }
    return node;
}

static void hash_node(struct remote *r, struct remote_node *node)
{
    struct remote_node **at = bucket(r, node->parent, node->name);

    node->next = *at;
    *at = node;
    r->n_nodes++;
}

static void unhash(struct remote *r, struct remote_node *node)
{
    struct remote_node **at = bucket(r, node->parent, node->name);

    while (*at != node) {
        at = &(*at)->next;
    }
    *at = node->next;
    r->n_nodes--;
}

static void grow(struct remote *r)
{
    struct remote_node **old = r->buckets;
    size_t n = r->n_buckets;
    struct remote_node **wide = calloc(n * 2, sizeof(*wide));

    if (!wide) {
        return; /* Longer chains do, too. */
    }
    r->buckets = wide;
    r->n_buckets = n * 2;
    r->n_nodes = 0;
    for (size_t i = 0; i < n; i++) {
        while (old[i]) {
            struct remote_node *node = old[i];

            old[i] = node->next;
            hash_node(r, node);
        }
    }
    free(old);
}

int remote_nodes_init(struct remote *r)
{
    r->n_buckets = BUCKETS_FIRST;
    r->buckets = calloc(BUCKETS_FIRST, sizeof(struct remote_node *));
    r->root.type = S_IFDIR;
    r->root.base.ino = ws_ino_shown(r->sandbox.number, 1);
    return r->buckets ? 0 : -ENOMEM;
}

void remote_nodes_done(struct remote *r)
{
    free(r->buckets);
    ws_inos_free(r->inos);
}

void remote_node_unhash(struct ws_node *base)
{
    struct remote_node *node = remote_node_of(base);

    if (!node->gone) {
        unhash(remote_of(base->tree), node);
    }
}

void remote_node_free(struct ws_node *base)
{
    struct remote_node *node = remote_node_of(base);

    ws_node_unref(&node->parent->base);
    free(node->name);
    free(node);
}

/* Writes a component in front of what the path holds from `at` on. */
static size_t prepend(struct remote_path *path, size_t at, const char *name)
{
    size_t len = strlen(name);

    if (at < len + 2) {
        return 0;
    }
    at -= len;
    memcpy(path->text + at, name, len);
    at--;
    path->text[at] = '/';
    return at;
}

int remote_path(struct remote_node *node, const char *name,
                struct remote_path *out, struct err *err)
{
    struct remote *r = remote_tree(node);
    size_t at = sizeof(out->text) - 1;
    bool gone = false;

    out->text[at] = '\0';
    at = name ? prepend(out, at, name) : at;
    mutex_lock(&r->base.lock);
    while (node != &r->root && at && !gone) {
        gone = node->gone;
        at = prepend(out, at, node->name);
        node = node->parent;
    }
    mutex_unlock(&r->base.lock);
    if (gone) {
        return err_set(err, ESTALE, "the file was removed or replaced");
    }
    if (!at) {
        return err_set(err, ENAMETOOLONG, "the path is too long");
    }
    at += out->text[at] == '/';
    memmove(out->text, out->text + at, sizeof(out->text) - at);
    return 0;
}

static uint64_t path_ino(struct remote_node *dir, const char *name)
{
    struct remote_path path;
    struct err err = ERR_INIT;

    if (remote_path(dir, name, &path, &err) < 0) {
        return 1;
    }
    /* So large that it is mixed, and no engine's small number. */
    return hash_text(0xcbf29ce484222325, path.text) | (uint64_t)1 << 63;
}

uint64_t remote_ino(struct remote_node *dir, const char *name, uint64_t ino)
{
    struct remote *r = remote_tree(dir);
    const struct remote_node *node;
    uint64_t shown = 0;

    mutex_lock(&r->base.lock);
    if (ino) {
        r->has_inos = true;
        shown = ws_inos_shown(r->inos, ws_ino_shown(r->sandbox.number, ino));
    } else {
        node = find(r, dir, name);
        shown = node ? node->base.ino : 0;
    }
    mutex_unlock(&r->base.lock);
    return shown ? shown : ws_ino_shown(r->sandbox.number, path_ino(dir, name));
}

static bool is_known_type(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
    case S_IFDIR:
    case S_IFLNK:
    case S_IFIFO:
    case S_IFSOCK:
    case S_IFCHR:
    case S_IFBLK:
        return true;
    default:
        return false;
    }
}

int remote_show(const struct remote_node *node, struct stat *attr,
                struct err *err)
{
    const struct remote *r = remote_tree(node);

    if (!is_known_type(attr->st_mode) || attr->st_size < 0) {
        return err_set(err, EIO, "the engine's attributes make no sense");
    }
    attr->st_ino = node->base.ino;
    attr->st_uid = r->view.uid;
    attr->st_gid = r->view.gid;
    attr->st_nlink = attr->st_nlink ? attr->st_nlink : 1;
    return 0;
}

/* Takes a node out of the table: its path is another file's, or nobody's. */
static void make_gone(struct remote *r, struct remote_node *node)
{
    unhash(r, node);
    node->gone = true;
}

static struct remote_node *new_node(struct remote *r, struct remote_node *dir,
                                    const char *name, uint64_t ino, mode_t mode)
{
    struct remote_node *node = calloc(1, sizeof(*node));

    if (node) {
        node->name = strdup(name);
    }
    if (!node || !node->name) {
        free(node);
        return NULL;
    }
    ws_node_init(&node->base, &r->base, ino);
    node->type = mode & S_IFMT;
    node->parent = remote_node_of(ws_node_ref_locked(&dir->base));
    if (r->n_nodes >= r->n_buckets) {
        grow(r);
    }
    hash_node(r, node);
    return node;
}

/* Takes the engine's number of a node; its own stays. */
static void learn_ino(struct remote *r, struct remote_node *node,
                      uint64_t theirs)
{
    if (theirs && node->theirs != theirs) {
        node->theirs = theirs;
        ws_inos_keep(&r->inos, ws_ino_shown(r->sandbox.number, theirs),
                     node->base.ino);
    }
}

void remote_node_sent(struct remote_node *node, const struct stat *now)
{
    struct remote *r = remote_tree(node);

    mutex_lock(&r->base.lock);
    learn_ino(r, node, now->st_ino);
    mutex_unlock(&r->base.lock);
}

struct remote_node *remote_node_find(struct remote_node *dir, const char *name)
{
    struct remote *r = remote_tree(dir);
    struct remote_node *node;

    mutex_lock(&r->base.lock);
    node = find(r, dir, name);
    if (node) {
        (void)ws_node_ref_locked(&node->base);
    }
    mutex_unlock(&r->base.lock);
    return node;
}

/* A number that no file has: so large that it is mixed, and no engine's. */
static uint64_t new_ino(const struct remote *r)
{
    static atomic_uint_fast64_t made;

    return ws_ino_shown(r->sandbox.number,
                        (uint64_t)3 << 62 | atomic_fetch_add(&made, 1));
}

/* The number of a file that the engine does not have yet. */
static uint64_t fresh_ino(struct remote_node *dir, const char *name)
{
    const struct remote *r = remote_tree(dir);

    return r->has_inos ? new_ino(r)
                       : ws_ino_shown(r->sandbox.number, path_ino(dir, name));
}

int remote_node_make(struct remote_node *dir, const char *name,
                     struct remote_node **out, struct err *err)
{
    struct remote *r = remote_tree(dir);
    uint64_t ino = fresh_ino(dir, name);
    struct remote_node *node;

    mutex_lock(&r->base.lock);
    node = find(r, dir, name);
    if (node && node->stage) {
        mutex_unlock(&r->base.lock);
        return err_set(err, EEXIST, "it is there");
    }
    if (node) {
        make_gone(r, node); /* The engine has removed it. */
    }
    node = new_node(r, dir, name, ino, S_IFREG);
    mutex_unlock(&r->base.lock);
    if (!node) {
        return err_no_memory(err);
    }
    *out = node;
    return 0;
}

int remote_node_meet(struct remote_node *dir, const char *name,
                     struct stat *attr, struct ws_node **out, struct err *err)
{
    struct remote *r = remote_tree(dir);
    uint64_t ino = remote_ino(dir, name, attr->st_ino);
    struct remote_node *node;
    int rc;

    mutex_lock(&r->base.lock);
    node = find(r, dir, name);
    if (node &&
        (node->type != (attr->st_mode & S_IFMT) ||
         (attr->st_ino && node->theirs && node->theirs != attr->st_ino))) {
        make_gone(r, node); /* The engine has put another file there. */
        node = NULL;
    }
    if (node) {
        (void)ws_node_ref_locked(&node->base);
    } else {
        node = new_node(r, dir, name, ino, attr->st_mode);
    }
    if (node) {
        learn_ino(r, node, attr->st_ino);
    }
    mutex_unlock(&r->base.lock);
    if (!node) {
        return err_no_memory(err);
    }
    rc = remote_show(node, attr, err);
    if (rc < 0) {
        ws_node_unref(&node->base);
        return rc;
    }
    *out = &node->base;
    return 0;
}

void remote_node_removed(struct remote_node *dir, const char *name)
{
    struct remote *r = remote_tree(dir);
    struct remote_node *node;

    mutex_lock(&r->base.lock);
    node = find(r, dir, name);
    if (node) {
        make_gone(r, node);
    }
    mutex_unlock(&r->base.lock);
}

/* Gives a node that is out of the table another path; returns the parent that
 * it had, whose reference is the caller's. */
static struct remote_node *put_at(struct remote *r, struct remote_node *node,
                                  struct remote_node *dir, char *name)
{
    struct remote_node *old = node->parent;

    free(node->name);
    node->name = name;
    node->parent = remote_node_of(ws_node_ref_locked(&dir->base));
    hash_node(r, node);
    return old;
}

void remote_node_linked(struct remote_node *node, struct remote_node *dir,
                        const char *name)
{
    struct remote *r = remote_tree(node);
    struct remote_node *old = NULL;
    struct remote_node *other;
    char *copy = strdup(name);

    mutex_lock(&r->base.lock);
    other = find(r, dir, name);
    if (other) {
        make_gone(r, other); /* What the engine had there once. */
    }
    if (copy && !node->gone) {
        unhash(r, node);
        old = put_at(r, node, dir, TAKE_PTR(copy));
    }
    mutex_unlock(&r->base.lock);
    ws_node_unref(old ? &old->base : NULL);
    free(copy);
}

void remote_node_moved(const struct ws_move *move)
{
    struct remote_node *from = remote_node_of(move->from);
    struct remote_node *to = remote_node_of(move->to);
    struct remote *r = remote_tree(from);
    bool exchange = move->flags & RENAME_EXCHANGE;
    char *old_name = strdup(move->name);
    char *new_name = strdup(move->new_name);
    struct remote_node *a, *b;
    struct remote_node *old[2] = {NULL, NULL};

    mutex_lock(&r->base.lock);
    a = find(r, from, move->name);
    b = find(r, to, move->new_name);
    if (a && b && a == b) {
        b = NULL;
    }
    if (a) {
        make_gone(r, a);
    }
    if (b) {
        make_gone(r, b);
    }
    if (a && new_name) { /* Without memory it stays gone: -ESTALE. */
        a->gone = false;
        old[0] = put_at(r, a, to, TAKE_PTR(new_name));
    }
    if (b && exchange && old_name) {
        b->gone = false;
        old[1] = put_at(r, b, from, TAKE_PTR(old_name));
    }
    mutex_unlock(&r->base.lock);
    ws_node_unref(old[0] ? &old[0]->base : NULL);
    ws_node_unref(old[1] ? &old[1]->base : NULL);
    free(old_name);
    free(new_name);
}

unsigned remote_depth(struct remote_node *node)
{
    struct remote *r = remote_tree(node);
    unsigned depth = 0;

    mutex_lock(&r->base.lock);
    while (node != &r->root && node->parent != &r->root) {
        depth++;
        node = node->parent;
    }
    mutex_unlock(&r->base.lock);
    return depth;
}
