/* Names of a direct tree: found, made, moved and removed. */
#include "core/workspace_direct.h"

#include "core/cleanup.h"
#include "core/path.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>

/* Meets what an O_PATH fd stands for; takes the fd. */
static int meet(struct direct_node *dir, const char *name, int fd,
                struct ws_node **out, struct stat *attr, struct err *err)
{
    struct stat found;
    int rc;

    if (fstat(fd, &found) < 0) {
        rc = err_errno(err, "fstat");
        (void)close(fd);
        return rc;
    }
    direct_show_room(direct_tree(dir), fd, &found);
    rc = direct_node_meet(dir, name, fd, &found, out, err);
    if (rc < 0) {
        return rc;
    }
    direct_show(direct_tree(dir), &found);
    *attr = found;
    return 0;
}

static int lookup_at(struct direct_node *dir, int dir_fd, const char *name,
                     struct ws_node **out, struct stat *attr, struct err *err)
{
    int fd = path_step(dir_fd, name, O_PATH);

    if (fd < 0) {
        errno = -fd;
        return err_errno(err, "lookup");
    }
    return meet(dir, name, fd, out, attr, err);
}

int direct_lookup(struct ws_node *base, const char *name,
                  const struct ws_ctx *ctx, struct ws_node **out,
                  struct stat *attr, struct err *err)
{
    struct direct_node *dir = direct_node_of(base);
    int fd = direct_fd_get(dir, err);
    int rc;

    if (fd < 0) {
        return fd;
    }
    if (direct_absent_knows(dir, name, ctx)) {
        rc = err_set(err, ENOENT, "lookup: it is not in the listing");
    } else {
        rc = lookup_at(dir, fd, name, out, attr, err);
        if (rc == -ENOENT) {
            direct_absent_missed(dir, fd, ctx);
        }
    }
    direct_fd_put(dir);
    return rc;
}

/* Who shall own a new file, as host ids, and where it comes to be. */
struct maker {
    struct direct *d;
    struct direct_node *dir;
    int dir_fd;
    const char *name;
    uid_t uid;
    gid_t gid;
    mode_t mode;  /* As it shall be in the end. */
    bool set_gid; /* The directory hands its group on. */
    bool owned;   /* Files that we make are the caller's at once. */
};

static int find_owner(struct maker *maker, const struct ws_ctx *ctx,
                      struct err *err)
{
    const struct ws_ids *ids = &maker->d->ids;
    uint32_t uid = ids->user, gid = ids->group;
    int rc = 0;

    if (ids->count > 1) { /* With one id everything is the mounter's. */
        rc = ws_uid_inside(ids, ctx->uid, &uid, err);
        if (rc == 0) {
            rc = ws_gid_inside(ids, ctx->gid, &gid, err);
        }
    }
    maker->uid = maker->d->host_uid + uid;
    maker->gid = maker->d->host_gid + gid;
    return rc;
}

/* Prepares; on success the directory's fd must be put. */
static int maker_begin(struct maker *maker, const struct ws_place *place,
                       struct err *err)
{
    struct stat attr;
    int rc;

    maker->dir = direct_node_of(place->dir);
    maker->d = direct_tree(maker->dir);
    maker->name = place->name;
    maker->mode = place->mode & 07777;
    rc = find_owner(maker, place->ctx, err);
    if (rc < 0) {
        return rc;
    }
    maker->dir_fd = direct_fd_get(maker->dir, err);
    if (maker->dir_fd < 0) {
        return maker->dir_fd;
    }
    if (fstat(maker->dir_fd, &attr) < 0) {
        rc = err_errno(err, "fstat of the directory");
        direct_fd_put(maker->dir);
        return rc;
    }
    maker->set_gid = (attr.st_mode & S_ISGID) != 0;
    if (maker->set_gid && place->ctx->uid != 0 && attr.st_gid != maker->gid &&
        (maker->mode & S_IXGRP) && !S_ISDIR(place->mode)) {
        /* Not a group of the caller's to lend. */
        maker->mode &= ~(mode_t)S_ISGID;
    }
    direct_absent_make(maker->d);
    maker->owned =
        maker->uid == geteuid() && (maker->set_gid || maker->gid == getegid());
    return 0;
}

