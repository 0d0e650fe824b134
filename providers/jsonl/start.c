/*
 * The start of a command: its request, and a look whether it was refused. The
 * protocol says why only in words, so a script in the sandbox finds out. See
 * command.h.
 */
#include "core/cleanup.h"
#include "core/clock.h"
#include "providers/jsonl/command.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOK_MS = 500,         /* For a refusal. */
    ARG_MAX_BYTES = 96000, /* What surely goes into one argument. */
};

/* Exits with the errno of what is wrong: $1 the directory, or none; $2 the
 * program, or none; $3 its PATH, or none. */
static const char why_not[] = "set -f\n"
                              "if [ \"$1\" ]; then\n"
                              "    [ -e \"$1\" ] || exit 2\n"
                              "    [ -d \"$1\" ] || exit 20\n"
                              "    cd -- \"$1\" || exit 13\n"
                              "fi\n"
                              "try() {\n"
                              "    [ -e \"$1\" ] || return\n"
                              "    [ ! -d \"$1\" ] && [ -x \"$1\" ] && exit 0\n"
                              "    e=13\n"
                              "}\n"
                              "e=2\n"
                              "case $2 in\n"
                              "'') exit 0 ;;\n"
                              "*/*) try \"$2\" ;;\n"
                              "*)\n"
                              "    [ \"$3\" ] && PATH=$3\n"
                              "    IFS=:\n"
                              "    for d in $PATH; do\n"
                              "        try \"$d/$2\"\n"
                              "    done\n"
                              "    ;;\n"
                              "esac\n"
                              "exit $e\n";

/* ---- The request ---- */

static void set_variable(struct js *env, const char *pair)
{
    AUTO_FREE char *name = strdup(pair);
    char *sign = name ? strchr(name, '=') : NULL;

    if (sign) {
        *sign = '\0';
        js_set_text(env, name, sign + 1);
    }
}

static void set_env(const char *mark, struct js *params, const char *const *env)
{
    struct js *js = js_object();

    for (size_t i = 0; env && env[i]; i++) {
        set_variable(js, env[i]);
    }
    set_variable(js, mark);
    js_set(params, "env", js);
}

static int call_for_path(struct running *running, const char *method,
                         struct js *params, const struct limits *limits,
                         char **out, struct err *err)
{
    struct quick quick = {.program = &running->lease->program,
                          .session = running->lease->session,
                          .method = method,
                          .params = params};
    struct answer answer;
    int rc;

    answer_init(&answer, 0);
    rc = quick_call(running->jsonl, &quick, limits, &answer, err);
    if (rc == 0 && out) {
        const char *path = wire_text(answer.result, "path");

        *out = path && path[0] ? strdup(path) : NULL;
        rc = *out ? 0 : err_set(err, EPROTO, "%s gave no path", method);
    }
    answer_done(&answer);
    return rc;
}

/* A script that goes into no argument becomes a file of the sandbox. */
static int put_script(struct running *running, const struct command *command,
                      const struct limits *limits, struct js **out,
                      struct err *err)
{
    struct buf path = BUF_INIT(64 * 1024);
    const char *args[] = {NULL, NULL};
    struct js *params = js_object();
    int rc;

    js_set_text(params, "prefix", "sessionfs-");
    rc = call_for_path(running, "create_temp_dir", params, limits,
                       &running->script, err);
    if (rc < 0) {
        return rc;
    }
    params = js_object();
    rc = buf_printf(&path, "%s/script", running->script);
    js_set_text(params, "path", buf_str(&path));
    rc = rc < 0 ? rc
                : wire_set_bytes(params, "content_base64", command->shell,
                                 command->shell_size);
    if (rc < 0) {
        js_free(params);
        rc = err_set(err, -rc, "the script is too long");
    } else {
        rc = call_for_path(running, "write_file", params, limits, NULL, err);
    }
    args[0] = buf_str(&path);
    *out = rc < 0 ? NULL : wire_script("umask 022; exec /bin/sh \"$1\"", args);
    buf_done(&path);
    return rc;
}

static int make_argv(struct running *running, const struct command *command,
                     const struct limits *limits, struct js **out,
                     struct err *err)
{
    static const char *const none[] = {NULL};
    struct buf text = BUF_INIT(2 * (size_t)ARG_MAX_BYTES);
    int rc = 0;

    if (!command->shell) {
        *out = wire_argv(command->argv);
        return 0;
    }
    if (command->shell_size < ARG_MAX_BYTES) {
        rc = buf_printf(&text, "umask 022; ");
        rc = rc < 0 ? rc : buf_add(&text, command->shell, command->shell_size);
    }
    if (rc < 0) {
        rc = err_no_memory(err);
    } else if (text.size && wire_is_text(text.data)) {
        *out = wire_script(text.data, none);
    } else {
        rc = put_script(running, command, limits, out, err);
    }
    buf_done(&text);
    return rc;
}

