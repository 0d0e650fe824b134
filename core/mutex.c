/* Mutexes and conditions. See mutex.h. */
#include "core/mutex.h"

#include "core/clock.h"

#include <errno.h>
#include <stdlib.h>

/* A failing lock call is a mistake of ours: going on would corrupt state. */
static void must(int rc)
{
    if (rc != 0) {
        abort();
    }
}

void mutex_init(struct mutex *mutex)
{
    must(pthread_mutex_init(&mutex->native, NULL));
}

void mutex_done(struct mutex *mutex)
{
    must(pthread_mutex_destroy(&mutex->native));
}

void mutex_lock(struct mutex *mutex) NO_TSA
{
    must(pthread_mutex_lock(&mutex->native));
}

void mutex_unlock(struct mutex *mutex) NO_TSA
{
    must(pthread_mutex_unlock(&mutex->native));
}

void cond_init(struct cond *cond)
{
    pthread_condattr_t attr;

    must(pthread_condattr_init(&attr));
    must(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC));
    must(pthread_cond_init(&cond->native, &attr));
    must(pthread_condattr_destroy(&attr));
}

void cond_done(struct cond *cond)
{
    must(pthread_cond_destroy(&cond->native));
}

void cond_broadcast(struct cond *cond)
{
    must(pthread_cond_broadcast(&cond->native));
}

int cond_wait(struct cond *cond, struct mutex *mutex, int64_t deadline_ms)
{
    struct timespec ts;
    int rc;

    if (deadline_ms == DEADLINE_NONE) {
        must(pthread_cond_wait(&cond->native, &mutex->native));
        return 0;
    }
    ts.tv_sec = deadline_ms / 1000;
    ts.tv_nsec = deadline_ms % 1000 * 1000000;
    rc = pthread_cond_timedwait(&cond->native, &mutex->native, &ts);
    if (rc != ETIMEDOUT) {
        must(rc);
    }
    return -rc;
}
