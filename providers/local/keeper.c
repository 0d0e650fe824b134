/*
 * sessionfs-keeper: makes sandboxes for the daemon that started it. When that
 * dies they live on, and wait with the keeper for the next daemon; when none
 * comes, or nobody wants one, they end with the keeper. See wire.h for what is
 * said.
 */
#include "providers/local/keeper.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "providers/local/cradle.h"
#include "providers/local/group.h"
#include "providers/local/shelf.h"
#include "providers/local/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum {
    NEXT_TURN_MS = 500 /* How often we look whether a wait is worth it. */
};

struct keeper {
    struct group group;
    bool attaches; /* The kernel copies no mount that is attached nowhere. */
    struct wire_host host;
    struct filter filter;
    struct template template;
    struct control control;
    struct cradle cradle; /* Where controllers are of version 1. */
    struct shelf shelf;
    bool listens;              /* Another daemon can come, */
    int64_t wait_ms;           /* within this time. */
    struct wire ready;         /* What each daemon is told, */
    int given[WIRE_READY_FDS]; /* and given. */
};

static void note_means(struct keeper *keeper)
{
    for (unsigned i = 0; i < WIRE_CONTROLS; i++) {
        keeper->host.means[i] = keeper->control.of[i].means;
    }
}

/* Sandboxes can do without a group; `why` says what that costs. */
static void try_group(struct keeper *keeper, struct err *why)
{
    if (group_open(&keeper->group, why) == 0) {
        control_open(&keeper->group, getppid(), &keeper->control, why);
        note_means(keeper);
        return;
    }
    (void)err_wrap(why, -why->code, "no cgroup of our own");
}

/* A user's who is not root, or where we attach what nobody else is to see. */
static int enter(bool one_id, bool again, int ready[WIRE_READY_FDS],
                 struct err *err)
{
    int rc = again ? user_join(one_id ? WIRE_USER_FD : -1, WIRE_MOUNTS_FD, err)
             : one_id ? user_enter(err)
                      : user_enter_mounts(err);

    return rc == 0 ? user_namespaces(one_id ? &ready[WIRE_READY_USER] : NULL,
                                     &ready[WIRE_READY_MOUNTS], err)
                   : rc;
}

/* `again`: there was another keeper before. `why`: there is no group. */
static int set_up(struct keeper *keeper, bool again, int ready[WIRE_READY_FDS],
                  struct err *why, struct err *err)
{
    int rc = chdir("/") < 0 ? err_errno(err, "chdir /") : 0;

    keeper->host.one_id = !user_maps_ids();
    if (rc == 0 && keeper->host.one_id) {
        rc = enter(true, again, ready, err);
    }
    keeper->attaches = !overlay_copies();
    if (rc == 0 && keeper->attaches && !keeper->host.one_id) {
        rc = enter(false, again, ready, err);
    }
    if (rc == 0) {
        try_group(keeper, why);
        rc = filter_build(keeper->host.one_id, &keeper->filter, err);
    }
    if (rc == 0) {
        rc = template_open(&keeper->template, err);
    }
    return rc == 0 ? sandbox_probe(err) : rc;
}

static int send_failure(uint64_t n, const struct err *why)
{
    struct wire wire = {.type = WIRE_FAILED, .code = why->code, .n = n};
    struct err err = ERR_INIT;

    (void)snprintf(wire.words, sizeof(wire.words), "%s", why->msg);
    return wire_send(WIRE_KEEPER_FD, &wire, NULL, 0, &err);
}

/* Makes fds of the daemon's ones of our own mount namespace. */
static int take_over(const struct keeper *keeper, int *fds, size_t count,
                     struct err *err)
{
    const bool apart = keeper->host.one_id || keeper->attaches;

    for (size_t i = 0; apart && i < count; i++) {
        int fd = fds[i] < 0 ? -1 : user_reopen(fds[i], err);

        if (fds[i] < 0) {
            continue;
        }
        if (fd < 0) {
            return fd;
        }
        (void)close(fds[i]);
        fds[i] = fd;
    }
    return 0;
}

/* Makes a sandbox, in the keeper or in a cradle. */
static int make_sandbox(const struct keeper *keeper, const struct wire *request,
                        int *fds, const struct control_groups *groups,
                        struct sandbox_made *out, struct err *err)
{
    struct sandbox_plan plan = {.cgroup = fds[WIRE_START_CGROUP],
                                .in_cradle = groups != NULL,
                                .one_id = keeper->host.one_id,
                                .id_base = request->id_base,
                                .quota = request->quota,
                                .filter = &keeper->filter};
    int rc = take_over(keeper, &fds[WIRE_START_WORKSPACE], 1, err);

