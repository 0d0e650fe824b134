/* See serve_sync.h. */
#include "fs/serve_sync.h"

#include "core/cleanup.h"
#include "core/path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK = 256 * 1024,
    DEPTH_MAX = 512, /* Directories within each other. */
    MODES = 0777,
};

/* A directory that is being copied, and the one that it is copied to. */
struct level {
    DIR *from;
    struct ws_node *to;
};

struct copy {
    struct conn *conn;
    char *chunk;
    struct level levels[DEPTH_MAX];
    size_t depth;
};

/* ---- An entry ---- */

static int copy_data(struct copy *copy, int from, struct ws_file *to,
                     struct err *err)
{
    struct ws_ctx ctx = serve_ctx(copy->conn);
    off_t at = 0;
    ssize_t n;

    do {
        int rc = serve_look(copy->conn, err);

        if (rc < 0) {
            return rc;
        }
        n = read(from, copy->chunk, CHUNK);
        if (n < 0) {
            return err_errno(err, "read");
        }
        ctx = serve_ctx(copy->conn);
        if (n > 0 && ws_write(to, copy->chunk, (size_t)n, at, &ctx, err) != n) {
            return err->code ? -err->code : err_set(err, ENOSPC, "no room");
        }
        at += n;
    } while (n > 0);
    ctx = serve_ctx(copy->conn);
    return ws_flush(to, &ctx, err);
}

static int copy_file(struct copy *copy, const struct level *level,
                     const char *name, const struct stat *st, struct err *err)
{
    AUTO_FD int fd = path_step(dirfd(level->from), name, O_RDONLY | O_NONBLOCK);
    struct ws_ctx ctx = serve_ctx(copy->conn);
    struct ws_file *file = NULL;
    struct ws_node *node = NULL;
    struct stat attr;
    int rc;

    if (fd < 0) {
        return err_set(err, -fd, "it cannot be opened");
    }
    rc = ws_create(level->to, name, st->st_mode & MODES, O_WRONLY, &ctx, &node,
                   &file, &attr, err);
    if (rc < 0) {
        return rc;
    }
    rc = copy_data(copy, fd, file, err);
    ws_close(file);
    ws_node_unref(node);
    return rc;
}

static int copy_link(struct copy *copy, const struct level *level,
                     const char *name, struct err *err)
{
    struct ws_ctx ctx = serve_ctx(copy->conn);
    struct ws_node *node = NULL;
    char target[PATH_MAX];
    struct stat attr;
    ssize_t n =
        readlinkat(dirfd(level->from), name, target, sizeof(target) - 1);
    int rc;

    if (n < 0) {
        return err_errno(err, "read the link");
    }
    target[n] = '\0';
    rc = ws_symlink(level->to, name, target, &ctx, &node, &attr, err);
    ws_node_unref(rc == 0 ? node : NULL);
    return rc;
}

/* Goes down into it: its entries are next. Takes the node, on success. */
static int push(struct copy *copy, int fd, struct ws_node *to, struct err *err)
{
    DIR *dir;

    if (copy->depth == DEPTH_MAX) {
        (void)close(fd);
        return err_set(err, ELOOP, "directories are too deep");
    }
    dir = fdopendir(fd);
    if (!dir) {
        int rc = err_errno(err, "open");

        (void)close(fd);
        return rc;
    }
    copy->levels[copy->depth++] = (struct level){dir, to};
    return 0;
}

static int copy_dir(struct copy *copy, const struct level *level,
                    const char *name, const struct stat *st, struct err *err)
{
    struct ws_ctx ctx = serve_ctx(copy->conn);
    struct ws_node *node = NULL;
    struct stat attr;
    int fd = path_step(dirfd(level->from), name, O_RDONLY | O_DIRECTORY);
    int rc;

    if (fd < 0) {
        return err_set(err, -fd, "it cannot be opened");
    }
    rc =
        ws_mkdir(level->to, name, st->st_mode & MODES, &ctx, &node, &attr, err);
    if (rc < 0) {
        (void)close(fd);
        return rc;
    }
    rc = push(copy, fd, node, err);
    if (rc < 0) {
        ws_node_unref(node);
    }
    return rc;
}

static int copy_entry(struct copy *copy, const char *name, struct err *err)
{
    const struct level *level = &copy->levels[copy->depth - 1];
    struct stat st;
    int rc = 0;

    if (fstatat(dirfd(level->from), name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return errno == ENOENT ? 0 : err_errno(err, "'%.100s'", name);
    }
    if (S_ISDIR(st.st_mode)) {
        rc = copy_dir(copy, level, name, &st, err);
    } else if (S_ISREG(st.st_mode)) {
        rc = copy_file(copy, level, name, &st, err);
    } else if (S_ISLNK(st.st_mode)) {
        rc = copy_link(copy, level, name, err);
    }
    return rc < 0 ? err_wrap(err, rc, "'%.100s'", name) : 0;
}

/* ---- All of them ---- */

static void pop(struct copy *copy)
{
    struct level *level = &copy->levels[--copy->depth];

    (void)closedir(level->from);
    ws_node_unref(level->to);
}

/* One step: an entry, or the way back up. */
static int step(struct copy *copy, struct err *err)
{
    const struct dirent *entry;
    int rc = serve_look(copy->conn, err);

    if (rc < 0) {
        return rc;
    }
    errno = 0;
    entry = readdir(copy->levels[copy->depth - 1].from);
    if (!entry && errno) {
        return err_errno(err, "list");
    }
    if (!entry) {
        pop(copy);
        return 0;
    }
    return strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0
               ? 0
               : copy_entry(copy, entry->d_name, err);
}

static int copy_tree(struct copy *copy, int fd, struct ws_node *root,
                     struct err *err)
{
    int rc = push(copy, fd, root, err);

    if (rc < 0) {
        ws_node_unref(root);
    }
    while (copy->depth && rc == 0) {
        rc = step(copy, err);
    }
    while (copy->depth) {
        pop(copy);
    }
    return rc;
}

/* Takes the fd. */
static int copy_into(struct conn *conn, int fd, struct workspace *ws,
                     struct err *err)
{
    AUTO_FREE struct copy *copy = calloc(1, sizeof(*copy));
    AUTO_FREE char *chunk = malloc(CHUNK);

    if (!copy || !chunk) {
        (void)close(fd);
        return err_no_memory(err);
    }
    copy->conn = conn;
    copy->chunk = chunk;
    return copy_tree(copy, fd, ws_root(ws), err);
}

int serve_sync(struct conn *conn, struct session *session, const char *path,
               struct err *err)
{
    struct workspace *ws = NULL;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc;

    if (fd < 0) {
        return err_errno(err, "'%.300s'", path);
    }
    /* What is made up when it is read has no end. */
    rc = path_is_kernels(fd)
             ? err_set(err, EINVAL, "no files are there")
             : serve_enter(conn, session, SESSION_GROW, &ws, err);
    if (rc < 0) {
        (void)close(fd);
        return rc;
    }
    if (ws) {
        rc = copy_into(conn, fd, ws, err);
        ws_unref(ws);
    } else {
        (void)close(fd);
        rc = err_set(err, ENOENT, "there is no sandbox");
    }
    session_files_leave(session);
    return rc < 0 ? err_wrap(err, rc, "copy '%.100s'", path) : 0;
}
