#!/bin/sh
# Mounts with mount(8), by hand and by fstab, and unmounts in every way; all in
# a mount namespace of its own, where mount finds the program in its path.
# usage: mounting.sh PROGRAM
set -u

# shellcheck source=tests/e2e/common.sh
. "${0%/*}/common.sh"
need_fuse
alone 1 "$@"

program=$1
dir=$2
mnt=$dir/mnt
table=$dir/fstab
state=state=$dir/state
mkdir "$mnt"
mount -t tmpfs none /usr/local/bin || exit 1
ln -s "$program" /usr/local/bin/sessionfs || exit 1
export PATH="/usr/local/bin:$PATH" # mount.fuse3 looks there as it is told.
clean()
{
    umount -l "$mnt" 2>/dev/null
    wait_end "$dir/state"
}
at_end clean

is_mounted()
{
    [ "$(findmnt -n -o FSTYPE,SOURCE -M "$mnt" | tr -s ' ')" = \
        "fuse.sessionfs $1" ]
}

# Works as a mount from SOURCE, with options that match each further argument.
works()
{
    source=$1
    shift
    is_mounted "$source" || fail "not mounted from '$source'"
    for option in nosuid nodev "$@"; do
        findmnt -n -o OPTIONS -M "$mnt" | tr , '\n' | grep -qx "$option" ||
            fail "not mounted with $option"
    done
    [ -d "$mnt/sessions/demo" ] || mkdir "$mnt/sessions/demo"
    echo 'echo "$((6 * 7))"' >"$mnt/sessions/demo/exec"
    [ "$(cat "$mnt/sessions/demo/exec")" = 42 ] || fail 'commands do not run'
}

# unmount COMMAND...
unmount()
{
    "$@" "$mnt" || fail "$1 failed"
    ! findmnt -n -M "$mnt" >/dev/null || fail "$1 did not unmount"
    wait_end "$dir/state"
}

# Refused with words that match PATTERN, and nothing is mounted.
refused()
{
    pattern=$1
    shift
    if words=$("$@" 2>&1); then
        fail "$*: not refused"
    fi
    echo "$words" | grep -q "$pattern" || fail "$*: says '$words'"
    ! findmnt -n -M "$mnt" >/dev/null || fail "$*: mounted"
}

test='by hand'
mount -t fuse.sessionfs none "$mnt" -o "$state,provider=local" ||
    fail 'mount failed'
works none rw
mkdir "$dir/other"
words=$(mount -t fuse.sessionfs none "$dir/other" -o "$state" 2>&1) &&
    fail 'two mounts on one state'
echo "$words" | grep -q 'is in use by process' || fail "says '$words'"
words=$("$program" -o "state=$dir/second" "$mnt" 2>&1) &&
    fail 'two mounts on one directory'
echo "$words" | grep -q "is mounted on '$mnt' already" || fail "says '$words'"
[ "$(findmnt -n -M "$mnt" | wc -l)" -eq 1 ] || fail 'mounted twice'
unmount umount

test='by hand, suid and dev'
mount -t fuse.sessionfs sessionfs "$mnt" -o "$state,suid,dev"
works sessionfs rw
unmount fusermount3 -u

# A source of that name is no reason to start the client.
test='by hand, from run'
mount -t fuse.sessionfs run "$mnt" -o "$state" || fail 'mount failed'
works run rw
unmount umount

test='fstab'
echo "none $mnt fuse.sessionfs $state,provider=local,_netdev,nofail,\
x-systemd.automount 0 0" >"$table"
mount -T "$table" -a || fail 'mount -a failed'
works none rw
mount -T "$table" -a || fail 'the second mount -a failed'
[ "$(findmnt -n -M "$mnt" | wc -l)" -eq 1 ] || fail 'mounted twice'
unmount umount

test='fstab, options of ours'
mkdir "$dir/with"
echo "none $mnt fuse.sessionfs gid=4242,state=$dir/with/a\\,b,links=raw,\
events_keep=500,execs_keep=7,unmount_timeout=20,on_unmount=keep 0 0" >"$table"
mount -T "$table" -a || fail 'mount -a failed'
works none rw allow_other
[ -e "$dir/with/a,b/state.db" ] || fail "the state is in $(ls "$dir/with")"
[ "$(stat -c %a:%g "$mnt/sessions/demo/exec")" = 660:4242 ] || fail 'no gid'
echo 'ln -sf /etc/passwd out' >"$mnt/sessions/demo/exec"
[ "$(readlink "$mnt/sessions/demo/workspace/out")" = /etc/passwd ] ||
    fail 'no raw links'
