/* Cancel tokens. See cancel.h. */
#include "core/cancel.h"

#include "core/cleanup.h"
#include "core/clock.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>

int cancel_init(struct cancel *cancel, struct err *err)
{
    atomic_init(&cancel->fired, false);
    cancel->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return cancel->fd < 0 ? err_errno(err, "eventfd") : 0;
}

void cancel_done(struct cancel *cancel)
{
    cleanup_fd(&cancel->fd);
}

void cancel_fire(struct cancel *cancel)
{
    atomic_store(&cancel->fired, true);
    (void)eventfd_write(cancel->fd, 1);
}

bool cancel_fired(const struct cancel *cancel)
{
    return atomic_load(&cancel->fired);
}

int limits_wait(const struct limits *limits, int fd, short events,
                struct err *err)
{
    struct pollfd fds[2] = {
        {.fd = limits->cancel->fd, .events = POLLIN},
        {.fd = fd, .events = events},
    };

    for (;;) {
        int n = poll(fds, 2, clock_timeout(limits->deadline_ms));

        if (cancel_fired(limits->cancel)) {
            return err_set(err, ECANCELED, "cancelled");
        }
        if (n < 0 && errno != EINTR) {
            return err_errno(err, "poll");
        }
        if (n > 0 && fds[1].revents) {
            return 0;
        }
        if (n == 0 && clock_timeout(limits->deadline_ms) == 0) {
            return err_set(err, ETIMEDOUT, "no answer before the deadline");
        }
    }
}

int limits_check(const struct limits *limits, const char *late, struct err *err)
{
    if (cancel_fired(limits->cancel)) {
        return err_set(err, ECANCELED, "cancelled");
    }
    return clock_ms() >= limits->deadline_ms
               ? err_set(err, ETIMEDOUT, "%s", late)
               : 0;
}
