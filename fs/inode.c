/* The table of inodes: a growing hash over keys. See inode.h. */
#include "fs/inode.h"

#include "core/list.h"
#include "core/mutex.h"
#include "core/session.h"

#include <assert.h>
#include <stdlib.h>

enum {
    BUCKETS_MIN = 1024,
    TOLD_LISTS = 64,
};

struct inode {
    struct inode *next;   /* In its bucket; by the table's lock, */
    uint64_t lookups;     /* and this. */
    struct inode_key key; /* Constant; holds references. */
    /* Lookups, references and open files. The last is given back with the
     * table's lock held, so that what is found there stays. */
    atomic_ullong holds;
    atomic_ullong opens;

    atomic_bool told;
    struct list told_link; /* By the lock of the list that it is in. */
    atomic_ulong kept;
    struct kernel_backing backing;
};

/* Inodes that the kernel was told of, of one session among others. */
struct told {
    struct mutex lock;
    struct list list GUARDED; /* by lock */
};

struct inode_table {
    struct kernel *kernel;
    struct mutex lock;
    struct inode **buckets GUARDED; /* by lock */
    size_t size GUARDED;            /* by lock */
    size_t count GUARDED;           /* by lock */
    struct told told[TOLD_LISTS];
    struct inode root; /* Never in a bucket, never freed. */
};

struct inode_table *inode_table_new(const struct inode_key *root,
                                    struct kernel *kernel)
{
    struct inode_table *table = calloc(1, sizeof(*table));
    struct inode **buckets = calloc(BUCKETS_MIN, sizeof(struct inode *));

    if (!table || !buckets) {
        free(table);
        free(buckets);
        return NULL;
    }
    mutex_init(&table->lock);
    for (size_t i = 0; i < TOLD_LISTS; i++) {
        mutex_init(&table->told[i].lock);
        list_init(&table->told[i].list);
    }
    list_init(&table->root.told_link);
    table->kernel = kernel;
    table->root.key = *root;
    table->buckets = buckets;
    table->size = BUCKETS_MIN;
    return table;
}

static struct told *told_of(struct inode_table *table,
                            const struct session *session)
{
    uint64_t h = (uint64_t)(uintptr_t)session * 0x9e3779b97f4a7c15U;

    return &table->told[h >> 32 & (TOLD_LISTS - 1)];
}

static void untell(struct inode_table *table, struct inode *inode)
{
    struct told *told = told_of(table, inode->key.session);

    if (atomic_load(&inode->told)) {
        mutex_lock(&told->lock);
        list_remove(&inode->told_link);
        mutex_unlock(&told->lock);
    }
}

