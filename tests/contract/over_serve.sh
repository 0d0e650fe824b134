#!/bin/sh
# Runs the contract's suite on `jsonl` over `sessionfs serve`, which has
# sandboxes of `local`: both ends of the protocol against each other.
# usage: over_serve.sh SUITE PROGRAM
set -u

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

"$1" jsonl "{\"program\": \"$2\", \"argv\": [\"serve\", \"-o\",
    \"state=$state,provider=local\"]}"
