/* Sessions by the protocol: open, close, cleanup_group. */
#include "fs/serve_priv.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/exec.h"
#include "fs/serve_sync.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    NAME_SIZE = 32, /* Of a group's name in the ids of its sessions. */
    RANDOM_SIZE = 8,
    ATTEMPTS = 16,    /* At an id that is free. */
    CLOSE_MS = 30000, /* For commands that are to end, and for others. */
    AGAIN_MS = 20,
};

/* ---- Ids ---- */

/* What the ids of a group's sessions begin with: its name as far as an id can
 * have it, and a sum of all of it. So who is in a group is known as long as
 * the sessions are, whatever dies meanwhile. */
static void name_group(const char *group, char out[SESSION_ID_SIZE])
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    uint64_t sum = UINT64_C(14695981039346656037);
    char name[NAME_SIZE];
    size_t len = 0;

    for (const char *at = group; *at; at++) {
        sum = (sum ^ (unsigned char)*at) * UINT64_C(1099511628211);
        if (len < sizeof(name) - 1) {
            if (!strchr(allowed, *at)) {
                name[len++] = '_';
            } else {
                name[len++] = *at;
            }
        }
    }
    name[len] = '\0';
    (void)snprintf(out, SESSION_ID_SIZE, "%s%s-%016" PRIx64 "-",
                   len && name[0] != '_' && name[0] != '-' ? "" : "g", name,
                   sum);
}

static int name_session(const char *group, char out[SESSION_ID_SIZE],
                        struct err *err)
{
    unsigned char bytes[RANDOM_SIZE / 2];
    size_t len;

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        return err_errno(err, "make an id");
    }
    name_group(group, out);
    len = strlen(out);
    for (size_t i = 0; i < sizeof(bytes); i++) {
        len += (size_t)snprintf(out + len, SESSION_ID_SIZE - len, "%02x",
                                bytes[i]);
    }
    return 0;
}

/* ---- open ---- */

/* What is asked for. */
struct opening {
    char *profile;
    char *host_path;
    char *group;
    char *cwd; /* NULL: the workspace. */
};

static int read_member(struct conn *conn, const struct js *params,
                       const char *object, const char *key, char **out,
                       struct err *err)
{
    struct js *js = NULL;
    int rc = serve_object(conn, params, object, &js, err);

    if (rc == 0) {
        rc = serve_text(conn, js, key, true, out, err);
        js_free(js);
    }
    return rc;
}

static int check_host_path(struct conn *conn, const char *path, struct err *err)
{
    int rc;

    if (path[0] != '/') {
        return serve_bad_request(conn, err,
                                 "'host_path' must be an absolute path");
    }
    rc = registry_check_place(conn->server->registry, path, err);
    if (rc == -EINVAL) {
        conn->code = "bad_request";
    }
    /* Else the profile would be blamed for it. */
    if (rc == 0 && access(path, F_OK) < 0) {
        rc = err_errno(err, "%s", path);
    }
    return rc < 0 ? err_wrap(err, rc, "'host_path'") : 0;
}

static int read_opening(struct conn *conn, const struct js *params,
                        struct opening *out, struct err *err)
{
    int rc = read_member(conn, params, "metadata", "sandbox_group_id",
                         &out->group, err);

    if (rc == 0) {
        rc = read_member(conn, params, "profile", "name", &out->profile, err);
    }
    if (rc == 0) {
        rc = read_member(conn, params, "workspace_sync", "host_path",
                         &out->host_path, err);
    }
    if (rc == 0) {
        rc = serve_text(conn, params, "cwd", false, &out->cwd, err);
    }
    return rc < 0 ? rc : check_host_path(conn, out->host_path, err);
}

static void opening_done(struct opening *opening)
{
    free(opening->profile);
    free(opening->host_path);
    free(opening->group);
    free(opening->cwd);
}

static int make_session(struct conn *conn, const struct opening *opening,
                        bool *lacks, struct session **out, struct err *err)
{
    char id[SESSION_ID_SIZE];
    const struct registry_order order = {.profile = opening->profile,
                                         .id = id,
                                         .base = opening->host_path,
                                         .caller = &conn->caller};
    int rc = -EEXIST;

    for (int i = 0; rc == -EEXIST && i < ATTEMPTS; i++) {
        rc = name_session(opening->group, id, err);
        if (rc == 0) {
            rc = registry_new_by(conn->server->registry, &order, lacks, out,
                                 err);
        }
    }
    if (rc == -ENOENT || rc == -ENODEV || rc == -EINVAL) {
        conn->code = "bad_profile";
    }
    return rc;
}

