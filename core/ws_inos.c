/*
 * Inode numbers that are shown in place of others. See ws_inos.h.
 */
#include "core/ws_inos.h"

#include "core/compiler.h"
#include "core/list.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

enum {
    BUCKETS = 4096,     /* A power of two. */
    INOS_MOST = 131072, /* About 60 bytes each. */
};

/* By what they are found. */
enum by {
    THEIRS,
    SHOWN,
    BOTH,
};

struct ino {
    struct ino *next[BOTH]; /* Of a bucket. */
    struct list link;       /* In order of their coming. */
    uint64_t n[BOTH];       /* They differ. */
};

/* All that is shown for something is a number of something else that is here:
 * what is not here is shown as it is. */
struct ws_inos {
    struct list all;
    size_t n;
    struct ino *buckets[BOTH][BUCKETS];
};

static struct ino **bucket(struct ws_inos *inos, enum by by, uint64_t n)
{
    return &inos->buckets[by][(n ^ n >> 32) & (BUCKETS - 1)];
}

static struct ino *find(struct ws_inos *inos, enum by by, uint64_t n)
{
    struct ino *ino = inos ? *bucket(inos, by, n) : NULL;

    while (ino && ino->n[by] != n) {
        ino = ino->next[by];
    }
    return ino;
}

/* The other number of one. */
static uint64_t other(struct ws_inos *inos, enum by by, uint64_t n)
{
    const struct ino *ino = find(inos, by, n);

    return ino ? ino->n[by == THEIRS ? SHOWN : THEIRS] : n;
}

static void unhash(struct ws_inos *inos, struct ino *ino, enum by by)
{
    struct ino **at = bucket(inos, by, ino->n[by]);

    while (*at != ino) {
        at = &(*at)->next[by];
    }
    *at = ino->next[by];
}

static void hash(struct ws_inos *inos, struct ino *ino, enum by by)
{
    struct ino **at = bucket(inos, by, ino->n[by]);

    ino->next[by] = *at;
    *at = ino;
}

static void add(struct ws_inos *inos, struct ino *ino, uint64_t theirs)
{
    /* Until it is shown as something, as nothing. */
    ino->n[THEIRS] = theirs;
    ino->n[SHOWN] = theirs;
    hash(inos, ino, THEIRS);
    hash(inos, ino, SHOWN);
    list_add(&inos->all, &ino->link);
    inos->n++;
}

static void drop(struct ws_inos *inos, struct ino *ino)
{
    unhash(inos, ino, THEIRS);
    unhash(inos, ino, SHOWN);
    list_remove(&ino->link);
    inos->n--;
    free(ino);
}

/* Each shows what the other did. */
static void swap(struct ws_inos *inos, struct ino *a, struct ino *b)
{
    const uint64_t shown = a->n[SHOWN];

    unhash(inos, a, SHOWN);
    unhash(inos, b, SHOWN);
    a->n[SHOWN] = b->n[SHOWN];
    b->n[SHOWN] = shown;
    hash(inos, a, SHOWN);
    hash(inos, b, SHOWN);
}

static void drop_same(struct ws_inos *inos, struct ino *ino)
{
    if (ino->n[THEIRS] == ino->n[SHOWN]) {
        drop(inos, ino);
    }
}

/* What is forgotten is shown as it is again. */
static void forget(struct ws_inos *inos, struct ino *ino)
{
    struct ino *in_place = find(inos, SHOWN, ino->n[THEIRS]);

    assert(in_place); /* It is one to one. */
    swap(inos, ino, in_place);
    drop_same(inos, in_place);
    drop(inos, ino);
}

void ws_inos_free(struct ws_inos *inos)
{
    while (inos && !list_empty(&inos->all)) {
        drop(inos, container_of(inos->all.next, struct ino, link));
    }
    free(inos);
}

uint64_t ws_inos_shown(struct ws_inos *inos, uint64_t theirs)
{
    return other(inos, THEIRS, theirs);
}

static struct ws_inos *make(void)
{
    struct ws_inos *inos = calloc(1, sizeof(*inos));

    if (inos) {
        list_init(&inos->all);
    }
    return inos;
}

/* Finds one, or makes it. */
static struct ino *take(struct ws_inos *inos, uint64_t theirs)
{
    struct ino *ino = find(inos, THEIRS, theirs);

    if (!ino) {
        ino = calloc(1, sizeof(*ino));
        if (ino) {
            list_init(&ino->link);
            add(inos, ino, theirs);
        }
    }
    return ino;
}

void ws_inos_keep(struct ws_inos **inos, uint64_t theirs, uint64_t shown)
{
    struct ino *ino;
    struct ino *in_place;

    if (!*inos) {
        *inos = make();
    }
    if (!*inos || ws_inos_shown(*inos, theirs) == shown) {
        return;
    }
    while ((*inos)->n + 2 > INOS_MOST) {
        forget(*inos, container_of((*inos)->all.next, struct ino, link));
    }
    in_place = take(*inos, other(*inos, SHOWN, shown));
    ino = in_place ? take(*inos, theirs) : NULL;
    if (ino) {
        swap(*inos, ino, in_place);
        drop_same(*inos, ino);
    }
    if (in_place) {
        drop_same(*inos, in_place);
    }
}
