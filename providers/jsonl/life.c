/*
 * Sandboxes: opened in a group of their own each, so that what an open that
 * was not seen to end has left can be cleaned up, and nothing else. See
 * jsonl.h.
 */
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/json_bytes.h"
#include "core/log.h"
#include "providers/jsonl/jsonl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

enum {
    SESSION_MAX = 8 * 1024 * 1024, /* Bytes of a session's JSON. */
    PATH_BYTES = 4096,
};

/* ---- Life ---- */

static void new_group(char out[64], uint64_t number)
{
    uint64_t random = 0;

    if (getrandom(&random, sizeof(random), 0) != sizeof(random)) {
        random = (uint64_t)clock_wall_us();
    }
    (void)snprintf(out, 64, "sessionfs-%" PRIu64 "-%016" PRIx64, number,
                   random);
}

static struct js *metadata(const char *group, const struct sandbox *sandbox)
{
    struct js *js = js_object();
    struct js *tags = js_object();
    char request[64];

    (void)snprintf(request, sizeof(request), "sessionfs-%" PRIu64 "-%" PRId64,
                   sandbox->number, clock_wall_us());
    js_set_text(tags, "session", sandbox->id);
    js_set_text(js, "protocol_version", "sandbox.v1");
    js_set_text(js, "request_id", request);
    js_set_text(js, "sandbox_group_id", group);
    js_set(js, "tags", tags);
    return js;
}

/* The protocol wants a directory in any case: an empty one. */
static int host_path(const struct program *program,
                     const struct sandbox *sandbox, char out[PATH_BYTES],
                     struct err *err)
{
    int size = program->workspace
                   ? snprintf(out, PATH_BYTES, "%s", program->workspace)
                   : snprintf(out, PATH_BYTES, "%s/empty", sandbox->dir);

    if (size >= PATH_BYTES) {
        return err_set(err, ENAMETOOLONG, "the workspace's path is too long");
    }
    return program->workspace || mkdir(out, 0700) == 0 || errno == EEXIST
               ? 0
               : err_errno(err, "cannot make '%s'", out);
}

static int open_params(const struct program *program,
                       const struct sandbox *sandbox, const char *group,
                       struct js **out, struct err *err)
{
    char path[PATH_BYTES];
    struct js *params;
    struct js *profile;
    struct js *sync;
    int rc = host_path(program, sandbox, path, err);

    if (rc < 0) {
        return rc;
    }
    params = js_object();
    profile = js_object();
    sync = js_object();
    js_set_text(profile, "provider", program->name);
    js_set_text(profile, "name", program->profile);
    js_set_text(sync, "host_path", path);
    js_set(params, "metadata", metadata(group, sandbox));
    js_set(params, "profile", profile);
    js_set(params, "workspace_sync", sync);
    if (program->cwd) {
        js_set_text(params, "cwd", program->cwd);
    }
    *out = params;
    return 0;
}

/* The session as it came. */
static int session_text(const struct js *session, char **out, struct err *err)
{
    struct buf shown = BUF_INIT(SESSION_MAX);
    struct buf text = BUF_INIT(SESSION_MAX);
    int rc = js_write(session, &shown);

    if (rc == 0) {
        rc = js_bytes_write(buf_str(&shown), shown.size, &text);
    }
    buf_done(&shown);
    if (rc < 0) {
        buf_done(&text);
        return err_set(err, -rc, "a session that is too long");
    }
    *out = text.data;
    return 0;
}

/* Whether the session, or the program at all, can run commands. */
static int check_exec(struct jsonl *jsonl, const struct program *program,
                      const struct js *session, const struct limits *limits,
                      struct err *err)
{
    struct quick quick = {.program = program, .method = "capabilities"};
    struct js *told = js_get(session, "capabilities");
    struct answer answer;
    bool can = wire_true(told, "exec");
    int rc = 0;

