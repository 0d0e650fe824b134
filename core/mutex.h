/*
 * A mutex that clang's thread-safety analysis knows.
 *
 * Lock order: those of fs -> registry -> session -> exec -> a command's output.
 * The locks of the store, of a provider, of a workspace, of workers and of the
 * loop are leaves. No lock is held across a provider call, a callback or a FUSE
 * notification. A public function locks, calls its `_locked` twin, unlocks.
 */
#ifndef SESSIONFS_MUTEX_H
#define SESSIONFS_MUTEX_H

#include "core/compiler.h"

#include <pthread.h>
#include <stdint.h>

struct CAPABILITY("mutex") mutex {
    pthread_mutex_t native;
};

#define MUTEX_INIT                                                             \
    {                                                                          \
        PTHREAD_MUTEX_INITIALIZER                                              \
    }

/* A condition; waits are timed on the monotonic clock. */
struct cond {
    pthread_cond_t native;
};

/** @param mutex written */
void mutex_init(struct mutex *mutex);
/** @param mutex not held by anybody */
void mutex_done(struct mutex *mutex);
/** @param mutex taken; aborts on misuse */
void mutex_lock(struct mutex *mutex) ACQUIRE(*mutex);
/** @param mutex given back */
void mutex_unlock(struct mutex *mutex) RELEASE(*mutex);

/** @param cond written */
void cond_init(struct cond *cond);
/** @param cond without waiters */
void cond_done(struct cond *cond);
/** @param cond all its waiters wake */
void cond_broadcast(struct cond *cond);

/**
 * Waits for a broadcast; may wake without one.
 *
 * @param cond        the condition
 * @param mutex       held; given up while waiting
 * @param deadline_ms clock_ms() at which to give up, DEADLINE_NONE for never
 * @return 0 or -ETIMEDOUT
 */
int cond_wait(struct cond *cond, struct mutex *mutex, int64_t deadline_ms)
    REQUIRES(*mutex);

#endif
