/* Times of files that move in ticks. See tick.h. */
#include "providers/local/tick.h"

#include "core/cleanup.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

enum {
    TRIES = 4,        /* A tick may pass between two changes. */
    STEP_NS = 200000, /* How often we look at the clock; */
    STEPS_MOST = 500, /* and how often at most, if it should stand still. */
};

/* Changes a file and looks at its time. */
static bool touch(int fd, struct timespec *out)
{
    struct stat st;

    if (pwrite(fd, "", 1, 0) != 1 || fstat(fd, &st) < 0) {
        return false;
    }
    *out = st.st_ctim;
    return true;
}

static bool is_equal(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

bool tick_is_coarse(int dir)
{
    AUTO_FD int fd = openat(dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    struct timespec last;
    struct timespec now;

    if (fd < 0 || !touch(fd, &last)) {
        return true;
    }
    for (int i = 0; i < TRIES; i++) {
        if (!touch(fd, &now) || is_equal(last, now)) {
            return true;
        }
        last = now;
    }
    return false;
}

void tick_pass(void)
{
    const struct timespec step = {.tv_nsec = STEP_NS};
    struct timespec begin;
    struct timespec now;

    /* The clock that files' times are taken from. */
    (void)clock_gettime(CLOCK_REALTIME_COARSE, &begin);
    for (int i = 0; i < STEPS_MOST; i++) {
        (void)clock_gettime(CLOCK_REALTIME_COARSE, &now);
        if (!is_equal(begin, now)) {
            break;
        }
        (void)nanosleep(&step, NULL);
    }
}