umount "$mnt" || fail 'umount failed'
wait_end "$dir/with/a,b"

test='a file of options'
printf '# ours\nstate=%s\ngid=4242\n' "$dir/with/a,b" >"$dir/conf"
"$program" --config "$dir/conf" -o links=safe "$mnt" || fail 'cannot mount'
works sessionfs rw allow_other
[ "$(stat -c %a:%g "$mnt/sessions/demo/exec")" = 660:4242 ] || fail 'no gid'
! readlink "$mnt/sessions/demo/workspace/out" || fail 'a raw link'
umount "$mnt" || fail 'umount failed'
wait_end "$dir/with/a,b"
echo colour=red >>"$dir/conf"
refused "conf:4: unknown option 'colour'" "$program" --config "$dir/conf" "$mnt"
chmod g+w "$dir/conf"
refused 'conf: others may write it' "$program" --config "$dir/conf" "$mnt"

test='fstab, noauto'
echo "sessionfs $mnt fuse.sessionfs noauto,user,$state 0 0" >"$table"
mount -T "$table" -a || fail 'mount -a failed'
! findmnt -n -M "$mnt" >/dev/null || fail 'mount -a mounted it'
mount -T "$table" "$mnt" || fail 'mount failed'
works sessionfs noexec
unmount umount

test='read-only'
mount -t fuse.sessionfs none "$mnt" -o "ro,$state" || fail 'mount failed'
is_mounted none || fail 'not mounted'
[ "$(cat "$mnt/sessions/demo/execs/last/output")" = 42 ] ||
    fail 'files cannot be read'
for file in exec status exec.json workspace/new; do
    refusal=$( (echo absent >"$mnt/sessions/demo/$file") 2>&1)
    [ "${refusal%Read-only file system}" != "$refusal" ] ||
        fail "$file: '$refusal'"
done
! mkdir "$mnt/sessions/new" 2>/dev/null || fail 'mkdir made a session'
unmount umount

test='a second SIGTERM, and a log that nobody reads'
mkdir "$dir/faults"
mkfifo "$dir/pipe"
(exec 9<"$dir/pipe" && sleep 1) &
SESSIONFS_MEM_CONTROL=$dir/faults "$program" -f \
    -o "state=$dir/with/mem,provider=mem" "$mnt" 2>"$dir/pipe" &
daemon=$!
timeout 20 sh -c "until [ -d '$mnt/sessions' ]; do sleep 0.05; done"
for id in a b; do
    mkdir "$mnt/sessions/$id" && echo running >"$mnt/sessions/$id/status"
done
sleep 1.2
echo 'errno EIO' >"$dir/faults/pause@a"
echo 'delay 1500' >"$dir/faults/pause@b"
kill -TERM "$daemon"
sleep 0.5
kill -TERM "$daemon"
kill -HUP "$daemon"
wait "$daemon" || fail "ended with $?"
! findmnt -n -M "$mnt" >/dev/null || fail 'still mounted'

test='refused'
refused "option 'suid' is refused" "$program" -o "$state,suid" "$mnt"
refused "option 'dev' is refused" "$program" -o "dev,$state" "$mnt"
refused "option 'suid' is refused" \
    mount.fuse3 none "$mnt" -t fuse.sessionfs -o "suid,$state"
mkdir "$dir/bound"
mount --bind "$dir" "$dir/bound" || fail 'cannot bind'
refused 'the mount point lies in the state directory' \
    "$program" -o "state=$dir/bound" "$mnt"
umount "$dir/bound"
refused 'the state directory lies in the mount point' \
    "$program" -o "state=$mnt/state" "$mnt"
refused "unknown option 'colour'" \
    mount -t fuse.sessionfs none "$mnt" -o "$state,colour=red"
refused "unknown option '--bogus'" "$program" --bogus "$mnt"
refused "unknown option '-x'" "$program" -fx "$mnt"
refused 'is not registered' \
    mount -t fuse.sessionfs none "$mnt" -o "$state,provider=nobody"
finish
