/* The daemon's side of the keeper. See link.h and wire.h. */
#include "providers/local/link_priv.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/spawn.h"
#include "providers/local/cgroup.h"
#include "providers/local/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#define PROGRAM "sessionfs-keeper"

enum {
    TURN_MS = 50,      /* How often a waiter looks at its token. */
    CLOSE_MS = 12000,  /* For the end of all sandboxes. */
    CLOSE_STEP_MS = 2, /* How often we look for it. */
    KILL_MS = 1000,
    /* A range that neither distributions nor systemd hand out. */
    ID_FIRST = 0x70000000,
    ID_RANGES = 4096,
};

/* ---- The process ---- */

/* Beside our own program, as it is built, or where it is installed relative to
 * that, so that a whole installation may be moved. */
static int find_program(char out[PATH_MAX], struct err *err)
{
    static const char *const places[] = {PROGRAM,
                                         SESSIONFS_LIBEXEC "/" PROGRAM};
    char own[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);
    const char *dir;

    own[n < 0 ? 0 : n] = '\0';
    dir = dirname(own);
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        int size = snprintf(out, PATH_MAX, "%s/%s", dir, places[i]);

        if (size < PATH_MAX && access(out, X_OK) == 0) {
            return 0;
        }
    }
    return err_set(err, ENOENT, "cannot find %s", PROGRAM);
}

/* What a keeper is started with. */
struct start {
    int sock;
    int listens; /* -1: it cannot be found by another daemon. */
};

/* Returns a positive errno. */
static int add_actions(const struct link *link,
                       posix_spawn_file_actions_t *actions,
                       const struct start *start)
{
    const int given[WIRE_KEEPER_FDS] = {
        [WIRE_KEEPER_FD] = start->sock,
        [WIRE_USER_FD] = link->user_ns,
        [WIRE_MOUNTS_FD] = link->mounts_ns,
        [WIRE_LISTEN_FD] = start->listens,
        [WIRE_STATE_FD] = start->listens < 0 ? -1 : link->state,
    };
    int rc = 0;

    for (int fd = WIRE_KEEPER_FD; rc == 0 && fd < WIRE_KEEPER_FDS; fd++) {
        if (given[fd] >= 0) {
            rc = posix_spawn_file_actions_adddup2(actions, given[fd], fd);
        }
    }
    for (int fd = STDIN_FILENO; rc == 0 && fd <= STDOUT_FILENO; fd++) {
        rc = posix_spawn_file_actions_addopen(actions, fd, "/dev/null", O_RDWR,
                                              0);
    }
    return rc;
}

static int spawn(const struct link *link, const struct start *start, pid_t *out,
                 struct err *err)
{
    char path[PATH_MAX];
    char name[] = PROGRAM;
    char again[] = "again";
    char *argv[] = {name, link->mounts_ns < 0 ? NULL : again, NULL};
    char *env[] = {NULL}; /* Secrets of ours are not for it. */
    posix_spawn_file_actions_t actions;
    int rc = find_program(path, err);

    if (rc < 0) {
        return rc;
    }
    (void)posix_spawn_file_actions_init(&actions);
    rc = -add_actions(link, &actions, start);
    if (rc == 0) {
        rc = spawn_program(path, &actions, argv, env, out);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    return rc < 0 ? err_set(err, -rc, "cannot start '%s'", path) : 0;
}

void link_end_keeper(struct link *link, int64_t patience_ms)
{
    const struct wire quit = {.type = WIRE_QUIT};
    int64_t deadline = clock_deadline(patience_ms);
    struct pollfd fd = {.fd = link->pidfd, .events = POLLIN};
    struct err ignored = ERR_INIT;

    if (link->sock >= 0) {
        (void)!wire_send(link->sock, &quit, NULL, 0, &ignored);
    }
    link_set_sock(link, -1);
    cleanup_fd(&link->cgroup);
    while (fd.fd >= 0 && poll(&fd, 1, CLOSE_STEP_MS) == 0) {
        if (clock_ms() >= deadline) {
            (void)syscall(SYS_pidfd_send_signal, fd.fd, SIGKILL, NULL, 0U);
            (void)poll(&fd, 1, KILL_MS);
            break;
        }
    }
    if (link->pid > 0) {
        (void)waitpid(link->pid, NULL, 0);
    }
    cleanup_fd(&link->pidfd);
    link->pid = 0;
}

int link_send(int sock, const struct wire *wire, const int *fds, size_t count,
              const struct limits *limits, struct err *err)
{
    int rc = wire_send(sock, wire, fds, count, err);

    while (rc == -EAGAIN) {
        rc = limits_wait(limits, sock, POLLOUT, err);
        if (rc == 0) {
            rc = wire_send(sock, wire, fds, count, err);
        }
    }
    return rc;
}

int link_await(int sock, const struct limits *limits, struct wire *out,
               int fds[WIRE_FD_MAX], struct err *err)
{
    int rc = limits_wait(limits, sock, POLLIN, err);

    if (rc == 0) {
        rc = wire_recv(sock, out, fds, err);
    }
    return rc;
}

/* Out of the way of those that a keeper is started with. */
static int keep_high(int fd)
{
    AUTO_FD int low = fd;

    return low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, WIRE_KEEPER_FDS);
}

