/* Messages with fds between daemon, keeper and init. See wire.h. */
#include "providers/local/wire.h"

#include "core/cleanup.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

/* Room for the fds of one message, aligned as the kernel wants it. */
union control {
    char space[CMSG_SPACE(sizeof(int) * WIRE_FD_MAX)];
    struct cmsghdr head;
};

/* The fds that are there, one after another; returns which they are. */
static uint32_t give_fds(struct msghdr *msg, union control *control,
                         const int *fds, size_t count)
{
    struct cmsghdr *head = &control->head;
    uint32_t mask = 0;
    size_t used = 0;

    for (size_t i = 0; i < count; i++) {
        if (fds[i] >= 0) {
            memcpy(CMSG_DATA(head) + sizeof(int) * used, &fds[i], sizeof(int));
            mask |= 1U << i;
            used++;
        }
    }
    if (used > 0) {
        msg->msg_control = control;
        msg->msg_controllen = CMSG_SPACE(sizeof(int) * used);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int) * used);
    }
    return mask;
}

int wire_send(int sock, const struct wire *wire, const int *fds, size_t count,
              struct err *err)
{
    struct wire copy = *wire;
    struct iovec data = {.iov_base = &copy, .iov_len = sizeof(copy)};
    struct msghdr msg = {.msg_iov = &data, .msg_iovlen = 1};
    union control control;
    ssize_t n;

    memset(&control, 0, sizeof(control));
    copy.fds = give_fds(&msg, &control, fds, count);
    do {
        n = sendmsg(sock, &msg, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno == ECONNRESET) {
        return err_set(err, EPIPE, "the peer is gone");
    }
    return n < 0 ? err_errno(err, "sendmsg") : 0;
}

/* Puts what came where the sender had it. */
static void take_fds(struct msghdr *msg, uint32_t mask, int fds[WIRE_FD_MAX])
{
    struct cmsghdr *head = CMSG_FIRSTHDR(msg);
    int got[WIRE_FD_MAX];
    size_t count = 0;
    size_t next = 0;

    if (head && head->cmsg_level == SOL_SOCKET &&
        head->cmsg_type == SCM_RIGHTS) {
        size_t size = head->cmsg_len - CMSG_LEN(0);

        memcpy(got, CMSG_DATA(head), size);
        count = size / sizeof(int);
    }
    for (size_t i = 0; i < WIRE_FD_MAX; i++) {
        bool here = (mask & 1U << i) && next < count;

        fds[i] = here ? got[next++] : -1;
    }
    while (next < count) {
        cleanup_fd(&got[next++]);
    }
}

int wire_recv(int sock, struct wire *out, int fds[WIRE_FD_MAX], struct err *err)
{
    struct wire wire;
    struct iovec data = {.iov_base = &wire, .iov_len = sizeof(wire)};
    union control control;
    struct msghdr msg = {.msg_iov = &data,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    int got[WIRE_FD_MAX];
    ssize_t n;

    do {
        n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n == 0 || (n < 0 && errno == ECONNRESET)) {
        return err_set(err, EPIPE, "the peer is gone");
    }
    if (n < 0) {
        return err_errno(err, "recvmsg");
    }
    take_fds(&msg, n == (ssize_t)sizeof(wire) ? wire.fds : 0, got);
    if (n != (ssize_t)sizeof(wire)) {
        wire_close(got);
        return err_set(err, EPROTO, "a message of %zd bytes", n);
    }
    wire.words[sizeof(wire.words) - 1] = '\0';
    memcpy(fds, got, sizeof(got));
    *out = wire;
    return 0;
}

void wire_close(int fds[WIRE_FD_MAX])
{
    for (int i = 0; i < WIRE_FD_MAX; i++) {
        cleanup_fd(&fds[i]);
    }
}
