#!/bin/sh
# Checks that the scripts and files that README.md names exist, and that those
# it tells to run can be run.
# usage: readme.sh SOURCE_DIR
set -u
cd "$1" || exit 1
failed=0
fail()
{
    echo "README.md: $1"
    failed=1
}

commands=$(sed -nE 's/^(    )?(\$ )?(contrib\/[a-z-]+).*/\3/p' README.md)
[ "$(echo "$commands" | sed -n 1p)" = contrib/quickstart ] ||
    fail "the first command is not contrib/quickstart"
[ "$(echo "$commands" | sed -n 2p)" = contrib/check ] ||
    fail "the second command is not contrib/check"
for command in $commands; do
    [ -x "$command" ] || fail "$command cannot be run"
done
for path in $(grep -oE '`(contrib|core|fs|providers|tests)/[a-zA-Z0-9_./-]*`' \
    README.md | tr -d '`' | grep -v NAME); do
    [ -e "$path" ] || fail "$path does not exist"
done
exit $failed