    js_free(told);
    if (can) {
        return 0;
    }
    quick.params = js_object();
    answer_init(&answer, 0);
    rc = quick_ask(jsonl, &quick, limits, &answer, err);
    if (rc == 0 && answer.result) {
        told = js_get(answer.result, "capabilities");
        can = wire_true(answer.result, "exec") || wire_true(told, "exec");
        js_free(told);
    }
    answer_done(&answer);
    return rc < 0 || can ? rc
                         : err_set(err, EOPNOTSUPP,
                                   "'%s' gave a sandbox that runs no commands",
                                   program->name);
}

/* Where the session lies, which its program may leave unsaid. */
static int find_workspace(struct jsonl *jsonl, const struct program *program,
                          const char *session, const char *cwd,
                          const struct limits *limits, char **out,
                          struct err *err)
{
    static const char *const none[] = {NULL};
    const struct provider_script script = {
        .text = "pwd", .args = none, .most = PATH_BYTES};
    struct buf text = BUF_INIT(PATH_BYTES);
    int code = 0;
    int rc = 0;

    if (!cwd || cwd[0] != '/') {
        rc = quick_run(jsonl,
                       &(struct quick_script){.program = program,
                                              .session = session,
                                              .cwd = cwd,
                                              .script = &script},
                       limits, &text, &code, err);
        if (text.size && text.data[text.size - 1] == '\n') {
            text.data[--text.size] = '\0';
        }
        cwd = buf_str(&text);
    }
    if (rc == 0 && (cwd[0] != '/' || code != 0)) {
        rc = err_set(err, EPROTO, "the sandbox does not say where it is");
    }
    if (rc == 0 && !wire_is_text(cwd)) {
        rc = err_set(err, EILSEQ,
                     "the sandbox lies in a directory that is no UTF-8");
    }
    if (rc == 0) {
        *out = strdup(cwd);
        rc = *out ? 0 : err_no_memory(err);
    }
    buf_done(&text);
    return rc;
}

/* The directory that the workspace shall be is made where it is missing. */
static int make_cwd(struct jsonl *jsonl, const struct program *program,
                    const char *session, const char *cwd,
                    const struct limits *limits, struct err *err)
{
    struct quick quick = {.program = program,
                          .session = session,
                          .method = "create_dir_all",
                          .params = js_object()};
    struct answer answer;
    int rc;

    js_set_text(quick.params, "path", cwd);
    answer_init(&answer, 0);
    rc = quick_call(jsonl, &quick, limits, &answer, err);
    answer_done(&answer);
    return rc;
}

static int fill_instance(const struct program *program,
                         const struct js *session, const char *workspace,
                         struct instance *out, struct err *err)
{
    const char *native = wire_text(session, "provider_session_id");
    struct instance made = {
        .external_id = strdup(wire_text(session, "id")),
        .display_name = strdup(native ? native : program->name),
        .workspace_path = strdup(workspace),
    };

    if (!made.external_id || !made.display_name || !made.workspace_path) {
        instance_done(&made);
        return err_no_memory(err);
    }
    instance_done(out);
    *out = made;
    return 0;
}

/* An opened session becomes a sandbox that is known by its note. */
static int adopt(struct jsonl *jsonl, const struct program *program,
                 struct sandbox *sandbox, struct note *note,
                 const struct js *session, const struct limits *limits,
                 struct err *err)
{
    const char *id = wire_text(session, "id");
    const char *cwd = wire_text(session, "cwd");
    AUTO_FREE char *workspace = NULL;
    int rc;

    if (!id || !id[0]) {
        return err_set(err, EPROTO, "'%s' opened a session without an id",
                       program->name);
    }
    rc = session_text(session, &note->session, err);
    if (rc == 0) {
        rc = note_write(sandbox, note, err);
    }
    if (rc == 0) {
        rc = check_exec(jsonl, program, session, limits, err);
    }
    if (rc == 0 && program->cwd && cwd) {
        rc = make_cwd(jsonl, program, note->session, cwd, limits, err);
    }
    if (rc == 0) {
        rc = find_workspace(jsonl, program, note->session, cwd, limits,
                            &workspace, err);
    }
    return rc < 0 ? rc
                  : fill_instance(program, session, workspace,
                                  sandbox->instance, err);
}

