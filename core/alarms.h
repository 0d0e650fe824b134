/*
 * A list whose entries are looked at when it is time, with one timer for all
 * of them. All of it belongs to the loop's thread.
 */
#ifndef SESSIONFS_ALARMS_H
#define SESSIONFS_ALARMS_H

#include "core/list.h"
#include "core/loop.h"

#include <stdbool.h>

/**
 * Does what is due for an entry. It may take that out of its list, no other.
 *
 * @param entry of the list
 * @return when to look again, as clock_ms(); DEADLINE_NONE: never
 */
typedef int64_t alarms_look_fn(struct list *entry);

struct alarms {
    struct list entries;
    struct loop *loop;
    struct loop_timer *timer; /* NULL: not yet. */
    int64_t at_ms;            /* When it fires; DEADLINE_NONE: never. */
    alarms_look_fn *look;
};

/**
 * Makes an empty list; in any thread.
 *
 * @param alarms written
 * @param loop   the loop
 * @param look   called for each entry when the first of them is due
 */
void alarms_init(struct alarms *alarms, struct loop *loop,
                 alarms_look_fn *look);

/**
 * Adds an entry, which list_remove() takes out.
 *
 * @param alarms where
 * @param entry  in no other list
 * @param due_ms when to look at it
 * @return false: it is in the list already, or there is no timer
 */
MUST_USE bool alarms_add(struct alarms *alarms, struct list *entry,
                         int64_t due_ms);

/** @param alarms empty; its timer ends */
void alarms_done(struct alarms *alarms);

#endif
