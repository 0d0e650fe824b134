/*
 * Scope-bound cleanup: `AUTO_FREE char *s = NULL;`. Declare with a value.
 * TAKE_PTR and TAKE_FD hand the object on and leave nothing to clean.
 */
#ifndef SESSIONFS_CLEANUP_H
#define SESSIONFS_CLEANUP_H

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free(void *p)
{
    free(*(void **)p);
}

/* Closes *fd where it is open: it is -1 then. Keeps errno, so that it may run
 * late. */
static inline void cleanup_fd(int *fd)
{
    if (*fd >= 0) {
        int saved = errno;

        (void)close(*fd);
        *fd = -1;
        errno = saved;
    }
}

#define AUTO_FREE __attribute__((cleanup(cleanup_free)))
#define AUTO_FD   __attribute__((cleanup(cleanup_fd)))

#define TAKE_PTR(p)                                                            \
    __extension__({                                                            \
        __typeof__(p) taken_ = (p);                                            \
        (p) = NULL;                                                            \
        taken_;                                                                \
    })

static inline int take_fd(int *fd)
{
    int taken = *fd;

    *fd = -1;
    return taken;
}

#define TAKE_FD(fd) take_fd(&(fd))

#endif
