#!/bin/sh
# Runs the contract's suite on `jsonl` over `sessionfs serve`, which has
# sandboxes of `local`: both ends of the protocol against each other. Each
# message is held against the protocol's schema, and there must be one of each
# kind. With --quick what takes long is left out.
# usage: over_serve.sh [--quick] SUITE PROGRAM
set -u

if [ "$1" = --quick ]; then
    export CONTRACT_QUICK=yes
    shift
fi

dir=$(mktemp -d "${TMPDIR:-/tmp}/sessionfs-serve.XXXXXX") || exit 1
state=$dir/state
# The daemon ends by itself, but later.
clean()
{
    read -r pid _ <"$state/lock" && kill "$pid"
    timeout 30 flock "$state/lock" true || echo 'over_serve: it does not end'
    rm -rf --one-file-system "$dir"
}
trap clean EXIT
trap 'exit 1' HUP INT TERM

here=$(cd "$(dirname "$0")" && pwd)
export CHECKED_LOG="$dir/log"
"$1" jsonl "{\"program\": \"$here/../fakes/checked.py\", \"argv\": [\"$2\",
    \"serve\", \"-o\", \"state=$state,provider=local\"],
    \"env\": [\"PATH\", \"HOME\", \"TMPDIR\", \"CHECKED_LOG\"],
    \"cwd\": \"/workspace\"}" || exit 1
seen=$(sort -u "$CHECKED_LOG")
# Twelve methods and four types of events.
if [ "$(echo "$seen" | wc -l)" != 16 ] || echo "$seen" | grep -q '^bad'; then
    echo "over_serve: there was:
$seen"
    exit 1
fi
