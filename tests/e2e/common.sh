#!/bin/sh
# What the scripts here share; to be sourced.
script=$(basename "$0" .sh)

# At home a reason not to run; where everything was asked for, a failure.
need_fuse()
{
    [ "$(id -u)" -eq 0 ] && [ -c /dev/fuse ] && return
    echo "$script: needs root and /dev/fuse"
    [ "${CI:-}" = true ] && exit 1
    exit 77
}

# alone COUNT ARGUMENT...: goes on with these COUNT arguments in a mount
# namespace of its own, and with one more: a scratch directory.
alone()
{
    count=$1
    shift
    [ $# -eq "$count" ] || return 0
    dir=$(mktemp -d "/tmp/$script.XXXXXX") || exit 1
    unshare -m "$0" "$@" "$dir"
    rc=$?
    rm -rf --one-file-system "$dir"
    exit "$rc"
}

# start_daemon PROGRAM OPTIONS MOUNT_POINT: ends when that can be used; $! is its
# process.
start_daemon()
{
    mkfifo "$dir/ready"
    "$1" -f -o "$2" --ready-fd 3 "$3" 3>"$dir/ready" 2>>"$dir/log" &
    # Ends without a byte where it could not be mounted.
    [ "$(head -c 1 "$dir/ready" | wc -c)" -eq 1 ] || {
        cat "$dir/log"
        exit 1
    }
    rm "$dir/ready"
}
