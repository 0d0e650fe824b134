/* Sends what could not be sent, and was kept: see remote_kept.h. */
#include "core/remote_kept.h"

#include "core/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Makes the directories that a path lies in. */
static int make_parents(struct remote *r, const char *path,
                        const struct limits *limits, struct err *err)
{
    char dir[REMOTE_PATH_SIZE];
    int rc = 0;

    for (const char *slash = strchr(path, '/'); rc == 0 && slash;
         slash = strchr(slash + 1, '/')) {
        size_t len = (size_t)(slash - path);

        memcpy(dir, path, len);
        dir[len] = '\0';
        rc = remote_make_dir(r, dir, limits, err);
        if (rc == -EEXIST) {
            err_clear(err);
            rc = 0;
        }
    }
    return rc;
}

/* What is gone from where it was comes back with its directories. */
static int send_kept(struct remote *r, struct remote_kept *kept,
                     const struct limits *limits, struct err *err)
{
    const struct limits mine = remote_send_limits(&kept->stage, limits);
    int rc = remote_send_entered(&kept->stage, &mine, err);

    if (rc == -ENOENT && strchr(kept->path, '/')) {
        err_clear(err);
        rc = make_parents(r, kept->path, &mine, err);
        rc = rc < 0 ? rc : remote_send_entered(&kept->stage, &mine, err);
    }
    return rc;
}

/* Sends one; a negative errno where it stays. */
static int send_one(struct remote *r, int dir, uint64_t n,
                    const struct limits *limits, const struct ws_told *told,
                    struct err *err)
{
    struct remote_kept *kept = NULL;
    enum ws_fate fate = WS_KEPT;
    int rc = remote_kept_load(r, dir, n, &kept, err);

    if (rc == 0) {
        rc = send_kept(r, kept, limits, err);
        fate = rc == 0 ? WS_SENT : kept->stage.changed ? WS_KEPT : WS_BESIDE;
    }
    if (rc == 0 || fate == WS_BESIDE) {
        remote_kept_forget(dir, n);
    }
    told->fn(told->arg, fate, kept ? kept->path : "?", err);
    if (kept) {
        remote_kept_free(kept);
    }
    return fate == WS_BESIDE ? 0 : rc;
}

/* Whether the others would fail alike. */
static bool is_of_all(int rc)
{
    return rc == -ENOTCONN || rc == -ETIMEDOUT || rc == -ECANCELED ||
           rc == -EHOSTDOWN;
}

static int send_all(struct remote *r, int dir, const struct limits *limits,
                    const struct ws_told *told, struct err *err)
{
    struct remote_numbers all = {.of = NULL};
    int first = 0;
    int rc = remote_kept_list(dir, &all);

    if (rc < 0) {
        first = err_set(err, -rc, "cannot list what is kept");
    }
    for (size_t i = 0; i < all.n && !is_of_all(rc); i++) {
        struct err why = ERR_INIT;

        rc = send_one(r, dir, all.of[i], limits, told, &why);
        if (rc < 0 && first == 0) {
            first = rc;
            *err = why;
        }
    }
    free(all.of);
    return first;
}

int remote_send_kept(struct workspace *ws, const struct limits *limits,
                     const struct ws_told *told, struct err *err)
{
    struct remote *r = remote_of(ws);
    AUTO_FD int dir = remote_kept_open(r, false, err);
    int rc = 0;

    if (dir < 0) {
        rc = dir == -ENOENT ? 0 : dir;
        if (rc == 0) {
            err_clear(err);
        }
        return rc;
    }
    mutex_lock(&r->base.lock);
    while (r->sends_kept && rc == 0) {
        rc = remote_wait(r, limits, err);
    }
    r->sends_kept = r->sends_kept || rc == 0;
    mutex_unlock(&r->base.lock);
    if (rc < 0) {
        return rc;
    }
    rc = send_all(r, dir, limits, told, err);
    mutex_lock(&r->base.lock);
    r->sends_kept = false;
    cond_broadcast(&r->turn);
    mutex_unlock(&r->base.lock);
    return rc;
}
