/* What the kernel holds open. See held.h. */
#include "fs/held.h"

#include "core/mutex.h"

#include <stdint.h>
#include <stdlib.h>

enum {
    PARTS = 16 /* So that threads seldom want the same lock. */
};

struct part {
    struct mutex lock;
    struct list all GUARDED; /* by lock: of struct held. */
};

struct held_set {
    struct part parts[PARTS];
};

struct held_set *held_new(void)
{
    struct held_set *set = calloc(1, sizeof(*set));

    for (size_t i = 0; set && i < PARTS; i++) {
        mutex_init(&set->parts[i].lock);
        list_init(&set->parts[i].all);
    }
    return set;
}

static struct part *part_of(struct held_set *set, const struct held *held)
{
    uint64_t h = (uint64_t)(uintptr_t)held * 0x9e3779b97f4a7c15U;

    return &set->parts[h >> 32 & (PARTS - 1)];
}

void held_free(struct held_set *set)
{
    for (size_t i = 0; set && i < PARTS; i++) {
        mutex_done(&set->parts[i].lock);
    }
    free(set);
}

void held_add(struct held_set *set, struct held *held)
{
    struct part *part = part_of(set, held);

    mutex_lock(&part->lock);
    list_add(&part->all, &held->link);
    mutex_unlock(&part->lock);
}

void held_remove(struct held_set *set, struct held *held)
{
    struct part *part = part_of(set, held);

    mutex_lock(&part->lock);
    list_remove(&held->link);
    mutex_unlock(&part->lock);
}

static struct held *take(struct part *part)
{
    struct list *node;

    mutex_lock(&part->lock);
    node = list_pop(&part->all);
    mutex_unlock(&part->lock);
    return node ? container_of(node, struct held, link) : NULL;
}

void held_clear(struct held_set *set)
{
    for (size_t i = 0; i < PARTS; i++) {
        struct held *held = take(&set->parts[i]);

        while (held) {
            held->drop(held);
            held = take(&set->parts[i]);
        }
    }
}