    plan.workspace = fds[WIRE_START_WORKSPACE];
    plan.mounts = fds[WIRE_START_MOUNTS];
    plan.template = &keeper->template;
    plan.counts_pids = keeper->host.means[WIRE_CONTROL_PIDS] != WIRE_MEANS_NONE;
    if (rc == 0 && keeper->group.own >= 0) {
        rc = control_limit(&keeper->control, groups, plan.cgroup,
                           &request->quota, err);
    }
    return rc == 0 ? sandbox_start(&plan, out, err) : rc;
}

/* Makes a sandbox and answers. */
static int start(const struct keeper *keeper, const struct wire *request,
                 int *fds, const struct control_groups *groups,
                 const char *name)
{
    struct wire reply = {.type = WIRE_STARTED, .n = request->n};
    int given[WIRE_STARTED_FDS];
    struct sandbox_made made;
    struct err err = ERR_INIT;
    int rc = make_sandbox(keeper, request, fds, groups, &made, &err);

    if (rc < 0) {
        return send_failure(request->n, &err);
    }
    given[WIRE_STARTED_SOCK] = made.sock;
    given[WIRE_STARTED_PIDFD] = made.pidfd;
    given[WIRE_STARTED_SPACE] = made.space;
    for (unsigned i = 0; i < WIRE_CONTROLS; i++) {
        given[WIRE_STARTED_GROUPS + i] = groups ? groups->of[i] : -1;
    }
    (void)snprintf(reply.words, sizeof(reply.words), "%s", name);
    rc = wire_send(WIRE_KEEPER_FD, &reply, given, WIRE_STARTED_FDS, &err);
    (void)close(made.sock);
    (void)close(made.pidfd);
    cleanup_fd(&made.space);
    return rc;
}

/* In a cradle. */
static void serve_start(const void *arg, const struct wire *request, int *fds,
                        const struct control_groups *groups, const char *name,
                        const struct err *err)
{
    /* When it cannot be told, the daemon is dead, and nobody asks. */
    if (groups) {
        (void)start(arg, request, fds, groups, name);
    } else {
        (void)send_failure(request->n, err);
    }
}

/* Finds the namespace that a sandbox's root directory comes from. */
static int find_mounts(struct keeper *keeper, int *fds, struct err *err)
{
    int rc;

    if (fds[WIRE_START_ROOTFS] >= 0) {
        rc = take_over(keeper, &fds[WIRE_START_ROOTFS], 1, err);
        return rc == 0 ? template_make(fds[WIRE_START_ROOTFS],
                                       &fds[WIRE_START_MOUNTS], err)
                       : rc;
    }
    rc = template_renew(&keeper->template, err);
    if (rc == 0) {
        fds[WIRE_START_MOUNTS] =
            fcntl(keeper->template.mounts, F_DUPFD_CLOEXEC, 0);
        rc = fds[WIRE_START_MOUNTS] < 0 ? err_errno(err, "fcntl") : 0;
    }
    return rc;
}

static int take_start(struct keeper *keeper, const struct wire *request,
                      int *fds)
{
    struct err err = ERR_INIT;

    if (find_mounts(keeper, fds, &err) < 0) {
        return send_failure(request->n, &err);
    }
    if (!control_needs_cradle(&keeper->control)) {
        return start(keeper, request, fds, NULL, "");
    }
    return cradle_hand_over(&keeper->cradle, request, fds, WIRE_START_FDS,
                            &err) < 0
               ? send_failure(request->n, &err)
               : 0;
}

