/*
 * What the keeper holds for the next daemon, as the daemon sees it, and how one
 * finds the keeper of another. See link.h.
 */
#include "core/cleanup.h"
#include "core/clock.h"
#include "providers/local/link_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET "keeper.sock"

enum {
    PATIENCE_MS = 100, /* For a keeper that makes a sandbox to take more. */
    STEP_US = 1000,    /* How often we look. */
};

/* A WIRE_DROP that the keeper has not taken: it goes before what is sent
 * next. */
struct late {
    struct list link;
    struct wire_held held;
};

static struct late *first_late(struct link *link) REQUIRES(link->hold_lock)
{
    return list_empty(&link->late)
               ? NULL
               : container_of(link->late.next, struct late, link);
}

static void free_late(struct late *late)
{
    list_remove(&late->link);
    free(late);
}

/* Another keeper knows nothing of it. */
static void drop_late(struct link *link) REQUIRES(link->hold_lock)
{
    while (!list_empty(&link->late)) {
        free_late(first_late(link));
    }
}

void link_set_sock(struct link *link, int sock)
{
    if (sock >= 0) {
        (void)fcntl(sock, F_SETFL, O_NONBLOCK);
    }
    mutex_lock(&link->hold_lock);
    drop_late(link);
    cleanup_fd(&link->sock);
    link->sock = sock;
    mutex_unlock(&link->hold_lock);
}

/* A path of any length is too long for an address. */
static struct sockaddr_un address(const struct link *link)
{
    struct sockaddr_un out = {.sun_family = AF_UNIX};

    (void)snprintf(out.sun_path, sizeof(out.sun_path),
                   "/proc/self/fd/%d/" SOCKET, link->state);
    return out;
}

void link_unbind(const struct link *link)
{
    if (link->state >= 0) {
        (void)unlinkat(link->state, SOCKET, 0);
    }
}

int link_bind(const struct link *link)
{
    const struct sockaddr_un to = address(link);
    AUTO_FD int sock = -1;

    if (link->state < 0) {
        return -1;
    }
    sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    link_unbind(link);
    if (sock < 0 || bind(sock, (const struct sockaddr *)&to, sizeof(to)) < 0 ||
        fchmodat(link->state, SOCKET, 0600, 0) < 0) {
        return -1;
    }
    return TAKE_FD(sock);
}

/* ---- The keeper of an earlier daemon ---- */

/* Connects; the peer is who listens there. */
static int find_keeper(const struct link *link, int *pidfd)
{
    const struct sockaddr_un to = address(link);
    AUTO_FD int sock = link->state < 0
                           ? -1
                           : socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct ucred peer;
    socklen_t size = sizeof(peer);

    if (sock < 0 ||
        connect(sock, (const struct sockaddr *)&to, sizeof(to)) < 0 ||
        getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 ||
        peer.uid != geteuid() || peer.pid <= 0) {
        return -1;
    }
    *pidfd = (int)syscall(SYS_pidfd_open, peer.pid, 0U);
    return *pidfd < 0 ? -1 : TAKE_FD(sock);
}

/* The pid may be another's by now; but not while the keeper has the socket. */
static bool is_there(int sock)
{
    struct pollfd fd = {.fd = sock, .events = 0};

    return poll(&fd, 1, 0) == 0;
}

static void put_held(struct link *link, struct link_held *held)
{
    uint64_t box = held->wire.held.box;

    if (box >= atomic_load(&link->boxes)) {
        atomic_store(&link->boxes, box + 1);
    }
    /* Boxes first. */
    list_add(held->wire.held.command ? &link->held : link->held.next,
             &held->link);
}

static int take_all(struct link *link, const struct limits *limits,
                    struct err *err)
{
    for (;;) {
        struct link_held *held = calloc(1, sizeof(*held));
        int rc;

        if (!held) {
            return err_no_memory(err);
        }
        list_init(&held->link);
        rc = link_await(link->sock, limits, &held->wire, held->fds, err);
        if (rc < 0) {
            free(held);
            return rc;
        }
        if (held->wire.type != WIRE_HELD || !held->wire.held.box) {
            rc = held->wire.type == WIRE_HELD
                     ? 0
                     : err_set(err, EPROTO, "not what is held");
            link_held_free(held);
            return rc;
        }
        put_held(link, held);
    }
}

