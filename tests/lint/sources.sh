#!/bin/sh
# Checks that every C file of the repository is compiled.
# usage: sources.sh SOURCE_DIR BUILD_DIR
set -u
cd "$1" || exit 1
failed=0
for file in $(git ls-files '*.c'); do
    if ! grep -qF "\"file\": \"$PWD/$file\"" "$2/compile_commands.json"; then
        echo "$file: no target compiles it"
        failed=1
    fi
done
exit $failed
