#!/bin/sh
# Checks that no source file is longer than a reader can hold.
# usage: size.sh SOURCE_DIR
set -u
cd "$1" || exit 1
git ls-files -z '*.c' '*.h' '*.sh' '*.cmake' '*CMakeLists.txt' contrib |
    xargs -0 awk '
    FNR == 601 { print FILENAME ": over 600 lines"; bad = 1 }
    END { exit bad }'
