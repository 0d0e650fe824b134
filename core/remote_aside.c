/* What the engine will not take. See remote_aside.h. */
#include "core/remote_aside.h"

#include "core/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ASIDE "aside"

enum {
    NAME_SIZE = NAME_MAX + 1,
    NAMES_MOST = 100, /* Tried for one that is put aside. */
};

/* ---- The directory ---- */

/* Opened once; -1 where nothing was ever put aside. */
static int open_dir(struct remote *r, bool make, struct err *err)
{
    int none = -1;
    int fd = atomic_load(&r->aside);

    if (fd >= 0) {
        return fd;
    }
    fd = remote_private_dir(r->sandbox.dir, ASIDE, make, err);
    if (fd >= 0 && !atomic_compare_exchange_strong(&r->aside, &none, fd)) {
        (void)close(fd);
        fd = none;
    }
    return fd;
}

void remote_aside_init(struct remote *r)
{
    struct err unused = ERR_INIT;

    (void)open_dir(r, false, &unused);
}

void remote_aside_done(struct remote *r)
{
    int fd = atomic_load(&r->aside);

    cleanup_fd(&fd);
}

/* ---- Putting ---- */

/* What is put aside, and how it is called. */
struct leaving {
    int fd;
    const char *base;   /* Its own name, or none. */
    const char *suffix; /* Of what belongs to it. */
    uint64_t n;         /* It was kept under this number. */
    char name[NAME_SIZE];
};

static void name_it(struct leaving *leaving, unsigned try)
{
    char again[16] = "";

    if (try) {
        (void)snprintf(again, sizeof(again), "-%u", try);
    }
    (void)snprintf(leaving->name, sizeof(leaving->name),
                   "%.200s%sunsent-%" PRIu64 "%s%s", leaving->base,
                   leaving->base[0] ? "." : "", leaving->n / 1000000, again,
                   leaving->suffix);
}

