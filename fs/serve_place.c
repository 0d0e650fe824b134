/* Paths of requests, and the way to what they name. See serve_place.h. */
#include "fs/serve_place.h"

#include "core/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    DIR_MODE = 0755
};

/* Whether a path has a part that leads up. */
static bool leads_up(const char *path)
{
    for (const char *at = strstr(path, ".."); at; at = strstr(at + 1, "..")) {
        if ((at == path || at[-1] == '/') && (!at[2] || at[2] == '/')) {
            return true;
        }
    }
    return false;
}

/* What lies behind the workspace's path, in place; NULL: nothing does. */
static char *find_below(const char *workspace, char *path)
{
    size_t len = strlen(workspace);

    while (len > 1 && workspace[len - 1] == '/') {
        len--;
    }
    if (strncmp(path, workspace, len) != 0 || (path[len] && path[len] != '/') ||
        leads_up(path)) {
        return NULL;
    }
    return path + len;
}

/* Cuts off the next part; NULL: there is none. `.` and empty parts are
 * skipped. */
static char *next_part(char **left)
{
    char *part;

    do {
        part = strtok_r(NULL, "/", left);
    } while (part && strcmp(part, ".") == 0);
    return part;
}

void asked_done(struct asked *asked)
{
    target_done(&asked->target);
    free(asked->path);
    free(asked->below);
    free(asked->given);
}

int asked_get(struct conn *conn, const struct js *params, struct asked *out,
              struct err *err)
{
    struct asked asked = {.path = NULL};
    const char *below;
    int rc = target_get(conn, params, &asked.target, err);

    if (rc == 0) {
        rc = serve_text(conn, params, "path", true, &asked.given, err);
    }
    if (rc == 0) {
        rc = target_path(&asked.target, asked.given, &asked.path, err);
    }
    below = rc == 0 ? find_below(asked.target.workspace, asked.path) : NULL;
    if (below) {
        asked.below = strdup(below);
        rc = asked.below ? 0 : err_no_memory(err);
    }
    if (rc < 0) {
        asked_done(&asked);
        return rc;
    }
    *out = asked;
    return 0;
}

/* ---- The way to a file ---- */

static int look(struct conn *conn, struct place *place, struct err *err)
{
    struct ws_ctx ctx = serve_ctx(conn);
    int rc = ws_lookup(place->dir, place->name, &ctx, &place->node,
                       &place->attr, err);

    if (rc == -ENOENT) {
        err_clear(err);
        rc = 0;
    }
    return rc;
}

/* Somebody else may make it just then. */
static int make_dir(struct conn *conn, struct place *place, struct err *err)
{
    struct ws_ctx ctx = serve_ctx(conn);
    int rc = ws_mkdir(place->dir, place->name, DIR_MODE, &ctx, &place->node,
                      &place->attr, err);

    if (rc == -EEXIST) {
        err_clear(err);
        rc = look(conn, place, err);
    }
    return rc == 0 && !place->node ? err_set(err, ENOENT, "'%s'", place->name)
                                   : rc;
}

int place_descend(struct conn *conn, bool make, struct place *place,
                  struct err *err)
{
    int rc = 0;

    if (!place->node && !make) {
        return err_set(err, ENOENT, "'%s'", place->name);
    }
    if (!place->node) {
        rc = make_dir(conn, place, err);
    }
    if (rc == 0 && S_ISLNK(place->attr.st_mode)) {
        return BY_COMMAND;
    }
    if (rc == 0 && !S_ISDIR(place->attr.st_mode)) {
        return err_set(err, ENOTDIR, "'%s'", place->name);
    }
    if (rc == 0) {
        ws_node_unref(place->dir);
        place->dir = TAKE_PTR(place->node);
    }
    return rc;
}

static int go(struct conn *conn, char *below, bool make, struct place *place,
              struct err *err)
{
    char *left = below;
    char *part = next_part(&left);
    int rc = 0;

    place->node = ws_root(place->ws);
    place->attr.st_mode = S_IFDIR;
    while (part && rc == 0) {
        rc = place_descend(conn, make, place, err);
        place->name = part;
        if (rc == 0) {
            rc = look(conn, place, err);
        }
        part = next_part(&left);
    }
    return rc;
}

void place_leave(struct asked *asked, struct place *place)
{
    ws_node_unref(place->node);
    ws_node_unref(place->dir);
    ws_unref(place->ws);
    session_files_leave(asked->target.session);
}

int place_enter(struct conn *conn, struct asked *asked, enum session_need need,
                bool make, struct place *out, struct err *err)
{
    struct place place = {.ws = NULL};
    int rc;

    if (!asked->below) {
        return BY_COMMAND;
    }
    rc = serve_enter(conn, asked->target.session, need, &place.ws, err);
    if (rc < 0) {
        return rc;
    }
    rc = place.ws ? go(conn, asked->below, make, &place, err)
                  : err_set(err, ENOENT, "there is no sandbox");
    if (rc < 0) {
        place_leave(asked, &place);
        return rc;
    }
    *out = place;
    return 0;
}
