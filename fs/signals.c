/* Signals that end the mount. See signals.h. */
#include "fs/signals.h"

#include "fs/fs.h"

#include <signal.h>
#include <unistd.h>

enum {
    AGAIN_S = 1
};

static struct fuse_session *serving;

/* The loop looks whether it shall end and then waits, which the next signal
 * ends: one that comes between the two must come again. */
static void ask_for_the_end(int number)
{
    (void)number;
    fuse_session_exit(serving);
    (void)alarm(AGAIN_S);
}

static int set(int number, void (*handler)(int), struct err *err)
{
    /* Without SA_RESTART: a wait must end. */
    struct sigaction action = {.sa_handler = handler};

    (void)sigemptyset(&action.sa_mask);
    return sigaction(number, &action, NULL) < 0
               ? err_errno(err, "cannot handle signal %d", number)
               : 0;
}

int signals_begin(struct fuse_session *fuse, struct err *err)
{
    static const int asking[] = {SIGALRM, SIGTERM, SIGINT, SIGHUP};
    int rc = set(SIGPIPE, SIG_IGN, err);

    serving = fuse;
    for (size_t i = 0; i < ARRAY_SIZE(asking) && rc == 0; i++) {
        rc = set(asking[i], ask_for_the_end, err);
    }
    return rc;
}

void signals_hold(void)
{
    struct err err = ERR_INIT;

    /* First no handler that sets it again, then the alarm. */
    (void)!set(SIGALRM, SIG_IGN, &err);
    (void)!set(SIGTERM, SIG_IGN, &err);
    (void)!set(SIGHUP, SIG_IGN, &err);
    (void)!set(SIGINT, SIG_DFL, &err);
    (void)alarm(0);
}