static void maker_end(const struct maker *maker)
{
    direct_absent_make(maker->d);
    direct_fd_put(maker->dir);
}

static void act_as_ourselves(void)
{
    (void)setfsuid(geteuid());
    (void)setfsgid(getegid());
}

/*
 * Has this thread make files as the caller's, with all the rights it has. They
 * are never ours, not even for a moment: the sandbox could move them away
 * meanwhile, and keep them.
 */
static int act_as_maker(const struct maker *maker, struct err *err)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct caps[2];

    if (maker->owned) {
        return 0;
    }
    if (syscall(SYS_capget, &head, caps) < 0) {
        return err_errno(err, "capget");
    }
    (void)setfsgid(maker->gid);
    (void)setfsuid(maker->uid);
    /* They tell by no result whether they did it. */
    if ((uid_t)setfsuid((uid_t)-1) != maker->uid ||
        (gid_t)setfsgid((gid_t)-1) != maker->gid ||
        syscall(SYS_capset, &head, caps) < 0) {
        act_as_ourselves();
        return err_set(err, EPERM, "may not make files for others");
    }
    return 0;
}

/* What a call of act_as_maker() is followed by, and ended. */
static int acted(const struct maker *maker, int rc, const char *what,
                 struct err *err)
{
    int code = errno;

    if (!maker->owned) {
        act_as_ourselves();
    }
    errno = code;
    return rc < 0 ? err_errno(err, "%s", what) : rc;
}

/* Gives what was made its set-id bits; it was made without. */
static int settle(const struct maker *maker, int fd, struct err *err)
{
    struct stat attr;
    mode_t want = maker->mode;

    if (!(want & (S_ISUID | S_ISGID))) {
        return 0;
    }
    if (fstat(fd, &attr) < 0) {
        return err_errno(err, "fstat");
    }
    return direct_chmod(fd, (attr.st_mode & 07777) | want, err);
}

/* Whether fd may be what we just made: it has the owner and the type. */
static bool is_made(const struct maker *maker, int fd, mode_t type)
{
    struct stat attr;

    return fstat(fd, &attr) == 0 && attr.st_uid == maker->uid &&
           (attr.st_mode & S_IFMT) == type;
}

/* It lies where changes are made: nothing has to be copied first. */
static void is_new(struct ws_node *node)
{
    atomic_store(&direct_node_of(node)->lifted, true);
}

/*
 * Ends the making of something that is not open: finds it by its name. If the
 * sandbox has put another file there meanwhile, that one is met as it is.
 */
static int finish(const struct maker *maker, mode_t type, struct ws_node **out,
                  struct stat *attr, struct err *err)
{
    AUTO_FD int fd = path_step(maker->dir_fd, maker->name, O_PATH);
    bool made;
    int rc = 0;

    if (fd < 0) {
        errno = -fd;
        return err_errno(err, "open what was made");
    }
    made = is_made(maker, fd, type);
    if (made) {
        rc = settle(maker, fd, err);
    }
    if (rc < 0) {
        (void)unlinkat(maker->dir_fd, maker->name,
                       type == S_IFDIR ? AT_REMOVEDIR : 0);
        return rc;
    }
    rc = meet(maker->dir, maker->name, TAKE_FD(fd), out, attr, err);
    if (rc == 0 && made) {
        is_new(*out);
    }
    return rc;
}

int direct_mkdir(const struct ws_place *place, struct ws_node **out,
                 struct stat *attr, struct err *err)
{
    const struct ws_place typed = {place->dir, place->name,
                                   place->mode | S_IFDIR, place->ctx};
    struct maker maker = {.dir_fd = -1};
    int rc = maker_begin(&maker, &typed, err);

    if (rc < 0) {
        return rc;
    }
    rc = act_as_maker(&maker, err);
    if (rc == 0) {
        rc =
            acted(&maker, mkdirat(maker.dir_fd, maker.name, maker.mode & 01777),
                  "mkdir", err);
    }
    if (rc == 0) {
        rc = finish(&maker, S_IFDIR, out, attr, err);
    }
    maker_end(&maker);
    return rc;
}