int link_greet(struct link *link, const struct limits *limits,
               struct wire *ready, struct err *err)
{
    const struct wire wait = {.type = WIRE_WAIT, .code = (int32_t)link->wait_s};
    struct wire wire;
    int fds[WIRE_FD_MAX];
    int rc = link_await(link->sock, limits, &wire, fds, err);

    if (rc < 0) {
        return err_wrap(err, rc, "%s", PROGRAM);
    }
    if (wire.type != WIRE_READY || wire.version != WIRE_VERSION) {
        wire_close(fds);
        return err_set(err, wire.code > 0 ? wire.code : EPROTO, "%s",
                       wire.words);
    }
    link->cgroup = TAKE_FD(fds[WIRE_READY_CGROUP]);
    if (link->mounts_ns < 0) {
        link->user_ns = keep_high(TAKE_FD(fds[WIRE_READY_USER]));
        link->mounts_ns = keep_high(TAKE_FD(fds[WIRE_READY_MOUNTS]));
    }
    wire_close(fds);
    *ready = wire;
    return link_send(link->sock, &wait, NULL, 0, limits, err);
}

static int start_keeper(struct link *link, const struct limits *limits,
                        struct wire *ready, struct err *err)
{
    AUTO_FD int theirs = -1;
    AUTO_FD int listens = keep_high(link_bind(link));
    struct start start = {.listens = listens};
    int pair[2];
    int rc;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        return err_errno(err, "socketpair");
    }
    link_set_sock(link, pair[0]);
    theirs = pair[1];
    start.sock = theirs;
    rc = spawn(link, &start, &link->pid, err);
    cleanup_fd(&theirs);
    if (rc == 0) {
        link->pidfd = (int)syscall(SYS_pidfd_open, link->pid, 0U);
        rc = link_greet(link, limits, ready, err);
    }
    if (rc < 0) {
        link_end_keeper(link, 1000);
    }
    return rc;
}

static struct link *alloc(const char *state_dir)
{
    struct link *link = calloc(1, sizeof(*link));

    if (!link) {
        return NULL;
    }
    mutex_init(&link->lock);
    cond_init(&link->turn);
    mutex_init(&link->hold_lock);
    mutex_lock(&link->hold_lock);
    list_init(&link->late);
    mutex_unlock(&link->hold_lock);
    list_init(&link->held);
    atomic_init(&link->boxes, 1);
    link->sock = -1;
    link->pidfd = -1;
    link->cgroup = -1;
    link->user_ns = -1;
    link->mounts_ns = -1;
    link->state = keep_high(open(state_dir, O_PATH | O_DIRECTORY | O_CLOEXEC));
    return link;
}

int link_open(const char *state_dir, unsigned wait_s,
              const struct limits *limits, struct link **out, struct err *err)
{
    struct link *link = alloc(state_dir);
    struct wire ready;
    int rc;

    if (!link) {
        return err_no_memory(err);
    }
    link->wait_s = wait_s;
    if (!link_take_over(link, limits, &ready)) {
        rc = start_keeper(link, limits, &ready, err);
        if (rc < 0) {
            link_free(link);
            return rc;
        }
    }
    link->host = ready.host;
    memcpy(link->why, ready.words, sizeof(link->why));
    *out = link;
    return 0;
}

const struct wire_host *link_host(const struct link *link, const char **why)
{
    *why = link->why;
    return &link->host;
}

bool link_one_id(const struct link *link)
{
    return link->host.one_id;
}

/* Two sandboxes may share a range: nothing but ids is behind it. */
struct link_ids link_ids(const struct link *link, uint64_t number)
{
    struct link_ids ids = {
        .init = geteuid(), .user = geteuid(), .group = getegid()};

    if (!link->host.one_id) {
        ids.base = ID_FIRST + (uint32_t)(number % ID_RANGES) * WIRE_ID_COUNT;
        ids.init = ids.base;
        ids.user = ids.base + WIRE_USER;
        ids.group = ids.base + WIRE_GROUP;
    }
    return ids;
}

