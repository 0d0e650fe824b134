#!/bin/sh
# Runs the benchmark on a mount of its own.
# usage: bench.sh DIRECTORY_OF_PROGRAMS [--quick] [--json]
set -u

programs=$1
shift

if [ "$(id -u)" -ne 0 ] || [ ! -c /dev/fuse ]; then
    echo "bench: needs root and /dev/fuse" >&2
    [ "${CI:-}" = true ] && exit 1
    exit 77
fi

dir=$(mktemp -d /tmp/bench.XXXXXX) || exit 1
mkdir "$dir/mnt"
mkfifo "$dir/ready"
"$programs/sessionfs" -f -o "state=$dir/state" --ready-fd 3 "$dir/mnt" \
    3>"$dir/ready" &
daemon=$!

cleanup()
{
    echo absent 2>/dev/null >"$dir/mnt/sessions/bench/status"
    umount "$dir/mnt" || umount -l "$dir/mnt"
    wait "$daemon"
    rm -rf --one-file-system "$dir"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM

# Ends without a byte where it could not be mounted.
head -c 1 "$dir/ready" >/dev/null
mkdir "$dir/mnt/sessions/bench" || exit 1
"$programs/bench" "$@" "$dir/mnt/sessions/bench"
