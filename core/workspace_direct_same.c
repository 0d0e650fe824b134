/*
 * Whether two names are of one file. An overlay shows names of one file of a
 * layer with one number, but parts them when one is changed: for the kernel
 * they are files of their own from the beginning. It tells by its watches, of
 * which a file has only one.
 */
#include "core/workspace_direct.h"

#include "core/cleanup.h"

#include <errno.h>
#include <sys/inotify.h>

static struct mutex lock = MUTEX_INIT;
static int watches GUARDED_BY(lock) = -1; /* Made at the first use. */

static int watch(int fd) REQUIRES(lock)
{
    return inotify_add_watch(watches, direct_proc(fd).text, IN_DELETE_SELF);
}

/* What has happened is of no interest. */
static void drain(void) REQUIRES(lock)
{
    char events[4096];

    while (read(watches, events, sizeof(events)) > 0) {
    }
}

bool direct_fd_one(int a, int b)
{
    bool one = true;

    mutex_lock(&lock);
    if (watches < 0) {
        watches = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    }
    if (watches >= 0) {
        int of_a = watch(a);
        int of_b = watch(b);

        one = of_a < 0 || of_b < 0 || of_a == of_b;
        if (of_a >= 0) {
            (void)inotify_rm_watch(watches, of_a);
        }
        if (of_b >= 0 && of_b != of_a) {
            (void)inotify_rm_watch(watches, of_b);
        }
        drain();
    }
    mutex_unlock(&lock);
    return one;
}
