/* Attempts by sockets and shared objects; and what a sandbox lets be. */
#include "tests/contract/local_attempts.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <mqueue.h>
#include <net/if.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

/* ---- Kinds of sockets ---- */

static int netlink(const struct attempt_ctx *ctx)
{
    return of_fd(
        socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, (int)ctx->row->number));
}

/* The kernel looks at 32 bits of it. */
static int hidden_netlink(const struct attempt_ctx *ctx)
{
    return of_fd(syscall(SYS_socket, (1L << 32) | AF_NETLINK, SOCK_RAW,
                         (1L << 32) | ctx->row->number));
}

static int family(const struct attempt_ctx *ctx)
{
    return of_fd(socket((int)ctx->row->number, SOCK_RAW | SOCK_CLOEXEC, 0));
}

static int protocol(const struct attempt_ctx *ctx)
{
    return of_fd(
        socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, (int)ctx->row->number));
}

static int raw_six(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return of_fd(socket(AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMPV6));
}

static int pair_of_vsocks(const struct attempt_ctx *ctx)
{
    int pair[2];

    (void)ctx;
    return socketpair(AF_VSOCK, SOCK_STREAM, 0, pair);
}

static int option(const struct attempt_ctx *ctx)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1;

    return after_close(fd, setsockopt(fd, SOL_SOCKET, (int)ctx->row->number,
                                      &one, sizeof(one)));
}

static int transparent(const struct attempt_ctx *ctx)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1;

    (void)ctx;
    return after_close(
        fd, setsockopt(fd, IPPROTO_IP, IP_TRANSPARENT, &one, sizeof(one)));
}

/* Sets the loopback interface up, which it is. */
static int set_interface(const struct attempt_ctx *ctx)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    (void)ctx;
    return after_close(fd, ioctl(fd, SIOCSIFFLAGS, &request));
}

/* Asks for a change of the loopback interface that changes nothing. */
static int set_route(const struct attempt_ctx *ctx)
{
    struct {
        struct nlmsghdr head;
        struct ifinfomsg info;
    } ask = {.head = {.nlmsg_len = sizeof(ask),
                      .nlmsg_type = RTM_NEWLINK,
                      .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
             .info = {.ifi_index = 1}};
    struct {
        struct nlmsghdr head;
        struct nlmsgerr err;
    } answer = {.err.error = -EIO};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    (void)ctx;
    if (send(fd, &ask, sizeof(ask), 0) < 0 ||
        recv(fd, &answer, sizeof(answer), 0) < 0) {
        return after_close(fd, -1);
    }
    errno = -answer.err.error;
    return after_close(fd, answer.err.error ? -1 : 0);
}

static int low_port(const struct attempt_ctx *ctx)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)ctx->row->number),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    return after_close(fd, bind(fd, (const struct sockaddr *)&at, sizeof(at)));
}

/* Says in a message to be another process of another user. */
static int lie_about_itself(const struct attempt_ctx *ctx)
{
    struct ucred cred = {.pid = 1, .uid = 1, .gid = 1};
    char room[CMSG_SPACE(sizeof(cred))] = "";
    struct iovec iov = {.iov_base = room, .iov_len = 1};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = room,
                             .msg_controllen = sizeof(room)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    int pair[2];

    (void)ctx;
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_CREDENTIALS;
    head->cmsg_len = CMSG_LEN(sizeof(cred));
    memcpy(CMSG_DATA(head), &cred, sizeof(cred));
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) < 0) {
        return -1;
    }
    return sendmsg(pair[0], &message, 0) < 0 ? -1 : 0;
}

/* ---- To what lies outside ---- */

static int connect_path(const struct attempt_ctx *ctx)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(to.sun_path, sizeof(to.sun_path), "%s.sock", ctx->file);
    return after_close(fd,
                       connect(fd, (const struct sockaddr *)&to, sizeof(to)));
}

static int connect_any(const struct attempt_ctx *ctx)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)ctx->port),
                             .sin_addr.s_addr = htonl(INADDR_ANY)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    return after_close(fd,
                       connect(fd, (const struct sockaddr *)&to, sizeof(to)));
}

static int shared_memory(const struct attempt_ctx *ctx)
{
    return shmget(ctx->key, 0, 0) < 0 ? -1 : 0;
}

static int semaphores(const struct attempt_ctx *ctx)
{
    return semget(ctx->key, 0, 0) < 0 ? -1 : 0;
}

static int messages(const struct attempt_ctx *ctx)
{
    return msgget(ctx->key, 0) < 0 ? -1 : 0;
}

static int message_queue(const struct attempt_ctx *ctx)
{
    char name[80];

    (void)snprintf(name, sizeof(name), "/%s", ctx->abstract);
    return of_fd(mq_open(name, O_RDONLY | O_CLOEXEC));
}

static int shared_file(const struct attempt_ctx *ctx)
{
    char name[80];

    (void)snprintf(name, sizeof(name), "/dev/shm/%s", ctx->abstract);
    return of_fd(open(name, O_RDONLY | O_CLOEXEC));
}

