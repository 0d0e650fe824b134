/* One process of a program. See peer.h. */
#include "providers/jsonl/peer.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/json_bytes.h"
#include "core/log.h"
#include "core/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum {
    CHUNK = 64 * 1024,
    MOST_CHUNKS = 64,   /* In one move: others want their turn. */
    END_STEP_MS = 5,    /* How often we look whether it has ended. */
    LAST_WORDS_MS = 50, /* For what it says of its end. */
};

/* ---- The process ---- */

/* Returns a positive errno. */
static int add_actions(posix_spawn_file_actions_t *actions, const int ends[3])
{
    int rc = 0;

    for (int fd = STDIN_FILENO; rc == 0 && fd <= STDERR_FILENO; fd++) {
        rc = posix_spawn_file_actions_adddup2(actions, ends[fd], fd);
    }
    return rc;
}

static int spawn(const struct program *program, const int ends[3], pid_t *out,
                 struct err *err)
{
    posix_spawn_file_actions_t actions;
    int rc;

    (void)posix_spawn_file_actions_init(&actions);
    rc = -add_actions(&actions, ends);
    if (rc == 0) {
        rc = spawn_program(program->argv[0], &actions, program->argv,
                           program->env, out);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    return rc < 0 ? err_set(err, ENOTCONN, "cannot start '%s': %s",
                            program->argv[0], strerror(-rc))
                  : 0;
}

/* A pipe whose ends are out of the way of those that a child has. */
static int make_pipe(int *read_end, int *write_end)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0) {
        return -errno;
    }
    *read_end = fcntl(fds[0], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    *write_end = fcntl(fds[1], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    (void)close(fds[0]);
    (void)close(fds[1]);
    return *read_end < 0 || *write_end < 0 ? -EMFILE : 0;
}

static int start(const struct program *program, struct peer *peer,
                 struct err *err)
{
    int theirs[3] = {-1, -1, -1};
    int rc = make_pipe(&theirs[STDIN_FILENO], &peer->in);

    rc = rc < 0 ? rc : make_pipe(&peer->out, &theirs[STDOUT_FILENO]);
    rc = rc < 0 ? rc : make_pipe(&peer->err, &theirs[STDERR_FILENO]);
    if (rc < 0) {
        rc = err_set(err, -rc, "cannot make a pipe");
    } else {
        (void)fcntl(peer->in, F_SETFL, O_NONBLOCK);
        (void)fcntl(peer->out, F_SETFL, O_NONBLOCK);
        (void)fcntl(peer->err, F_SETFL, O_NONBLOCK);
        rc = spawn(program, theirs, &peer->pid, err);
    }
    if (rc == 0) {
        peer->end = (int)syscall(SYS_pidfd_open, peer->pid, 0U);
    }
    for (size_t i = 0; i < ARRAY_SIZE(theirs); i++) {
        cleanup_fd(&theirs[i]);
    }
    return rc;
}

int peer_start(const struct program *program, struct peer **out,
               struct err *err)
{
    struct peer *peer = calloc(1, sizeof(*peer));
    int rc;

    if (!peer) {
        return err_no_memory(err);
    }
    list_init(&peer->link);
    peer->in = peer->out = peer->err = peer->end = -1;
    buf_init(&peer->sent, PEER_LINE_MAX);
    buf_init(&peer->line, PEER_LINE_MAX);
    peer->name = strdup(program->name);
    peer->ahead = malloc(CHUNK);
    rc = peer->name && peer->ahead ? start(program, peer, err)
                                   : err_no_memory(err);
    if (rc < 0) {
        peer_kill(peer);
        return rc;
    }
    *out = peer;
    return 0;
}

/* Waits a while for its end. */
static bool await_end(const struct peer *peer, int64_t patience_ms, int *status)
{
    int64_t deadline = clock_deadline(patience_ms);

    while (waitpid(peer->pid, status, WNOHANG) == 0) {
        if (clock_ms() >= deadline) {
            return false;
        }
        (void)poll(NULL, 0, END_STEP_MS);
    }
    return true;
}

static void free_peer(struct peer *peer)
{
    cleanup_fd(&peer->in);
    cleanup_fd(&peer->out);
    cleanup_fd(&peer->err);
    cleanup_fd(&peer->end);
    buf_done(&peer->sent);
    buf_done(&peer->line);
    free(peer->ahead);
    free(peer->name);
    free(peer);
}

void peer_kill(struct peer *peer)
{
    if (!peer) {
        return;
    }
    if (peer->pid > 0) {
        (void)kill(peer->pid, SIGKILL);
        (void)waitpid(peer->pid, NULL, 0);
    }
    free_peer(peer);
}

/* ---- stderr ---- */

static void read_words(struct peer *peer)
{
    char data[4096];

    for (int i = 0; i < MOST_CHUNKS && !peer->err_ended; i++) {
        ssize_t n = read(peer->err, data, sizeof(data));

        if (n > 0) {
            words_take(&peer->words, peer->name, data, (size_t)n);
        } else if (n == 0 || errno != EINTR) {
            peer->err_ended = n == 0 || errno != EAGAIN;
            return;
        }
    }
}

/* ---- Lines in and out ---- */

static int break_peer(struct peer *peer, int rc)
{
    peer->broken = true;
    return rc;
}

static int fail(struct peer *peer, struct err *err, int code, const char *what)
{
    return break_peer(peer, err_set(err, code, "'%s' %s", peer->name, what));
}

/* Says how it has ended, as far as that is known by now. */
static int say_ended(struct peer *peer, struct err *err)
{
    char how[64] = "closed its stdout";
    int status;

    if (await_end(peer, LAST_WORDS_MS, &status)) {
        peer->pid = 0;
        (void)snprintf(how, sizeof(how), "ended%s %d",
                       WIFSIGNALED(status) ? " by signal" : " with status",
                       WIFSIGNALED(status) ? WTERMSIG(status)
                                           : WEXITSTATUS(status));
    }
    read_words(peer);
    words_end(&peer->words, peer->name);
    return break_peer(peer, err_set(err, ENOTCONN, "'%s' %s%s%s", peer->name,
                                    how, peer->words.last[0] ? ": " : "",
                                    peer->words.last));
}

int peer_ask(struct peer *peer, const char *method, const char *session,
             const struct js *params, struct err *err)
{
    struct buf *out = &peer->sent;
    size_t at;
    int rc;

    words_end(&peer->words, peer->name); /* They belong to what is over. */
    peer->requests++;
    peer->cut = false;
    rc = buf_printf(out, "{\"id\":\"req_%llu\",\"method\":\"%s\",\"params\":",
                    (unsigned long long)peer->requests, method);
    if (rc == 0 && session) {
        rc = buf_printf(out, "{\"session\":");
        rc = rc < 0 ? rc : buf_add(out, session, strlen(session));
    }
    at = out->size;
    rc = rc < 0 ? rc : js_write(params, out);
    if (rc == 0 && session) { /* Its brace becomes the comma between. */
        out->data[at] = out->data[at + 1] == '}' ? ' ' : ',';
    }
    rc = rc < 0 ? rc : buf_add(out, "}\n", 2);
    if (rc < 0) {
        buf_done(out);
        return err_set(err, -rc, "the request '%s' is too long", method);
    }
    return 0;
}

/* Who reads no more may yet say why. */
static void send_some(struct peer *peer)
{
    while (peer->sent_n < peer->sent.size) {
        ssize_t n = write(peer->in, peer->sent.data + peer->sent_n,
                          peer->sent.size - peer->sent_n);

        if (n < 0 && errno == EAGAIN) {
            return;
        }
        if (n < 0 && errno != EINTR) {
            break;
        }
        peer->sent_n += n > 0 ? (size_t)n : 0;
    }
    buf_done(&peer->sent);
    peer->sent_n = 0;
}

/* Takes what has come into the line, up to its end. */
static int fill_line(struct peer *peer, struct err *err)
{
    const char *data = peer->ahead + peer->ahead_at;
    size_t size = peer->ahead_end - peer->ahead_at;
    const char *end = memchr(data, '\n', size);
    size_t n = end ? (size_t)(end - data) : size;
    int rc;

    if (!peer->line.size) {
        peer->trim = (struct trim){.in_text = false};
    }
    rc = trim_feed(&peer->trim, data, n, peer->cut, &peer->line);
    if (rc < 0) {
        return rc == -EFBIG ? fail(peer, err, EFBIG, "sent too long a line")
                            : fail(peer, err, ENOMEM,
                                   "sent a line for which "
                                   "there is no memory");
    }
    peer->ahead_at += n + (end ? 1 : 0);
    peer->complete = end != NULL;
    return 0;
}

/* Nothing more comes; what there is may be a line without its end. */
static void end_out(struct peer *peer)
{
    peer->out_ended = true;
    peer->complete = peer->line.size > 0;
}

static bool has_ended(const struct peer *peer)
{
    struct pollfd fd = {.fd = peer->end, .events = POLLIN};

    return poll(&fd, 1, 0) > 0;
}

/* Reads until a line is whole or nothing more is there. A process that it has
 * left behind may have its stdout: what comes behind its own end is none of
 * its words. */
static int receive_some(struct peer *peer, struct err *err)
{
    bool over = false;
    int rc = 0;

    for (int i = 0; i < MOST_CHUNKS && rc == 0 && !peer->complete; i++) {
        ssize_t n;

        if (peer->ahead_at < peer->ahead_end) {
            rc = fill_line(peer, err);
            continue;
        }
        n = peer->out_ended ? 0 : read(peer->out, peer->ahead, CHUNK);
        if (n == 0 || (n < 0 && errno == EAGAIN && over)) {
            end_out(peer);
            return 0;
        }
        if (n < 0 && errno == EAGAIN) {
            over = has_ended(peer);
            if (!over) {
                return 0;
            }
        }
        peer->ahead_at = 0;
        peer->ahead_end = n > 0 ? (size_t)n : 0;
    }
    return rc;
}

int peer_move(struct peer *peer, struct err *err)
{
    int rc;

    send_some(peer);
    if (!peer->err_ended) {
        read_words(peer);
    }
    rc = receive_some(peer, err);
    if (rc == 0 && peer->out_ended && !peer->complete) {
        rc = say_ended(peer, err);
    }
    return rc;
}

int peer_step(struct peer *peer, const struct limits *limits, struct err *err)
{
    struct pollfd fds[] = {
        {.fd = peer->out_ended || peer->complete ? -1 : peer->out,
         .events = POLLIN},
        {.fd = peer->err_ended ? -1 : peer->err, .events = POLLIN},
        {.fd = peer->sent.size ? peer->in : -1, .events = POLLOUT},
        {.fd = peer->out_ended ? -1 : peer->end, .events = POLLIN},
        {.fd = limits->cancel->fd, .events = POLLIN},
    };
    int n = 1;

    if (!peer->out_ended) {
        n = poll(fds, ARRAY_SIZE(fds), clock_timeout(limits->deadline_ms));
    }
    if (cancel_fired(limits->cancel)) {
        return break_peer(peer, err_set(err, ECANCELED, "cancelled"));
    }
    if (n == 0) {
        return fail(peer, err, ETIMEDOUT, "did not answer in time");
    }
    return peer_move(peer, err);
}

/* ---- Messages ---- */

void message_done(struct message *message)
{
    js_free(message->body);
    message->body = NULL;
}

/* The member of a message, NULL: none or null. */
static struct js *member(const struct js *js, const char *name)
{
    struct js *value = js_get(js, name);

    if (value && js_type(value) == JS_NULL) {
        js_free(value);
        value = NULL;
    }
    return value;
}

static void sort_message(const struct js *js, struct message *out)
{
    out->kind = MESSAGE_EVENT;
    out->body = member(js, "event");
    if (!out->body) {
        out->kind = MESSAGE_ERROR;
        out->body = member(js, "error");
    }
    if (!out->body) {
        out->kind = MESSAGE_RESULT;
        out->body = member(js, "result");
    }
    if (!out->body) {
        out->body = js_object();
    }
}

/* Whether a message is about the present request (1) or about one that is
 * over (0). */
static int check_id(struct peer *peer, const struct js *js, struct err *err)
{
    const char *id = js_text(js, "id");
    char expect[32];
    char *end = NULL;
    unsigned long long n = 0;

    if (!id) {
        return fail(peer, err, EPROTO, "sent a message without an id");
    }
    (void)snprintf(expect, sizeof(expect), "req_%llu",
                   (unsigned long long)peer->requests);
    if (strcmp(id, expect) == 0) {
        return 1;
    }
    /* What some say where they could not read a request. */
    if ((!id[0] || strcmp(id, "unknown") == 0) && peer->requests) {
        struct js *error = member(js, "error");
        bool is_error = error != NULL;

        js_free(error);
        if (is_error) {
            return 1;
        }
    }
    if (strncmp(id, "req_", 4) == 0 && id[4] >= '1' && id[4] <= '9') {
        n = strtoull(id + 4, &end, 10);
    }
    if (end && !*end && n < peer->requests) {
        log_debug("%s: a late word about request %llu", peer->name, n);
        return 0;
    }
    return break_peer(peer, err_set(err, EPROTO,
                                    "'%s' answered '%.40s', which nobody asked",
                                    peer->name, id));
}

static int parse(struct peer *peer, struct js **out, struct err *err)
{
    struct buf line = BUF_INIT(2 * (size_t)PEER_LINE_MAX);
    int rc = js_bytes_read(peer->line.data, peer->line.size, &line);

    rc = rc < 0 ? err_set(err, -rc, "no memory for a line")
                : js_parse(buf_str(&line), line.size, out, err);
    buf_done(&line);
    if (rc == -EINVAL) {
        err->code = EPROTO;
    }
    return rc < 0 ? break_peer(peer, err_wrap(err, -err->code,
                                              "'%s' sent no JSON", peer->name))
                  : 0;
}

static int take_line(struct peer *peer, struct message *out, struct err *err)
{
    struct js *js;
    int rc = parse(peer, &js, err);

    if (rc < 0) {
        return rc;
    }
    rc = js_is_object(js) ? check_id(peer, js, err)
                          : fail(peer, err, EPROTO, "sent no JSON object");
    if (rc > 0) {
        sort_message(js, out);
    }
    js_free(js);
    if (rc > 0 && !out->body) {
        return fail(peer, err, ENOMEM, "sent what there is no memory for");
    }
    return rc;
}

/* The line was used; its lengths stay for who looks at a result. */
static void drop_line(struct peer *peer)
{
    if (peer->line.room > CHUNK) {
        buf_done(&peer->line);
    }
    peer->line.size = 0;
    peer->complete = false;
}

int peer_take(struct peer *peer, struct message *out, struct err *err)
{
    int rc = 0;

    while (rc == 0 && (peer->complete || peer->ahead_at < peer->ahead_end)) {
        if (!peer->complete) {
            rc = fill_line(peer, err);
            continue;
        }
        if (!buf_blank(buf_str(&peer->line), peer->line.size)) {
            rc = take_line(peer, out, err);
        }
        drop_line(peer);
    }
    return rc;
}

bool peer_fit(struct peer *peer)
{
    struct message message = {.body = NULL};
    struct err err = ERR_INIT;
    int rc = peer->broken ? -EPIPE : peer_move(peer, &err);

    if (rc == 0) {
        rc = peer_take(peer, &message, &err);
        message_done(&message);
    }
    if (rc < 0 && err.code != ENOTCONN) {
        log_debug("%s", err.msg);
    }
    return rc == 0 && !peer->line.size;
}

void peer_stop(struct peer *peer, int64_t patience_ms)
{
    struct cancel never = CANCEL_NEVER;
    const struct limits limits = {.deadline_ms = clock_deadline(patience_ms),
                                  .cancel = &never};
    struct message message = {.body = NULL};
    struct err err = ERR_INIT;
    struct js *params = js_object();
    int rc = peer_fit(peer) ? peer_ask(peer, "shutdown", NULL, params, &err)
                            : -EPIPE;

    js_free(params);
    while (rc == 0) {
        rc = peer_take(peer, &message, &err);
        if (rc == 0) {
            rc = peer_step(peer, &limits, &err);
        }
    }
    message_done(&message);
    cleanup_fd(&peer->in);
    if (peer->pid > 0 && rc > 0 &&
        await_end(peer, limits.deadline_ms - clock_ms(), &rc)) {
        peer->pid = 0;
    }
    peer_kill(peer);
}
