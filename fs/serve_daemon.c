/* See serve_daemon.h. */
#include "fs/serve_daemon.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/loop.h"
#include "fs/daemon.h"
#include "fs/options.h"
#include "fs/serve.h"
#include "fs/start.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    LOOK_MS = 1000,   /* How often to look whether there is work left, */
    LINGER_MS = 5000, /* and how long without any to wait for more. */
};

struct serving {
    const struct options *options;
    struct loop *loop;
    struct registry *registry;
    struct server *server;
};

static int end_fd = -1; /* Readable: the end was asked for. */

static void ask_for_the_end(int number)
{
    (void)number;
    (void)eventfd_write(end_fd, 1);
}

static int handle(int number, void (*handler)(int), struct err *err)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};

    (void)sigemptyset(&action.sa_mask);
    return sigaction(number, &action, NULL) < 0
               ? err_errno(err, "cannot handle signal %d", number)
               : 0;
}

static int handle_signals(struct err *err)
{
    static const int asking[] = {SIGTERM, SIGINT, SIGHUP};
    int rc = handle(SIGPIPE, SIG_IGN, err);

    end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (end_fd < 0) {
        return err_errno(err, "eventfd");
    }
    for (size_t i = 0; i < ARRAY_SIZE(asking) && rc == 0; i++) {
        rc = handle(asking[i], ask_for_the_end, err);
    }
    return rc;
}

static void sandbox_left(void *arg, const char *id, const char *status)
{
    (void)arg;
    log_warning("the sandbox of session '%s' is left behind: %s", id, status);
}

/* What needs threads: after the fork. */
static int start(struct serving *serving,
                 const struct provider_ops *const *providers, struct err *err)
{
    const struct registry_hooks hooks = {.left = sandbox_left};
    int rc = handle_signals(err);

    if (rc == 0) {
        rc = loop_new(&serving->loop, err);
    }
    if (rc == 0) {
        rc = start_registry(serving->options, providers, serving->loop, &hooks,
                            &serving->registry, err);
    }
    return rc < 0 ? rc
                  : server_open(serving->registry, serving->options->state,
                                &serving->server, err);
}

/* No client is there, and no sandbox runs. Sessions that stay need nobody. */
static bool is_done(const struct serving *serving)
{
    int64_t since = server_idle_since(serving->server);

    return !serving->options->foreground && since != DEADLINE_NONE &&
           clock_ms() - since >= LINGER_MS &&
           registry_at_rest(serving->registry);
}

static void wait_for_the_end(const struct serving *serving)
{
    struct pollfd fd = {.fd = end_fd, .events = POLLIN};

    while (poll(&fd, 1, LOOK_MS) <= 0 && !is_done(serving)) {
    }
}

static void stop(struct serving *serving)
{
    if (serving->registry) {
        registry_ending(serving->registry);
    }
    server_close(serving->server);
    if (!registry_close(serving->registry, start_end_ms(serving->options))) {
        log_error("a call of an engine does not end; it is left behind");
        _exit(EXIT_FAILURE);
    }
    loop_free(serving->loop);
}

int serve_daemon(const struct options *options,
                 const struct provider_ops *const *providers, struct err *err)
{
    struct serving serving = {.options = options};
    struct daemon daemon;
    int rc = daemon_start(&daemon, options->foreground, err);

    if (rc == 0) {
        rc = start(&serving, providers, err);
    }
    if (rc == 0) {
        daemon_ready(&daemon, options);
        wait_for_the_end(&serving);
        daemon_ending();
    }
    stop(&serving);
    return rc;
}