static int mount_overlay(const struct keeper *keeper,
                         const struct wire *request, int *fds)
{
    struct overlay_plan plan = {.map_lower =
                                    request->map_lower && !keeper->host.one_id,
                                .attach = keeper->attaches,
                                .synced = request->synced,
                                .id_base = request->id_base};
    struct wire reply = {.type = WIRE_MOUNTED, .n = request->n};
    struct err err = ERR_INIT;
    int mount = -1;
    int rc = take_over(keeper, fds, WIRE_MOUNT_CHAIN, &err);

    plan.upper = fds[WIRE_MOUNT_UPPER];
    plan.work = fds[WIRE_MOUNT_WORK];
    plan.lower = fds[WIRE_MOUNT_LOWER];
    plan.layers = fds[WIRE_MOUNT_LAYERS];
    plan.chain = fds[WIRE_MOUNT_CHAIN];
    plan.deep = request->code;
    if (rc == 0) {
        rc = overlay_mount(&plan, &mount, &err);
    }
    if (rc < 0) {
        return send_failure(request->n, &err);
    }
    rc = wire_send(WIRE_KEEPER_FD, &reply, &mount, 1, &err);
    (void)close(mount);
    return rc;
}

/* By a clone, which answers: the keeper stays where it is. */
static void move(const struct wire *request, const int *fds)
{
    const struct wire reply = {.type = WIRE_MOVED, .n = request->n};
    struct err err = ERR_INIT;
    pid_t pid = fork();

    if (pid < 0) {
        (void)err_errno(&err, "cannot clone the keeper");
        (void)send_failure(request->n, &err);
        return;
    }
    if (pid == 0) {
        int rc =
            move_workspace(fds[WIRE_MOVE_SPACE], fds[WIRE_MOVE_MOUNT], &err);

        _exit(rc < 0 ? send_failure(request->n, &err)
                     : wire_send(WIRE_KEEPER_FD, &reply, NULL, 0, &err));
    }
}

static void serve_request(struct keeper *keeper, const struct wire *request,
                          int *fds)
{
    /* An answer that cannot be given shows as the end of the socket, before
     * which there may be more that is to be held. */
    if (request->type == WIRE_START) {
        (void)take_start(keeper, request, fds);
    } else if (request->type == WIRE_MOUNT) {
        (void)mount_overlay(keeper, request, fds);
    } else if (request->type == WIRE_MOVE) {
        move(request, fds);
    } else if (request->type == WIRE_WAIT) {
        keeper->wait_ms = request->code * INT64_C(1000);
    } else if (request->type == WIRE_HOLD) {
        shelf_hold(&keeper->shelf, request, fds);
    } else if (request->type == WIRE_NOTE) {
        shelf_note(&keeper->shelf, &request->held);
    } else if (request->type == WIRE_DROP) {
        shelf_drop(&keeper->shelf, &request->held);
    }
}

/* Until the daemon's end of the socket is closed, by its death at last. Tells
 * whether that has said that all is to end. */
static bool serve(struct keeper *keeper)
{
    struct wire request;
    struct err err = ERR_INIT;
    int fds[WIRE_FD_MAX];
    int ends = 0;

    /* That it has not read our answers is told before what it has said. */
    while (ends < 2) {
        if (wire_recv(WIRE_KEEPER_FD, &request, fds, &err) < 0) {
            ends++;
            continue;
        }
        if (request.type == WIRE_QUIT) {
            return true;
        }
        serve_request(keeper, &request, fds);
        wire_close(fds);
    }
    return false;
}

/* ---- From one daemon to the next ---- */

/* Nobody else's is to be served; who may be the daemon of a state is not for us
 * to decide. */
static bool is_ours(int sock)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    return getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           peer.uid == geteuid();
}

/* Whether somebody may come, and there is something for them. */
static bool is_worth_it(const struct keeper *keeper)
{
    struct stat state;

    return shelf_lives(&keeper->shelf) && fstat(WIRE_STATE_FD, &state) == 0 &&
           state.st_nlink > 0;
}

static bool await_next(const struct keeper *keeper)
{
    struct pollfd fd = {.fd = WIRE_LISTEN_FD, .events = POLLIN};
    int64_t deadline = clock_deadline(keeper->wait_ms);

    while (keeper->listens && clock_ms() < deadline && is_worth_it(keeper)) {
        AUTO_FD int sock = -1;

        if (poll(&fd, 1, NEXT_TURN_MS) == 1) {
            sock = accept4(WIRE_LISTEN_FD, NULL, NULL, SOCK_CLOEXEC);
        }
        if (sock >= 0 && is_ours(sock)) {
            return dup3(sock, WIRE_KEEPER_FD, O_CLOEXEC) >= 0;
        }
    }
    return false;
}

