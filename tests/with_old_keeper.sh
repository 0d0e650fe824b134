#!/bin/sh
# Runs a test program of this build, the last argument that is one, with the
# keeper that sees mounts as kernels before Linux 6.15 let it. (as root)
# usage: with_old_keeper.sh [as_user.sh] PROGRAM ARGUMENT...
set -u

if [ "$(id -u)" -ne 0 ]; then
    echo "with_old_keeper: needs root"
    [ "${CI:-}" = true ] && exit 1
    exit 77
fi
case $1 in
*.sh) bin=$(dirname "$2") ;;
*) bin=$(dirname "$1") ;;
esac
exec unshare -m --propagation private sh -c '
    # Copies of other tests mounts would keep them alive beyond their umount.
    umount --all --lazy --types fuse.sessionfs 2>/dev/null || :
    mount --bind "$1/old/sessionfs-keeper" "$1/sessionfs-keeper" || exit
    shift
    exec "$@"' sh "$bin" "$@"