/* Makes it run, with its files and its working directory. */
static int start_session(struct conn *conn, const struct opening *opening,
                         bool lacks, struct target *target, struct err *err)
{
    int rc = serve_ensure(conn, target->session, err);

    if (rc == 0) {
        rc = session_workspace_path(target->session, &target->workspace, err);
    }
    if (rc == 0 && lacks) {
        rc = serve_sync(conn, target->session, opening->host_path, err);
    }
    if (rc == 0) {
        rc =
            target_path(target, opening->cwd ? opening->cwd : target->workspace,
                        &target->cwd, err);
    }
    return rc;
}

static int end_session(struct conn *conn, struct session *session,
                       struct err *err);

int serve_open(struct conn *conn, const struct js *params, struct err *err)
{
    struct opening opening = {.profile = NULL};
    struct target target = {.session = NULL};
    struct err ignored = ERR_INIT;
    bool lacks = false;
    int rc = read_opening(conn, params, &opening, err);

    if (rc == 0) {
        rc = make_session(conn, &opening, &lacks, &target.session, err);
    }
    if (rc == 0) {
        rc = start_session(conn, &opening, lacks, &target, err);
        if (rc == 0) {
            serve_say(conn, "result", target_say(&target));
        }
        /* Nobody knows of it. */
        if (rc < 0 || conn->broken) {
            (void)!end_session(conn, target.session, &ignored);
        }
    }
    target_done(&target);
    opening_done(&opening);
    return rc;
}

/* ---- close ---- */

static int end_once(struct conn *conn, struct session *session, struct err *err)
{
    char id[SESSION_ID_SIZE];
    int rc;

    session_cancel_all(session);
    rc = serve_destroy(conn, session, err);
    if (rc < 0 && !session_gone(session)) {
        return rc;
    }
    session_id(session, id);
    rc = registry_remove(conn->server->registry, id, err);
    return rc == -ENOENT ? 0 : rc;
}

/* Commands are told to end, which takes a moment; and others may be at it. */
static int end_session(struct conn *conn, struct session *session,
                       struct err *err)
{
    int64_t deadline = clock_deadline(CLOSE_MS);
    int rc = end_once(conn, session, err);

    while ((rc == -EBUSY || rc == -ENOTEMPTY) && clock_ms() < deadline) {
        err_clear(err);
        rc = serve_pause(conn, AGAIN_MS, err);
        if (rc < 0) {
            return rc;
        }
        rc = end_once(conn, session, err);
    }
    if (rc == 0) {
        err_clear(err);
    }
    return rc;
}

int serve_close(struct conn *conn, const struct js *params, struct err *err)
{
    struct session *session = NULL;
    int rc = target_find(conn, params, &session, err);

    if (rc == 0) {
        rc = end_session(conn, session, err);
        session_unref(session);
    } else if (rc == -ENOENT) {
        rc = 0; /* It is closed already. */
    }
    if (rc == 0) {
        serve_say(conn, "result", js_object());
    }
    return rc;
}

/* ---- cleanup_group ---- */

struct group {
    struct registry *registry;
    char prefix[SESSION_ID_SIZE];
    uint64_t number; /* Of one of it that was found; 0: none. */
};

static bool find_one(void *arg, uint64_t number, const char *id)
{
    struct group *group = arg;

    if (strncmp(id, group->prefix, strlen(group->prefix)) == 0) {
        group->number = number;
    }
    return group->number == 0;
}

/* Ends the next session of a group above a number; 0: there is none, and the
 * group's number is 0 then. */
static int end_next(struct conn *conn, struct group *group, uint64_t after,
                    struct err *err)
{
    struct session *session = NULL;
    int rc;

    group->number = 0;
    rc = registry_each(group->registry, after, find_one, group, err);
    if (rc < 0 || !group->number) {
        return rc;
    }
    rc = registry_load(group->registry, group->number, &session, err);
    if (rc == 0) {
        rc = end_session(conn, session, err);
        session_unref(session);
    }
    return rc < 0 ? rc : 1;
}

/* Ends all that can be ended; fails with the reason of the first that cannot.
 */
static int end_group(struct conn *conn, struct group *group, int64_t *count,
                     struct err *err)
{
    uint64_t after = 0;
    int failed = 0;

    do {
        struct err why = ERR_INIT;
        int rc = end_next(conn, group, after, &why);

        if (rc < 0 && failed == 0) {
            *err = why;
            failed = rc;
        }
        *count += rc > 0;
        after = group->number;
    } while (after && !cancel_fired(&conn->server->stop));
    return failed;
}

int serve_cleanup_group(struct conn *conn, const struct js *params,
                        struct err *err)
{
    struct group group = {.registry = conn->server->registry};
    AUTO_FREE char *name = NULL;
    struct js *result;
    int64_t count = 0;
    int rc = serve_text(conn, params, "sandbox_group_id", true, &name, err);

    if (rc < 0) {
        return rc;
    }
    name_group(name, group.prefix);
    rc = end_group(conn, &group, &count, err);
    if (rc < 0) {
        return rc;
    }
    result = js_object();
    js_set_int(result, "cleaned_count", count);
    serve_say(conn, "result", result);
    return 0;
}
