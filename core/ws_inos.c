/*
 * Inode numbers that are shown in place of others. See ws_inos.h.
 */
#include "core/ws_inos.h"

#include "core/compiler.h"
#include "core/list.h"

#include <stdlib.h>

enum {
    BUCKETS = 1024,    /* A power of two. */
    INOS_MOST = 65536, /* About 50 bytes each. */
};

struct ino {
    struct ino *next; /* Of a bucket. */
    struct list link; /* In order of their coming. */
    uint64_t theirs, shown;
};

struct ws_inos {
    struct list all;
    size_t n;
    struct ino *buckets[BUCKETS];
};

static size_t index_of(uint64_t theirs)
{
    return (theirs ^ theirs >> 32) & (BUCKETS - 1);
}

static struct ino **bucket(struct ws_inos *inos, uint64_t theirs)
{
    return &inos->buckets[index_of(theirs)];
}

static void drop(struct ws_inos *inos, struct ino *ino)
{
    struct ino **at = bucket(inos, ino->theirs);

    while (*at != ino) {
        at = &(*at)->next;
    }
    *at = ino->next;
    list_remove(&ino->link);
    inos->n--;
    free(ino);
}

void ws_inos_free(struct ws_inos *inos)
{
    while (inos && !list_empty(&inos->all)) {
        drop(inos, container_of(inos->all.next, struct ino, link));
    }
    free(inos);
}

static struct ino *find(const struct ws_inos *inos, uint64_t theirs)
{
    struct ino *ino = inos ? inos->buckets[index_of(theirs)] : NULL;

    while (ino && ino->theirs != theirs) {
        ino = ino->next;
    }
    return ino;
}

uint64_t ws_inos_shown(const struct ws_inos *inos, uint64_t theirs,
                       uint64_t none)
{
    const struct ino *ino = find(inos, theirs);

    return ino ? ino->shown : none;
}

void ws_inos_keep(struct ws_inos **inos, uint64_t theirs, uint64_t shown)
{
    struct ino *ino = find(*inos, theirs);
    struct ino **at;

    if (ino) {
        ino->shown = shown;
        return;
    }
    if (!*inos) {
        *inos = calloc(1, sizeof(**inos));
        if (!*inos) {
            return;
        }
        list_init(&(*inos)->all);
    }
    ino = calloc(1, sizeof(*ino));
    if (!ino) {
        return;
    }
    if ((*inos)->n == INOS_MOST) {
        drop(*inos, container_of((*inos)->all.next, struct ino, link));
    }
    at = bucket(*inos, theirs);
    ino->theirs = theirs;
    ino->shown = shown;
    ino->next = *at;
    *at = ino;
    list_add(&(*inos)->all, &ino->link);
    (*inos)->n++;
}