static int make_params(struct running *running, const struct command *command,
                       const struct limits *limits, struct js **out,
                       struct err *err)
{
    const char *cwd = command->cwd && command->cwd[0]
                          ? command->cwd
                          : running->lease->workspace;
    struct js *params = NULL;
    int rc = make_argv(running, command, limits, &params, err);

    if (rc < 0) {
        return rc;
    }
    js_set_text(params, "cwd", cwd);
    set_env(running->mark, params, command->env);
    if (command->input) {
        rc = wire_set_bytes(params, "stdin_base64", command->input,
                            command->input_size);
    }
    if (rc < 0 || !params) {
        js_free(params);
        return err_set(err, rc < 0 ? -rc : ENOMEM, "the command is too long");
    }
    *out = params;
    return 0;
}

static int check(const struct command *command, struct err *err)
{
    bool fine = !command->cwd || wire_is_text(command->cwd);

    if (!command->shell && (!command->argv || !command->argv[0])) {
        return err_set(err, EINVAL, "a command without a program");
    }
    for (size_t i = 0; command->env && command->env[i]; i++) {
        fine = fine && wire_is_text(command->env[i]);
    }
    return fine ? 0
                : err_set(err, EILSEQ,
                          "a directory or variable that is no UTF-8");
}

/* ---- Sending it ---- */

/* Waits a moment for the first word. */
static int look(struct running *running, const struct limits *limits,
                struct err *err)
{
    struct limits soon = *limits;
    int64_t look_ms = clock_deadline(LOOK_MS);
    int rc = 0;

    soon.deadline_ms =
        look_ms < limits->deadline_ms ? look_ms : limits->deadline_ms;
    while (rc == 0) {
        rc = peer_take(running->peer, &running->first, err);
        if (rc == 0) {
            rc = limits_wait(&soon, running->peer->out, POLLIN, err);
            if (rc == -ETIMEDOUT) {
                err_clear(err);
                return 0;
            }
            rc = rc < 0 ? rc : peer_move(running->peer, err);
        }
    }
    return rc < 0 ? rc : 0;
}

static int send_request(struct running *running, const struct js *params,
                        const struct limits *limits, struct err *err)
{
    struct lease *lease = running->lease;
    int rc = pool_take(running->jsonl->pool, &lease->program, limits,
                       &running->peer, err);

    if (rc < 0) {
        return rc;
    }
    rc = mark_keep(lease, running->mark, err);
    running->marked = rc == 0;
    rc = rc < 0 ? rc
                : peer_ask(running->peer, "exec", lease->session, params, err);
    if (rc == 0) {
        rc = peer_move(running->peer, err);
    }
    while (rc == 0 && running->peer->sent.size) {
        rc = peer_step(running->peer, limits, err);
    }
    if (rc == 0) {
        rc = look(running, limits, err);
    }
    if (rc < 0) {
        running->peer->broken = true;
        rc = err_wrap(err, rc, "exec");
    }
    return rc;
}

/* ---- A refusal ---- */

static const char *path_of(const struct command *command)
{
    for (size_t i = 0; command->env && command->env[i]; i++) {
        if (strncmp(command->env[i], "PATH=", 5) == 0) {
            return command->env[i] + 5;
        }
    }
    return "";
}

static int explain(struct running *running, const struct command *command,
                   const struct limits *limits, struct err *err)
{
    const char *const args[] = {command->cwd ? command->cwd : "",
                                command->shell ? "" : command->argv[0],
                                path_of(command), NULL};
    const struct provider_script script = {.text = why_not, .args = args};
    struct lease *lease = running->lease;
    struct buf none = BUF_INIT(0);
    struct err ignored = ERR_INIT;
    int code = 0;
    int rc = quick_run(running->jsonl,
                       &(struct quick_script){.program = &lease->program,
                                              .session = lease->session,
                                              .cwd = lease->workspace,
                                              .script = &script},
                       limits, &none, &code, &ignored);

    buf_done(&none);
    if (rc < 0) {
        return lease_failed(running->jsonl, lease, -err->code, limits, err);
    }
    err->code =
        code == ENOENT || code == EACCES || code == ENOTDIR ? code : EIO;
    return -err->code;
}

int start_command(struct running *running, const struct command *command,
                  const struct limits *limits, struct err *err)
{
    struct js *params = NULL;
    struct answer answer;
    int rc = check(command, err);

    if (rc == 0) {
        rc = make_params(running, command, limits, &params, err);
    }
    if (rc == 0) {
        rc = send_request(running, params, limits, err);
    }
    js_free(params);
    if (rc < 0 || !running->first.body ||
        running->first.kind != MESSAGE_ERROR) {
        return rc;
    }
    mark_drop(running->lease, running->mark);
    running->marked = false;
    answer_init(&answer, 0);
    wire_failure(running->first.body, &answer);
    rc = wire_fail(&answer, err);
    answer_done(&answer);
    return lease_may_be_lost(rc) ? explain(running, command, limits, err) : rc;
}