void link_end(struct link *link, bool leave)
{
    if (leave) {
        link_flush(link);
        cleanup_fd(&link->cgroup);
        cleanup_fd(&link->pidfd);
        link_set_sock(link, -1);
    } else {
        link_end_keeper(link, CLOSE_MS);
        link_unbind(link);
    }
}

void link_free(struct link *link)
{
    if (!link) {
        return;
    }
    link_drop_taken(link);
    link_set_sock(link, -1); /* And frees what was not sent any more. */
    cleanup_fd(&link->user_ns);
    cleanup_fd(&link->mounts_ns);
    cleanup_fd(&link->state);
    mutex_done(&link->hold_lock);
    cond_done(&link->turn);
    mutex_done(&link->lock);
    free(link);
}

/* ---- Requests, one at a time ---- */

static int take_turn(struct link *link, const struct limits *limits,
                     struct err *err)
{
    static const char late[] = "the keeper is busy";
    int rc = limits_check(limits, late, err);

    mutex_lock(&link->lock);
    while (link->busy && rc == 0) {
        (void)cond_wait(&link->turn, &link->lock, clock_deadline(TURN_MS));
        rc = limits_check(limits, late, err);
    }
    if (rc == 0) {
        link->busy = true;
    }
    mutex_unlock(&link->lock);
    return rc;
}

static void end_turn(struct link *link)
{
    mutex_lock(&link->lock);
    link->busy = false;
    cond_broadcast(&link->turn);
    mutex_unlock(&link->lock);
}

/* Takes the answer to a request, in whose place it comes; those to abandoned
 * ones are dropped. */
static int take_answer(struct link *link, struct wire *asked, uint32_t type,
                       const struct limits *limits, int fds[WIRE_FD_MAX],
                       struct err *err)
{
    const uint64_t n = asked->n;

    for (;;) {
        struct wire wire;
        int got[WIRE_FD_MAX];
        int rc = link_await(link->sock, limits, &wire, got, err);

        if (rc < 0) {
            return rc;
        }
        if (wire.n == n && wire.type == type) {
            memcpy(fds, got, sizeof(got));
            *asked = wire;
            return 0;
        }
        wire_close(got);
        if (wire.n == n) {
            return err_set(err, wire.code > 0 ? wire.code : EPROTO, "%s",
                           wire.words);
        }
    }
}

/* A request to a keeper that may turn out to be dead: -EPIPE. */
struct request {
    int (*send)(struct link *link, const struct request *request,
                const struct limits *limits, struct err *err);
    const struct link_plan *plan;
    struct link_made *made;
    const struct link_overlay *overlay;
    int *mount;
    const int *move; /* WIRE_MOVE_FDS of them. */
};

static int make_cgroup(const struct link *link, const struct link_plan *plan,
                       int *out, struct err *err)
{
    int rc;

    if (link->cgroup < 0) {
        return 0;
    }
    rc = cgroup_make(link->cgroup, plan->name, plan->ids.init, out, err);
    if (rc == -ENOENT || rc == -ENODEV) {
        return err_set(err, EPIPE, "the keeper's cgroup is gone");
    }
    return rc;
}

static int start_in(struct link *link, const struct request *request,
                    int cgroup, const struct limits *limits, struct err *err)
{
    const struct link_plan *plan = request->plan;
    struct wire wire = {.type = WIRE_START,
                        .n = ++link->requests,
                        .id_base = plan->ids.base,
                        .quota = plan->quota};
    const int given[WIRE_START_FDS] = {[WIRE_START_WORKSPACE] = plan->workspace,
                                       [WIRE_START_CGROUP] = cgroup,
                                       [WIRE_START_ROOTFS] = plan->rootfs,
                                       [WIRE_START_MOUNTS] = -1};
    int fds[WIRE_FD_MAX];
    int rc = link_send(link->sock, &wire, given, WIRE_START_FDS, limits, err);

    if (rc == 0) {
        rc = take_answer(link, &wire, WIRE_STARTED, limits, fds, err);
    }
    if (rc == 0) {
        (void)fcntl(fds[WIRE_STARTED_SOCK], F_SETFL, O_NONBLOCK);
        request->made->sock = fds[WIRE_STARTED_SOCK];
        request->made->pidfd = fds[WIRE_STARTED_PIDFD];
        request->made->space = fds[WIRE_STARTED_SPACE];
        memcpy(request->made->groups, &fds[WIRE_STARTED_GROUPS],
               sizeof(request->made->groups));
        (void)snprintf(request->made->groups_name,
                       sizeof(request->made->groups_name), "%s", wire.words);
    }
    return rc;
}

