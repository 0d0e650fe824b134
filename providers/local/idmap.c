/*
 * A directory of this machine with its owners as a sandbox's. See keeper.h.
 *
 * Its top directory's owner becomes the sandbox's user, and the other way
 * round; other ids below WIRE_ID_COUNT stay as they are, now inside; the rest
 * is nobody's.
 */
#include "providers/local/keeper.h"

#include "core/cleanup.h"
#include "providers/local/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

enum {
    MAP_SIZE = 256,
};

struct map {
    char text[MAP_SIZE];
    size_t len;
};

/* Ids of the disk from `from` on, `count` of them, as the sandbox's. */
static void add_range(struct map *map, uint32_t from, uint32_t to,
                      uint32_t count)
{
    if (count > 0) {
        map->len += (size_t)snprintf(map->text + map->len, MAP_SIZE - map->len,
                                     "%u %u %u\n", from, to, count);
    }
}

static void make_map(struct map *map, uint32_t owner, uint32_t user,
                     uint32_t base)
{
    uint32_t low = owner < user ? owner : user;
    uint32_t high = owner < user ? user : owner;

    map->len = 0;
    add_range(map, 0, base, low);
    if (high == low) {
        add_range(map, low, base + low, WIRE_ID_COUNT - low);
        return;
    }
    add_range(map, owner, base + user, 1);
    if (high >= WIRE_ID_COUNT) {
        /* Here `low` is the user: its own files are nobody's. */
        add_range(map, low + 1, base + low + 1, WIRE_ID_COUNT - low - 1);
        return;
    }
    add_range(map, user, base + owner, 1);
    add_range(map, low + 1, base + low + 1, high - low - 1);
    add_range(map, high + 1, base + high + 1, WIRE_ID_COUNT - high - 1);
}

static int map_both(pid_t pid, const struct stat *top, uint32_t base, int *out,
                    struct err *err)
{
    struct map map;
    char path[64];
    int rc;

    make_map(&map, top->st_uid, WIRE_USER, base);
    rc = proc_write(pid, "uid_map", map.text, err);
    if (rc == 0) {
        make_map(&map, top->st_gid, WIRE_GROUP, base);
        rc = proc_write(pid, "gid_map", map.text, err);
    }
    if (rc < 0) {
        return rc;
    }
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    *out = open(path, O_RDONLY | O_CLOEXEC);
    return *out < 0 ? err_errno(err, "cannot open a user namespace") : 0;
}

/* A user namespace that holds the mapping; its process has a short life. */
static int make_namespace(const struct stat *top, uint32_t base, int *out,
                          struct err *err)
{
    struct clone_args args = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    int rc;

    if (pid == 0) {
        for (;;) {
            (void)pause();
        }
    }
    if (pid < 0) {
        return err_errno(err, "cannot make a user namespace");
    }
    rc = map_both(pid, top, base, out, err);
    (void)kill(pid, SIGKILL); /* The keeper lets the kernel reap it. */
    return rc;
}

int idmap_copy(int dir, uint32_t base, int *out, struct err *err)
{
    struct mount_attr set = {.attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_RDONLY};
    AUTO_FD int copy =
        open_tree(dir, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
    AUTO_FD int names = -1;
    struct statfs fs;
    struct stat top;
    int rc;

    if (copy < 0 || fstat(copy, &top) < 0 || fstatfs(copy, &fs) < 0) {
        return err_errno(err, "cannot copy the mount of the base");
    }
    rc = make_namespace(&top, base, &names, err);
    if (rc < 0) {
        return rc;
    }
    set.userns_fd = (__u64)names;
    if (mount_setattr(copy, "", AT_EMPTY_PATH, &set, sizeof(set)) < 0) {
        return err_errno(err,
                         "the base's filesystem (type %#lx) cannot show its "
                         "files as a sandbox's own",
                         (unsigned long)fs.f_type);
    }
    *out = TAKE_FD(copy);
    return 0;
}