/* A daemon that put it there may not have lived to forget it here. */
static bool is_there(int dir, const struct leaving *leaving)
{
    struct stat a, b;

    return fstat(leaving->fd, &a) == 0 &&
           fstatat(dir, leaving->name, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
           a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

/* Gives bytes the first name that is free. */
static int put_under(struct remote *r, struct leaving *leaving, struct err *err)
{
    int dir = open_dir(r, true, err);
    int rc = dir < 0 ? dir : -EEXIST;

    for (unsigned i = 0; rc == -EEXIST && i < NAMES_MOST; i++) {
        name_it(leaving, i);
        err_clear(err);
        rc = remote_keep_data(dir, leaving->name, leaving->fd, err);
        if (rc == -EEXIST && is_there(dir, leaving)) {
            err_clear(err);
            return 0;
        }
    }
    if (rc == 0 && fsync(dir) < 0) {
        rc = err_errno(err, "cannot put it aside");
        (void)unlinkat(dir, leaving->name, 0);
    }
    return rc;
}

/* Its mode and times are those of the file that shows. */
static int put_attr(const struct remote *r, const char *name,
                    const struct stat *attr, struct err *err)
{
    const struct timespec times[2] = {attr->st_atim, attr->st_mtim};
    int dir = atomic_load(&r->aside);

    return fchmodat(dir, name, attr->st_mode & 0777, 0) < 0 ||
                   utimensat(dir, name, times, 0) < 0
               ? err_errno(err, "cannot put it aside")
               : 0;
}

/* Has all of it here; what cannot be had is zeros. */
static int fill(struct remote_stage *stage, const struct limits *limits,
                const char **lacks, struct err *err)
{
    int rc = remote_stage_fill(stage, limits, err);

    if (rc == 0 || remote_is_of_all(rc)) {
        return rc;
    }
    *lacks = ", with zeros where nothing was written";
    err_clear(err);
    return ftruncate(stage->fd, stage->attr.st_size) < 0
               ? err_errno(err, "cannot put it aside")
               : 0;
}

int remote_aside_put(struct remote *r, struct remote_kept *kept,
                     const struct limits *limits, struct err *err)
{
    const char *slash = strrchr(kept->path, '/');
    const struct err why = *err;
    const char *lacks = "";
    struct leaving leaving = {
        .base = slash ? slash + 1 : kept->path, .suffix = "", .n = kept->n};
    int rc;

    err_clear(err);
    rc = fill(&kept->stage, limits, &lacks, err);
    if (rc == 0) {
        leaving.fd = kept->stage.fd;
        rc = put_under(r, &leaving, err);
    }
    if (rc == 0) {
        rc = put_attr(r, leaving.name, &kept->stage.attr, err);
    }
    if (rc == 0) {
        (void)err_set(err, why.code,
                      "%.150s; it is '%.250s' in workspace/, on this side "
                      "alone%s",
                      why.msg, leaving.name, lacks);
    }
    return rc;
}

static int put_raw(struct remote *r, int dir, const char *from,
                   struct leaving *leaving, struct err *err)
{
    AUTO_FD int fd = openat(dir, from, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0) {
        return err_errno(err, "cannot read what is kept");
    }
    leaving->fd = fd;
    return put_under(r, leaving, err);
}

int remote_aside_put_raw(struct remote *r, int dir, uint64_t n, struct err *err)
{
    const struct err why = *err;
    struct leaving leaving = {.base = "", .suffix = ".note", .n = n};
    char name[REMOTE_KEPT_NAME];
    int rc;

    err_clear(err);
    remote_kept_name(n, "", name);
    rc = put_raw(r, dir, name, &leaving, err);
    if (rc == 0) {
        leaving.suffix = "";
        remote_kept_name(n, ".data", name);
        rc = put_raw(r, dir, name, &leaving, err);
    }
    if (rc == 0) {
        (void)err_set(err, why.code,
                      "%.200s; its bytes are '%.100s' in workspace/, on this "
                      "side alone",
                      why.msg, leaving.name);
    }
    return rc;
}

/* ---- Showing ---- */

bool remote_is_aside(struct remote_node *node)
{
    struct remote *r = remote_tree(node);
    bool aside;

    mutex_lock(&r->base.lock);
    aside = node->aside;
    mutex_unlock(&r->base.lock);
    return aside;
}

/* They are only read: what is written would come to nobody. */
static int stat_name(const struct remote *r, const char *name, struct stat *out)
{
    struct stat attr;
    int dir = atomic_load(&r->aside);

    if (dir < 0 || fstatat(dir, name, &attr, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISREG(attr.st_mode)) {
        return -ENOENT;
    }
    attr.st_ino = 0; /* None of the engine's. */
    attr.st_nlink = 1;
    attr.st_mode &= ~(mode_t)0222;
    *out = attr;
    return 0;
}

bool remote_aside_find(struct remote_node *dir, const char *name,
                       struct ws_node **out, struct stat *attr)
{
    struct remote *r = remote_tree(dir);
    struct err unused = ERR_INIT;
    struct stat found;

    if (dir != &r->root || stat_name(r, name, &found) < 0 ||
        remote_node_meet(dir, name, &found, out, &unused) < 0) {
        return false;
    }
    mutex_lock(&r->base.lock);
    remote_node_of(*out)->aside = true;
    mutex_unlock(&r->base.lock);
    *attr = found;
    return true;
}

int remote_aside_attr(struct remote_node *node, struct stat *out,
                      struct err *err)
{
    struct remote_path path;
    int rc = remote_path(node, NULL, &path, err);

    if (rc == 0 && stat_name(remote_tree(node), path.text, out) < 0) {
        rc = err_set(err, ESTALE, "the file was removed");
    }
    return rc;
}

int remote_aside_open(struct remote_node *node, int flags, int *fd,
                      struct err *err)
{
    struct remote_path path;
    int rc = remote_path(node, NULL, &path, err);

    if (rc == 0 && ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC))) {
        rc = err_set(err, EROFS,
                     "it was not sent and is on this side alone: move it to "
                     "where it can be sent, or remove it");
    }
    if (rc == 0) {
        *fd = openat(atomic_load(&remote_tree(node)->aside), path.text,
                     O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        rc = *fd < 0 ? err_errno(err, "open what was put aside") : 0;
    }
    return rc;
}

int remote_aside_remove(struct remote_node *node, struct err *err)
{
    struct remote_path path;
    int rc = remote_path(node, NULL, &path, err);

    return rc == 0 && unlinkat(atomic_load(&remote_tree(node)->aside),
                               path.text, 0) < 0
               ? err_errno(err, "remove what was put aside")
               : rc;
}

int remote_aside_list(struct remote *r, provider_entry_fn *fn, void *arg)
{
    int own = atomic_load(&r->aside);
    DIR *dir;
    int rc = 0;

    own = own < 0 ? own : openat(own, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dir = own < 0 ? NULL : fdopendir(own);
    if (!dir) {
        cleanup_fd(&own);
        return 0;
    }
    for (const struct dirent *entry = readdir(dir); entry && rc == 0;
         entry = readdir(dir)) {
        struct provider_entry told = {.name = entry->d_name};

        if (stat_name(r, entry->d_name, &told.attr) == 0) {
            rc = fn(arg, &told);
        }
    }
    (void)closedir(dir);
    return rc;
}

/* ---- Moving it to the engine ---- */

/* As what is written now to a file that the engine does not have. */
static int begin_move(const struct ws_move *move, struct remote_node *node,
                      struct remote_kept *out, struct err *err)
{
    struct remote *r = remote_tree(node);
    struct remote_path path;
    struct stat attr;
    int rc = remote_path(remote_node_of(move->to), move->new_name, &path, err);

    if (rc == 0) {
        rc = remote_aside_open(node, O_RDONLY, &out->stage.fd, err);
    }
    if (rc == 0 && fstat(out->stage.fd, &attr) < 0) {
        rc = err_errno(err, "read what was put aside");
    }
    if (rc < 0) {
        return rc;
    }
    (void)snprintf(out->path, sizeof(out->path), "%s", path.text);
    out->stage.node = &r->root;
    out->stage.path = out->path;
    out->stage.attr = attr;
    out->stage.attr.st_ino = 0;
    out->stage.fresh = true;
    out->stage.any = !(move->flags & RENAME_NOREPLACE);
    out->stage.whole = true;
    out->stage.mask = PROVIDER_ATTR_MODE | PROVIDER_ATTR_MTIME;
    out->stage.changed = true;
    out->stage.written = true;
    return 0;
}

/* Nothing is replaced that somebody wants to keep. */
static int check_target(const struct ws_move *move, struct err *err)
{
    struct remote_path path;
    struct stat attr;
    int rc;

    if (move->flags & ~(unsigned)RENAME_NOREPLACE) {
        return err_set(err, EINVAL, "one of the two is on this side alone");
    }
    rc = remote_path(remote_node_of(move->to), move->new_name, &path, err);
    if (rc < 0) {
        return rc;
    }
    rc = remote_attr(remote_of(move->to->tree), path.text, &move->ctx->limits,
                     &attr, err);
    if (rc == -ENOENT) {
        err_clear(err);
        return 0;
    }
    if (rc == 0 && (move->flags & RENAME_NOREPLACE)) {
        rc = err_set(err, EEXIST, "it is there");
    }
    if (rc == 0 && S_ISDIR(attr.st_mode)) {
        rc = err_set(err, EISDIR, "a directory");
    }
    return rc;
}

int remote_aside_move(const struct ws_move *move, struct remote_node *node,
                      struct err *err)
{
    struct remote *r = remote_tree(node);
    struct remote_kept *kept;
    int rc = check_target(move, err);

    if (rc < 0) {
        return rc;
    }
    kept = calloc(1, sizeof(*kept));
    if (!kept) {
        return err_no_memory(err);
    }
    kept->stage.fd = -1;
    rc = begin_move(move, node, kept, err);
    if (rc == 0) {
        const struct limits mine =
            remote_send_limits(&kept->stage, &move->ctx->limits);

        rc = remote_send_entered(&kept->stage, &mine, err);
    }
    if (rc == 0) {
        rc = remote_aside_remove(node, err);
    }
    if (rc == 0) {
        mutex_lock(&r->base.lock);
        node->aside = false;
        mutex_unlock(&r->base.lock);
    }
    remote_kept_free(kept);
    return rc;
}
