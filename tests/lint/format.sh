#!/bin/sh
# Checks that clang-format would change nothing.
# usage: format.sh SOURCE_DIR
set -u
cd "$1" || exit 1
command -v clang-format >/dev/null || exit 77
git ls-files -z '*.c' '*.h' | xargs -0 -r clang-format --dry-run -Werror
