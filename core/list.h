/* A circular doubly linked list; nodes live inside the objects they link. */
#ifndef SESSIONFS_LIST_H
#define SESSIONFS_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next;
    struct list *prev;
};

static inline void list_init(struct list *list)
{
    list->next = list;
    list->prev = list;
}

static inline bool list_empty(const struct list *list)
{
    return list->next == list;
}

/* Inserts before `at`: at the tail when `at` is the head. */
static inline void list_add(struct list *at, struct list *node)
{
    node->prev = at->prev;
    node->next = at;
    at->prev->next = node;
    at->prev = node;
}

/* Unlinks; a node that is in no list (list_init) may be removed again. */
static inline void list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

/* Takes the first node, or NULL. */
static inline struct list *list_pop(struct list *list)
{
    struct list *node = list->next;

    if (node == list) {
        return NULL;
    }
    list_remove(node);
    return node;
}

#define list_each(pos, head)                                                   \
    for (struct list *pos = (head)->next; pos != (head); pos = pos->next)

/* Allows the removal of the current node. */
#define list_each_safe(pos, head)                                              \
    for (struct list *pos = (head)->next, *pos##_next = pos->next;             \
         pos != (head); pos = pos##_next, pos##_next = pos->next)

#endif
