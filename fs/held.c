/* What the kernel holds open. See held.h. */
#include "fs/held.h"

#include "core/mutex.h"

#include <stdlib.h>

struct held_set {
    struct mutex lock;
    struct list all GUARDED; /* by lock: of struct held. */
};

struct held_set *held_new(void)
{
    struct held_set *set = calloc(1, sizeof(*set));

    if (set) {
        mutex_init(&set->lock);
        list_init(&set->all);
    }
    return set;
}

void held_free(struct held_set *set)
{
    if (set) {
        mutex_done(&set->lock);
        free(set);
    }
}

void held_add(struct held_set *set, struct held *held)
{
    mutex_lock(&set->lock);
    list_add(&set->all, &held->link);
    mutex_unlock(&set->lock);
}

void held_remove(struct held_set *set, struct held *held)
{
    mutex_lock(&set->lock);
    list_remove(&held->link);
    mutex_unlock(&set->lock);
}

static struct held *take(struct held_set *set)
{
    struct list *node;

    mutex_lock(&set->lock);
    node = list_pop(&set->all);
    mutex_unlock(&set->lock);
    return node ? container_of(node, struct held, link) : NULL;
}

void held_clear(struct held_set *set)
{
    struct held *held = take(set);

    while (held) {
        held->drop(held);
        held = take(set);
    }
}
