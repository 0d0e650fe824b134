/* Sends what could not be sent, and was kept: see remote_kept.h. */
#include "core/remote_aside.h"

#include "core/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROUNDS = 3 /* An engine that fails and says nothing is asked so often. */
};

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

bool remote_is_of_all(int rc)
{
    switch (-rc) {
    case ENOTCONN:
    case ETIMEDOUT:
    case ECANCELED:
    case EHOSTDOWN:
        return true;
    default:
        return false;
    }
}

/* Whether one was refused before: what is so once may be so for a moment. They
 * are sent in order, each once a round. */
static bool is_refused_again(struct remote *r, uint64_t n)
{
    bool again;

    mutex_lock(&r->base.lock);
    again = n <= r->kept_tried;
    r->kept_tried = again ? r->kept_tried : n;
    mutex_unlock(&r->base.lock);
    return again;
}

/* Whether it will not get better by waiting: the engine answers, and has said
 * twice what is wrong with this file, or has failed it again and again. */
static bool is_for_good(struct remote *r, uint64_t n, int rc,
                        const struct limits *limits)
{
    struct err unused = ERR_INIT;
    struct stat attr;
    unsigned rounds;

    switch (-rc) {
    case EAGAIN:
    case EINTR:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ESTALE: /* The sandbox is another one, or gone. */
        return false;
    case EIO:
        mutex_lock(&r->base.lock);
        rounds = r->kept_rounds;
        mutex_unlock(&r->base.lock);
        if (rounds < ROUNDS) {
            return false;
        }
        break;
    default:
        if (remote_is_of_all(rc) || !is_refused_again(r, n)) {
            return false;
        }
    }
    remote_cache_forget(r->cache, "");
    return remote_attr(r, "", limits, &attr, &unused) == 0;
}

/* Loads one, and puts aside what makes no sense. */
static int load(struct remote *r, int dir, uint64_t n, struct remote_kept **out,
                enum ws_fate *fate, struct err *err)
{
    int rc = remote_kept_load(r, dir, n, out, err);

    if (rc == -ENOENT) {
        *fate = WS_LOST; /* Somebody has removed its bytes. */
    } else if (rc == -EIO && remote_aside_put_raw(r, dir, n, err) == 0) {
        *fate = WS_ASIDE;
    }
    return rc;
}

/* Puts aside what cannot be sent; of attributes alone nothing is left. */
static enum ws_fate put_aside(struct remote *r, struct remote_kept *kept,
                              const struct limits *limits, struct err *err)
{
    struct err why = *err;

    if (!kept->stage.written) {
        return WS_LOST;
    }
    if (remote_aside_put(r, kept, limits, err) == 0) {
        return WS_ASIDE;
    }
    *err = why;
    return WS_KEPT;
}

/* Sends one; a negative errno where it was not sent. */
static int send_one(struct remote *r, int dir, uint64_t n,
                    const struct limits *limits, const struct ws_told *told,
                    struct err *err)
{
    struct remote_kept *kept = NULL;
    enum ws_fate fate = WS_KEPT;
    int rc = load(r, dir, n, &kept, &fate, err);

    if (rc == 0) {
        rc = send_kept(r, kept, limits, err);
        fate = rc == 0 ? WS_SENT : kept->stage.changed ? WS_KEPT : WS_BESIDE;
        if (fate == WS_KEPT && is_for_good(r, n, rc, limits)) {
            fate = put_aside(r, kept, limits, err);
        }
    }
    if (fate != WS_KEPT) {
        remote_kept_forget(dir, n);
    }
    told->fn(told->arg, fate, kept ? kept->path : "?", err);
    if (kept) {
        remote_kept_free(kept);
    }
    return fate == WS_BESIDE ? 0 : rc;
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
    for (size_t i = 0; i < all.n && !remote_is_of_all(rc); i++) {
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
    r->kept_rounds = rc < 0 ? r->kept_rounds + 1 : 0;
    r->sends_kept = false;
    cond_broadcast(&r->turn);
    mutex_unlock(&r->base.lock);
    return rc;
}
