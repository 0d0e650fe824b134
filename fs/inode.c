/* The table of inodes: a growing hash over keys. See inode.h. */
#include "fs/inode.h"

#include "core/list.h"
#include "core/mutex.h"
#include "core/session.h"

#include <assert.h>
#include <stdlib.h>

enum {
    BUCKETS_MIN = 1024
};

struct inode {
    struct inode *next; /* In its bucket; by the table's lock, as all below. */
    struct list open_link; /* In table->open while opens is not 0. */
    struct inode_key key;  /* Constant; holds references. */
    uint64_t lookups;
    uint64_t refs;
    uint64_t opens; /* Each is counted in refs too. */
};

struct inode_table {
    struct mutex lock;
    struct inode **buckets GUARDED; /* by lock */
    size_t size GUARDED;            /* by lock */
    size_t count GUARDED;           /* by lock */
    struct list open GUARDED;       /* by lock */
    struct inode root;              /* Never in a bucket, never freed. */
};

struct inode_table *inode_table_new(const struct inode_key *root)
{
    struct inode_table *table = calloc(1, sizeof(*table));
    struct inode **buckets = calloc(BUCKETS_MIN, sizeof(struct inode *));

    if (!table || !buckets) {
        free(table);
        free(buckets);
        return NULL;
    }
    mutex_init(&table->lock);
    list_init(&table->open);
    list_init(&table->root.open_link);
    table->root.key = *root;
    table->buckets = buckets;
    table->size = BUCKETS_MIN;
    return table;
}

static void free_inode(struct inode *inode)
{
    if (inode) {
        ws_node_unref(inode->key.ws);
        session_unref(inode->key.session);
        free(inode);
    }
}

static bool same_key(const struct inode_key *a, const struct inode_key *b)
{
    return a->row == b->row && a->session == b->session &&
           a->exec_n == b->exec_n && a->begin == b->begin && a->ws == b->ws;
}

static size_t hash_key(const struct inode_key *key)
{
    uint64_t h = (uint64_t)(uintptr_t)key->row;

    h = (h ^ (uint64_t)(uintptr_t)key->session) * 0x9e3779b97f4a7c15U;
    h = (h ^ (h >> 29) ^ key->exec_n ^ key->begin) * 0xbf58476d1ce4e5b9U;
    h = (h ^ (h >> 32) ^ (uint64_t)(uintptr_t)key->ws) * 0x94d049bb133111ebU;
    return (size_t)(h ^ (h >> 31));
}

static struct inode **bucket_of(struct inode_table *table,
                                const struct inode_key *key)
    REQUIRES(table->lock)
{
    return &table->buckets[hash_key(key) & (table->size - 1)];
}

/* Unlinks and returns an inode that nobody holds; NULL while one is held. */
static struct inode *reap(struct inode_table *table, struct inode *inode)
    REQUIRES(table->lock)
{
    struct inode **at;

    if (inode == &table->root || inode->lookups || inode->refs) {
        return NULL;
    }
    at = bucket_of(table, &inode->key);
    while (*at != inode) {
        at = &(*at)->next;
    }
    *at = inode->next;
    table->count--;
    return inode;
}

/* Makes room; without memory the buckets just get longer. Shrinking too, so
 * that a walk over a large tree leaves nothing behind. */
static void resize(struct inode_table *table, size_t size) REQUIRES(table->lock)
{
    struct inode **old = table->buckets;
    size_t old_size = table->size;
    struct inode **buckets = calloc(size, sizeof(struct inode *));

    if (!buckets) {
        return;
    }
    table->buckets = buckets;
    table->size = size;
    for (size_t i = 0; i < old_size; i++) {
        while (old[i]) {
            struct inode *inode = old[i];
            struct inode **at = bucket_of(table, &inode->key);

            old[i] = inode->next;
            inode->next = *at;
            *at = inode;
        }
    }
    free(old);
}

static void fit(struct inode_table *table) REQUIRES(table->lock)
{
    if (table->count > table->size) {
        resize(table, table->size * 2);
    } else if (table->size > BUCKETS_MIN && table->count < table->size / 8) {
        resize(table, table->size / 2);
    }
}

void inode_table_clear(struct inode_table *table)
{
    struct inode *dead = NULL;

    mutex_lock(&table->lock);
    for (size_t i = 0; i < table->size; i++) {
        struct inode **at = &table->buckets[i];

        while (*at) {
            struct inode *inode = *at;

            /* Open files whose RELEASE the kernel dropped count no more. */
            inode->lookups = 0;
            inode->refs -= inode->opens;
            inode->opens = 0;
            list_remove(&inode->open_link);
            if (inode->refs) {
                at = &inode->next;
                continue;
            }
            *at = inode->next;
            inode->next = dead;
            dead = inode;
            table->count--;
        }
    }
    mutex_unlock(&table->lock);
    while (dead) {
        struct inode *next = dead->next;

        free_inode(dead);
        dead = next;
    }
}

