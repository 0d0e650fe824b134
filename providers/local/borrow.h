/*
 * A child that borrows its parent's memory until it runs a program, as one of
 * vfork() does, but born as clone3() can: libc has no call for both. No page
 * table is copied for it.
 */
#ifndef SESSIONFS_LOCAL_BORROW_H
#define SESSIONFS_LOCAL_BORROW_H

#include <linux/sched.h>
#include <stdbool.h>
#include <sys/types.h>

/** Runs in the child. What it changes in memory the parent sees. Never returns
 *  @param arg of the call */
typedef void borrow_fn(void *arg);

/** @return whether a child that changes its ids may: not where this machine
 *  lets others look into the memory of such (fs.suid_dumpable is 1) */
bool borrow_is_safe(void);

/**
 * Makes a child, and returns once it has run a program or ended. On machines
 * whose stack we do not know the child has a copy of the memory, and this
 * returns at once.
 *
 * @param args  what it is besides; CLONE_VM and CLONE_VFORK are added
 * @param child called in it
 * @param arg   given to child
 * @return its pid, or -1 with errno
 */
pid_t borrow_clone(struct clone_args *args, borrow_fn *child, void *arg);

#endif
