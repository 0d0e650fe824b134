/* A living sandbox's workspace becomes another mount. See keeper.h. */
#include "providers/local/keeper.h"

#include "core/cleanup.h"
#include "providers/local/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

#ifndef MOVE_MOUNT_BENEATH
#define MOVE_MOUNT_BENEATH 0x00000200
#endif

int move_workspace(int space, int mount, struct err *err)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
                              .propagation = MS_PRIVATE};
    AUTO_FD int copy = open_tree(
        mount, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

    if (copy < 0 ||
        mount_setattr(copy, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0) {
        return err_errno(err, "cannot copy the mount of the workspace");
    }
    if (setns(space, CLONE_NEWNS) < 0) {
        return err_errno(err, "cannot enter the sandbox's mounts");
    }
    /* There is a workspace at any time. */
    if (move_mount(copy, "", AT_FDCWD, WIRE_WORKSPACE,
                   MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_BENEATH) < 0 ||
        umount2(WIRE_WORKSPACE, MNT_DETACH | UMOUNT_NOFOLLOW) < 0) {
        return err_errno(err, "cannot replace the workspace (Linux 6.5)");
    }
    return 0;
}
