/* See serve_link.h. */
#include "fs/serve_link.h"

#include "core/cleanup.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum {
    BACKLOG = 128
};

#define SOCKET_NAME "serve.sock"

/* By the descriptor of its directory: a path may be too long for it. */
static void name_socket(struct sockaddr_un *out, int dir)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void)snprintf(out->sun_path, sizeof(out->sun_path),
                   "/proc/self/fd/%d/" SOCKET_NAME, dir);
}

static int open_state(const char *state, int *out, struct err *err)
{
    *out = open(state, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return *out < 0 ? err_errno(err, "state directory '%s'", state) : 0;
}

static int open_socket(int flags, int *out, struct err *err)
{
    *out = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    return *out < 0 ? err_errno(err, "socket") : 0;
}

int serve_link_listen(const char *state, int *out, struct err *err)
{
    struct sockaddr_un name;
    AUTO_FD int dir = -1;
    AUTO_FD int fd = -1;
    int rc = open_state(state, &dir, err);

    if (rc == 0) {
        rc = open_socket(SOCK_NONBLOCK, &fd, err);
    }
    if (rc < 0) {
        return rc;
    }
    name_socket(&name, dir);
    (void)unlinkat(dir, SOCKET_NAME, 0);
    /* Before the bind: the file has its mode from the first. */
    if (fchmod(fd, 0600) < 0 ||
        bind(fd, (const struct sockaddr *)&name, sizeof(name)) < 0 ||
        listen(fd, BACKLOG) < 0) {
        return err_errno(err, "cannot listen in '%s'", state);
    }
    *out = TAKE_FD(fd);
    return 0;
}

void serve_link_remove(const char *state)
{
    AUTO_FD int dir = open(state, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (dir >= 0) {
        (void)unlinkat(dir, SOCKET_NAME, 0);
    }
}

int serve_link_connect(const char *state, int *out, struct err *err)
{
    struct sockaddr_un name;
    AUTO_FD int dir = -1;
    AUTO_FD int fd = -1;
    uid_t uid;
    pid_t pid;
    int rc = open_state(state, &dir, err);

    if (rc == 0) {
        rc = open_socket(0, &fd, err);
    }
    if (rc < 0) {
        return rc;
    }
    name_socket(&name, dir);
    if (connect(fd, (const struct sockaddr *)&name, sizeof(name)) < 0) {
        return err_errno(err, "cannot reach the daemon of '%s'", state);
    }
    if (!serve_link_trusted(fd, &uid, &pid)) {
        return err_set(err, EPERM, "user %u serves '%s'", (unsigned)uid, state);
    }
    *out = TAKE_FD(fd);
    return 0;
}

bool serve_link_trusted(int fd, uid_t *uid, pid_t *pid)
{
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t size = sizeof(peer);
    bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;

    *uid = peer.uid;
    *pid = peer.pid;
    return known && (peer.uid == geteuid() || peer.uid == 0);
}
