#!/bin/sh
# Checks the shell scripts. Functions that only an argument names look
# unreachable to shellcheck, hence SC2317; and single quotes are meant, SC2016.
# usage: shell.sh SOURCE_DIR
set -u
cd "$1" || exit 1
command -v shellcheck >/dev/null || exit 77
{
    git grep -lIE '^#!/bin/(ba)?sh'
    git ls-files '*.bash'
} | xargs shellcheck -e SC2016,SC2317
