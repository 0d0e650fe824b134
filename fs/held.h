/*
 * What the kernel holds open. It drops the releases that are on their way when
 * the mount ends, so what is left is freed then. Thread-safe.
 */
#ifndef SESSIONFS_HELD_H
#define SESSIONFS_HELD_H

#include "core/list.h"

struct held_set;

/* Part of an open file. */
struct held {
    struct list link;
    void (*drop)(struct held *held); /* Frees the file. */
};

/** @return an empty set, or NULL without memory */
struct held_set *held_new(void);

/** @param set freed, empty; NULL is fine */
void held_free(struct held_set *set);

/**
 * Adds a file, before the kernel is told of it.
 *
 * @param set  the mount's
 * @param held drop is set
 */
void held_add(struct held_set *set, struct held *held);

/**
 * Takes a file out: the kernel has released it, or was never told.
 *
 * @param set  the mount's
 * @param held as added
 */
void held_remove(struct held_set *set, struct held *held);

/**
 * Drops all files. No request is in progress.
 *
 * @param set empty afterwards
 */
void held_clear(struct held_set *set);

#endif
