#!/bin/sh
# What the scripts here share; to be sourced.
script=$(basename "$0" .sh)
failed=0

# fail WORDS: goes on with the script; $test says where it is, if anything.
fail()
{
    echo "$script: ${test:+$test: }$1"
    failed=1
}

finish()
{
    exit "$failed"
}

end()
{
    ended=$?
    "$last_act"
    [ "$ended" -ne 0 ] || finish
    exit "$ended"
}

# at_end COMMAND: what the script does last, which may fail() as well.
at_end()
{
    last_act=$1
    trap end EXIT
    trap 'exit 1' HUP INT TERM
}

# wait_end STATE: whoever unmounts goes on before the daemon has ended.
wait_end()
{
    [ ! -e "$1/lock" ] || timeout 30 flock "$1/lock" true ||
        fail "the daemon does not end: $(cat "$1/lock")"
}

# At home a reason not to run; where everything was asked for, a failure.
need_fuse()
{
    [ "$(id -u)" -eq 0 ] && [ -c /dev/fuse ] && return
    echo "$script: needs root and /dev/fuse"
    [ "${CI:-}" = true ] && exit 1
    exit 77
}

# alone COUNT ARGUMENT...: goes on with these COUNT arguments in a mount
# namespace of its own, and with one more: a scratch directory, in /tmp if not
# in $scratch.
alone()
{
    count=$1
    shift
    if [ $# -ne "$count" ]; then
        # Copies of other tests' mounts would keep them alive beyond their
        # umount.
        umount --all --lazy --types fuse.sessionfs 2>/dev/null || :
        return
    fi
    dir=$(mktemp -d "${scratch:-/tmp}/$script.XXXXXX") || exit 1
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