void inode_table_free(struct inode_table *table)
{
    if (!table) {
        return;
    }
    inode_table_clear(table);
    free(table->buckets);
    mutex_done(&table->lock);
    free(table);
}

uint64_t inode_count(struct inode_table *table)
{
    uint64_t n;

    mutex_lock(&table->lock);
    n = table->count;
    mutex_unlock(&table->lock);
    return n;
}

struct inode *inode_find(struct inode_table *table, fuse_ino_t ino)
{
    if (ino == FUSE_ROOT_ID) {
        return &table->root;
    }
    return (struct inode *)(uintptr_t)ino;
}

static struct inode *look_up_locked(struct inode_table *table,
                                    const struct inode_key *key)
    REQUIRES(table->lock)
{
    struct inode **at = bucket_of(table, key);
    struct inode *inode = *at;

    while (inode && !same_key(&inode->key, key)) {
        inode = inode->next;
    }
    if (inode) {
        inode->lookups++;
        return inode;
    }
    inode = calloc(1, sizeof(*inode));
    if (!inode) {
        return NULL;
    }
    list_init(&inode->open_link);
    inode->key = *key;
    if (key->session) {
        session_ref(key->session);
    }
    if (key->ws) {
        ws_node_ref(key->ws);
    }
    inode->lookups = 1;
    inode->next = *at;
    *at = inode;
    table->count++;
    fit(table);
    return inode;
}

struct inode *inode_look_up(struct inode_table *table,
                            const struct inode_key *key)
{
    struct inode *inode;

    mutex_lock(&table->lock);
    inode = look_up_locked(table, key);
    mutex_unlock(&table->lock);
    return inode;
}

void inode_forget(struct inode_table *table, struct inode *inode,
                  uint64_t count)
{
    struct inode *dead;

    mutex_lock(&table->lock);
    inode->lookups -= count < inode->lookups ? count : inode->lookups;
    dead = reap(table, inode);
    fit(table);
    mutex_unlock(&table->lock);
    free_inode(dead);
}

struct inode *inode_ref(struct inode_table *table, struct inode *inode)
{
    mutex_lock(&table->lock);
    inode->refs++;
    mutex_unlock(&table->lock);
    return inode;
}

void inode_unref(struct inode_table *table, struct inode *inode)
{
    struct inode *dead;

    if (!inode) {
        return;
    }
    mutex_lock(&table->lock);
    assert(inode->refs);
    inode->refs--;
    dead = reap(table, inode);
    mutex_unlock(&table->lock);
    free_inode(dead);
}

const struct inode_key *inode_key(const struct inode *inode)
{
    return &inode->key;
}

fuse_ino_t inode_number(const struct inode *inode)
{
    return (fuse_ino_t)(uintptr_t)inode;
}

void inode_opened(struct inode_table *table, struct inode *inode)
{
    mutex_lock(&table->lock);
    inode->refs++;
    if (inode->opens++ == 0) {
        list_add(&table->open, &inode->open_link);
    }
    mutex_unlock(&table->lock);
}

void inode_closed(struct inode_table *table, struct inode *inode)
{
    mutex_lock(&table->lock);
    assert(inode->opens);
    if (--inode->opens == 0) {
        list_remove(&inode->open_link);
    }
    mutex_unlock(&table->lock);
    inode_unref(table, inode);
}

static size_t count_open(struct inode_table *table,
                         const struct session *session) REQUIRES(table->lock)
{
    size_t n = 0;

    list_each(at, &table->open)
    {
        n += container_of(at, struct inode, open_link)->key.session == session;
    }
    return n;
}

size_t inode_open_numbers(struct inode_table *table,
                          const struct session *session, fuse_ino_t **out)
{
    fuse_ino_t *numbers = NULL;
    size_t n;
    size_t i = 0;

    mutex_lock(&table->lock);
    n = count_open(table, session);
    if (n) {
        numbers = calloc(n, sizeof(*numbers));
    }
    if (numbers) {
        list_each(at, &table->open)
        {
            struct inode *inode = container_of(at, struct inode, open_link);

            if (inode->key.session == session) {
                numbers[i++] = inode_number(inode);
            }
        }
    }
    mutex_unlock(&table->lock);
    *out = numbers;
    return i;
}
