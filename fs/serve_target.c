/* The session of a request. See serve_priv.h. */
#include "fs/serve_priv.h"

#include "core/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STATE_MAX = 256
};

/* An integer of an object; 0: it has none. */
static int64_t number_of(const struct js *js, const char *key)
{
    struct js *value = serve_get(js, key);
    int64_t number = value && js_type(value) == JS_INT ? js_int(value) : 0;

    js_free(value);
    return number;
}

/* By its number, which is never used twice; its age tells a state directory
 * that was made anew. */
static int find_by_state(struct conn *conn, const char *state,
                         struct session **out, struct err *err)
{
    struct session *session = NULL;
    struct js *js = NULL;
    int64_t number;
    int64_t made;
    int rc = js_parse(state, strlen(state), &js, err);

    if (rc < 0 || !js_is_object(js)) {
        js_free(js);
        return serve_bad_request(conn, err,
                                 "'provider_state_json' is not ours");
    }
    number = number_of(js, "session");
    made = number_of(js, "created_us");
    js_free(js);
    rc = registry_load(conn->server->registry, (uint64_t)number, &session, err);
    if (rc == 0 && session_created_us(session) != made) {
        session_unref(session);
        rc = -ENOENT;
    }
    if (rc == -ENOENT) {
        return err_set(err, ENOENT, "there is no session %" PRId64 " any more",
                       number);
    }
    if (rc == 0) {
        *out = session;
    }
    return rc;
}

static int find(struct conn *conn, const struct js *js, struct session **out,
                struct err *err)
{
    AUTO_FREE char *state = NULL;
    AUTO_FREE char *id = NULL;
    int rc = serve_text(conn, js, "id", true, &id, err);

    if (rc == 0) {
        rc = serve_text(conn, js, "provider_state_json", false, &state, err);
    }
    if (rc < 0) {
        return rc;
    }
    return state ? find_by_state(conn, state, out, err)
                 : registry_find(conn->server->registry, id, out, err);
}

int target_find(struct conn *conn, const struct js *params,
                struct session **out, struct err *err)
{
    struct js *js = NULL;
    int rc = serve_object(conn, params, "session", &js, err);

    if (rc == 0) {
        rc = find(conn, js, out, err);
        js_free(js);
    }
    return rc;
}

/* Where relative paths begin. */
static int find_cwd(struct conn *conn, const struct js *params,
                    struct target *target, struct err *err)
{
    AUTO_FREE char *given = NULL;
    struct js *js = NULL;
    int rc = serve_object(conn, params, "session", &js, err);

    if (rc < 0) {
        return rc;
    }
    rc = serve_text(conn, js, "cwd", false, &given, err);
    js_free(js);
    return rc < 0 ? rc
                  : target_path(target, given ? given : target->workspace,
                                &target->cwd, err);
}

/* What a sandbox that was never made says only when it is. */
static int find_workspace(struct conn *conn, struct target *target,
                          struct err *err)
{
    int rc = session_workspace_path(target->session, &target->workspace, err);

    if (rc == -ENOENT) {
        rc = serve_ensure(conn, target->session, err);
        if (rc == 0) {
            rc = session_workspace_path(target->session, &target->workspace,
                                        err);
        }
    }
    return rc;
}

int target_get(struct conn *conn, const struct js *params, struct target *out,
               struct err *err)
{
    struct target target = {.session = NULL};
    int rc = target_find(conn, params, &target.session, err);

    if (rc == 0) {
        rc = find_workspace(conn, &target, err);
    }
    if (rc == 0) {
        rc = find_cwd(conn, params, &target, err);
    }
    if (rc < 0) {
        target_done(&target);
        return rc;
    }
    *out = target;
    return 0;
}

void target_done(struct target *target)
{
    session_unref(target->session);
    free(target->workspace);
    free(target->cwd);
    *target = (struct target){.session = NULL};
}

int target_path(const struct target *target, const char *path, char **out,
                struct err *err)
{
    const char *from = target->cwd ? target->cwd : target->workspace;
    int n;

    if (!*path) {
        return err_set(err, ENOENT, "the path is empty");
    }
    n = *path == '/' ? asprintf(out, "%s", path)
                     : asprintf(out, "%s/%s", from, path);
    if (n < 0) {
        *out = NULL;
        return err_no_memory(err);
    }
    if (n >= PATH_MAX) {
        free(*out);
        *out = NULL;
        return err_set(err, ENAMETOOLONG, "the path is too long");
    }
    return 0;
}

struct js *target_say(const struct target *target)
{
    struct js *capabilities = js_object();
    struct js *js = js_object();
    char id[SESSION_ID_SIZE];
    char state[STATE_MAX];

    session_id(target->session, id);
    (void)snprintf(state, sizeof(state),
                   "{\"session\":%" PRIu64 ",\"created_us\":%" PRId64 "}",
                   session_number(target->session),
                   session_created_us(target->session));
    js_set_bool(capabilities, "exec", true);
    js_set_text(js, "id", id);
    serve_set(js, "cwd", target->cwd);
    js_set(js, "capabilities", capabilities);
    js_set_text(js, "provider_state_json", state);
    return js;
}