static void free_inode(struct inode_table *table, struct inode *inode)
{
    if (inode) {
        untell(table, inode);
        kernel_pass_end(table->kernel, &inode->backing);
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

    if (inode == &table->root || atomic_load(&inode->holds)) {
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
            (void)atomic_fetch_sub(&inode->holds,
                                   inode->lookups +
                                       atomic_exchange(&inode->opens, 0));
            inode->lookups = 0;
            if (atomic_load(&inode->holds)) {
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

        free_inode(table, dead);
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
    for (size_t i = 0; i < TOLD_LISTS; i++) {
        mutex_done(&table->told[i].lock);
    }
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

static struct inode *find_locked(struct inode_table *table,
                                 const struct inode_key *key)
    REQUIRES(table->lock)
{
    struct inode *inode = *bucket_of(table, key);

    while (inode && !same_key(&inode->key, key)) {
        inode = inode->next;
    }
    return inode;
}

fuse_ino_t inode_peek(struct inode_table *table, const struct inode_key *key)
{
    const struct inode *inode;

    mutex_lock(&table->lock);
    inode = find_locked(table, key);
    mutex_unlock(&table->lock);
    return inode ? inode_number(inode) : 0;
}

static struct inode *look_up_locked(struct inode_table *table,
                                    const struct inode_key *key)
    REQUIRES(table->lock)
{
    struct inode **at = bucket_of(table, key);
    struct inode *inode = find_locked(table, key);

    if (inode) {
        inode->lookups++;
        (void)atomic_fetch_add(&inode->holds, 1);
        return inode;
    }
    inode = calloc(1, sizeof(*inode));
    if (!inode) {
        return NULL;
    }
    list_init(&inode->told_link);
    inode->key = *key;
    if (key->session) {
        session_ref(key->session);
    }
    if (key->ws) {
        ws_node_ref(key->ws);
    }
    inode->lookups = 1;
    atomic_init(&inode->holds, 1);
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
    count = count < inode->lookups ? count : inode->lookups;
    inode->lookups -= count;
    (void)atomic_fetch_sub(&inode->holds, count);
    dead = reap(table, inode);
    fit(table);
    mutex_unlock(&table->lock);
    free_inode(table, dead);
}

struct inode *inode_ref(struct inode_table *table, struct inode *inode)
{
    (void)table;
    (void)atomic_fetch_add(&inode->holds, 1);
    return inode;
}

/* Gives one of several holds back; false where it may be the last. */
static bool drop_one(struct inode *inode)
{
    unsigned long long holds = atomic_load(&inode->holds);

    while (holds > 1) {
        if (atomic_compare_exchange_weak(&inode->holds, &holds, holds - 1)) {
            return true;
        }
    }
    return false;
}

void inode_unref(struct inode_table *table, struct inode *inode)
{
    struct inode *dead;

    if (!inode || drop_one(inode)) {
        return;
    }
    mutex_lock(&table->lock);
    assert(atomic_load(&inode->holds));
    (void)atomic_fetch_sub(&inode->holds, 1);
    dead = reap(table, inode);
    mutex_unlock(&table->lock);
    free_inode(table, dead);
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
    (void)inode_ref(table, inode);
    (void)atomic_fetch_add(&inode->opens, 1);
}

void inode_closed(struct inode_table *table, struct inode *inode)
{
    unsigned long long before = atomic_fetch_sub(&inode->opens, 1);

    assert(before);
    inode_unref(table, inode);
}

struct kernel_backing *inode_backing(struct inode *inode)
{
    return &inode->backing;
}

unsigned long inode_set_kept(struct inode *inode, unsigned long kept)
{
    return atomic_exchange(&inode->kept, kept);
}

void inode_tell(struct inode_table *table, struct inode *inode)
{
    struct told *told = told_of(table, inode->key.session);

    if (!inode->key.session || atomic_load(&inode->told)) {
        return;
    }
    mutex_lock(&told->lock);
    if (!atomic_exchange(&inode->told, true)) {
        list_add(&told->list, &inode->told_link);
    }
    mutex_unlock(&told->lock);
}

static size_t count_told(const struct told *told, const struct session *session)
    REQUIRES(told->lock)
{
    size_t n = 0;

    list_each(at, &told->list)
    {
        n += container_of(at, struct inode, told_link)->key.session == session;
    }
    return n;
}

size_t inode_take_told(struct inode_table *table, const struct session *session,
                       fuse_ino_t **out)
{
    struct told *told = told_of(table, session);
    fuse_ino_t *numbers = NULL;
    size_t n;
    size_t i = 0;

    mutex_lock(&told->lock);
    n = count_told(told, session);
    if (n) {
        numbers = calloc(n, sizeof(*numbers));
    }
    if (numbers) {
        list_each_safe(at, &told->list)
        {
            struct inode *inode = container_of(at, struct inode, told_link);

            if (inode->key.session == session) {
                numbers[i++] = inode_number(inode);
                list_remove(&inode->told_link);
                atomic_store(&inode->told, false);
            }
        }
    }
    mutex_unlock(&told->lock);
    *out = numbers;
    return i;
}

void inode_leave(struct inode_table *table, const struct inode_key *key)
{
    struct inode *inode;

    mutex_lock(&table->lock);
    inode = find_locked(table, key);
    if (inode) {
        (void)inode_ref(table, inode);
    }
    mutex_unlock(&table->lock);
    if (inode) {
        kernel_pass_leave(table->kernel, &inode->backing);
        inode_unref(table, inode);
    }
}

/* Trees of checkpoints stay as they are. */
void inode_unpass(struct inode_table *table, const struct session *session)
{
    mutex_lock(&table->lock);
    for (size_t i = 0; i < table->size; i++) {
        for (struct inode *at = table->buckets[i]; at; at = at->next) {
            if (at->key.session == session && at->key.ws &&
                !ws_fixed(ws_node_tree(at->key.ws))) {
                kernel_pass_end(table->kernel, &at->backing);
            }
        }
    }
    mutex_unlock(&table->lock);
}
