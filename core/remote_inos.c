/*
 * Inode numbers that are not the engine's: a file that is made here has one
 * before the engine has it, and keeps it then. The oldest are forgotten.
 */
#include "core/workspace_remote.h"

#include <stdlib.h>

enum {
    BUCKETS = 1024,    /* A power of two. */
    INOS_MOST = 65536, /* About 50 bytes each. */
};

struct remote_ino {
    struct remote_ino *next; /* Of a bucket. */
    struct list link;        /* In order of their coming. */
    uint64_t theirs, shown;
};

struct remote_inos {
    struct list all;
    size_t n;
    struct remote_ino *buckets[BUCKETS];
};

static struct remote_ino **bucket(struct remote_inos *inos, uint64_t theirs)
{
    return &inos->buckets[(theirs ^ theirs >> 32) & (BUCKETS - 1)];
}

static void drop(struct remote_inos *inos, struct remote_ino *ino)
{
    struct remote_ino **at = bucket(inos, ino->theirs);

    while (*at != ino) {
        at = &(*at)->next;
    }
    *at = ino->next;
    list_remove(&ino->link);
    inos->n--;
    free(ino);
}

void remote_inos_free(struct remote_inos *inos)
{
    while (inos && !list_empty(&inos->all)) {
        drop(inos, container_of(inos->all.next, struct remote_ino, link));
    }
    free(inos);
}

static struct remote_ino *find(struct remote_inos *inos, uint64_t theirs)
{
    struct remote_ino *ino = inos ? *bucket(inos, theirs) : NULL;

    while (ino && ino->theirs != theirs) {
        ino = ino->next;
    }
    return ino;
}

uint64_t remote_ino_shown(const struct remote *r, uint64_t theirs)
{
    const struct remote_ino *ino = find(r->inos, theirs);

    return ino ? ino->shown : ws_ino_shown(r->sandbox.number, theirs);
}

uint64_t remote_ino_new(const struct remote *r)
{
    static atomic_uint_fast64_t made;

    /* So large that it is mixed, and no engine's number. */
    return ws_ino_shown(r->sandbox.number,
                        (uint64_t)3 << 62 | atomic_fetch_add(&made, 1));
}

void remote_ino_keep(struct remote *r, uint64_t theirs, uint64_t shown)
{
    struct remote_ino *ino = find(r->inos, theirs);
    struct remote_ino **at;

    if (ino) {
        ino->shown = shown;
        return;
    }
    if (ws_ino_shown(r->sandbox.number, theirs) == shown) {
        return;
    }
    if (!r->inos) {
        r->inos = calloc(1, sizeof(*r->inos));
        if (!r->inos) {
            return;
        }
        list_init(&r->inos->all);
    }
    ino = calloc(1, sizeof(*ino));
    if (!ino) {
        return;
    }
    if (r->inos->n == INOS_MOST) {
        drop(r->inos, container_of(r->inos->all.next, struct remote_ino, link));
    }
    at = bucket(r->inos, theirs);
    ino->theirs = theirs;
    ino->shown = shown;
    ino->next = *at;
    *at = ino;
    list_add(&r->inos->all, &ino->link);
    r->inos->n++;
}
