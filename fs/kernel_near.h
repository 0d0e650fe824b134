/*
 * Requests that come by the connection's file are handled on the CPU of the
 * thread that sends them, as rings have it by themselves: to wake another CPU
 * takes longer than most requests. Only while one thread alone sends, and no
 * data. Private to fs/kernel*.c.
 */
#ifndef SESSIONFS_KERNEL_NEAR_H
#define SESSIONFS_KERNEL_NEAR_H

#include "fs/kernel_wire.h"

#include <stdatomic.h>
#include <stdbool.h>

struct kernel_near {
    atomic_uint tid;    /* Who sent the last request, */
    atomic_uint streak; /* and so many before it. */
    atomic_int cpu;     /* Where it runs; -1: handled anywhere. */
    atomic_llong looked_ms;
};

/** @param near written */
void kernel_near_init(struct kernel_near *near);

/**
 * Binds the calling thread to where a request comes from, or frees it.
 *
 * @param near of the connection
 * @param head of the request that the thread has read
 */
void kernel_near_follow(struct kernel_near *near, const struct wire_in *head);

/** @param unique of a request @return whether the calling thread has read it
 *  last, where it was made, and somebody waits for the answer */
bool kernel_near_waits(uint64_t unique);

#endif
