#!/bin/sh
# Runs a test with sandbox_program.py, or another program of this directory, as
# what `jsonl` starts. Its config is the last argument of the test; with --mount
# it is that of the mount's default profile instead. What the program leaves
# behind ends with a pid namespace.
# usage: with_program.sh [--mount] PROGRAM TEST ARGUMENT...
set -u

mount=
if [ "$1" = --mount ]; then
    mount=yes
    shift
fi
here=$(cd "$(dirname "$0")" && pwd)
program=$here/$1
shift
FAKE_ROOT=$(mktemp -d "${TMPDIR:-/tmp}/sessionfs-fake.XXXXXX") || exit 1
FAKE_SCHEMA=$here/../e2e/sandbox.v1.schema.json
export FAKE_ROOT FAKE_SCHEMA
config=$(printf '{"program":"%s","env":["PATH","HOME","FAKE_ROOT","FAKE_SCHEMA"]}' \
    "$program")
if [ "$mount" ]; then
    mkdir "$FAKE_ROOT/profiles"
    printf '{"provider":"jsonl","auto_start":false,"provider_config":%s}' \
        "$config" >"$FAKE_ROOT/profiles/default.json"
    export SESSIONFS_OPTIONS=",profiles=$FAKE_ROOT/profiles"
else
    set -- "$@" "$config"
fi
# The namespace of /proc holds copies of other tests' mounts, which would keep
# them alive beyond their umount.
# shellcheck disable=SC2016
unshare --pid --fork --mount-proc --kill-child sh -c '
    umount --all --lazy --types fuse.sessionfs && exec "$@"' sh "$@"
rc=$?
rm -rf "$FAKE_ROOT"
exit $rc
