/* Calls that a thread waits for. See jsonl.h. */
#include "core/cleanup.h"
#include "core/clock.h"
#include "providers/jsonl/jsonl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    TRIES = 4, /* Of what the program says to try again. */
    FIRST_PAUSE_MS = 100,
    FILE_MAX = PEER_LINE_MAX / 4 * 3 - 4096, /* Bytes, as base64 in a line. */
};

/* ---- One request ---- */

static int take_event(const struct js *event, struct answer *out,
                      struct err *err)
{
    const char *type = js_text(event, "type");
    int stream = -1;

    if (type && strcmp(type, "stdout") == 0) {
        stream = COMMAND_STDOUT;
    } else if (type && strcmp(type, "stderr") == 0) {
        stream = COMMAND_STDERR;
    }
    /* Other calls have events of no use. */
    return stream < 0 || !out->streams[stream].cap
               ? 0
               : wire_bytes(event, "data_base64", &out->streams[stream], err);
}

/* Returns 1 for the answer, 0 for what comes before it. */
static int take_message(struct message *message, struct answer *out,
                        struct err *err)
{
    switch (message->kind) {
    case MESSAGE_EVENT:
        return take_event(message->body, out, err);
    case MESSAGE_ERROR:
        wire_failure(message->body, out);
        return 1;
    case MESSAGE_RESULT:
        break;
    }
    out->result = TAKE_PTR(message->body);
    return 1;
}

static int converse(struct peer *peer, const struct limits *limits,
                    struct answer *out, struct err *err)
{
    int rc = 0;

    while (rc == 0) {
        struct message message = {.body = NULL};

        rc = peer_take(peer, &message, err);
        if (rc > 0) {
            rc = take_message(&message, out, err);
            message_done(&message);
        } else if (rc == 0) {
            rc = peer_step(peer, limits, err);
        }
    }
    if (rc < 0) {
        peer->broken = true;
    }
    return rc < 0 ? rc : 0;
}

static int ask_once(struct jsonl *jsonl, struct quick *quick,
                    const struct limits *limits, struct answer *out,
                    struct err *err)
{
    struct peer *peer;
    int rc = pool_take(jsonl->pool, quick->program, limits, &peer, err);

    if (rc < 0) {
        return rc;
    }
    quick->asked = true;
    rc = peer_ask(peer, quick->method, quick->session, quick->params, err);
    if (rc == 0) {
        rc = converse(peer, limits, out, err);
    }
    pool_give(jsonl->pool, quick->program, peer);
    return rc < 0 ? err_wrap(err, rc, "%s", quick->method) : 0;
}

int quick_ask(struct jsonl *jsonl, struct quick *quick,
              const struct limits *limits, struct answer *out, struct err *err)
{
    size_t most = out->streams[0].cap;
    int64_t pause_ms = FIRST_PAUSE_MS;
    int rc;

    for (int i = 1;; i++) {
        struct limits pause = {.deadline_ms = clock_deadline(pause_ms),
                               .cancel = limits->cancel};

        rc = ask_once(jsonl, quick, limits, out, err);
        if (rc < 0 || out->result || !out->retryable || i == TRIES ||
            pause.deadline_ms > limits->deadline_ms ||
            limits_wait(&pause, -1, 0, err) != -ETIMEDOUT) {
            break;
        }
        err_clear(err);
        answer_done(out);
        answer_init(out, most);
        pause_ms *= 2;
    }
    js_free(TAKE_PTR(quick->params));
    return rc;
}

int quick_call(struct jsonl *jsonl, struct quick *quick,
               const struct limits *limits, struct answer *out, struct err *err)
{
    int rc = quick_ask(jsonl, quick, limits, out, err);

    if (rc == 0 && !out->result) {
        rc = wire_fail(out, err);
        rc = err_wrap(err, rc, "%s: %s", quick->program->name, quick->method);
    }
    return rc;
}

/* ---- Scripts ---- */

/* What it wrote: as the result has it or, without, the events. */
static int take_output(const struct answer *answer, struct buf *out,
                       struct err *err)
{
    size_t before = out->size;
    int rc = wire_bytes(answer->result, "stdout_base64", out, err);
    const struct buf *told = &answer->streams[COMMAND_STDOUT];

    if (rc == 0 && out->size == before && told->size) {
        rc = buf_add(out, told->data, told->size);
        rc = rc < 0 ? err_set(err, -rc, "too much output") : 0;
    }
    return rc;
}