int direct_mknod(const struct ws_place *place, struct ws_node **out,
                 struct stat *attr, struct err *err)
{
    mode_t type = place->mode & S_IFMT;
    struct maker maker = {.dir_fd = -1};
    int rc = maker_begin(&maker, place, err);

    if (rc < 0) {
        return rc;
    }
    rc = act_as_maker(&maker, err);
    if (rc == 0) {
        rc = acted(
            &maker,
            mknodat(maker.dir_fd, maker.name, type | (maker.mode & 01777), 0),
            "mknod", err);
    }
    if (rc == 0) {
        rc = finish(&maker, type, out, attr, err);
    }
    maker_end(&maker);
    return rc;
}

int direct_symlink(const struct ws_place *place, const char *target,
                   struct ws_node **out, struct stat *attr, struct err *err)
{
    struct maker maker = {.dir_fd = -1};
    int rc = maker_begin(&maker, place, err);

    if (rc < 0) {
        return rc;
    }
    rc = act_as_maker(&maker, err);
    if (rc == 0) {
        rc = acted(&maker, symlinkat(target, maker.dir_fd, maker.name),
                   "symlink", err);
    }
    if (rc == 0) {
        rc = finish(&maker, S_IFLNK, out, attr, err);
    }
    maker_end(&maker);
    return rc;
}

/* Makes the node and the open file of a new file's fd, which is taken. */
static int adopt(const struct maker *maker, int made, int flags,
                 struct ws_node **node, struct ws_file **file,
                 struct stat *attr, struct err *err)
{
    AUTO_FD int fd = made;
    int path_fd = open(direct_proc(fd).text, O_PATH | O_CLOEXEC);
    struct ws_node *met = NULL;
    struct stat found;
    int rc;

    if (path_fd < 0) {
        return err_errno(err, "open what was made");
    }
    rc = meet(maker->dir, maker->name, path_fd, &met, &found, err);
    if (rc < 0) {
        return rc;
    }
    rc = direct_file_new(met, fd, flags, file, err);
    if (rc < 0) {
        ws_node_unref(met);
        return rc;
    }
    (void)TAKE_FD(fd);
    is_new(met);
    *node = met;
    *attr = found;
    return 0;
}

/* Makes and opens a file that is not there; -EEXIST. */
static int create_new(const struct maker *maker, int flags,
                      struct ws_node **node, struct ws_file **file,
                      struct stat *attr, struct err *err)
{
    int rc = act_as_maker(maker, err);
    int fd;

    if (rc < 0) {
        return rc;
    }
    fd = acted(maker,
               openat(maker->dir_fd, maker->name,
                      direct_open_flags(flags) | O_CREAT | O_EXCL,
                      maker->mode & 01777),
               "create", err);
    if (fd < 0) {
        return fd;
    }
    rc = settle(maker, fd, err);
    if (rc < 0) {
        (void)unlinkat(maker->dir_fd, maker->name, 0);
        (void)close(fd);
        return rc;
    }
    return adopt(maker, fd, flags, node, file, attr, err);
}

static int create_old(const struct maker *maker, int flags,
                      const struct ws_ctx *ctx, struct ws_node **node,
                      struct ws_file **file, struct stat *attr, struct err *err)
{
    struct ws_node *found = NULL;
    struct ws_file *opened = NULL;
    struct stat now;
    int rc =
        lookup_at(maker->dir, maker->dir_fd, maker->name, &found, &now, err);

    if (rc < 0) {
        return rc;
    }
    rc = direct_open(found, flags, ctx, &opened, err);
    if (rc == 0) {
        rc = direct_getattr(found, opened, ctx, &now, err);
    }
    if (rc < 0) {
        ws_close(opened);
        ws_node_unref(found);
        return rc;
    }
    *node = found;
    *file = opened;
    *attr = now;
    return 0;
}

int direct_create(const struct ws_place *place, int flags,
                  struct ws_node **node, struct ws_file **file,
                  struct stat *attr, struct err *err)
{
    struct maker maker = {.dir_fd = -1};
    int rc = maker_begin(&maker, place, err);

