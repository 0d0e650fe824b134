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