static int open_session(struct jsonl *jsonl, const struct program *program,
                        struct sandbox *sandbox, struct note *note,
                        const struct limits *limits, struct err *err)
{
    struct quick quick = {.program = program, .method = "open"};
    struct answer answer;
    int rc = open_params(program, sandbox, note->group, &quick.params, err);

    if (rc < 0) {
        return rc;
    }
    answer_init(&answer, 0);
    rc = quick_call(jsonl, &quick, limits, &answer, err);
    if (!quick.asked) {
        note_remove(sandbox); /* There is nothing that would be cleaned up. */
    }
    if (rc == 0) {
        rc = adopt(jsonl, program, sandbox, note, answer.result, limits, err);
    }
    answer_done(&answer);
    return rc;
}

int jsonl_create(struct provider *provider, struct sandbox *sandbox,
                 const struct limits *limits, struct err *err)
{
    struct jsonl *jsonl = jsonl_of(provider);
    struct program program;
    struct note note = {.group = NULL};
    char group[64];
    int rc = program_read(sandbox->config, &program, err);

    if (rc < 0) {
        return rc;
    }
    new_group(group, sandbox->number);
    note.group = strdup(group);
    rc = note.group ? note_write(sandbox, &note, err) : err_no_memory(err);
    if (rc == 0) {
        lease_drop_all(jsonl, sandbox->number);
        rc = open_session(jsonl, &program, sandbox, &note, limits, err);
    }
    note_done(&note);
    program_done(&program);
    return rc;
}

int jsonl_resume(struct provider *provider, struct sandbox *sandbox,
                 const struct limits *limits, struct err *err)
{
    struct jsonl *jsonl = jsonl_of(provider);
    struct lease *lease;
    int rc = lease_use(jsonl, sandbox, limits, &lease, err);

    if (rc < 0) {
        return rc;
    }
    rc = lease_probe(jsonl, lease, limits, err);
    if (rc < 0) {
        rc = lease_failed(jsonl, lease, rc, limits, err);
    } else {
        atomic_store(&lease->doubtful, false);
    }
    lease_unref(jsonl, lease);
    return rc;
}

/* The protocol has no question that wakes nothing, so what calls have met is
 * what is known; that the program answers at all can be asked. */
static int observe(struct jsonl *jsonl, struct lease *lease,
                   const struct limits *limits, enum provider_state *out,
                   struct err *err)
{
    struct quick quick = {.program = &lease->program,
                          .method = "capabilities",
                          .params = js_object()};
    struct answer answer;
    int rc;

    *out = PROVIDER_RUNNING;
    answer_init(&answer, 0);
    rc = quick_ask(jsonl, &quick, limits, &answer, err);
    answer_done(&answer);
    if (rc < 0 && rc != -ECANCELED && rc != -ETIMEDOUT) {
        err->code = ENOTCONN;
        rc = -ENOTCONN;
    }
    /* Where commands were left running they are what is awake. */
    if (rc == 0 && lease_clean(jsonl, lease, limits, err) < 0) {
        log_debug("%s", err->msg);
        err_clear(err);
        atomic_store(&lease->doubtful, true);
    }
    if (rc == 0 && atomic_load(&lease->doubtful)) {
        rc = lease_probe(jsonl, lease, limits, err);
        if (lease_is_lost(rc)) {
            err_clear(err);
            *out = PROVIDER_LOST;
            return 0;
        }
        atomic_store(&lease->doubtful, rc < 0);
    }
    return rc;
}