const struct attempt attempts_sockets[] = {
    {"open netlink for any family", CONTROL_MAY, netlink, NULL,
     NETLINK_GENERIC},
    {"open netlink for filters", CONTROL_MAY, netlink, NULL, NETLINK_NETFILTER},
    {"open netlink for transforms", CONTROL_MAY, netlink, NULL, NETLINK_XFRM},
    {"open netlink for audits", CONTROL_MAY, netlink, NULL, NETLINK_AUDIT},
    {"open netlink for sockets", CONTROL_MAY, netlink, NULL, NETLINK_SOCK_DIAG},
    {"open netlink for connectors", CONTROL_MAY, netlink, NULL,
     NETLINK_CONNECTOR},
    {"open netlink for security", CONTROL_MAY, netlink, NULL, NETLINK_SELINUX},
    {"open netlink for routes by lookup", CONTROL_MAY, netlink, NULL,
     NETLINK_FIB_LOOKUP},
    {"open netlink for crypto", CONTROL_MAY, netlink, NULL, NETLINK_CRYPTO},
    {"open netlink with hidden bits", CONTROL_MAY, hidden_netlink, NULL,
     NETLINK_GENERIC},
    {"open an XDP socket", CONTROL_MAY, family, NULL, AF_XDP},
    {"open a key socket", CONTROL_MAY, family, NULL, AF_KEY},
    {"open a bluetooth socket", CONTROL_MAY, family, NULL, AF_BLUETOOTH},
    {"open a CAN socket", CONTROL_MAY, family, NULL, AF_CAN},
    {"open an SCTP socket", CONTROL_MAY, protocol, NULL, IPPROTO_SCTP},
    {"open an L2TP socket", CONTROL_MAY, protocol, NULL, 115},
    {"open a raw socket of version 6", CONTROL_MAY, raw_six, NULL, 0},
    {"open a pair of vsocks", CONTROL_MAY, pair_of_vsocks, NULL, 0},
    {"mark packets", CONTROL_MAY, option, NULL, SO_MARK},
    {"take more memory for packets", CONTROL_MAY, option, NULL, SO_RCVBUFFORCE},
    {"send from any address", CONTROL_MAY, transparent, NULL, 0},
    {"set an interface", CONTROL_MAY, set_interface, NULL, 0},
    {"change an interface", CONTROL_MAY, set_route, NULL, 0},
    {"take a port of the system", CONTROL_MAY, low_port, NULL, 1},
    {"lie about itself on a socket", CONTROL_MAY, lie_about_itself, NULL, 0},
    {"connect to a socket of a path", CONTROL_ALLOWED, connect_path, NULL, 0},
    {"connect to any address", CONTROL_ALLOWED, connect_any, NULL, 0},
    {"find shared memory outside", CONTROL_ALLOWED, shared_memory, NULL, 0},
    {"find semaphores outside", CONTROL_ALLOWED, semaphores, NULL, 0},
    {"find messages outside", CONTROL_ALLOWED, messages, NULL, 0},
    {"find a message queue outside", CONTROL_MAY, message_queue, NULL, 0},
    {"find shared files outside", CONTROL_ALLOWED, shared_file, NULL, 0},
    {NULL, CONTROL_MAY, NULL, NULL, 0},
};

/* ---- By design ---- */

static int make_fifo(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return mkfifo("./sessionfs-fifo", 0600) < 0 ? -1
                                                : unlink("./sessionfs-fifo");
}

static int watch(const struct attempt_ctx *ctx)
{
    int fd = inotify_init1(IN_CLOEXEC);

    (void)ctx;
    return after_close(fd, inotify_add_watch(fd, ".", IN_CREATE) < 0 ? -1 : 0);
}

static int lease(const struct attempt_ctx *ctx)
{
    int fd = open("./sessionfs-lease", O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
    int rc = fcntl(fd, F_SETLEASE, F_RDLCK);

    (void)ctx;
    (void)unlink("./sessionfs-lease");
    return after_close(fd, rc);
}

static int run_memory(const struct attempt_ctx *ctx)
{
    int from = open("/bin/true", O_RDONLY | O_CLOEXEC);
    int to = memfd_create("program", 0);
    struct stat attr;
    char *argv[] = {NULL};
    pid_t pid = fork();
    int status = -1;

    (void)ctx;
    if (pid == 0) {
        if (fstat(from, &attr) == 0 &&
            copy_file_range(from, NULL, to, NULL, (size_t)attr.st_size, 0) <
                0) {
            void *at = mmap(NULL, (size_t)attr.st_size, PROT_READ, MAP_PRIVATE,
                            from, 0);

            (void)!write(to, at, (size_t)attr.st_size);
        }
        (void)syscall(SYS_execveat, to, "", argv, argv, AT_EMPTY_PATH);
        _exit(1);
    }
    (void)waitpid(pid, &status, 0);
    return status == 0 ? 0 : -1;
}

static int writable_program(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED
               ? -1
               : 0;
}

static int stay_behind(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return setsid() < 0 ? -1 : 0;
}

const struct attempt attempts_by_design[] = {
    {"make a pipe with a name", CONTROL_ALLOWED, make_fifo, NULL, 0},
    {"watch files", CONTROL_ALLOWED, watch, NULL, 0},
    {"take a lease on a file", CONTROL_ALLOWED, lease, NULL, 0},
    {"run a program from memory", CONTROL_ALLOWED, run_memory, NULL, 0},
    {"write the program that runs", CONTROL_ALLOWED, writable_program, NULL, 0},
    {"stay behind as a session", CONTROL_ALLOWED, stay_behind, NULL, 0},
    {"take a port of its own network", CONTROL_ALLOWED, low_port, NULL, 40123},
    {"open netlink for its own routes", CONTROL_ALLOWED, netlink, NULL,
     NETLINK_ROUTE},
    {NULL, CONTROL_MAY, NULL, NULL, 0},
};
