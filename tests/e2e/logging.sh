#!/bin/sh
# Reads what the daemon logs, and where; all in a mount namespace of its own,
# which has sockets of a journal and of syslog that write to files.
# usage: logging.sh PROGRAM
set -u

# shellcheck source=tests/e2e/common.sh
. "${0%/*}/common.sh"
need_fuse
command -v python3 >/dev/null || exit 77
alone 1 "$@"

program=$1
dir=$2
mnt=$dir/mnt
demo=$mnt/sessions/demo
servers=
mkdir "$mnt"
mount -t tmpfs none /run || exit 1
mount -t tmpfs none /dev || exit 1
mknod -m 666 /dev/null c 1 3
mknod -m 666 /dev/urandom c 1 9
mknod -m 600 /dev/fuse c 10 229
clean()
{
    umount -l "$mnt" 2>/dev/null
    wait_end "$dir/state"
    # shellcheck disable=SC2086  # words
    kill $servers
}
at_end clean

# serve SOCKET FILE
serve()
{
    python3 -c '
import socket, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
server.bind(sys.argv[1])
with open(sys.argv[2], "ab", buffering=0) as file:
    while True:
        file.write(server.recv(1 << 16) + b"\n")
' "$1" "$2" &
    servers="$servers $!"
    timeout 10 sh -c "until [ -S '$1' ]; do sleep 0.05; done" ||
        fail "no socket $1"
}

# Lets operations fail, once there is a mount.
provoke()
{
    timeout 20 sh -c "until [ -d '$mnt/sessions' ]; do sleep 0.05; done"
    [ -d "$demo" ] || mkdir "$demo"
    (echo bogus >"$demo/status") 2>/dev/null
    mkdir "$mnt/sessions/a\"b err=OK
forged" 2>/dev/null
}

start()
{
    "$program" "$@" -o "state=$dir/state,provider=mem" "$mnt" ||
        fail 'cannot mount'
    provoke
}

unmount()
{
    umount "$mnt" || fail 'umount failed'
    wait_end "$dir/state"
}

# has FILE PATTERN: soon.
has()
{
    timeout 10 sh -c 'until grep -aqE "$2" "$1"; do sleep 0.05; done' \
        sh "$1" "$2" || fail "no '$2' in $(cat "$1")"
}

bad="op=write session=demo exec=0 uid=0 pid=[0-9]+ err=EINVAL name=\"status\" \
msg=\"'bogus' is none of running, paused and absent\""
forged='op=mkdir session=- exec=0 uid=0 pid=[0-9]+ err=EINVAL '\
'name="a\\"b err=OK\\nforged" msg="[^"]*"'

test='stderr'
"$program" -f -o "state=$dir/state,provider=mem" "$mnt" 2>"$dir/stderr" &
job=$!
provoke
has "$dir/stderr" "^sessionfs: warning: $bad\$"
has "$dir/stderr" "^sessionfs: warning: $forged\$"
unmount
wait "$job"

test='stderr of the background'
start -o log=stderr 2>"$dir/background"
has "$dir/background" "^sessionfs: warning: $bad\$"
unmount

test='no journal'
words=$("$program" -o "state=$dir/state,log=journal" "$mnt" 2>&1) &&
    fail 'not refused'
[ "$words" = "sessionfs: option 'log': there is no journal here" ] ||
    fail "says '$words'"

test='syslog'
serve /dev/log "$dir/syslog"
start
has "$dir/syslog" "^<28>.*sessionfs\[[0-9]+\]: $bad"
unmount

# Only where it is built with it.
if ldd "$program" | grep -q libsystemd; then
    test='journal'
    mkdir -p /run/systemd/journal
    serve /run/systemd/journal/socket "$dir/journal"
    start
    has "$dir/journal" "^MESSAGE=$bad\$"
    for field in PRIORITY=4 SYSLOG_IDENTIFIER=sessionfs SESSIONFS_OP=write \
        ERRNO=22 SESSIONFS_SESSION=demo SESSIONFS_UID=0; do
        has "$dir/journal" "^$field\$"
    done
    ! grep -aq '^forged' "$dir/journal" || fail 'a name forges a line'
    unmount
    : >"$dir/syslog"
    test='syslog beside a journal'
    start -o log=syslog
    has "$dir/syslog" "sessionfs\[[0-9]+\]: $bad"
    unmount
fi

# What a command is given is not logged, however it fails.
test='secrets'
"$program" -d -o "state=$dir/state,provider=mem" "$mnt" 2>"$dir/debug" &
job=$!
provoke
has "$dir/debug" "$bad"
for request in '{"command":"true","env":{"TOKEN":"hushhush"},"stdin":"hushhush"}' \
    '{"command":"hushhush","env":{"TOKEN=hushhush":"x"}}' \
    '{"command":"hushhush","env":{"TOKEN":"hushhush"}' \
    '{"command":"x","env":{"TOKEN":"hushhush"x}}' \
    '{"command":"x","stdin":"hushhush' '{"stdin_base64":"hush hush"}' \
    '{"command":"x","cwd":"hush\u0000hush"}' 'hushhush' '"hushhush'; do
    (printf '%s' "$request" >"$demo/exec.json") 2>/dev/null
done
(echo 'echo hushhush; nosuchverb hushhush' >"$demo/exec") 2>/dev/null
(printf 'hushhush\0' >"$demo/exec") 2>/dev/null
for config in '{"provider":"mem","provider_config":{"token":"hushhush"' \
    '{"provider":"mem","provider_config":{"x":"hushhush"y}}'; do
    (printf '%s' "$config" >"$mnt/new") 2>/dev/null
    (printf '%s' "$config" >"$demo/config.json") 2>/dev/null
done
init=$mnt/sessions/init
mkdir "$init"
echo '{"provider":"mem","init":{"commands":["e:hushhush exit:1"]}}' \
    >"$init/config.json"
(echo o:x >"$init/exec") 2>/dev/null
(echo '{"command":"o:x"}' >"$init/exec.json") 2>/dev/null
cat "$init/exec" 2>/dev/null
grep -q hushhush "$init/error" || fail 'error does not tell of the init command'
has "$dir/debug" 'msg="told in error alone"'
(echo hushhush >"$demo/status") 2>/dev/null # This is no secret: it is seen.
has "$dir/debug" "'hushhush' is none of"
! grep -a hushhush "$dir/debug" | grep -av "'hushhush' is none of" ||
    fail 'a secret is logged'
! grep -aE 'hush' "$demo/error" | grep -av "'hushhush' is none of" ||
    fail 'a secret is in error'
unmount
wait "$job"

test='core dumps'
start
pid=$(cut -d ' ' -f 1 "$dir/state/lock")
grep -qE '^Max core file size +1 ' "/proc/$pid/limits" ||
    fail "$(grep core "/proc/$pid/limits")"
unmount
finish