int quick_run(struct jsonl *jsonl, const struct quick_script *ask,
              const struct limits *limits, struct buf *out, int *code,
              struct err *err)
{
    const struct provider_script *script = ask->script;
    struct quick quick = {.program = ask->program,
                          .session = ask->session,
                          .method = "exec",
                          .params = wire_script(script->text, script->args)};
    struct buf text = BUF_INIT(script->most);
    struct answer answer;
    int64_t status = 0;
    int rc = 0;

    if (ask->cwd) {
        js_set_text(quick.params, "cwd", ask->cwd);
    }
    if (script->input) {
        rc = wire_set_bytes(quick.params, "stdin_base64", script->input,
                            script->input_size);
    }
    if (rc < 0 || !quick.params) {
        js_free(quick.params);
        return err_set(err, rc < 0 ? -rc : ENOMEM, "the script's input");
    }
    answer_init(&answer, script->most);
    rc = quick_call(jsonl, &quick, limits, &answer, err);
    if (rc == 0 && (!wire_int(answer.result, "exit_code", &status) ||
                    status > INT32_MAX || status < INT32_MIN)) {
        rc = err_set(err, EPROTO, "exec was answered without an exit_code");
    }
    if (rc == 0) {
        rc = take_output(&answer, &text, err);
    }
    if (rc == 0 && buf_add(out, buf_str(&text), text.size) < 0) {
        rc = err_set(err, EFBIG, "too much output");
    }
    if (rc == 0) {
        *code = (int)status;
    }
    buf_done(&text);
    answer_done(&answer);
    return rc;
}

/* ---- The slots ---- */

int jsonl_run(struct provider *provider, const struct sandbox *sandbox,
              const struct provider_script *script, const struct limits *limits,
              struct buf *out, int *code, struct err *err)
{
    struct jsonl *jsonl = jsonl_of(provider);
    struct lease *lease;
    int rc = lease_use(jsonl, sandbox, limits, &lease, err);

    if (rc < 0) {
        return rc;
    }
    rc = quick_run(jsonl,
                   &(struct quick_script){.program = &lease->program,
                                          .session = lease->session,
                                          .cwd = lease->workspace,
                                          .script = script},
                   limits, out, code, err);
    if (rc < 0) {
        rc = lease_failed(jsonl, lease, rc, limits, err);
    }
    lease_unref(jsonl, lease);
    return rc;
}

/* As a request has it. NULL: it cannot, or there is no memory. */
static struct js *path_params(const struct lease *lease, const char *path)
{
    struct buf whole = BUF_INIT(64 * 1024);
    struct js *params = NULL;

    if (wire_is_text(path) &&
        buf_printf(&whole, "%s/%s",
                   strcmp(lease->workspace, "/") == 0 ? "" : lease->workspace,
                   path) == 0) {
        params = js_object();
        js_set_text(params, "path", buf_str(&whole));
    }
    buf_done(&whole);
    return params;
}

static int write_all(int fd, const struct buf *data, struct err *err)
{
    size_t done = 0;

    while (done < data->size) {
        ssize_t n = write(fd, data->data + done, data->size - done);

        if (n < 0) {
            return err_errno(err, "write");
        }
        done += (size_t)n;
    }
    return 0;
}

static int read_file(struct jsonl *jsonl, const struct lease *lease,
                     struct quick *quick, int fd, const struct limits *limits,
                     struct err *err)
{
    struct buf data = BUF_INIT(PEER_LINE_MAX);
    struct answer answer;
    int rc;

    answer_init(&answer, 0);
    rc = quick_call(jsonl, quick, limits, &answer, err);
    (void)lease;
    if (rc == 0 && !js_text(answer.result, "content_base64")) {
        rc = err_set(err, EPROTO, "read_file was answered without content");
    }
    if (rc == 0) {
        rc = wire_bytes(answer.result, "content_base64", &data, err);
    }
    answer_done(&answer);
    if (rc == 0) {
        rc = write_all(fd, &data, err);
    }
    buf_done(&data);
    return rc;
}

/* Names that JSON cannot hold go through a shell. */
static int run_cat(struct jsonl *jsonl, const struct lease *lease,
                   const struct provider_script *script, struct buf *out,
                   const struct limits *limits, struct err *err)
{
    int code = 0;
    int rc = quick_run(jsonl,
                       &(struct quick_script){.program = &lease->program,
                                              .session = lease->session,
                                              .cwd = lease->workspace,
                                              .script = script},
                       limits, out, &code, err);

    return rc == 0 && code != 0
               ? err_set(err, EIO, "cat failed with status %d", code)
               : rc;
}