bool link_take_over(struct link *link, const struct limits *limits,
                    struct wire *ready)
{
    struct err err = ERR_INIT;
    int sock = find_keeper(link, &link->pidfd);
    bool present;
    int rc;

    if (sock < 0) {
        cleanup_fd(&link->pidfd);
        return false;
    }
    present = is_there(sock);
    link_set_sock(link, sock);
    rc = link_greet(link, limits, ready, &err);
    if (rc == 0) {
        rc = take_all(link, limits, &err);
    }
    if (rc == 0) {
        return true;
    }
    /* One that ends, or that we do not understand: nothing of it may live on
     * beside what we make. */
    link_drop_taken(link);
    if (!present) {
        cleanup_fd(&link->pidfd);
    }
    link_end_keeper(link, 0);
    cleanup_fd(&link->user_ns);
    cleanup_fd(&link->mounts_ns);
    return false;
}

struct link_held *link_take_held(struct link *link)
{
    struct list *node = list_pop(&link->held);

    return node ? container_of(node, struct link_held, link) : NULL;
}

void link_held_free(struct link_held *held)
{
    if (held) {
        wire_close(held->fds);
        free(held);
    }
}

void link_drop_taken(struct link *link)
{
    struct link_held *held = link_take_held(link);

    while (held) {
        link_held_free(held);
        held = link_take_held(link);
    }
}

/* ---- Holding ---- */

int link_cgroup(const struct link *link)
{
    return link->cgroup;
}

uint64_t link_name_box(struct link *link)
{
    return atomic_fetch_add(&link->boxes, 1);
}

static int send_late(struct link *link, struct err *err)
    REQUIRES(link->hold_lock)
{
    struct late *late = first_late(link);
    int rc = link->sock < 0 ? -EPIPE : 0;

    while (late && rc == 0) {
        const struct wire wire = {.type = WIRE_DROP, .held = late->held};

        rc = wire_send(link->sock, &wire, NULL, 0, err);
        if (rc == 0) {
            free_late(late);
            late = first_late(link);
        }
    }
    return rc;
}

/* -EAGAIN: not now. NULL: what is late, and no more. */
static int send_once(struct link *link, const struct wire *wire, const int *fds,
                     size_t count)
{
    struct err ignored = ERR_INIT;
    int rc;

    mutex_lock(&link->hold_lock);
    rc = send_late(link, &ignored);
    if (rc == 0 && wire) {
        rc = wire_send(link->sock, wire, fds, count, &ignored);
    }
    mutex_unlock(&link->hold_lock);
    return rc;
}

/* Nobody waits for the keeper with the lock held. */
static void send_held(struct link *link, const struct wire *wire,
                      const int *fds, size_t count)
{
    int64_t deadline = clock_deadline(PATIENCE_MS);
    int rc = send_once(link, wire, fds, count);

    while (rc == -EAGAIN && clock_ms() < deadline && usleep(STEP_US) == 0) {
        rc = send_once(link, wire, fds, count);
    }
}

void link_hold(struct link *link, const struct wire *wire, const int *fds,
               size_t count)
{
    struct wire hold = *wire;

    hold.type = WIRE_HOLD;
    send_held(link, &hold, fds, count);
}

void link_note(struct link *link, const struct wire_held *held)
{
    const struct wire wire = {.type = WIRE_NOTE, .held = *held};

    send_held(link, &wire, NULL, 0);
}

void link_drop(struct link *link, const struct wire_held *held)
{
    struct late *late = calloc(1, sizeof(*late));
    struct err ignored = ERR_INIT;

    if (!late) {
        return; /* The next daemon drops it. */
    }
    late->held = *held;
    mutex_lock(&link->hold_lock);
    list_add(&link->late, &late->link);
    (void)!send_late(link, &ignored);
    mutex_unlock(&link->hold_lock);
}

void link_flush(struct link *link)
{
    send_held(link, NULL, NULL, 0);
}
