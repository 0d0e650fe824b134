/* What a service manager hears of the daemon. */
#include "tests/e2e/tools.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int listen_to(struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int n;

    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    /* Abstract: a path may be too long. */
    n = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1,
                 "sessionfs-e2e-%d", (int)getpid());
    assert_true(fd >= 0);
    assert_int_equal(
        bind(fd, (const struct sockaddr *)address,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1) +
                 (socklen_t)n),
        0);
    return fd;
}

static void expect_news(int fd, const char *news)
{
    struct pollfd ready = {fd, POLLIN, 0};
    char text[256];
    ssize_t n;

    assert_int_equal(poll(&ready, 1, TOOLS_SOON_MS), 1);
    n = recv(fd, text, sizeof(text) - 1, 0);
    assert_true(n >= 0);
    text[n] = '\0';
    assert_string_equal(text, news);
}

static void expect_silence(int fd)
{
    char byte;

    assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), -1);
}

static void systemd_hears_of_the_start_and_of_the_end(void **state)
{
    struct sockaddr_un address;
    int fd = listen_to(&address);
    char out[512];

    (void)state;
    address.sun_path[0] = '@';
    assert_int_equal(setenv("NOTIFY_SOCKET", address.sun_path, 1), 0);
    /* A start that fails is none. */
    assert_int_not_equal(mnt_second(out, sizeof(out)), 0);
    expect_silence(fd);
    mnt_stop();
    expect_silence(fd);
    mnt_start();
    expect_news(fd, "READY=1");
    expect_silence(fd);
    assert_int_equal(kill(mnt.pid, SIGTERM), 0);
    expect_news(fd, "STOPPING=1");
    mnt_stopped();
    expect_silence(fd);
    assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
    (void)close(fd);
}

static const struct CMUnitTest tests[] = {
    e2e_test(systemd_hears_of_the_start_and_of_the_end),
};

E2E_MAIN(tests)