static int cat_out(struct jsonl *jsonl, const struct lease *lease,
                   const char *path, int fd, const struct limits *limits,
                   struct err *err)
{
    const char *const args[] = {path, NULL};
    const struct provider_script script = {
        .text = "exec cat \"./$1\"", .args = args, .most = PEER_LINE_MAX};
    struct buf data = BUF_INIT(PEER_LINE_MAX);
    int rc = run_cat(jsonl, lease, &script, &data, limits, err);

    if (rc == 0) {
        rc = write_all(fd, &data, err);
    }
    buf_done(&data);
    return rc;
}

int jsonl_read_file(struct provider *provider, const struct sandbox *sandbox,
                    const char *path, int fd, const struct limits *limits,
                    struct err *err)
{
    struct jsonl *jsonl = jsonl_of(provider);
    struct quick quick = {.method = "read_file"};
    struct lease *lease;
    int rc = lease_use(jsonl, sandbox, limits, &lease, err);

    if (rc < 0) {
        return rc;
    }
    quick.program = &lease->program;
    quick.session = lease->session;
    quick.params = path_params(lease, path);
    rc = quick.params ? read_file(jsonl, lease, &quick, fd, limits, err)
                      : cat_out(jsonl, lease, path, fd, limits, err);
    if (rc < 0) {
        rc = lease_failed(jsonl, lease, rc, limits, err);
    }
    lease_unref(jsonl, lease);
    return rc;
}

/* All that is behind the fd's place. */
static int read_rest(int fd, struct buf *out, struct err *err)
{
    enum {
        PIECE = 256 * 1024
    };
    AUTO_FREE char *piece = malloc(PIECE);
    int rc = piece ? 0 : err_no_memory(err);

    while (rc == 0) {
        ssize_t n = read(fd, piece, PIECE);

        if (n <= 0) {
            return n < 0 ? err_errno(err, "read") : 0;
        }
        rc = buf_add(out, piece, (size_t)n);
        rc = rc < 0 ? err_set(err, -rc,
                              "a file of more than %d bytes goes through no "
                              "line of sandbox.v1",
                              FILE_MAX)
                    : 0;
    }
    return rc;
}

static int cat_in(struct jsonl *jsonl, const struct lease *lease,
                  const char *path, const struct buf *data,
                  const struct limits *limits, struct err *err)
{
    const char *const args[] = {path, NULL};
    const struct provider_script script = {.text = "exec cat >\"./$1\"",
                                           .args = args,
                                           .input = buf_str(data),
                                           .input_size = data->size};
    struct buf none = BUF_INIT(0);
    int rc = run_cat(jsonl, lease, &script, &none, limits, err);

    buf_done(&none);
    return rc;
}

static int write_file(struct jsonl *jsonl, const struct lease *lease,
                      const char *path, const struct buf *data,
                      const struct limits *limits, struct err *err)
{
    struct quick quick = {.program = &lease->program,
                          .session = lease->session,
                          .method = "write_file",
                          .params = path_params(lease, path)};
    struct answer answer;
    int rc;

    if (!quick.params) {
        return cat_in(jsonl, lease, path, data, limits, err);
    }
    if (wire_set_bytes(quick.params, "content_base64", buf_str(data),
                       data->size) < 0) {
        js_free(quick.params);
        return err_no_memory(err);
    }
    answer_init(&answer, 0);
    rc = quick_call(jsonl, &quick, limits, &answer, err);
    answer_done(&answer);
    return rc;
}

int jsonl_write_file(struct provider *provider, const struct sandbox *sandbox,
                     const char *path, int fd, const struct limits *limits,
                     struct err *err)
{
    struct jsonl *jsonl = jsonl_of(provider);
    struct buf data = BUF_INIT(FILE_MAX);
    struct lease *lease = NULL;
    int rc = read_rest(fd, &data, err);

    if (rc == 0) {
        rc = lease_use(jsonl, sandbox, limits, &lease, err);
    }
    if (rc == 0) {
        rc = write_file(jsonl, lease, path, &data, limits, err);
        if (rc < 0) {
            rc = lease_failed(jsonl, lease, rc, limits, err);
        }
    }
    lease_unref(jsonl, lease);
    buf_done(&data);
    return rc;
}
