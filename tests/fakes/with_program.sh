#!/bin/sh
# Runs a test with sandbox_program.py, or another program of this directory, as
# what `jsonl` starts. Its config is the last argument of the test; with --mount
# it is that of the mount's default profile instead. What the program leaves
# behind ends with a pid namespace. With --all-methods it is a failure when not
# each method of the protocol was called.
# usage: with_program.sh [--mount|--all-methods] PROGRAM TEST ARGUMENT...
set -u

mount=
all=
case $1 in
--mount) mount=yes ;;
--all-methods) all=yes ;;
esac
[ "$mount$all" ] && shift
here=$(cd "$(dirname "$0")" && pwd)
program=$here/$1
shift
FAKE_ROOT=$(mktemp -d "${TMPDIR:-/tmp}/sessionfs-fake.XXXXXX") || exit 1
FAKE_LOG=$FAKE_ROOT/log
export FAKE_ROOT FAKE_LOG
env='"PATH","HOME","FAKE_ROOT","FAKE_LOG"'
config=$(printf '{"program":"%s","env":[%s],"cwd":"/ws"}' "$program" "$env")
if [ "$mount" ]; then
    mkdir "$FAKE_ROOT/profiles"
    printf '{"provider":"jsonl","auto_start":false,"provider_config":%s}' \
        "$config" >"$FAKE_ROOT/profiles/default.json"
    export SESSIONFS_OPTIONS=",profiles=$FAKE_ROOT/profiles"
    export NEEDS="\"provider_config\": $config, "
else
    set -- "$@" "$config"
fi
# The namespace of /proc holds copies of other tests' mounts, which would keep
# them alive beyond their umount; some go away by themselves meanwhile.
# shellcheck disable=SC2016
unshare --pid --fork --mount-proc --kill-child sh -c '
    umount --all --lazy --types fuse.sessionfs 2>/dev/null
    exec "$@"' sh "$@"
rc=$?
if [ "$all" ] && [ $rc = 0 ] && [ "$(sort -u "$FAKE_LOG" | wc -l)" != 12 ]; then
    echo 'with_program: not all methods were called, but:'
    sort "$FAKE_LOG" | uniq -c
    rc=1
fi
rm -rf "$FAKE_ROOT"
exit $rc
