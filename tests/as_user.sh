#!/bin/sh
# Runs a test program of this build as a user who is not root and whom no group
# knows: with a home of its own, and with a /dev/fuse that everybody may open,
# as on most machines; all in a mount namespace that ends with it.
# With --delegated also in a control group of the user's own, as systemd gives it.
# usage: as_user.sh [--delegated] PROGRAM ARGUMENT...     (as root)
set -u

if [ "$(id -u)" -ne 0 ] || [ ! -c /dev/fuse ]; then
    echo "as_user: needs root and /dev/fuse"
    [ "${CI:-}" = true ] && exit 1
    exit 77
fi
if [ "$1" = --delegated ]; then
    shift
    # shellcheck source=tests/group.sh
    . "${0%/*}/group.sh"
    new_group
    chown 12345:12345 "$group" "$group/cgroup.procs" \
        "$group/cgroup.subtree_control"
    run_in_group "$0" "$@"
    exit
fi
if [ "$1" != --inside ]; then
    top=$(mktemp -d /var/tmp/as_user.XXXXXX) || exit 1
    chmod 755 "$top"
    mkdir "$top/mounts" "$top/home"
    chown 12345:12345 "$top/home"
    unshare -m --propagation private "$0" --inside "$top" "$@"
    rc=$?
    # The mounts went with their namespace: were one left, this would fail.
    rmdir "$top/mounts" && rm -rf --one-file-system "$top"
    exit "$rc"
fi

# Copies of other tests' mounts would keep them alive beyond their umount.
umount --all --lazy --types fuse.sessionfs 2>/dev/null || :
top=$2/mounts
home=$2/home
program=$3
shift 3
# The directory of the build may be closed to others: a mount is not.
bin=$(dirname "$(readlink -f "$program")")
name=$(basename "$program")
mount -t tmpfs -o mode=755 none "$top" || exit 1
mkdir "$top/bin"
mount --bind "$bin" "$top/bin" || exit 1
mknod -m 666 "$top/fuse" c 10 229
mount --bind "$top/fuse" /dev/fuse || exit 1
# fusermount3 wants a name.
cp /etc/passwd "$top/passwd"
echo "as_user:x:12345:12345::$home:/bin/sh" >>"$top/passwd"
mount --bind "$top/passwd" /etc/passwd || exit 1
cd "$home" || exit 1
# Whoever makes this file has the kernel forget the names that nobody uses. The
# loop is no child of the program's.
drop=$home/drop
(while kill -0 $$ && sleep 0.1; do
    [ ! -e "$drop" ] || { echo 2 >/proc/sys/vm/drop_caches && rm "$drop"; }
done >/dev/null 2>&1 &)
exec setpriv --reuid 12345 --regid 12345 --clear-groups \
    env -i PATH="$PATH" CI="${CI:-}" HOME="$home" TMPDIR="$home" \
    SESSIONFS_DROP="$drop" \
    SESSIONFS_PROGRAM="$top/bin/sessionfs" "$top/bin/$name" "$@"
