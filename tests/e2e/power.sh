#!/bin/sh
# Cuts the power: the state lies on a disk of its own, a file, which is copied
# as it is at one moment. What -o durable=power reported before is there, on
# the copy, and what nobody waited for is not.
# usage: power.sh PROGRAM
set -u

# shellcheck source=tests/e2e/common.sh
. "${0%/*}/common.sh"
need_fuse
alone 1 "$@"

program=$1
dir=$2
mnt=$dir/mnt
session=$mnt/sessions/one
daemon=
command -v mkfs.ext4 >/dev/null || {
    echo "power: no mkfs.ext4"
    exit 77
}

start()
{
    start_daemon "$program" "state=$dir/disk/state,durable=$1" "$mnt"
    daemon=$!
}

stop()
{
    [ -z "$daemon" ] || {
        kill "$daemon"
        wait "$daemon"
    }
    umount "$dir/disk" 2>/dev/null || umount -l "$dir/disk"
}

# Nothing is written by itself meanwhile.
plug_in()
{
    mount -o loop,commit=300 "$1" "$dir/disk" || {
        echo "power: no loop device"
        exit 77
    }
}

# run MODE: works, and leaves the disk as it is when the power goes.
run()
{
    truncate -s 96M "$dir/image"
    mkfs.ext4 -q -F "$dir/image" || exit 1
    plug_in "$dir/image"
    start "$1"
    mkdir "$session" || exit 1
    echo 'mkdir d; seq 20000 >d/one' >"$session/exec"
    seq 20001 >"$session/workspace/two"
    echo 'seq 20002 >d/three' >"$session/exec"
    cp "$dir/image" "$dir/cut"
    echo absent >"$session/status"
    kill "$daemon"
    wait "$daemon"
    daemon=
    umount "$dir/disk" || umount -l "$dir/disk"
}

mkdir "$mnt" "$dir/disk"
trap stop EXIT
# What the kernel happens to write by itself is there all the same.
lost=
for _ in 1 2 3; do
    run process
    plug_in "$dir/cut"
    start process
    [ -e "$session/execs/2/exit_code" ] &&
        [ -e "$session/checkpoints/3/d/three" ] || lost=yes
    stop
    daemon=
    [ -z "$lost" ] || break
done
[ "$lost" ] || fail 'nobody waits, and all is there: this test tells nothing'

run power
plug_in "$dir/cut"
start power
[ "$(cat "$session/execs/2/exit_code")" = 0 ] || fail 'the command is lost'
seq 20000 >"$dir/one"
seq 20001 >"$dir/two"
seq 20002 >"$dir/three"
cmp "$dir/one" "$session/checkpoints/3/d/one" || fail 'one'
cmp "$dir/two" "$session/checkpoints/3/two" || fail 'two'
cmp "$dir/three" "$session/checkpoints/3/d/three" || fail 'three'
echo 3 >"$session/restore" || fail 'restore'
cmp "$dir/three" "$session/workspace/d/three" || fail 'after a restore'
echo absent >"$session/status"
finish