/* Those by controllers of version 2 went with the daemon before. */
static void limit_again(const void *arg, const struct wire_quota *quota,
                        const int fds[WIRE_FD_MAX])
{
    const struct control *control = arg;
    struct control_groups groups;
    struct err ignored = ERR_INIT;

    memcpy(groups.of, &fds[WIRE_BOX_GROUPS], sizeof(groups.of));
    (void)!control_limit(control, &groups, fds[WIRE_BOX_CGROUP], quota,
                         &ignored);
}

/* Gets ready for a daemon that has come. */
static void resume(struct keeper *keeper)
{
    struct ucred peer = {.pid = 0};
    socklen_t size = sizeof(peer);
    struct err why = ERR_INIT;

    if (keeper->group.own < 0) {
        return;
    }
    (void)getsockopt(WIRE_KEEPER_FD, SOL_SOCKET, SO_PEERCRED, &peer, &size);
    control_resume(&keeper->control, peer.pid, &why);
    note_means(keeper);
    keeper->ready.host = keeper->host;
    shelf_each_box(&keeper->shelf, limit_again, &keeper->control);
    if (why.code) {
        (void)snprintf(keeper->ready.words, sizeof(keeper->ready.words), "%s",
                       why.msg);
    }
}

/* Serves a daemon, and those after it. */
static void serve_daemons(struct keeper *keeper)
{
    bool cradled = control_needs_cradle(&keeper->control);
    struct err err = ERR_INIT;
    int rc = wire_send(WIRE_KEEPER_FD, &keeper->ready, keeper->given,
                       WIRE_READY_FDS, &err);
    bool quit = false;
    bool again = rc == 0;

    while (again) {
        if (cradled) {
            /* Anew: the spare answers by the socket that it was born with. */
            keeper->cradle.control = &keeper->control;
            keeper->cradle.serve = serve_start;
            keeper->cradle.arg = keeper;
            cradle_prepare(&keeper->cradle);
        }
        quit = rc == 0 && serve(keeper);
        if (cradled) {
            cradle_close(&keeper->cradle);
        }
        if (!quit) {
            control_rest(&keeper->control);
        }
        again = !quit && await_next(keeper);
        if (again) {
            resume(keeper);
            rc = wire_send(WIRE_KEEPER_FD, &keeper->ready, keeper->given,
                           WIRE_READY_FDS, &err);
        }
        if (again && rc == 0) {
            rc = shelf_tell(&keeper->shelf, WIRE_KEEPER_FD, &err);
        }
    }
}

/* Descriptors and signals as the rest expects them. */
static void begin(void)
{
    struct rlimit files;

    /* Dead inits are reaped by nobody else, and nobody asks how they ended. */
    (void)signal(SIGCHLD, SIG_IGN);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)umask(022);
    for (int fd = WIRE_KEEPER_FD; fd < WIRE_KEEPER_FDS; fd++) {
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    if (fcntl(STDERR_FILENO, F_GETFD) < 0) {
        (void)open("/dev/null", O_RDWR);
    }
    /* What is held is many files. */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}

/* Listening is ours, so that the next daemon can tell who we are. */
static bool listen_for_next(void)
{
    return fcntl(WIRE_STATE_FD, F_GETFD) >= 0 && listen(WIRE_LISTEN_FD, 1) == 0;
}

/* An argument says that there was another keeper before. */
int main(int argc, char **argv)
{
    struct keeper keeper = {
        .group = {.self = -1, .own = -1},
        .template = {.mounts = -1, .home = -1, .root = -1, .table = -1},
        .ready = {.type = WIRE_READY, .version = WIRE_VERSION},
        .given = {-1, -1, -1}};
    struct err why = ERR_INIT;
    struct err err = ERR_INIT;
    bool cleared = true;
    int rc;

    (void)argv;
    begin();
    shelf_init(&keeper.shelf);
    rc = set_up(&keeper, argc > 1, keeper.given, &why, &err);
    keeper.ready.host = keeper.host;
    keeper.given[WIRE_READY_CGROUP] = keeper.group.own;
    (void)snprintf(keeper.ready.words, sizeof(keeper.ready.words), "%s",
                   why.msg);
    if (rc < 0) {
        (void)send_failure(0, &err);
    } else {
        keeper.listens = listen_for_next();
        serve_daemons(&keeper);
    }
    if (keeper.group.own >= 0) {
        cleared = group_close(&keeper.group) && control_close(&keeper.control);
    }
    shelf_done(&keeper.shelf);
    filter_done(&keeper.filter);
    template_close(&keeper.template);
    return cleared && rc == 0 ? 0 : 1;
}
