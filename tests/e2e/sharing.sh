#!/bin/sh
# Comes to a mount as other users, in and out of its group; all in a mount
# namespace of its own, with an /etc/fuse.conf of its own.
# usage: sharing.sh PROGRAM
set -u

# shellcheck source=tests/e2e/common.sh
. "${0%/*}/common.sh"
need_fuse
alone 1 "$@"

dir=$2
mnt=$dir/mnt
group=4242
chmod 755 "$dir"
mkdir -m 755 "$dir/bin" "$mnt"
cp "$1" "$1-keeper" "$dir/bin" || exit 1
program=$dir/bin/sessionfs
: >"$dir/fuse.conf"
touch /etc/fuse.conf
mount --bind "$dir/fuse.conf" /etc/fuse.conf || exit 1

wait_all()
{
    for state in "$dir/state" "$dir/user/state"; do
        wait_end "$state"
    done
}

clean()
{
    umount -l "$mnt" 2>/dev/null
    wait_all
}
at_end clean

unmount()
{
    umount "$mnt" || fail 'umount failed'
    wait_all
}

# Who comes: in the group, with it as one of several, and out of it.
member() { setpriv --reuid 5001 --regid "$group" --clear-groups "$@"; }
guest() { setpriv --reuid 5002 --regid 5002 --groups "5003,$group" "$@"; }
stranger() { setpriv --reuid 5004 --regid 5004 --clear-groups "$@"; }

# may WHO SCRIPT, may_not WHO SCRIPT: in the session's directory.
may()
{
    said=$("$1" sh -ec "cd '$mnt/sessions/demo'; $2" 2>&1) ||
        fail "$1 may not: $2: $said"
}
may_not()
{
    if said=$("$1" sh -ec "cd '$mnt/sessions/demo'; $2" 2>&1); then
        fail "$1 may: $2"
    fi
    case $said in
    *'ermission denied'* | *"can't cd to"*) ;;
    *) fail "$1: $2: says '$said'" ;;
    esac
}

# closed_to WHO...: they get at nothing.
closed_to()
{
    for who; do
        may_not "$who" 'cat status'
        for path in README stats sessions sessions/demo/workspace \
            sessions/demo/exec sessions/demo/workspace/file; do
            ! "$who" cat "$mnt/$path" >/dev/null 2>&1 ||
                fail "$who reads $path"
        done
        ! "$who" ls "$mnt" >/dev/null 2>&1 || fail "$who lists the mount"
    done
}

# is MODE:GROUP PATH...
is()
{
    want=$1
    shift
    for path; do
        got=$(stat -c %a:%g "$mnt/$path")
        [ "$got" = "$want" ] || fail "$path is $got, not $want"
    done
}

start()
{
    "$program" -o "state=$dir/state,provider=local$1" "$mnt" ||
        fail 'cannot mount'
    [ -d "$mnt/sessions/demo" ] || mkdir "$mnt/sessions/demo"
    echo 'echo it >file; umask 0; mkdir -p open; echo it >open/file' \
        >"$mnt/sessions/demo/exec" || fail 'root cannot run a command'
}

test='alone'
start ''
closed_to member guest stranger
unmount

test='allow_other'
start ',allow_other'
closed_to member guest stranger
is "600:$(id -g)" sessions/demo/exec sessions/demo/status
is "700:$(id -g)" sessions sessions/demo
unmount

test='gid'
start ",gid=$group"
is 750:$group . sessions sessions/demo sessions/demo/execs
is 660:$group sessions/demo/exec sessions/demo/exec.json sessions/demo/status
is 440:$group README stats error sessions/demo/events \
    sessions/demo/status.json sessions/demo/execs/last/output
is 755:$group sessions/demo/workspace
is 644:$group sessions/demo/workspace/file
is 777:$group sessions/demo/workspace/open
closed_to stranger
for who in member guest; do
    may "$who" 'cat status; cat events >/dev/null; ls -lR . >/dev/null'
    may "$who" 'echo "echo \$((6 * 7))" >exec; [ "$(cat exec)" = 42 ]'
    may "$who" 'exec 3<>exec; echo pwd >&3; [ "$(cat <&3)" = /workspace ]'
    may "$who" 'echo "{\"command\": \"exit 3\"}" >exec.json
        [ "$(cat execs/last/exit_code)" = 3 ]'
    may "$who" 'cat workspace/file; cat workspace/open/file'
    may_not "$who" 'echo more >>workspace/file'
    may_not "$who" 'mkdir workspace/made'
    may_not "$who" 'mkdir ../other'
    may_not "$who" 'rmdir ../demo'
    may_not "$who" 'mv ../demo ../other'
    may_not "$who" 'echo x >events'
    may "$who" 'echo paused >status; [ "$(cat status)" = paused ]
        echo running >status; [ "$(cat status)" = running ]'
done
chmod g+w "$mnt/sessions/demo/workspace/file" "$mnt/sessions/demo/workspace"
may member 'echo more >>workspace/file; mkdir workspace/made
    echo new >workspace/made/file; mv workspace/made workspace/moved
    [ "$(cat workspace/moved/file)" = new ]; rm -r workspace/moved'
grep -q '"uid":5001,' "$mnt/sessions/demo/events" ||
    fail 'events do not say who'
unmount

test='gid by name'
start ",gid=daemon"
is "660:$(getent group daemon | cut -d : -f 3)" sessions/demo/exec
unmount

refused()
{
    pattern=$1
    shift
    if said=$("$@" 2>&1); then
        fail "$*: not refused"
    fi
    echo "$said" | grep -q "$pattern" || fail "$*: says '$said'"
}

test='refused'
refused "there is no group 'no-such-group'" \
    "$program" -o "state=$dir/state,gid=no-such-group" "$mnt"
refused "'4294967295' is no number of a group" \
    "$program" -o "state=$dir/state,gid=4294967295" "$mnt"

# A user other than root needs the administrator's word.
command -v fusermount3 >/dev/null || finish
test='a user'
mknod -m 666 "$dir/fuse" c 10 229
mount --bind "$dir/fuse" /dev/fuse || exit 1
mkdir -m 700 "$dir/user"
chown 65534:65534 "$dir/user" "$mnt"
as_user()
{
    setpriv --reuid 65534 --regid 65534 --clear-groups \
        env HOME="$dir/user" "$@"
}
for option in allow_other gid=$group; do
    refused "option '${option%=*}' needs the line user_allow_other" \
        as_user "$program" -o "state=$dir/user/state,provider=mem,$option" \
        "$mnt"
done
printf '# comment\n  user_allow_other  \n' >"$dir/fuse.conf"
as_user "$program" -o "state=$dir/user/state,provider=mem" "$mnt" ||
    fail 'cannot mount'
! cat "$mnt/README" >/dev/null 2>&1 || fail 'root gets in without allow_other'
unmount
as_user "$program" -o "state=$dir/user/state,provider=mem,allow_other" \
    "$mnt" || fail 'cannot mount'
cat "$mnt/README" >/dev/null || fail 'root does not get in'
! guest cat "$mnt/README" 2>/dev/null || fail 'another user gets in'
unmount
as_user "$program" -o "state=$dir/user/state,provider=mem,gid=$group" \
    "$mnt" || fail 'cannot mount'
guest cat "$mnt/README" >/dev/null || fail 'the group does not get in'
! stranger cat "$mnt/README" 2>/dev/null || fail 'another user gets in'
unmount
finish
