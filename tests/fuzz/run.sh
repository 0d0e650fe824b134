#!/bin/sh
# Fuzzes one target, from its corpus; what it finds new goes into a directory
# beside the program, which begins empty.
# usage: run.sh PROGRAM CORPUS [LIBFUZZER_OPTION...]
set -eu
program=$1
corpus=$2
shift 2
rm -rf "$program.new"
mkdir "$program.new"
exec "$program" -seed=1 -verbosity=0 -artifact_prefix="$program." "$@" \
    "$program.new" "$corpus"
