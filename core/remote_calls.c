/*
 * A whole file put with the calls that each engine has: under another name
 * that takes its place, where that can be.
 */
#include "core/workspace_remote.h"

#include "core/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    PIECE = 1024 * 1024
};

int remote_write_piece(struct remote *r, const char *path,
                       const struct remote_piece *piece,
                       const struct limits *limits, struct err *err)
{
    AUTO_FREE char *bytes = malloc(PIECE);
    int rc = bytes ? 0 : err_no_memory(err);

    for (uint64_t at = piece->offset; rc == 0 && at < piece->end;) {
        uint64_t left = piece->end - at;
        size_t size = left < PIECE ? (size_t)left : PIECE;
        ssize_t n = pread(piece->fd, bytes, size, (off_t)at);

        if (n <= 0) {
            return err_set(err, EIO, "cannot read what is staged");
        }
        rc = remote_begin(r, limits, err);
        if (rc == 0) {
            rc = r->files->write_at(r->provider, &r->sandbox, path, bytes,
                                    (size_t)n, at, limits, err);
            rc = (int)remote_end(r, rc, err);
        }
        at += (uint64_t)n;
    }
    return rc;
}

/* One file that is put. */
struct by_calls {
    struct remote *r;
    const char *path;          /* Where it goes in the end. */
    char at[REMOTE_PATH_SIZE]; /* Where it is made. */
    const struct provider_put *put;
    const struct limits *limits;
};

static int create(const struct by_calls *to, struct err *err)
{
    struct remote *r = to->r;
    struct stat now;
    mode_t mode = to->put->mask & PROVIDER_ATTR_MODE
                      ? to->put->attr.st_mode & 07777
                      : 0644;
    int rc = remote_begin(r, to->limits, err);

    if (rc < 0) {
        return rc;
    }
    rc = r->files->create(r->provider, &r->sandbox, to->at, mode, to->limits,
                          &now, err);
    return (int)remote_end(r, rc, err);
}

static int set_attr(const struct by_calls *to, unsigned mask,
                    const struct stat *want, struct err *err)
{
    struct remote *r = to->r;
    int rc = mask && r->files->set_attr ? remote_begin(r, to->limits, err) : 1;

    if (rc != 0) {
        return rc < 0 ? rc : 0;
    }
    rc = r->files->set_attr(r->provider, &r->sandbox, to->at, mask, want,
                            to->limits, err);
    return (int)remote_end(r, rc, err);
}

static int rename_over(const struct by_calls *to, struct err *err)
{
    struct remote *r = to->r;
    int rc = remote_begin(r, to->limits, err);

    if (rc < 0) {
        return rc;
    }
    rc = r->files->rename(r->provider, &r->sandbox, to->at, to->path, 0,
                          to->limits, err);
    return (int)remote_end(r, rc, err);
}

static void remove_half(const struct by_calls *to)
{
    struct remote *r = to->r;
    struct err unused = ERR_INIT;

    if (r->files->remove && remote_begin(r, to->limits, &unused) == 0) {
        (void)!remote_end(r,
                          r->files->remove(r->provider, &r->sandbox, to->at,
                                           false, to->limits, &unused),
                          &unused);
    }
}

static int write_content(const struct by_calls *to, struct err *err)
{
    const struct remote_piece piece = {.fd = to->put->fd,
                                       .end = (uint64_t)to->put->attr.st_size};
    int rc = remote_write_piece(to->r, to->at, &piece, to->limits, err);

    return rc < 0 ? rc : set_attr(to, to->put->mask, &to->put->attr, err);
}

/* Makes a file that is not there; none is left when it fails. */
static int make_new(const struct by_calls *to, struct err *err)
{
    int rc = create(to, err);

    if (rc < 0) {
        return rc == -EEXIST ? err_set(err, ESTALE, "there is one by now") : rc;
    }
    rc = write_content(to, err);
    if (rc < 0) {
        remove_half(to);
    }
    return rc;
}

/* Another name in the same directory. */
static int name_half(struct by_calls *to, struct err *err)
{
    const char *slash = strrchr(to->path, '/');
    int len = slash ? (int)(slash + 1 - to->path) : 0;
    int n = snprintf(to->at, sizeof(to->at), "%.*s%s", len, to->path,
                     to->put->half);

    return n < (int)sizeof(to->at)
               ? 0
               : err_set(err, ENAMETOOLONG, "the path is too long");
}

/* Its other names would keep the old content, were it not written in place. */
static int write_in_place(struct by_calls *to, struct err *err)
{
    const struct stat empty = {.st_size = 0};
    int rc;

    (void)strcpy(to->at, to->path);
    rc = set_attr(to, PROVIDER_ATTR_SIZE, &empty, err);
    return rc < 0 ? rc : write_content(to, err);
}

static int replace(struct by_calls *to, const struct stat *is, struct err *err)
{
    struct provider_put put = *to->put;
    int rc;

    if (is->st_nlink > 1 || !to->r->files->rename) {
        return write_in_place(to, err);
    }
    if (!(put.mask & PROVIDER_ATTR_MODE)) {
        put.mask |= PROVIDER_ATTR_MODE;
        put.attr.st_mode = is->st_mode;
    }
    to->put = &put;
    rc = name_half(to, err);
    if (rc == 0) {
        rc = make_new(to, err);
    }
    if (rc == 0) {
        rc = rename_over(to, err);
        if (rc < 0) {
            remove_half(to);
        }
    }
    return rc;
}

/* Whether what is there is what was there; rc: of looking. */
static int compare(const struct stat *was, int rc, const struct stat *is,
                   struct err *err)
{
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    err_clear(err);
    if (!was || (rc < 0 && !was->st_mode)) {
        return 0;
    }
    if (rc < 0 || !was->st_mode || was->st_size != is->st_size ||
        was->st_mtim.tv_sec != is->st_mtim.tv_sec ||
        was->st_mtim.tv_nsec != is->st_mtim.tv_nsec) {
        return err_set(err, ESTALE, "the file has changed");
    }
    return 0;
}

int remote_put_by_calls(struct remote *r, const char *path,
                        const struct provider_put *put,
                        const struct limits *limits, struct stat *now,
                        struct err *err)
{
    struct by_calls *to = calloc(1, sizeof(*to));
    struct stat is;
    int found, rc;

    if (!to) {
        return err_no_memory(err);
    }
    *to = (struct by_calls){.r = r, .path = path, .put = put, .limits = limits};
    remote_cache_forget(r->cache, path);
    found = remote_attr(r, path, limits, &is, err);
    rc = !r->files->create || !r->files->write_at
             ? err_set(err, EOPNOTSUPP, "the provider cannot write")
             : compare(put->was, found, &is, err);
    if (rc == 0 && found < 0) {
        (void)strcpy(to->at, path);
        rc = make_new(to, err);
    } else if (rc == 0) {
        rc = replace(to, &is, err);
    }
    free(to);
    remote_cache_forget(r->cache, path);
    return rc < 0 ? rc : remote_attr(r, path, limits, now, err);
}
