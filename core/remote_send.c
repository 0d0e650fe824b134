/*
 * Sending what is staged. A file's content is replaced at once, so that readers
 * see the old or the new, and a failed save leaves the old; but a part of a
 * large file is written in its place. Nothing that somebody else wrote since
 * it was read is overwritten: see collide().
 */
#include "core/remote_halves.h"
#include "core/remote_kept.h"

#include "core/cleanup.h"
#include "core/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>

enum {
    WHOLE_MOST = 1024 * 1024, /* A larger file is not sent whole for a part. */
    MERGES_MOST = 5,
    NAMES_MOST = 10, /* Tried for a version that is put beside. */
};

static bool same_version(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* What is to be sent where. */
struct sending {
    struct remote_stage *stage;
    struct remote *r;
    const char *path;
    const struct limits *limits;
};

/* The engine's attributes now, whatever was known. */
static int ask_now(const struct sending *to, const char *path, struct stat *out,
                   struct err *err)
{
    remote_cache_forget(to->r->cache, path);
    return remote_attr(to->r, path, to->limits, out, err);
}

/* ---- Whole files ---- */

static int put_at_once(const struct sending *to, const char *path,
                       const struct provider_put *put, struct stat *now,
                       struct err *err)
{
    struct remote *r = to->r;
    int rc = remote_begin(r, to->limits, err);

    if (rc < 0) {
        return rc;
    }
    rc = r->files->put(r->provider, &r->sandbox, path, put, to->limits, now,
                       err);
    return (int)remote_end(r, rc, err);
}

/* Puts the bytes of an fd, with the attributes that the stage has now. While a
 * copy is sent others may add to the stage. */
static int put_fd(const struct sending *to, const char *path, int fd,
                  const struct stat *was, struct stat *now, struct err *err)
{
    struct remote_stage *stage = to->stage;
    const bool shared = fd != stage->fd;
    struct remote_half half;
    const struct provider_put what = {.fd = fd,
                                      .was = was,
                                      .half = half.name,
                                      .mask = stage->mask,
                                      .attr = stage->attr};
    int rc;

    memset(now, 0, sizeof(*now));
    if (shared) {
        remote_stage_share(stage);
    }
    remote_half_begin(to->r, path, &half);
    rc = to->r->files->put
             ? put_at_once(to, path, &what, now, err)
             : remote_put_by_calls(to->r, path, &what, to->limits, now, err);
    remote_half_end(to->r, &half, rc);
    if (shared) {
        remote_stage_unshare(stage);
    }
    return rc;
}

static int put(const struct sending *to, const char *path,
               const struct stat *was, struct stat *now, struct err *err)
{
    return put_fd(to, path, to->stage->fd, was, now, err);
}

/* Whether others may add to it, too, while it is sent. */
static bool is_shared(const struct sending *to)
{
    const struct remote_stage *stage = to->stage;

    return stage->appended && !stage->path && to->r->files->put &&
           stage->attr.st_size <= WHOLE_MOST;
}

/* Returns an fd. */
static int copy_of(const struct remote_stage *stage, struct err *err)
{
    AUTO_FD int fd =
        remote_private_file(remote_tree(stage->node)->sandbox.dir, err);
    off_t done = 0;

    if (fd < 0) {
        return fd;
    }
    while (done < stage->attr.st_size) {
        ssize_t n = sendfile(fd, stage->fd, &done,
                             (size_t)(stage->attr.st_size - done));

        if (n <= 0) {
            errno = n < 0 ? errno : EIO;
            return err_errno(err, "cannot copy what is staged");
        }
    }
    return TAKE_FD(fd);
}

/* Sends a copy: what others add meanwhile goes with the next call, so that of
 * many who add lines each waits for two calls, and not for everybody's. */
static int put_copy(const struct sending *to, struct stat *now, struct err *err)
{
    const struct remote_stage *stage = to->stage;
    const struct stat was = stage->was;
    AUTO_FD int copy = copy_of(stage, err);

    return copy < 0
               ? copy
               : put_fd(to, to->path, copy, stage->any ? NULL : &was, now, err);
}

static int put_whole(const struct sending *to, struct stat *now,
                     struct err *err)
{
    struct remote_stage *stage = to->stage;
    int rc = remote_stage_fill(stage, to->limits, err);
    off_t size = stage->attr.st_size;

    if (rc < 0) {
        return rc;
    }
    rc = is_shared(to)
             ? put_copy(to, now, err)
             : put(to, to->path, stage->any ? NULL : &stage->was, now, err);
    if (rc == -EIO || remote_is_of_all(rc)) {
        stage->tried = size;
    }
    return rc;
}

/* ---- Parts ---- */

static int set_attr(const struct sending *to, unsigned mask,
                    const struct stat *want, struct err *err)
{
    struct remote *r = to->r;
    int rc;

    if (!mask) {
        return 0;
    }
    if (!r->files->set_attr) {
        return err_set(err, EOPNOTSUPP, "the provider cannot do that");
    }
    rc = remote_begin(r, to->limits, err);
    if (rc < 0) {
        return rc;
    }
    rc = r->files->set_attr(r->provider, &r->sandbox, to->path, mask, want,
                            to->limits, err);
    return (int)remote_end(r, rc, err);
}

static int set_size(const struct sending *to, off_t size, struct err *err)
{
    const struct stat want = {.st_size = size};

    return set_attr(to, PROVIDER_ATTR_SIZE, &want, err);
}

/* Writes each run of chunks that changed. */
static int write_runs(const struct sending *to, struct err *err)
{
    const struct remote_stage *stage = to->stage;
    const uint64_t end = (uint64_t)stage->attr.st_size;
    int rc = 0;

    for (uint64_t i = 0; rc == 0 && i < stage->n_dirty; i++) {
        uint64_t first = i;
        struct remote_piece piece = {.fd = stage->fd};

        while (i < stage->n_dirty && stage->dirty[i]) {
            i++;
        }
        piece.offset = first * REMOTE_CHUNK;
        piece.end = i * REMOTE_CHUNK < end ? i * REMOTE_CHUNK : end;
        rc = remote_write_piece(to->r, to->path, &piece, to->limits, err);
    }
    return rc;
}

/* Whether the last run ends where the file does. */
static bool ends_in_run(const struct remote_stage *stage)
{
    off_t last = (stage->attr.st_size - 1) / REMOTE_CHUNK;

    return stage->attr.st_size > 0 && (uint64_t)last < stage->n_dirty &&
           stage->dirty[last];
}

static int send_parts(const struct sending *to, struct stat *now,
                      struct err *err)
{
    const struct remote_stage *stage = to->stage;
    int rc = ask_now(to, to->path, now, err);

    if (rc == 0 && !stage->any && !same_version(now, &stage->was)) {
        rc = err_set(err, ESTALE, "the file has changed");
    }
    if (rc == 0 && stage->base < now->st_size) {
        rc = set_size(to, stage->base, err);
    }
    if (rc == 0) {
        rc = write_runs(to, err);
    }
    if (rc == 0 && !ends_in_run(stage)) {
        rc = set_size(to, stage->attr.st_size, err);
    }
    return rc;
}

/* Whether it is less to send what changed than all. */
static bool in_parts(const struct sending *to)
{
    const struct remote_stage *stage = to->stage;
    const struct provider_files *files = to->r->files;

    return !stage->fresh && !stage->whole && files->write_at &&
           files->set_attr && (!files->put || stage->attr.st_size > WHOLE_MOST);
}

static int send_content(const struct sending *to, struct stat *now,
                        struct err *err)
{
    const struct remote_stage *stage = to->stage;
    int rc;

    if (stage->written && !in_parts(to)) {
        return put_whole(to, now, err);
    }
    rc = stage->written ? send_parts(to, now, err) : 0;
    if (rc == 0) {
        rc = set_attr(to, stage->mask, &stage->attr, err);
    }
    return rc < 0 ? rc : ask_now(to, to->path, now, err);
}

/* ---- Both sides have changed it ---- */

/* Whether the engine has the same bytes as this side, from one on to
 * another. */
static bool same_bytes(const struct sending *to, uint64_t from, uint64_t end)
{
    struct remote_stage *stage = to->stage;
    AUTO_FREE char *theirs = malloc(2 * (size_t)REMOTE_CHUNK);
    struct err unused = ERR_INIT;
    bool same = theirs != NULL;

    for (uint64_t at = from; same && at < end; at += REMOTE_CHUNK) {
        size_t part =
            end - at < REMOTE_CHUNK ? (size_t)(end - at) : REMOTE_CHUNK;
        char *ours = theirs + REMOTE_CHUNK;

        same = remote_read_at(to->r, to->path, theirs, part, at, to->limits,
                              &unused) == (ssize_t)part &&
               remote_stage_read(stage, ours, part, at, to->limits, &unused) ==
                   (ssize_t)part &&
               memcmp(theirs, ours, part) == 0;
    }
    return same;
}

/* Leaves out what the engine has of it by a call whose answer was lost. */
static void skip_sent(const struct sending *to, const struct stat *now)
{
    struct remote_stage *stage = to->stage;
    off_t end = stage->tried < now->st_size ? stage->tried : now->st_size;

    if (end > stage->was.st_size &&
        same_bytes(to, (uint64_t)stage->was.st_size, (uint64_t)end)) {
        stage->was.st_size = end;
    }
}

/* Adds to the engine's newest content what was added here. */
static int add_tail(const struct sending *to, const struct stat *now,
                    struct err *err)
{
    struct remote_stage *stage = to->stage;
    size_t size = (size_t)(stage->attr.st_size - stage->was.st_size);
    AUTO_FREE char *tail = malloc(size + 1);

    if (!tail) {
        return err_no_memory(err);
    }
    if (remote_stage_read(stage, tail, size, (uint64_t)stage->was.st_size,
                          to->limits, err) != (ssize_t)size) {
        return err_set(err, EIO, "cannot read what is staged");
    }
    remote_stage_rebase(stage, now);
    return remote_stage_write(stage, tail, size, 0, true, to->limits, err);
}

/* Makes the stage the engine's newest content with what was added here. */
static int merge(const struct sending *to, struct err *err)
{
    struct stat now;
    int rc = ask_now(to, to->path, &now, err);

    if (rc < 0) {
        return rc;
    }
    skip_sent(to, &now);
    return add_tail(to, &now, err);
}

/* The name of a version that is put beside a file. */
static int name_beside(const char *path, unsigned n, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    int64_t now_s = clock_wall_us() / 1000000;
    int len = (int)(name - path);

    len = snprintf(out, size, "%.*s%.200s.conflict-%lld%s%.0u", len, path, name,
                   (long long)now_s, n ? "-" : "", n);
    if (n && len < (int)size) {
        len += snprintf(out + len, size - (size_t)len, "%u", n);
    }
    return len < (int)size ? 0 : -ENAMETOOLONG;
}

/* Whether what is to be sent is there: a daemon that sent it may not have lived
 * to note it, or both sides did the same. */
static bool is_there(const struct sending *to, const struct stat *now)
{
    const struct remote_stage *stage = to->stage;
    off_t size = stage->attr.st_size;

    if (!S_ISREG(now->st_mode) || now->st_size < size) {
        return false;
    }
    if (stage->appended) {
        return stage->path &&
               same_bytes(to, (uint64_t)stage->was.st_size, (uint64_t)size);
    }
    /* Of two who make a file at once only one is the first. */
    return now->st_size == size &&
           (stage->path || stage->tried || !stage->fresh) &&
           same_bytes(to, 0, (uint64_t)size);
}

/* Keeps both versions: the engine's, and this side's under another name. */
static int put_beside(const struct sending *to, struct err *err)
{
    const struct stat none = {.st_mode = 0};
    char path[REMOTE_PATH_SIZE];
    struct stat now;
    int rc = 0;

    for (unsigned n = 0; rc == 0 && n < NAMES_MOST; n++) {
        rc = name_beside(to->path, n, path, sizeof(path));
        if (rc < 0) {
            return err_set(err, -rc, "the path is too long");
        }
        rc = put(to, path, &none, &now, err);
        if (rc == -ESTALE) {
            err_clear(err);
            rc = 0;
        } else if (rc == 0) {
            remote_cache_set(to->r->cache, path, &now);
            to->stage->changed = false;
            return err_set(err, ESTALE,
                           "it was changed in the sandbox, too, which has its "
                           "version there; this one is '%.300s'",
                           path);
        }
    }
    return rc < 0 ? err_wrap(err, rc, "it was changed on both sides")
                  : err_set(err, ESTALE, "it was changed on both sides");
}

/* Of two versions none is lost; but two that are the same are one. */
static int settle(const struct sending *to, struct stat *now, struct err *err)
{
    const struct remote_stage *stage = to->stage;
    unsigned mask = to->r->files->set_attr ? stage->mask : 0;
    int rc;

    if (is_there(to, now)) {
        rc = set_attr(to, mask, &stage->attr, err);
        return rc < 0 ? rc : ask_now(to, to->path, now, err);
    }
    if (stage->appended && S_ISREG(now->st_mode)) {
        rc = merge(to, err);
        return rc < 0 ? rc : send_content(to, now, err);
    }
    rc = remote_stage_fill(to->stage, to->limits, err);
    return rc < 0 ? rc : put_beside(to, err);
}

/* Lines that both sides added are all kept; else there are two versions. One
 * that is gone has no other version: it comes back. */
static int collide(const struct sending *to, struct stat *out, struct err *err)
{
    struct remote_stage *stage = to->stage;
    struct stat now;
    bool both = false; /* There are two versions, and that was said. */
    int rc = -ESTALE;

    if (stage->fresh && !stage->appended && !stage->attr.st_size) {
        stage->changed = false; /* A lock that somebody else took first. */
        return err_set(err, EEXIST, "there is one by now");
    }

    for (int i = 0; rc == -ESTALE && !both && i < MERGES_MOST; i++) {
        err_clear(err);
        rc = ask_now(to, to->path, &now, err);
        if (rc == -ENOENT) {
            err_clear(err);
            stage->was = (struct stat){.st_mode = 0};
            rc = put_whole(to, out, err);
        } else if (rc == 0) {
            *out = now;
            rc = settle(to, out, err);
            both = rc == -ESTALE && !stage->changed;
        }
    }
    return rc;
}

/* ---- One file ---- */

/* What was sent need not be fetched. */
static void keep_chunks(const struct sending *to, const struct stat *now)
{
    const struct remote_stage *stage = to->stage;
    AUTO_FREE char *bytes = malloc(REMOTE_CHUNK);
    uint64_t chunks =
        ((uint64_t)now->st_size + REMOTE_CHUNK - 1) / REMOTE_CHUNK;

    for (uint64_t i = 0; bytes && stage->whole && i < chunks; i++) {
        uint64_t left = (uint64_t)now->st_size - i * REMOTE_CHUNK;
        ssize_t n = pread(stage->fd, bytes,
                          left < REMOTE_CHUNK ? (size_t)left : REMOTE_CHUNK,
                          (off_t)(i * REMOTE_CHUNK));

        if (n <= 0) {
            return;
        }
        remote_data_keep(to->r->data, to->path, now, i, bytes, (size_t)n);
    }
}

int remote_send_entered(struct remote_stage *stage, const struct limits *limits,
                        struct err *err)
{
    struct remote *r = remote_tree(stage->node);
    struct remote_path path;
    const struct sending to = {
        .stage = stage, .r = r, .path = path.text, .limits = limits};
    struct stat now = {.st_size = 0};
    int rc = 0;

    if (!stage->changed || stage->orphan) {
        return 0;
    }
    stage->grown = false;
    rc = remote_stage_path(stage, &path, err);
    if (rc < 0) {
        return rc;
    }
    rc = send_content(&to, &now, err);
    if (rc == -ESTALE || (rc == -ENOENT && !stage->fresh)) {
        rc = collide(&to, &now, err);
    }
    if (rc == 0) {
        keep_chunks(&to, &now);
        if (now.st_nlink > 1) {
            remote_cache_changed(r->cache); /* Its other names, too. */
        }
        remote_cache_set(r->cache, path.text, &now);
        remote_stage_sent(stage, &now);
    } else {
        remote_forget(r, path.text);
    }
    return rc;
}

struct limits remote_send_limits(const struct remote_stage *stage,
                                 const struct limits *limits)
{
    struct limits more = *limits;

    if (more.deadline_ms != DEADLINE_NONE) {
        more.deadline_ms += stage->attr.st_size / 1024 * 1000 / 1024;
    }
    return more;
}

static int send_node(struct remote_node *node, const struct limits *limits,
                     bool patient, struct err *err)
{
    struct remote_stage *stage = NULL;
    struct limits mine = *limits;
    int rc = remote_stage_enter(node, REMOTE_FIND, limits, &stage, err);

    if (rc < 0 || !stage) {
        return rc;
    }
    if (patient) {
        mine = remote_send_limits(stage, limits);
    }
    rc = remote_send_entered(stage, &mine, err);
    mutex_lock(&node->base.tree->lock);
    stage->told = rc < 0 && rc != -ECANCELED && !stage->grown;
    mutex_unlock(&node->base.tree->lock);
    remote_stage_leave(stage, !stage->changed && !stage->orphan);
    return rc;
}

int remote_send(struct remote_node *node, const struct limits *limits,
                struct err *err)
{
    return send_node(node, limits, true, err);
}

int remote_send_within(struct remote_node *node, const struct limits *limits,
                       struct err *err)
{
    return send_node(node, limits, false, err);
}

int remote_send_name(struct remote_node *dir, const char *name,
                     const struct limits *limits, struct err *err)
{
    struct remote_node *node = remote_node_find(dir, name);
    int rc = node ? remote_send(node, limits, err) : 0;

    ws_node_unref(node ? &node->base : NULL);
    return rc;
}