static int send_start(struct link *link, const struct request *request,
                      const struct limits *limits, struct err *err)
{
    AUTO_FD int cgroup = -1;
    int rc = make_cgroup(link, request->plan, &cgroup, err);

    if (rc < 0) {
        return rc;
    }
    rc = start_in(link, request, cgroup, limits, err);
    if (rc < 0) {
        struct err ignored = ERR_INIT;

        /* A sandbox that is still being born into it dies at once. */
        if (cgroup >= 0) {
            (void)cgroup_kill(cgroup, &ignored);
            (void)cgroup_remove(link->cgroup, request->plan->name);
        }
        return rc;
    }
    request->made->cgroup = TAKE_FD(cgroup);
    return 0;
}

/* There may be too many for a message. */
static int write_chain(const struct link_overlay *overlay, int *out,
                       struct err *err)
{
    const size_t size = overlay->deep * sizeof(*overlay->chain);
    AUTO_FD int fd = overlay->deep ? memfd_create("chain", MFD_CLOEXEC) : -1;

    if (overlay->deep &&
        (fd < 0 || pwrite(fd, overlay->chain, size, 0) != (ssize_t)size)) {
        return err_errno(err, "cannot tell the layers of a workspace");
    }
    *out = TAKE_FD(fd);
    return 0;
}

static int send_mount(struct link *link, const struct request *request,
                      const struct limits *limits, struct err *err)
{
    const struct link_overlay *overlay = request->overlay;
    AUTO_FD int chain = -1;
    struct wire wire = {.type = WIRE_MOUNT,
                        .code = (int32_t)overlay->deep,
                        .n = ++link->requests,
                        .id_base = overlay->id_base,
                        .map_lower = overlay->map_lower,
                        .synced = overlay->synced};
    int fds[WIRE_FD_MAX];
    int given[WIRE_MOUNT_FDS] = {[WIRE_MOUNT_LOWER] = overlay->lower,
                                 [WIRE_MOUNT_UPPER] = overlay->upper,
                                 [WIRE_MOUNT_WORK] = overlay->work,
                                 [WIRE_MOUNT_LAYERS] = overlay->layers};
    int rc = write_chain(overlay, &chain, err);

    given[WIRE_MOUNT_CHAIN] = chain;
    if (rc == 0) {
        rc = link_send(link->sock, &wire, given, WIRE_MOUNT_FDS, limits, err);
    }
    if (rc == 0) {
        rc = take_answer(link, &wire, WIRE_MOUNTED, limits, fds, err);
    }
    if (rc == 0) {
        *request->mount = fds[0];
    }
    return rc;
}

static int send_move(struct link *link, const struct request *request,
                     const struct limits *limits, struct err *err)
{
    struct wire wire = {.type = WIRE_MOVE, .n = ++link->requests};
    int fds[WIRE_FD_MAX];
    int rc =
        link_send(link->sock, &wire, request->move, WIRE_MOVE_FDS, limits, err);

    return rc == 0 ? take_answer(link, &wire, WIRE_MOVED, limits, fds, err)
                   : rc;
}

/* Takes its turn; a keeper that is found dead is replaced. */
static int ask(struct link *link, const struct request *request,
               const struct limits *limits, struct err *err)
{
    struct wire same;
    int rc = take_turn(link, limits, err);

    if (rc < 0) {
        return rc;
    }
    rc = link->sock < 0 ? -EPIPE : request->send(link, request, limits, err);
    if (rc == -EPIPE) {
        link_end_keeper(link, 0);
        rc = start_keeper(link, limits, &same, err);
        if (rc == 0) {
            rc = request->send(link, request, limits, err);
        }
    }
    end_turn(link);
    return rc;
}

int link_start(struct link *link, const struct link_plan *plan,
               const struct limits *limits, struct link_made *out,
               struct err *err)
{
    const struct request request = {
        .send = send_start, .plan = plan, .made = out};

    return ask(link, &request, limits, err);
}

int link_mount(struct link *link, const struct link_overlay *overlay,
               const struct limits *limits, int *out, struct err *err)
{
    const struct request request = {
        .send = send_mount, .overlay = overlay, .mount = out};

    return ask(link, &request, limits, err);
}

int link_move(struct link *link, int space, int mount,
              const struct limits *limits, struct err *err)
{
    const int fds[WIRE_MOVE_FDS] = {
        [WIRE_MOVE_SPACE] = space, [WIRE_MOVE_MOUNT] = mount};
    const struct request request = {.send = send_move, .move = fds};

    return ask(link, &request, limits, err);
}
