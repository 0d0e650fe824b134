#!/bin/sh
# Checks the manual pages' markup.
# usage: man.sh SOURCE_DIR
set -u
cd "$1" || exit 1
command -v mandoc >/dev/null || exit 77
git ls-files -z '*.[1-9]' | xargs -0 -r mandoc -T lint -W warning