int jsonl_status(struct provider *provider, const struct sandbox *sandbox,
                 const struct limits *limits, enum provider_state *out,
                 struct err *err)
{
    struct jsonl *jsonl = jsonl_of(provider);
    struct lease *lease;
    int rc = lease_get(jsonl, sandbox, &lease, err);

    if (rc == -ESTALE) {
        err_clear(err);
        *out = PROVIDER_LOST;
        return 0;
    }
    if (rc == 0) {
        rc = observe(jsonl, lease, limits, out, err);
        lease_unref(jsonl, lease);
    }
    return rc;
}

/* ---- The end ---- */

/* Removes whatever the group still has. */
static int clean_group(struct jsonl *jsonl, const struct program *program,
                       const struct sandbox *sandbox, const char *group,
                       const struct limits *limits, int64_t *count,
                       struct err *err)
{
    struct quick quick = {
        .program = program, .method = "cleanup_group", .params = js_object()};
    struct answer answer;
    int rc;

    js_set(quick.params, "metadata", metadata(group, sandbox));
    js_set_text(quick.params, "sandbox_group_id", group);
    answer_init(&answer, 0);
    rc = quick_call(jsonl, &quick, limits, &answer, err);
    if (rc == 0) {
        (void)wire_int(answer.result, "cleaned_count", count);
    }
    answer_done(&answer);
    return rc;
}

static int close_session(struct jsonl *jsonl, const struct program *program,
                         const char *session, const struct limits *limits,
                         struct err *err)
{
    struct quick quick = {.program = program,
                          .session = session,
                          .method = "close",
                          .params = js_object()};
    struct answer answer;
    int rc;

    answer_init(&answer, 0);
    rc = quick_call(jsonl, &quick, limits, &answer, err);
    answer_done(&answer);
    return rc;
}

/* It would not be closed: is it gone, then? */
static int settle(struct jsonl *jsonl, const struct program *program,
                  const struct note *note, int64_t cleaned,
                  const struct limits *limits, struct err *err)
{
    const struct lease lease = {.program = *program, .session = note->session};
    struct err why = ERR_INIT;

    if (cleaned > 0 || err->code == ESTALE ||
        lease_is_lost(lease_probe(jsonl, &lease, limits, &why))) {
        log_debug("%s", err->msg);
        err_clear(err);
        return 0;
    }
    return -err->code;
}

static int end_session(struct jsonl *jsonl, const struct program *program,
                       const struct sandbox *sandbox, const struct note *note,
                       const struct limits *limits, struct err *err)
{
    struct err unclean = ERR_INIT;
    int64_t cleaned = 0;
    int rc = note->session
                 ? close_session(jsonl, program, note->session, limits, err)
                 : 0;
    int cleaning;

    if (rc < 0 && !lease_may_be_lost(rc) && rc != -EOPNOTSUPP) {
        return rc; /* It may be there and well: another time. */
    }
    cleaning = clean_group(jsonl, program, sandbox, note->group, limits,
                           &cleaned, &unclean);
    if (rc < 0) {
        return settle(jsonl, program, note, cleaned, limits, err);
    }
    if (cleaning < 0 && !note->session && cleaning != -EOPNOTSUPP) {
        *err = unclean;
        return cleaning;
    }
    return 0;
}

int jsonl_destroy(struct provider *provider, struct sandbox *sandbox,
                  const struct limits *limits, struct err *err)
{
    struct jsonl *jsonl = jsonl_of(provider);
    struct note note = {.group = NULL};
    struct program program;
    int rc = note_read(sandbox, &note, err);

    if (rc < 0 || !note.group) {
        return rc;
    }
    rc = program_read(sandbox->config, &program, err);
    if (rc == 0) {
        command_end_all(jsonl, sandbox->number);
        rc = end_session(jsonl, &program, sandbox, &note, limits, err);
        program_done(&program);
    }
    if (rc == 0) {
        lease_drop_all(jsonl, sandbox->number);
        marks_remove(sandbox);
        note_remove(sandbox);
    }
    note_done(&note);
    return rc;
}