    if (rc < 0) {
        return rc;
    }
    rc = create_new(&maker, flags, node, file, attr, err);
    if (rc == -EEXIST && !(flags & O_EXCL)) {
        err_clear(err);
        rc = create_old(&maker, flags, place->ctx, node, file, attr, err);
    }
    maker_end(&maker);
    return rc;
}

static int link_at(int fd, int dir_fd, const char *name, struct stat *attr,
                   struct err *err)
{
    /* The link in /proc leads to the file itself, be it a link or not. */
    if (linkat(AT_FDCWD, direct_proc(fd).text, dir_fd, name,
               AT_SYMLINK_FOLLOW) < 0) {
        return err_errno(err, "link");
    }
    return fstat(fd, attr) < 0 ? err_errno(err, "fstat") : 0;
}

int direct_link(struct ws_node *base, const struct ws_place *place,
                struct stat *attr, struct err *err)
{
    struct direct_node *node = direct_node_of(base);
    struct direct_node *dir = direct_node_of(place->dir);
    struct stat found;
    int fd = direct_fd_get(node, err);
    int dir_fd, rc;

    if (fd < 0) {
        return fd;
    }
    dir_fd = direct_fd_get(dir, err);
    if (dir_fd < 0) {
        direct_fd_put(node);
        return dir_fd;
    }
    direct_absent_make(direct_tree(dir));
    rc = link_at(fd, dir_fd, place->name, &found, err);
    direct_absent_make(direct_tree(dir));
    if (rc == 0) {
        direct_node_linked(node, dir, place->name);
    }
    direct_fd_put(dir);
    direct_fd_put(node);
    if (rc == 0) {
        direct_node_saw(node, &found);
        direct_show(direct_tree(node), &found);
        *attr = found;
    }
    return rc;
}

int direct_remove(struct ws_node *base, const char *name, bool is_dir,
                  const struct ws_ctx *ctx, struct err *err)
{
    struct direct_node *dir = direct_node_of(base);
    int fd = direct_fd_get(dir, err);
    int rc = 0;

    (void)ctx;
    if (fd < 0) {
        return fd;
    }
    if (unlinkat(fd, name, is_dir ? AT_REMOVEDIR : 0) < 0) {
        rc = err_errno(err, is_dir ? "rmdir" : "unlink");
    }
    direct_fd_put(dir);
    return rc;
}

static int rename_at(const struct ws_move *move, int from_fd, int to_fd,
                     struct err *err)
{
    const struct ws_move back = {
        .from = move->to,
        .name = move->new_name,
        .to = move->from,
        .new_name = move->name,
    };
    bool exchange = (move->flags & RENAME_EXCHANGE) != 0;
    struct ws_node *node =
        direct_node_at(direct_node_of(move->from), from_fd, move->name);
    struct ws_node *other = exchange ? direct_node_at(direct_node_of(move->to),
                                                      to_fd, move->new_name)
                                     : NULL;
    int rc = renameat2(from_fd, move->name, to_fd, move->new_name, move->flags);

    if (rc < 0) {
        rc = err_errno(err, "rename");
    } else {
        direct_node_moved(move, node, to_fd);
        if (exchange) {
            direct_node_moved(&back, other, from_fd);
        }
    }
    ws_node_unref(node);
    ws_node_unref(other);
    return rc;
}

int direct_rename(const struct ws_move *move, struct err *err)
{
    struct direct_node *from = direct_node_of(move->from);
    struct direct_node *to = direct_node_of(move->to);
    int from_fd = direct_fd_get(from, err);
    int to_fd, rc;

    if (from_fd < 0) {
        return from_fd;
    }
    to_fd = direct_fd_get(to, err);
    if (to_fd < 0) {
        direct_fd_put(from);
        return to_fd;
    }
    direct_absent_make(direct_tree(to));
    rc = rename_at(move, from_fd, to_fd, err);
    direct_absent_make(direct_tree(to));
    direct_fd_put(to);
    direct_fd_put(from);
    return rc;
}
