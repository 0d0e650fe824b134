#!/bin/sh
# Runs a test with sandbox_program.py, or another program of this directory, as
# what `jsonl` starts: its config is the last argument of the test. What the
# program leaves behind ends with a pid namespace.
# usage: with_program.sh PROGRAM TEST ARGUMENT...
set -u

here=$(cd "$(dirname "$0")" && pwd)
program=$here/$1
shift
FAKE_ROOT=$(mktemp -d "${TMPDIR:-/tmp}/sessionfs-fake.XXXXXX") || exit 1
FAKE_SCHEMA=$here/../e2e/sandbox.v1.schema.json
[ -f "$FAKE_SCHEMA" ] || FAKE_SCHEMA=
export FAKE_ROOT FAKE_SCHEMA
config=$(printf '{"program":"%s","env":["PATH","HOME","FAKE_ROOT","FAKE_SCHEMA"]}' \
    "$program")
unshare --pid --fork --mount-proc --kill-child "$@" "$config"
rc=$?
rm -rf "$FAKE_ROOT"
exit $rc
