/* Processes that wait in a sandbox's groups. See cradle.h. */
#include "providers/local/cradle.h"

#include "core/cleanup.h"
#include "providers/local/shelf.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

enum {
    CRADLE_FEW = CRADLE_SPARES / 4 /* When more are made. */
};

NORETURN static void be_cradle(const struct cradle *cradle, int sock)
{
    struct control_groups groups;
    struct wire request;
    struct err err = ERR_INIT;
    struct err gone = ERR_INIT;
    int fds[WIRE_FD_MAX];
    char name[32];
    int rc;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    shelf_leave();
    (void)snprintf(name, sizeof(name), "%" PRIu64, cradle->made);
    rc = control_make(cradle->control, name, &groups, &err);
    if (rc == 0) {
        rc = control_enter(&groups, &err);
    }
    if (wire_recv(sock, &request, fds, &gone) == 0) {
        (void)close(sock);
        cradle->serve(cradle->arg, &request, fds, rc < 0 ? NULL : &groups, name,
                      &err);
    }
    _exit(0);
}

static int make_spare(struct cradle *cradle, struct err *err)
{
    struct proc_child child;
    int rc;

    cradle->made++;
    rc = proc_clone(0, -1, &child, err);
    if (rc < 0) {
        return rc;
    }
    if (child.pid == 0) {
        be_cradle(cradle, child.sock);
    }
    cradle->spares[cradle->count++] = child;
    return 0;
}

void cradle_prepare(struct cradle *cradle)
{
    struct err ignored = ERR_INIT;
    int rc = 0;

    while (rc == 0 && cradle->count < CRADLE_SPARES) {
        rc = make_spare(cradle, &ignored);
    }
}

/* The one that has waited longest; those behind it move up. */
static int use_spare(struct cradle *cradle, const struct wire *request,
                     const int *fds, size_t count, struct err *err)
{
    int rc = wire_send(cradle->spares[0].sock, request, fds, count, err);

    proc_forget(&cradle->spares[0]);
    cradle->count--;
    memmove(&cradle->spares[0], &cradle->spares[1],
            cradle->count * sizeof(cradle->spares[0]));
    return rc;
}

int cradle_hand_over(struct cradle *cradle, const struct wire *request,
                     const int *fds, size_t count, struct err *err)
{
    int rc = -EPIPE;

    /* Somebody may have killed one. */
    while (rc < 0 && cradle->count > 0) {
        err_clear(err);
        rc = use_spare(cradle, request, fds, count, err);
    }
    if (rc < 0) {
        err_clear(err);
        rc = make_spare(cradle, err);
        if (rc == 0) {
            rc = use_spare(cradle, request, fds, count, err);
        }
    }
    if (cradle->count <= CRADLE_FEW) {
        cradle_prepare(cradle);
    }
    return rc;
}

void cradle_close(struct cradle *cradle)
{
    for (unsigned i = 0; i < cradle->count; i++) {
        (void)kill(cradle->spares[i].pid, SIGKILL);
    }
    /* Their groups can be removed then. Others that still make a sandbox end
     * with that. */
    for (unsigned i = 0; i < cradle->count; i++) {
        proc_end(&cradle->spares[i]);
    }
    cradle->count = 0;
}
